/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-blk: requests that name sectors and have no payload.
 *
 * Write-zeroes. Where the host's storage has no command for it, its kernel or QEMU
 * writes the zeroes, up to 2 GiB for one request: so it is charged as a write of as many
 * bytes, as QEMU's own throttling does. Were it charged at once, the debt would stop all
 * under the same ceiling or group for as long as 2 GiB take. So it is done in parts, each
 * judged like a write of that size and in its turn, and the guest is answered when the
 * last is done. Nothing is promised of a request that is not answered: after a stop it
 * goes on with the next part, after a migration it begins anew.
 *
 * Discard. What it costs the host does not depend on how much it names: it is one
 * operation, of the least bytes that its class charges.
 *
 * Neither tells the cost model (sluice/cost.h) what a read or write of a size takes. The
 * header, which says which sectors, is read from the guest once.
 *
 * A part that is done while its queue is dropped (reset, unplug) is the last: a request
 * may not be answered to a ring that has gone.
 */
#include "qemu/osdep.h"
#include "blk-internal.h"
#include "qemu/iov.h"
#include "qemu/units.h"
#include "system/block-backend.h"

/* As much as Linux puts in a write: shares stay exact, and the host is not asked more
 * often than by writes. */
#define PART_BYTES_MAX          (1 * MiB)

size_t sluice_blk_read_range(VirtIOBlockReq *req, const struct iovec *iov,
                             unsigned count,
                             struct virtio_blk_discard_write_zeroes *header)
{
    SluiceBlkRequest *request = &req->sluice;
    SluiceBlk *sluice = req->dev->sluice;
    size_t size;

    if (request->is_range && sluice_blk_is_known(request)) {
        *header = request->range.header;
        return sizeof(*header);
    }
    size = iov_to_buf(iov, count, 0, header, sizeof(*header));
    if (sluice) {
        request->is_range = true;
        request->range = (SluiceBlkRange){
            .header = *header,
            .epoch = qatomic_read(&sluice_blk_queue_of(req->dev, req)->epoch),
        };
    }
    return size;
}

bool sluice_blk_admit_zeroes(VirtIOBlock *s, VirtIOBlockReq *req,
                             uint32_t ioprio, uint64_t *sector, int *bytes)
{
    SluiceBlkRange *range = &req->sluice.range;
    uint32_t done_bytes = req->sluice.done_bytes;
    uint32_t rest_bytes = *bytes - done_bytes;
    uint32_t part_bytes = MIN(rest_bytes, PART_BYTES_MAX);

    range->part_bytes = part_bytes;
    range->left_bytes = rest_bytes - part_bytes;
    if (!sluice_blk_judge(s, req, true, ioprio, part_bytes,
                          shaper_request_now_ns())) {
        return false;
    }
    *sector += done_bytes >> BDRV_SECTOR_BITS;
    *bytes = part_bytes;
    return true;
}

bool sluice_blk_admit_discard(VirtIOBlock *s, VirtIOBlockReq *req,
                              uint32_t ioprio)
{
    return sluice_blk_judge(s, req, true, ioprio, 0, shaper_request_now_ns());
}

bool sluice_blk_next_part(VirtIOBlock *s, VirtIOBlockReq *req)
{
    SluiceBlkRequest *request = &req->sluice;

    if (!request->range.left_bytes) {
        return false;
    }
    request->done_bytes += request->range.part_bytes;
    sluice_blk_done(request);
    block_acct_done(blk_get_stats(s->blk), &req->acct);
    if (request->range.epoch != qatomic_read(&sluice_blk_queue_of(s, req)->epoch)) {
        sluice_blk_forget(req);
        return true;
    }
    sluice_blk_uncut(req);
    req->next = NULL;
    /* Paired with dec in the restart function */
    blk_inc_in_flight(s->blk);
    s->sluice->restart(req);
    return true;
}
