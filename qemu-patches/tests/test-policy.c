/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Features of some classes: policies, flows, windows. */
#include <stdlib.h>

#include "evict.h"
#include "sluice/engine-internal.h"
#include "tap.h"

#define MS  1000000ULL

static void set_class(SluiceEngine *engine, uint32_t class_index,
                      SluiceClassConfig config, uint64_t now_ns)
{
    check(sluice_engine_set_class(engine, class_index, &config, now_ns));
}

static void set_ceiling(SluiceEngine *engine, uint64_t rate, uint64_t burst)
{
    SluiceLimit limit = { .bytes_per_second = rate, .burst_bytes = burst };

    check(sluice_engine_set_ceiling(engine, &limit, 0));
}

static void drain(SluiceEngine *engine)
{
    while (evict(engine)) {
        /* Only its end matters. */
    }
    sluice_engine_free(engine);
}

/* One unit is one millisecond. */
static const SluiceLimit kilobyte = { .bytes_per_second = 1000,
                                      .burst_bytes = 500 };

static void test_bad_values_are_refused(void)
{
    static const SluiceClassConfig bad[] = {
        { .policy = SLUICE_POLICIES },
        { .dynamic = SLUICE_DYNAMICS },
        { .weight = SLUICE_WEIGHT_MAX + 1 },
        { .peak_bytes_per_second = 1 },
        { .policy = SLUICE_POLICY_TOKEN_LEAKY },
        { .policy = SLUICE_POLICY_TOKEN_LEAKY, .peak_bytes_per_second = 1000 },
        { .policy = SLUICE_POLICY_TOKEN_LEAKY, .peak_bytes_per_second = 999,
          .limit = { .bytes_per_second = 1000 } },
        { .policy = SLUICE_POLICY_TOKEN_LEAKY,
          .peak_bytes_per_second = SLUICE_RATE_MAX + 1,
          .limit = { .bytes_per_second = 1000 } },
        { .reservation_bytes_per_second = 1001,
          .limit = { .bytes_per_second = 1000 } },
        { .reservation_bytes_per_second = SLUICE_RATE_MAX + 1 },
        { .reservation_bytes_per_second = 1,
          .window = { .period_ns = MS, .bytes = 1, .of = 1 } },
        { .window = { .period_ns = SLUICE_WINDOW_PERIOD_MAX_NS + 1,
                      .bytes = 1, .of = 1 } },
        { .window = { .period_ns = MS, .of = 1 } },
        { .window = { .period_ns = MS, .bytes = 1 } },
        { .window = { .period_ns = MS, .bytes = 1, .of = 3, .may_miss = 3 } },
        { .window = { .period_ns = MS, .bytes = 2, .of = 1 },
          .limit = { .bytes_per_second = 1000 } },
        { .window = { .period_ns = 1, .bytes = UINT32_MAX, .of = 1 } },
    };
    SluiceEngine *engine = sluice_engine_new(1);

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (!check(!sluice_engine_set_class(engine, 0, &bad[i], 0))) {
            printf("# accepted no. %u\n", i);
        }
    }
    sluice_engine_free(engine);
}

static void test_leaky_bucket_spaces_evenly(void)
{
    const uint64_t first_ns = 1000 * MS - SLUICE_LEAKY_IDLE_MAX_NS;
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[5];

    set_class(engine, 0, (SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_LEAKY_BUCKET }, 0);
    /* Idle for a second, and yet only one passes; then one in 10 ms, in a schedule that
     * began a little earlier. */
    for (unsigned i = 0; i < 5; i++) {
        check_equal(sluice_engine_submit(engine, 0, &nodes[i], 10, 1000 * MS),
                    i ? SLUICE_HOLD : SLUICE_PASS);
    }
    for (unsigned i = 1; i < 5; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);

        check_equal(event_ns, first_ns + 10 * i * MS);
        check(sluice_engine_release(engine, event_ns) == &nodes[i]);
    }
    sluice_engine_free(engine);
}

/* One request every 10 ms; the release comes 3 ms late each time. */
static void check_rate_though_late(const SluiceClassConfig *config)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[101];

    set_class(engine, 0, *config, 0);
    for (unsigned i = 0; i <= 100; i++) {
        check_equal(sluice_engine_submit(engine, 0, &nodes[i], 10, 0),
                    i ? SLUICE_HOLD : SLUICE_PASS);
    }
    for (unsigned i = 1; i <= 100; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);

        check_equal(event_ns, 10 * i * MS);
        check(sluice_engine_release(engine, event_ns + 3 * MS) == &nodes[i]);
    }
    sluice_engine_free(engine);
}

static void test_late_timers_take_nothing_from_a_leaky_bucket(void)
{
    SluiceLimit hundred_a_second = { .operations_per_second = 100,
                                     .burst_operations = 100 };

    check_rate_though_late(&(SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_LEAKY_BUCKET });
    check_rate_though_late(&(SluiceClassConfig){
        .limit = hundred_a_second, .policy = SLUICE_POLICY_LEAKY_BUCKET });
    check_rate_though_late(&(SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_TOKEN_LEAKY,
        .peak_bytes_per_second = 1000 });
}

/* One request every 10 ms; each comes 3 ms after it could have gone. */
static void check_rate_though_guest_late(const SluiceClassConfig *config)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode node;

    set_class(engine, 0, *config, 0);
    for (unsigned i = 0; i <= 100; i++) {
        check_equal(sluice_engine_submit(engine, 0, &node, 10,
                                         (10 * i + (i ? 3 : 0)) * MS),
                    SLUICE_PASS);
    }
    sluice_engine_free(engine);
}

static void test_late_guests_take_nothing_from_a_leaky_bucket(void)
{
    check_rate_though_guest_late(&(SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_LEAKY_BUCKET });
    check_rate_though_guest_late(&(SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_TOKEN_LEAKY,
        .peak_bytes_per_second = 1000 });
}

/* A second's idleness is worth the requests due in 5 ms, be they passed or held then. */
static void test_a_leaky_bucket_forgets_idleness(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[12];
    unsigned passed = 0;

    set_class(engine, 0, (SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_LEAKY_BUCKET }, 0);
    for (unsigned i = 0; i < 12; i++) {
        passed += sluice_engine_submit(engine, 0, &nodes[i], 1, 1000 * MS)
                  == SLUICE_PASS;
    }
    check_equal(passed, 1 + SLUICE_LEAKY_IDLE_MAX_NS / MS);
    check_equal(sluice_engine_next_event_ns(engine), 1001 * MS);
    drain(engine);
}

/* After so long a pause three requests of 10 ms each have come due, and no more. */
static void test_a_leaky_bucket_catches_up_with_little(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[9];
    uint64_t late_ns = 5000 * MS;

    set_class(engine, 0, (SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_LEAKY_BUCKET }, 0);
    for (unsigned i = 0; i < 9; i++) {
        sluice_engine_submit(engine, 0, &nodes[i], 10, 0);
    }
    for (unsigned i = 1; i <= 1 + SLUICE_LEAKY_LATE_MAX_NS / (10 * MS); i++) {
        check(sluice_engine_release(engine, late_ns) == &nodes[i]);
    }
    check(!sluice_engine_release(engine, late_ns));
    check_equal(sluice_engine_next_event_ns(engine), late_ns + 10 * MS);
    drain(engine);
}

static void test_token_leaky_lets_the_burst_out_at_the_peak(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[12];
    uint64_t events_ns[12] = { 0 };

    set_class(engine, 0, (SluiceClassConfig){
        .limit = kilobyte, .policy = SLUICE_POLICY_TOKEN_LEAKY,
        .peak_bytes_per_second = 10000 }, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 100, 0),
                SLUICE_PASS);
    for (unsigned i = 1; i < 12; i++) {
        check_equal(sluice_engine_submit(engine, 0, &nodes[i], 100, 0),
                    SLUICE_HOLD);
    }
    for (unsigned i = 1; i < 12; i++) {
        events_ns[i] = sluice_engine_next_event_ns(engine);
        check(!sluice_engine_release(engine, events_ns[i] - 1));
        check(sluice_engine_release(engine, events_ns[i]) == &nodes[i]);
    }
    /* 100 bytes are 10 ms at the peak, and 100 ms once the burst is gone. */
    for (unsigned i = 1; i <= 5; i++) {
        check_equal(events_ns[i] - events_ns[i - 1], 10 * MS);
    }
    for (unsigned i = 7; i < 12; i++) {
        check_equal(events_ns[i] - events_ns[i - 1], 100 * MS);
    }
    sluice_engine_free(engine);
}

static void test_minimum_charge(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[7];

    set_class(engine, 0, (SluiceClassConfig){
        .limit = kilobyte, .charge_min_bytes = 100 }, 0);
    for (unsigned i = 0; i < 5; i++) {
        check_equal(sluice_engine_submit(engine, 0, &nodes[i], i, 0),
                    SLUICE_PASS);
    }
    check_equal(sluice_engine_submit(engine, 0, &nodes[5], 1, 0), SLUICE_HOLD);
    check_equal(sluice_engine_submit(engine, 0, &nodes[6], 1, 0), SLUICE_HOLD);
    check(sluice_engine_release(engine, 1) == &nodes[5]);
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS + 1);
    /* The bytes asked for are counted. */
    check_equal(sluice_engine_stats(engine, 0)->bytes, 0 + 1 + 2 + 3 + 4 + 1);
    drain(engine);
}

static void test_unmanaged_is_never_held_and_counted(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_ceiling(engine, 1000, 0);
    set_class(engine, 1, (SluiceClassConfig){ .unmanaged = true,
                                              .limit = kilobyte }, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 100, 0),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 100, 0),
                SLUICE_HOLD);
    for (unsigned i = 0; i < 100; i++) {
        check_equal(sluice_engine_submit(engine, 1, &nodes[2], 100, 0),
                    SLUICE_PASS);
    }
    check_equal(sluice_engine_stats(engine, 1)->bytes, 10000);
    /* And takes nothing from the others' ceiling. */
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS);
    drain(engine);
}

static void test_becoming_unmanaged_lets_everything_go_in_order(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[4], other;

    set_ceiling(engine, 1000, 0);
    sluice_engine_submit(engine, 0, &other, 1000, 0);
    sluice_engine_submit(engine, 0, &other, 1000, 0);
    for (unsigned i = 0; i < 3; i++) {
        sluice_engine_submit(engine, 1, &nodes[i], 100, 0);
    }
    set_class(engine, 1, (SluiceClassConfig){ .unmanaged = true }, 0);
    /* A request that comes now must not overtake. */
    check_equal(sluice_engine_submit(engine, 1, &nodes[3], 100, 0),
                SLUICE_HOLD);
    for (unsigned i = 0; i < 4; i++) {
        check_equal(sluice_engine_next_event_ns(engine), 0);
        check(sluice_engine_release(engine, 0) == &nodes[i]);
    }
    check(!sluice_engine_release(engine, 0));
    check_equal(sluice_engine_next_event_ns(engine), 1000 * MS);
    drain(engine);
}

/* Flows */

static void submit_flow(SluiceEngine *engine, SluiceNode *node, uint32_t flow,
                        uint32_t bytes)
{
    node->flow = flow;
    check_equal(sluice_engine_submit(engine, 0, node, bytes, 0), SLUICE_HOLD);
}

/* A class in debt for a second. */
static SluiceEngine *dynamic_engine(SluiceDynamic dynamic)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode passed = { .flow = 99 };

    set_class(engine, 0, (SluiceClassConfig){
        .limit = { .bytes_per_second = 1000000, .burst_bytes = 1 },
        .dynamic = dynamic }, 0);
    check_equal(sluice_engine_submit(engine, 0, &passed, 1000000, 0),
                SLUICE_PASS);
    return engine;
}

static void check_order(SluiceEngine *engine, SluiceNode *const *order,
                        unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);

        if (!check(sluice_engine_release(engine, event_ns) == order[i])) {
            printf("# no. %u\n", i);
        }
    }
    check(!sluice_engine_first_held(engine, 0));
    sluice_engine_free(engine);
}

static void test_latency_oriented_serves_small_flows_first(void)
{
    SluiceEngine *engine = dynamic_engine(SLUICE_DYNAMIC_LATENCY);
    SluiceNode large[4], small[2];
    SluiceNode *order[] = { &large[0], &small[0], &small[1], &large[1],
                            &large[2], &large[3] };

    /* Flow 1 brings 64 KiB at a time: only its first is of a new flow. */
    for (unsigned i = 0; i < 4; i++) {
        submit_flow(engine, &large[i], 1, 65536);
    }
    submit_flow(engine, &small[0], 2, 1000);
    submit_flow(engine, &small[1], 2, 1000);
    check_order(engine, order, 6);
}

static void test_throughput_oriented_finishes_what_has_begun(void)
{
    SluiceEngine *engine = dynamic_engine(SLUICE_DYNAMIC_THROUGHPUT);
    SluiceNode small, large[2], passed = { .flow = 1 };
    SluiceNode *order[] = { &large[0], &large[1], &small };

    /* Flow 1 has had 1 MB while no request waited. */
    check_equal(sluice_engine_submit(engine, 0, &passed, 1000000, 2000 * MS),
                SLUICE_PASS);
    submit_flow(engine, &small, 2, 1000);
    submit_flow(engine, &large[0], 1, 1000);
    submit_flow(engine, &large[1], 1, 1000);
    check_order(engine, order, 3);
}

static void test_a_flow_never_overtakes_itself(void)
{
    SluiceEngine *engine = dynamic_engine(SLUICE_DYNAMIC_THROUGHPUT);
    SluiceNode nodes[6];
    SluiceNode *order[6];

    /* Its rank would improve with each of them. */
    for (unsigned i = 0; i < 6; i++) {
        submit_flow(engine, &nodes[i], 1, 65536);
        order[i] = &nodes[i];
    }
    check_order(engine, order, 6);
}

static void test_change_of_dynamic_keeps_the_order(void)
{
    SluiceEngine *engine = dynamic_engine(SLUICE_DYNAMIC_LATENCY);
    SluiceNode large[2], small[2];
    SluiceNode *order[] = { &large[0], &small[0], &large[1], &small[1] };
    SluiceClassConfig plain = {
        .limit = { .bytes_per_second = 1000000, .burst_bytes = 1 } };

    submit_flow(engine, &large[0], 1, 65536);
    submit_flow(engine, &large[1], 1, 65536);
    submit_flow(engine, &small[0], 2, 1000);
    set_class(engine, 0, plain, 0);
    submit_flow(engine, &small[1], 3, 1000);
    check_order(engine, order, 4);
}

/* Windows */

/* 100 bytes in 100 ms are due; the ceiling can do half of that. */
static SluiceEngine *late_engine(uint16_t may_miss, uint16_t of, bool may_drop)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode passed;

    set_ceiling(engine, 500, 1);
    set_class(engine, 0, (SluiceClassConfig){
        .priority = 5,
        .window = { .period_ns = 100 * MS, .bytes = 100,
                    .may_miss = may_miss, .of = of,
                    .may_drop = may_drop } }, 0);
    check_equal(sluice_engine_submit(engine, 1, &passed, 1, 0), SLUICE_PASS);
    return engine;
}

static void test_window_drops_as_many_as_it_may(void)
{
    enum { REQUESTS = 60 };
    SluiceEngine *engine = late_engine(1, 2, true);
    SluiceNode nodes[REQUESTS];
    unsigned dropped = 0, served = 0;

    for (unsigned i = 0; i < REQUESTS; i++) {
        check_equal(sluice_engine_submit(engine, 0, &nodes[i], 100, 0),
                    SLUICE_HOLD);
    }
    for (unsigned i = 0; i < REQUESTS; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);
        SluiceNode *node = sluice_engine_release(engine, event_ns);

        if (!check(node == &nodes[i])) {
            break;
        }
        dropped += node->late == SLUICE_LATE_DROP;
        served += node->late == SLUICE_IN_TIME;
        /* Never two of any two. */
        check(!node->late || i == 0 || !nodes[i - 1].late || i % 2 == 0);
    }
    check_equal(dropped + served, REQUESTS);
    /* The ceiling has half of the demand; the first few are in time. */
    check(dropped >= REQUESTS / 2 - 5 && dropped <= REQUESTS / 2);
    check_equal(sluice_engine_window_stats(engine, 0).late_requests, dropped);
    check_equal(sluice_engine_stats(engine, 0)->requests, served);
    check_equal(sluice_engine_stats(engine, 0)->bytes, served * 100);
    sluice_engine_free(engine);
}

/* The dropped ones would have been finished long after the others, those behind them
 * before. */
static void test_what_is_behind_a_drop_has_its_own_deadline(void)
{
    SluiceEngine *engine = late_engine(1, 2, true);
    SluiceNode passed, large, small, others[3], *node;
    uint64_t event_ns;

    sluice_engine_submit(engine, 1, &passed, 500, 10 * MS);
    sluice_engine_submit(engine, 0, &large, 64000, 10 * MS);
    sluice_engine_submit(engine, 0, &small, 100, 10 * MS);
    for (unsigned i = 0; i < 3; i++) {
        sluice_engine_submit(engine, 1, &others[i], 1500, 10 * MS);
    }
    set_class(engine, 1, (SluiceClassConfig){ .priority = 5 }, 10 * MS);
    event_ns = sluice_engine_next_event_ns(engine);
    check(event_ns > 500 * MS);
    check(sluice_engine_release(engine, event_ns) == &large);
    check_equal(large.late, SLUICE_LATE_DROP);
    node = sluice_engine_release(engine, event_ns);
    check(node == &small);
    check_equal(small.late, SLUICE_IN_TIME);
    drain(engine);
}

static void test_window_without_drops_loses_nothing(void)
{
    enum { REQUESTS = 40 };
    SluiceEngine *engine = late_engine(1, 2, false);
    SluiceNode nodes[REQUESTS];
    SluiceWindowStats stats;

    for (unsigned i = 0; i < REQUESTS; i++) {
        sluice_engine_submit(engine, 0, &nodes[i], 100, 0);
    }
    for (unsigned i = 0; i < REQUESTS; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);

        check(sluice_engine_release(engine, event_ns) == &nodes[i]);
    }
    check_equal(sluice_engine_stats(engine, 0)->requests, REQUESTS);
    stats = sluice_engine_window_stats(engine, 0);
    check(stats.late_requests > 0);
    check(stats.late_requests <= REQUESTS / 2);
    sluice_engine_free(engine);
}

static void test_window_is_kept_while_others_flood(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode flood[20], stream[50];
    unsigned sent = 0, done = 0;
    uint64_t event_ns = 0;

    set_ceiling(engine, 10000, 1);
    set_class(engine, 0, (SluiceClassConfig){ .priority = 0 }, 0);
    set_class(engine, 1, (SluiceClassConfig){
        .priority = 9,
        .window = { .period_ns = 100 * MS, .bytes = 100, .of = 1,
                    .may_drop = true } }, 0);
    for (unsigned i = 0; i < 20; i++) {
        sluice_engine_submit(engine, 0, &flood[i], 200, 0);
    }
    while (done < 50 && event_ns != SLUICE_NEVER) {
        SluiceNode *node;

        event_ns = sluice_engine_next_event_ns(engine);
        for (; sent < 50 && sent * 100 * MS <= event_ns; sent++) {
            done += sluice_engine_submit(engine, 1, &stream[sent], 100,
                                         sent * 100 * MS) == SLUICE_PASS;
        }
        node = sluice_engine_release(engine, event_ns);
        if (node && node->class_index == 0) {
            sluice_engine_submit(engine, 0, node, 200, event_ns);
        } else {
            done += node != NULL;
        }
    }
    check_equal(done, 50);
    check_equal(sluice_engine_window_stats(engine, 1).late_requests, 0);
    check_equal(sluice_engine_window_stats(engine, 1).violations, 0);
    drain(engine);
}

/*
 * Periods longer than the second for which reservations are made up. Two
 * classes are due 100 bytes in 3 s each, the ceiling has 50 for both, and none
 * may miss its window: each is 1.5 s later with each of its requests.
 */
static void test_window_of_seconds_is_found_late(void)
{
    enum { REQUESTS = 20, SECOND = 1000 * MS };
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[REQUESTS], passed;
    SluiceClassConfig config = {
        .priority = 5,
        .window = { .period_ns = 3ULL * SECOND, .bytes = 100, .of = 1 },
    };

    set_ceiling(engine, 33, 1);
    set_class(engine, 0, config, 0);
    set_class(engine, 1, config, 0);
    sluice_engine_submit(engine, 2, &passed, 1, 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        sluice_engine_submit(engine, i % 2, &nodes[i], 100, 0);
    }
    for (unsigned i = 0; i < REQUESTS; i++) {
        check(sluice_engine_release(engine,
                                    sluice_engine_next_event_ns(engine)));
    }
    for (unsigned c = 0; c < 2; c++) {
        uint64_t violations = sluice_engine_window_stats(engine, c).violations;

        check(violations >= REQUESTS / 2 - 4 && violations <= REQUESTS / 2);
    }
    check_equal(engine->longest_window_ns, 3ULL * SECOND);
    config.window.period_ns = SECOND;
    set_class(engine, 0, config, 0);
    check_equal(engine->longest_window_ns, 3ULL * SECOND);
    set_class(engine, 1, (SluiceClassConfig){ .priority = 5 }, 0);
    check_equal(engine->longest_window_ns, SECOND);
    sluice_engine_free(engine);
}

static const TapTest tests[] = {
    { "policy/bad values are refused", test_bad_values_are_refused },
    { "policy/leaky bucket spaces evenly", test_leaky_bucket_spaces_evenly },
    { "policy/late timers take nothing from a leaky bucket",
      test_late_timers_take_nothing_from_a_leaky_bucket },
    { "policy/late guests take nothing from a leaky bucket",
      test_late_guests_take_nothing_from_a_leaky_bucket },
    { "policy/a leaky bucket forgets idleness",
      test_a_leaky_bucket_forgets_idleness },
    { "policy/a leaky bucket catches up with little",
      test_a_leaky_bucket_catches_up_with_little },
    { "policy/token-leaky lets the burst out at the peak",
      test_token_leaky_lets_the_burst_out_at_the_peak },
    { "policy/minimum charge", test_minimum_charge },
    { "policy/unmanaged is never held, and counted",
      test_unmanaged_is_never_held_and_counted },
    { "policy/becoming unmanaged lets everything go, in order",
      test_becoming_unmanaged_lets_everything_go_in_order },
    { "policy/latency-oriented serves small flows first",
      test_latency_oriented_serves_small_flows_first },
    { "policy/throughput-oriented finishes what has begun",
      test_throughput_oriented_finishes_what_has_begun },
    { "policy/a flow never overtakes itself",
      test_a_flow_never_overtakes_itself },
    { "policy/change of dynamic keeps the order",
      test_change_of_dynamic_keeps_the_order },
    { "policy/window drops as many as it may",
      test_window_drops_as_many_as_it_may },
    { "policy/what is behind a drop has its own deadline",
      test_what_is_behind_a_drop_has_its_own_deadline },
    { "policy/window without drops loses nothing",
      test_window_without_drops_loses_nothing },
    { "policy/window is kept while others flood",
      test_window_is_kept_while_others_flood },
    { "policy/window of seconds is found late too",
      test_window_of_seconds_is_found_late },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
