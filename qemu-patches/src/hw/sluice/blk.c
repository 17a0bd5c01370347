/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-blk.
 *
 * Scope. Reads, writes and zone appends are shaped by the bytes of their
 * payload; write-zeroes and discard, see blk-range.c. Flush, zone management and
 * identification pass. A request that the device refuses is not charged: its
 * descriptors can name the same memory over and over, and 4 GiB that are never
 * moved would be paid for by all of a group.
 *
 * A held request keeps its descriptors, so the guest waits as for a slow disk.
 * When it may go on it is parsed again, but from the copy of its header that
 * it was judged by: a guest that rewrites the header meanwhile gains nothing.
 *
 * Every virtqueue is a client of the shaper. The shaper announces ready
 * requests in the thread that released them; from there a bottom half in the virtqueue's
 * AioContext submits them together, so that neighbours are merged as usual.
 *
 * Stop. When the VM stops, held requests move to the device's list of requests
 * to restart: migration saves that list, and "cont" parses it anew, on either
 * host. From the pause to the resume requests that an I/O thread still finds
 * in the ring join them. s->rq is newest first, as the restart expects.
 *
 * Drain. Within a drained section ready requests wait for its end. A scheduled
 * bottom half counts as I/O in flight, so that a drain waits for it, and no
 * bottom half is left when the device goes or its ioeventfd stops.
 *
 * VIRTIO_F_IN_ORDER is not offered: a held request would keep all behind it.
 */
#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/aio-wait.h"
#include "blk-internal.h"
#include "qemu/bswap.h"
#include "qemu/defer-call.h"
#include "qemu/iov.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "sluice/classify.h"
#include "system/block-backend.h"
#include "trace.h"

static const ShaperResource resources[] = {
    SHAPER_RESOURCE_BLK_READ,
    SHAPER_RESOURCE_BLK_WRITE,
};

/*
 * Parsing cuts header and status off a request's descriptors: makes them whole again, so
 * that it can be parsed anew. Not when it enters the shaper: from then on another thread
 * may have it.
 */
static void uncut(VirtIOBlockReq *req)
{
    iov_discard_undo(&req->inhdr_undo);
    iov_discard_undo(&req->outhdr_undo);
}

/* The request that has left the shaper, or NULL, to be parsed again. */
static VirtIOBlockReq *returned(ShaperRequest *request)
{
    VirtIOBlockReq *req;

    if (!request) {
        return NULL;
    }
    req = container_of(request, VirtIOBlockReq, sluice.shaper);
    uncut(req);
    return req;
}

/* Release */

static VirtIOBlockReq *take_ready(SluiceBlkQueue *queue)
{
    VirtIOBlockReq *first = NULL, **last = &first;

    for (unsigned i = 0; i < ARRAY_SIZE(resources); i++) {
        VirtIOBlockReq *req;

        while ((req = returned(shaper_client_take(&queue->client,
                                                  resources[i])))) {
            req->next = NULL;
            *last = req;
            last = &req->next;
        }
    }
    return first;
}

/* Where the virtqueue is processed, which changes with its ioeventfd. */
static AioContext *queue_context(SluiceBlkQueue *queue)
{
    VirtIOBlock *s = queue->s;

    return s->ioeventfd_started && !s->ioeventfd_disabled
           ? s->vq_aio_context[queue->index] : qemu_get_aio_context();
}

static void submit_ready_bh(void *opaque);

/* Ready requests stay: until the end of a drained section, or to be dropped. */
static bool is_shut(const SluiceBlkQueue *queue)
{
    return qatomic_read(&queue->s->sluice->drained)
           || qatomic_read(&queue->closing);
}

static void schedule_queue(SluiceBlkQueue *queue)
{
    VirtIOBlock *s = queue->s;

    if (is_shut(queue)
        || qatomic_xchg(&queue->scheduled, true)) {
        return;
    }
    blk_inc_in_flight(s->blk);
    aio_bh_schedule_oneshot(queue_context(queue), submit_ready_bh, queue);
}

static void submit_ready_bh(void *opaque)
{
    SluiceBlkQueue *queue = opaque;
    VirtIOBlock *s = queue->s;
    VirtIOBlockReq *first = NULL;

    qatomic_set_mb(&queue->scheduled, false);
    if (qemu_get_current_aio_context() != queue_context(queue)) {
        /* The virtqueue has moved since; its new thread must do it. */
        schedule_queue(queue);
    } else if (!is_shut(queue)) {
        first = take_ready(queue);
    }
    /* Paired with inc in schedule_queue(); the restart function does it too */
    if (first) {
        defer_call_begin();
        s->sluice->restart(first);
        defer_call_end();
    } else {
        blk_dec_in_flight(s->blk);
    }
}

static void queue_ready(ShaperClient *client)
{
    schedule_queue(container_of(client, SluiceBlkQueue, client));
}

void sluice_blk_set_drained(VirtIOBlock *s, bool drained)
{
    qatomic_set_mb(&s->sluice->drained, drained);
    if (drained) {
        /* Another thread that has not seen it yet schedules nothing after this. */
        for (unsigned i = 0; i < s->conf.num_queues; i++) {
            shaper_client_quiesce(&s->sluice->queues[i].client);
        }
        return;
    }
    for (unsigned i = 0; i < s->conf.num_queues; i++) {
        SluiceBlkQueue *queue = &s->sluice->queues[i];

        for (unsigned j = 0; j < ARRAY_SIZE(resources); j++) {
            if (shaper_client_has_ready(&queue->client, resources[j])) {
                schedule_queue(queue);
            }
        }
    }
}

/* Admission */

/* False if the pause is over. */
static bool keep_for_restart(VirtIOBlock *s, VirtIOBlockReq *req)
{
    QEMU_LOCK_GUARD(&s->rq_lock);

    if (!s->sluice->paused) {
        return false;
    }
    uncut(req);
    req->next = s->rq;
    s->rq = req;
    return true;
}

/* The time that the block layer has just noted for its accounts, which under qtest may be
 * of another clock: they settle for one when they begin, maybe before that is known. */
static uint64_t noted_now_ns(const VirtIOBlockReq *req)
{
    return unlikely(qtest_enabled()) ? shaper_request_now_ns()
                                     : req->acct.start_time_ns;
}

static unsigned tag_of(VirtIOBlockReq *req, uint32_t ioprio)
{
    unsigned tag = sluice_tag_of_ioprio(ioprio);

    req->sluice.shaper.untagged = tag == SLUICE_TAG_DEFAULT;
    return tag;
}

/*
 * Bytes of one disk that follow each other have positions that do; those of another disk of
 * the VM are elsewhere. Of a discard it says nothing, and of an old guest of the other byte
 * order neither: their requests are then of no reader.
 */
static uint64_t position_of(const VirtIOBlock *s, const VirtIOBlockReq *req)
{
    return ((uint64_t)(uintptr_t)s << 32)
           + (ldq_le_p(&req->out.sector) << BDRV_SECTOR_BITS);
}

bool sluice_blk_judge(VirtIOBlock *s, VirtIOBlockReq *req, bool is_write,
                      uint32_t ioprio, uint64_t bytes, uint64_t now_ns)
{
    SluiceBlkQueue *queue = sluice_blk_queue_of(s, req);
    ShaperVerdict verdict;

    /* The block layer refuses writes to a disk that is read-only. */
    if (sluice_blk_admitted(&req->sluice)
        || (is_write && !blk_is_writable(s->blk))) {
        return true;
    }
    req->sluice.shaper.node.position = position_of(s, req);
    do {
        verdict = shaper_submit(&queue->client, &req->sluice.shaper,
                                is_write ? SHAPER_RESOURCE_BLK_WRITE
                                         : SHAPER_RESOURCE_BLK_READ,
                                tag_of(req, ioprio),
                                MIN(bytes, UINT32_MAX), 0, now_ns);
    } while (verdict == SHAPER_PAUSED && !keep_for_restart(s, req));
    return verdict == SHAPER_PASS;
}

void sluice_blk_submit_part(VirtIOBlock *s, VirtIOBlockReq *req,
                            uint32_t ioprio, uint32_t bytes)
{
    SluiceBlkQueue *queue = sluice_blk_queue_of(s, req);
    ShaperVerdict verdict;

    do {
        verdict = shaper_submit_as_ready(&queue->client, &req->sluice.shaper,
                                         SHAPER_RESOURCE_BLK_WRITE,
                                         tag_of(req, ioprio), bytes,
                                         shaper_request_now_ns());
    } while (verdict == SHAPER_PAUSED && !keep_for_restart(s, req));
    /* Another thread may have the request by now. */
    if (verdict == SHAPER_PASS) {
        schedule_queue(queue);
    }
}

bool sluice_blk_admit(VirtIOBlock *s, VirtIOBlockReq *req, bool is_write,
                      uint32_t ioprio, uint64_t bytes)
{
    return sluice_blk_judge(s, req, is_write, ioprio, bytes,
                            noted_now_ns(req));
}

/* Stop, reset, unplug */

void sluice_blk_pause(VirtIOBlock *s)
{
    trace_sluice_blk_pause(s, true);
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        s->sluice->paused = true;
    }
    for (unsigned i = 0; i < s->conf.num_queues; i++) {
        ShaperClient *client = &s->sluice->queues[i].client;

        shaper_client_set_paused(client, true);
        for (unsigned j = 0; j < ARRAY_SIZE(resources); j++) {
            VirtIOBlockReq *req;

            while ((req = returned(shaper_client_withdraw(client,
                                                          resources[j])))) {
                QEMU_LOCK_GUARD(&s->rq_lock);
                req->next = s->rq;
                s->rq = req;
            }
        }
    }
}

/* Loading turns the list round; held requests must go on in their order. */
void sluice_blk_loaded(VirtIOBlock *s)
{
    QEMU_LOCK_GUARD(&s->rq_lock);
    VirtIOBlockReq *rest = s->rq;

    s->rq = NULL;
    while (rest) {
        VirtIOBlockReq *req = rest;

        rest = req->next;
        req->next = s->rq;
        s->rq = req;
    }
}

void sluice_blk_resume(VirtIOBlock *s)
{
    trace_sluice_blk_pause(s, false);
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        s->sluice->paused = false;
    }
    for (unsigned i = 0; i < s->conf.num_queues; i++) {
        shaper_client_set_paused(&s->sluice->queues[i].client, false);
    }
}

static void drop_queue(SluiceBlkQueue *queue)
{
    qatomic_set(&queue->epoch, queue->epoch + 1);
    for (unsigned i = 0; i < ARRAY_SIZE(resources); i++) {
        VirtIOBlockReq *req;

        while ((req = returned(shaper_client_withdraw(&queue->client,
                                                      resources[i])))) {
            shaper_forget(&req->sluice.shaper);
            virtqueue_detach_element(req->vq, &req->elem, 0);
            g_free(req);
        }
    }
    shaper_client_quiesce(&queue->client);
}

/* The driver of a queue forgets its ring. */
static void drop_restarts(VirtIOBlock *s, VirtQueue *vq)
{
    QEMU_LOCK_GUARD(&s->rq_lock);

    for (VirtIOBlockReq **next = &s->rq, *req; (req = *next); ) {
        if (req->vq != vq) {
            next = &req->next;
            continue;
        }
        *next = req->next;
        shaper_forget(&req->sluice.shaper);
        virtqueue_detach_element(vq, &req->elem, 0);
        g_free(req);
    }
}

/* Requests that wait to be restarted go with the device. */
static void forget_restarts(VirtIOBlock *s)
{
    QEMU_LOCK_GUARD(&s->rq_lock);

    for (VirtIOBlockReq *req = s->rq; req; req = req->next) {
        shaper_forget(&req->sluice.shaper);
    }
}

static void drop_queues(VirtIOBlock *s)
{
    for (unsigned i = 0; i < s->conf.num_queues; i++) {
        drop_queue(&s->sluice->queues[i]);
    }
}

/*
 * Twice, since draining runs bottom halves, among them the one that takes up
 * s->rq after a stop: its requests are judged, and held, only then.
 */
void sluice_blk_drop_all(VirtIOBlock *s)
{
    drop_queues(s);
    blk_drain(s->blk);
    drop_queues(s);
    forget_restarts(s);
}

/* In the thread of the queue: no request is taken from it meanwhile. */
static void close_ring(void *opaque)
{
    SluiceBlkQueue *queue = opaque;

    qatomic_set(&queue->closing, true);
    virtio_queue_set_rings(VIRTIO_DEVICE(queue->s), queue->index, 0, 0, 0);
}

/*
 * Requests under way end first, and are not answered: their numbers may be those of
 * others in the next ring. The first drain also brings requests that a stop had put
 * aside; of those, the ones that pass within it are with the disk only afterwards,
 * hence the second (which sees them from QEMU 10.0.7 on). And a disk with errors may
 * put requests aside in either. A write-zeroes may see no drop, and then submit its
 * next part, which stays as the queue is closing: hence a drop after each drain.
 *
 * Within another's drained section nothing is done, and not waited for, that had been
 * given to the disk before: it is done after its end, as when the device is reset.
 */
void sluice_blk_reset_queue(VirtIOBlock *s, unsigned index)
{
    SluiceBlkQueue *queue;

    if (index >= s->conf.num_queues) {
        return;                         /* the guest can name any */
    }
    queue = &s->sluice->queues[index];
    aio_wait_bh_oneshot(queue_context(queue), close_ring, queue);
    drop_queue(queue);
    for (unsigned i = 0; i < 2; i++) {
        blk_drain(s->blk);
        drop_queue(queue);
    }
    drop_restarts(s, virtio_get_queue(VIRTIO_DEVICE(s), index));
    qatomic_set(&queue->closing, false);
}

/* Life cycle */

void sluice_blk_realize(VirtIOBlock *s, QEMUBHFunc *restart)
{
    unsigned count = s->conf.num_queues;

    s->sluice = g_malloc0(sizeof(SluiceBlk) + count * sizeof(SluiceBlkQueue));
    s->sluice->restart = restart;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        sluice_cost_init(&s->sluice->costs.models[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        SluiceBlkQueue *queue = &s->sluice->queues[i];

        queue->s = s;
        queue->index = i;
        shaper_client_init(&queue->client, s->shaper, DEVICE(s), queue_ready);
        queue->client.costs = &s->sluice->costs;
        shaper_client_set_queue(&queue->client, s->shaper_queues, i);
    }
}

void sluice_blk_unrealize(VirtIOBlock *s)
{
    for (unsigned i = 0; i < s->conf.num_queues; i++) {
        shaper_client_destroy(&s->sluice->queues[i].client);
    }
    g_free(s->sluice);
    s->sluice = NULL;
}
