/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What QMP says about how classes are scheduled: checked as a whole, and shown. */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/units.h"
#include "shaper-internal.h"

#define DISK_CHARGE_MIN_BYTES   (4 * KiB)       /* default: a page */
#define CHARGE_MIN_BYTES_MAX    (1 * MiB)
#define WINDOW_PERIOD_MIN_NS    1000
#define WINDOW_OF_MAX           1000

static ShaperSched default_sched(ShaperResource resource)
{
    return (ShaperSched){
        .charge_min_bytes = shaper_is_disk(resource) ? DISK_CHARGE_MIN_BYTES : 0,
    };
}

void shaper_default_scheds(ShaperSched scheds[SHAPER_RESOURCE__MAX])
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        scheds[i] = default_sched(i);
    }
}

/* A peak belongs to token-leaky, and follows a slower limit. */
static bool parse_policy(const ShaperScheduling *in, const SluiceLimit *limit,
                         ShaperSched *out, Error **errp)
{
    int64_t peak = in->peak_bytes_per_second;
    ShaperPolicy policy = in->has_policy ? in->policy
                                         : SHAPER_POLICY_TOKEN_BUCKET;

    out->policy = policy;
    if (policy != SHAPER_POLICY_TOKEN_LEAKY) {
        if (in->has_peak_bytes_per_second) {
            error_setg(errp, "peak-bytes-per-second %" PRId64 " does not go "
                       "with policy '%s'; use policy token-leaky", peak,
                       ShaperPolicy_str(policy));
            return false;
        }
        return true;
    }
    if (!in->has_peak_bytes_per_second || !limit->bytes_per_second) {
        error_setg(errp, "policy 'token-leaky' of resource '%s' needs "
                   "peak-bytes-per-second, and a limit of bytes-per-second",
                   ShaperResource_str(in->resource));
        return false;
    }
    if (!shaper_check_range("peak-bytes-per-second", peak,
                            limit->bytes_per_second, SLUICE_RATE_MAX, errp)) {
        return false;
    }
    out->peak_bytes_per_second = peak;
    return true;
}

static bool parse_window(const ShaperScheduling *in, const SluiceLimit *limit,
                         ShaperSched *out, Error **errp)
{
    const ShaperWindow *window = in->window;
    int64_t of = window->has_of ? window->of : 1;
    int64_t may_miss = window->has_may_miss ? window->may_miss : 0;
    uint64_t rate;

    if (in->has_reservation_bytes_per_second) {
        error_setg(errp, "window and reservation-bytes-per-second %" PRId64
                   " do not go together; a window is a reservation",
                   in->reservation_bytes_per_second);
        return false;
    }
    if (!shaper_check_range("period-ns", window->period_ns,
                            WINDOW_PERIOD_MIN_NS, SLUICE_WINDOW_PERIOD_MAX_NS,
                            errp)
        || !shaper_check_range("bytes", window->bytes, 1, UINT32_MAX, errp)
        || !shaper_check_range("of", of, 1, WINDOW_OF_MAX, errp)
        || !shaper_check_range("may-miss", may_miss, 0, of - 1, errp)) {
        return false;
    }
    rate = DIV_ROUND_UP(window->bytes * NANOSECONDS_PER_SECOND,
                        window->period_ns);
    if (!shaper_check_range("bytes per period-ns, as bytes per second,", rate,
                            1, limit->bytes_per_second
                               ? limit->bytes_per_second : SLUICE_RATE_MAX,
                            errp)) {
        return false;
    }
    out->window = (SluiceWindow){
        .period_ns = window->period_ns, .bytes = window->bytes,
        .may_miss = may_miss, .of = of, .may_drop = !shaper_is_disk(in->resource),
    };
    return true;
}

static bool parse_sched(const ShaperScheduling *in, const SluiceLimit *limit,
                        ShaperSched *out, Error **errp)
{
    int64_t reservation_max = limit->bytes_per_second
                              ? limit->bytes_per_second : SLUICE_RATE_MAX;

    if (in->has_reservation_bytes_per_second
        && !shaper_check_range("reservation-bytes-per-second",
                               in->reservation_bytes_per_second, 1,
                               reservation_max, errp)) {
        return false;
    }
    if (in->has_minimum_charge_bytes
        && !shaper_check_range("minimum-charge-bytes",
                               in->minimum_charge_bytes, 0,
                               CHARGE_MIN_BYTES_MAX, errp)) {
        return false;
    }
    if (in->has_charge && in->charge == SHAPER_CHARGE_DEVICE
        && !shaper_is_disk(in->resource)) {
        error_setg(errp, "charge 'device' does not go with resource '%s'; it "
                   "is for disks, use blk-read or blk-write",
                   ShaperResource_str(in->resource));
        return false;
    }
    if (in->has_reservation_bytes_per_second) {
        out->reservation_bytes_per_second = in->reservation_bytes_per_second;
    }
    if (in->has_minimum_charge_bytes) {
        out->charge_min_bytes = in->minimum_charge_bytes;
    }
    out->dynamic = in->has_dynamic ? in->dynamic : SHAPER_DYNAMIC_NONE;
    out->charge_device = in->has_charge && in->charge == SHAPER_CHARGE_DEVICE;
    return parse_policy(in, limit, out, errp)
           && (!in->window || parse_window(in, limit, out, errp));
}

bool shaper_parse_scheds(ShaperSchedulingList *list,
                         const SluiceLimit limits[SHAPER_RESOURCE__MAX],
                         ShaperSched scheds[SHAPER_RESOURCE__MAX], Error **errp)
{
    unsigned seen = 0;

    shaper_default_scheds(scheds);
    for (; list; list = list->next) {
        ShaperResource resource = list->value->resource;

        if (seen & (1u << resource)) {
            error_setg(errp, "scheduling: resource '%s' is given twice; give "
                       "it once", ShaperResource_str(resource));
            return false;
        }
        seen |= 1u << resource;
        if (!parse_sched(list->value, &limits[resource], &scheds[resource],
                         errp)) {
            return false;
        }
    }
    return true;
}

static bool is_default(const ShaperSched *sched, ShaperResource resource)
{
    return !sched->reservation_bytes_per_second && !sched->policy
           && !sched->dynamic && !sched->charge_device
           && !sched->window.period_ns
           && sched->charge_min_bytes
              == default_sched(resource).charge_min_bytes;
}

static ShaperWindow *window_info(const SluiceWindow *window)
{
    ShaperWindow *info;

    if (!window->period_ns) {
        return NULL;
    }
    info = g_new0(ShaperWindow, 1);
    info->period_ns = window->period_ns;
    info->bytes = window->bytes;
    info->has_may_miss = info->has_of = true;
    info->may_miss = window->may_miss;
    info->of = window->of;
    return info;
}

ShaperSchedulingList *shaper_scheds_info(
    const ShaperSched scheds[SHAPER_RESOURCE__MAX])
{
    ShaperSchedulingList *list = NULL;

    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        const ShaperSched *sched = &scheds[i];
        ShaperScheduling *info;

        if (is_default(sched, i)) {
            continue;
        }
        info = g_new0(ShaperScheduling, 1);
        info->resource = i;
        info->has_policy = info->has_dynamic = info->has_charge =
            info->has_minimum_charge_bytes = true;
        info->policy = sched->policy;
        info->dynamic = sched->dynamic;
        info->charge = sched->charge_device ? SHAPER_CHARGE_DEVICE
                                            : SHAPER_CHARGE_ALL;
        info->minimum_charge_bytes = sched->charge_min_bytes;
        info->has_peak_bytes_per_second = sched->peak_bytes_per_second > 0;
        info->peak_bytes_per_second = sched->peak_bytes_per_second;
        info->has_reservation_bytes_per_second =
            sched->reservation_bytes_per_second > 0;
        info->reservation_bytes_per_second =
            sched->reservation_bytes_per_second;
        info->window = window_info(&sched->window);
        QAPI_LIST_PREPEND(list, info);
    }
    return list;
}
