/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QMP commands of the shaper. A command is checked as a whole against the
 * present configuration before anything changes; what is applied is valid.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-sluice.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "shaper-internal.h"

#define BURST_TIME_DIVISOR      20              /* default: 1/20 s */
#define BURST_BYTES_MIN         (64 * KiB)      /* default: at least */
#define BURST_OPERATIONS_MIN    1

/* Validation */

/* A rate and its burst; both absent means unlimited. */
static bool parse_rate(const char *rate_field, bool has_rate, int64_t rate,
                       const char *burst_field, bool has_burst, int64_t burst,
                       uint64_t burst_min, uint64_t *rate_out,
                       uint64_t *burst_out, Error **errp)
{
    *rate_out = *burst_out = 0;
    if (has_burst && !has_rate) {
        error_setg(errp, "%s %" PRId64 " has no rate; give %s too",
                   burst_field, burst, rate_field);
        return false;
    }
    if (!has_rate) {
        return true;
    }
    if (!shaper_check_range(rate_field, rate, 1, SLUICE_RATE_MAX, errp)
        || (has_burst && !shaper_check_range(burst_field, burst, 1, SLUICE_BURST_MAX,
                                      errp))) {
        return false;
    }
    *rate_out = rate;
    *burst_out = has_burst ? burst : MAX(rate / BURST_TIME_DIVISOR, burst_min);
    return true;
}

bool shaper_parse_limits(ShaperLimitList *list,
                         SluiceLimit limits[SHAPER_RESOURCE__MAX], Error **errp)
{
    unsigned seen = 0;

    memset(limits, 0, sizeof(*limits) * SHAPER_RESOURCE__MAX);
    for (; list; list = list->next) {
        ShaperLimit *in = list->value;
        SluiceLimit *out = &limits[in->resource];

        if (seen & (1u << in->resource)) {
            error_setg(errp, "limits: resource '%s' is given twice; give it "
                       "once", ShaperResource_str(in->resource));
            return false;
        }
        seen |= 1u << in->resource;
        if (!parse_rate("bytes-per-second", in->has_bytes_per_second,
                        in->bytes_per_second, "burst-bytes",
                        in->has_burst_bytes, in->burst_bytes, BURST_BYTES_MIN,
                        &out->bytes_per_second, &out->burst_bytes, errp)
            || !parse_rate("operations-per-second",
                           in->has_operations_per_second,
                           in->operations_per_second, "burst-operations",
                           in->has_burst_operations, in->burst_operations,
                           BURST_OPERATIONS_MIN, &out->operations_per_second,
                           &out->burst_operations, errp)) {
            return false;
        }
    }
    return true;
}

static bool parse_dscp(intList *list, uint64_t *dscp, Error **errp)
{
    *dscp = 0;
    for (; list; list = list->next) {
        if (!shaper_check_range("dscp", list->value, 0, SLUICE_DSCP_MAX, errp)) {
            return false;
        }
        *dscp |= 1ULL << list->value;
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

static bool check_tag(const ShaperClass classes[SHAPER_CLASSES],
                      const char *name, unsigned tag, Error **errp)
{
    const ShaperClass *owner = &classes[tag];

    if ((tag == SLUICE_TAG_DEFAULT) != !strcmp(name, SHAPER_DEFAULT_CLASS)) {
        error_setg(errp, "tag %u does not go with class '%s'; tag 0 and class "
                   "'default' belong together", tag, name);
        return false;
    }
    if (owner->used && strcmp(owner->name, name)) {
        error_setg(errp, "tag %u is in use by class '%s'; use another tag, or "
                   "remove that class", tag, owner->name);
        return false;
    }
    return true;
}

static bool check_dscp(const ShaperClass classes[SHAPER_CLASSES],
                       const char *name, unsigned tag, uint64_t dscp,
                       Error **errp)
{
    for (unsigned i = 0; i < SHAPER_CLASSES; i++) {
        const ShaperClass *other = &classes[i];
        uint64_t common;

        if (!other->used || !strcmp(other->name, name)) {
            continue;
        }
        common = (dscp | own_dscp(tag)) & (other->dscp | own_dscp(i));
        if (common) {
            error_setg(errp, "dscp %d is in use by class '%s'; use another "
                       "value, or remove it there", ctz64(common), other->name);
            return false;
        }
    }
    return true;
}

bool shaper_parse_class(const ShaperClass classes[SHAPER_CLASSES],
                        const ShaperClassConfig *in, ShaperClass *out,
                        Error **errp)
{
    int64_t priority = in->has_priority ? in->priority : SHAPER_DEFAULT_PRIORITY;
    int64_t weight = in->has_weight ? in->weight : SLUICE_WEIGHT_DEFAULT;

    *out = (ShaperClass){ .used = true };
    if (!shaper_check_class_name(in->q_class, errp)
        || !shaper_check_range("tag", in->tag, 0, SLUICE_TAG_MAX, errp)
        || !shaper_check_range("priority", priority, 0, SLUICE_PRIORITY_MAX, errp)
        || !shaper_check_range("weight", weight, 1, SLUICE_WEIGHT_MAX, errp)
        || !parse_dscp(in->has_dscp ? in->dscp : NULL, &out->dscp, errp)
        || !shaper_parse_limits(in->has_limits ? in->limits : NULL,
                                out->limits, errp)
        || !shaper_parse_scheds(in->has_scheduling ? in->scheduling : NULL,
                                out->limits, out->scheds, errp)
        || !shaper_parse_queues(in->has_queues ? in->queues : NULL,
                                out->queues, errp)
        || !check_tag(classes, in->q_class, in->tag, errp)
        || !check_dscp(classes, in->q_class, in->tag, out->dscp, errp)) {
        return false;
    }
    pstrcpy(out->name, sizeof(out->name), in->q_class);
    out->priority = priority;
    out->weight = weight;
    out->unmanaged = in->has_unmanaged && in->unmanaged;
    return true;
}

/* Commands */

void qmp_shaper_set_class(ShaperClassSetting *setting, Error **errp)
{
    const ShaperClassConfig *config = qapi_ShaperClassSetting_base(setting);
    Shaper *shaper = shaper_find(setting->id, errp);
    ShaperClass class;
    int old_tag;

    if (!shaper || !shaper_parse_class(shaper->classes, config, &class, errp)) {
        return;
    }
    old_tag = shaper_find_class(shaper, config->q_class);
    shaper_apply_class(shaper, config->tag, &class);
    if (old_tag >= 0 && old_tag != config->tag) {
        shaper_apply_removal(shaper, old_tag, config->tag);
    }
}

void qmp_shaper_remove_class(const char *id, const char *name, Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    int tag;

    if (!shaper) {
        return;
    }
    tag = shaper_find_class(shaper, name);
    if (tag < 0) {
        error_setg(errp, "class '%s' does not exist; query-shapers lists the "
                   "classes of '%s'", name, id);
    } else if (tag == SLUICE_TAG_DEFAULT) {
        error_setg(errp, "class 'default' cannot be removed; set its limits "
                   "with shaper-set-class");
    } else {
        shaper_apply_removal(shaper, tag, SLUICE_TAG_DEFAULT);
    }
}

void qmp_shaper_set_ceiling(const char *id, ShaperLimitList *limits,
                            Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    SluiceLimit parsed[SHAPER_RESOURCE__MAX];

    if (shaper && shaper_parse_limits(limits, parsed, errp)) {
        shaper_apply_ceiling(shaper, parsed);
    }
}
