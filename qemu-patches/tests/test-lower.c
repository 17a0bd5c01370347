/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lowering the tokens of buckets to those of another engine. */
#include "evict.h"
#include "random.h"
#include "tokens.h"

static bool is_within(int64_t gauge, int64_t expected, int64_t tolerance)
{
    return gauge >= expected - tolerance && gauge <= expected + tolerance;
}

static void lower(SluiceEngine *engine, int64_t bytes, int64_t operations,
                  uint64_t now_ns)
{
    SluiceTokens arriving = { .bytes = bytes, .operations = operations };

    sluice_engine_lower_tokens(engine, 0, &arriving, now_ns);
}

/* The fill is the lesser of both, of each bucket by itself. */
static void test_lowered_never_raised(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 10, 4 } };

    limit(engine, &config, START_NS);
    lower(engine, 501, 5, START_NS);
    check(tokens(engine, START_NS).bytes == 500);
    check(tokens(engine, START_NS).operations == 4);
    lower(engine, 200, SLUICE_TOKENS_UNLIMITED, START_NS);
    check(tokens(engine, START_NS).bytes == 200);
    check(tokens(engine, START_NS).operations == 4);
    lower(engine, 300, 1, START_NS);
    check(tokens(engine, START_NS).bytes == 200);
    check(tokens(engine, START_NS).operations == 1);
    lower(engine, -700, -2, START_NS);
    check(tokens(engine, START_NS).bytes == -700);
    check(tokens(engine, START_NS).operations == -2);
    lower(engine, -600, 0, START_NS);
    check(tokens(engine, START_NS).bytes == -700);
    /* From there it goes on as if it had been spent here. */
    check(tokens(engine, START_NS + SECOND_NS).bytes == 300);
    check(tokens(engine, START_NS + 10 * SECOND_NS).bytes == 500);
    sluice_engine_free(engine);
}

static void test_lowered_without_limit(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceTokens owed = { .bytes = -700, .operations = -700 };

    lower(engine, -700, -700, START_NS);
    sluice_engine_lower_ceiling_tokens(engine, &owed, START_NS);
    check(tokens(engine, START_NS).bytes == SLUICE_TOKENS_UNLIMITED);
    check(tokens(engine, START_NS).operations == SLUICE_TOKENS_UNLIMITED);
    check(sluice_engine_ceiling_tokens(engine, START_NS).bytes
          == SLUICE_TOKENS_UNLIMITED);
    check_equal(submit(engine, 4096, START_NS), SLUICE_PASS);
    sluice_engine_free(engine);
}

static void test_lowered_leaky(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 0, 0 },
                                 .policy = SLUICE_POLICY_LEAKY_BUCKET };
    uint64_t now_ns = START_NS + SECOND_NS;

    limit(engine, &config, START_NS);
    lower(engine, 0, 0, now_ns);
    check(tokens(engine, now_ns).bytes == 0);
    lower(engine, -100, 0, now_ns);
    check(tokens(engine, now_ns).bytes == -100);
    check_equal(submit(engine, 1, now_ns + 99 * SECOND_NS / 1000), SLUICE_HOLD);
    check(evict(engine) != NULL);
    sluice_engine_free(engine);
}

/* A held request goes when the debt that it has now is paid, and not before. */
static void test_lowered_while_held(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = { .limit = { 1000, 500, 0, 0 } };
    uint64_t now_ns = START_NS;

    limit(engine, &config, now_ns);
    check_equal(submit(engine, 600, now_ns), SLUICE_PASS);
    check_equal(submit(engine, 1, now_ns), SLUICE_HOLD);
    lower(engine, -1000, 0, now_ns);
    check_equal(sluice_engine_next_event_ns(engine),
                now_ns + SECOND_NS + 1);
    check(sluice_engine_release(engine, now_ns + SECOND_NS) == NULL);
    check(sluice_engine_release(engine, now_ns + SECOND_NS + 1) != NULL);
    sluice_engine_free(engine);
}

static void test_lowered_ceiling(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceLimit ceiling = { 1000, 500, 10, 4 };
    SluiceTokens arriving = { .bytes = 600, .operations = -1 };
    SluiceTokens now;

    check(sluice_engine_set_ceiling(engine, &ceiling, START_NS));
    now = sluice_engine_ceiling_tokens(engine, START_NS);
    check(now.bytes == 500 && now.operations == 4);
    check_equal(now.at_ns, START_NS);
    sluice_engine_lower_ceiling_tokens(engine, &arriving, START_NS);
    now = sluice_engine_ceiling_tokens(engine, START_NS);
    check(now.bytes == 500 && now.operations == -1);
    check_equal(submit(engine, 100, START_NS), SLUICE_HOLD);
    check(sluice_engine_release(engine, START_NS + SECOND_NS / 20) == NULL);
    check(sluice_engine_release(engine, START_NS + SECOND_NS / 5) != NULL);
    now = sluice_engine_ceiling_tokens(engine, START_NS + SECOND_NS / 5);
    check(now.bytes == 400 && now.operations == 0);
    sluice_engine_free(engine);
}

/* Any number, at any rate, and twice: nothing wraps, and more is not owed. */
static void test_lowered_extremes(void)
{
    static const int64_t arriving[] = {
        INT64_MIN, INT64_MIN + 1, -SLUICE_TOKENS_OWED_MAX - 1,
        -SLUICE_TOKENS_OWED_MAX, 0, INT64_MAX - 1, INT64_MAX,
    };
    static const uint64_t rates[] = { 1, 1000, SLUICE_RATE_MAX };
    static const uint64_t times_ns[] = { 0, START_NS, SLUICE_CLOCK_MAX_NS - 1 };

    for (unsigned i = 0; i < sizeof(arriving) / sizeof(arriving[0]); i++) {
        for (unsigned j = 0; j < 9; j++) {
            SluiceEngine *engine = sluice_engine_new(1);
            SluiceLimit limits = { rates[j % 3], SLUICE_BURST_MAX,
                                   rates[j % 3], 1 };
            SluiceClassConfig config = { .limit = limits };
            SluiceTokens both = { .bytes = arriving[i],
                                  .operations = arriving[i] };
            uint64_t now_ns = times_ns[j / 3];
            int64_t before;

            limit(engine, &config, now_ns);
            check(sluice_engine_set_ceiling(engine, &limits, now_ns));
            before = tokens(engine, now_ns).bytes;
            for (unsigned k = 0; k < 2; k++) {
                sluice_engine_lower_tokens(engine, 0, &both, now_ns);
                sluice_engine_lower_ceiling_tokens(engine, &both, now_ns);
            }
            check(tokens(engine, now_ns).bytes <= before);
            check(tokens(engine, now_ns).bytes >= -SLUICE_TOKENS_OWED_MAX);
            check(tokens(engine, now_ns).bytes
                  == sluice_engine_ceiling_tokens(engine, now_ns).bytes);
            check((arriving[i] < 0) == (tokens(engine, now_ns).operations < 0));
            sluice_engine_free(engine);
        }
    }
}

/* The tokens that one engine tells of any bucket are those that another has of it, to a
 * token or a nanosecond's worth, where its bucket is as large. */
static void test_lowered_to_any_gauge(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);

    for (uint64_t trace = 0; trace < traces; trace++) {
        Random random = random_seeded(seed + trace);
        SluiceEngine *source = sluice_engine_new(1);
        SluiceEngine *target = sluice_engine_new(1);
        SluiceClassConfig config = { .limit = {
            1 + random_magnitude(&random, 39), random_magnitude(&random, 40),
            1 + random_magnitude(&random, 39), random_magnitude(&random, 40),
        } };
        uint64_t now_ns = random_magnitude(&random, 50);
        uint64_t there_ns = random_magnitude(&random, 50);
        int64_t tolerance = 1 + config.limit.bytes_per_second / SECOND_NS * 2;
        SluiceTokens left;

        limit(source, &config, now_ns);
        limit(target, &config, there_ns);
        for (unsigned i = 0; i < 4; i++) {
            SluiceNode node = { 0 };

            if (sluice_engine_submit(source, 0, &node,
                                     random_magnitude(&random, 32), now_ns)
                == SLUICE_HOLD) {
                sluice_engine_withdraw(source, &node, 0);
            }
        }
        left = tokens(source, now_ns);
        sluice_engine_lower_tokens(target, 0, &left, there_ns);
        if (!check(is_within(tokens(target, there_ns).bytes, left.bytes,
                             tolerance))) {
            printf("# seed %" PRIu64 "\n", seed + trace);
        }
        sluice_engine_free(source);
        sluice_engine_free(target);
    }
}

static const TapTest tests[] = {
    { "lower/never raised", test_lowered_never_raised },
    { "lower/without a limit", test_lowered_without_limit },
    { "lower/leaky bucket", test_lowered_leaky },
    { "lower/while held", test_lowered_while_held },
    { "lower/ceiling", test_lowered_ceiling },
    { "lower/extremes", test_lowered_extremes },
    { "lower/property: to any gauge", test_lowered_to_any_gauge },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
