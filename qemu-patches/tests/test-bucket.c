/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The bucket by itself: unit tests in the order of the header, then traces. */
#include "sluice/engine.h"
#include "exact-bucket.h"
#include "random.h"
#include "tap.h"

#define SECOND_NS   1000000000ULL
#define KIB         1024ULL

static SluiceBucket limited(uint64_t rate, uint64_t burst, uint64_t now_ns)
{
    SluiceBucket bucket = { 0 };

    sluice_bucket_configure(&bucket, rate, burst, now_ns);
    return bucket;
}

static void test_unlimited_always_conforms(void)
{
    SluiceBucket bucket = limited(0, 0, 0);

    for (uint64_t now_ns = 0; now_ns < 100; now_ns++) {
        check(sluice_bucket_conforms(&bucket, now_ns));
        check(sluice_bucket_eligible_ns(&bucket) <= now_ns);
        sluice_bucket_charge(&bucket, UINT32_MAX, now_ns);
    }
}

static void test_starts_full(void)
{
    SluiceBucket bucket = limited(1000, 500, 7);
    unsigned passed = 0;

    while (sluice_bucket_conforms(&bucket, 7)) {
        sluice_bucket_charge(&bucket, 100, 7);
        passed++;
    }
    check_equal(passed, 5);
}

static void test_last_token_lets_pass_and_makes_debt(void)
{
    SluiceBucket bucket = limited(1000, 500, 0);

    sluice_bucket_charge(&bucket, 499, 0);
    check(sluice_bucket_conforms(&bucket, 0));
    /* 1 token left, 1000 wanted: 999 in debt, paid after 999 ms. */
    sluice_bucket_charge(&bucket, 1000, 0);
    check_equal(sluice_bucket_eligible_ns(&bucket), 999000001);
    check(!sluice_bucket_conforms(&bucket, 999000000));
    check(sluice_bucket_conforms(&bucket, 999000001));
}

static void test_no_burst_passes_one_at_a_time(void)
{
    SluiceBucket bucket = limited(1000, 0, 0);

    check(sluice_bucket_conforms(&bucket, 0));
    sluice_bucket_charge(&bucket, 1, 0);
    check(!sluice_bucket_conforms(&bucket, 999999));
    check(sluice_bucket_conforms(&bucket, 1000000));
}

static void test_idle_time_fills_no_more_than_the_burst(void)
{
    SluiceBucket bucket = limited(1000, 500, 0);
    uint64_t now_ns = 3600 * SECOND_NS;
    unsigned passed = 0;

    sluice_bucket_charge(&bucket, 2000, 0);
    while (sluice_bucket_conforms(&bucket, now_ns)) {
        sluice_bucket_charge(&bucket, 100, now_ns);
        passed++;
    }
    check_equal(passed, 5);
}

static void test_change_carries_tokens_in_units(void)
{
    SluiceBucket bucket = limited(1000, 500, 0);

    /* 300 tokens left; at a hundredth of the rate they are still 300. */
    sluice_bucket_charge(&bucket, 200, 0);
    sluice_bucket_configure(&bucket, 10, 500, 0);
    sluice_bucket_charge(&bucket, 299, 0);
    check(sluice_bucket_conforms(&bucket, 0));
    sluice_bucket_charge(&bucket, 1, 0);
    check(!sluice_bucket_conforms(&bucket, 0));
}

static void test_change_carries_debt_in_units(void)
{
    SluiceBucket bucket = limited(1000, 500, 0);

    /* 4500 in debt: 4.5 s at the old rate, 0.45 s at ten times the rate. */
    sluice_bucket_charge(&bucket, 5000, 0);
    sluice_bucket_configure(&bucket, 10000, 500, 0);
    check_equal(sluice_bucket_eligible_ns(&bucket), 450000001);
    /* Half of it paid, then back to the old rate: 2250 left, 2.25 s. */
    sluice_bucket_configure(&bucket, 1000, 500, 225000000);
    check_equal(sluice_bucket_eligible_ns(&bucket), 2475000001);
}

static void test_change_to_a_smaller_burst_cuts_tokens(void)
{
    SluiceBucket bucket = limited(1000, 500, 0);

    sluice_bucket_configure(&bucket, 1000, 100, 0);
    sluice_bucket_charge(&bucket, 100, 0);
    check(!sluice_bucket_conforms(&bucket, 0));
}

static void test_change_to_a_larger_burst_grants_nothing(void)
{
    SluiceBucket bucket = limited(1000, 100, 0);

    sluice_bucket_configure(&bucket, 1000, 500, 0);
    sluice_bucket_charge(&bucket, 100, 0);
    check(!sluice_bucket_conforms(&bucket, 0));
    /* But the room is there: half a second later 500 tokens. */
    sluice_bucket_charge(&bucket, 499, SECOND_NS);
    check(sluice_bucket_conforms(&bucket, SECOND_NS));
}

static void test_change_through_unlimited_forgets_debt(void)
{
    SluiceBucket bucket = limited(1, 1, 0);

    sluice_bucket_charge(&bucket, 1000000, 0);
    sluice_bucket_configure(&bucket, 0, 0, 1);
    check(sluice_bucket_conforms(&bucket, 1));
    sluice_bucket_configure(&bucket, 1, 1, 2);
    check(sluice_bucket_conforms(&bucket, 2));
}

static void test_change_rounds_debt_up(void)
{
    SluiceBucket bucket = limited(1000000000, 10, 0);

    /* 3 in debt are 1.5 ns at twice the rate: 2 ns, then the first token. */
    sluice_bucket_charge(&bucket, 13, 0);
    sluice_bucket_configure(&bucket, 2000000000, 10, 0);
    check_equal(sluice_bucket_eligible_ns(&bucket), 3);
}

static void test_repeated_change_neither_stalls_nor_leaks(void)
{
    SluiceBucket bucket = limited(1000, 0, 0);
    uint64_t passed = 0;

    /* Reconfigured every microsecond for a second: still 1000 per second. */
    for (uint64_t now_ns = 0; now_ns < SECOND_NS; now_ns += 1000) {
        sluice_bucket_configure(&bucket, 1000, 0, now_ns);
        if (sluice_bucket_conforms(&bucket, now_ns)) {
            sluice_bucket_charge(&bucket, 1, now_ns);
            passed++;
        }
    }
    check(passed >= 998 && passed <= 1001);
}

/*
 * Requests of `size` units, each at the first moment allowed. Request n goes
 * when (n * size - burst) units have been paid for: the exact time, give or
 * take the rounding of tolerance and TAT (2 ns), however many came before.
 */
static bool keeps_rate(uint64_t rate, uint64_t burst, uint32_t size,
                       unsigned count)
{
    SluiceBucket bucket = limited(rate, burst, 0);
    Wide size_left = burst;
    Wide exact_ns, least_burst = (Wide)rate / NANO;
    uint64_t now_ns = 0;

    for (unsigned n = 0; n < count; n++) {
        uint64_t eligible_ns = sluice_bucket_eligible_ns(&bucket);

        now_ns = eligible_ns > now_ns ? eligible_ns : now_ns;
        if (n + 1 < count) {
            sluice_bucket_charge(&bucket, size, now_ns);
        }
    }
    size_left = size_left < least_burst ? least_burst : size_left;
    exact_ns = ((Wide)size * (count - 1) - size_left) * NANO / (Wide)rate;
    exact_ns = exact_ns < 0 ? 0 : exact_ns;
    return check((Wide)now_ns >= exact_ns - 2)
           && check((Wide)now_ns <= exact_ns + 2);
}

static void test_long_run_rate(void)
{
    static const uint32_t sizes[] = { 1, 3, 512, 1514, 4096, 131072 };

    for (uint64_t rate = 1; rate <= SLUICE_RATE_MAX; rate *= 10) {
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned count = sizes[i] / rate > 1000 ? 1000 : 200000;

            if (!keeps_rate(rate, 0, sizes[i], count)
                || !keeps_rate(rate, 64 * KIB, sizes[i], count)
                || !keeps_rate(rate * 7 / 10 + 1, 3, sizes[i], count)) {
                printf("# rate %" PRIu64 ", size %u\n", rate, sizes[i]);
                return;
            }
        }
    }
}

/* It is not kept, but found again from the time of a unit. */
static void test_rate_is_as_configured(void)
{
    static const uint64_t edges[] = {
        0, 1, 2, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1, SLUICE_RATE_MAX - 1,
        SLUICE_RATE_MAX,
    };
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));

    for (unsigned i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        SluiceBucket bucket = limited(edges[i], KIB, 0);

        check_equal(sluice_bucket_rate(&bucket), edges[i]);
    }
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t rate = random_magnitude(&random, 40) % SLUICE_RATE_MAX + 1;
        SluiceBucket bucket = limited(rate, KIB, 0);

        if (!check_equal(sluice_bucket_rate(&bucket), rate)) {
            return;
        }
    }
}

static void test_no_stall_at_any_rate_and_size(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    Random random = random_seeded(seed);
    uint64_t pairs = tap_setting("SLUICE_TEST_TRACES", 300) * 1000;

    printf("# seed %" PRIu64 ", %" PRIu64 " pairs\n", seed, pairs);
    for (uint64_t i = 0; i < pairs; i++) {
        uint64_t rate = random_magnitude(&random, 40) % SLUICE_RATE_MAX + 1;
        uint64_t burst = random_magnitude(&random, 41) - 1;
        uint32_t size = random_magnitude(&random, 32);
        SluiceBucket bucket;
        uint64_t eligible_ns;
        Wide due;

        if (i < 4) {
            rate = i & 1 ? 1 : SLUICE_RATE_MAX;
            size = i & 2 ? 1 : UINT32_MAX;
        }
        burst = burst > SLUICE_BURST_MAX ? SLUICE_BURST_MAX : burst;
        bucket = limited(rate, burst, 0);
        check(sluice_bucket_conforms(&bucket, 0));
        sluice_bucket_charge(&bucket, size, 0);
        eligible_ns = sluice_bucket_eligible_ns(&bucket);
        /* Never later than the request alone takes, and really then. */
        due = ((Wide)size * NANO + rate - 1) / rate;
        if (!check((Wide)eligible_ns <= due + 1)
            || !check(sluice_bucket_conforms(&bucket, eligible_ns))
            || !check(eligible_ns == 0
                      || !sluice_bucket_conforms(&bucket, eligible_ns - 1))) {
            printf("# rate %" PRIu64 ", burst %" PRIu64 ", size %u\n", rate,
                   burst, size);
            return;
        }
    }
}

static void test_large_charge_equals_many_small_ones(void)
{
    SluiceBucket at_once = limited(3, 0, 0), one_by_one = at_once;

    sluice_bucket_charge(&at_once, 4ULL * UINT32_MAX + 3, 5);
    for (int i = 0; i < 4; i++) {
        sluice_bucket_charge(&one_by_one, UINT32_MAX, 5);
    }
    sluice_bucket_charge(&one_by_one, 3, 5);
    check_equal(at_once.due_ns, one_by_one.due_ns);
    check_equal(at_once.fraction, one_by_one.fraction);
}

static void test_debt_saturates_and_never_wraps(void)
{
    SluiceBucket bucket = limited(1, 0, SLUICE_CLOCK_MAX_NS - 1);
    uint64_t before_ns = 0;

    for (int i = 0; i < 100; i++) {
        uint64_t units = i & 1 ? UINT64_MAX : UINT32_MAX;
        uint64_t eligible_ns;

        sluice_bucket_charge(&bucket, units, SLUICE_CLOCK_MAX_NS - 1);
        eligible_ns = sluice_bucket_eligible_ns(&bucket);
        check(eligible_ns >= before_ns);
        check(eligible_ns < SLUICE_NEVER);
        check(!sluice_bucket_conforms(&bucket, SLUICE_CLOCK_MAX_NS - 1));
        before_ns = eligible_ns;
    }
    sluice_bucket_configure(&bucket, 2, 1, SLUICE_CLOCK_MAX_NS - 1);
    check(sluice_bucket_eligible_ns(&bucket) < SLUICE_NEVER);
}

/* One random trace beside the exact bucket; false at the first difference. */
static bool follow_exact_bucket(Random *random)
{
    uint64_t now_ns = random_magnitude(random, 60);
    unsigned rate_bits = 1 + random_below(random, 40);
    SluiceBucket bucket = limited(0, 0, now_ns);
    ExactBucket exact = { .seen_ns = now_ns };

    for (unsigned step = 0; step < 2000; step++) {
        uint64_t wait_ns = random_magnitude(random, 30);

        if (step == 0 || random_chance(random, 2)) {
            uint64_t rate = random_magnitude(random, rate_bits)
                            % (SLUICE_RATE_MAX + 1);
            uint64_t burst = random_magnitude(random, rate_bits) / 4;

            sluice_bucket_configure(&bucket, rate, burst, now_ns);
            exact_configure(&exact, rate, burst, now_ns);
        }
        if (random_chance(random, 60)
            && sluice_bucket_eligible_ns(&bucket) > now_ns
            && sluice_bucket_eligible_ns(&bucket) < now_ns + (1ULL << 50)) {
            now_ns = sluice_bucket_eligible_ns(&bucket);
        } else {
            now_ns += wait_ns;
        }
        exact_advance(&exact, now_ns);
        if (sluice_bucket_conforms(&bucket, now_ns)) {
            /* Up to about a second's worth and a bit. */
            uint32_t size = random_magnitude(random,
                                             rate_bits < 32 ? rate_bits : 32);

            if (!check(exact_may_pass(&exact))) {
                return false;
            }
            sluice_bucket_charge(&bucket, size, now_ns);
            exact_charge(&exact, size);
        } else if (!check(!exact_must_pass(&exact))) {
            return false;
        }
    }
    return true;
}

static void test_traces_follow_exact_bucket(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        Random random = random_seeded(seed + i);

        if (!follow_exact_bucket(&random)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static const TapTest tests[] = {
    { "bucket/unlimited always conforms", test_unlimited_always_conforms },
    { "bucket/starts full", test_starts_full },
    { "bucket/last token lets pass and makes debt",
      test_last_token_lets_pass_and_makes_debt },
    { "bucket/no burst passes one at a time",
      test_no_burst_passes_one_at_a_time },
    { "bucket/idle time fills no more than the burst",
      test_idle_time_fills_no_more_than_the_burst },
    { "bucket/change carries tokens in units",
      test_change_carries_tokens_in_units },
    { "bucket/change carries debt in units",
      test_change_carries_debt_in_units },
    { "bucket/change to a smaller burst cuts tokens",
      test_change_to_a_smaller_burst_cuts_tokens },
    { "bucket/change to a larger burst grants nothing",
      test_change_to_a_larger_burst_grants_nothing },
    { "bucket/change through unlimited forgets debt",
      test_change_through_unlimited_forgets_debt },
    { "bucket/change rounds debt up", test_change_rounds_debt_up },
    { "bucket/repeated change neither stalls nor leaks",
      test_repeated_change_neither_stalls_nor_leaks },
    { "bucket/long-run rate is exact from 1 to 10^12", test_long_run_rate },
    { "bucket/rate is as configured", test_rate_is_as_configured },
    { "bucket/property: no stall at any rate and size",
      test_no_stall_at_any_rate_and_size },
    { "bucket/large charge equals many small ones",
      test_large_charge_equals_many_small_ones },
    { "bucket/debt saturates and never wraps",
      test_debt_saturates_and_never_wraps },
    { "bucket/property: traces follow the exact bucket",
      test_traces_follow_exact_bucket },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
