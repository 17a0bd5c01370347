/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of held frames while the machine or the device goes through its life, many
 * times over in one QEMU: a frame to be sent is sent exactly once and in order, or it
 * went with its queue; nothing stays behind.
 *
 * SLUICE_CYCLES says how often (2). Under the address sanitizer lost memory
 * shows when QEMU exits, because it fails then.
 *
 * As in sluice-net-test.c a frame of class bulk costs a millisecond of the
 * virtual clock, and the first of a batch passes.
 */
#include "qemu/osdep.h"
#include "standard-headers/linux/virtio_pci.h"
#include "sluice-frames.h"

#define BATCH           5
#define LONG_NS         (100 * FRAME_NS)
#define BULK            DSCP_OF_TAG(2)
#define PIIX4_PM        QPCI_DEVFN(1, 3)
#define PM_BASE         0x600
#define CODEL_ECN       ", 'aqm': 'codel', 'ecn': true"
/* The release of this frame brings CoDel's first signal; see the queue's tests. */
#define SIGNALLED       106
#define MANY            130
/* Frames that wait keep their descriptors. */
#define OWN_QUEUE       ",shaper-queues=bulk"

static void net_stop(Net *net)
{
    cleanup_queues(net, &net->qs->alloc);
    qvirtio_pci_device_disable(net->pci);
    qos_object_destroy((QOSGraphObject *)net->pci);
}

static void net_start(Net *net)
{
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    setup_queues(net);
}

static void limit_both(Net *net)
{
    /* The queues are idle: their descriptors may be used again. */
    qvirtqueue_reset_pool(net->queues[TX_QUEUE]);
    qvirtqueue_reset_pool(net->queues[RX_QUEUE]);
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': ["
           "{'resource': 'net-tx', " LIMIT_1MBPS "}, "
           "{'resource': 'net-rx', " LIMIT_1MBPS "}]}}");
    qtest_clock_step(net->qts, LONG_NS);
}

/* Of a batch in each direction the first frame passes; the others are held. */
static void hold_batch(Net *net, uint64_t buffers[BATCH])
{
    uint16_t before = received(net);

    limit_both(net);
    guest_send_many(net, BULK, 0, BATCH);
    wait_for(backlog(net, "bulk", "net-tx") == BATCH - 1);
    check_sent(net, 0);
    post_buffers(net, buffers, BATCH);
    network_send_many(net, BULK, 100, BATCH);
    wait_for(backlog(net, "bulk", "net-rx") == BATCH - 1);
    wait_for((uint16_t)(received(net) - before) == 1);
}

/* The rest of the batch is sent, each frame once and in order. */
static void finish_tx(Net *net, uint16_t before)
{
    wait_for((qtest_clock_step(net->qts, FRAME_NS),
              (uint16_t)(used_count(net->qts, net->queues[TX_QUEUE]) - before)
              == BATCH));
    for (unsigned n = 1; n < BATCH; n++) {
        check_sent(net, n);
    }
    qtest_clock_step(net->qts, LONG_NS);
    check_nothing_sent(net);
}

static void finish_rx(Net *net, const uint64_t buffers[BATCH], uint16_t before)
{
    wait_for((qtest_clock_step(net->qts, FRAME_NS),
              (uint16_t)(received(net) - before) == BATCH));
    for (unsigned n = 0; n < BATCH; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, 100 + n);
    }
}

static void check_forgotten(Net *net)
{
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(backlog(net, "bulk", "net-rx"), ==, 0);
    qtest_clock_step(net->qts, LONG_NS);
    check_nothing_sent(net);
}

static void test_device_reset(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(net, buffers);
        cleanup_queues(net, &net->qs->alloc);
        qvirtio_start_device(net->dev);
        check_forgotten(net);
        setup_queues(net);
    }
    net_free(net);
}

static void test_system_reset(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(net, buffers);
        qmp_ok(net->qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(net->qts, "RESET");
        check_forgotten(net);
        net_stop(net);
        net_start(net);
    }
    net_free(net);
}

static void test_stop_cont(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t rx_before = received(net);
        uint16_t tx_before = used_count(net->qts, net->queues[TX_QUEUE]);

        hold_batch(net, buffers);
        qmp_ok(net->qts, "{'execute': 'stop'}");
        g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
        check_nothing_sent(net);
        if (i % 2) {
            qmp_ok(net->qts, "{'execute': 'cont'}");
            qmp_ok(net->qts, "{'execute': 'stop'}");
        }
        qmp_ok(net->qts, "{'execute': 'cont'}");
        finish_tx(net, tx_before);
        finish_rx(net, buffers, rx_before);
    }
    net_free(net);
}

static void test_stop_reset(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(net, buffers);
        qmp_ok(net->qts, "{'execute': 'stop'}");
        qmp_ok(net->qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(net->qts, "RESET");
        qmp_ok(net->qts, "{'execute': 'cont'}");
        check_forgotten(net);
        net_stop(net);
        net_start(net);
    }
    net_free(net);
}

static bool add_device(Net *net)
{
    QDict *response = qtest_qmp(net->qts, "{'execute': 'device_add', "
                                "'arguments': {'driver': 'virtio-net-pci', "
                                "'id': 'net0', 'netdev': 'hs0', 'addr': %s, "
                                "'shaper': 'sluice0', 'shaper-queues': 'bulk'}}",
                                stringify(SLOT));
    bool added = qdict_haskey(response, "return");

    qobject_unref(response);
    return added;
}

static void test_unplug(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(net, buffers);
        qpci_unplug_acpi_device_test(net->qts, "net0", SLOT);
        check_forgotten(net);
        net_stop(net);
        /* The old device keeps its netdev until its last user is gone. */
        wait_for(add_device(net));
        net_start(net);
    }
    net_free(net);
}

static void test_suspend(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        QPCIDevice *pm = qpci_device_find(net->qs->pcibus, PIIX4_PM);

        g_assert(pm);
        qpci_config_writel(pm, 0x40, PM_BASE | 1);
        qpci_config_writeb(pm, 0x80, 1);
        g_free(pm);
        hold_batch(net, buffers);
        /* Sleep type 1 is S3; bit 13 enters it. */
        qtest_outw(net->qts, PM_BASE + 4, 1 << 13 | 1 << 10);
        qtest_qmp_eventwait(net->qts, "SUSPEND");
        qmp_ok(net->qts, "{'execute': 'system_wakeup'}");
        qtest_qmp_eventwait(net->qts, "WAKEUP");
        check_forgotten(net);
        net_stop(net);
        net_start(net);
    }
    net_free(net);
}

/* Another QEMU takes up the state of then, and sends the held frames. */
static void check_background_state(Net *net, const char *uri, uint16_t before)
{
    Net target = { .queues = { net->queues[RX_QUEUE], net->queues[TX_QUEUE] } };
    QVirtQueue *vq = net->queues[TX_QUEUE];

    net_boot(&target, "", "-incoming defer");
    qmp_ok(target.qts, "{'execute': 'migrate-incoming', 'arguments': "
           "{'uri': %s}}", uri);
    qtest_qmp_eventwait(target.qts, "RESUME");
    wait_for((qtest_clock_step(target.qts, FRAME_NS),
              (uint16_t)(used_count(target.qts, vq) - before) == BATCH));
    for (unsigned n = 1; n < BATCH; n++) {
        check_sent(&target, n);
    }
    g_assert_cmpint(admitted(&target, "bulk", "net-tx"), ==, BATCH - 1);
    qtest_shutdown(target.qs);
    close(target.socket);
}

/*
 * The machine stops for a moment, unless it is stopped all the time, and frames that it
 * has received stay with it.
 */
static void check_background_snapshot(bool stopped)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];
    g_autofree char *file = g_strdup_printf("%s/sluice-net-%d.state",
                                            g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strconcat("file:", file, NULL);

    for (unsigned i = 0; i < cycles() && allow_background_snapshot(net->qts);
         i++) {
        uint16_t rx_before = received(net);
        uint16_t tx_before = used_count(net->qts, net->queues[TX_QUEUE]);

        hold_batch(net, buffers);
        if (stopped) {
            qmp_ok(net->qts, "{'execute': 'stop'}");
        }
        qmp_ok(net->qts, "{'execute': 'migrate', 'arguments': "
               "{'uri': %s}}", uri);
        if (stopped) {
            wait_for(migration_completed(net->qts));
            qmp_ok(net->qts, "{'execute': 'cont'}");
        }
        qtest_qmp_eventwait(net->qts, "RESUME");
        finish_tx(net, tx_before);
        finish_rx(net, buffers, rx_before);
        wait_for(migration_completed(net->qts));
        if (!stopped && i < LOADED_MAX) {
            check_background_state(net, uri, tx_before);
        }
    }
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "dropped-requests"),
                    ==, 0);
    unlink(file);
    net_free(net);
}

static void test_background_snapshot(void)
{
    check_background_snapshot(false);
}

static void test_background_snapshot_stopped(void)
{
    check_background_snapshot(true);
}

/* The network still has a frame to take when the card is gone. */
static void test_unplug_waiting(void)
{
    Net *net = net_new("");
    uint8_t number;

    for (unsigned i = 0; i < cycles(); i++) {
        qvirtqueue_reset_pool(net->queues[TX_QUEUE]);
        block_network(net, DSCP_NONE);
        guest_send_many(net, DSCP_NONE, 1, BATCH);
        qpci_unplug_acpi_device_test(net->qts, "net0", SLOT);
        net_stop(net);
        wait_for(add_device(net));
        net_start(net);
        guest_send(net, DSCP_NONE, 100);
        do {
            number = next_sent(net);
            g_assert(number == 0 || number == 100);
        } while (number != 100);
        check_nothing_sent(net);
    }
    net_free(net);
}

/* A frame that was released, and so charged, before a stop is not charged again. */
static void test_stop_released(void)
{
    Net *net = net_new("");
    uint8_t number;

    hold_four_tx(net);
    fill_network(net);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 5);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'cont'}");
    do {
        number = next_sent(net);
    } while (number == 0);
    g_assert_cmpint(number, ==, 1);
    for (unsigned n = 2; n < 5; n++) {
        check_sent(net, n);
    }
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 5);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    net_free(net);
}

/* It is never sent: the guest is reset. Its charge is given back. */
static void test_stop_released_reset(void)
{
    Net *net = net_new("");
    int64_t tokens;

    hold_four_tx(net);
    fill_network(net);
    qtest_clock_step(net->qts, 4 * FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 5);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    tokens = stat_of(net->qts, "bulk", "net-tx", "tokens-bytes");
    qmp_ok(net->qts, "{'execute': 'system_reset'}");
    qtest_qmp_eventwait(net->qts, "RESET");
    /* One of the four was with the network, which may have sent it. */
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "tokens-bytes"), ==,
                    MIN(tokens + 3 * FRAME_BYTES, FRAME_BYTES));
    net_free(net);
}

static void stop_and_cont(Net *net)
{
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'cont'}");
}

/* Where those that were released before the stop belong to another class. */
static void check_released_is_of_another_class(unsigned tag)
{
    Net *net = net_new("");
    int64_t before;
    uint8_t number;

    hold_four_tx(net);
    fill_network(net);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 5);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    /* 11 is the DSCP of these frames, and of tag 2. */
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'other', 'tag': %u, 'dscp': [11], "
           "'limits': [{'resource': 'net-tx', " LIMIT_1MBPS "}]}}", tag);
    before = admitted(net, "other", "net-tx");
    qmp_ok(net->qts, "{'execute': 'cont'}");
    do {
        number = next_sent(net);
    } while (number == 0);
    g_assert_cmpint(number, ==, 1);
    wait_for(backlog(net, "other", "net-tx") == 3);
    for (unsigned n = 2; n < 5; n++) {
        check_nothing_sent(net);
        qtest_clock_step(net->qts, FRAME_NS);
        check_sent(net, n);
    }
    g_assert_cmpint(admitted(net, "other", "net-tx"), ==, before + 4);
    net_free(net);
}

/* A stranger with the tag of the class that was charged is not that class. */
static void test_stop_class_replaced(void)
{
    check_released_is_of_another_class(2);
}

static void test_stop_tag_changed(void)
{
    check_released_is_of_another_class(3);
}

/* MANY frames of class bulk, of which those from first to last may be marked. */
static void send_capable(Net *net, Ring *ring, unsigned first, unsigned last)
{
    uint8_t frame[FRAME_BYTES];

    set_bulk(net, "net-tx", CODEL_ECN);
    ring_init(ring, net);
    for (unsigned n = 0; n < MANY; n++) {
        make_ip_frame(frame, DSCP_NONE, n >= first && n <= last ? ECT_0 : 0, 0,
                      n);
        ring_send(ring, frame, sizeof(frame));
    }
    wait_for(backlog(net, "bulk", "net-tx") == MANY - 1);
}

/* Reads up to the frame with this number; says how many of them have a mark. */
static unsigned marks_until(Net *net, uint8_t last, uint8_t *marked)
{
    uint8_t frame[FRAME_BYTES];
    unsigned marks = 0;

    do {
        do {
            next_frame(net, frame, sizeof(frame));
        } while (lduw_be_p(frame + 12) != 0x0800);
        g_assert_cmpint(header_checksum(frame + 14), ==, 0);
        if ((frame[15] & 3) == CE) {
            *marked = frame[NUMBER_OFFSET];
            marks++;
        }
    } while (frame[NUMBER_OFFSET] != last);
    return marks;
}

static void check_one_mark(Net *net)
{
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "marked-requests"), ==,
                    1);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "dropped-requests"),
                    ==, 0);
}

/* A frame that was released with a mark, but not sent, has it afterwards. */
static void test_stop_marked_released(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint8_t marked = 0;
    Ring ring;

    send_capable(net, &ring, 0, MANY);
    /* The network is full by then. */
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, MANY);
    g_assert_cmpint(used_count(net->qts, ring.vq), <, SIGNALLED);
    stop_and_cont(net);
    g_assert_cmpint(marks_until(net, MANY - 1, &marked), ==, 1);
    g_assert_cmpint(marked, ==, SIGNALLED);
    check_one_mark(net);
    wait_for(ring_taken(&ring) == 0);
    net_free(net);
}

/* So has a frame that is marked in place of the one before it, and still held. */
static void test_stop_marked_held(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint8_t marked = 0;
    Ring ring;

    send_capable(net, &ring, SIGNALLED + 1, SIGNALLED + 1);
    qtest_clock_step(net->qts, (SIGNALLED - 1) * FRAME_NS + 1);
    g_assert_cmpint(marks_until(net, SIGNALLED, &marked), ==, 0);
    wait_for(backlog(net, "bulk", "net-tx") == MANY - 1 - SIGNALLED);
    stop_and_cont(net);
    wait_for(backlog(net, "bulk", "net-tx") == MANY - 1 - SIGNALLED);
    qtest_clock_step(net->qts, MANY * FRAME_NS);
    g_assert_cmpint(marks_until(net, MANY - 1, &marked), ==, 1);
    g_assert_cmpint(marked, ==, SIGNALLED + 1);
    check_one_mark(net);
    net_free(net);
}

/*
 * A frame passes, and breaks the device, which finds a buffer in the ring that
 * it may not write to. It was admitted, and went nowhere.
 */
static void test_broken_receive_queue(void)
{
    Net *net = net_new("");
    QVirtQueue *vq = net->queues[RX_QUEUE];
    uint64_t address = guest_alloc(&net->qs->alloc, BUFFER_BYTES);

    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, false,
                                   false));
    post_buffer(net);
    network_send(net, DSCP_NONE, 1);
    wait_for(admitted(net, "default", "net-rx") == 1);
    wait_for(drops_of(net, "default", "net-rx", "reset") == 1);
    g_assert_cmpint(stat_of(net->qts, "default", "net-rx", "dropped-bytes"),
                    ==, FRAME_BYTES);
    g_assert_cmpint(received(net), ==, 0);
    net_free(net);
}

/*
 * A chain longer than any device takes, and without room for a byte: the search
 * for room ends at the most there may be, not with the guest's table.
 */
static void test_endless_receive_chain(void)
{
    const unsigned count = 1025;
    Net *net = net_new("");
    QVirtQueue *vq = net->queues[RX_QUEUE];
    uint64_t table = guest_alloc(&net->qs->alloc, 16 * count);
    uint32_t head;

    for (unsigned i = 0; i < count; i++) {
        bool last = i == count - 1;

        qtest_writeq(net->qts, table + 16 * i, table);
        qtest_writel(net->qts, table + 16 * i + 8, 0);
        qtest_writel(net->qts, table + 16 * i + 12, VRING_DESC_F_WRITE
                     | (last ? 0 : VRING_DESC_F_NEXT | (i + 1) << 16));
    }
    head = qvirtqueue_add(net->qts, vq, table, 16 * count, false, false);
    qtest_writew(net->qts, vq->desc + 16 * head + 12, VRING_DESC_F_INDIRECT);
    qvirtqueue_kick(net->qts, net->dev, vq, head);
    network_send(net, DSCP_NONE, 1);
    wait_for(net->dev->bus->get_status(net->dev)
             & VIRTIO_CONFIG_S_NEEDS_RESET);
    g_assert_cmpint(received(net), ==, 0);
    net_free(net);
}

/* A link that goes takes the held frames; the guest gets its descriptors back. */
static void test_link(void)
{
    Net *net = net_new("");

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(net->qts, net->queues[TX_QUEUE]);

        limit_both(net);
        guest_send_many(net, BULK, 0, BATCH);
        wait_for(backlog(net, "bulk", "net-tx") == BATCH - 1);
        check_sent(net, 0);
        qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
               "{'name': 'net0', 'up': false}}");
        qtest_clock_step(net->qts, FRAME_NS);
        wait_for((uint16_t)(used_count(net->qts, net->queues[TX_QUEUE])
                            - before) == BATCH);
        qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
               "{'name': 'net0', 'up': true}}");
        check_forgotten(net);
    }
    net_free(net);
}

static void test_clock_jump(void)
{
    Net *net = net_new(OWN_QUEUE);
    uint64_t buffers[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t rx_before = received(net);
        uint16_t tx_before = used_count(net->qts, net->queues[TX_QUEUE]);

        hold_batch(net, buffers);
        qtest_clock_step(net->qts, 600 * 1000 * NS_PER_MS);
        finish_tx(net, tx_before);
        finish_rx(net, buffers, rx_before);
    }
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/lifecycle/device-reset", test_device_reset);
    qtest_add_func("/sluice/net/lifecycle/system-reset", test_system_reset);
    qtest_add_func("/sluice/net/lifecycle/stop-cont", test_stop_cont);
    qtest_add_func("/sluice/net/lifecycle/stop-released", test_stop_released);
    qtest_add_func("/sluice/net/lifecycle/stop-released-reset",
                   test_stop_released_reset);
    qtest_add_func("/sluice/net/lifecycle/stop-class-replaced",
                   test_stop_class_replaced);
    qtest_add_func("/sluice/net/lifecycle/stop-tag-changed",
                   test_stop_tag_changed);
    qtest_add_func("/sluice/net/lifecycle/stop-marked-released",
                   test_stop_marked_released);
    qtest_add_func("/sluice/net/lifecycle/stop-marked-held",
                   test_stop_marked_held);
    qtest_add_func("/sluice/net/lifecycle/stop-reset", test_stop_reset);
    qtest_add_func("/sluice/net/lifecycle/unplug-plug", test_unplug);
    qtest_add_func("/sluice/net/lifecycle/suspend", test_suspend);
    qtest_add_func("/sluice/net/lifecycle/background-snapshot",
                   test_background_snapshot);
    qtest_add_func("/sluice/net/lifecycle/background-snapshot-stopped",
                   test_background_snapshot_stopped);
    qtest_add_func("/sluice/net/lifecycle/unplug-waiting",
                   test_unplug_waiting);
    qtest_add_func("/sluice/net/lifecycle/broken-receive-queue",
                   test_broken_receive_queue);
    qtest_add_func("/sluice/net/lifecycle/endless-receive-chain",
                   test_endless_receive_chain);
    qtest_add_func("/sluice/net/lifecycle/link", test_link);
    qtest_add_func("/sluice/net/lifecycle/clock-jump", test_clock_jump);
    return g_test_run();
}
