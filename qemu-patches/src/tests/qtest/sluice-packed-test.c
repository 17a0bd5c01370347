/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of held frames and disk requests with packed virtqueues, where chains
 * have no fixed place: a chain given back out of turn is written where the device
 * stands, and only the number of its descriptors says how far that is.
 *
 * The device holds some of the frames sent, answers later ones, and gives back each
 * chain once. SLUICE_CYCLES says how often the life cycle is run (2).
 * Costs are those of the tests with split virtqueues.
 */
#include "qemu/osdep.h"
#include "standard-headers/linux/virtio_blk.h"
#include "sluice-frames.h"
#include "sluice-packed.h"

#define BULK            DSCP_OF_TAG(2)
#define OTHER           DSCP_OF_TAG(3)
#define LONG_NS         (1000 * FRAME_NS)
#define HELD            4
#define DISK_SLOT       5
#define REQUEST_BYTES   4096
#define REQUEST_NS      (REQUEST_BYTES * 1000LL)
#define SECTOR_BYTES    512
#define PENDING         0xff
#define INDIRECT_BYTES  (2 * 16)

/* Network cards */

typedef struct Card {
    Net net;
    Packed rings[3];
    bool indirect;
} Card;

static void card_setup(Card *card)
{
    Net *net = &card->net;

    packed_negotiate(net->dev, 0, card->indirect);
    for (unsigned i = 0; i < ARRAY_SIZE(card->rings); i++) {
        packed_init(&card->rings[i], net->qs, net->dev, i);
        net->queues[i] = card->rings[i].vq;
    }
    qvirtio_set_driver_ok(net->dev);
}

static void card_start(Card *card)
{
    card->net.pci = start_device(card->net.qs, SLOT);
    card->net.dev = &card->net.pci->vdev;
    card_setup(card);
}

static Card *card_new_with(const char *options, bool indirect)
{
    Card *card = g_new0(Card, 1);

    card->indirect = indirect;
    net_boot(&card->net, options, "");
    card_start(card);
    return card;
}

/* Its queue is that of bulk: frames that wait keep their descriptors. */
static Card *card_new(bool indirect)
{
    return card_new_with(",packed=on,shaper-queues=bulk", indirect);
}

/* All classes share its queue. */
static Card *card_new_shared(bool indirect)
{
    return card_new_with(",packed=on", indirect);
}

static void card_stop(Card *card)
{
    cleanup_queues(&card->net, &card->net.qs->alloc);
    qvirtio_pci_device_disable(card->net.pci);
    qos_object_destroy((QOSGraphObject *)card->net.pci);
}

static void card_free(Card *card)
{
    card_stop(card);
    qtest_shutdown(card->net.qs);
    close(card->net.socket);
    g_free(card);
}

/* Header and frame are two pieces, of a chain or of an indirect table. */
static void card_send(Card *card, unsigned dscp, uint8_t number)
{
    QTestState *qts = card->net.qts;
    uint64_t memory = guest_alloc(&card->net.qs->alloc,
                                  BUFFER_BYTES + INDIRECT_BYTES);
    uint64_t table = memory + BUFFER_BYTES;
    Piece pieces[2] = {
        { .address = memory, .bytes = HEADER_BYTES },
        { .address = memory + HEADER_BYTES, .bytes = FRAME_BYTES },
    };
    uint8_t frame[FRAME_BYTES];

    make_frame(frame, dscp, number);
    qtest_memset(qts, memory, 0, HEADER_BYTES);
    qtest_memwrite(qts, memory + HEADER_BYTES, frame, sizeof(frame));
    if (!card->indirect) {
        packed_send(&card->rings[TX_QUEUE], pieces, 2, 0);
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        qtest_writeq(qts, table + i * 16, pieces[i].address);
        qtest_writel(qts, table + i * 16 + 8, pieces[i].bytes);
        qtest_writel(qts, table + i * 16 + 12, 0);
    }
    packed_send(&card->rings[TX_QUEUE],
                &(Piece){ .address = table, .bytes = INDIRECT_BYTES }, 1,
                VRING_DESC_F_INDIRECT);
}

static void card_send_many(Card *card, unsigned dscp, unsigned first,
                           unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        card_send(card, dscp, first + i);
    }
}

static uint64_t card_post(Card *card)
{
    uint64_t memory = guest_alloc(&card->net.qs->alloc, BUFFER_BYTES);

    packed_send(&card->rings[RX_QUEUE],
                &(Piece){ memory, BUFFER_BYTES, true }, 1, 0);
    return memory;
}

/* Of class bulk, in both directions, one passes and HELD are held. */
static void card_hold(Card *card, uint64_t buffers[1 + HELD])
{
    Net *net = &card->net;

    qmp_ok(net->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': ["
           "{'resource': 'net-tx', " LIMIT_1MBPS "}, "
           "{'resource': 'net-rx', " LIMIT_1MBPS "}]}}");
    qtest_clock_step(net->qts, LONG_NS);
    card_send_many(card, BULK, 0, 1 + HELD);
    wait_for(backlog(net, "bulk", "net-tx") == HELD);
    check_sent(net, 0);
    for (unsigned i = 0; i < 1 + HELD; i++) {
        buffers[i] = card_post(card);
    }
    network_send_many(net, BULK, 100, 1 + HELD);
    wait_for(backlog(net, "bulk", "net-rx") == HELD);
}

/* All that card_hold() held goes on, once and in order. */
static void card_finish(Card *card, const uint64_t buffers[1 + HELD],
                        unsigned tx_used, unsigned rx_used)
{
    Net *net = &card->net;

    wait_for((qtest_clock_step(net->qts, FRAME_NS),
              packed_collect(&card->rings[TX_QUEUE]) == tx_used
              && packed_collect(&card->rings[RX_QUEUE]) == rx_used));
    for (unsigned n = 1; n <= HELD; n++) {
        check_sent(net, n);
    }
    check_nothing_sent(net);
    for (unsigned n = 0; n <= HELD; n++) {
        g_assert_cmpint(number_in(net, buffers[n]), ==, 100 + n);
    }
    g_assert_cmpint(card->rings[TX_QUEUE].taken, ==, 0);
    g_assert_cmpint(card->rings[RX_QUEUE].taken, ==, 0);
}

static void check_card_forgets(Card *card)
{
    g_assert_cmpint(backlog(&card->net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(backlog(&card->net, "bulk", "net-rx"), ==, 0);
    qtest_clock_step(card->net.qts, LONG_NS);
    check_nothing_sent(&card->net);
}

/* One frame passes, and HELD are held, in a ring that is shared only from then on. */
static void card_hold_before_sharing(Card *card)
{
    Net *net = &card->net;

    limit_class(net, "default", 0, "net-tx");
    qtest_clock_step(net->qts, LONG_NS);
    card_send_many(card, DSCP_NONE, 0, 1 + HELD);
    wait_for(backlog(net, "default", "net-tx") == HELD);
    check_sent(net, 0);
    limit_class(net, "other", 3, "net-rx");
}

/* A held request keeps its descriptors; one that comes after it goes before it. */
static void test_net_overtakes(void)
{
    Card *card = card_new_shared(false);
    Packed *tx = &card->rings[TX_QUEUE];
    Net *net = &card->net;

    card_hold_before_sharing(card);
    card_send_many(card, OTHER, 50, 3);
    for (unsigned n = 50; n < 53; n++) {
        check_sent(net, n);
    }
    wait_for(packed_collect(tx) == 1 + 3);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmpint(tx->order[1 + i], ==, 1 + HELD + i);
    }
    g_assert_cmpint(tx->taken, ==, 2 * HELD);
    wait_for((qtest_clock_step(net->qts, FRAME_NS),
              packed_collect(tx) == 1 + 3 + HELD));
    for (unsigned i = 0; i < HELD; i++) {
        check_sent(net, 1 + i);
        g_assert_cmpint(tx->order[4 + i], ==, 1 + i);
    }
    g_assert_cmpint(tx->taken, ==, 0);
    card_free(card);
}

/*
 * A frame that waits in a shared ring goes to the buffer, and its slots back. So often
 * that the ring has been gone round.
 */
static void check_shared(bool indirect)
{
    Card *card = card_new_shared(indirect);
    Packed *tx = &card->rings[TX_QUEUE];
    unsigned slots = indirect ? 1 : 2, buffered_frames = 20, sent = 0;

    set_bulk(&card->net, "net-tx", "");
    while (sent * slots <= RING) {
        qtest_clock_step(card->net.qts, LONG_NS);
        card_send(card, BULK, 0);
        check_sent(&card->net, 0);
        card_send_many(card, BULK, 1, buffered_frames);
        wait_for(buffered(&card->net, "bulk", "net-tx") == buffered_frames);
        wait_for((packed_collect(tx), tx->taken == 0));
        sent += 1 + buffered_frames;
        qtest_clock_step(card->net.qts, LONG_NS);
        for (unsigned n = 1; n <= buffered_frames; n++) {
            check_sent(&card->net, n % 256);
        }
        wait_for(packed_collect(tx) == sent);
        g_assert_cmpint(tx->taken, ==, 0);
        g_assert_cmpint(buffered(&card->net, "bulk", "net-tx"), ==, 0);
    }
    card_free(card);
}

static void test_net_shared(void)
{
    check_shared(false);
}

static void test_net_shared_indirect(void)
{
    check_shared(true);
}

/* Frames in buffers when the machine stops are sent after it goes on. */
static void test_net_stop_buffered(void)
{
    Card *card = card_new_shared(false);
    Packed *tx = &card->rings[TX_QUEUE];
    unsigned all = 1 + 20;

    set_bulk(&card->net, "net-tx", "");
    card_send_many(card, BULK, 0, all);
    wait_for(buffered(&card->net, "bulk", "net-tx") == 20);
    qmp_ok(card->net.qts, "{'execute': 'stop'}");
    g_assert_cmpint(backlog(&card->net, "bulk", "net-tx"), ==, 0);
    qmp_ok(card->net.qts, "{'execute': 'cont'}");
    wait_for(backlog(&card->net, "bulk", "net-tx") == all - 1);
    qtest_clock_step(card->net.qts, LONG_NS);
    for (unsigned n = 0; n < all; n++) {
        check_sent(&card->net, n % 256);
    }
    wait_for(packed_collect(tx) == all);
    g_assert_cmpint(tx->taken, ==, 0);
    card_free(card);
}

static void test_net_stop_cont(void)
{
    Card *card = card_new(false);
    uint64_t buffers[1 + HELD];

    for (unsigned i = 0; i < cycles(); i++) {
        card_hold(card, buffers);
        qmp_ok(card->net.qts, "{'execute': 'stop'}");
        g_assert_cmpint(backlog(&card->net, "bulk", "net-tx"), ==, 0);
        qmp_ok(card->net.qts, "{'execute': 'cont'}");
        card_finish(card, buffers, 1 + HELD, 1 + HELD);
        /* Chains are numbered from 0 again. */
        card_stop(card);
        card_start(card);
    }
    card_free(card);
}

static void test_net_system_reset(void)
{
    Card *card = card_new(false);
    uint64_t buffers[1 + HELD];

    for (unsigned i = 0; i < cycles(); i++) {
        card_hold(card, buffers);
        qmp_ok(card->net.qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(card->net.qts, "RESET");
        check_card_forgets(card);
        card_stop(card);
        card_start(card);
    }
    card_free(card);
}

static void test_net_device_reset(void)
{
    Card *card = card_new(true);
    uint64_t buffers[1 + HELD];

    for (unsigned i = 0; i < cycles(); i++) {
        card_hold(card, buffers);
        cleanup_queues(&card->net, &card->net.qs->alloc);
        qvirtio_start_device(card->net.dev);
        check_card_forgets(card);
        card_setup(card);
    }
    card_free(card);
}

static void set_link(Card *card, bool up)
{
    qmp_ok(card->net.qts, "{'execute': 'set_link', 'arguments': "
           "{'name': 'net0', 'up': %i}}", up);
}

/* Does the device want to be told of new chains? */
static bool wants_kicks(const Packed *packed)
{
    return qtest_readw(packed->qts, packed->vq->used + 2)
           == VRING_PACKED_EVENT_FLAG_ENABLE;
}

/* As in sluice-net-lifecycle-test.c: the search for room has an end. */
static void test_net_endless_receive_chain(void)
{
    const unsigned count = 1025;
    Card *card = card_new(true);
    QTestState *qts = card->net.qts;
    uint64_t table = guest_alloc(&card->net.qs->alloc, 16 * count);

    for (unsigned i = 0; i < count; i++) {
        qtest_writeq(qts, table + 16 * i, table);
        qtest_writel(qts, table + 16 * i + 8, 0);
        qtest_writel(qts, table + 16 * i + 12, VRING_DESC_F_WRITE << 16);
    }
    packed_send(&card->rings[RX_QUEUE],
                &(Piece){ .address = table, .bytes = 16 * count }, 1,
                VRING_DESC_F_INDIRECT);
    network_send(&card->net, DSCP_NONE, 1);
    wait_for(card->net.dev->bus->get_status(card->net.dev)
             & VIRTIO_CONFIG_S_NEEDS_RESET);
    card_free(card);
}

/* Frames held when the link goes, and those that come while it is down, are given back
 * unsent; later ones are heard of, and sent. */
static void test_net_link(void)
{
    Card *card = card_new_shared(false);
    Packed *tx = &card->rings[TX_QUEUE];

    card_hold_before_sharing(card);
    set_link(card, false);
    wait_for((qtest_clock_step(card->net.qts, FRAME_NS),
              packed_collect(tx) == 1 + HELD));
    wait_for(wants_kicks(tx));
    card_send_many(card, OTHER, 40, 3);
    wait_for(packed_collect(tx) == 1 + HELD + 3);
    g_assert_cmpint(tx->taken, ==, 0);
    wait_for(wants_kicks(tx));
    set_link(card, true);
    card_send_many(card, OTHER, 50, 3);
    for (unsigned n = 50; n < 53; n++) {
        check_sent(&card->net, n);
    }
    wait_for(packed_collect(tx) == 1 + HELD + 6);
    card_free(card);
}

/* The target sends the held frames, and gives them back where the ring stands. */
static void check_net_migrates(bool indirect)
{
    Card *source = card_new_shared(indirect);
    Card target = { 0 };
    g_autofree char *socket = g_strdup_printf("%s/sluice-packed-%d.sock",
                                              g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strconcat("unix:", socket, NULL);
    g_autofree char *incoming = g_strconcat("-incoming ", uri, NULL);
    Packed *tx = &source->rings[TX_QUEUE];

    card_hold_before_sharing(source);
    /* It is given back after the held frames, and before. */
    card_send(source, OTHER, 50);
    check_sent(&source->net, 50);
    net_boot(&target.net, ",packed=on", incoming);
    migrate(source->net.qs, target.net.qs, uri);
    tx->qts = target.net.qts;
    for (unsigned n = 1; n <= HELD; n++) {
        qtest_clock_step(target.net.qts, FRAME_NS);
        check_sent(&target.net, n);
    }
    wait_for(packed_collect(tx) == 2 + HELD);
    g_assert_cmpint(tx->taken, ==, 0);
    for (unsigned i = 0; i < HELD; i++) {
        g_assert_cmpint(tx->order[2 + i], ==, 1 + i);
    }
    cleanup_queues(&source->net, &target.net.qs->alloc);
    qtest_shutdown(target.net.qs);
    close(target.net.socket);
    unlink(socket);
    qvirtio_pci_device_disable(source->net.pci);
    qos_object_destroy((QOSGraphObject *)source->net.pci);
    qtest_shutdown(source->net.qs);
    close(source->net.socket);
    g_free(source);
}

static void test_net_migrate(void)
{
    check_net_migrates(false);
}

static void test_net_migrate_indirect(void)
{
    check_net_migrates(true);
}

/* Disks */

typedef struct Store {
    QOSState *qs;
    QTestState *qts;
    QVirtioPCIDevice *pci;
    Packed ring;
    char *image;
} Store;

typedef struct Read {
    uint64_t data;
    uint64_t status;
} Read;

static void store_boot(Store *store, const char *more)
{
    store->qs = qtest_pc_boot("-object shaper,id=sluice0 -blockdev driver=file,"
                              "node-name=d0,filename=%s,locking=off %s "
                              "-device virtio-blk-pci,id=disk0,drive=d0,"
                              "addr=%d,packed=on,shaper=sluice0",
                              store->image, more, DISK_SLOT);
    store->qts = store->qs->qts;
}

static void store_start(Store *store)
{
    store->pci = start_device(store->qs, DISK_SLOT);
    packed_negotiate(&store->pci->vdev, 1u << VIRTIO_BLK_F_SCSI, false);
    packed_init(&store->ring, store->qs, &store->pci->vdev, 0);
    qvirtio_set_driver_ok(&store->pci->vdev);
}

static void store_stop(Store *store, QGuestAllocator *alloc)
{
    qvirtqueue_cleanup(store->pci->vdev.bus, store->ring.vq, alloc);
    qvirtio_pci_device_disable(store->pci);
    qos_object_destroy((QOSGraphObject *)store->pci);
}

static Store *store_new(void)
{
    Store *store = g_new0(Store, 1);
    int fd = g_file_open_tmp("sluice.XXXXXX", &store->image, NULL);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, 1024 * 1024), ==, 0);
    close(fd);
    store_boot(store, "");
    store_start(store);
    return store;
}

static void store_free(Store *store, QGuestAllocator *alloc)
{
    store_stop(store, alloc);
    qtest_shutdown(store->qs);
    unlink(store->image);
    g_free(store->image);
    g_free(store);
}

/* Real-time priority 0 with hint 2 is tag 2; see sluice_tag_of_ioprio(). */
static Read store_read(Store *store, unsigned tag)
{
    uint64_t header = guest_alloc(&store->qs->alloc, 16 + REQUEST_BYTES + 1);
    Read read = { header + 16, header + 16 + REQUEST_BYTES };
    Piece pieces[] = {
        { .address = header, .bytes = 16 },
        { .address = read.data, .bytes = REQUEST_BYTES, .write = true },
        { .address = read.status, .bytes = 1, .write = true },
    };

    qtest_writel(store->qts, header, VIRTIO_BLK_T_IN);
    qtest_writel(store->qts, header + 4, tag ? 1u << 13 | tag : 0x4004);
    qtest_writeq(store->qts, header + 8, 0);
    qtest_writeb(store->qts, read.status, PENDING);
    packed_send(&store->ring, pieces, ARRAY_SIZE(pieces), 0);
    return read;
}

static void limit_reads(Store *store)
{
    qmp_ok(store->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': "
           "[{'resource': 'blk-read', 'bytes-per-second': 1000000, "
           "'burst-bytes': 4096}]}}");
    qtest_clock_step(store->qts, 100 * REQUEST_NS);
}

/* One passes, HELD are held. */
static void store_hold(Store *store, Read reads[1 + HELD])
{
    limit_reads(store);
    for (unsigned i = 0; i < 1 + HELD; i++) {
        reads[i] = store_read(store, 2);
    }
    wait_for(stat_of(store->qts, "bulk", "blk-read", "backlog-requests")
             == HELD);
    wait_for(qtest_readb(store->qts, reads[0].status) == VIRTIO_BLK_S_OK);
}

static void check_reads(QTestState *qts, const Read *reads, unsigned done)
{
    for (unsigned i = 0; i < 1 + HELD; i++) {
        g_assert_cmpint(qtest_readb(qts, reads[i].status), ==,
                        i < done ? VIRTIO_BLK_S_OK : PENDING);
    }
}

static void test_blk_overtakes(void)
{
    Store *store = store_new();
    Read reads[1 + HELD], other;
    Packed *ring = &store->ring;

    store_hold(store, reads);
    other = store_read(store, 0);
    wait_for(packed_collect(ring) == 2);
    g_assert_cmpint(ring->order[1], ==, 1 + HELD);
    g_assert_cmpint(qtest_readb(store->qts, other.status), ==,
                    VIRTIO_BLK_S_OK);
    check_reads(store->qts, reads, 1);
    g_assert_cmpint(ring->taken, ==, 3 * HELD);
    for (unsigned n = 1; n <= HELD; n++) {
        qtest_clock_step(store->qts, n == 1 ? 1 : REQUEST_NS);
        wait_for(packed_collect(ring) == 2 + n);
        g_assert_cmpint(ring->order[1 + n], ==, n);
        check_reads(store->qts, reads, 1 + n);
    }
    g_assert_cmpint(ring->taken, ==, 0);
    store_free(store, &store->qs->alloc);
}

/* The ring is gone round again and again, with some of it held. */
static void test_blk_stop_cont(void)
{
    Store *store = store_new();
    Read reads[1 + HELD];

    for (unsigned i = 0; i < 50 * cycles(); i++) {
        store_hold(store, reads);
        qmp_ok(store->qts, "{'execute': 'stop'}");
        g_assert_cmpint(stat_of(store->qts, "bulk", "blk-read",
                                "backlog-requests"), ==, 0);
        qmp_ok(store->qts, "{'execute': 'cont'}");
        wait_for((qtest_clock_step(store->qts, REQUEST_NS),
                  packed_collect(&store->ring) == (i + 1) * (1 + HELD)));
        check_reads(store->qts, reads, 1 + HELD);
        g_assert_cmpint(store->ring.taken, ==, 0);
        for (unsigned n = 0; n < 1 + HELD; n++) {
            guest_free(&store->qs->alloc, reads[n].data - 16);
        }
    }
    g_assert_cmpint(store->ring.chains * 3, >, store->ring.vq->size);
    store_free(store, &store->qs->alloc);
}

static void test_blk_system_reset(void)
{
    Store *store = store_new();
    Read reads[1 + HELD];

    for (unsigned i = 0; i < cycles(); i++) {
        store_hold(store, reads);
        qmp_ok(store->qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(store->qts, "RESET");
        qtest_clock_step(store->qts, 100 * REQUEST_NS);
        check_reads(store->qts, reads, 1);
        store_stop(store, &store->qs->alloc);
        store_start(store);
    }
    store_free(store, &store->qs->alloc);
}

static void test_blk_migrate(void)
{
    Store *source = store_new();
    Store target = { .image = source->image };
    g_autofree char *socket = g_strconcat(source->image, ".sock", NULL);
    g_autofree char *uri = g_strconcat("unix:", socket, NULL);
    g_autofree char *incoming = g_strconcat("-incoming ", uri, NULL);
    Packed *ring = &source->ring;
    Read reads[1 + HELD];

    store_hold(source, reads);
    store_boot(&target, incoming);
    migrate(source->qs, target.qs, uri);
    ring->qts = target.qts;
    for (unsigned n = 1; n <= HELD; n++) {
        qtest_clock_step(target.qts, n == 1 ? 1 : REQUEST_NS);
        wait_for(packed_collect(ring) == 1 + n);
        g_assert_cmpint(ring->order[n], ==, n);
        check_reads(target.qts, reads, 1 + n);
    }
    g_assert_cmpint(ring->taken, ==, 0);
    store_stop(source, &target.qs->alloc);
    qtest_shutdown(target.qs);
    qtest_shutdown(source->qs);
    unlink(source->image);
    unlink(socket);
    g_free(source->image);
    g_free(source);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/packed/net/overtakes", test_net_overtakes);
    qtest_add_func("/sluice/packed/net/shared", test_net_shared);
    qtest_add_func("/sluice/packed/net/shared-indirect",
                   test_net_shared_indirect);
    qtest_add_func("/sluice/packed/net/stop-buffered", test_net_stop_buffered);
    qtest_add_func("/sluice/packed/net/stop-cont", test_net_stop_cont);
    qtest_add_func("/sluice/packed/net/system-reset", test_net_system_reset);
    qtest_add_func("/sluice/packed/net/device-reset", test_net_device_reset);
    qtest_add_func("/sluice/packed/net/endless-receive-chain",
                   test_net_endless_receive_chain);
    qtest_add_func("/sluice/packed/net/link", test_net_link);
    qtest_add_func("/sluice/packed/net/migrate", test_net_migrate);
    qtest_add_func("/sluice/packed/net/migrate-indirect",
                   test_net_migrate_indirect);
    qtest_add_func("/sluice/packed/blk/overtakes", test_blk_overtakes);
    qtest_add_func("/sluice/packed/blk/stop-cont", test_blk_stop_cont);
    qtest_add_func("/sluice/packed/blk/system-reset", test_blk_system_reset);
    qtest_add_func("/sluice/packed/blk/migrate", test_blk_migrate);
    return g_test_run();
}
