/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QMP commands of the shaper, and "info shaper". A command is checked as a whole
 * (shaper-check.c) before anything changes. The text for people is made of the answer of
 * query-shapers, so that both agree.
 */
#include "qemu/osdep.h"
#include "monitor/monitor.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-sluice.h"
#include "qapi/qapi-visit-sluice.h"
#include "qapi/type-helpers.h"
#include "shaper-internal.h"

/* Commands */

void qmp_shaper_set_class(ShaperClassSetting *setting, Error **errp)
{
    Shaper *shaper = shaper_find(setting->id, errp);
    ShaperClassConfig *class =
        shaper ? shaper_complete_class(shaper->classes,
                                       qapi_ShaperClassSetting_base(setting),
                                       errp) : NULL;
    int old_tag;

    if (!class) {
        return;
    }
    old_tag = shaper_find_class(shaper->classes, setting->q_class);
    shaper_apply_class(shaper, class);
    if (old_tag >= 0 && old_tag != setting->tag) {
        shaper_apply_removal(shaper, old_tag, setting->tag);
    }
}

void qmp_shaper_remove_class(const char *id, const char *name, Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    int tag;

    if (!shaper) {
        return;
    }
    tag = shaper_find_class(shaper->classes, name);
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
    g_autoptr(ShaperLimitList) ceiling = QAPI_CLONE(ShaperLimitList, limits);

    if (shaper && shaper_complete_limits(&ceiling, errp)) {
        shaper_apply_ceiling(shaper, g_steal_pointer(&ceiling));
    }
}

/* query-shapers */

static ShaperDrops *drops_info(const ShaperPageCounters *counters)
{
    ShaperDrops *info = g_new0(ShaperDrops, 1);

    info->backlog = counters->drops[SHAPER_DROP_BACKLOG];
    info->codel = counters->drops[SHAPER_DROP_CODEL];
    info->connection = counters->drops[SHAPER_DROP_CONNECTION];
    info->window = counters->drops[SHAPER_DROP_WINDOW];
    info->reset = counters->drops[SHAPER_DROP_RESET];
    return info;
}

static void add_tokens(ShaperClassStats *info, SluiceTokens tokens)
{
    info->has_tokens_bytes = tokens.bytes != SLUICE_TOKENS_UNLIMITED;
    info->has_tokens_operations = tokens.operations != SLUICE_TOKENS_UNLIMITED;
    info->tokens_bytes = tokens.bytes;
    info->tokens_operations = tokens.operations;
}

static ShaperClassStats *stats_info(ShaperEngine *e, unsigned tag)
{
    ShaperClassStats *info = g_new0(ShaperClassStats, 1);
    SLUICE_LOCK_GUARD(&e->lock);
    const SluiceClassStats *stats = sluice_engine_stats(e->engine, tag);
    const ShaperPageCounters *counters = &e->counters[tag];

    info->resource = e->resource;
    info->requests = stats->requests;
    info->bytes = stats->bytes;
    info->held_requests = stats->held_requests;
    info->held_ns = stats->held_ns;
    info->backlog_requests = stats->backlog_requests;
    info->backlog_bytes = stats->backlog_bytes;
    info->dropped_requests = counters->dropped_requests;
    info->dropped_bytes = counters->dropped_bytes;
    info->drops = drops_info(counters);
    info->marked_requests = counters->marked_requests;
    info->untagged_requests = counters->untagged_requests;
    info->buffered_requests = e->queues[tag].buffered_frames;
    info->buffered_bytes = e->queues[tag].buffered_bytes;
    info->buffer_requests_max = e->queues[tag].room.frames;
    info->buffer_bytes_max = e->queues[tag].room.bytes;
    add_tokens(info, sluice_engine_tokens(e->engine, tag, shaper_now_ns()));
    info->in_flight = counters->in_flight;
    info->completed_requests = counters->completed_requests;
    info->service_ns = counters->service_ns;
    info->limited = e->watch[tag].limited;
    for (int i = SHAPER_PAGE_HISTOGRAM - 1; i >= 0; i--) {
        QAPI_LIST_PREPEND(info->held_histogram, counters->held_histogram[i]);
    }
    return info;
}

static ShaperClassInfo *class_info(Shaper *shaper, unsigned tag)
{
    ShaperClassInfo *info = g_new0(ShaperClassInfo, 1);

    QAPI_CLONE_MEMBERS(ShaperClassConfig, qapi_ShaperClassInfo_base(info),
                       shaper->classes[tag]);
    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        QAPI_LIST_PREPEND(info->stats, stats_info(&shaper->engines[i], tag));
    }
    return info;
}

static strList *devices_info(Shaper *shaper)
{
    strList *list = NULL;
    ShaperClient *client;
    DeviceState *previous = NULL;

    /* The clients of a device, one per queue, are neighbours. */
    QLIST_FOREACH(client, &shaper->clients, next) {
        if (client->device != previous) {
            QAPI_LIST_PREPEND(list, object_get_canonical_path(
                                        OBJECT(client->device)));
            previous = client->device;
        }
    }
    return list;
}

static int shaper_info(Object *obj, void *opaque)
{
    ShaperInfoList **list = opaque;
    Shaper *shaper = (Shaper *)object_dynamic_cast(obj, TYPE_SHAPER);
    ShaperInfo *info;

    if (!shaper) {
        return 0;
    }
    info = g_new0(ShaperInfo, 1);
    info->id = g_strdup(shaper_id(shaper));
    info->page = g_strdup(shaper->page_path);
    info->page_failures = shaper_page_failures(shaper->page);
    info->page_error = g_strdup(shaper_page_error(shaper->page));
    info->devices = devices_info(shaper);
    info->ceiling = QAPI_CLONE(ShaperLimitList, shaper->ceiling);
    info->gate = shaper_gate_info(shaper);
    info->groups = shaper_groups_info(shaper);
    for (int tag = SHAPER_CLASSES - 1; tag >= 0; tag--) {
        if (shaper->classes[tag]) {
            QAPI_LIST_PREPEND(info->classes, class_info(shaper, tag));
        }
    }
    QAPI_LIST_PREPEND(*list, info);
    return 0;
}

ShaperInfoList *qmp_query_shapers(Error **errp)
{
    ShaperInfoList *list = NULL;

    object_child_foreach(object_get_objects_root(), shaper_info, &list);
    return list;
}

/* info shaper */

static void print_rate(GString *text, uint64_t rate, uint64_t burst,
                       const char *unit)
{
    if (rate) {
        g_string_append_printf(text, " %" PRIu64 " %s/s (burst %" PRIu64 ")",
                               rate, unit, burst);
    }
}

static void print_limit(GString *text, const ShaperLimitList *limits,
                        ShaperResource resource)
{
    for (; limits; limits = limits->next) {
        const ShaperLimit *limit = limits->value;

        if (limit->resource == resource) {
            g_string_append(text, ", limit");
            print_rate(text, limit->bytes_per_second, limit->burst_bytes, "B");
            print_rate(text, limit->operations_per_second,
                       limit->burst_operations, "operations");
        }
    }
}

static void print_tokens(GString *text, const ShaperClassStats *stats)
{
    if (stats->has_tokens_bytes) {
        g_string_append_printf(text, ", tokens %" PRId64 " B",
                               stats->tokens_bytes);
    }
    if (stats->has_tokens_operations) {
        g_string_append_printf(text, ", tokens %" PRId64 " operations",
                               stats->tokens_operations);
    }
}

static void print_stats(GString *text, const ShaperClassInfo *class,
                        const ShaperClassStats *stats)
{
    uint64_t mean_us = stats->held_requests
                       ? stats->held_ns / stats->held_requests / SCALE_US : 0;

    g_string_append_printf(text, "    %s: %" PRIu64 " requests, %" PRIu64
                           " bytes", ShaperResource_str(stats->resource),
                           stats->requests, stats->bytes);
    print_limit(text, class->limits, stats->resource);
    print_tokens(text, stats);
    if (stats->held_requests || stats->backlog_requests) {
        g_string_append_printf(text, ", held %" PRIu64 " (mean %" PRIu64
                               " us), waiting %" PRIu64 " (%" PRIu64
                               " bytes)", stats->held_requests, mean_us,
                               stats->backlog_requests, stats->backlog_bytes);
    }
    if (stats->dropped_requests) {
        g_string_append_printf(text, ", dropped %" PRIu64,
                               stats->dropped_requests);
    }
    if (stats->in_flight) {
        g_string_append_printf(text, ", in flight %" PRIu64, stats->in_flight);
    }
    g_string_append(text, stats->limited ? ", limited\n" : "\n");
}

static void print_class(GString *text, const ShaperClassInfo *class)
{
    g_string_append_printf(text, "  class %s: tag %" PRId64 ", priority %"
                           PRId64 "\n", class->q_class, class->tag,
                           class->priority);
    for (ShaperClassStatsList *s = class->stats; s; s = s->next) {
        print_stats(text, class, s->value);
    }
}

static void print_gate(GString *text, const ShaperGateInfo *gate)
{
    g_string_append_printf(text, "  gate: latency %" PRId64 " us\n",
                           gate->target_ns / SCALE_US);
    for (strList *s = gate->streams; s; s = s->next) {
        g_string_append_printf(text, "    stream %s\n", s->value);
    }
    for (ShaperGateStateList *r = gate->resources; r; r = r->next) {
        const ShaperGateState *state = r->value;

        g_string_append_printf(text, "    %s: window %" PRIu64 " bytes, in flight %"
                               PRIu64 " bytes, held %" PRIu64 " us\n",
                               ShaperResource_str(state->resource),
                               state->window_bytes, state->in_flight_bytes,
                               state->held_ns / SCALE_US);
    }
}

static void print_shaper(GString *text, const ShaperInfo *info)
{
    g_string_append_printf(text, "%s: page %s\n", info->id,
                           info->page ?: "none");
    if (info->page_error) {
        g_string_append_printf(text, "  %s\n", info->page_error);
    }
    for (strList *d = info->devices; d; d = d->next) {
        g_string_append_printf(text, "  device %s\n", d->value);
    }
    for (ShaperLimitList *l = info->ceiling; l; l = l->next) {
        g_string_append_printf(text, "  ceiling %s",
                               ShaperResource_str(l->value->resource));
        print_limit(text, l, l->value->resource);
        g_string_append(text, "\n");
    }
    for (ShaperMembershipList *g = info->groups; g; g = g->next) {
        g_string_append_printf(text, "  group %s: %s, weight %" PRId64 "\n",
                               ShaperResource_str(g->value->resource),
                               g->value->group, g->value->weight);
    }
    if (info->gate) {
        print_gate(text, info->gate);
    }
    for (ShaperClassInfoList *c = info->classes; c; c = c->next) {
        print_class(text, c->value);
    }
}

HumanReadableText *qmp_x_query_shaper(Error **errp)
{
    g_autoptr(GString) text = g_string_new("");
    ShaperInfoList *list = qmp_query_shapers(errp);

    for (ShaperInfoList *s = list; s; s = s->next) {
        print_shaper(text, s->value);
    }
    if (!list) {
        g_string_append(text, "no shaper; -object shaper makes one\n");
    }
    qapi_free_ShaperInfoList(list);
    return human_readable_text_from_str(text);
}

static void info_register(void)
{
    monitor_register_hmp_info_hrt("shaper", qmp_x_query_shaper);
}

type_init(info_register);
