/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shaping in virtio-blk: what blk.c and blk-range.c share. */
#ifndef HW_SLUICE_BLK_INTERNAL_H
#define HW_SLUICE_BLK_INTERNAL_H

#include "hw/sluice/blk.h"
#include "hw/virtio/virtio-blk.h"

typedef struct SluiceBlkQueue {
    ShaperClient client;
    VirtIOBlock *s;
    unsigned index;
    uint32_t epoch;             /* atomic: another one when its requests were dropped */
    bool scheduled;             /* atomic: its bottom half is to run */
} SluiceBlkQueue;

struct SluiceBlk {
    QEMUBHFunc *restart;
    bool drained;               /* atomic */
    bool paused;                /* s->rq_lock */
    ShaperCosts costs;
    SluiceBlkQueue queues[];
};

static inline SluiceBlkQueue *sluice_blk_queue_of(VirtIOBlock *s,
                                                  const VirtIOBlockReq *req)
{
    return &s->sluice->queues[virtio_get_queue_index(req->vq)];
}

/*
 * Parsing cuts header and status off a request's descriptors: makes them whole again, so
 * that it can be parsed anew. Not when it enters the shaper: from then on another thread
 * may have it.
 */
void sluice_blk_uncut(VirtIOBlockReq *req);
/* True: the device goes on with the request. False: it is held, or kept in s->rq. */
bool sluice_blk_judge(VirtIOBlock *s, VirtIOBlockReq *req, bool is_write,
                      uint32_t ioprio, uint64_t bytes, uint64_t now_ns);
/* A request that went with its queue. */
void sluice_blk_forget(VirtIOBlockReq *req);

#endif
