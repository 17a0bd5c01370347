/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper's configuration: what is applied has been validated as a whole
 * (shaper-qmp.c). A change takes hold of held requests at once: what it lets go
 * is released before the next resource is looked at. BQL held throughout; each
 * resource's lock is held for the change of its engine.
 */
#include "qemu/osdep.h"
#include "qemu/bitops.h"
#include "shaper-internal.h"
#include "trace.h"

static uint8_t find_tag_of_dscp(const Shaper *shaper, uint8_t dscp)
{
    unsigned own_tag = sluice_tag_of_dscp(dscp);

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (shaper->classes[tag].used
            && (shaper->classes[tag].dscp & (1ULL << dscp))) {
            return tag;
        }
    }
    return own_tag != SLUICE_TAG_DEFAULT && shaper->classes[own_tag].used
           ? own_tag : SHAPER_NO_TAG;
}

/* Every frame asks, and the classes are spread over as many pages of memory. */
static void index_dscps(Shaper *shaper)
{
    for (unsigned dscp = 0; dscp <= SLUICE_DSCP_MAX; dscp++) {
        shaper->tag_of_dscp[dscp] = find_tag_of_dscp(shaper, dscp);
    }
}

/* Changes */

static void shaper_changed(Shaper *shaper)
{
    shaper->class_count = 0;
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        shaper->class_count += shaper->classes[tag].used;
    }
    shaper_clients_resolve(shaper);
    shaper->generation++;
    if (shaper->page) {
        shaper_page_set_generation(shaper->page, shaper->generation);
        /* Who has asked for the change finds it. */
        shaper_show(shaper);
    }
}

/* Caller holds the lock. */
static void publish_class(ShaperEngine *e, unsigned tag)
{
    const ShaperClass *class = &e->shaper->classes[tag];
    ShaperPageConfig config = {
        .used = class->used,
        .priority = class->priority,
        .name = class->name,
        .limit = class->limits[e->resource],
    };

    if (e->shaper->page) {
        shaper_page_set_config(e->shaper->page,
                               tag * SHAPER_RESOURCE__MAX + e->resource,
                               &config);
    }
}

/* Caller holds the lock. What one class is given changes what others have. */
static void divide_buffers(ShaperEngine *e)
{
    shaper_queues_reserve(e);
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        shaper_engine_publish(e, tag);
    }
}

/* Caller holds the lock. */
static void configure_class(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    const ShaperClass *class = &e->shaper->classes[tag];
    const ShaperSched *sched = &class->scheds[e->resource];
    SluiceClassConfig config = {
        .limit = class->limits[e->resource],
        .priority = class->priority,
        .weight = class->weight,
        .unmanaged = class->unmanaged,
        .policy = sched->policy,
        .peak_bytes_per_second = sched->peak_bytes_per_second,
        .reservation_bytes_per_second = sched->reservation_bytes_per_second,
        .charge_min_bytes = sched->charge_min_bytes,
        .dynamic = sched->dynamic,
        .window = sched->window,
    };
    bool ok = sluice_engine_set_class(e->engine, tag, &config, now_ns);

    assert(ok);
    e->device_charged = deposit32(e->device_charged, tag, 1,
                                  sched->charge_device);
    e->limited_tags = deposit32(e->limited_tags, tag, 1,
                                config.limit.bytes_per_second > 0
                                || config.limit.operations_per_second > 0);
    e->granted_tags = deposit32(e->granted_tags, tag, 1, class->used);
    divide_buffers(e);
    shaper_queue_configure(e, tag, now_ns);
    publish_class(e, tag);
}

void shaper_apply_class(Shaper *shaper, unsigned tag, const ShaperClass *class)
{
    uint64_t now_ns = shaper_now_ns();

    trace_shaper_set_class(shaper_id(shaper), class->name, tag,
                           class->priority);
    shaper->classes[tag] = *class;
    index_dscps(shaper);
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            configure_class(e, tag, now_ns);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_announce(e);
    }
    shaper_changed(shaper);
}

void shaper_apply_removal(Shaper *shaper, unsigned tag, unsigned heir_tag)
{
    uint64_t now_ns = shaper_now_ns();

    trace_shaper_remove_class(shaper_id(shaper), shaper->classes[tag].name,
                              tag);
    shaper_watch_forget(shaper, tag);
    shaper->classes[tag] = (ShaperClass){ .used = false };
    index_dscps(shaper);
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            shaper_engine_bequeath(e, tag, heir_tag, now_ns);
            configure_class(e, tag, now_ns);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_announce(e);
    }
    shaper_changed(shaper);
}

void shaper_apply_ceiling(Shaper *shaper,
                          const SluiceLimit limits[SHAPER_RESOURCE__MAX])
{
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];
        ShaperPageConfig config = { .used = true, .name = "ceiling",
                                    .limit = limits[i] };

        shaper->ceiling[i] = limits[i];
        WITH_SLUICE_LOCK(&e->lock) {
            bool ok = sluice_engine_set_ceiling(e->engine, &limits[i], now_ns);

            assert(ok);
            divide_buffers(e);
            if (shaper->page) {
                shaper_page_set_config(shaper->page,
                                       SHAPER_PAGE_CEILING_SLOT + i, &config);
            }
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_announce(e);
    }
    trace_shaper_set_ceiling(shaper_id(shaper));
    shaper_changed(shaper);
}
