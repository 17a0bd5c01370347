/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tells the monitor, and the guest by its channel, when a class starts and stops being
 * limited.
 *
 * A class is looked at four times a second, per resource. A look finds it busy
 * if a request of it was held, or a frame dropped, since the look before, or is
 * held now. Four busy looks in a row make it limited, eight quiet ones end
 * that: a burst that waits a moment is not news, nor is a moment's rest.
 *
 * A guest decides when its requests are held, so it must not be able to flood
 * the monitor. The hysteresis bounds one class to two events in three seconds,
 * and a shaper sends at most EVENTS_PER_LOOK per look, for all of its classes.
 * An event tells a level, not an edge: news that did not fit are told at a later
 * look if they still hold then, and each class gets its turn. A reader that knows
 * only the last event of a class knows the truth as of that event.
 *
 * The looks begin with the first client and end with the last, in the main
 * thread under the BQL.
 */
#include "qemu/osdep.h"
#include "qapi/qapi-events-sluice.h"
#include "qemu/main-loop.h"
#include "shaper-internal.h"
#include "trace.h"

#define LOOK_NS             (250 * SCALE_MS)
#define LIMITED_LOOKS       4
#define UNLIMITED_LOOKS     8
#define EVENTS_PER_LOOK     2
#define WATCHES             (SHAPER_CLASSES * SHAPER_RESOURCE__MAX)

static void look(ShaperWatch *watch, bool held_now, uint64_t waits)
{
    bool busy = held_now || waits != watch->waits;

    watch->waits = waits;
    if (busy == watch->limited) {
        watch->looks = 0;
    } else if (++watch->looks
               >= (busy ? LIMITED_LOOKS : UNLIMITED_LOOKS)) {
        watch->limited = busy;
        watch->looks = 0;
    }
}

static void look_at(ShaperEngine *e)
{
    SLUICE_LOCK_GUARD(&e->lock);

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        const SluiceClassStats *stats = sluice_engine_stats(e->engine, tag);

        look(&e->watch[tag], stats->backlog_requests > 0,
             stats->held_requests + e->counters[tag].dropped_requests);
    }
}

/* To the monitor, and to a guest that has subscribed. Without the lock: they may answer. False if there is no news. */
static bool tell(ShaperEngine *e, unsigned tag)
{
    const char *name = shaper_class_of(e->shaper, tag)->q_class;
    uint64_t backlog_requests;
    bool limited;

    WITH_SLUICE_LOCK(&e->lock) {
        ShaperWatch *watch = &e->watch[tag];

        if (watch->limited == watch->told) {
            return false;
        }
        limited = watch->told = watch->limited;
        backlog_requests = sluice_engine_stats(e->engine, tag)->backlog_requests;
    }
    trace_shaper_class_limited(shaper_id(e->shaper), name,
                               ShaperResource_str(e->resource), limited);
    qapi_event_send_shaper_class_limited(shaper_id(e->shaper), name, tag,
                                         e->resource, limited,
                                         backlog_requests);
    shaper_channel_event(e->shaper, limited ? SLUICE_EVENT_LIMITED
                                            : SLUICE_EVENT_UNLIMITED,
                         tag, e->resource, backlog_requests);
    return true;
}

static void watch_cb(void *opaque)
{
    Shaper *shaper = opaque;
    unsigned told = 0;

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        look_at(&shaper->engines[i]);
    }
    shaper_channel_look(shaper);
    for (unsigned i = 0; i < WATCHES && told < EVENTS_PER_LOOK; i++) {
        unsigned turn = shaper->watch_turn++ % WATCHES;

        told += tell(&shaper->engines[turn % SHAPER_RESOURCE__MAX],
                     turn / SHAPER_RESOURCE__MAX);
    }
    timer_mod(shaper->watch_timer, shaper_now_ns() + LOOK_NS);
}

void shaper_watch_start(Shaper *shaper)
{
    shaper->watch_timer = shaper_timer_new(qemu_get_aio_context(), watch_cb,
                                           shaper);
    timer_mod(shaper->watch_timer, shaper_now_ns() + LOOK_NS);
}

void shaper_watch_stop(Shaper *shaper)
{
    timer_free(shaper->watch_timer);
    shaper->watch_timer = NULL;
    /* Without clients no class is limited. */
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        shaper_watch_forget(shaper, tag);
    }
}

void shaper_watch_forget(Shaper *shaper, unsigned tag)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            e->watch[tag].limited = false;
            e->watch[tag].looks = 0;
        }
        tell(e, tag);
    }
}
