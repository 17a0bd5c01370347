/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-blk: the calls of hw/block/virtio-blk.c, for a device with a
 * shaper only (s->sluice is set). Without one the inline functions do nothing.
 */
#ifndef HW_SLUICE_BLK_H
#define HW_SLUICE_BLK_H

#include "block/aio.h"
#include "hw/sluice/shaper.h"
#include "standard-headers/linux/virtio_blk.h"

struct VirtIOBlock;
struct VirtIOBlockReq;
typedef struct SluiceBlk SluiceBlk;

/* State of a request without payload that names sectors: write-zeroes, discard. */
typedef struct SluiceBlkRange {
    struct virtio_blk_discard_write_zeroes header;      /* as it was first read */
    uint64_t first_byte;        /* of the disk */
    uint32_t ioprio;
    uint32_t part_bytes;        /* the part that the device does now, */
    uint32_t left_bytes;        /* and the bytes after it */
    uint32_t epoch;             /* of its queue, when its first part was judged */
} SluiceBlkRange;

/* The two before the shaper's lie with those of its fields that are used first. */
typedef struct SluiceBlkRequest {
    uint32_t done_bytes;        /* of a write-zeroes, in earlier parts */
    bool is_range;
    ShaperRequest shaper;
    SluiceBlkRange range;       /* of is_range */
} SluiceBlkRequest;

/*
 * BQL held. `restart` handles a list of requests anew and then calls
 * blk_dec_in_flight() once, as after a stop.
 */
void sluice_blk_realize(struct VirtIOBlock *s, QEMUBHFunc *restart);
/* After sluice_blk_drop_all() and a drain. */
void sluice_blk_unrealize(struct VirtIOBlock *s);
/* A queue is reset: nothing of it is held or under way any more, as soon as the disk has
 * done what it has begun. */
void sluice_blk_reset_queue(struct VirtIOBlock *s, unsigned index);
/* Reset, unplug: drops held requests, and those that a drain brings. A bottom half
 * scheduled for them is gone after another drain. */
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

/*
 * As sluice_blk_admit(), for write-zeroes, which is charged in full and done in parts:
 * `*sector` and `*bytes` become those of its next part. And for discard, which is
 * charged by the piece.
 */
bool sluice_blk_admit_zeroes(struct VirtIOBlock *s, struct VirtIOBlockReq *req,
                             uint32_t ioprio, uint64_t *sector, int *bytes);
bool sluice_blk_admit_discard(struct VirtIOBlock *s, struct VirtIOBlockReq *req,
                              uint32_t ioprio, uint64_t bytes);
/* In place of iov_to_buf() for the header of either: from the second time on, the header
 * as it was read the first time. */
size_t sluice_blk_read_range(struct VirtIOBlockReq *req, const struct iovec *iov,
                             unsigned count,
                             struct virtio_blk_discard_write_zeroes *header);
/* A part is done. True: the request goes on with the next, or has gone with its queue,
 * and is no longer the caller's. */
bool sluice_blk_next_part(struct VirtIOBlock *s, struct VirtIOBlockReq *req);

static inline void sluice_blk_request_init(SluiceBlkRequest *request)
{
    request->done_bytes = 0;
    request->is_range = false;
    shaper_request_init(&request->shaper);
}

static inline bool sluice_blk_admitted(const SluiceBlkRequest *request)
{
    return request->shaper.state == SHAPER_REQUEST_ADMITTED;
}

/* It was judged by its header, which is not to be read again. */
static inline bool sluice_blk_is_known(const SluiceBlkRequest *request)
{
    return sluice_blk_admitted(request) || request->done_bytes;
}

/* The request leaves the device below, finished or to be tried again. Or it goes nowhere:
 * its device has broken, or the guest has made of it a request that is not judged. Its
 * charge is given back. */
static inline void sluice_blk_done(SluiceBlkRequest *request)
{
    if (sluice_blk_admitted(request)) {
        shaper_complete(&request->shaper, !request->is_range);
    } else if (unlikely(request->shaper.paid)) {
        shaper_forget(&request->shaper);
    }
}

#endif
