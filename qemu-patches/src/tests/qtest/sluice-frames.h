/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames of any kind, and more of them than the ring has descriptors: descriptors that
 * the device gives back are used again, as a driver does.
 */
#ifndef TESTS_SLUICE_FRAMES_H
#define TESTS_SLUICE_FRAMES_H

#include "sluice-nic.h"

#define RING            1024    /* QEMU 10.0 offers no smaller one */
#define SLOT_BYTES      2048
#define ECT_0           2
#define CE              3
#define TCP_SYN         0x02
#define TCP_ACK         0x10

/* A transmit ring whose descriptors each have a buffer of their own. */
typedef struct Ring {
    Net *net;
    QVirtQueue *vq;
    uint64_t buffers;           /* RING of them, SLOT_BYTES each */
    uint16_t free[RING];
    unsigned free_count;
    uint16_t seen;              /* of the used ring */
    unsigned sent;              /* frames given to the device */
} Ring;

G_GNUC_UNUSED
static void ring_init(Ring *ring, Net *net)
{
    *ring = (Ring){ .net = net, .vq = net->queues[TX_QUEUE],
                    .free_count = RING };
    g_assert_cmpint(ring->vq->size, ==, RING);
    ring->buffers = guest_alloc(&net->qs->alloc, RING * SLOT_BYTES);
    for (unsigned i = 0; i < RING; i++) {
        ring->free[i] = RING - 1 - i;
    }
}

/* Takes back the descriptors that the device has given back. */
G_GNUC_UNUSED
static void ring_collect(Ring *ring)
{
    uint16_t used = used_count(ring->net->qts, ring->vq);

    for (; ring->seen != used; ring->seen++) {
        uint64_t entry = ring->vq->used + 4 + ring->seen % RING * 8;

        g_assert_cmpint(ring->free_count, <, RING);
        ring->free[ring->free_count++] = qtest_readl(ring->net->qts, entry);
    }
}

G_GNUC_UNUSED
static uint64_t ring_buffer(Ring *ring, uint16_t id)
{
    return ring->buffers + id * SLOT_BYTES + HEADER_BYTES;
}

/* Takes a descriptor; waits for one if all are taken. */
G_GNUC_UNUSED
static uint16_t ring_take(Ring *ring)
{
    wait_for((ring_collect(ring), ring->free_count > 0));
    return ring->free[--ring->free_count];
}

/* Offers a descriptor, without a next one. */
G_GNUC_UNUSED
static void ring_offer(Ring *ring, uint16_t id, uint64_t address,
                       uint32_t bytes, uint16_t flags)
{
    QTestState *qts = ring->net->qts;
    uint64_t desc = ring->vq->desc + id * 16;

    qtest_writeq(qts, desc, address);
    qtest_writel(qts, desc + 8, bytes);
    qtest_writel(qts, desc + 12, flags);
    qvirtqueue_kick(qts, ring->net->dev, ring->vq, id);
    ring->sent++;
}

/* Sends; waits for a descriptor if all are taken. Returns which it took. */
G_GNUC_UNUSED
static uint16_t ring_send(Ring *ring, const void *frame, size_t bytes)
{
    QTestState *qts = ring->net->qts;
    uint16_t id = ring_take(ring);

    g_assert_cmpint(HEADER_BYTES + bytes, <=, SLOT_BYTES);
    qtest_memset(qts, ring_buffer(ring, id) - HEADER_BYTES, 0, HEADER_BYTES);
    qtest_memwrite(qts, ring_buffer(ring, id), frame, bytes);
    ring_offer(ring, id, ring_buffer(ring, id) - HEADER_BYTES,
               HEADER_BYTES + bytes, 0);
    return id;
}

/* Descriptors that the device has. */
G_GNUC_UNUSED
static unsigned ring_taken(Ring *ring)
{
    ring_collect(ring);
    return RING - ring->free_count;
}

static uint16_t header_checksum(const uint8_t *ip)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < 20; i += 2) {
        sum += lduw_be_p(ip + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

/* With a right checksum, and TCP flags unless these are 0. */
G_GNUC_UNUSED
static void make_ip_frame(uint8_t frame[FRAME_BYTES], unsigned dscp,
                          unsigned ecn, unsigned tcp_flags, uint8_t number)
{
    uint8_t *ip = frame + 14;

    make_frame(frame, dscp, number);
    ip[1] = dscp << 2 | ecn;
    stw_be_p(ip + 2, FRAME_BYTES - 14);
    ip[8] = 64;
    ip[9] = tcp_flags ? 6 : 17;
    ip[33] = tcp_flags;
    stw_be_p(ip + 10, header_checksum(ip));
}

G_GNUC_UNUSED
static void ring_send_number(Ring *ring, unsigned dscp, uint8_t number)
{
    uint8_t frame[FRAME_BYTES];

    make_ip_frame(frame, dscp, 0, 0, number);
    ring_send(ring, frame, sizeof(frame));
}

G_GNUC_UNUSED
static void ring_send_many(Ring *ring, unsigned dscp, unsigned first,
                           unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        ring_send_number(ring, dscp, first + i);
    }
}

/* Sends frames of no limit until the network takes no more of them. */
G_GNUC_UNUSED
static void fill_network(Net *net)
{
    uint16_t used = used_count(net->qts, net->queues[TX_QUEUE]);
    int64_t before = admitted(net, "default", "net-tx");

    for (unsigned sent = 1; ; sent++) {
        g_assert_cmpint(sent, <, 200);
        guest_send(net, DSCP_NONE, 0);
        wait_for(admitted(net, "default", "net-tx") == before + sent);
        if ((uint16_t)(used_count(net->qts, net->queues[TX_QUEUE]) - used)
            == sent - 1) {
            return;
        }
    }
}

/* As above, after a first frame of any kind, which is sent. */
G_GNUC_UNUSED
static void block_network(Net *net, unsigned dscp)
{
    uint16_t used = used_count(net->qts, net->queues[TX_QUEUE]);

    guest_send(net, dscp, 0);
    wait_for(used_count(net->qts, net->queues[TX_QUEUE])
             == (uint16_t)(used + 1));
    fill_network(net);
}

/* Frames of class bulk that were held, once each and in order. */
G_GNUC_UNUSED
static void check_all_sent(Net *net, unsigned first, unsigned count)
{
    qtest_clock_step(net->qts, (count + 1) * FRAME_NS);
    for (unsigned i = 0; i < count; i++) {
        check_sent(net, (first + i) % 256);
    }
    check_nothing_sent(net);
}

/* One number of query-shapers below "drops". */
G_GNUC_UNUSED
static int64_t drops_of(Net *net, const char *class, const char *resource,
                        const char *reason)
{
    QDict *shaper = query_shaper(net->qts);
    QDict *stats = stats_of(shaper, class, resource);
    int64_t value = qdict_get_int(qdict_get_qdict(stats, "drops"), reason);

    qobject_unref(shaper);
    return value;
}

#define buffered(net, class, resource) \
    stat_of((net)->qts, class, resource, "buffered-requests")

/* Class bulk, 1 MB/s and a burst of one frame, with a queue as given. */
#define set_bulk(net, resource, queue) \
    qmp_ok((net)->qts, "{'execute': 'shaper-set-class', 'arguments': " \
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, " \
           "'limits': [{'resource': '" resource "', " LIMIT_1MBPS "}], " \
           "'queues': [{'resource': '" resource "'" queue "}]}}")

#endif
