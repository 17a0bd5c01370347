/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's bucket written down a second time, in the plainest way: a level in
 * 10^-9 units that grows by `rate` each nanosecond. It is exact, slow, and
 * shares no arithmetic with the engine.
 *
 * How far the two may differ. The engine rounds the tolerance down to whole
 * nanoseconds and looks at whole nanoseconds of TAT only: a decision may be
 * off by less than 1 ns each way. A change of configuration rounds once more
 * at the old rate (tolerance) and once at the new one (TAT). `slack` adds this
 * up in 10^-9 units; it never needs to grow by the number of requests, because
 * the engine carries fractions. (The unit time is rounded up by 2^-64 ns per
 * unit: 2^32 requests of 2^32 units would make 1 ns. One more ns covers it.)
 */
#ifndef SLUICE_TESTS_EXACT_BUCKET_H
#define SLUICE_TESTS_EXACT_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/engine.h"

__extension__ typedef __int128 Wide;

#define NANO    1000000000

typedef struct ExactBucket {
    uint64_t rate;              /* 0: unlimited */
    Wide size;                  /* 10^-9 units, as below */
    Wide late;                  /* beyond the size, while a request waits */
    Wide level;
    Wide slack;
    uint64_t seen_ns;
} ExactBucket;

static inline void exact_advance(ExactBucket *bucket, uint64_t now_ns)
{
    bucket->level += (Wide)bucket->rate * (now_ns - bucket->seen_ns);
    if (bucket->level > bucket->size + bucket->late) {
        bucket->level = bucket->size + bucket->late;
    }
    bucket->seen_ns = now_ns;
}

/* Time to be caught up with is forgotten. */
static inline void exact_forget_late(ExactBucket *bucket)
{
    if (bucket->level > bucket->size) {
        bucket->level = bucket->size;
    }
}

/* No request has waited until now: all but this of it is. */
static inline void exact_forget_idleness(ExactBucket *bucket, uint64_t kept_ns)
{
    Wide kept = bucket->late ? (Wide)bucket->rate * kept_ns : 0;

    if (bucket->level > bucket->size + kept) {
        bucket->level = bucket->size + kept;
    }
}

static inline void exact_configure(ExactBucket *bucket, uint64_t rate,
                                   uint64_t burst, uint64_t now_ns)
{
    bool was_limited = bucket->rate > 0;
    Wide least = rate, most = (Wide)rate * SLUICE_CLOCK_MAX_NS;

    exact_advance(bucket, now_ns);
    exact_forget_late(bucket);
    bucket->slack = (was_limited ? bucket->slack + bucket->rate : 0)
                    + 3 * (Wide)rate;
    bucket->rate = rate;
    /* As documented: at least 1 ns and at most 2^62 ns of the rate. */
    bucket->size = (Wide)burst * NANO;
    bucket->size = bucket->size < least ? least : bucket->size;
    bucket->size = bucket->size > most ? most : bucket->size;
    bucket->late = 0;
    if (!was_limited || bucket->level > bucket->size) {
        bucket->level = bucket->size;
    }
}

/* A leaky bucket's schedule goes on while a request waits, for so long. */
static inline void exact_allow_late(ExactBucket *bucket, uint64_t late_max_ns)
{
    bucket->late = (Wide)bucket->rate * late_max_ns;
}

static inline void exact_charge(ExactBucket *bucket, uint64_t units)
{
    if (bucket->rate > 0) {
        bucket->level -= (Wide)units * NANO;
    }
}

/* Negative units are put back, up to a full bucket; that rounds once. */
static inline void exact_correct(ExactBucket *bucket, int64_t units)
{
    if (bucket->rate == 0) {
        return;
    }
    exact_forget_late(bucket);
    bucket->level -= (Wide)units * NANO;
    exact_forget_late(bucket);
    bucket->slack += units < 0 ? 2 * (Wide)bucket->rate : 0;
}

/* A request that went on had a token, as far as rounding can tell. */
static inline bool exact_may_pass(const ExactBucket *bucket)
{
    return bucket->rate == 0 || bucket->level > -bucket->slack;
}

/* There certainly was a token: holding a request would be wrong. */
static inline bool exact_must_pass(const ExactBucket *bucket)
{
    return bucket->rate == 0 || bucket->level > bucket->slack;
}

#endif
