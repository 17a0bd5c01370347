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

/* Debt ends here: the clock's last value and twice 146 years beyond it. */
#define SLUICE_TAT_MAX_NS   (3 * SLUICE_CLOCK_MAX_NS)

static inline bool bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns)
{
    return bucket->tat_ns < now_ns + bucket->tolerance_ns;
}

/* The first now_ns at which bucket_conforms() holds. */
static inline uint64_t bucket_eligible_ns(const SluiceBucket *bucket)
{
    if (bucket->tat_ns < bucket->tolerance_ns) {
        return 0;
    }
    return bucket->tat_ns - bucket->tolerance_ns + 1;
}

/*
 * For units up to 2^32 - 1: the whole part is then at most 2^32 s, in
 * nanoseconds below 2^62, and the sum below 2^64. Without a rate a unit takes
 * no time, so an unlimited bucket needs no branch.
 */
static inline void bucket_charge(SluiceBucket *bucket, uint32_t units,
                                 uint64_t now_ns)
{
    bool idle = bucket->tat_ns < now_ns;
    uint64_t tat_ns = idle ? now_ns : bucket->tat_ns;
    uint64_t fraction = idle ? 0 : bucket->tat_fraction;
    SluiceU128 part = (SluiceU128)units * bucket->unit_fraction + fraction;

    tat_ns += units * bucket->unit_ns + (uint64_t)(part >> 64);
    bucket->tat_ns = tat_ns < SLUICE_TAT_MAX_NS ? tat_ns : SLUICE_TAT_MAX_NS;
    bucket->tat_fraction = (uint64_t)part;
}

#endif
