/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shaping in virtio-net from inside: shared by the net*.c files. BQL. */
#ifndef HW_SLUICE_NET_INTERNAL_H
#define HW_SLUICE_NET_INTERNAL_H

#include "hw/sluice/net.h"
#include "hw/virtio/virtio-net.h"
#include "qemu/notify.h"
#include "sluice/classify.h"
#include "sluice/portmap.h"

/*
 * A frame that the guest sends. Until its frame is in a buffer (request.pooled)
 * it has descriptors; from then on they are the guest's again.
 */
typedef struct SluiceNetTx {
    VirtQueueElement elem;      /* first: the device frees it as an element */
    ShaperRequest request;
    size_t header_bytes;        /* of the virtio header, when it was judged */
    bool resumed;               /* it was held before a stop, or a migration */
    QSIMPLEQ_ENTRY(SluiceNetTx) next;
} SluiceNetTx;

/* A frame that the guest is to receive, in a buffer. */
typedef struct SluiceNetRx {
    ShaperRequest request;
    size_t header_bytes;        /* of the virtio header that it came with */
    QSIMPLEQ_ENTRY(SluiceNetRx) next;   /* while it is spare */
} SluiceNetRx;

typedef struct SluiceNetPair {
    ShaperClient client;
    SluiceNet *net;
    unsigned index;
    /* Transmit */
    QSIMPLEQ_HEAD(, SluiceNetTx) stopped;   /* to be judged before the ring */
    SluiceNetTx *bare;          /* for the next frame that waits in a buffer */
    bool notify;                /* descriptors went back */
    bool closed;                /* nothing is read: its frames are being purged */
    QEMUBH *again;              /* reads on in the ring */
    unsigned budget;            /* elements until then */
    struct iovec tx_pieces[SLUICE_POOL_PIECES_MAX];     /* of elem.out_sg */
    /* Receive */
    SluiceNetRx *waiting;       /* admitted, but the guest has no buffers */
    QSIMPLEQ_HEAD(, SluiceNetRx) spare;
} SluiceNetPair;

struct SluiceNet {
    VirtIONet *n;
    VMChangeStateEntry *change;
    NotifierWithReturn migration;
    unsigned default_tag;       /* of shaper-class, as of: */
    uint64_t default_generation;
    SluiceFragments received;   /* first fragments */
    SluiceFragments sent;
    QEMUBH *retry;              /* tries the received frames that wait again */
    unsigned waiting_pairs;     /* how many have one */
    uint8_t *scratch;           /* for a received frame in one piece */
    struct iovec rx_pieces[SLUICE_POOL_PIECES_MAX];     /* within one call */
    unsigned count;
    SluiceNetPair pairs[];
};

static inline SluiceNetPair *sluice_net_tx_pair(VirtIONet *n, VirtQueue *vq)
{
    return &n->sluice->pairs[virtio_get_queue_index(vq) / 2];
}

/* net-frame.c */
/* The class of a frame; fills in the fields of the request that the shaper reads. */
unsigned sluice_net_classify(SluiceNet *net, ShaperResource resource,
                             const uint8_t *frame, size_t length,
                             ShaperRequest *request);
/* Marks the frame in the request's buffer, behind a header of that length. */
void sluice_net_mark(ShaperRequest *request, size_t header_bytes);

/* net-tx.c */
void sluice_net_tx_init(SluiceNetPair *pair);
void sluice_net_tx_destroy(SluiceNetPair *pair);
void sluice_net_tx_kick(SluiceNetPair *pair);
/* Takes every frame out of the shaper into pair->stopped, oldest first. */
void sluice_net_tx_withdraw(SluiceNetPair *pair);
/* A frame that arrived with a migration; false if there is no memory. */
SluiceNetTx *sluice_net_tx_load(SluiceNetPair *pair, size_t bytes);

/* net-rx.c */
void sluice_net_rx_init(SluiceNetPair *pair);
void sluice_net_rx_destroy(SluiceNetPair *pair);
/* Forgets the frames that wait, and counts them as dropped. */
void sluice_net_rx_drop(SluiceNetPair *pair);
/* A bottom half of the SluiceNet. */
void sluice_net_rx_retry(void *opaque);

#endif
