/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ranks of flows (dynamic priority, TAP section 5.2). The paper ranks threads by
 * the bytes that they have used since they accepted a connection. Here a class ranks
 * its flows, for which the caller gives a hash, by the bytes they have brought:
 *
 *     level = 0 below 4 KiB, 1 below 8 KiB, and so on, 7 from 256 KiB on
 *
 * Latency-oriented, level 0 goes first: a short answer overtakes a long one.
 * Throughput-oriented, level 7 goes first: a flow that has begun is finished. The
 * ranks are of the class: its share among other classes is as without them, so a
 * guest that cuts its traffic into short flows gains nothing from others. The queue
 * of a class is one list in order of levels, with the last node of each level
 * known: insertion takes constant time.
 *
 * A flow is never reordered: while it has requests held, its level does not
 * improve. A flow that was silent for a second begins anew. Flows live in a table
 * of 128 slots by hash; two that meet in one are ranked as one, unless the
 * first has nothing held, which then makes room.
 */
#include <string.h>

#include "engine-internal.h"

#define FLOW_FIRST_BITS     12          /* level 0 ends at 4 KiB */
#define FLOW_SILENCE_NS     1000000000ULL

static Flow *slot_of(SluiceClass *class, uint32_t hash)
{
    return &class->extra->flows[(hash ^ hash >> 16) % FLOW_SLOTS];
}

static Flow *flow_of(SluiceClass *class, uint32_t hash, uint64_t now_ns)
{
    Flow *flow = slot_of(class, hash);

    if (flow->held == 0
        && (flow->hash != hash || now_ns - flow->seen_ns > FLOW_SILENCE_NS)) {
        flow->bytes = 0;
        flow->hash = hash;
    }
    flow->seen_ns = now_ns;
    return flow;
}

static uint8_t level_of(const SluiceClass *class, const Flow *flow)
{
    uint64_t steps = flow->bytes >> FLOW_FIRST_BITS;
    unsigned level = steps ? 64 - __builtin_clzll(steps) : 0;

    if (level >= SLUICE_FLOW_LEVELS) {
        level = SLUICE_FLOW_LEVELS - 1;
    }
    if (class->extra->dynamic == SLUICE_DYNAMIC_THROUGHPUT) {
        level = SLUICE_FLOW_LEVELS - 1 - level;
    }
    if (flow->held > 0 && level < flow->level) {
        return flow->level;     /* else it would overtake itself */
    }
    return level;
}

void flow_passed(SluiceClass *class, uint32_t hash, uint32_t bytes,
                 uint64_t now_ns)
{
    flow_of(class, hash, now_ns)->bytes += bytes;
}

/* The node after which one of this level goes, or NULL: in front. */
static SluiceNode *predecessor(const SluiceSpecial *extra, unsigned level)
{
    for (unsigned l = level + 1; l-- > 0; ) {
        if (extra->last[l]) {
            return extra->last[l];
        }
    }
    return NULL;
}

void flow_insert(SluiceClass *class, SluiceNode *node, uint64_t now_ns)
{
    SluiceSpecial *extra = class->extra;
    Flow *flow = flow_of(class, node->flow, now_ns);
    SluiceNode *before;

    node->level = flow->level = level_of(class, flow);
    node->of_flow = true;
    flow->bytes += node->bytes;
    flow->held++;
    before = predecessor(extra, node->level);
    node->next = before ? before->next : class->oldest;
    *(before ? &before->next : &class->oldest) = node;
    if (!node->next) {
        class->newest = node;
    }
    extra->last[node->level] = node;
}

void flow_removed(SluiceClass *class, const SluiceNode *node,
                  SluiceNode *before)
{
    SluiceSpecial *extra = class->extra;

    if (extra->last[node->level] == node) {
        bool more = before && before->level == node->level;

        extra->last[node->level] = more ? before : NULL;
    }
    if (node->of_flow) {
        slot_of(class, node->flow)->held--;
    }
}

/* Held requests stay in their order, as requests of no flow. */
void flows_configure(SluiceClass *class, uint8_t dynamic)
{
    SluiceSpecial *extra = class->extra;

    if (extra->dynamic == dynamic) {
        return;
    }
    extra->dynamic = dynamic;
    memset(extra->flows, 0, sizeof(extra->flows));
    memset(extra->last, 0, sizeof(extra->last));
    for (SluiceNode *node = class->oldest; node; node = node->next) {
        node->of_flow = false;
        node->level = 0;
    }
    extra->last[0] = class->newest;
}
