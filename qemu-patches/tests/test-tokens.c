/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The gauge of the tokens in a class's buckets. */
#include <math.h>

#include "exact-bucket.h"
#include "random.h"
#include "tokens.h"

static void test_no_limit(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 10, 4 } };

    check(tokens(engine, START_NS).bytes == SLUICE_TOKENS_UNLIMITED);
    check(tokens(engine, START_NS).operations == SLUICE_TOKENS_UNLIMITED);
    check_equal(tokens(engine, START_NS).at_ns, START_NS);
    /* An unmanaged class is charged to nothing. */
    config.unmanaged = true;
    limit(engine, &config, START_NS);
    submit(engine, 4096, START_NS);
    check(tokens(engine, START_NS).bytes == SLUICE_TOKENS_UNLIMITED);
    check(tokens(engine, START_NS).operations == SLUICE_TOKENS_UNLIMITED);
    sluice_engine_free(engine);
}

/* 1000 bytes per second, so one each millisecond, and 500 at once. */
static void test_full_spent_and_owed(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 0, 0 } };
    uint64_t now_ns = START_NS;

    limit(engine, &config, now_ns);
    check(tokens(engine, now_ns).bytes == 500);
    check_equal(submit(engine, 200, now_ns), SLUICE_PASS);
    check(tokens(engine, now_ns).bytes == 300);
    check(tokens(engine, now_ns + SECOND_NS / 10).bytes == 400);
    check(tokens(engine, now_ns + SECOND_NS).bytes == 500);
    /* An older time is that of the latest decision. */
    check(tokens(engine, 0).bytes == 300);
    check_equal(tokens(engine, 0).at_ns, now_ns);
    check_equal(submit(engine, 1000, now_ns), SLUICE_PASS);
    check(tokens(engine, now_ns).bytes == -700);
    check(tokens(engine, now_ns + 699 * SECOND_NS / 1000).bytes == -1);
    check(tokens(engine, now_ns + 701 * SECOND_NS / 1000).bytes == 1);
    check(tokens(engine, now_ns).operations == SLUICE_TOKENS_UNLIMITED);
    sluice_engine_free(engine);
}

static void test_operations(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 0, 0, 10, 4 } };

    limit(engine, &config, START_NS);
    for (int left = 4; left > 0; left--) {
        check(tokens(engine, START_NS).operations == left);
        check_equal(submit(engine, 4096, START_NS), SLUICE_PASS);
    }
    check(tokens(engine, START_NS).operations == 0);
    check(tokens(engine, START_NS).bytes == SLUICE_TOKENS_UNLIMITED);
    sluice_engine_free(engine);
}

static void test_leaky_bucket_has_none(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 0, 0 },
                                 .policy = SLUICE_POLICY_LEAKY_BUCKET };

    limit(engine, &config, START_NS);
    check(tokens(engine, START_NS + SECOND_NS).bytes == 0);
    check_equal(submit(engine, 100, START_NS), SLUICE_PASS);
    check(tokens(engine, START_NS).bytes == -100);
    sluice_engine_free(engine);
}

static bool is_within(int64_t gauge, int64_t expected, int64_t tolerance)
{
    return gauge >= expected - tolerance && gauge <= expected + tolerance;
}

/*
 * The longest burst, and the largest debt of a request: 2^32 seconds of a byte.
 * Buckets count in nanoseconds: at the highest rate these are 1000 bytes each.
 */
static void test_extremes(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = {
        .limit = { SLUICE_RATE_MAX, SLUICE_BURST_MAX, 1, SLUICE_BURST_MAX },
    };

    limit(engine, &config, 0);
    check(is_within(tokens(engine, 0).bytes, SLUICE_BURST_MAX, 1000));
    check(is_within(tokens(engine, SLUICE_CLOCK_MAX_NS - 1).bytes,
                    SLUICE_BURST_MAX, 1000));
    /* As documented, a burst longer than 2^62 ns counts as 2^62 ns. */
    check(tokens(engine, 0).operations
          == (int64_t)(SLUICE_CLOCK_MAX_NS / SECOND_NS));
    config.limit = (SluiceLimit){ 1, 0, 0, 0 };
    limit(engine, &config, 0);
    check_equal(submit(engine, UINT32_MAX, 0), SLUICE_PASS);
    check(is_within(tokens(engine, 0).bytes, -(int64_t)UINT32_MAX, 0));
    config.limit.bytes_per_second = SLUICE_RATE_MAX;
    limit(engine, &config, 0);
    check(is_within(tokens(engine, 0).bytes, -(int64_t)UINT32_MAX, 1000));
    sluice_engine_free(engine);
}

/* A debt beyond all that a clock can tell, by corrections. */
static void test_debt_saturates(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { SLUICE_RATE_MAX, 1, 0, 0 } };
    SluiceReceipt receipt;

    limit(engine, &config, 0);
    check_equal(submit(engine, 1, 0), SLUICE_PASS);
    receipt = sluice_engine_receipt(engine, 0, 1);
    for (unsigned i = 0; i < 4; i++) {
        sluice_engine_correct(engine, &receipt, INT64_MAX, 0);
    }
    check(tokens(engine, 0).bytes == -SLUICE_TOKENS_OWED_MAX);
    sluice_engine_free(engine);
}

/* The gauge against the exact bucket: half a token for rounding, the difference of
 * the engine's nanoseconds, and 2^-50 of the value. */
static bool is_near(int64_t gauge, const ExactBucket *bucket)
{
    double level = (double)bucket->level / NANO;
    double slack = (double)bucket->slack / NANO;

    if (bucket->rate == 0) {
        return check(gauge == SLUICE_TOKENS_UNLIMITED);
    }
    return check(fabs((double)gauge - level)
                 <= 0.5 + slack + ldexp(fabs(level), -50));
}

static void test_any_trace(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);

    for (uint64_t trace = 0; trace < traces; trace++) {
        Random random = random_seeded(seed + trace);
        SluiceEngine *engine = sluice_engine_new(1);
        ExactBucket bytes = { 0 }, operations = { 0 };
        uint64_t now_ns = random_magnitude(&random, 50);

        for (unsigned step = 0; step < 200; step++) {
            uint32_t size = random_magnitude(&random, 24);
            SluiceNode node = { 0 };

            if (step == 0 || random_chance(&random, 3)) {
                SluiceClassConfig config = { .limit = {
                    random_magnitude(&random, 39), random_magnitude(&random, 40),
                    random_magnitude(&random, 39), random_magnitude(&random, 40),
                } };

                limit(engine, &config, now_ns);
                exact_configure(&bytes, config.limit.bytes_per_second,
                                config.limit.burst_bytes, now_ns);
                exact_configure(&operations,
                                config.limit.operations_per_second,
                                config.limit.burst_operations, now_ns);
            }
            now_ns += random_magnitude(&random, 34);
            exact_advance(&bytes, now_ns);
            exact_advance(&operations, now_ns);
            if (sluice_engine_submit(engine, 0, &node, size, now_ns)
                == SLUICE_PASS) {
                exact_charge(&bytes, size);
                exact_charge(&operations, 1);
            } else {
                sluice_engine_withdraw(engine, &node, 0);
            }
            if (!is_near(tokens(engine, 0).bytes, &bytes)
                || !is_near(tokens(engine, 0).operations, &operations)) {
                printf("# seed %" PRIu64 ", step %u\n", seed + trace, step);
                sluice_engine_free(engine);
                return;
            }
        }
        sluice_engine_free(engine);
    }
}

static const TapTest tests[] = {
    { "tokens/no limit", test_no_limit },
    { "tokens/full, spent and owed", test_full_spent_and_owed },
    { "tokens/operations", test_operations },
    { "tokens/leaky bucket has none", test_leaky_bucket_has_none },
    { "tokens/extremes", test_extremes },
    { "tokens/debt saturates", test_debt_saturates },
    { "tokens/property: any trace", test_any_trace },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
