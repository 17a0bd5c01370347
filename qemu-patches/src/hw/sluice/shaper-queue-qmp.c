/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What QMP says about queues of frames: checked as a whole, and shown. */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "shaper-internal.h"

#define LIMIT_BYTES_MAX             (1 << 26)
#define LIMIT_PACKETS_MAX           (1 << 18)
#define BURST_TIME_DIVISOR          20          /* default: 1/20 s */

static bool parse_connections(const ShaperQueue *in, ShaperQueueConfig *out,
                              Error **errp)
{
    int64_t rate = in->connections_per_second;

    if (!in->has_connections_per_second) {
        if (in->has_burst_connections) {
            error_setg(errp, "burst-connections %" PRId64 " has no rate; give "
                       "connections-per-second too", in->burst_connections);
        }
        return !in->has_burst_connections;
    }
    if (in->resource != SHAPER_RESOURCE_NET_RX) {
        error_setg(errp, "connections-per-second %" PRId64 " does not go with "
                   "resource '%s'; new connections are counted where they come "
                   "in, use net-rx", rate, ShaperResource_str(in->resource));
        return false;
    }
    if (!shaper_check_range("connections-per-second", rate, 1, SLUICE_RATE_MAX,
                            errp)
        || (in->has_burst_connections
            && !shaper_check_range("burst-connections", in->burst_connections,
                                   1, SLUICE_BURST_MAX, errp))) {
        return false;
    }
    out->connections_per_second = rate;
    out->burst_connections = in->has_burst_connections
                             ? in->burst_connections
                             : MAX(rate / BURST_TIME_DIVISOR, 1);
    return true;
}

static bool parse_queue(const ShaperQueue *in, ShaperQueueConfig *out,
                        Error **errp)
{
    if (shaper_is_disk(in->resource)) {
        error_setg(errp, "queues: resource '%s' has none; disk requests are "
                   "never dropped, use net-tx or net-rx",
                   ShaperResource_str(in->resource));
        return false;
    }
    if ((in->has_limit_bytes
         && !shaper_check_range("limit-bytes", in->limit_bytes, 1,
                                LIMIT_BYTES_MAX, errp))
        || (in->has_limit_packets
            && !shaper_check_range("limit-packets", in->limit_packets, 1,
                                   LIMIT_PACKETS_MAX, errp))) {
        return false;
    }
    out->limit_bytes = in->has_limit_bytes ? in->limit_bytes : 0;
    out->limit_packets = in->has_limit_packets ? in->limit_packets : 0;
    out->codel = in->has_aqm && in->aqm == SHAPER_AQM_CODEL;
    out->ecn = in->has_ecn && in->ecn;
    if (out->ecn && !out->codel) {
        error_setg(errp, "ecn true marks nothing without aqm; give aqm "
                   "'codel' too");
        return false;
    }
    return parse_connections(in, out, errp);
}

bool shaper_parse_queues(ShaperQueueList *list,
                         ShaperQueueConfig queues[SHAPER_RESOURCE__MAX],
                         Error **errp)
{
    unsigned seen = 0;

    memset(queues, 0, sizeof(*queues) * SHAPER_RESOURCE__MAX);
    for (; list; list = list->next) {
        ShaperResource resource = list->value->resource;

        if (seen & (1u << resource)) {
            error_setg(errp, "queues: resource '%s' is given twice; give it "
                       "once", ShaperResource_str(resource));
            return false;
        }
        seen |= 1u << resource;
        if (!parse_queue(list->value, &queues[resource], errp)) {
            return false;
        }
    }
    return true;
}

ShaperQueueList *shaper_queues_info(
    const ShaperQueueConfig queues[SHAPER_RESOURCE__MAX])
{
    ShaperQueueList *list = NULL;

    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        const ShaperQueueConfig *queue = &queues[i];
        ShaperQueue *info;

        if (!queue->limit_bytes && !queue->limit_packets && !queue->codel
            && !queue->connections_per_second) {
            continue;
        }
        info = g_new0(ShaperQueue, 1);
        info->resource = i;
        info->has_limit_bytes = queue->limit_bytes > 0;
        info->limit_bytes = queue->limit_bytes;
        info->has_limit_packets = queue->limit_packets > 0;
        info->limit_packets = queue->limit_packets;
        info->has_aqm = info->has_ecn = true;
        info->aqm = queue->codel ? SHAPER_AQM_CODEL : SHAPER_AQM_NONE;
        info->ecn = queue->ecn;
        info->has_connections_per_second = info->has_burst_connections =
            queue->connections_per_second > 0;
        info->connections_per_second = queue->connections_per_second;
        info->burst_connections = queue->burst_connections;
        QAPI_LIST_PREPEND(list, info);
    }
    return list;
}
