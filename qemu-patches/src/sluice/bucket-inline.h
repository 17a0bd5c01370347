/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The bucket's decision and charge, inline for the engine's data path. The
 * essay is in bucket.c.
 */
#ifndef SLUICE_BUCKET_INLINE_H
#define SLUICE_BUCKET_INLINE_H

#include "sluice/engine.h"

__extension__ typedef unsigned __int128 SluiceU128;
__extension__ typedef __int128 SluiceI128;

/* Debt ends here: the clock's last value and as much again beyond it. */
#define SLUICE_DUE_MAX_NS   INT64_MAX

static inline bool bucket_is_limited(const SluiceBucket *bucket)
{
    return (bucket->unit_ns | bucket->unit_fraction) > 0;
}

static inline bool bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns)
{
    return (int64_t)now_ns >= bucket->due_ns;
}

/* Where a charge begins: the due time, or that of a full bucket. */
static inline int64_t bucket_start_ns(const SluiceBucket *bucket,
                                      uint64_t now_ns)
{
    int64_t full_ns = (int64_t)now_ns - (int64_t)bucket->slack_ns;

    return bucket->due_ns > full_ns ? bucket->due_ns : full_ns;
}

/*
 * For a bucket that conforms, and units up to 2^32 - 1: these take less than
 * 2^62 ns, so the sum stays below 2^63. Without a rate a unit takes no time:
 * an unlimited bucket needs no branch. The fraction stays when the bucket was
 * full: that delays by less than 1 ns, and not again by the next charge.
 */
static inline void bucket_charge(SluiceBucket *bucket, uint32_t units,
                                 uint64_t now_ns)
{
    int64_t start_ns = bucket_start_ns(bucket, now_ns);
    uint64_t whole_ns = (uint64_t)start_ns + (uint64_t)units * bucket->unit_ns;
    SluiceU128 due = (SluiceU128)whole_ns << 64 | bucket->fraction;

    due += (SluiceU128)units * bucket->unit_fraction;
    bucket->fraction = (uint64_t)due;
    bucket->due_ns = (int64_t)(due >> 64);
}

/* As above, for one unit. */
static inline void bucket_charge_one(SluiceBucket *bucket, uint64_t now_ns)
{
    int64_t start_ns = bucket_start_ns(bucket, now_ns);
    uint64_t whole_ns = (uint64_t)start_ns + bucket->unit_ns, fraction;

    whole_ns += __builtin_add_overflow(bucket->fraction, bucket->unit_fraction,
                                       &fraction);
    bucket->fraction = fraction;
    bucket->due_ns = (int64_t)whole_ns;
}

/*
 * The reservation of a class: a bucket without slack that never fills. The due
 * time of each service is that of the one before and its units.
 */
typedef struct Turns {
    uint32_t unit_ns;           /* as in SluiceBucket */
    int64_t due_ns;
    uint64_t fraction;
    uint64_t unit_fraction;
} __attribute__((packed, aligned(4))) Turns;

static inline void turns_charge(Turns *turns, uint32_t units)
{
    SluiceU128 due = ((SluiceU128)(uint64_t)turns->due_ns
                      + (uint64_t)units * turns->unit_ns) << 64
                     | turns->fraction;

    due += (SluiceU128)units * turns->unit_fraction;
    turns->fraction = (uint64_t)due;
    turns->due_ns = (int64_t)(due >> 64);
}

/* If one is due. Half of all services are reserved where a class has twice its
 * reservation, so no branch; without a reservation a unit takes no time. */
static inline void turns_charge_if_due(Turns *turns, uint32_t units,
                                       uint64_t now_ns)
{
    uint32_t due = -(uint32_t)(turns->due_ns <= (int64_t)now_ns);

    turns_charge(turns, units & due);
}

#endif
