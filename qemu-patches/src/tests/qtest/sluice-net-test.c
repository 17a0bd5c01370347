/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of shaping in virtio-net: rates and classes in both directions, and
 * what becomes of held frames when the link or the VM stops or the device goes.
 *
 * Frames have 1000 bytes, and the limited classes 1 MB/s with a burst of one
 * frame: of N frames given at once the first passes, and the (n+1)th, n >= 1,
 * may go on after (n-1) milliseconds of the virtual clock. Byte 60 of a frame
 * carries its number. The network is a stream socket, where each frame is
 * preceded by its length.
 */
#include "qemu/osdep.h"
#include <poll.h>
#include <sys/wait.h>
#include "qemu/bswap.h"
#include "qemu/iov.h"
#include "qemu/sockets.h"
#include "standard-headers/linux/virtio_net.h"
#include "sluice-test.h"

#define SLOT            4
#define HEADER_BYTES    sizeof(struct virtio_net_hdr_mrg_rxbuf)
#define FRAME_BYTES     1000
#define FRAME_NS        NS_PER_MS               /* at 1 MB/s */
#define BUFFER_BYTES    (HEADER_BYTES + FRAME_BYTES)
#define NUMBER_OFFSET   60
#define RX_QUEUE        0
#define TX_QUEUE        1
#define BACKLOG_BYTES   (128 * 1024)
#define LIMIT_1MBPS     "'bytes-per-second': 1000000, 'burst-bytes': 1000"
#define DSCP_NONE       0
#define DSCP_EF         46
#define DSCP_OF_TAG(t)  ((t) << 2 | 3)

typedef struct Net {
    QOSState *qs;
    QTestState *qts;
    QVirtioPCIDevice *pci;
    QVirtioDevice *dev;
    QVirtQueue *queues[3];
    int socket;
} Net;

static void net_boot(Net *net, const char *options, const char *more)
{
    int sockets[2];

    g_assert_cmpint(socketpair(PF_UNIX, SOCK_STREAM, 0, sockets), ==, 0);
    net->socket = sockets[0];
    net->qs = qtest_pc_boot("-object shaper,id=sluice0 "
                            "-netdev socket,fd=%d,id=hs0 %s "
                            "-device virtio-net-pci,id=net0,netdev=hs0,"
                            "addr=%d,shaper=sluice0%s",
                            sockets[1], more, SLOT, options);
    net->qts = net->qs->qts;
    close(sockets[1]);
}

static void setup_queues(Net *net)
{
    uint64_t features = qvirtio_get_features(net->dev);

    features &= ~(QVIRTIO_F_BAD_FEATURE
                  | (1ull << VIRTIO_RING_F_INDIRECT_DESC)
                  | (1ull << VIRTIO_RING_F_EVENT_IDX));
    qvirtio_set_features(net->dev, features);
    for (unsigned i = 0; i < ARRAY_SIZE(net->queues); i++) {
        net->queues[i] = qvirtqueue_setup(net->dev, &net->qs->alloc, i);
    }
    qvirtio_set_driver_ok(net->dev);
}

static void cleanup_queues(Net *net, QGuestAllocator *alloc)
{
    for (unsigned i = 0; i < ARRAY_SIZE(net->queues); i++) {
        qvirtqueue_cleanup(net->dev->bus, net->queues[i], alloc);
        net->queues[i] = NULL;
    }
}

static Net *net_new(const char *options)
{
    Net *net = g_new0(Net, 1);

    net_boot(net, options, "");
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    setup_queues(net);
    return net;
}

static void net_free(Net *net)
{
    if (net->queues[0]) {
        cleanup_queues(net, &net->qs->alloc);
    }
    qvirtio_pci_device_disable(net->pci);
    qos_object_destroy((QOSGraphObject *)net->pci);
    qtest_shutdown(net->qs);
    close(net->socket);
    g_free(net);
}

static void limit_class(Net *net, const char *class, unsigned tag,
                        const char *resource)
{
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': %s, 'tag': %u, 'limits': "
           "[{'resource': %s, " LIMIT_1MBPS "}]}}", class, tag, resource);
}

#define backlog(net, class, resource) \
    stat_of((net)->qts, class, resource, "backlog-requests")
#define admitted(net, class, resource) \
    stat_of((net)->qts, class, resource, "requests")

static void make_frame(uint8_t frame[FRAME_BYTES], unsigned dscp,
                       uint8_t number)
{
    memset(frame, 0, FRAME_BYTES);
    memset(frame, 0xff, 6);             /* to everybody */
    frame[6] = 0x02;                    /* from a local address */
    frame[12] = 0x08;                   /* IPv4 */
    frame[14] = 0x45;
    frame[15] = dscp << 2;
    frame[NUMBER_OFFSET] = number;
}

/* Guest to network */

static void guest_send(Net *net, unsigned dscp, uint8_t number)
{
    uint64_t address = guest_alloc(&net->qs->alloc, BUFFER_BYTES);
    QVirtQueue *vq = net->queues[TX_QUEUE];
    uint8_t frame[FRAME_BYTES];

    make_frame(frame, dscp, number);
    qtest_memset(net->qts, address, 0, HEADER_BYTES);
    qtest_memwrite(net->qts, address + HEADER_BYTES, frame, sizeof(frame));
    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, false,
                                   false));
}

static void guest_send_many(Net *net, unsigned dscp, uint8_t first,
                            unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        guest_send(net, dscp, first + i);
    }
}

static void receive_bytes(Net *net, void *data, size_t bytes)
{
    struct pollfd poll_fd = { .fd = net->socket, .events = POLLIN };

    for (size_t done = 0; done < bytes; ) {
        ssize_t got;

        g_assert_cmpint(poll(&poll_fd, 1, WAIT_US / 1000), ==, 1);
        got = recv(net->socket, (char *)data + done, bytes - done, 0);
        g_assert_cmpint(got, >, 0);
        done += got;
    }
}

/* The number of the next frame, passing over what QEMU itself announces. */
static uint8_t next_sent(Net *net)
{
    uint8_t frame[FRAME_BYTES];
    uint32_t length;

    do {
        receive_bytes(net, &length, sizeof(length));
        length = ntohl(length);
        g_assert_cmpint(length, <=, FRAME_BYTES);
        receive_bytes(net, frame, length);
    } while (lduw_be_p(frame + 12) != 0x0800);
    g_assert_cmpint(length, ==, FRAME_BYTES);
    return frame[NUMBER_OFFSET];
}

static void check_sent(Net *net, uint8_t number)
{
    g_assert_cmpint(next_sent(net), ==, number);
}

static void check_nothing_sent(Net *net)
{
    char byte;

    g_assert_cmpint(recv(net->socket, &byte, 1, MSG_DONTWAIT), ==, -1);
    g_assert_cmpint(errno, ==, EAGAIN);
}

/* Of frames 0 to 4 of class bulk the first is sent, the others are held. */
static void hold_four_tx(Net *net)
{
    limit_class(net, "bulk", 2, "net-tx");
    guest_send_many(net, DSCP_OF_TAG(2), 0, 5);
    wait_for(backlog(net, "bulk", "net-tx") == 4);
    check_sent(net, 0);
    check_nothing_sent(net);
}

static void check_tx_rate(const char *options)
{
    Net *net = net_new(options);

    hold_four_tx(net);
    wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == 1);
    for (unsigned n = 1; n < 5; n++) {
        qtest_clock_step(net->qts, 1);
        g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, n + 1);
        /* With tx=timer the device itself waits 150 us more. */
        qtest_clock_step(net->qts, FRAME_NS - 1);
        check_sent(net, n);
        wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == n + 1);
        g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, n + 1);
    }
    check_nothing_sent(net);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "bytes"), ==,
                    5 * FRAME_BYTES);
    net_free(net);
}

static void test_tx_rate(void)
{
    check_tx_rate("");
}

static void test_tx_rate_no_ioeventfd(void)
{
    check_tx_rate(",ioeventfd=off");
}

static void test_tx_classes(void)
{
    Net *net = net_new("");

    hold_four_tx(net);
    /* Others go past the held ones: the default class, a tag without class. */
    guest_send(net, DSCP_NONE, 10);
    check_sent(net, 10);
    guest_send(net, DSCP_OF_TAG(7), 11);
    check_sent(net, 11);
    /* A DSCP that the operator gave to the class selects it. */
    guest_send(net, DSCP_EF, 12);
    check_sent(net, 12);
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'dscp': [46], "
           "'limits': [{'resource': 'net-tx', " LIMIT_1MBPS "}]}}");
    guest_send(net, DSCP_EF, 13);
    wait_for(backlog(net, "bulk", "net-tx") == 5);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    for (unsigned n = 1; n < 5; n++) {
        check_sent(net, n);
    }
    check_sent(net, 13);
    net_free(net);
}

static void test_default_class(void)
{
    Net *net = net_new(",shaper-class=bulk");

    /* Without the class, the default class. */
    guest_send(net, DSCP_NONE, 1);
    check_sent(net, 1);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 1);
    limit_class(net, "bulk", 2, "net-tx");
    limit_class(net, "other", 3, "net-rx");
    guest_send_many(net, DSCP_NONE, 2, 2);
    check_sent(net, 2);
    wait_for(backlog(net, "bulk", "net-tx") == 1);
    guest_send(net, DSCP_OF_TAG(3), 4);
    check_sent(net, 4);
    g_assert_cmpint(admitted(net, "other", "net-tx"), ==, 1);
    net_free(net);
}

static void test_tx_stop_cont(void)
{
    Net *net = net_new("");

    hold_four_tx(net);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    check_nothing_sent(net);
    qmp_ok(net->qts, "{'execute': 'cont'}");
    /* Judged anew: time has passed, so one more passes, and three are held. */
    check_sent(net, 1);
    wait_for(backlog(net, "bulk", "net-tx") == 3);
    qtest_clock_step(net->qts, 3 * FRAME_NS);
    for (unsigned n = 2; n < 5; n++) {
        check_sent(net, n);
    }
    wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == 5);
    net_free(net);
}

static void test_tx_reset(void)
{
    Net *net = net_new("");

    hold_four_tx(net);
    cleanup_queues(net, &net->qs->alloc);
    qvirtio_start_device(net->dev);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    setup_queues(net);
    guest_send(net, DSCP_OF_TAG(2), 20);
    check_sent(net, 20);
    check_nothing_sent(net);
    net_free(net);
}

static void test_tx_link_down(void)
{
    Net *net = net_new("");

    hold_four_tx(net);
    qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
           "{'name': 'net0', 'up': false}}");
    qtest_clock_step(net->qts, FRAME_NS);
    /* The first release finds the link down: all go back to the guest. */
    wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == 5);
    qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
           "{'name': 'net0', 'up': true}}");
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    guest_send(net, DSCP_OF_TAG(2), 20);
    check_sent(net, 20);
    check_nothing_sent(net);
    net_free(net);
}

static void test_tx_migrate(void)
{
    Net *source = net_new("");
    Net target = { 0 };
    g_autofree char *socket = g_strdup_printf("%s/sluice-net-%d.sock",
                                              g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strconcat("unix:", socket, NULL);
    g_autofree char *incoming = g_strconcat("-incoming ", uri, NULL);

    hold_four_tx(source);
    net_boot(&target, "", incoming);
    migrate(source->qs, target.qs, uri);
    for (unsigned n = 1; n < 5; n++) {
        check_sent(&target, n);
    }
    wait_for(used_count(target.qts, source->queues[TX_QUEUE]) == 5);
    check_nothing_sent(source);
    /* The guest's memory, and what is allocated of it, has moved along. */
    cleanup_queues(source, &target.qs->alloc);
    qtest_shutdown(target.qs);
    close(target.socket);
    unlink(socket);
    net_free(source);
}

/* Fills the socket, so that the device waits for it, with frames held behind */
static void test_tx_busy(void)
{
    Net *net = net_new("");
    int small = 4096;
    unsigned sent = 0;

    g_assert_cmpint(setsockopt(net->socket, SOL_SOCKET, SO_RCVBUF, &small,
                               sizeof(small)), ==, 0);
    limit_class(net, "bulk", 2, "net-tx");
    guest_send_many(net, DSCP_OF_TAG(2), 200, 5);
    wait_for(backlog(net, "bulk", "net-tx") == 4);
    /* Until the socket takes no more, which leaves the ring unread. */
    guest_send_many(net, DSCP_NONE, 0, 200);
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    for (unsigned i = 0; i < 205; i++) {
        sent += next_sent(net) < 200;
    }
    g_assert_cmpint(sent, ==, 200);
    wait_for(used_count(net->qts, net->queues[TX_QUEUE]) == 205);
    check_nothing_sent(net);
    net_free(net);
}

/* Network to guest */

static uint64_t post_buffer(Net *net)
{
    QVirtQueue *vq = net->queues[RX_QUEUE];
    uint64_t address = guest_alloc(&net->qs->alloc, BUFFER_BYTES);

    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, true,
                                   false));
    return address;
}

static void post_buffers(Net *net, uint64_t *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        buffers[i] = post_buffer(net);
    }
}

static void network_send(Net *net, unsigned dscp, uint8_t number)
{
    uint8_t frame[FRAME_BYTES];
    uint32_t length = htonl(FRAME_BYTES);
    struct iovec iov[] = {
        { .iov_base = &length, .iov_len = sizeof(length) },
        { .iov_base = frame, .iov_len = sizeof(frame) },
    };

    make_frame(frame, dscp, number);
    g_assert_cmpint(iov_send(net->socket, iov, 2, 0,
                             sizeof(length) + sizeof(frame)), ==,
                    sizeof(length) + sizeof(frame));
}

static void network_send_many(Net *net, unsigned dscp, uint8_t first,
                              unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        network_send(net, dscp, first + i);
    }
}

static uint8_t number_in(Net *net, uint64_t buffer)
{
    return qtest_readb(net->qts, buffer + HEADER_BYTES + NUMBER_OFFSET);
}

#define received(net) used_count((net)->qts, (net)->queues[RX_QUEUE])

/* Of frames 1 to 5 the guest has the first; the others are held. */
static void hold_four_rx(Net *net, uint64_t buffers[8])
{
    limit_class(net, "bulk", 2, "net-rx");
    post_buffers(net, buffers, 8);
    network_send_many(net, DSCP_OF_TAG(2), 1, 5);
    wait_for(backlog(net, "bulk", "net-rx") == 4);
    wait_for(received(net) == 1);
}

static void test_rx_rate(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_rx(net, buffers);
    for (unsigned n = 1; n < 5; n++) {
        qtest_clock_step(net->qts, 1);
        wait_for(received(net) == n + 1);
        g_assert_cmpint(number_in(net, buffers[n]), ==, n + 1);
        qtest_clock_step(net->qts, FRAME_NS - 1);
        g_assert_cmpint(admitted(net, "bulk", "net-rx"), ==, n + 1);
    }
    net_free(net);
}

static void test_rx_classes(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_rx(net, buffers);
    network_send(net, DSCP_NONE, 50);
    wait_for(received(net) == 2);
    g_assert_cmpint(number_in(net, buffers[1]), ==, 50);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    wait_for(received(net) == 6);
    for (unsigned n = 1; n < 5; n++) {
        g_assert_cmpint(number_in(net, buffers[n + 1]), ==, n + 1);
    }
    net_free(net);
}

static void test_rx_drop(void)
{
    Net *net = net_new("");
    uint64_t buffers[200];
    unsigned fit = BACKLOG_BYTES / FRAME_BYTES;

    limit_class(net, "bulk", 2, "net-rx");
    post_buffers(net, buffers, 200);
    network_send_many(net, DSCP_OF_TAG(2), 0, 1 + fit + 8);
    /* One passes, the class's queue takes what fits, the rest is lost. */
    wait_for(stat_of(net->qts, "bulk", "net-rx", "dropped-requests") == 8);
    g_assert_cmpint(backlog(net, "bulk", "net-rx"), ==, fit);
    qtest_clock_step(net->qts, fit * FRAME_NS);
    wait_for(received(net) == 1 + fit);
    for (unsigned n = 0; n <= fit; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, n);
    }
    net_free(net);
}

static void test_rx_no_buffers(void)
{
    Net *net = net_new("");
    uint64_t buffers[6];

    limit_class(net, "bulk", 2, "net-rx");
    post_buffers(net, buffers, 1);
    network_send_many(net, DSCP_OF_TAG(2), 1, 4);
    wait_for(backlog(net, "bulk", "net-rx") == 3);
    wait_for(received(net) == 1);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    g_assert_cmpint(admitted(net, "bulk", "net-rx"), ==, 4);
    /* What comes meanwhile queues behind, whatever its class. */
    network_send(net, DSCP_NONE, 5);
    for (unsigned i = 1; i < 5; i++) {
        buffers[i] = post_buffer(net);
        wait_for(received(net) == i + 1);
        g_assert_cmpint(number_in(net, buffers[i]), ==, i + 1);
    }
    net_free(net);
}

static void test_rx_stop_cont(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_rx(net, buffers);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    /* Without a limit all may go on, but not into a stopped guest. */
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2}}");
    g_assert_cmpint(admitted(net, "bulk", "net-rx"), ==, 5);
    g_assert_cmpint(received(net), ==, 1);
    qmp_ok(net->qts, "{'execute': 'cont'}");
    wait_for(received(net) == 5);
    for (unsigned n = 1; n < 5; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, n + 1);
    }
    net_free(net);
}

static void test_rx_reset(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_rx(net, buffers);
    cleanup_queues(net, &net->qs->alloc);
    qvirtio_start_device(net->dev);
    g_assert_cmpint(backlog(net, "bulk", "net-rx"), ==, 0);
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    setup_queues(net);
    post_buffers(net, buffers, 1);
    network_send(net, DSCP_OF_TAG(2), 30);
    wait_for(received(net) == 1);
    g_assert_cmpint(number_in(net, buffers[0]), ==, 30);
    net_free(net);
}

static void test_unplug(void)
{
    Net *net = net_new("");
    uint64_t buffers[8];

    hold_four_tx(net);
    limit_class(net, "video", 3, "net-rx");
    post_buffers(net, buffers, 8);
    network_send_many(net, DSCP_OF_TAG(3), 1, 5);
    wait_for(backlog(net, "video", "net-rx") == 4);
    qmp_refused(net->qts, "{'execute': 'object-del', 'arguments': "
                "{'id': 'sluice0'}}", "sluice0", "in use");
    qpci_unplug_acpi_device_test(net->qts, "net0", SLOT);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(backlog(net, "video", "net-rx"), ==, 0);
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    check_nothing_sent(net);
    qmp_ok(net->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'sluice0'}}");
    net_free(net);
}

static void test_remove_class(void)
{
    Net *net = net_new("");

    hold_four_tx(net);
    qmp_ok(net->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    for (unsigned n = 1; n < 5; n++) {
        check_sent(net, n);
    }
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 4);
    net_free(net);
}

static void test_refused_properties(void)
{
    Net *net = net_new("");

    qmp_refused(net->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'shaper-class': 'video'}}",
                "shaper-class 'video'", "shaper=");
    qmp_refused(net->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'shaper': 'nobody'}}", "nobody");
    net_free(net);
}

/* A real vhost-user backend, which QEMU's build has for its own tests */
static void test_refused_vhost(void)
{
    g_autofree char *socket = g_strdup_printf("%s/sluice-vhost-%d.sock",
                                              g_get_tmp_dir(), getpid());
    char *argv[] = { (char *)"tests/vhost-user-bridge", (char *)"-u", socket,
                     NULL };
    QOSState *qs;
    GPid backend;

    g_assert(g_spawn_async(NULL, argv, NULL,
                           G_SPAWN_DO_NOT_REAP_CHILD
                           | G_SPAWN_STDOUT_TO_DEV_NULL,
                           NULL, NULL, &backend, NULL));
    wait_for(access(socket, F_OK) == 0);
    qs = qtest_pc_boot("-m 128 -object memory-backend-memfd,id=ram,size=128M,"
                       "share=on -machine memory-backend=ram "
                       "-object shaper,id=sluice0 "
                       "-chardev socket,id=c,path=%s "
                       "-netdev vhost-user,id=hostnet0,chardev=c", socket);
    qmp_refused(qs->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'id': 'net0', "
                "'netdev': 'hostnet0', 'shaper': 'sluice0'}}",
                "device 'net0'", "shaper 'sluice0'", "netdev 'hostnet0'",
                "vhost=off", "<driver name='qemu'/>");
    qtest_shutdown(qs);
    kill(backend, SIGTERM);
    waitpid(backend, NULL, 0);
    unlink(socket);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/tx-rate", test_tx_rate);
    qtest_add_func("/sluice/net/tx-rate/no-ioeventfd",
                   test_tx_rate_no_ioeventfd);
    qtest_add_func("/sluice/net/tx-classes", test_tx_classes);
    qtest_add_func("/sluice/net/default-class", test_default_class);
    qtest_add_func("/sluice/net/tx-stop-cont", test_tx_stop_cont);
    qtest_add_func("/sluice/net/tx-reset", test_tx_reset);
    qtest_add_func("/sluice/net/tx-link-down", test_tx_link_down);
    qtest_add_func("/sluice/net/tx-migrate", test_tx_migrate);
    qtest_add_func("/sluice/net/tx-busy", test_tx_busy);
    qtest_add_func("/sluice/net/rx-rate", test_rx_rate);
    qtest_add_func("/sluice/net/rx-classes", test_rx_classes);
    qtest_add_func("/sluice/net/rx-drop", test_rx_drop);
    qtest_add_func("/sluice/net/rx-no-buffers", test_rx_no_buffers);
    qtest_add_func("/sluice/net/rx-stop-cont", test_rx_stop_cont);
    qtest_add_func("/sluice/net/rx-reset", test_rx_reset);
    qtest_add_func("/sluice/net/unplug", test_unplug);
    qtest_add_func("/sluice/net/remove-class", test_remove_class);
    qtest_add_func("/sluice/net/refused-properties", test_refused_properties);
    qtest_add_func("/sluice/net/refused-vhost", test_refused_vhost);
    return g_test_run();
}
