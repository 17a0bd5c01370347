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

/* Look-ups */

static Shaper *find_shaper(const char *id, Error **errp)
{
    Object *obj = object_resolve_path_component(object_get_objects_root(), id);
    Shaper *shaper = (Shaper *)object_dynamic_cast(obj, TYPE_SHAPER);

    if (!shaper) {
        error_setg(errp, "id '%s' is not a shaper; query-shapers lists them",
                   id);
    }
    return shaper;
}

/* Validation */

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

static bool parse_limits(ShaperLimitList *list,
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

static bool check_tag(const Shaper *shaper, const char *name, unsigned tag,
                      Error **errp)
{
    const ShaperClass *owner = &shaper->classes[tag];

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

static bool check_dscp(const Shaper *shaper, const char *name, unsigned tag,
                       uint64_t dscp, Error **errp)
{
    for (unsigned i = 0; i < SHAPER_CLASSES; i++) {
        const ShaperClass *other = &shaper->classes[i];
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

/* Commands */

void qmp_shaper_set_class(const char *id, const char *name, int64_t tag,
                          bool has_priority, int64_t priority,
                          bool has_weight, int64_t weight,
                          bool has_unmanaged, bool unmanaged, bool has_dscp,
                          intList *dscp, bool has_limits,
                          ShaperLimitList *limits, bool has_scheduling,
                          ShaperSchedulingList *scheduling, bool has_queues,
                          ShaperQueueList *queues, Error **errp)
{
    Shaper *shaper = find_shaper(id, errp);
    ShaperClass class = { .used = true };
    int old_tag;

    if (!has_priority) {
        priority = SHAPER_DEFAULT_PRIORITY;
    }
    if (!has_weight) {
        weight = SLUICE_WEIGHT_DEFAULT;
    }
    if (!shaper || !shaper_check_class_name(name, errp)
        || !shaper_check_range("tag", tag, 0, SLUICE_TAG_MAX, errp)
        || !shaper_check_range("priority", priority, 0, SLUICE_PRIORITY_MAX, errp)
        || !shaper_check_range("weight", weight, 1, SLUICE_WEIGHT_MAX, errp)
        || !parse_dscp(has_dscp ? dscp : NULL, &class.dscp, errp)
        || !parse_limits(has_limits ? limits : NULL, class.limits, errp)
        || !shaper_parse_scheds(has_scheduling ? scheduling : NULL,
                                class.limits, class.scheds, errp)
        || !shaper_parse_queues(has_queues ? queues : NULL, class.queues, errp)
        || !check_tag(shaper, name, tag, errp)
        || !check_dscp(shaper, name, tag, class.dscp, errp)) {
        return;
    }
    pstrcpy(class.name, sizeof(class.name), name);
    class.priority = priority;
    class.weight = weight;
    class.unmanaged = has_unmanaged && unmanaged;
    old_tag = shaper_find_class(shaper, name);
    shaper_apply_class(shaper, tag, &class);
    if (old_tag >= 0 && old_tag != tag) {
        shaper_apply_removal(shaper, old_tag, tag);
    }
}

void qmp_shaper_remove_class(const char *id, const char *name, Error **errp)
{
    Shaper *shaper = find_shaper(id, errp);
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
    Shaper *shaper = find_shaper(id, errp);
    SluiceLimit parsed[SHAPER_RESOURCE__MAX];

    if (shaper && parse_limits(limits, parsed, errp)) {
        shaper_apply_ceiling(shaper, parsed);
    }
}
