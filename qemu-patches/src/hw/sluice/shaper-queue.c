/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The queues of frames that wait: how much of each class may, and the loss of the rest.
 *
 * Room. All queues of a resource share one pool of memory, which is divided by
 * reservation (sluice/reserve.c), so that no class takes room from another. It grows
 * when the configuration asks for more, never while frames are handled. All frames in
 * the pool count: those that are held, and released ones that their device has not yet
 * been able to hand on. A queue that is empty takes one frame of any size.
 *
 * Loss. A frame that finds no room is dropped before it costs anything. So is
 * one that asks for a new connection when its class has had its share of them:
 * its bucket lets one pass while a token is left, and only a frame that comes in is
 * charged. A queue with CoDel is looked at whenever one of its frames is
 * released. That frame has been charged and goes on; the signal drops the frame
 * behind it, so that no charge is lost, and where either of them can carry a mark
 * instead, it does.
 */
#include "qemu/osdep.h"
#include "net/net.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "shaper-internal.h"
#include "trace.h"

/* One frame of any size for each class, beyond its room. */
#define POOL_SLACK_CHUNKS   (SHAPER_CLASSES * SLUICE_POOL_PIECES_MAX)
#define POOL_ROOM_CHUNKS    (SLUICE_POOL_CHUNKS_MAX - POOL_SLACK_CHUNKS)

QEMU_BUILD_BUG_ON(SHAPER_DROP__MAX != SHAPER_PAGE_DROPS);

/* Configuration */

static uint64_t lower_rate(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : MIN(a, b);
}

static void configure_codel(ShaperQueueState *q)
{
    sluice_codel_configure(&q->codel, q->bytes_per_second, q->largest_bytes);
}

void shaper_queues_reserve(ShaperEngine *e)
{
    Shaper *shaper = e->shaper;
    SluiceQueueWish wishes[SHAPER_CLASSES];
    SluiceQueueRoom rooms[SHAPER_CLASSES];
    SluiceLimit ceiling = shaper_limit_of(shaper->ceiling, e->resource);
    uint64_t chunks = POOL_SLACK_CHUNKS;

    if (!e->pool) {
        return;
    }
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        const ShaperClassConfig *class = shaper_class_of(shaper, tag);
        const ShaperQueue *config = shaper_queue_of(class->queues, e->resource);

        wishes[tag] = (SluiceQueueWish){
            .used = shaper->classes[tag],
            .bytes_per_second = lower_rate(
                shaper_limit_of(class->limits, e->resource).bytes_per_second,
                ceiling.bytes_per_second),
            .limit_bytes = config->limit_bytes,
            .limit_frames = config->limit_packets,
        };
    }
    sluice_reserve(wishes, rooms, SHAPER_CLASSES, POOL_ROOM_CHUNKS);
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        ShaperQueueState *q = &e->queues[tag];

        chunks += sluice_room_chunks(&rooms[tag]);
        q->room = rooms[tag];
        q->bytes_per_second = wishes[tag].bytes_per_second;
        configure_codel(q);
    }
    if (!sluice_pool_grow(e->pool, chunks)) {
        warn_report("shaper '%s': no memory for %" PRIu64 " bytes of queues; "
                    "frames may be dropped earlier than configured",
                    shaper_id(shaper), chunks * SLUICE_CHUNK_BYTES);
    }
}

void shaper_queue_configure(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    const ShaperQueue *config = shaper_queue_of(
        shaper_class_of(e->shaper, tag)->queues, e->resource);
    ShaperQueueState *q = &e->queues[tag];
    bool codel_on = config->aqm == SHAPER_AQM_CODEL;

    q->ecn = config->ecn;
    if (q->codel_on != codel_on) {
        q->codel_on = codel_on;
        q->codel = (SluiceCodel){ 0 };
        configure_codel(q);
    }
    sluice_bucket_configure(&q->connections, config->connections_per_second,
                            config->burst_connections, now_ns);
}

/* Accounting */

void shaper_count_drop(ShaperEngine *e, unsigned tag, uint32_t bytes,
                       ShaperDropReason reason)
{
    ShaperPageCounters *counters = &e->counters[tag];

    counters->dropped_requests++;
    counters->dropped_bytes += bytes;
    counters->drops[reason]++;
    trace_shaper_drop(shaper_resource_name(e->resource), tag, bytes, reason);
}

static void account_buffered(ShaperEngine *e, ShaperRequest *request,
                             unsigned tag)
{
    ShaperQueueState *q = &e->queues[tag];

    request->pooled_tag = tag;
    q->buffered_frames++;
    q->buffered_bytes += request->pooled.bytes;
}

static void unaccount_buffered(ShaperEngine *e, const ShaperRequest *request)
{
    ShaperQueueState *q = &e->queues[request->pooled_tag];

    q->buffered_frames--;
    q->buffered_bytes -= request->pooled.bytes;
}

/* Coming in and leaving */

/* A guest may offer more than any network takes: that is no size of frames. */
static void see_size(ShaperQueueState *q, uint32_t bytes)
{
    bytes = MIN(bytes, NET_BUFSIZE);
    if (bytes > q->largest_bytes) {
        q->largest_bytes = bytes;
        configure_codel(q);
    }
}

/* Would it have to wait, and find no room? */
static bool finds_no_room(ShaperEngine *e, unsigned tag, uint32_t buffer_bytes)
{
    const ShaperQueueState *q = &e->queues[tag];

    return sluice_engine_stats(e->engine, tag)->backlog_requests > 0
           && q->buffered_frames > 0
           && (q->buffered_frames >= q->room.frames
               || q->buffered_bytes + buffer_bytes > q->room.bytes);
}

bool shaper_queue_admits(ShaperEngine *e, const ShaperRequest *request,
                         unsigned tag, uint32_t buffer_bytes, uint64_t now_ns,
                         ShaperDropReason *reason)
{
    if (request->paid) {
        return true;
    }
    if (request->opens_connection
        && !sluice_bucket_conforms(&e->queues[tag].connections, now_ns)) {
        *reason = SHAPER_DROP_CONNECTION;
        return false;
    }
    if (buffer_bytes && finds_no_room(e, tag, buffer_bytes)) {
        *reason = SHAPER_DROP_BACKLOG;
        return false;
    }
    return true;
}

void shaper_queue_enter(ShaperEngine *e, ShaperRequest *request, unsigned tag,
                        uint32_t bytes, uint64_t now_ns)
{
    see_size(&e->queues[tag], bytes);
    if (request->opens_connection) {
        sluice_bucket_charge(&e->queues[tag].connections, 1, now_ns);
        request->opens_connection = false;      /* once, also if another class inherits it */
    }
    if (request->pooled.bytes && request->pooled_tag != tag) {
        unaccount_buffered(e, request);
        account_buffered(e, request, tag);
    }
}

ShaperRequest *shaper_queue_leave(ShaperEngine *e, ShaperRequest *request,
                                  uint64_t waited_ns, uint64_t now_ns)
{
    unsigned tag = request->node.class_index;
    const SluiceClassStats *stats = sluice_engine_stats(e->engine, tag);
    ShaperQueueState *q = &e->queues[tag];
    ShaperRequest *behind;
    SluiceNode *node;

    if (!q->codel_on
        || !sluice_codel_dequeue(&q->codel, waited_ns, stats->backlog_bytes,
                                 q->largest_bytes, now_ns)) {
        return NULL;
    }
    node = sluice_engine_first_held(e->engine, tag);
    if (!node) {
        return NULL;
    }
    behind = container_of(node, ShaperRequest, node);
    if (q->ecn && (request->ecn_capable || behind->ecn_capable)) {
        (request->ecn_capable ? request : behind)->signal = SHAPER_SIGNAL_MARK;
        return NULL;
    }
    return behind;
}

/* Buffers */

/* Caller holds the lock. */
static bool take_buffer(ShaperEngine *e, ShaperRequest *request, size_t bytes)
{
    assert(!request->pooled.bytes);
    if (!sluice_pool_take(e->pool, bytes, &request->pooled)) {
        return false;
    }
    account_buffered(e, request, request->node.class_index);
    return true;
}

bool shaper_buffer_take(ShaperRequest *request, size_t bytes)
{
    ShaperEngine *e = shaper_engine_of(request);
    SLUICE_LOCK_GUARD(&e->lock);

    return take_buffer(e, request, bytes);
}

bool shaper_buffer_load(ShaperRequest *request, size_t bytes)
{
    ShaperEngine *e = shaper_engine_of(request);
    SLUICE_LOCK_GUARD(&e->lock);

    /* The classes, and their room, may come after the frames. */
    return bytes <= SLUICE_POOL_FRAME_BYTES_MAX
           && sluice_pool_grow(e->pool, sluice_pool_chunks_used(e->pool)
                                        + SLUICE_POOL_PIECES_MAX)
           && take_buffer(e, request, bytes);
}

void shaper_buffer_give(ShaperRequest *request)
{
    ShaperEngine *e;

    if (!request->pooled.bytes) {
        return;
    }
    e = shaper_engine_of(request);
    WITH_SLUICE_LOCK(&e->lock) {
        unaccount_buffered(e, request);
        sluice_pool_give(e->pool, &request->pooled);
    }
}

unsigned shaper_buffer_pieces(const ShaperRequest *request,
                              struct iovec pieces[SLUICE_POOL_PIECES_MAX])
{
    return sluice_pool_pieces(shaper_engine_of(request)->pool, request->pooled,
                              pieces);
}

uint8_t *shaper_buffer_head(const ShaperRequest *request, size_t *bytes)
{
    return sluice_pool_head(shaper_engine_of(request)->pool, request->pooled, bytes);
}
