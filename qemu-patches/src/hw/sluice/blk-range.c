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
 * Discard. A host gives a piece back at a cost that hardly depends on its size: from
 * DISCARD_BYTES_MAX on, all pieces are charged alike. Charged nothing, an fstrim would
 * keep a disk busy without a byte that anyone could limit. Charged in full, it would take
 * hours under a limit.
 *
 * Neither tells the cost model (sluice/cost.h) the time of a read or write of a size. The
 * header, which names the sectors, is read from the guest once.
 *
 * Parts end where a multiple of PART_BYTES_MAX does, so that an image with clusters of up
 * to that size can mark each as zero instead of writing it.
 *
 * The next part goes the way of requests that were held, whether or not it must wait, and
 * shares their rules in a drained section, when the virtqueue moves to another thread and
 * when the machine stops.
 *
 * A part that is done after its queue was dropped (reset, unplug) is the last. It is
 * answered with an error, since the rest is not done, if there still is a ring for that.
 */
#include "qemu/osdep.h"
#include "blk-internal.h"
#include "qemu/iov.h"
#include "qemu/units.h"
#include "system/block-backend.h"

/* The largest cluster of a qcow2 image, and not much more than Linux puts in a write: shares
 * stay nearly as exact. */
#define PART_BYTES_MAX          (2 * MiB)
/* Of a discard: as a large write of a guest. */
#define DISCARD_BYTES_MAX       (256 * KiB)

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

/* The next part of the bytes left, and the bytes after it. */
static uint32_t next_part(SluiceBlkRequest *request, uint32_t left_bytes)
{
    SluiceBlkRange *range = &request->range;
    uint64_t first_byte = range->first_byte + request->done_bytes;

    range->part_bytes = MIN(left_bytes,
                            PART_BYTES_MAX - first_byte % PART_BYTES_MAX);
    range->left_bytes = left_bytes - range->part_bytes;
    return range->part_bytes;
}

bool sluice_blk_admit_zeroes(VirtIOBlock *s, VirtIOBlockReq *req,
                             uint32_t ioprio, uint64_t *sector, int *bytes)
{
    SluiceBlkRequest *request = &req->sluice;
    uint64_t first_sector = *sector + (request->done_bytes >> BDRV_SECTOR_BITS);
    uint32_t part_bytes;

    request->range.first_byte = *sector << BDRV_SECTOR_BITS;
    request->range.ioprio = ioprio;
    part_bytes = next_part(request, *bytes - request->done_bytes);
    if (!sluice_blk_judge(s, req, true, ioprio, part_bytes,
                          shaper_request_now_ns())) {
        return false;
    }
    *sector = first_sector;
    *bytes = part_bytes;
    return true;
}

bool sluice_blk_admit_discard(VirtIOBlock *s, VirtIOBlockReq *req,
                              uint32_t ioprio, uint64_t bytes)
{
    return sluice_blk_judge(s, req, true, ioprio,
                            MIN(bytes, DISCARD_BYTES_MAX),
                            shaper_request_now_ns());
}

bool sluice_blk_next_part(VirtIOBlock *s, VirtIOBlockReq *req)
{
    SluiceBlkRequest *request = &req->sluice;
    SluiceBlkRange *range = &request->range;

    if (!range->left_bytes) {
        return false;
    }
    request->done_bytes += range->part_bytes;
    block_acct_done(blk_get_stats(s->blk), &req->acct);
    if (range->epoch != qatomic_read(&sluice_blk_queue_of(s, req)->epoch)) {
        virtio_blk_req_complete(req, VIRTIO_BLK_S_IOERR);
        g_free(req);
        return true;
    }
    sluice_blk_done(request);
    sluice_blk_submit_part(s, req, range->ioprio,
                           next_part(request, range->left_bytes));
    return true;
}
