/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The real cost of a disk request.
 *
 * Model. A class is charged for a request before the disk's work for it is known: a hit
 * in the host's cache costs the disk nothing, a seek many times as much as a
 * neighbouring sector. TAP section 5.1 therefore scales the charge afterwards, by 0 for
 * a hit in memory, 0.1 for one in the drive's cache, 1 for sequential access and 5 for
 * a seek, which it tells apart by processor cycles per byte against thresholds found by
 * hand. Here the thresholds are learnt, for each device by itself, while it runs.
 *
 * Learning. The kinds show as heaps in the distribution of latencies. These
 * are counted on a logarithmic scale, eight bins to an octave; counts are
 * halved when they have grown, so that an old device is forgotten when the
 * disk moves. After each LEARN_EVERY requests the histogram is smoothed and
 * cut into modes at its valleys: a valley is less than half as high as the
 * hills on both sides of it, and a mode has at least one in 64 of all requests.
 *
 * Which mode is which? Two facts of nature help. An arm needs milliseconds: modes whose
 * top is above ARM_NS are seeks if there is a faster mode. The slowest of the others is
 * the medium itself: its requests cost the bytes that they ask for. It and the seeks
 * must have one in MEDIUM_SHARE of all, for flash that is slow now and then, while it
 * tidies up, is no memory all the other time. A mode at least four times faster than
 * the medium is a cache: the host's memory if it answers within MEMORY_NS, else the
 * drive's. A single mode is always the medium: a request not known to be cheap is
 * charged in full.
 *
 * Large requests take longer for their bytes alone: latencies are scaled to
 * that of a small one by 64 KiB / (64 KiB + bytes).
 *
 * Which latency? A request's own, from its submission to its completion, is
 * the device's time for it only if it was alone: while others are served a
 * request only waits. Then the time since the completion before it tells more
 * of a device with one arm. It tells nothing of requests that were merged into
 * one, found done at the same look or served side by side: all but the first
 * seem to take no time. So a request that waited, and whose turn seems to have
 * been shorter than MEMORY_NS, is neither learnt from nor corrected; and only a request
 * that was that fast by its own time is a hit in a cache.
 *
 * Limits. A flash device has one mode and no seeks; a remote disk with more
 * than 2 ms of network has one mode, or caches; a disk that at times has many
 * requests at once and at times one may seem to have an arm. Hits behind other
 * requests are charged in full. Until LEARN_FIRST requests are learnt from
 * everything is the medium.
 */
#include <string.h>

#include "sluice/cost.h"

#define BIN_SHIFT           8           /* the first octave: 256 to 512 ns */
#define BINS_PER_OCTAVE     8
#define HALVE_AT            65536
#define LEARN_EVERY         256
#define LEARN_FIRST         512
#define MODES_MAX           8
#define MODE_SHARE          64          /* a mode has one in this many */
#define MEDIUM_SHARE        8           /* and the medium in this many */
#define CACHE_FACTOR        4
#define ARM_NS              2000000ULL
#define MEMORY_NS           100000ULL
#define SCALE_BYTES         65536ULL

typedef struct Mode {
    unsigned top;               /* its highest bin */
    unsigned end;               /* the bin after its last */
    uint64_t mass;              /* how many requests */
} Mode;

void sluice_cost_init(SluiceCostModel *model)
{
    memset(model, 0, sizeof(*model));
}

static unsigned bin_of(uint64_t latency_ns)
{
    unsigned octave, part;

    if (latency_ns < (1ULL << BIN_SHIFT)) {
        return 0;
    }
    octave = 63 - __builtin_clzll(latency_ns);
    part = latency_ns >> (octave - 3) & (BINS_PER_OCTAVE - 1);
    part += (octave - BIN_SHIFT) * BINS_PER_OCTAVE;
    return part < SLUICE_COST_BINS ? part : SLUICE_COST_BINS - 1;
}

/* Where a bin begins. */
static uint64_t latency_of(unsigned bin)
{
    unsigned octave = BIN_SHIFT + bin / BINS_PER_OCTAVE;

    return (uint64_t)(BINS_PER_OCTAVE + bin % BINS_PER_OCTAVE) << (octave - 3);
}

static uint64_t scaled(uint64_t latency_ns, uint32_t bytes)
{
    if (latency_ns > UINT64_MAX / SCALE_BYTES) {
        return latency_ns;
    }
    return latency_ns * SCALE_BYTES / (SCALE_BYTES + bytes);
}

/* A triangle over half an octave to either side, in 25ths. */
static void smooth(const SluiceCostModel *model, uint64_t *smoothed)
{
    for (int i = 0; i < SLUICE_COST_BINS; i++) {
        smoothed[i] = 0;
        for (int d = -4; d <= 4; d++) {
            if (i + d >= 0 && i + d < SLUICE_COST_BINS) {
                smoothed[i] += (uint64_t)model->bins[i + d]
                               * (5 - (d < 0 ? -d : d));
            }
        }
    }
}

static uint64_t mass_of(const SluiceCostModel *model, unsigned begin,
                        unsigned end)
{
    uint64_t mass = 0;

    for (unsigned i = begin; i < end; i++) {
        mass += model->bins[i];
    }
    return mass;
}

/*
 * Cuts the histogram at its valleys, from left to right: a mode ends at the
 * lowest bin after its top once the line has risen to more than twice that,
 * and its top was more than twice that too.
 */
static unsigned find_modes(const SluiceCostModel *model, Mode *modes)
{
    uint64_t height[SLUICE_COST_BINS];
    unsigned count = 0, begin = 0, top = 0, low = 0;
    uint64_t mass;

    smooth(model, height);
    for (unsigned i = 0; i <= SLUICE_COST_BINS; i++) {
        bool last = i == SLUICE_COST_BINS;

        if (!last && height[i] > height[top] && low == top) {
            top = low = i;
            continue;
        }
        if (!last && height[i] < height[low]) {
            low = i;
            continue;
        }
        if (!last && (height[i] <= 2 * height[low]
                      || height[top] <= 2 * height[low])) {
            /* Not a valley yet; a higher top belongs to the same mode. */
            if (height[i] > height[top]) {
                top = low = i;
            }
            continue;
        }
        mass = mass_of(model, begin, last ? i : low);
        if (count < MODES_MAX && mass * MODE_SHARE >= model->total) {
            modes[count++] = (Mode){ .top = top, .end = last ? i : low,
                                     .mass = mass };
            begin = low;
        }
        top = low = i;
    }
    return count;
}

static bool needs_arm(const Mode *mode)
{
    return latency_of(mode->top) >= ARM_NS;
}

/* The mode that is the medium itself: the slowest that needs no arm, if it and those that
 * do are enough. */
static unsigned find_medium(const SluiceCostModel *model, const Mode *modes,
                            unsigned count)
{
    uint64_t mass = 0;

    for (unsigned i = count - 1; i > 0; i--) {
        mass += modes[i].mass;
        if (!needs_arm(&modes[i]) && mass * MEDIUM_SHARE >= model->total) {
            return i;
        }
    }
    return 0;
}

static void learn(SluiceCostModel *model)
{
    Mode modes[MODES_MAX];
    unsigned count = find_modes(model, modes), medium;
    uint64_t medium_ns;

    model->host_cache_below_ns = 0;
    model->device_cache_below_ns = 0;
    model->seek_from_ns = 0;
    if (count == 0) {
        return;
    }
    medium = find_medium(model, modes, count);
    medium_ns = latency_of(modes[medium].top);
    for (unsigned i = 0; i < medium; i++) {
        uint64_t top_ns = latency_of(modes[i].top);

        if (top_ns * CACHE_FACTOR > medium_ns) {
            break;
        }
        if (top_ns <= MEMORY_NS) {
            model->host_cache_below_ns = latency_of(modes[i].end);
        }
        model->device_cache_below_ns = latency_of(modes[i].end);
    }
    for (unsigned i = count - 1; i > medium && needs_arm(&modes[i]); i--) {
        model->seek_from_ns = latency_of(modes[i - 1].end);
    }
}

static SluiceCostKind kind_of(const SluiceCostModel *model, uint64_t latency_ns)
{
    if (latency_ns < model->host_cache_below_ns) {
        return SLUICE_COST_HOST_CACHE;
    }
    if (latency_ns < model->device_cache_below_ns) {
        return SLUICE_COST_DEVICE_CACHE;
    }
    if (model->seek_from_ns && latency_ns >= model->seek_from_ns) {
        return SLUICE_COST_SEEK;
    }
    return SLUICE_COST_SEQUENTIAL;
}

static void count(SluiceCostModel *model, uint64_t latency_ns)
{
    model->bins[bin_of(latency_ns)]++;
    model->total++;
    model->since_learnt++;
    if (model->total >= LEARN_FIRST && model->since_learnt >= LEARN_EVERY) {
        model->since_learnt = 0;
        learn(model);
    }
    if (model->total >= HALVE_AT) {
        model->total = 0;
        for (unsigned i = 0; i < SLUICE_COST_BINS; i++) {
            model->bins[i] /= 2;
            model->total += model->bins[i];
        }
    }
}

SluiceCostKind sluice_cost_observe(SluiceCostModel *model, uint32_t bytes,
                                   uint64_t own_ns, uint64_t turn_ns)
{
    SluiceCostKind kind;

    own_ns = scaled(own_ns, bytes);
    turn_ns = scaled(turn_ns, bytes);
    if (turn_ns >= own_ns || own_ns <= MEMORY_NS) {
        count(model, own_ns);   /* alone, or so fast that it cannot have waited */
        return kind_of(model, own_ns);
    }
    if (turn_ns <= MEMORY_NS) {
        return SLUICE_COST_SEQUENTIAL;
    }
    count(model, turn_ns);
    kind = kind_of(model, turn_ns);
    return kind == SLUICE_COST_SEEK ? kind : SLUICE_COST_SEQUENTIAL;
}

int64_t sluice_cost_correction(SluiceCostKind kind, uint32_t charged)
{
    switch (kind) {
    case SLUICE_COST_HOST_CACHE:
        return -(int64_t)charged;
    case SLUICE_COST_DEVICE_CACHE:
        return -(int64_t)charged * 9 / 10;
    case SLUICE_COST_SEEK:
        return (int64_t)charged * 4;
    case SLUICE_COST_SEQUENTIAL:
        break;
    }
    return 0;
}
