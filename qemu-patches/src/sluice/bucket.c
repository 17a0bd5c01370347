/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice token bucket.
 *
 * Model. A bucket of `burst` tokens fills at `rate` tokens per second. A
 * request may go on while any token is left; it takes as many tokens as it
 * has units, and those beyond the last one are debt, which the
 * following requests wait for (SCS section 2.2). So a request larger than the
 * bucket needs no special case, and the long-run rate is exact for any size.
 *
 * Representation. Instead of a level and the time of its last update the
 * bucket keeps one time, in the virtual scheduling form of the generic cell
 * rate algorithm (ITU-T I.371). There it is the theoretical arrival time, at
 * which the bucket will be full again; here it is the same word less the
 * burst: the time from which on a token is left. So a decision is one
 * comparison, and "when?" needs no computation.
 *
 *     a token is left  <=>  now >= due
 *     tokens = (now - due + 1) * rate, at most burst
 *     charge:  due = max(due, now - slack) + units / rate
 *
 * with slack + 1 ns = burst / rate. Time passing changes nothing in memory;
 * only a charge writes.
 *
 * Units. `due` and `slack` are nanoseconds. The time of one unit is a fixed
 * point number of nanoseconds with 64 binary places, rounded up, and `due`
 * carries the same places from charge to charge. The error of the long-run
 * rate is therefore below 2^-64 ns per unit: at 10^12 units per second, where
 * a unit takes a thousandth of a nanosecond, one part in 10^16. A charge is
 * two multiplications, no division.
 *
 * Invariants.
 * - slack >= 0: a full bucket always lets a request pass, so no rate and no
 *   burst, not even 0, can stall.
 * - A timer set to the due time never fires in vain.
 * - `due` may lie before the clock's zero: it is signed.
 * - Comparisons ignore the fraction, and a bucket that has become full keeps
 *   it. Either is less than 1 ns and not cumulative, since the charge carries
 *   the fraction.
 *
 * Limits. The clock stays below 2^62 ns (146 years). A burst longer than
 * 2^62 ns at its rate counts as 2^62 ns. A single 32-bit request at 1 unit per
 * second is a debt of 2^32 s < 2^62 ns, so within these limits `due` stays
 * below 2^63 and nothing wraps; beyond them (direct calls of
 * sluice_bucket_charge() that do not ask first) the debt saturates there.
 */
#include <assert.h>

#include "sluice/engine.h"
#include "bucket-inline.h"

#define NANOSECONDS_PER_SECOND  1000000000ULL
#define SECOND                  ((SluiceU128)NANOSECONDS_PER_SECOND << 64)
#define TOLERANCE_MAX_NS        SLUICE_CLOCK_MAX_NS

static uint64_t slack_of(uint64_t rate, uint64_t burst)
{
    SluiceU128 tolerance_ns = (SluiceU128)burst * NANOSECONDS_PER_SECOND / rate;

    if (tolerance_ns < 1) {
        return 0;
    }
    return (tolerance_ns < TOLERANCE_MAX_NS ? (uint64_t)tolerance_ns
                                            : TOLERANCE_MAX_NS) - 1;
}

static SluiceU128 unit_of(const SluiceBucket *bucket)
{
    return (SluiceU128)bucket->unit_ns << 64 | bucket->unit_fraction;
}

/* The unit is that of the rate but for its rounding, which is too little to
 * make another integer of it: the rate is not kept, decisions need the room. */
uint64_t sluice_bucket_rate(const SluiceBucket *bucket)
{
    SluiceU128 unit = unit_of(bucket);

    return unit ? (uint64_t)((SECOND + unit / 2) / unit) : 0;
}

/* The contents of the bucket, in 10^-9 units: negative when in debt. */
static SluiceI128 tokens_of(const SluiceBucket *bucket, uint64_t now_ns)
{
    SluiceI128 rate = sluice_bucket_rate(bucket);
    SluiceI128 left_ns = (SluiceI128)now_ns - bucket->due_ns + 1;

    if (left_ns > (SluiceI128)bucket->slack_ns + 1) {
        return ((SluiceI128)bucket->slack_ns + 1) * rate;
    }
    return left_ns * rate
           - (SluiceI128)(((SluiceU128)bucket->fraction * rate) >> 64);
}

/* Sets the due time so that the bucket holds `tokens` (10^-9 units). */
static void set_tokens(SluiceBucket *bucket, SluiceI128 tokens, uint64_t now_ns)
{
    SluiceI128 rate = sluice_bucket_rate(bucket);
    SluiceI128 tokens_ns = tokens / rate;
    SluiceI128 due_ns;

    if (tokens < 0 && tokens % rate != 0) {
        tokens_ns--;            /* debt is rounded up, never to zero */
    }
    if (tokens_ns > (SluiceI128)bucket->slack_ns + 1) {
        tokens_ns = (SluiceI128)bucket->slack_ns + 1;
    }
    due_ns = (SluiceI128)now_ns + 1 - tokens_ns;
    bucket->due_ns = due_ns < SLUICE_DUE_MAX_NS ? (int64_t)due_ns
                                                : SLUICE_DUE_MAX_NS;
    bucket->fraction = 0;
}

void sluice_bucket_configure(SluiceBucket *bucket, uint64_t rate,
                             uint64_t burst, uint64_t now_ns)
{
    bool was_limited = unit_of(bucket) > 0;
    SluiceI128 tokens = was_limited ? tokens_of(bucket, now_ns) : 0;
    SluiceU128 unit;

    assert(rate <= SLUICE_RATE_MAX && burst <= SLUICE_BURST_MAX);
    assert(now_ns < SLUICE_CLOCK_MAX_NS);
    *bucket = (SluiceBucket){ 0 };
    if (rate == 0) {
        return;
    }
    unit = (SECOND + rate - 1) / rate;
    bucket->unit_ns = (uint32_t)(unit >> 64);   /* at most a second */
    bucket->unit_fraction = (uint64_t)unit;
    bucket->slack_ns = slack_of(rate, burst);
    set_tokens(bucket, was_limited ? tokens
                       : ((SluiceI128)bucket->slack_ns + 1) * rate, now_ns);
}

bool sluice_bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns)
{
    return bucket_conforms(bucket, now_ns);
}

uint64_t sluice_bucket_eligible_ns(const SluiceBucket *bucket)
{
    return bucket->due_ns > 0 ? bucket->due_ns : 0;
}

/* Whether the bucket conforms was not asked, or units need more than 32 bits. */
void sluice_bucket_charge(SluiceBucket *bucket, uint64_t units, uint64_t now_ns)
{
    SluiceU128 part = (SluiceU128)units * bucket->unit_fraction
                      + bucket->fraction;
    SluiceI128 due_ns = (SluiceI128)((SluiceU128)units * bucket->unit_ns
                                     + (part >> 64))
                        + bucket_start_ns(bucket, now_ns);

    bucket->fraction = (uint64_t)part;
    bucket->due_ns = due_ns < SLUICE_DUE_MAX_NS ? (int64_t)due_ns
                                                : SLUICE_DUE_MAX_NS;
}

void sluice_bucket_credit(SluiceBucket *bucket, uint64_t units, uint64_t now_ns)
{
    SluiceI128 tokens;

    if (unit_of(bucket) > 0) {
        tokens = tokens_of(bucket, now_ns)
                 + (SluiceI128)units * NANOSECONDS_PER_SECOND;
        set_tokens(bucket, tokens, now_ns);
    }
}
