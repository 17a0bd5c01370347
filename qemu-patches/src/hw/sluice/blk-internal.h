/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shaping in virtio-blk: shared by blk.c and blk-range.c. */
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
    bool closing;               /* atomic: it is being reset */
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

/* True: the device goes on with the request. False: it is held, or kept in s->rq. */
bool sluice_blk_judge(VirtIOBlock *s, VirtIOBlockReq *req, bool is_write,
                      uint32_t ioprio, uint64_t bytes, uint64_t now_ns);
/* The next part of a write-zeroes, whose header is known. It is not the caller's any more. */
void sluice_blk_submit_part(VirtIOBlock *s, VirtIOBlockReq *req,
                            uint32_t ioprio, uint32_t bytes);

#endif
