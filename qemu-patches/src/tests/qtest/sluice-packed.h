/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's side of a packed virtqueue, which the test library does not
 * have. It lies in the memory that the library allocates for a split one.
 *
 * A chain takes neighbouring descriptors, all with the same id: the number of
 * the chain, modulo the size of the ring. The two highest flags of a descriptor tell
 * its writer; their meaning turns over each time the ring is gone round.
 */
#ifndef TESTS_SLUICE_PACKED_H
#define TESTS_SLUICE_PACKED_H

#include "standard-headers/linux/virtio_config.h"
#include "standard-headers/linux/virtio_ring.h"
#include "sluice-test.h"

#define PACKED_CHAINS_MAX   1024
#define DESC_AVAIL          (1u << VRING_PACKED_DESC_F_AVAIL)
#define DESC_USED           (1u << VRING_PACKED_DESC_F_USED)

typedef struct Piece {
    uint64_t address;
    uint32_t bytes;
    bool write;                 /* by the device */
} Piece;

typedef struct Packed {
    QTestState *qts;
    QVirtioDevice *dev;
    QVirtQueue *vq;
    unsigned next, next_used;   /* slots */
    bool wrap, used_wrap;
    unsigned taken;             /* slots that the device has */
    unsigned chains;            /* given to the device */
    unsigned used;              /* chains that it gave back */
    uint8_t slots[PACKED_CHAINS_MAX];       /* by chain; 0: it is back */
    uint16_t order[PACKED_CHAINS_MAX];      /* in which they came back */
} Packed;

/* Between the features and DRIVER_OK. */
G_GNUC_UNUSED
static void packed_init(Packed *packed, QOSState *qs, QVirtioDevice *dev,
                        unsigned index)
{
    *packed = (Packed){ .qts = qs->qts, .dev = dev, .wrap = true,
                        .used_wrap = true };
    packed->vq = qvirtqueue_setup(dev, &qs->alloc, index);
    g_assert_cmpint(packed->vq->size, <=, PACKED_CHAINS_MAX);
    qtest_memset(packed->qts, packed->vq->desc, 0, packed->vq->size * 16);
}

/* Features without indirect descriptors, unless `indirect`. */
G_GNUC_UNUSED
static void packed_negotiate(QVirtioDevice *dev, uint64_t without,
                             bool indirect)
{
    uint64_t features = qvirtio_get_features(dev);

    g_assert(features & (1ull << VIRTIO_F_RING_PACKED));
    features &= ~(QVIRTIO_F_BAD_FEATURE | without
                  | (1ull << VIRTIO_RING_F_EVENT_IDX));
    if (!indirect) {
        features &= ~(1ull << VIRTIO_RING_F_INDIRECT_DESC);
    }
    qvirtio_set_features(dev, features);
}

static void packed_step(const Packed *packed, unsigned *slot, bool *wrap,
                        unsigned count)
{
    *slot += count;
    if (*slot >= packed->vq->size) {
        *slot -= packed->vq->size;
        *wrap = !*wrap;
    }
}

static void packed_write(Packed *packed, unsigned slot, const Piece *piece,
                         uint16_t id)
{
    uint64_t desc = packed->vq->desc + slot * 16;

    qtest_writeq(packed->qts, desc, piece->address);
    qtest_writel(packed->qts, desc + 8, piece->bytes);
    qtest_writew(packed->qts, desc + 12, id);
}

/* Gives the device a chain, and tells it; returns the chain's id. */
G_GNUC_UNUSED
static uint16_t packed_send(Packed *packed, const Piece *pieces, unsigned count,
                            uint16_t more_flags)
{
    uint16_t id = packed->chains++ % packed->vq->size, flags[8];
    unsigned slot = packed->next, first = packed->next;

    g_assert_cmpint(packed->slots[id], ==, 0);
    g_assert_cmpint(count, <=, ARRAY_SIZE(flags));
    g_assert_cmpint(packed->taken + count, <=, packed->vq->size);
    for (unsigned i = 0; i < count; i++) {
        flags[i] = (packed->wrap ? DESC_AVAIL : DESC_USED)
                   | (pieces[i].write ? VRING_DESC_F_WRITE : 0)
                   | (i + 1 < count ? VRING_DESC_F_NEXT : 0) | more_flags;
        packed_write(packed, slot, &pieces[i], id);
        if (i > 0) {
            qtest_writew(packed->qts, packed->vq->desc + slot * 16 + 14,
                         flags[i]);
        }
        packed_step(packed, &slot, &packed->wrap, 1);
    }
    packed->next = slot;
    packed->slots[id] = count;
    packed->taken += count;
    /* The first one makes all of them the device's. */
    qtest_writew(packed->qts, packed->vq->desc + first * 16 + 14, flags[0]);
    packed->dev->bus->virtqueue_kick(packed->dev, packed->vq);
    return id;
}

/* Takes back the chains that the device has given back, each once; returns how many. */
G_GNUC_UNUSED
static unsigned packed_collect(Packed *packed)
{
    for (;;) {
        uint64_t desc = packed->vq->desc + packed->next_used * 16;
        uint16_t flags = qtest_readw(packed->qts, desc + 14), id;

        if (!(flags & DESC_AVAIL) == packed->used_wrap
            || !(flags & DESC_USED) == packed->used_wrap) {
            return packed->used;
        }
        id = qtest_readw(packed->qts, desc + 12);
        g_assert_cmpint(id, <, packed->vq->size);
        g_assert_cmpint(packed->slots[id], >, 0);
        packed_step(packed, &packed->next_used, &packed->used_wrap,
                    packed->slots[id]);
        packed->taken -= packed->slots[id];
        packed->slots[id] = 0;
        packed->order[packed->used++ % packed->vq->size] = id;
    }
}

#endif
