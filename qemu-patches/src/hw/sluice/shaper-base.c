/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ground of the shaper's files, which calls none of the others but those that show: the
 * clock, identifiers, look-ups, checks of single values, and how a class is shown on
 * the counters page.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"
#include "shaper-internal.h"

#define DISK_CHARGE_MIN_BYTES   (4 * KiB)       /* default: a page */

/* Time */

static QEMUClockType clock_type(void)
{
    return qtest_enabled() ? QEMU_CLOCK_VIRTUAL : QEMU_CLOCK_REALTIME;
}

uint64_t shaper_now_ns(void)
{
    /* -object comes before the accelerator, which decides on the clock. */
    return phase_check(PHASE_ACCEL_CREATED) ? qemu_clock_get_ns(clock_type())
                                            : 0;
}

QEMUTimer *shaper_timer_new(AioContext *context, QEMUTimerCB *cb, void *opaque)
{
    /* The main loop rounds the timers of its AioContext up to a millisecond; its own are
     * exact. */
    return context == qemu_get_aio_context()
           ? timer_new_ns(clock_type(), cb, opaque)
           : aio_timer_new(context, clock_type(), SCALE_NS, cb, opaque);
}

/* Identity and look-ups */

uint64_t shaper_generation(const Shaper *shaper)
{
    return shaper->generation;
}

const char *shaper_id(const Shaper *shaper)
{
    return object_get_canonical_path_component(OBJECT(shaper));
}

Object *shaper_find_object(const char *field, const char *id, const char *type,
                           const char *query, Error **errp)
{
    Object *obj = object_resolve_path_component(object_get_objects_root(), id);

    obj = object_dynamic_cast(obj, type);
    if (!obj) {
        error_setg(errp, "%s '%s' is not a %s; %s lists them", field, id, type,
                   query);
    }
    return obj;
}

Shaper *shaper_find(const char *id, Error **errp)
{
    Object *obj = shaper_find_object("id", id, TYPE_SHAPER, "query-shapers", errp);

    return obj ? SHAPER(obj) : NULL;
}

bool shaper_tag_of_dscp(const Shaper *shaper, uint8_t dscp, unsigned *tag)
{
    *tag = shaper->tag_of_dscp[dscp];
    return *tag != SHAPER_NO_TAG;
}

bool shaper_has_tag(const Shaper *shaper, unsigned tag)
{
    return tag < SHAPER_CLASSES && shaper->classes[tag];
}

int shaper_find_class(ShaperClassConfig *const classes[SHAPER_CLASSES],
                      const char *name)
{
    for (unsigned tag = 0; name && tag < SHAPER_CLASSES; tag++) {
        if (classes[tag] && !strcmp(classes[tag]->q_class, name)) {
            return tag;
        }
    }
    return -1;
}

unsigned shaper_tag_of_class(const Shaper *shaper, const char *name)
{
    int tag = shaper_find_class(shaper->classes, name);

    return tag < 0 ? SLUICE_TAG_DEFAULT : tag;
}

unsigned shaper_class_count(const Shaper *shaper)
{
    return shaper->class_count;
}

/* The configuration */

const ShaperClassConfig *shaper_class_of(const Shaper *shaper, unsigned tag)
{
    static const ShaperClassConfig none = { .q_class = (char *)"" };

    return shaper->classes[tag] ?: &none;
}

uint64_t shaper_dscp_values(const intList *list)
{
    uint64_t values = 0;

    for (; list; list = list->next) {
        values |= 1ULL << list->value;
    }
    return values;
}

SluiceLimit shaper_limit_of(const ShaperLimitList *list,
                            ShaperResource resource)
{
    const ShaperLimit *limit = SHAPER_OF_RESOURCE(list, resource);

    return limit ? (SluiceLimit){
        .bytes_per_second = limit->bytes_per_second,
        .burst_bytes = limit->burst_bytes,
        .operations_per_second = limit->operations_per_second,
        .burst_operations = limit->burst_operations,
    } : (SluiceLimit){ 0 };
}

const ShaperScheduling *shaper_scheduling_of(const ShaperSchedulingList *list,
                                             ShaperResource resource)
{
    static const ShaperScheduling disk = {
        .minimum_charge_bytes = DISK_CHARGE_MIN_BYTES,
    };
    static const ShaperScheduling frames;

    return SHAPER_OF_RESOURCE(list, resource)
           ?: shaper_is_disk(resource) ? &disk : &frames;
}

const ShaperQueue *shaper_queue_of(const ShaperQueueList *list,
                                   ShaperResource resource)
{
    static const ShaperQueue unlimited;

    return SHAPER_OF_RESOURCE(list, resource) ?: &unlimited;
}

/* Checks */

bool shaper_check_range(const char *field, int64_t value, int64_t min,
                        int64_t max, Error **errp)
{
    if (value < min || value > max) {
        error_setg(errp, "%s %" PRId64 " is out of range; use %" PRId64
                   " to %" PRId64, field, value, min, max);
        return false;
    }
    return true;
}

bool shaper_check_class_name(const char *name, Error **errp)
{
    size_t length = strlen(name);

    if (length == 0 || length > SHAPER_CLASS_NAME_MAX
        || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != length) {
        error_setg(errp, "class '%s' is not a class name; use 1 to %d "
                   "characters of a-z, 0-9 and -", name, SHAPER_CLASS_NAME_MAX);
        return false;
    }
    return true;
}

bool shaper_check_once(const char *field, ShaperResource resource,
                       unsigned *seen, Error **errp)
{
    if (*seen & (1u << resource)) {
        error_setg(errp, "%s: resource '%s' is given twice; give it once", field,
                   ShaperResource_str(resource));
        return false;
    }
    *seen |= 1u << resource;
    return true;
}

/* The counters page */

static void show_counters(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    ShaperPageCounters *counters = &e->counters[tag];
    SluiceTokens tokens = sluice_engine_tokens(e->engine, tag, now_ns);

    counters->buffered_requests = e->queues[tag].buffered_frames;
    counters->buffered_bytes = e->queues[tag].buffered_bytes;
    counters->buffer_requests_max = e->queues[tag].room.frames;
    counters->buffer_bytes_max = e->queues[tag].room.bytes;
    shaper_page_set_counters(e->shaper->page, shaper_slot_of(e, tag), counters,
                             sluice_engine_stats(e->engine, tag), &tokens);
    if (shaper_is_disk(e->resource)) {
        shaper_gate_show(e, tag, now_ns);
    }
}

/* Class by class, so that no request waits for all of them. Tokens come by themselves. */
static void show_engine(ShaperEngine *e, uint64_t now_ns)
{
    Shaper *shaper = e->shaper;
    unsigned ceiling_slot = SHAPER_PAGE_CEILING_SLOT + e->resource;
    SluiceLimit limit = shaper_limit_of(shaper->ceiling, e->resource);

    shaper_page_set_config(shaper->page, ceiling_slot, true, "ceiling", 0, &limit);
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        const ShaperClassConfig *class = shaper_class_of(shaper, tag);

        limit = shaper_limit_of(class->limits, e->resource);
        shaper_page_set_config(shaper->page, shaper_slot_of(e, tag),
                               shaper->classes[tag], class->q_class,
                               class->priority, &limit);
        if (shaper->classes[tag]) {
            SLUICE_LOCK_GUARD(&e->lock);

            show_counters(e, tag, now_ns);
        }
    }
    WITH_SLUICE_LOCK(&e->lock) {
        shaper_page_set_totals(shaper->page, ceiling_slot, e->total_requests,
                               e->total_bytes);
    }
}

bool shaper_show(Shaper *shaper)
{
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        show_engine(&shaper->engines[i], now_ns);
    }
    return shaper_page_write(shaper->page, shaper->generation, get_clock());
}
