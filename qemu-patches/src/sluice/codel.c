/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CoDel, after RFC 8289 (section 5 has the pseudocode).
 *
 * Model. A queue is good as long as it drains now and then: the shortest wait
 * within an interval tells a burst (good) from a standing queue (bad). So a
 * frame that leaves after less than the target, or that leaves hardly a frame
 * behind, ends the suspicion. When every frame for a whole interval has waited
 * longer, the queue begins to signal: once at once, then at intervals that
 * shrink with the square root of the number of signals, because the rate of a
 * TCP sender goes with the square root of its losses. A queue that is bad again
 * soon after it was good continues near the rate at which it had stopped.
 *
 * Target. Where one large frame takes longer than the target at the queue's
 * rate, waiting for it is no congestion: the target is then one and a half such
 * frames (RFC 8289 section 4.4 asks for at least one), and the interval grows
 * by as much.
 *
 * Invariants.
 * - No signal before the wait of every frame for one interval was above target.
 * - No signal while not more than one largest frame is left behind.
 * - Between two signals within one spell lies interval / sqrt(count), count
 *   from one signal to the next.
 *
 * Limits. Interval and target end at 2^32 ns (4.3 s): a queue whose frames
 * take longer than that each is not one for CoDel. Counters of a hostile
 * sender saturate.
 */
#include "sluice/codel.h"

#define NANOSECONDS_PER_SECOND  1000000000ULL
/* A new spell within so many intervals continues the last one. */
#define MEMORY_INTERVALS        16

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The largest whole number whose square is not above n; bit by bit. */
static uint64_t square_root(uint64_t n)
{
    uint64_t root = 0;

    for (uint64_t bit = 1ULL << 62; bit; bit >>= 2) {
        if (n >= root + bit) {
            n -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return root;
}

/* interval / sqrt(count), as the root of interval^2 / count */
static uint64_t gap_ns(const SluiceCodel *codel)
{
    return square_root(codel->interval_ns * codel->interval_ns / codel->count);
}

void sluice_codel_configure(SluiceCodel *codel, uint64_t bytes_per_second,
                            uint32_t largest_bytes)
{
    uint64_t frame_ns = 0;
    uint64_t wait_ns;

    if (bytes_per_second) {
        frame_ns = largest_bytes * NANOSECONDS_PER_SECOND / bytes_per_second;
    }
    wait_ns = lower(frame_ns + frame_ns / 2, SLUICE_CODEL_INTERVAL_MAX_NS);
    codel->target_ns = SLUICE_CODEL_TARGET_NS;
    codel->interval_ns = SLUICE_CODEL_INTERVAL_NS;
    if (wait_ns > codel->target_ns) {
        codel->interval_ns += wait_ns - codel->target_ns;
        codel->target_ns = wait_ns;
    }
    codel->interval_ns = lower(codel->interval_ns,
                               SLUICE_CODEL_INTERVAL_MAX_NS);
}

/* Has every frame for an interval waited too long? */
static bool stands(SluiceCodel *codel, uint64_t waited_ns, uint64_t bytes_left,
                   uint32_t largest_bytes, uint64_t now_ns)
{
    if (waited_ns < codel->target_ns || bytes_left <= largest_bytes) {
        codel->above = false;
        return false;
    }
    if (!codel->above) {
        codel->above = true;
        codel->tolerated_until_ns = now_ns + codel->interval_ns;
        return false;
    }
    return now_ns >= codel->tolerated_until_ns;
}

static void begin_spell(SluiceCodel *codel, uint64_t now_ns)
{
    uint32_t gained = codel->count - codel->count_at_start;
    bool recent = now_ns < codel->next_signal_ns
                  || now_ns - codel->next_signal_ns
                     < MEMORY_INTERVALS * codel->interval_ns;

    codel->signalling = true;
    codel->count = gained > 1 && recent ? gained : 1;
    codel->count_at_start = codel->count;
    codel->next_signal_ns = now_ns + gap_ns(codel);
}

bool sluice_codel_dequeue(SluiceCodel *codel, uint64_t waited_ns,
                          uint64_t bytes_left, uint32_t largest_bytes,
                          uint64_t now_ns)
{
    if (!stands(codel, waited_ns, bytes_left, largest_bytes, now_ns)) {
        codel->signalling = false;
        return false;
    }
    if (!codel->signalling) {
        begin_spell(codel, now_ns);
        return true;
    }
    if (now_ns < codel->next_signal_ns) {
        return false;
    }
    if (codel->count < UINT32_MAX) {
        codel->count++;
    }
    codel->next_signal_ns += gap_ns(codel);
    return true;
}
