/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of the disks, from outside: which classes are streams, how these wait for the
 * device, and the commands. The gate itself is a stage of the engine (sluice/gate.c), one for
 * reads and one for writes, each of all disks of the shaper.
 *
 * A device's gate, for several VMs, is in shaper-gate-page.c.
 *
 * Watching. While there is a gate, a stream's requests are listed from when the device gets
 * them to when it has done them. The sums are exact: they move with each request that
 * comes or goes, and when they are shown. Others are not listed, and without a gate no request
 * is: each costs one look at a mask.
 *
 * The configuration is guarded by the BQL, all of an engine by its lock.
 */
#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-sluice.h"
#include "qapi/qapi-visit-sluice.h"
#include "shaper-internal.h"
#include "trace.h"

#define TARGET_MIN_NS       1000
#define WINDOW_PARTS        1024                /* sluice_engine_shrink_gate() */
#define WINDOW_PERCENT_MAX  100

/* Streams */

static void stream_moves(ShaperGateStream *stream, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns > stream->moved_ns ? now_ns - stream->moved_ns : 0;

    stream->sums.busy_ns += stream->count * passed_ns;
    stream->sums.outstanding_ns += stream->count ? passed_ns : 0;
    stream->moved_ns += passed_ns;
}

/* Caller holds the lock of the engine for reads. All gates of the VM wait for a read that is
 * old; those of other engines are told without their lock, and look soon. */
static void note_oldest(ShaperEngine *e, uint16_t streams)
{
    uint64_t oldest_ns = 0;

    if (e->resource != SHAPER_RESOURCE_BLK_READ) {
        return;
    }
    for (; streams; streams &= streams - 1) {
        ShaperRequest *first = QTAILQ_FIRST(&e->stream[ctz32(streams)].in_flight);

        if (first && (!oldest_ns || first->admitted_ns < oldest_ns)) {
            oldest_ns = MAX(first->admitted_ns, 1);
        }
    }
    if (oldest_ns != e->oldest_ns) {
        e->oldest_ns = oldest_ns;
        sluice_engine_tell_oldest(e->engine, oldest_ns);
        sluice_engine_set_oldest(
            e->shaper->engines[SHAPER_RESOURCE_BLK_WRITE].engine, oldest_ns);
    }
}

void shaper_gate_init(ShaperEngine *e)
{
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        QTAILQ_INIT(&e->stream[tag].in_flight);
    }
}

void shaper_gate_watch(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns)
{
    ShaperGateStream *stream = &e->stream[request->node.class_index];

    stream_moves(stream, now_ns);
    stream->sums.depth[MIN(stream->count, SHAPER_PAGE_DEPTHS - 1)]++;
    stream->count++;
    QTAILQ_INSERT_TAIL(&stream->in_flight, request, in_flight_entry);
    request->watched = true;
    note_oldest(e, e->streams);
}

void shaper_gate_taken(ShaperEngine *e, ShaperRequest *request)
{
    ShaperGateStream *stream = &e->stream[request->node.class_index];

    if (unlikely(request->watched)) {
        QTAILQ_REMOVE(&stream->in_flight, request, in_flight_entry);
        QTAILQ_INSERT_TAIL(&stream->in_flight, request, in_flight_entry);
        note_oldest(e, e->streams);
    }
}

static void unwatch(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns)
{
    ShaperGateStream *stream = &e->stream[request->node.class_index];

    if (request->watched) {
        stream_moves(stream, now_ns);
        stream->count--;
        QTAILQ_REMOVE(&stream->in_flight, request, in_flight_entry);
        request->watched = false;
        note_oldest(e, e->streams);
    }
}

void shaper_gate_done(ShaperEngine *e, ShaperRequest *request,
                      uint64_t service_ns, uint64_t now_ns)
{
    unwatch(e, request, now_ns);
    sluice_engine_complete(e->engine, &request->node, service_ns, now_ns);
    shaper_engine_note_event(e);
}

void shaper_gate_undone(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns)
{
    unwatch(e, request, now_ns);
    sluice_engine_leave(e->engine, &request->node, now_ns);
    shaper_engine_note_event(e);
}

/* Showing */

static void show_stream(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    ShaperGateStream *stream = &e->stream[tag];
    ShaperRequest *oldest = QTAILQ_FIRST(&stream->in_flight);

    stream_moves(stream, now_ns);
    stream->sums.oldest_ns = oldest ? oldest->admitted_ns : 0;
    shaper_page_set_stream(e->shaper->page, shaper_slot_of(e, tag),
                           &stream->sums);
}

static void show_gate(ShaperEngine *e, uint64_t now_ns)
{
    const SluiceGate *gate = sluice_engine_gate(e->engine);
    ShaperPageGate shown = {
        .target_ns = gate->target_ns,
        .window_bytes = gate->target_ns ? gate->window_bytes : 0,
        .in_flight_bytes = gate->in_flight_bytes,
        .held_times = gate->held_times,
        .held_ns = sluice_gate_held_ns(gate, now_ns),
    };

    shaper_page_set_gate(e->shaper->page, shaper_slot_of(e, SLUICE_TAG_DEFAULT),
                         &shown);
}

/* The default class is always there, and readers look at no ceiling. */
void shaper_gate_show(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    show_stream(e, tag, now_ns);
    if (tag == SLUICE_TAG_DEFAULT) {
        show_gate(e, now_ns);
    }
}

static ShaperGateState *state_info(ShaperEngine *e)
{
    ShaperGateState *info = g_new0(ShaperGateState, 1);
    SLUICE_LOCK_GUARD(&e->lock);
    const SluiceGate *gate = sluice_engine_gate(e->engine);

    info->resource = e->resource;
    info->window_bytes = gate->window_bytes;
    info->in_flight_bytes = gate->in_flight_bytes;
    info->held_times = gate->held_times;
    info->held_ns = sluice_gate_held_ns(gate, shaper_now_ns());
    info->pausing = gate->waited && gate->pausing;
    return info;
}

ShaperGateInfo *shaper_gate_info(Shaper *shaper)
{
    ShaperGateInfo *info;

    if (!shaper->gate) {
        return NULL;
    }
    info = g_new0(ShaperGateInfo, 1);
    QAPI_CLONE_MEMBERS(ShaperGate, qapi_ShaperGateInfo_base(info), shaper->gate);
    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        if (shaper_is_disk(i)) {
            QAPI_LIST_PREPEND(info->resources, state_info(&shaper->engines[i]));
        }
    }
    return info;
}

/* Configuration */

/* Bit t: the class of tag t is named. */
static uint16_t tags_of(const Shaper *shaper, const strList *names)
{
    uint16_t tags = 0;

    for (; names; names = names->next) {
        int tag = shaper_find_class(shaper->classes, names->value);

        tags |= tag < 0 ? 0 : 1u << tag;
    }
    return tags;
}

static void apply(Shaper *shaper, uint32_t window_parts)
{
    uint16_t streams = shaper->gate ? tags_of(shaper, shaper->gate->streams) : 0;
    uint64_t target_ns = shaper->gate ? shaper->gate->target_ns : 0;
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        if (!shaper_is_disk(i)) {
            continue;
        }
        WITH_SLUICE_LOCK(&e->lock) {
            bool ok = sluice_engine_set_gate(e->engine, streams, target_ns, now_ns);

            assert(ok);
            sluice_engine_shrink_gate(e->engine, window_parts);
            e->streams = streams;
            note_oldest(e, streams);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_settle(e);
    }
    trace_shaper_set_gate(shaper_id(shaper), target_ns, streams);
}

void shaper_gate_resolve(Shaper *shaper)
{
    if (shaper->gate) {
        apply(shaper, WINDOW_PARTS);
    }
}

static bool check_streams(const Shaper *shaper, const strList *names, Error **errp)
{
    uint16_t seen = 0;

    for (; names; names = names->next) {
        int tag = shaper_find_class(shaper->classes, names->value);

        if (tag < 0) {
            error_setg(errp, "streams: class '%s' does not exist; query-shapers "
                       "lists the classes of '%s'", names->value,
                       shaper_id(shaper));
            return false;
        }
        if (seen & (1u << tag)) {
            error_setg(errp, "streams: class '%s' is given twice; give it once",
                       names->value);
            return false;
        }
        seen |= 1u << tag;
    }
    return true;
}

static bool check_gate(const Shaper *shaper, int64_t target_ns, const strList *streams,
                       int64_t window_percent, Error **errp)
{
    return shaper_check_range("target-ns", target_ns, TARGET_MIN_NS,
                              SLUICE_GATE_TARGET_MAX_NS, errp)
           && shaper_check_range("window-percent", window_percent, 1,
                                 WINDOW_PERCENT_MAX, errp)
           && check_streams(shaper, streams, errp);
}

void qmp_shaper_set_gate(const char *id, bool has_target_ns, int64_t target_ns,
                         bool has_streams, strList *streams,
                         bool has_window_percent, int64_t window_percent,
                         const char *gate, Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    ShaperGatePage *page = NULL;

    if (!shaper) {
        return;
    }
    if (!has_target_ns && (has_streams || has_window_percent || gate)) {
        error_setg(errp, "%s does not go without a gate; give target-ns too",
                   has_streams ? "streams" : gate ? "gate" : "window-percent");
        return;
    }
    window_percent = has_window_percent ? window_percent : WINDOW_PERCENT_MAX;
    if (has_target_ns
        && !check_gate(shaper, target_ns, streams, window_percent, errp)) {
        return;
    }
    if (gate) {
        page = shaper_gate_page_find(gate, errp);
        if (!page) {
            return;
        }
    }
    if (!shaper_gate_page_join(shaper, page, errp)) {
        return;
    }
    g_clear_pointer(&shaper->gate, qapi_free_ShaperGate);
    if (has_target_ns) {
        shaper->gate = g_new0(ShaperGate, 1);
        shaper->gate->target_ns = target_ns;
        shaper->gate->streams = QAPI_CLONE(strList, streams);
        shaper->gate->gate = g_strdup(gate);
    }
    apply(shaper, window_percent * WINDOW_PARTS / WINDOW_PERCENT_MAX);
}
