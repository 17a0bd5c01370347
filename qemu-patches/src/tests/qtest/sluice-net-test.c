/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of shaping in virtio-net: rates and classes in both directions, and
 * held frames when the link or the VM stops or the device goes.
 *
 * Frames have 1000 bytes, and the limited classes 1 MB/s with a burst of one
 * frame: of N frames given at once the first passes, and the (n+1)th, n >= 1,
 * may go on after (n-1) milliseconds of the virtual clock. Byte 60 of a frame
 * carries its number. The network is a stream socket, where each frame is
 * preceded by its length.
 */
#include "qemu/osdep.h"
#include <sys/wait.h>
#include "sluice-nic.h"

#define BACKLOG_BYTES   (128 * 1024)

/* Guest to network */

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
    check_tx_rate(",shaper-queues=bulk");
}

static void test_tx_rate_no_ioeventfd(void)
{
    check_tx_rate(",shaper-queues=bulk,ioeventfd=off");
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
    Net target;
    char *uri;

    hold_four_tx(source);
    uri = net_boot_target(&target, "");
    migrate(source->qs, target.qs, uri);
    /* The class comes along, and its debt. */
    wait_for(backlog(&target, "bulk", "net-tx") == 4);
    for (unsigned n = 1; n < 5; n++) {
        g_assert_cmpint(admitted(&target, "bulk", "net-tx"), ==, n - 1);
        qtest_clock_step(target.qts, n == 1 ? 1 : FRAME_NS);
        check_sent(&target, n);
    }
    wait_for(used_count(target.qts, source->queues[TX_QUEUE]) == 5);
    check_nothing_sent(source);
    net_free_migrated(source, &target, uri);
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
    /* One passes, the class's queue takes as many as fit, the rest is lost. */
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
    /* Frames that come meanwhile, of any class, queue behind. */
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

/*
 * A frame that the guest has no buffer for waits, charged: with the reset it goes
 * nowhere, and its charge comes back. It has passed, or was `held` and released.
 */
static void check_rx_reset_refunds(bool held)
{
    Net *net = net_new("");
    uint64_t buffer;
    int64_t tokens;

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': ["
           "{'resource': 'net-rx', 'bytes-per-second': 1000, "
           "'burst-bytes': 1000}]}}");
    if (held) {
        post_buffers(net, &buffer, 1);
        network_send(net, DSCP_OF_TAG(2), 1);
        wait_for(received(net) == 1);
        network_send(net, DSCP_OF_TAG(2), 2);
        wait_for(backlog(net, "bulk", "net-rx") == 1);
        qtest_clock_step(net->qts, NS_PER_MS);
    } else {
        network_send(net, DSCP_OF_TAG(2), 1);
    }
    wait_for(admitted(net, "bulk", "net-rx") == (held ? 2 : 1));
    tokens = stat_of(net->qts, "bulk", "net-rx", "tokens-bytes");
    g_assert_cmpint(tokens, ==, held ? 1 - FRAME_BYTES : 0);
    cleanup_queues(net, &net->qs->alloc);
    qvirtio_start_device(net->dev);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-rx", "tokens-bytes"), ==,
                    tokens + FRAME_BYTES);
    net_free(net);
}

static void test_rx_reset_refunds_passed(void)
{
    check_rx_reset_refunds(false);
}

static void test_rx_reset_refunds_held(void)
{
    check_rx_reset_refunds(true);
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
    /* The device that goes may refer to it for a while yet. */
    qmp_ok(net->qts, "{'execute': 'object-add', 'arguments': "
           "{'qom-type': 'shaper', 'id': 'sluice0'}}");
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
    qtest_add_func("/sluice/net/rx-reset/refund-passed",
                   test_rx_reset_refunds_passed);
    qtest_add_func("/sluice/net/rx-reset/refund-held",
                   test_rx_reset_refunds_held);
    qtest_add_func("/sluice/net/unplug", test_unplug);
    qtest_add_func("/sluice/net/remove-class", test_remove_class);
    qtest_add_func("/sluice/net/refused-properties", test_refused_properties);
    qtest_add_func("/sluice/net/refused-vhost", test_refused_vhost);
    return g_test_run();
}
