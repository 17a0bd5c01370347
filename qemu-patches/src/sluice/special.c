/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What only some classes have: leaky buckets, flows, a window constraint.
 *
 * Leaky bucket (TAP section 5.2): a bucket without burst. After one request the
 * next goes when the first is paid, however long the class was idle. But timers
 * are late, and what a class loses by that, it would lose each time: a tenth of a
 * millisecond where one request is due each millisecond is a tenth of the rate. So
 * while a class waits, its schedule goes on, whether or not somebody came to release
 * what was due, and is caught up with, at most by SLUICE_LEAKY_LATE_MAX_NS: what goes in
 * any time t is no more than rate * (t + that) and a request. (In ITU-T I.371 this is
 * the tolerance of the cell delay variation.) Guests are late, too: with few requests
 * outstanding, near what the disk can do, there is now and then a moment in which none
 * waits. So a request that comes up to SLUICE_LEAKY_IDLE_MAX_NS after it could have gone
 * keeps the schedule as well; what is longer is idleness, and is worth no more than that.
 *
 * Peak rate (token bucket followed by a leaky bucket, TAP section 5.2). A
 * second bucket of bytes, a leaky one, at the peak rate: both must have a
 * token. So the burst of the first passes, but no faster than the peak.
 *
 * Flows (dynamic priority, TAP section 5.2). The paper ranks threads by what
 * they have used since they accepted a connection. Here a class ranks its
 * flows, for which the caller gives a hash, by the bytes they have brought:
 *
 *     level = 0 below 4 KiB, 1 below 8 KiB, and so on, 7 from 256 KiB on
 *
 * Latency-oriented, level 0 goes first: a short answer overtakes a long one.
 * Throughput-oriented, level 7 goes first: what has begun is finished. The
 * ranks are of the class: its share among other classes is what it would be
 * without, so a guest that cuts its traffic into short flows gains nothing
 * from others. The queue of a class is one list in order of levels, with the
 * last node of each level known: insertion takes constant time.
 *
 * A flow is never reordered: while it has requests held, its level does not
 * improve. One that was silent for a second begins anew. Flows live in a table
 * of 128 slots by hash; two that meet in one are ranked as one, unless the
 * first has nothing held, which then makes room.
 *
 * Window constraint (DWCS: West and Schwan, ICMCS 1999; ECalls section 5). Per
 * period a number of bytes is to be served: a reservation of that rate. Its
 * due time says when service of the next request may begin, one period later
 * the request is late. Of each window of `of` requests `may_miss` may be late.
 * Such a request is dropped, or, where nothing may be dropped, it gives up its
 * reserved turn and waits for one that its weight and priority earn. Either
 * way the classes whose windows are used up get the time: the rule that the
 * tightest window goes first. When the window is used up, a late request is
 * served like any reserved one and counted as a violation. Demand is feasible
 * if the sum of bytes / period * (1 - may_miss / of) is below the ceiling.
 */
#include <stdlib.h>
#include <string.h>

#include "engine-inline.h"

#define FLOW_SLOTS          128
#define FLOW_FIRST_BITS     12          /* level 0 ends at 4 KiB */
#define FLOW_SILENCE_NS     1000000000ULL
#define NANOSECONDS_PER_SECOND  1000000000ULL

typedef struct Flow {
    uint64_t bytes;
    uint64_t seen_ns;
    uint32_t hash;
    uint32_t held;
    uint8_t level;              /* of its newest held request */
} Flow;

struct SluiceSpecial {
    SluiceBucket peak;
    SluiceWindow window;
    uint16_t window_seen;
    uint16_t window_missed;
    SluiceWindowStats window_stats;
    SluiceNode *last[SLUICE_FLOW_LEVELS];
    Flow flows[FLOW_SLOTS];
    uint8_t dynamic;
};

SluiceSpecial *special_new(void)
{
    return calloc(1, sizeof(SluiceSpecial));
}

/* Leaky buckets */

bool special_conforms(const SluiceClass *class, uint64_t now_ns)
{
    return !(class->special & SPECIAL_PEAK)
           || bucket_conforms(&class->extra->peak, now_ns);
}

int64_t special_due_ns(const SluiceClass *class)
{
    return class->special & SPECIAL_PEAK ? class->extra->peak.due_ns : 0;
}

static void charge_buckets(SluiceClass *class, uint32_t bytes, uint64_t now_ns,
                           uint64_t leaky_now_ns)
{
    charge_class(class, bytes,
                 class->special & SPECIAL_LEAKY ? leaky_now_ns : now_ns);
    if (class->special & SPECIAL_PEAK) {
        bucket_charge(&class->extra->peak, bytes, leaky_now_ns);
    }
}

static uint64_t before_ns(uint64_t now_ns, uint64_t by_ns)
{
    return later_ns(now_ns, by_ns) - by_ns;
}

void special_charge(SluiceClass *class, uint32_t bytes, uint64_t now_ns)
{
    charge_buckets(class, bytes, now_ns,
                   before_ns(now_ns, SLUICE_LEAKY_IDLE_MAX_NS));
}

void special_charge_held(SluiceClass *class, uint32_t bytes, uint64_t now_ns)
{
    charge_buckets(class, bytes, now_ns,
                   before_ns(now_ns, SLUICE_LEAKY_LATE_MAX_NS));
}

static void forget_idleness(SluiceBucket *bucket, uint64_t now_ns)
{
    bucket->due_ns = bucket_start_ns(bucket, now_ns);
}

void special_begin_waiting(SluiceClass *class, uint64_t now_ns)
{
    now_ns = before_ns(now_ns, SLUICE_LEAKY_IDLE_MAX_NS);
    if (class->special & SPECIAL_LEAKY) {
        forget_idleness(&class->bytes, now_ns);
        forget_idleness(&class->operations, now_ns);
    }
    if (class->special & SPECIAL_PEAK) {
        forget_idleness(&class->extra->peak, now_ns);
    }
}

/* Flows */

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

void special_flow_passed(SluiceClass *class, uint32_t hash, uint32_t bytes,
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

void special_flow_insert(SluiceClass *class, SluiceNode *node, uint64_t now_ns)
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

void special_flow_removed(SluiceClass *class, const SluiceNode *node,
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
static void restart_flows(SluiceClass *class)
{
    SluiceSpecial *extra = class->extra;

    memset(extra->flows, 0, sizeof(extra->flows));
    memset(extra->last, 0, sizeof(extra->last));
    for (SluiceNode *node = class->oldest; node; node = node->next) {
        node->of_flow = false;
        node->level = 0;
    }
    extra->last[0] = class->newest;
}

/* Window constraint */

static void window_count(SluiceSpecial *extra, bool missed)
{
    extra->window_missed += missed;
    if (++extra->window_seen >= extra->window.of) {
        extra->window_seen = 0;
        extra->window_missed = 0;
    }
}

WindowVerdict special_window_judge(SluiceClass *class, SluiceNode *node,
                                   uint64_t now_ns)
{
    SluiceSpecial *extra = class->extra;
    int64_t late_ns = class->reservation.due_ns
                      + (int64_t)extra->window.period_ns;

    if ((int64_t)now_ns <= late_ns || node->late) {
        return WINDOW_SERVE;
    }
    if (extra->window_missed >= extra->window.may_miss) {
        extra->window_stats.violations++;
        window_count(extra, false);
        node->late = SLUICE_LATE;
        return WINDOW_SERVE;
    }
    extra->window_stats.late_requests++;
    window_count(extra, true);
    if (extra->window.may_drop) {
        node->late = SLUICE_LATE_DROP;
        return WINDOW_DROP;
    }
    node->late = SLUICE_LATE;
    return WINDOW_FORFEIT;
}

void special_window_served(SluiceClass *class)
{
    window_count(class->extra, false);
}

SluiceWindowStats special_window_stats(const SluiceClass *class)
{
    return class->extra ? class->extra->window_stats : (SluiceWindowStats){ 0 };
}

uint64_t special_window_period_ns(const SluiceClass *class)
{
    return class->special & SPECIAL_WINDOW ? class->extra->window.period_ns : 0;
}

/* Configuration */

static bool same_window(const SluiceWindow *a, const SluiceWindow *b)
{
    return a->period_ns == b->period_ns && a->bytes == b->bytes
           && a->may_miss == b->may_miss && a->of == b->of;
}

void special_configure(SluiceClass *class, const SluiceClassConfig *config,
                       uint64_t now_ns)
{
    SluiceSpecial *extra = class->extra;
    bool peak = config->policy == SLUICE_POLICY_TOKEN_LEAKY;

    class->special = (class->special & SPECIAL_HOLDS)
                     | (config->unmanaged ? SPECIAL_UNMANAGED : 0)
                     | (config->policy == SLUICE_POLICY_LEAKY_BUCKET
                        ? SPECIAL_LEAKY : 0)
                     | (peak ? SPECIAL_PEAK : 0)
                     | (config->dynamic ? SPECIAL_DYNAMIC : 0)
                     | (config->window.period_ns ? SPECIAL_WINDOW : 0);
    if (!extra) {
        return;
    }
    sluice_bucket_configure(&extra->peak,
                            peak ? config->peak_bytes_per_second : 0, 0,
                            now_ns);
    if (extra->dynamic != config->dynamic) {
        extra->dynamic = config->dynamic;
        restart_flows(class);
    }
    if (!same_window(&extra->window, &config->window)) {
        extra->window_seen = 0;
        extra->window_missed = 0;
    }
    extra->window = config->window;
}

uint64_t special_reservation(const SluiceClassConfig *config)
{
    const SluiceWindow *window = &config->window;

    if (!window->period_ns) {
        return config->reservation_bytes_per_second;
    }
    return (window->bytes * NANOSECONDS_PER_SECOND + window->period_ns - 1)
           / window->period_ns;
}
