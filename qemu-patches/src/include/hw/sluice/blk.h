/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-blk: what hw/block/virtio-blk.c calls, for a device with a
 * shaper only (s->sluice is set).
 */
#ifndef HW_SLUICE_BLK_H
#define HW_SLUICE_BLK_H

#include "block/aio.h"
#include "hw/sluice/shaper.h"

struct VirtIOBlock;
struct VirtIOBlockReq;
struct VirtQueue;
typedef struct SluiceBlk SluiceBlk;

/*
 * BQL held. `restart` handles a list of requests anew and then calls
 * blk_dec_in_flight() once, as after a stop.
 */
void sluice_blk_realize(struct VirtIOBlock *s, QEMUBHFunc *restart);
/* After sluice_blk_drop_all() and a drain. */
void sluice_blk_unrealize(struct VirtIOBlock *s);
/* Drops held requests of a queue, or of all. */
void sluice_blk_drop(struct VirtIOBlock *s, struct VirtQueue *vq);
/* Reset, unplug: drops what is held, and what a drain brings. What is scheduled
 * to look at it is gone after another drain. */
void sluice_blk_drop_all(struct VirtIOBlock *s);
/* Moves held requests to s->rq, where migration and restart find them. */
void sluice_blk_pause(struct VirtIOBlock *s);
/* After migration has filled s->rq. */
void sluice_blk_loaded(struct VirtIOBlock *s);
/* Before s->rq is taken for a restart. */
void sluice_blk_resume(struct VirtIOBlock *s);
/* Begin and end of a drained section: nothing is submitted within. */
void sluice_blk_set_drained(struct VirtIOBlock *s, bool drained);

/*
 * Any thread. For a request that the device does: its sectors are in range, and
 * block_acct_start() has just noted the time, which is not read twice. False: the
 * request is held, or kept in s->rq, and no longer the caller's. True: go on; a request
 * that was held before is not charged again.
 */
bool sluice_blk_admit(struct VirtIOBlock *s, struct VirtIOBlockReq *req,
                      bool is_write, uint32_t ioprio, uint64_t bytes);

static inline bool sluice_blk_admitted(const ShaperRequest *request)
{
    return request->state == SHAPER_REQUEST_ADMITTED;
}

/* The request leaves the device below, finished or to be tried again. */
static inline void sluice_blk_done(ShaperRequest *request)
{
    if (sluice_blk_admitted(request)) {
        shaper_complete(request);
    }
}

#endif
