/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice token bucket.
 *
 * Model. A bucket of `burst` tokens fills at `rate` tokens per second. A
 * request may go on while any token is left; it takes as many tokens as it
 * has units, and what it takes beyond the last one is debt, which the
 * following requests wait for (SCS section 2.2). So a request larger than the
 * bucket needs no special case, and the long-run rate is exact for any size.
 *
 * Representation. Instead of a level and the time of its last update the
 * bucket keeps the theoretical arrival time (TAT) of the virtual scheduling
 * form of the generic cell rate algorithm (ITU-T I.371): the moment at which
 * the bucket will be full again if nothing more is taken.
 *
 *     tokens = burst - (TAT - now) * rate      while TAT > now, else burst
 *     a token is left  <=>  TAT - now < tolerance,  tolerance = burst / rate
 *     charge:  TAT = max(TAT, now) + units / rate
 *
 * Time passing changes nothing in memory; only a charge writes.
 *
 * Units. TAT and tolerance are nanoseconds. The time of one unit is a fixed
 * point number of nanoseconds with 64 binary places, rounded up, and TAT
 * carries the same places from charge to charge. The error of the long-run
 * rate is therefore below 2^-64 ns per unit: at 10^12 units per second, where
 * a unit takes a thousandth of a nanosecond, one part in 10^16. A charge is
 * two multiplications, no division.
 *
 * Invariants.
 * - tolerance >= 1 ns: a full bucket always lets a request pass, so no rate
 *   and no burst, not even 0, can stall.
 * - bucket_conforms(b, t) <=> t >= bucket_eligible_ns(b), for every t: a timer
 *   set to the eligible time never fires in vain.
 * - Comparisons ignore the fraction. A decision can be early by less than
 *   1 ns, which is not cumulative, since the charge keeps the fraction.
 *
 * Limits. The clock stays below 2^62 ns (146 years). A burst longer than
 * 2^62 ns at its rate counts as 2^62 ns. A single 32-bit request at 1 unit per
 * second is a debt of 2^32 s < 2^62 ns, so within these limits TAT stays below
 * 3 * 2^62 and nothing wraps; beyond them (direct calls of
 * sluice_bucket_charge() that do not ask first) the debt saturates there.
 */
#include <assert.h>

#include "sluice/engine.h"
#include "bucket-inline.h"

#define NANOSECONDS_PER_SECOND  1000000000ULL
#define TOLERANCE_MAX_NS        SLUICE_CLOCK_MAX_NS

static uint64_t tolerance_of(uint64_t rate, uint64_t burst)
{
    SluiceU128 tolerance_ns = (SluiceU128)burst * NANOSECONDS_PER_SECOND / rate;

    if (tolerance_ns < 1) {
        return 1;
    }
    return tolerance_ns < TOLERANCE_MAX_NS ? tolerance_ns : TOLERANCE_MAX_NS;
}

/* What is in the bucket, in 10^-9 units: negative when in debt. */
static SluiceI128 tokens_of(const SluiceBucket *bucket, uint64_t now_ns)
{
    SluiceI128 rate = bucket->rate;
    SluiceI128 tokens = bucket->tolerance_ns * rate;

    if (bucket->tat_ns >= now_ns) {
        tokens -= (bucket->tat_ns - now_ns) * rate;
        tokens -= (SluiceI128)(((SluiceU128)bucket->tat_fraction
                                * bucket->rate) >> 64);
    }
    return tokens;
}

/* Sets TAT so that the bucket holds `tokens` (10^-9 units) at its rate. */
static void set_tokens(SluiceBucket *bucket, SluiceI128 tokens, uint64_t now_ns)
{
    SluiceI128 rate = bucket->rate;
    SluiceI128 tokens_ns = tokens / rate;
    SluiceI128 used_ns;

    if (tokens < 0 && tokens % rate != 0) {
        tokens_ns--;            /* debt is rounded up, never to zero */
    }
    used_ns = (SluiceI128)bucket->tolerance_ns - tokens_ns;
    if (used_ns < 0) {
        used_ns = 0;
    }
    if (used_ns > (SluiceI128)(SLUICE_TAT_MAX_NS - now_ns)) {
        used_ns = SLUICE_TAT_MAX_NS - now_ns;
    }
    bucket->tat_ns = now_ns + (uint64_t)used_ns;
    bucket->tat_fraction = 0;
}

void sluice_bucket_configure(SluiceBucket *bucket, uint64_t rate,
                             uint64_t burst, uint64_t now_ns)
{
    bool was_limited = bucket->rate > 0;
    SluiceI128 tokens = was_limited ? tokens_of(bucket, now_ns) : 0;
    SluiceU128 unit;

    assert(rate <= SLUICE_RATE_MAX && burst <= SLUICE_BURST_MAX);
    assert(now_ns < SLUICE_CLOCK_MAX_NS);
    *bucket = (SluiceBucket){ .tat_ns = now_ns, .tolerance_ns = 1,
                              .rate = rate };
    if (rate == 0) {
        return;
    }
    unit = (((SluiceU128)NANOSECONDS_PER_SECOND << 64) + rate - 1) / rate;
    bucket->unit_ns = (uint64_t)(unit >> 64);
    bucket->unit_fraction = (uint64_t)unit;
    bucket->tolerance_ns = tolerance_of(rate, burst);
    if (was_limited) {
        set_tokens(bucket, tokens, now_ns);
    }
}

bool sluice_bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns)
{
    return bucket_conforms(bucket, now_ns);
}

uint64_t sluice_bucket_eligible_ns(const SluiceBucket *bucket)
{
    return bucket_eligible_ns(bucket);
}

static void charge_saturating(SluiceBucket *bucket, uint64_t units,
                              uint64_t now_ns)
{
    bool idle = bucket->tat_ns < now_ns;
    SluiceU128 part = (SluiceU128)units * bucket->unit_fraction
                      + (idle ? 0 : bucket->tat_fraction);
    SluiceU128 tat_ns = (SluiceU128)units * bucket->unit_ns
                        + (idle ? now_ns : bucket->tat_ns) + (part >> 64);

    bucket->tat_ns = tat_ns < SLUICE_TAT_MAX_NS ? tat_ns : SLUICE_TAT_MAX_NS;
    bucket->tat_fraction = (uint64_t)part;
}

void sluice_bucket_charge(SluiceBucket *bucket, uint64_t units, uint64_t now_ns)
{
    if (units <= UINT32_MAX) {
        bucket_charge(bucket, units, now_ns);
    } else {
        charge_saturating(bucket, units, now_ns);
    }
}
