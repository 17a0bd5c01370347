/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper's configuration, which is complete before it is applied (shaper-check.c). A
 * change takes hold of held requests at once: those that it lets go are released before
 * the next resource is looked at. BQL held throughout; each resource's lock is held for
 * the change of its engine.
 */
#include "qemu/osdep.h"
#include "qemu/bitops.h"
#include "shaper-internal.h"
#include "trace.h"

QEMU_BUILD_BUG_ON((int)SHAPER_POLICY_TOKEN_BUCKET
                  != (int)SLUICE_POLICY_TOKEN_BUCKET);
QEMU_BUILD_BUG_ON((int)SHAPER_POLICY_LEAKY_BUCKET
                  != (int)SLUICE_POLICY_LEAKY_BUCKET);
QEMU_BUILD_BUG_ON((int)SHAPER_POLICY_TOKEN_LEAKY
                  != (int)SLUICE_POLICY_TOKEN_LEAKY);
QEMU_BUILD_BUG_ON((int)SHAPER_DYNAMIC_LATENCY
                  != (int)SLUICE_DYNAMIC_LATENCY);
QEMU_BUILD_BUG_ON((int)SHAPER_DYNAMIC_THROUGHPUT
                  != (int)SLUICE_DYNAMIC_THROUGHPUT);

/* Whether a DSCP may choose the class: nobody has himself excepted from all limits. */
static bool takes_dscp(const Shaper *shaper, unsigned tag)
{
    return shaper->classes[tag] && !shaper->classes[tag]->unmanaged;
}

static uint8_t find_tag_of_dscp(const Shaper *shaper, uint8_t dscp)
{
    unsigned own_tag = sluice_tag_of_dscp(dscp);

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (shaper_dscp_values(shaper_class_of(shaper, tag)->dscp)
            & (1ULL << dscp)) {
            return takes_dscp(shaper, tag) ? tag : SHAPER_NO_TAG;
        }
    }
    return own_tag != SLUICE_TAG_DEFAULT && takes_dscp(shaper, own_tag)
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
        shaper->class_count += shaper->classes[tag] != NULL;
    }
    shaper_clients_resolve(shaper);
    shaper_gate_resolve(shaper);
    shaper->generation++;
    shaper_channel_configure(shaper);
    if (shaper->page) {
        /* The client that asked for the change finds it. */
        shaper_show(shaper);
    }
}

static SluiceWindow window_of(const ShaperScheduling *sched)
{
    const ShaperWindow *window = sched->window;

    return window ? (SluiceWindow){
        .period_ns = window->period_ns,
        .bytes = window->bytes,
        .may_miss = window->may_miss,
        .of = window->of,
        .may_drop = !shaper_is_disk(sched->resource),
    } : (SluiceWindow){ 0 };
}

/* Caller holds the lock. */
static void configure_class(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    const ShaperClassConfig *class = shaper_class_of(e->shaper, tag);
    const ShaperScheduling *sched = shaper_scheduling_of(class->scheduling,
                                                         e->resource);
    SluiceClassConfig config = {
        .limit = shaper_limit_of(class->limits, e->resource),
        .priority = class->priority,
        .weight = class->weight,
        .unmanaged = class->unmanaged,
        .policy = sched->policy,
        .peak_bytes_per_second = sched->peak_bytes_per_second,
        .reservation_bytes_per_second = sched->reservation_bytes_per_second,
        .charge_min_bytes = sched->minimum_charge_bytes,
        .dynamic = sched->dynamic,
        .window = window_of(sched),
    };
    bool ok = sluice_engine_set_class(e->engine, tag, &config, now_ns);

    assert(ok);
    e->device_charged = deposit32(e->device_charged, tag, 1,
                                  sched->charge == SHAPER_CHARGE_DEVICE);
    e->granted_tags = deposit32(e->granted_tags, tag, 1,
                                e->shaper->classes[tag] != NULL);
    shaper_queues_reserve(e);
    shaper_queue_configure(e, tag, now_ns);
}

static void replace_class(Shaper *shaper, unsigned tag,
                          ShaperClassConfig *class)
{
    qapi_free_ShaperClassConfig(shaper->classes[tag]);
    shaper->classes[tag] = class;
    index_dscps(shaper);
}

void shaper_apply_class(Shaper *shaper, ShaperClassConfig *class)
{
    uint64_t now_ns = shaper_now_ns();
    unsigned tag = class->tag;

    trace_shaper_set_class(shaper_id(shaper), class->q_class, tag,
                           class->priority);
    replace_class(shaper, tag, class);
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            configure_class(e, tag, now_ns);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_settle(e);
    }
    shaper_changed(shaper);
}

void shaper_apply_removal(Shaper *shaper, unsigned tag, unsigned heir_tag)
{
    uint64_t now_ns = shaper_now_ns();

    trace_shaper_remove_class(shaper_id(shaper), shaper->classes[tag]->q_class,
                              tag);
    shaper_watch_forget(shaper, tag);
    replace_class(shaper, tag, NULL);
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            shaper_engine_bequeath(e, tag, heir_tag, now_ns);
            configure_class(e, tag, now_ns);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_settle(e);
    }
    shaper_changed(shaper);
}

void shaper_apply_ceiling(Shaper *shaper, ShaperLimitList *limits)
{
    uint64_t now_ns = shaper_now_ns();

    qapi_free_ShaperLimitList(shaper->ceiling);
    shaper->ceiling = limits;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];
        SluiceLimit limit = shaper_limit_of(limits, i);

        WITH_SLUICE_LOCK(&e->lock) {
            bool ok = sluice_engine_set_ceiling(e->engine, &limit, now_ns);

            assert(ok);
            shaper_queues_reserve(e);
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_settle(e);
    }
    trace_shaper_set_ceiling(shaper_id(shaper));
    shaper_changed(shaper);
}
