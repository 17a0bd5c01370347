/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of ring fairness in virtio-net: a frame that has to wait in a queue that classes
 * share keeps nothing of it, a buffer takes it; and buffered frames when something else
 * happens.
 *
 * The ring has 1024 descriptors, a frame takes one. A frame in a buffer has 1012 bytes,
 * and 129 of them fit into 128 KiB. Of N frames of bulk the first is sent at once, 129
 * wait in the buffer, and the rest is dropped.
 */
#include "qemu/osdep.h"
#include <sched.h>
#include "sluice-frames.h"

#define FIT         (128 * 1024 / (int)BUFFER_BYTES)
#define BULK        DSCP_OF_TAG(2)

static Net *flood(Ring *ring, const char *options, unsigned frames)
{
    Net *net = net_new(options);

    set_bulk(net, "net-tx", "");
    ring_init(ring, net);
    ring_send_many(ring, BULK, 0, frames);
    check_sent(net, 0);
    return net;
}

/* A driver may stop its queue until all that is in the ring has come back: it does. */
static void test_nothing_is_kept(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 20);

    wait_for(backlog(net, "bulk", "net-tx") == 20);
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 20);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "buffered-bytes"), ==,
                    20 * BUFFER_BYTES);
    check_all_sent(net, 1, 20);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "dropped-requests"),
                    ==, 0);
    net_free(net);
}

/* Counted in frames, with the clock standing still. */
static void test_flood_delays_nobody(void)
{
    Net *net = net_new("");
    Ring ring;

    set_bulk(net, "net-tx", "");
    ring_init(&ring, net);
    for (unsigned i = 0; i < 8; i++) {
        ring_send_many(&ring, BULK, i * 100, 100);
        if (i == 0) {
            check_sent(net, 0);
        }
        ring_send_number(&ring, DSCP_NONE, 200 + i);
        check_sent(net, 200 + i);
    }
    wait_for(drops_of(net, "bulk", "net-tx", "backlog")
             == 800 - 1 - FIT);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, FIT);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 1);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 8);
    wait_for(ring_taken(&ring) == 0);
    check_all_sent(net, 1, FIT);
    net_free(net);
}

/* However many classes hold frames, the ring is for those that may send. */
static void test_many_classes(void)
{
    Net *net = net_new("");
    Ring ring;

    for (unsigned tag = 1; tag < 16; tag++) {
        g_autofree char *name = g_strdup_printf("c%u", tag);

        limit_class(net, name, tag, "net-tx");
    }
    ring_init(&ring, net);
    for (unsigned tag = 1; tag < 16; tag++) {
        ring_send_many(&ring, DSCP_OF_TAG(tag), 0, 70);
        check_sent(net, 0);
    }
    wait_for(ring_taken(&ring) == 0);
    g_assert_cmpint(buffered(net, "c1", "net-tx"), ==, 69);
    g_assert_cmpint(buffered(net, "c15", "net-tx"), ==, 69);
    ring_send_number(&ring, DSCP_NONE, 77);
    check_sent(net, 77);
    net_free(net);
}

static void test_limits(void)
{
    Net *net = net_new("");
    Ring ring;

    set_bulk(net, "net-tx", ", 'limit-packets': 3");
    ring_init(&ring, net);
    ring_send_many(&ring, BULK, 0, 1 + 10);
    wait_for(drops_of(net, "bulk", "net-tx", "backlog") == 7);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 3);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "buffer-requests-max"),
                    ==, 3);
    /* Less room takes nothing away that is there; more is there at once. */
    set_bulk(net, "net-tx", ", 'limit-bytes': 2023");
    ring_send_many(&ring, BULK, 100, 1);
    wait_for(drops_of(net, "bulk", "net-tx", "backlog") == 8);
    set_bulk(net, "net-tx", ", 'limit-bytes': 5060");
    ring_send_many(&ring, BULK, 200, 3);
    wait_for(drops_of(net, "bulk", "net-tx", "backlog") == 9);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 5);
    check_sent(net, 0);
    qtest_clock_step(net->qts, 1000 * FRAME_NS);
    for (unsigned n = 1; n < 1 + 3; n++) {
        check_sent(net, n % 256);
    }
    check_sent(net, 200);
    check_sent(net, 201);
    check_nothing_sent(net);
    net_free(net);
}

/* A queue that belongs to a class, and the only class of a VM, lose nothing. */
static void check_lossless(Net *net, Ring *ring)
{
    ring_init(ring, net);
    ring_send_many(ring, DSCP_NONE, 0, RING);
    check_sent(net, 0);
    wait_for(ring_taken(ring) == RING - 1);
    ring_send_many(ring, DSCP_NONE, RING, 1);
    g_assert_cmpint(ring_taken(ring), ==, RING);
    for (unsigned n = 1; n < RING; n++) {
        qtest_clock_step(net->qts, n == 1 ? 1 : FRAME_NS);
        check_sent(net, n % 256);
        wait_for(ring_taken(ring) == RING - n);
    }
    g_assert_cmpint(admitted(net, "bulk", "net-tx")
                    + admitted(net, "default", "net-tx"), ==, RING);
    net_free(net);
}

static void test_own_queue(void)
{
    Net *net = net_new(",shaper-queues=bulk");
    Ring ring;

    set_bulk(net, "net-tx", "");
    limit_class(net, "other", 3, "net-rx");
    check_lossless(net, &ring);
}

static void test_only_class(void)
{
    Net *net = net_new("");
    Ring ring;

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'default', 'tag': 0, 'limits': "
           "[{'resource': 'net-tx', " LIMIT_1MBPS "}]}}");
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, RING);
    check_sent(net, 0);
    wait_for(ring_taken(&ring) == RING - 1);
    check_all_sent(net, 1, RING - 1);
    g_assert_cmpint(stat_of(net->qts, "default", "net-tx", "dropped-requests"),
                    ==, 0);
    net_free(net);
}

/* Frames that a ring of its own held are held there again, though it is shared now. */
static void test_stop_cont_shared_since(void)
{
    Net *net = net_new("");
    Ring ring;

    limit_class(net, "default", 0, "net-tx");
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, RING);
    check_sent(net, 0);
    wait_for(ring_taken(&ring) == RING - 1);
    limit_class(net, "other", 3, "net-rx");
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'cont'}");
    /* It judges them a few at a time, and the clock is not to outrun it. */
    wait_for(backlog(net, "default", "net-tx") == RING - 1);
    check_all_sent(net, 1, RING - 1);
    g_assert_cmpint(stat_of(net->qts, "default", "net-tx", "dropped-requests"),
                    ==, 0);
    wait_for(ring_taken(&ring) == 0);
    net_free(net);
}

/* The queue's class wins over the tag, comes and goes with the class. */
static void test_queue_class(void)
{
    Net *net = net_new(",shaper-queues=bulk");

    guest_send(net, DSCP_OF_TAG(3), 1);
    check_sent(net, 1);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 1);
    limit_class(net, "other", 3, "net-rx");
    guest_send(net, DSCP_OF_TAG(3), 2);
    check_sent(net, 2);
    g_assert_cmpint(admitted(net, "other", "net-tx"), ==, 1);
    limit_class(net, "bulk", 2, "net-tx");
    guest_send_many(net, DSCP_OF_TAG(3), 3, 2);
    check_sent(net, 3);
    wait_for(backlog(net, "bulk", "net-tx") == 1);
    qmp_ok(net->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    check_sent(net, 4);
    net_free(net);
}

/* Order within a class, though some wait in the ring, from when it was not shared. */
static void test_order(void)
{
    Net *net = net_new("");
    Ring ring;

    limit_class(net, "default", 0, "net-tx");
    ring_init(&ring, net);
    ring_send_many(&ring, DSCP_NONE, 0, 1 + 40);
    check_sent(net, 0);
    wait_for(ring_taken(&ring) == 40);
    limit_class(net, "other", 3, "net-rx");
    ring_send_many(&ring, DSCP_NONE, 41, 30);
    wait_for(buffered(net, "default", "net-tx") == 30);
    g_assert_cmpint(ring_taken(&ring), ==, 40);
    qtest_clock_step(net->qts, 50 * FRAME_NS);
    for (unsigned n = 1; n <= 50; n++) {
        check_sent(net, n);
    }
    wait_for(ring_taken(&ring) == 0);
    ring_send_many(&ring, DSCP_NONE, 71, 20);
    wait_for(backlog(net, "default", "net-tx") == 40);
    g_assert_cmpint(buffered(net, "default", "net-tx"), ==, 40);
    check_all_sent(net, 51, 40);
    net_free(net);
}

static void test_stop_cont(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 30);

    wait_for(buffered(net, "bulk", "net-tx") == 30);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qtest_clock_step(net->qts, 100 * FRAME_NS);
    check_nothing_sent(net);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 30);
    qmp_ok(net->qts, "{'execute': 'cont'}");
    check_all_sent(net, 1, 30);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(stat_of(net->qts, "bulk", "net-tx", "dropped-requests"),
                    ==, 0);
    net_free(net);
}

/* Frames 1 to `count` go on in their time, in order, where the guest has come to: QEMU
 * announces it there with others. */
static void check_arrived(Net *net, unsigned count)
{
    for (unsigned n = 1; n <= count; n++) {
        g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, n - 1);
        qtest_clock_step(net->qts, n == 1 ? 1 : FRAME_NS);
        check_sent(net, n);
    }
}

static void test_migrate(void)
{
    Ring ring;
    Net *source = flood(&ring, "", 1 + 30);
    Net target;
    char *uri;

    wait_for(buffered(source, "bulk", "net-tx") == 30);
    uri = net_boot_target(&target, "");
    migrate(source->qs, target.qs, uri);
    /* The class comes before the frames, which have its room. */
    wait_for(backlog(&target, "bulk", "net-tx") == 30);
    g_assert_cmpint(buffered(&target, "bulk", "net-tx"), ==, 30);
    check_arrived(&target, 30);
    wait_for(buffered(&target, "bulk", "net-tx") == 0);
    wait_for(used_count(target.qts, source->queues[TX_QUEUE]) == ring.sent);
    check_nothing_sent(source);
    net_free_migrated(source, &target, uri);
}

/* The target is configured as the source before the frames arrive. */
static void test_migrate_configured(void)
{
    Ring ring;
    Net *source = flood(&ring, "", 1 + 30);
    Net target;
    char *uri;

    wait_for(buffered(source, "bulk", "net-tx") == 30);
    uri = net_boot_target(&target, "");
    set_bulk(&target, "net-tx", ", 'limit-packets': 1");
    migrate(source->qs, target.qs, uri);
    wait_for(backlog(&target, "bulk", "net-tx") == 30);
    /* More than its room here, but nothing that is there is lost. */
    g_assert_cmpint(buffered(&target, "bulk", "net-tx"), ==, 30);
    check_arrived(&target, 30);
    net_free_migrated(source, &target, uri);
}

static void test_reset(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 30);

    wait_for(buffered(net, "bulk", "net-tx") == 30);
    cleanup_queues(net, &net->qs->alloc);
    qvirtio_start_device(net->dev);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "reset"), ==, 30);
    qtest_clock_step(net->qts, 1000 * FRAME_NS);
    setup_queues(net);
    guest_send(net, BULK, 20);
    check_sent(net, 20);
    check_nothing_sent(net);
    net_free(net);
}

static void test_link_down(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 30);

    wait_for(buffered(net, "bulk", "net-tx") == 30);
    qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
           "{'name': 'net0', 'up': false}}");
    qtest_clock_step(net->qts, FRAME_NS);
    wait_for(ring_taken(&ring) == 0);
    wait_for(drops_of(net, "bulk", "net-tx", "reset") == 30);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    qmp_ok(net->qts, "{'execute': 'set_link', 'arguments': "
           "{'name': 'net0', 'up': true}}");
    qtest_clock_step(net->qts, 1000 * FRAME_NS);
    ring_send_many(&ring, BULK, 99, 1);
    check_sent(net, 99);
    net_free(net);
}

static void test_unplug(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 30);

    wait_for(buffered(net, "bulk", "net-tx") == 30);
    qpci_unplug_acpi_device_test(net->qts, "net0", SLOT);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "reset"), ==, 30);
    qtest_clock_step(net->qts, 1000 * FRAME_NS);
    check_nothing_sent(net);
    qmp_ok(net->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'sluice0'}}");
    net_free(net);
}

static void test_remove_class(void)
{
    Ring ring;
    Net *net = flood(&ring, "", 1 + 30);

    wait_for(buffered(net, "bulk", "net-tx") == 30);
    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'default', 'tag': 0, 'limits': "
           "[{'resource': 'net-tx', " LIMIT_1MBPS "}]}}");
    qmp_ok(net->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    /* The heir has them, in buffers too. */
    check_sent(net, 1);
    wait_for(buffered(net, "default", "net-tx") == 29);
    check_all_sent(net, 2, 30 - 1);
    g_assert_cmpint(buffered(net, "default", "net-tx"), ==, 0);
    net_free(net);
}

/* With in-order completion a held descriptor would keep all behind it. */
static void test_in_order(void)
{
    Net *net = net_new(",in_order=on");
    Ring ring;

    g_assert(!(qvirtio_get_features(net->dev) & 1ull << VIRTIO_F_IN_ORDER));
    set_bulk(net, "net-tx", "");
    ring_init(&ring, net);
    ring_send_many(&ring, BULK, 0, 10);
    check_sent(net, 0);
    ring_send_number(&ring, DSCP_NONE, 50);
    check_sent(net, 50);
    wait_for(buffered(net, "bulk", "net-tx") == 9);
    check_all_sent(net, 1, 9);
    wait_for(ring_taken(&ring) == 0);
    net_free(net);
}

/* The order in which they are taken does not travel; they must not need it. */
static void test_migrate_in_order(void)
{
    const char *options = ",in_order=on,shaper-queues=bulk";
    Ring ring;
    Net *source = flood(&ring, options, 1 + 30);
    Net target;
    char *uri;

    wait_for(backlog(source, "bulk", "net-tx") == 30);
    uri = net_boot_target(&target, options);
    migrate(source->qs, target.qs, uri);
    wait_for(backlog(&target, "bulk", "net-tx") == 30);
    check_arrived(&target, 30);
    wait_for(used_count(target.qts, source->queues[TX_QUEUE]) == ring.sent);
    net_free_migrated(source, &target, uri);
}

/* Several pairs of queues, which only a tap has; in a network of its own. */

typedef struct Pairs {
    Net net[2];                 /* as above, each with a pair's queues */
    QVirtQueue *control;
    Ring rings[2];
} Pairs;

static bool may_make_taps(void)
{
    return access("/dev/net/tun", R_OK | W_OK) == 0
           && unshare(CLONE_NEWNET) == 0;
}

/* The driver's command: use both pairs. */
static void use_both_pairs(Pairs *pairs)
{
    Net *net = &pairs->net[0];
    uint64_t command = guest_alloc(&net->qs->alloc, 5);
    uint32_t head;

    qtest_writeb(net->qts, command, VIRTIO_NET_CTRL_MQ);
    qtest_writeb(net->qts, command + 1, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET);
    qtest_writew(net->qts, command + 2, 2);
    qtest_writeb(net->qts, command + 4, VIRTIO_NET_ERR);
    head = qvirtqueue_add(net->qts, pairs->control, command, 2, false, true);
    qvirtqueue_add(net->qts, pairs->control, command + 2, 2, false, true);
    qvirtqueue_add(net->qts, pairs->control, command + 4, 1, true, false);
    qvirtqueue_kick(net->qts, net->dev, pairs->control, head);
    wait_for(qtest_readb(net->qts, command + 4) == VIRTIO_NET_OK);
}

/* A card with two pairs of queues. */
static void pairs_boot(Net *net, const char *more)
{
    net->qs = qtest_pc_boot("-object shaper,id=sluice0 -netdev tap,id=hs0,"
                            "script=no,downscript=no,vhost=off,queues=2 "
                            "-device virtio-net-pci,id=net0,netdev=hs0,"
                            "addr=%d,mq=on,shaper=sluice0,"
                            "shaper-dscp=both %s", SLOT, more);
    net->qts = net->qs->qts;
}

static void pairs_start(Pairs *pairs)
{
    Net *net = &pairs->net[0];

    *pairs = (Pairs){ 0 };
    pairs_boot(net, "");
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    qvirtio_set_features(net->dev, qvirtio_get_features(net->dev)
                                   & ~(QVIRTIO_F_BAD_FEATURE
                                       | 1ull << VIRTIO_RING_F_EVENT_IDX));
    pairs->net[1] = *net;
    for (unsigned i = 0; i < 4; i++) {
        pairs->net[i / 2].queues[i % 2] =
            qvirtqueue_setup(net->dev, &net->qs->alloc, i);
    }
    pairs->control = qvirtqueue_setup(net->dev, &net->qs->alloc, 4);
    qvirtio_set_driver_ok(net->dev);
    use_both_pairs(pairs);
    for (unsigned i = 0; i < 2; i++) {
        ring_init(&pairs->rings[i], &pairs->net[i]);
    }
}

static void pairs_end(Pairs *pairs)
{
    Net *net = &pairs->net[0];

    for (unsigned i = 0; i < 4; i++) {
        qvirtqueue_cleanup(net->dev->bus, pairs->net[i / 2].queues[i % 2],
                           &net->qs->alloc);
    }
    qvirtqueue_cleanup(net->dev->bus, pairs->control, &net->qs->alloc);
    qvirtio_pci_device_disable(net->pci);
    qos_object_destroy((QOSGraphObject *)net->pci);
    qtest_shutdown(net->qs);
}

/* A class that floods both pairs has one buffer for both, and keeps nothing of
 * either ring. */
static void test_pairs(void)
{
    Pairs pairs;
    Net *net = &pairs.net[0];

    if (!may_make_taps()) {
        g_test_skip("no right to make a tap in a network of its own");
        return;
    }
    pairs_start(&pairs);
    set_bulk(net, "net-tx", "");
    for (unsigned i = 0; i < 2; i++) {
        ring_send_many(&pairs.rings[i], BULK, 0, 1 - i + FIT + 50);
        wait_for(ring_taken(&pairs.rings[i]) == 0);
        ring_send_number(&pairs.rings[i], DSCP_NONE, 200);
        wait_for(admitted(net, "default", "net-tx") == i + 1);
        wait_for(ring_taken(&pairs.rings[i]) == 0);
    }
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 1);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, FIT);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, FIT);
    g_assert_cmpint(drops_of(net, "bulk", "net-tx", "backlog"), ==, FIT + 100);
    qtest_clock_step(net->qts, (FIT + 1) * FRAME_NS);
    wait_for(ring_taken(&pairs.rings[0]) == 0);
    wait_for(ring_taken(&pairs.rings[1]) == 0);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 1 + FIT);
    g_assert_cmpint(buffered(net, "bulk", "net-tx"), ==, 0);
    pairs_end(&pairs);
}

/* Has the held frames of pair 0 be those of pair 1: each list ends with a zero. */
static void move_frames(uint8_t *bytes, size_t count)
{
    static const char name[] = "virtio-net-device/sluice";
    uint8_t *pairs = memmem(bytes, count, name, strlen(name));
    uint8_t *first, *end;

    g_assert(pairs);
    pairs += strlen(name) + 4;          /* the version */
    g_assert_cmpint(ldl_be_p(pairs), ==, 2);
    first = end = pairs + 4;
    while (*end == 2) {
        end += 1 + 4 + ldl_be_p(end + 1);
    }
    g_assert(end > first && end[0] == 0 && end[1] == 0);
    memmove(first + 1, first, end - first);
    *first = 0;
}

/* The guest uses one pair of two: frames for the other, which no QEMU sends, are refused. */
static void test_frames_without_queue(void)
{
    Net source = { .without = 1ull << VIRTIO_NET_F_MQ }, target = { 0 };
    g_autofree char *state = g_strdup_printf("%s/sluice-ring-%d.state",
                                             g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strconcat("file:", state, NULL);
    g_autofree char *log = g_strconcat(state, ".log", NULL);
    g_autofree char *more = g_strdup_printf("-incoming defer 2>%s", log);
    g_autofree char *bytes = NULL, *said = NULL;
    size_t count;
    Ring ring;

    if (!may_make_taps()) {
        g_test_skip("no right to make a tap in a network of its own");
        return;
    }
    pairs_boot(&source, "");
    source.pci = start_device(source.qs, SLOT);
    source.dev = &source.pci->vdev;
    setup_queues(&source);
    set_bulk(&source, "net-tx", "");
    ring_init(&ring, &source);
    ring_send_many(&ring, BULK, 0, 1 + 3);
    wait_for(buffered(&source, "bulk", "net-tx") == 3);
    qmp_ok(source.qts, "{'execute': 'migrate', 'arguments': {'uri': %s}}", uri);
    wait_for(migration_completed(source.qts));
    g_assert(g_file_get_contents(state, &bytes, &count, NULL));
    move_frames((uint8_t *)bytes, count);
    g_assert(g_file_set_contents(state, bytes, count, NULL));
    pairs_boot(&target, more);
    load_refused(target.qts, state);
    qtest_shutdown(target.qs);
    g_assert(g_file_get_contents(log, &said, NULL, NULL));
    g_assert(strstr(said, "held frames of queue pair 1 "));
    unlink(log);
    unlink(state);
    cleanup_queues(&source, &source.qs->alloc);
    qvirtio_pci_device_disable(source.pci);
    qos_object_destroy((QOSGraphObject *)source.pci);
    qtest_shutdown(source.qs);
}

static void test_refused(void)
{
    Net *net = net_new("");

    qmp_refused(net->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'shaper-queues': 'video'}}",
                "shaper-queues 'video'", "shaper=");
    qmp_refused(net->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'shaper': 'sluice0', "
                "'shaper-queues': 'video:bulk'}}",
                "shaper-queues 'video:bulk'", "2 queues", "the device has 1");
    qmp_refused(net->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-net-pci', 'shaper': 'sluice0', "
                "'shaper-queues': 'Video'}}",
                "shaper-queues 'Video'", "a-z, 0-9 and -");
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/ring/nothing-is-kept", test_nothing_is_kept);
    qtest_add_func("/sluice/net/ring/flood-delays-nobody",
                   test_flood_delays_nobody);
    qtest_add_func("/sluice/net/ring/many-classes", test_many_classes);
    qtest_add_func("/sluice/net/ring/limits", test_limits);
    qtest_add_func("/sluice/net/ring/own-queue", test_own_queue);
    qtest_add_func("/sluice/net/ring/only-class", test_only_class);
    qtest_add_func("/sluice/net/ring/queue-class", test_queue_class);
    qtest_add_func("/sluice/net/ring/order", test_order);
    qtest_add_func("/sluice/net/ring/stop-cont", test_stop_cont);
    qtest_add_func("/sluice/net/ring/stop-cont-shared-since",
                   test_stop_cont_shared_since);
    qtest_add_func("/sluice/net/ring/migrate", test_migrate);
    qtest_add_func("/sluice/net/ring/migrate-configured",
                   test_migrate_configured);
    qtest_add_func("/sluice/net/ring/reset", test_reset);
    qtest_add_func("/sluice/net/ring/link-down", test_link_down);
    qtest_add_func("/sluice/net/ring/unplug", test_unplug);
    qtest_add_func("/sluice/net/ring/remove-class", test_remove_class);
    qtest_add_func("/sluice/net/ring/in-order", test_in_order);
    qtest_add_func("/sluice/net/ring/migrate-in-order", test_migrate_in_order);
    qtest_add_func("/sluice/net/ring/refused", test_refused);
    /* Last: from here on the program is in another network. */
    qtest_add_func("/sluice/net/ring/pairs", test_pairs);
    qtest_add_func("/sluice/net/ring/frames-without-queue",
                   test_frames_without_queue);
    return g_test_run();
}
