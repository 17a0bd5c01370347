/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Arguments that configure classes and the ceiling: checked as a whole, and completed.
 * A complete configuration says everything in so many words: defaults are filled in, its
 * lists are in order of their resource or value, and a resource that has nothing but
 * defaults is not in them. So it is kept, shown and sent as it is.
 */
#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-sluice.h"
#include "qemu/units.h"
#include "shaper-internal.h"

#define BURST_TIME_DIVISOR      20              /* default: 1/20 s */
#define BURST_BYTES_MIN         (64 * KiB)      /* default: at least */
#define CHARGE_MIN_BYTES_MAX    (1 * MiB)
#define WINDOW_PERIOD_MIN_NS    1000
#define WINDOW_OF_MAX           1000
#define LIMIT_BYTES_MAX         (1 << 26)
#define LIMIT_PACKETS_MAX       (1 << 18)

/* Puts the list of a complete configuration in order. */
#define ARRANGE(type, list, is_default)                                     \
    do {                                                                    \
        type##List *arranged_ = NULL;                                       \
                                                                            \
        for (int i_ = SHAPER_RESOURCE__MAX - 1; i_ >= 0; i_--) {            \
            type *value_ = SHAPER_OF_RESOURCE(list, i_);                    \
                                                                            \
            if (value_ && !is_default(value_)) {                            \
                QAPI_LIST_PREPEND(arranged_, QAPI_CLONE(type, value_));     \
            }                                                               \
        }                                                                   \
        qapi_free_##type##List(list);                                       \
        (list) = arranged_;                                                 \
    } while (0)

/* Limits */

/* A rate and its burst; both absent means unlimited. */
static bool complete_rate(const char *rate_field, bool has_rate, int64_t rate,
                          const char *burst_field, bool *has_burst,
                          int64_t *burst, int64_t burst_min, Error **errp)
{
    if (*has_burst && !has_rate) {
        error_setg(errp, "%s %" PRId64 " has no rate; give %s too",
                   burst_field, *burst, rate_field);
        return false;
    }
    if (has_rate && !*has_burst) {
        *has_burst = true;
        *burst = MAX(rate / BURST_TIME_DIVISOR, burst_min);
    }
    return !has_rate
           || (shaper_check_range(rate_field, rate, 1, SLUICE_RATE_MAX, errp)
               && shaper_check_range(burst_field, *burst, 1, SLUICE_BURST_MAX,
                                     errp));
}

static bool is_default_limit(const ShaperLimit *limit)
{
    return !limit->has_bytes_per_second && !limit->has_operations_per_second;
}

bool shaper_complete_limits(ShaperLimitList **list, Error **errp)
{
    unsigned seen = 0;

    for (ShaperLimitList *l = *list; l; l = l->next) {
        ShaperLimit *limit = l->value;

        if (!shaper_check_once("limits", limit->resource, &seen, errp)
            || !complete_rate("bytes-per-second", limit->has_bytes_per_second,
                              limit->bytes_per_second, "burst-bytes",
                              &limit->has_burst_bytes, &limit->burst_bytes,
                              BURST_BYTES_MIN, errp)
            || !complete_rate("operations-per-second",
                              limit->has_operations_per_second,
                              limit->operations_per_second, "burst-operations",
                              &limit->has_burst_operations,
                              &limit->burst_operations, 1, errp)) {
            return false;
        }
    }
    ARRANGE(ShaperLimit, *list, is_default_limit);
    return true;
}

/* Scheduling; a promise beyond the limit is refused. */

/* A peak belongs to token-leaky, and follows a slower limit. */
static bool check_policy(const ShaperScheduling *sched,
                         const SluiceLimit *limit, Error **errp)
{
    if (sched->policy != SHAPER_POLICY_TOKEN_LEAKY) {
        if (sched->has_peak_bytes_per_second) {
            error_setg(errp, "peak-bytes-per-second %" PRId64 " does not go "
                       "with policy '%s'; use policy token-leaky",
                       sched->peak_bytes_per_second,
                       ShaperPolicy_str(sched->policy));
            return false;
        }
        return true;
    }
    if (!sched->has_peak_bytes_per_second || !limit->bytes_per_second) {
        error_setg(errp, "policy 'token-leaky' of resource '%s' needs "
                   "peak-bytes-per-second, and a limit of bytes-per-second",
                   ShaperResource_str(sched->resource));
        return false;
    }
    return shaper_check_range("peak-bytes-per-second",
                              sched->peak_bytes_per_second,
                              limit->bytes_per_second, SLUICE_RATE_MAX, errp);
}

static bool complete_window(ShaperScheduling *sched, int64_t rate_max,
                            Error **errp)
{
    ShaperWindow *window = sched->window;
    uint64_t rate;

    if (sched->has_reservation_bytes_per_second) {
        error_setg(errp, "window and reservation-bytes-per-second %" PRId64
                   " do not go together; a window is a reservation",
                   sched->reservation_bytes_per_second);
        return false;
    }
    if (!window->has_of) {
        window->of = 1;
    }
    window->has_of = window->has_may_miss = true;
    if (!shaper_check_range("period-ns", window->period_ns,
                            WINDOW_PERIOD_MIN_NS, SLUICE_WINDOW_PERIOD_MAX_NS,
                            errp)
        || !shaper_check_range("bytes", window->bytes, 1, UINT32_MAX, errp)
        || !shaper_check_range("of", window->of, 1, WINDOW_OF_MAX, errp)
        || !shaper_check_range("may-miss", window->may_miss, 0, window->of - 1,
                               errp)) {
        return false;
    }
    rate = DIV_ROUND_UP(window->bytes * NANOSECONDS_PER_SECOND,
                        window->period_ns);
    return shaper_check_range("bytes per period-ns, as bytes per second,", rate,
                              1, rate_max, errp);
}

static bool complete_scheduling(ShaperScheduling *sched,
                                const SluiceLimit *limit, Error **errp)
{
    int64_t rate_max = limit->bytes_per_second ? limit->bytes_per_second
                                               : SLUICE_RATE_MAX;

    if (!sched->has_minimum_charge_bytes) {
        sched->minimum_charge_bytes =
            shaper_scheduling_of(NULL, sched->resource)->minimum_charge_bytes;
    }
    sched->has_policy = sched->has_dynamic = sched->has_charge =
        sched->has_minimum_charge_bytes = true;
    if ((sched->has_reservation_bytes_per_second
         && !shaper_check_range("reservation-bytes-per-second",
                                sched->reservation_bytes_per_second, 1,
                                rate_max, errp))
        || !shaper_check_range("minimum-charge-bytes",
                               sched->minimum_charge_bytes, 0,
                               CHARGE_MIN_BYTES_MAX, errp)) {
        return false;
    }
    if (sched->charge == SHAPER_CHARGE_DEVICE
        && !shaper_is_disk(sched->resource)) {
        error_setg(errp, "charge 'device' does not go with resource '%s'; it "
                   "is for disks, use blk-read or blk-write",
                   ShaperResource_str(sched->resource));
        return false;
    }
    return check_policy(sched, limit, errp)
           && (!sched->window || complete_window(sched, rate_max, errp));
}

static bool is_default_scheduling(const ShaperScheduling *sched)
{
    return !sched->has_reservation_bytes_per_second && !sched->policy
           && !sched->dynamic && !sched->charge && !sched->window
           && sched->minimum_charge_bytes
              == shaper_scheduling_of(NULL, sched->resource)->minimum_charge_bytes;
}

static bool complete_schedulings(ShaperClassConfig *class, Error **errp)
{
    unsigned seen = 0;

    for (ShaperSchedulingList *l = class->scheduling; l; l = l->next) {
        SluiceLimit limit = shaper_limit_of(class->limits, l->value->resource);

        if (!shaper_check_once("scheduling", l->value->resource, &seen, errp)
            || !complete_scheduling(l->value, &limit, errp)) {
            return false;
        }
    }
    ARRANGE(ShaperScheduling, class->scheduling, is_default_scheduling);
    return true;
}

/* Queues of frames */

static bool complete_connections(ShaperQueue *queue, Error **errp)
{
    if (queue->has_connections_per_second
        && queue->resource != SHAPER_RESOURCE_NET_RX) {
        error_setg(errp, "connections-per-second %" PRId64 " does not go with "
                   "resource '%s'; new connections are counted where they come "
                   "in, use net-rx", queue->connections_per_second,
                   ShaperResource_str(queue->resource));
        return false;
    }
    return complete_rate("connections-per-second",
                         queue->has_connections_per_second,
                         queue->connections_per_second, "burst-connections",
                         &queue->has_burst_connections,
                         &queue->burst_connections, 1, errp);
}

static bool complete_queue(ShaperQueue *queue, Error **errp)
{
    if (shaper_is_disk(queue->resource)) {
        error_setg(errp, "queues: resource '%s' has none; disk requests are "
                   "never dropped, use net-tx or net-rx",
                   ShaperResource_str(queue->resource));
        return false;
    }
    if ((queue->has_limit_bytes
         && !shaper_check_range("limit-bytes", queue->limit_bytes, 1,
                                LIMIT_BYTES_MAX, errp))
        || (queue->has_limit_packets
            && !shaper_check_range("limit-packets", queue->limit_packets, 1,
                                   LIMIT_PACKETS_MAX, errp))) {
        return false;
    }
    queue->has_aqm = queue->has_ecn = true;
    if (queue->ecn && queue->aqm != SHAPER_AQM_CODEL) {
        error_setg(errp, "ecn true marks nothing without aqm; give aqm "
                   "'codel' too");
        return false;
    }
    return complete_connections(queue, errp);
}

static bool is_default_queue(const ShaperQueue *queue)
{
    return !queue->has_limit_bytes && !queue->has_limit_packets && !queue->aqm
           && !queue->has_connections_per_second;
}

static bool complete_queues(ShaperQueueList **list, Error **errp)
{
    unsigned seen = 0;

    for (ShaperQueueList *l = *list; l; l = l->next) {
        if (!shaper_check_once("queues", l->value->resource, &seen, errp)
            || !complete_queue(l->value, errp)) {
            return false;
        }
    }
    ARRANGE(ShaperQueue, *list, is_default_queue);
    return true;
}

/* Tags and DSCP values */

static bool complete_dscp(intList **list, Error **errp)
{
    uint64_t values;

    for (intList *l = *list; l; l = l->next) {
        if (!shaper_check_range("dscp", l->value, 0, SLUICE_DSCP_MAX, errp)) {
            return false;
        }
    }
    values = shaper_dscp_values(*list);
    qapi_free_intList(*list);
    *list = NULL;
    for (int dscp = SLUICE_DSCP_MAX; dscp >= 0; dscp--) {
        if (values & (1ULL << dscp)) {
            QAPI_LIST_PREPEND(*list, dscp);
        }
    }
    return true;
}

/* The DSCP values that carry a tag by themselves: those of the local pool. */
static uint64_t own_dscp(unsigned tag)
{
    for (unsigned dscp = 0; tag && dscp <= SLUICE_DSCP_MAX; dscp++) {
        if (sluice_tag_of_dscp(dscp) == tag) {
            return 1ULL << dscp;
        }
    }
    return 0;
}

static bool check_tag(ShaperClassConfig *const classes[SHAPER_CLASSES],
                      const ShaperClassConfig *class, Error **errp)
{
    const ShaperClassConfig *owner = classes[class->tag];

    if ((class->tag == SLUICE_TAG_DEFAULT)
        != !strcmp(class->q_class, SHAPER_DEFAULT_CLASS)) {
        error_setg(errp, "tag %" PRId64 " does not go with class '%s'; tag 0 "
                   "and class 'default' belong together", class->tag,
                   class->q_class);
        return false;
    }
    if (owner && strcmp(owner->q_class, class->q_class)) {
        error_setg(errp, "tag %" PRId64 " is in use by class '%s'; use another "
                   "tag, or remove that class", class->tag, owner->q_class);
        return false;
    }
    return true;
}

static bool check_dscp(ShaperClassConfig *const classes[SHAPER_CLASSES],
                       const ShaperClassConfig *class, Error **errp)
{
    for (unsigned i = 0; i < SHAPER_CLASSES; i++) {
        const ShaperClassConfig *other = classes[i];
        uint64_t common;

        if (!other || !strcmp(other->q_class, class->q_class)) {
            continue;
        }
        common = (shaper_dscp_values(class->dscp) | own_dscp(class->tag))
                 & (shaper_dscp_values(other->dscp) | own_dscp(i));
        if (common) {
            error_setg(errp, "dscp %d is in use by class '%s'; use another "
                       "value, or remove it there", ctz64(common),
                       other->q_class);
            return false;
        }
    }
    return true;
}

/* Classes */

ShaperClassConfig *shaper_complete_class(
    ShaperClassConfig *const classes[SHAPER_CLASSES],
    const ShaperClassConfig *in, Error **errp)
{
    g_autoptr(ShaperClassConfig) class = QAPI_CLONE(ShaperClassConfig, in);

    if (!class->has_priority) {
        class->priority = SHAPER_DEFAULT_PRIORITY;
    }
    if (!class->has_weight) {
        class->weight = SLUICE_WEIGHT_DEFAULT;
    }
    class->has_priority = class->has_weight = class->has_unmanaged =
        class->has_dscp = class->has_limits = class->has_scheduling =
        class->has_queues = true;
    if (!shaper_check_class_name(class->q_class, errp)
        || !shaper_check_range("tag", class->tag, 0, SLUICE_TAG_MAX, errp)
        || !shaper_check_range("priority", class->priority, 0,
                               SLUICE_PRIORITY_MAX, errp)
        || !shaper_check_range("weight", class->weight, 1, SLUICE_WEIGHT_MAX,
                               errp)
        || !complete_dscp(&class->dscp, errp)
        || !shaper_complete_limits(&class->limits, errp)
        || !complete_schedulings(class, errp)
        || !complete_queues(&class->queues, errp)
        || !check_tag(classes, class, errp)
        || !check_dscp(classes, class, errp)) {
        return NULL;
    }
    return g_steal_pointer(&class);
}
