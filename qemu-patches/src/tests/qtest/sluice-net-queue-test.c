/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the policy of a class's queue: its limits, CoDel, marks, the bucket of new
 * connections, frames that come too late for their window; received frames in a
 * migration; and frames of every kind that no protocol knows.
 *
 * Frames and rates are as in sluice-nic.h: frame n >= 1 of a class that is given
 * N at once goes on after n - 1 ms (and 1 ns).
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "standard-headers/linux/virtio_config.h"
#include "sluice-frames.h"

#define BULK        DSCP_OF_TAG(2)
#define CODEL       ", 'aqm': 'codel'"
#define CODEL_ECN   ", 'aqm': 'codel', 'ecn': true"
/*
 * Frame 6 is the first to wait 5 ms (5 ms and 1 ns), and 100 ms later the release of
 * frame 106 brings the first signal, the next comes 100 ms on.
 */
#define SIGNALLED   106
#define MANY        130

static void send_ip(Net *net, unsigned ecn, unsigned tcp_flags, uint8_t number)
{
    uint8_t frame[FRAME_BYTES];

    make_ip_frame(frame, BULK, ecn, tcp_flags, number);
    network_send_bytes(net, frame, sizeof(frame));
}

static unsigned ecn_in(Net *net, uint64_t buffer)
{
    return qtest_readb(net->qts, buffer + HEADER_BYTES + 15) & 3;
}

static void check_checksum(Net *net, uint64_t buffer)
{
    uint8_t ip[20];

    qtest_memread(net->qts, buffer + HEADER_BYTES + 14, ip, sizeof(ip));
    g_assert_cmpint(header_checksum(ip), ==, 0);
}

/* Receive */

static void test_rx_limits(void)
{
    Net *net = net_new("");
    uint64_t buffers[16];

    set_bulk(net, "net-rx", ", 'limit-packets': 3");
    post_buffers(net, buffers, 16);
    network_send_many(net, BULK, 0, 8);
    wait_for(drops_of(net, "bulk", "net-rx", "backlog") == 4);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 3);
    set_bulk(net, "net-rx", ", 'limit-bytes': 5000");
    network_send_many(net, BULK, 10, 4);
    wait_for(drops_of(net, "bulk", "net-rx", "backlog") == 6);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 5);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    wait_for(received(net) == 6);
    g_assert_cmpint(number_in(net, buffers[3]), ==, 3);
    g_assert_cmpint(number_in(net, buffers[4]), ==, 10);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 0);
    net_free(net);
}

/* It is not another class's queue that fills. */
static void test_rx_reserved(void)
{
    Net *net = net_new("");
    uint64_t buffers[16];

    limit_class(net, "bulk", 2, "net-rx");
    limit_class(net, "video", 3, "net-rx");
    post_buffers(net, buffers, 16);
    network_send_many(net, BULK, 0, 200);
    wait_for(drops_of(net, "bulk", "net-rx", "backlog") == 200 - 1 - 131);
    network_send_many(net, DSCP_OF_TAG(3), 0, 100);
    wait_for(backlog(net, "video", "net-rx") == 99);
    g_assert_cmpint(drops_of(net, "video", "net-rx", "backlog"), ==, 0);
    net_free(net);
}

static void test_rx_codel(void)
{
    Net *net = net_new("");
    uint64_t buffers[MANY];

    set_bulk(net, "net-rx", CODEL);
    post_buffers(net, buffers, MANY);
    for (unsigned n = 0; n < MANY; n++) {
        send_ip(net, ECT_0, 0, n);          /* which is of no use here */
    }
    wait_for(backlog(net, "bulk", "net-rx") == MANY - 1);
    qtest_clock_step(net->qts, (SIGNALLED - 1) * FRAME_NS);
    g_assert_cmpint(drops_of(net, "bulk", "net-rx", "codel"), ==, 0);
    qtest_clock_step(net->qts, 1);
    g_assert_cmpint(drops_of(net, "bulk", "net-rx", "codel"), ==, 1);
    /* Nothing was charged for it: the one behind goes a frame later. */
    qtest_clock_step(net->qts, FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-rx"), ==, SIGNALLED + 2);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    wait_for(received(net) == MANY - 1);
    g_assert_cmpint(number_in(net, buffers[SIGNALLED]), ==, SIGNALLED);
    g_assert_cmpint(number_in(net, buffers[SIGNALLED + 1]), ==, SIGNALLED + 2);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "dropped-requests"),
                    ==, 1);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 0);
    net_free(net);
}

static void test_rx_ecn(void)
{
    Net *net = net_new("");
    uint64_t buffers[MANY];

    set_bulk(net, "net-rx", CODEL_ECN);
    post_buffers(net, buffers, MANY);
    for (unsigned n = 0; n < MANY; n++) {
        send_ip(net, ECT_0, 0, n);
    }
    wait_for(backlog(net, "bulk", "net-rx") == MANY - 1);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    wait_for(received(net) == MANY);
    for (unsigned n = 0; n < MANY; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, n);
        g_assert_cmpint(ecn_in(net, buffers[n]), ==,
                        n == SIGNALLED ? CE : ECT_0);
    }
    check_checksum(net, buffers[SIGNALLED]);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "marked-requests"), ==,
                    1);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "dropped-requests"),
                    ==, 0);
    net_free(net);
}

/* Senders that do not understand marks lose a frame even so. */
static void test_rx_ecn_not_capable(void)
{
    Net *net = net_new("");
    uint64_t buffers[MANY];

    set_bulk(net, "net-rx", CODEL_ECN);
    post_buffers(net, buffers, MANY);
    for (unsigned n = 0; n < MANY; n++) {
        /* The one behind understands them, so that it is marked. */
        send_ip(net, n == SIGNALLED + 1 ? ECT_0 : 0, 0, n);
    }
    wait_for(backlog(net, "bulk", "net-rx") == MANY - 1);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    wait_for(received(net) == MANY);
    g_assert_cmpint(ecn_in(net, buffers[SIGNALLED]), ==, 0);
    g_assert_cmpint(ecn_in(net, buffers[SIGNALLED + 1]), ==, CE);
    for (unsigned n = 0; n < MANY; n++) {
        buffers[n] = post_buffer(net);
        send_ip(net, 0, 0, n);
    }
    wait_for(backlog(net, "bulk", "net-rx") > MANY - 20);
    qtest_clock_step(net->qts, 2 * MANY * FRAME_NS);
    wait_for(drops_of(net, "bulk", "net-rx", "codel") > 0);
    net_free(net);
}

static void test_new_connections(void)
{
    Net *net = net_new("");
    uint64_t buffers[16];

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'queues': "
           "[{'resource': 'net-rx', 'connections-per-second': 10, "
           "'burst-connections': 2}]}}");
    post_buffers(net, buffers, 16);
    for (unsigned n = 0; n < 5; n++) {
        send_ip(net, 0, TCP_SYN, n);
    }
    wait_for(drops_of(net, "bulk", "net-rx", "connection") == 3);
    /* A frame of a connection that is there passes. */
    send_ip(net, 0, TCP_ACK, 10);
    send_ip(net, 0, TCP_SYN | TCP_ACK, 11);
    send_ip(net, 0, 0, 12);
    wait_for(received(net) == 5);
    for (unsigned n = 0; n < 5; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, n < 2 ? n : n + 8);
    }
    /* Any part of a token lets one pass; the rest of it is debt, for 100 ms. */
    qtest_clock_step(net->qts, 1);
    send_ip(net, 0, TCP_SYN, 20);
    wait_for(received(net) == 6);
    qtest_clock_step(net->qts, 100 * NS_PER_MS - 1);
    send_ip(net, 0, TCP_SYN, 21);
    wait_for(drops_of(net, "bulk", "net-rx", "connection") == 4);
    qtest_clock_step(net->qts, 1);
    send_ip(net, 0, TCP_SYN, 22);
    wait_for(received(net) == 7);
    g_assert_cmpint(number_in(net, buffers[6]), ==, 22);
    net_free(net);
}

/* Received frames stay where they are, and are counted there. */
static void test_rx_migrate(void)
{
    Net *source = net_new("");
    Net target;
    uint64_t buffers[8];
    char *uri;

    hold_four_rx(source, buffers);
    uri = net_boot_target(&target, "");
    migrate(source->qs, target.qs, uri);
    wait_for(drops_of(source, "bulk", "net-rx", "reset") == 4);
    g_assert_cmpint(backlog(source, "bulk", "net-rx"), ==, 0);
    g_assert_cmpint(buffered(source, "bulk", "net-rx"), ==, 0);
    g_assert_cmpint(used_count(target.qts, source->queues[RX_QUEUE]), ==, 1);
    network_send(&target, BULK, 9);
    wait_for(backlog(&target, "bulk", "net-rx") == 1);
    qtest_clock_step(target.qts, 1);
    wait_for(used_count(target.qts, source->queues[RX_QUEUE]) == 2);
    net_free_migrated(source, &target, uri);
}

/* Transmit */

/* On a queue of its own a frame is marked on its way, not in the guest. */
static void test_tx_ecn(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    uint8_t frame[FRAME_BYTES], sent[FRAME_BYTES];
    uint64_t in_guest = 0;
    Ring ring;

    set_bulk(net, "net-tx", CODEL_ECN);
    ring_init(&ring, net);
    for (unsigned n = 0; n < MANY; n++) {
        uint16_t id;

        make_ip_frame(frame, DSCP_NONE, ECT_0, 0, n);
        id = ring_send(&ring, frame, sizeof(frame));
        if (n == SIGNALLED) {
            in_guest = ring_buffer(&ring, id);
        }
    }
    wait_for(backlog(net, "bulk", "net-tx") == MANY - 1);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    for (unsigned n = 0; n < MANY; n++) {
        do {
            next_frame(net, sent, sizeof(sent));
        } while (lduw_be_p(sent + 12) != 0x0800);
        g_assert_cmpint(sent[NUMBER_OFFSET], ==, n);
        g_assert_cmpint(sent[15] & 3, ==, n == SIGNALLED ? CE : ECT_0);
        g_assert_cmpint(header_checksum(sent + 14), ==, 0);
    }
    g_assert_cmpint(qtest_readb(net->qts, in_guest + 15) & 3, ==, ECT_0);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "marked-requests"), ==,
                    1);
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    net_free(net);
}

static void test_tx_codel(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    Ring ring;

    set_bulk(net, "net-tx", CODEL);
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, MANY);
    wait_for(backlog(net, "bulk", "net-tx") == MANY - 1);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    for (unsigned n = 0; n < MANY; n++) {
        if (n != SIGNALLED + 1) {
            check_sent(net, n);
        }
    }
    check_nothing_sent(net);
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "codel"), ==, 1);
    net_free(net);
}

/* Held frames are judged when the network has room: let the clock go on. */
static uint8_t next_sent_in_time(Net *net)
{
    char byte;

    wait_for((qtest_clock_step(net->qts, FRAME_NS),
              recv(net->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1));
    return next_sent(net);
}

/* A frame that CoDel dropped is not sent after a stop, nor lost twice. */
static void test_tx_codel_stop(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    int small = 4096;
    unsigned sent = 1;
    Ring ring;

    g_assert_cmpint(setsockopt(net->socket, SOL_SOCKET, SO_RCVBUF, &small,
                               sizeof(small)), ==, 0);
    set_bulk(net, "net-tx", CODEL);
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, 500);
    wait_for(backlog(net, "bulk", "net-tx") == 499);
    /* The socket is full by then, so that released frames wait. */
    qtest_clock_step(net->qts, 400 * FRAME_NS);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'cont'}");
    g_assert_cmpint(next_sent_in_time(net), ==, 0);
    /* The last is never dropped: no queue stands behind it. */
    for (unsigned last = 0; last < 499; sent++) {
        uint8_t step = next_sent_in_time(net) - last;

        g_assert_cmpint(step, >, 0);
        last += step;
    }
    /* QEMU purges the one frame that the network has half taken at a stop. */
    sent += drops_of(net, "bulk", "net-tx", "codel");
    g_assert_cmpint(sent, >=, 499);
    g_assert_cmpint(sent, <=, 500);
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "codel"), >, 0);
    net_free(net);
}

/* Frames that CoDel dropped do not come back to a ring that is being reset. */
static void test_tx_codel_reset(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    QVirtQueue *vq = net->queues[TX_QUEUE];
    uint16_t before;
    Ring ring;

    set_bulk(net, "net-tx", CODEL);
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, 500);
    wait_for(backlog(net, "bulk", "net-tx") == 499);
    /* The socket is full by then, so that released frames are not taken. */
    qtest_clock_step(net->qts, 400 * FRAME_NS);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "codel"), >=, 3);
    before = used_count(net->qts, vq);
    g_assert_cmpint(before, <, SIGNALLED);
    qvirtio_reset(net->dev);
    /* One may be the frame that the network had half taken. */
    g_assert_cmpint((uint16_t)(used_count(net->qts, vq) - before), <=, 1);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    net_free(net);
}

/*
 * A frame of 1 MiB, which no network takes, says nothing of the others: CoDel
 * goes by the largest that there can be, which takes 70 ms.
 */
static void test_tx_codel_huge_frame(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    uint64_t address = guest_alloc(&net->qs->alloc, MiB), desc;
    Ring ring;
    uint16_t id;

    set_bulk(net, "net-tx", CODEL);
    ring_init(&ring, net);
    id = ring.free[--ring.free_count];
    desc = ring.vq->desc + id * 16;
    qtest_writeq(net->qts, desc, address);
    qtest_writel(net->qts, desc + 8, MiB);
    qtest_writel(net->qts, desc + 12, 0);
    qvirtqueue_kick(net->qts, net->dev, ring.vq, id);
    wait_for(ring_taken(&ring) == 0);
    qtest_clock_step(net->qts, 2000 * NS_PER_MS);
    ring_send_many(&ring, DSCP_NONE, 0, 500);
    wait_for(backlog(net, "bulk", "net-tx") == 499);
    qtest_clock_step(net->qts, 500 * FRAME_NS);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "codel"), >, 0);
    net_free(net);
}

/* A driver that takes itself back without a reset leaves no queue to wait for. */
static void test_rx_driver_gone(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_rx(net, buffers);
    net->dev->bus->set_status(net->dev, VIRTIO_CONFIG_S_ACKNOWLEDGE
                                        | VIRTIO_CONFIG_S_DRIVER
                                        | VIRTIO_CONFIG_S_FEATURES_OK);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    g_assert_cmpint(backlog(net, "bulk", "net-rx"), ==, 0);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 0);
    g_assert_cmpint(drops_of(net, "bulk", "net-rx", "reset"), ==, 4);
    g_assert_cmpint(received(net), ==, 1);
    net_free(net);
}

/* Frames of any bytes */

static const unsigned odd_lengths[] = {
    1, 2, 13, 14, 15, 16, 17, 18, 33, 34, 53, 54, 60, 61, 100, 255, 256, 257,
    1513, 1514, 2000,
};

/* Random behind likely beginnings; says how long it is. */
static size_t odd_frame(GRand *random, unsigned i, uint8_t frame[2048])
{
    static const uint8_t types[][2] = {
        { 0x08, 0x00 }, { 0x86, 0xdd }, { 0x81, 0x00 }, { 0x88, 0xa8 },
    };
    size_t length = odd_lengths[i % ARRAY_SIZE(odd_lengths)];

    for (unsigned b = 0; b < 2048; b++) {
        frame[b] = g_rand_int_range(random, 0, 256);
    }
    for (unsigned at = 12; at <= 20; at += 4) {
        if (g_rand_int_range(random, 0, 10) < 8) {
            memcpy(frame + at, types[g_rand_int_range(random, 0, 4)], 2);
        }
    }
    memset(frame, 0xff, 6);
    return length;
}

/* All that the guest sends is sent or dropped, and every descriptor is back. */
static void test_tx_odd_frames(void)
{
    Net *net = net_new(",shaper-class=bulk");
    GRand *random = g_rand_new_with_seed(1);
    uint8_t frame[2048];
    unsigned count = 1500;
    Ring ring;

    set_bulk(net, "net-tx", CODEL_ECN);
    ring_init(&ring, net);
    for (unsigned i = 0; i < count; i++) {
        size_t length = odd_frame(random, i, frame);

        ring_send(&ring, frame, length);
        if (i % 50 == 0) {
            qtest_clock_step(net->qts, 5 * NS_PER_MS);
        }
        while (recv(net->socket, frame, sizeof(frame), MSG_DONTWAIT) > 0) {
            continue;
        }
    }
    for (unsigned i = 0; i < 20; i++) {
        qtest_clock_step(net->qts, 1000 * NS_PER_MS);
        while (recv(net->socket, frame, sizeof(frame), MSG_DONTWAIT) > 0) {
            continue;
        }
    }
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(admitted(net, "bulk", "net-tx")
                    + admitted(net, "default", "net-tx")
                    + stat_of(net->qts, "bulk", "net-tx", "dropped-requests")
                    + stat_of(net->qts, "default", "net-tx",
                              "dropped-requests"), ==, count);
    g_rand_free(random);
    net_free(net);
}

static void test_rx_odd_frames(void)
{
    Net *net = net_new(",shaper-class=bulk");
    GRand *random = g_rand_new_with_seed(2);
    uint8_t frame[2048];
    unsigned count = 1500;

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, "
           "'limits': [{'resource': 'net-rx', " LIMIT_1MBPS "}], "
           "'queues': [{'resource': 'net-rx', 'aqm': 'codel', 'ecn': true, "
           "'connections-per-second': 100}]}}");
    for (unsigned i = 0; i < count; i++) {
        size_t length = odd_frame(random, i, frame);

        network_send_bytes(net, frame, length);
        post_buffer(net);
        if (i % 50 == 0) {
            qtest_clock_step(net->qts, 5 * NS_PER_MS);
        }
        if (i % 500 == 499) {
            /* The test's own ring is not used again: a fresh one. */
            qtest_clock_step(net->qts, 1000 * NS_PER_MS);
            cleanup_queues(net, &net->qs->alloc);
            qvirtio_start_device(net->dev);
            setup_queues(net);
        }
    }
    qtest_clock_step(net->qts, 1000 * NS_PER_MS);
    wait_for(backlog(net, "bulk", "net-rx") == 0);
    network_send(net, BULK, 77);
    /* A frame that waits for buffers when the device is reset counts twice. */
    wait_for(admitted(net, "bulk", "net-rx") + admitted(net, "default", "net-rx")
             + stat_of(net->qts, "bulk", "net-rx", "dropped-requests")
             + stat_of(net->qts, "default", "net-rx", "dropped-requests")
             >= count + 1);
    g_rand_free(random);
    net_free(net);
}

/* One frame over the whole of a chain of descriptors, through the buffer. */
static void test_tx_large_frame(void)
{
    Net *net = net_new_without_indirect();
    size_t size = 60000;
    g_autofree uint8_t *frame = g_malloc(size);
    g_autofree uint8_t *sent = g_malloc(size);
    uint64_t address = guest_alloc(&net->qs->alloc, HEADER_BYTES + size);
    QVirtQueue *vq = net->queues[TX_QUEUE];
    size_t done = 0, total = HEADER_BYTES + size;
    uint32_t head = 0;
    uint8_t small[FRAME_BYTES];

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, "
           "'limits': [{'resource': 'net-tx', " LIMIT_1MBPS "}]}}");
    for (size_t i = 0; i < size; i++) {
        frame[i] = i * 7 + (i >> 8);
    }
    make_frame(small, BULK, 0);
    memcpy(frame, small, 60);
    qtest_memset(net->qts, address, 0, HEADER_BYTES);
    qtest_memwrite(net->qts, address + HEADER_BYTES, frame, size);
    guest_send(net, BULK, 1);
    check_sent(net, 1);
    /* 500 descriptors are more than may be held. */
    for (unsigned i = 0; i < 500; i++) {
        size_t bytes = i < 499 ? 120 : total - done;
        uint32_t id = qvirtqueue_add(net->qts, vq, address + done, bytes, false,
                                     i < 499);

        head = i ? head : id;
        done += bytes;
    }
    qvirtqueue_kick(net->qts, net->dev, vq, head);
    wait_for(buffered(net, "bulk", "net-tx") == 1);
    wait_for(used_count(net->qts, vq) == 2);
    qtest_memset(net->qts, address, 0xee, HEADER_BYTES + size);
    qtest_clock_step(net->qts, 2 * FRAME_NS);
    g_assert_cmpint(next_frame(net, sent, size), ==, size);
    g_assert_cmpmem(sent, size, frame, size);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    net_free(net);
}

/* Configuration */

#define refused_queue(net, queue, ...) \
    qmp_refused((net)->qts, "{'execute': 'shaper-set-class', 'arguments': " \
                "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, " \
                "'queues': [" queue "]}}", __VA_ARGS__)

/*
 * Late for their window. A frame has its turn every 2 ms, and is late 3 ms after
 * it was due, but the ceiling lets one go every 4 ms. So of frames given at once
 * the first passes; each time that a token is there the next one is late, and
 * of any two one may be: it is dropped, and costs nothing, so that the one
 * behind it goes, which had its turn 2 ms later.
 */

#define LATE_FRAMES     9

static void set_window(Net *net, const char *resource)
{
    qmp_ok(net->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': %s, "
           "'bytes-per-second': 250000, 'burst-bytes': 1}]}}", resource);
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'scheduling': "
           "[{'resource': %s, 'window': {'period-ns': 3000000, 'bytes': 1500, "
           "'may-miss': 1, 'of': 2}}]}}", resource);
}

/* Every 4 ms one is dropped and one goes on. */
static void check_late_drops(Net *net, const char *resource)
{
    unsigned odd = LATE_FRAMES / 2;

    wait_for(backlog(net, "bulk", resource) == LATE_FRAMES - 1);
    for (unsigned n = 1; n <= odd; n++) {
        g_assert_cmpint(drops_of(net, "bulk", resource, "window"), ==, n - 1);
        qtest_clock_step(net->qts, 4 * FRAME_NS);
        g_assert_cmpint(admitted(net, "bulk", resource), ==, n + 1);
        g_assert_cmpint(drops_of(net, "bulk", resource, "window"), ==, n);
    }
    g_assert_cmpint(backlog(net, "bulk", resource), ==, 0);
    g_assert_cmpint(stat_of(net->qts, "bulk", resource, "dropped-requests"),
                    ==, odd);
}

static void test_tx_late(void)
{
    Net *net = net_new("");

    set_window(net, "net-tx");
    guest_send_many(net, BULK, 0, LATE_FRAMES);
    check_late_drops(net, "net-tx");
    for (unsigned n = 0; n < LATE_FRAMES; n += 2) {
        check_sent(net, n);
    }
    check_nothing_sent(net);
    /* The guest has all of them back. */
    wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == LATE_FRAMES);
    net_free(net);
}

static void test_rx_late(void)
{
    Net *net = net_new("");
    uint64_t buffers[LATE_FRAMES];

    set_window(net, "net-rx");
    post_buffers(net, buffers, LATE_FRAMES);
    network_send_many(net, BULK, 0, LATE_FRAMES);
    check_late_drops(net, "net-rx");
    wait_for(received(net) == LATE_FRAMES / 2 + 1);
    for (unsigned n = 0; n < LATE_FRAMES; n += 2) {
        g_assert_cmpint(number_in(net, buffers[n / 2]), ==, n);
    }
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 0);
    net_free(net);
}

static void test_refused(void)
{
    Net *net = net_new("");
    QDict *shaper;

    refused_queue(net, "{'resource': 'blk-read'}", "blk-read", "never dropped");
    refused_queue(net, "{'resource': 'net-tx', 'limit-bytes': 0}",
                  "limit-bytes 0", "1 to 67108864");
    refused_queue(net, "{'resource': 'net-tx', 'limit-packets': 262145}",
                  "limit-packets 262145", "1 to 262144");
    refused_queue(net, "{'resource': 'net-rx', 'ecn': true}", "ecn true",
                  "codel");
    refused_queue(net, "{'resource': 'net-rx', 'ecn': true, 'aqm': 'none'}",
                  "ecn true", "codel");
    refused_queue(net, "{'resource': 'net-rx', 'aqm': 'red'}", "red");
    refused_queue(net, "{'resource': 'net-tx', 'connections-per-second': 5}",
                  "connections-per-second 5", "net-rx");
    refused_queue(net, "{'resource': 'net-rx', 'connections-per-second': 0}",
                  "connections-per-second 0", "1000000000000");
    refused_queue(net, "{'resource': 'net-rx', 'burst-connections': 5}",
                  "burst-connections 5", "connections-per-second");
    refused_queue(net, "{'resource': 'net-rx'}, {'resource': 'net-rx'}",
                  "net-rx", "twice");
    /* A good part is not kept. */
    refused_queue(net, "{'resource': 'net-tx', 'limit-packets': 5}, "
                  "{'resource': 'net-rx', 'limit-bytes': -1}",
                  "limit-bytes -1");
    shaper = query_shaper(net->qts);
    g_assert_cmpint(qlist_size(qdict_get_qlist(shaper, "classes")), ==, 1);
    qobject_unref(shaper);
    net_free(net);
}

static void test_query(void)
{
    Net *net = net_new("");
    QDict *shaper, *class, *queue;

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, "
           "'limits': [{'resource': 'net-rx', 'bytes-per-second': 10000000}], "
           "'queues': [{'resource': 'net-tx'}, {'resource': 'net-rx', "
           "'aqm': 'codel', 'connections-per-second': 100}]}}");
    shaper = query_shaper(net->qts);
    class = qobject_to(QDict, qlist_entry_obj(qlist_next(qlist_first(
                qdict_get_qlist(shaper, "classes")))));
    g_assert_cmpint(qlist_size(qdict_get_qlist(class, "queues")), ==, 1);
    queue = qobject_to(QDict, qlist_peek(qdict_get_qlist(class, "queues")));
    g_assert_cmpstr(qdict_get_str(queue, "resource"), ==, "net-rx");
    g_assert_cmpstr(qdict_get_str(queue, "aqm"), ==, "codel");
    g_assert_false(qdict_get_bool(queue, "ecn"));
    g_assert_cmpint(qdict_get_int(queue, "burst-connections"), ==, 5);
    g_assert_false(qdict_haskey(queue, "limit-bytes"));
    qobject_unref(shaper);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "buffer-bytes-max"),
                    ==, 500000);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "buffer-requests-max"),
                    ==, 500000 / 128);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "buffer-bytes-max"),
                    ==, 128 * 1024);
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/queue/rx-limits", test_rx_limits);
    qtest_add_func("/sluice/net/queue/rx-reserved", test_rx_reserved);
    qtest_add_func("/sluice/net/queue/rx-codel", test_rx_codel);
    qtest_add_func("/sluice/net/queue/rx-ecn", test_rx_ecn);
    qtest_add_func("/sluice/net/queue/rx-ecn-not-capable",
                   test_rx_ecn_not_capable);
    qtest_add_func("/sluice/net/queue/new-connections", test_new_connections);
    qtest_add_func("/sluice/net/queue/rx-migrate", test_rx_migrate);
    qtest_add_func("/sluice/net/queue/tx-ecn", test_tx_ecn);
    qtest_add_func("/sluice/net/queue/tx-codel", test_tx_codel);
    qtest_add_func("/sluice/net/queue/tx-codel-stop", test_tx_codel_stop);
    qtest_add_func("/sluice/net/queue/tx-codel-reset", test_tx_codel_reset);
    qtest_add_func("/sluice/net/queue/tx-codel-huge-frame",
                   test_tx_codel_huge_frame);
    qtest_add_func("/sluice/net/queue/rx-driver-gone", test_rx_driver_gone);
    qtest_add_func("/sluice/net/queue/tx-odd-frames", test_tx_odd_frames);
    qtest_add_func("/sluice/net/queue/rx-odd-frames", test_rx_odd_frames);
    qtest_add_func("/sluice/net/queue/tx-large-frame", test_tx_large_frame);
    qtest_add_func("/sluice/net/queue/tx-late", test_tx_late);
    qtest_add_func("/sluice/net/queue/rx-late", test_rx_late);
    qtest_add_func("/sluice/net/queue/refused", test_refused);
    qtest_add_func("/sluice/net/queue/query", test_query);
    return g_test_run();
}
