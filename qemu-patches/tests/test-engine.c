/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The engine: unit tests in the order of the header. */
#include "evict.h"
#include "sluice/engine.h"
#include "tap.h"

#define MS  1000000ULL

static const SluiceLimit unlimited = { 0 };

/* One unit is one millisecond: easy sums. */
static SluiceClassConfig bytes_limit(uint64_t burst, uint8_t priority)
{
    return (SluiceClassConfig){
        .limit = { .bytes_per_second = 1000, .burst_bytes = burst },
        .priority = priority,
    };
}

static SluiceClassConfig only_priority(uint8_t priority)
{
    return (SluiceClassConfig){ .priority = priority };
}

static void set_class(SluiceEngine *engine, uint32_t class_index,
                      SluiceClassConfig config, uint64_t now_ns)
{
    check(sluice_engine_set_class(engine, class_index, &config, now_ns));
}

static void set_ceiling(SluiceEngine *engine, uint64_t rate, uint64_t burst,
                        uint64_t now_ns)
{
    SluiceLimit limit = { .bytes_per_second = rate, .burst_bytes = burst };

    check(sluice_engine_set_ceiling(engine, &limit, now_ns));
}

static void drain(SluiceEngine *engine)
{
    while (evict(engine)) {
        /* Only its end matters. */
    }
    sluice_engine_free(engine);
}

static void test_new_engine_is_unlimited(void)
{
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode node;

    for (uint32_t i = 0; i < 300; i++) {
        check_equal(sluice_engine_submit(engine, i % 3, &node, UINT32_MAX, 0),
                    SLUICE_PASS);
    }
    check_equal(sluice_engine_stats(engine, 2)->requests, 100);
    check_equal(sluice_engine_stats(engine, 2)->bytes, 100ULL * UINT32_MAX);
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    check(!sluice_engine_release(engine, 1));
    check(!evict(engine));
    check(!sluice_engine_first_held(engine, 0));
    sluice_engine_free(engine);
    sluice_engine_free(NULL);
}

static void test_configuration_out_of_range_changes_nothing(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig good = bytes_limit(100, 5), bad = good;
    SluiceLimit ceiling = { .operations_per_second = SLUICE_RATE_MAX + 1 };
    SluiceNode nodes[2];

    set_class(engine, 0, good, 0);
    check(!sluice_engine_set_class(engine, 1, &good, 0));
    bad.limit = (SluiceLimit){ .bytes_per_second = SLUICE_RATE_MAX + 1 };
    check(!sluice_engine_set_class(engine, 0, &bad, 0));
    bad.limit = (SluiceLimit){ .operations_per_second = UINT64_MAX };
    check(!sluice_engine_set_class(engine, 0, &bad, 0));
    bad.limit = (SluiceLimit){ .burst_bytes = SLUICE_BURST_MAX + 1 };
    check(!sluice_engine_set_class(engine, 0, &bad, 0));
    bad.limit = (SluiceLimit){ .burst_operations = SLUICE_BURST_MAX + 1 };
    check(!sluice_engine_set_class(engine, 0, &bad, 0));
    bad = only_priority(SLUICE_PRIORITY_MAX + 1);
    check(!sluice_engine_set_class(engine, 0, &bad, 0));
    check(!sluice_engine_set_ceiling(engine, &ceiling, 0));

    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 100, 0), SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 1, 0), SLUICE_HOLD);
    drain(engine);
}

static void test_hold_and_release_by_bytes(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[3];

    set_class(engine, 0, bytes_limit(100, 5), 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 300, 0), SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 50, 0), SLUICE_HOLD);
    check_equal(sluice_engine_submit(engine, 0, &nodes[2], 50, 10), SLUICE_HOLD);
    check(sluice_engine_first_held(engine, 0) == &nodes[1]);
    /* 200 in debt: 200 ms, and one tick for the first token. */
    check_equal(sluice_engine_next_event_ns(engine), 200 * MS + 1);
    check(!sluice_engine_release(engine, 200 * MS));
    check(sluice_engine_release(engine, 200 * MS + 1) == &nodes[1]);
    check_equal(sluice_engine_next_event_ns(engine), 250 * MS + 1);
    check(!sluice_engine_release(engine, 250 * MS));
    check(sluice_engine_release(engine, 400 * MS) == &nodes[2]);
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    sluice_engine_free(engine);
}

static void test_hold_and_release_by_operations(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = {
        .limit = { .operations_per_second = 10, .burst_operations = 2 },
        .priority = 5,
    };
    SluiceNode nodes[3];

    set_class(engine, 0, config, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], UINT32_MAX, 0),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 0, 0), SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[2], 0, 0), SLUICE_HOLD);
    check_equal(sluice_engine_next_event_ns(engine), 1);
    check(sluice_engine_release(engine, 1) == &nodes[2]);
    /* Three operations against a burst of two: the next in 100 ms. */
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 0, 2), SLUICE_HOLD);
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS + 1);
    drain(engine);
}

static void test_the_scarcer_of_bytes_and_operations_rules(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig config = {
        .limit = { .bytes_per_second = 1000, .burst_bytes = 1000,
                   .operations_per_second = 10, .burst_operations = 1 },
        .priority = 5,
    };
    SluiceNode nodes[2];

    set_class(engine, 0, config, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 3000, 0),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 1, 0), SLUICE_HOLD);
    check_equal(sluice_engine_next_event_ns(engine), 2000 * MS + 1);
    drain(engine);
}

static void test_a_held_request_is_not_overtaken_by_its_own_class(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[3];

    set_class(engine, 0, bytes_limit(100, 5), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 1, 0), SLUICE_HOLD);
    /* A token is there again, but nodes[1] was first. */
    check_equal(sluice_engine_submit(engine, 0, &nodes[2], 1, 150 * MS),
                SLUICE_HOLD);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[1]);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[2]);
    sluice_engine_free(engine);
}

static void test_classes_without_a_ceiling_do_not_compete(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_class(engine, 0, bytes_limit(100, 0), 0);
    set_class(engine, 1, only_priority(9), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 200, 0);
    /* Class 0 is due since 100 ms, its timer late: no reason to hold this. */
    check_equal(sluice_engine_submit(engine, 1, &nodes[2], 1, 150 * MS),
                SLUICE_PASS);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[1]);
    sluice_engine_free(engine);
}

static void test_ceiling_serves_priorities_in_order(void)
{
    SluiceEngine *engine = sluice_engine_new(SLUICE_PRIORITIES);
    SluiceNode nodes[SLUICE_PRIORITIES + 1];
    uint64_t now_ns = 0;

    set_ceiling(engine, 1000, 100, 0);
    for (uint32_t i = 0; i < SLUICE_PRIORITIES; i++) {
        set_class(engine, i, only_priority(SLUICE_PRIORITY_MAX - i), 0);
    }
    sluice_engine_submit(engine, 0, &nodes[SLUICE_PRIORITIES], 200, 0);
    for (uint32_t i = 0; i < SLUICE_PRIORITIES; i++) {
        check_equal(sluice_engine_submit(engine, i, &nodes[i], 100, i),
                    SLUICE_HOLD);
    }
    for (uint32_t i = SLUICE_PRIORITIES; i-- > 0; ) {
        now_ns = sluice_engine_next_event_ns(engine);
        check(!sluice_engine_release(engine, now_ns - 1));
        check(sluice_engine_release(engine, now_ns) == &nodes[i]);
    }
    /* 200 and nine times 100 before the last, against a burst of 100. */
    check_equal(now_ns, 1000 * MS + 1);
    sluice_engine_free(engine);
}

static void test_a_newcomer_does_not_take_the_ceiling_from_a_better_one(void)
{
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[5];

    set_ceiling(engine, 1000, 100, 0);
    set_class(engine, 0, only_priority(3), 0);
    set_class(engine, 1, only_priority(4), 0);
    set_class(engine, 2, only_priority(3), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 10, 0), SLUICE_HOLD);
    /* The ceiling has tokens again, the timer of nodes[1] is late. */
    check_equal(sluice_engine_submit(engine, 1, &nodes[2], 10, 150 * MS),
                SLUICE_HOLD);
    check_equal(sluice_engine_submit(engine, 2, &nodes[3], 10, 150 * MS),
                SLUICE_HOLD);
    check(sluice_engine_next_event_ns(engine) <= 150 * MS);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[1]);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[3]);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[2]);
    sluice_engine_free(engine);
}

static void test_a_better_newcomer_passes_waiting_worse_ones(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_ceiling(engine, 1000, 100, 0);
    set_class(engine, 0, only_priority(4), 0);
    set_class(engine, 1, only_priority(3), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 0);
    check_equal(sluice_engine_submit(engine, 1, &nodes[2], 10, 150 * MS),
                SLUICE_PASS);
    check(sluice_engine_release(engine, 150 * MS) == &nodes[1]);
    sluice_engine_free(engine);
}

/* Only a class that could use the ceiling keeps worse ones from it. */
static void test_a_class_short_of_its_own_tokens_blocks_nobody(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_ceiling(engine, 100000, 100000, 0);
    set_class(engine, 0, bytes_limit(100, 0), 0);
    set_class(engine, 1, only_priority(9), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 1000, 0);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 10, 0), SLUICE_HOLD);
    check_equal(sluice_engine_submit(engine, 1, &nodes[2], 10, 0), SLUICE_PASS);
    drain(engine);
}

static void test_equal_priorities_take_turns(void)
{
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[3][4], first;

    set_ceiling(engine, 1000, 1, 0);
    sluice_engine_submit(engine, 0, &first, 100, 0);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t class_index = 0; class_index < 3; class_index++) {
            sluice_engine_submit(engine, class_index, &nodes[class_index][i],
                                 10, 0);
        }
    }
    for (uint32_t round = 0; round < 4; round++) {
        unsigned seen = 0;

        for (uint32_t i = 0; i < 3; i++) {
            uint64_t now_ns = sluice_engine_next_event_ns(engine);
            SluiceNode *node = sluice_engine_release(engine, now_ns);

            if (check(node)) {
                check(node == &nodes[node->class_index][round]);
                seen |= 1u << node->class_index;
            }
        }
        check_equal(seen, 7);
    }
    sluice_engine_free(engine);
}

static void test_equal_priorities_in_the_order_of_eligibility(void)
{
    SluiceEngine *engine = sluice_engine_new(8);
    SluiceNode nodes[8], passed;

    /* Class i becomes eligible after 900 - 100 i ms. */
    for (uint32_t i = 0; i < 8; i++) {
        set_class(engine, i, bytes_limit(1, 5), 0);
        sluice_engine_submit(engine, i, &passed, 901 - 100 * i, 0);
        sluice_engine_submit(engine, i, &nodes[i], 1, 0);
    }
    for (uint32_t i = 8; i-- > 0; ) {
        check(sluice_engine_release(engine, 5000 * MS) == &nodes[i]);
    }
    sluice_engine_free(engine);
}

static void test_priority_decides_between_classes_due_at_once(void)
{
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[3], passed;

    for (uint32_t i = 0; i < 3; i++) {
        set_class(engine, i, bytes_limit(1, 8 - i), 0);
        sluice_engine_submit(engine, i, &passed, 101, 0);
        sluice_engine_submit(engine, i, &nodes[i], 1, 0);
    }
    for (uint32_t i = 3; i-- > 0; ) {
        check(sluice_engine_release(engine, 100 * MS + 1) == &nodes[i]);
    }
    sluice_engine_free(engine);
}

static void test_change_under_backlog_applies_at_once(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceClassConfig faster = bytes_limit(100, 5);
    SluiceNode nodes[3];

    set_class(engine, 0, bytes_limit(100, 5), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 1100, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 0);
    sluice_engine_submit(engine, 0, &nodes[2], 10, 0);
    check_equal(sluice_engine_next_event_ns(engine), 1000 * MS + 1);
    faster.limit.bytes_per_second = 10000;
    set_class(engine, 0, faster, 0);
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS + 1);
    set_class(engine, 0, bytes_limit(100, 5), 50 * MS);
    check_equal(sluice_engine_next_event_ns(engine), 550 * MS + 1);
    set_class(engine, 0, only_priority(5), 60 * MS);
    check(sluice_engine_next_event_ns(engine) <= 60 * MS);
    check(sluice_engine_release(engine, 60 * MS) == &nodes[1]);
    check(sluice_engine_release(engine, 60 * MS) == &nodes[2]);
    sluice_engine_free(engine);
}

static void test_change_of_priority_under_backlog(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_ceiling(engine, 1000, 100, 0);
    set_class(engine, 0, only_priority(3), 0);
    set_class(engine, 1, only_priority(4), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 0);
    sluice_engine_submit(engine, 1, &nodes[2], 10, 0);
    set_class(engine, 0, only_priority(5), 1);
    check(sluice_engine_release(engine, 500 * MS) == &nodes[2]);
    check(sluice_engine_release(engine, 500 * MS) == &nodes[1]);
    sluice_engine_free(engine);
}

static void test_change_of_the_same_class_keeps_its_turn(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceNode nodes[3];

    set_ceiling(engine, 1000, 100, 0);
    sluice_engine_submit(engine, 0, &nodes[0], 200, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 0);
    sluice_engine_submit(engine, 1, &nodes[2], 10, 0);
    set_class(engine, 0, bytes_limit(100, 5), 1);
    check(sluice_engine_release(engine, 500 * MS) == &nodes[1]);
    check(sluice_engine_release(engine, 500 * MS) == &nodes[2]);
    sluice_engine_free(engine);
}

static void test_change_of_ceiling_under_backlog(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[2];

    set_ceiling(engine, 1000, 100, 0);
    sluice_engine_submit(engine, 0, &nodes[0], 1100, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 0);
    check_equal(sluice_engine_next_event_ns(engine), 1000 * MS + 1);
    set_ceiling(engine, 2000, 100, 0);
    check_equal(sluice_engine_next_event_ns(engine), 500 * MS + 1);
    check(sluice_engine_set_ceiling(engine, &unlimited, 1));
    check(sluice_engine_next_event_ns(engine) <= 1);
    check(sluice_engine_release(engine, 1) == &nodes[1]);
    sluice_engine_free(engine);
}

static void test_older_time_counts_as_the_newest_seen(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[2];

    set_class(engine, 0, bytes_limit(100, 5), 0);
    sluice_engine_submit(engine, 0, &nodes[0], 600, 0);
    sluice_engine_submit(engine, 0, &nodes[1], 10, 700 * MS);
    check(!sluice_engine_first_held(engine, 0));
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 200, 0),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[1], 10, 5), SLUICE_HOLD);
    check_equal(nodes[1].held_since_ns, 700 * MS);
    drain(engine);
}

static void test_stats(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    const SluiceClassStats *stats = sluice_engine_stats(engine, 1);
    SluiceNode nodes[3];

    set_class(engine, 1, bytes_limit(100, 5), 0);
    sluice_engine_submit(engine, 1, &nodes[0], 200, 0);
    sluice_engine_submit(engine, 1, &nodes[1], 30, 10 * MS);
    sluice_engine_submit(engine, 1, &nodes[2], 40, 20 * MS);
    check_equal(stats->requests, 1);
    check_equal(stats->backlog_requests, 2);
    check_equal(stats->backlog_bytes, 70);
    check_equal(stats->held_requests, 0);
    sluice_engine_release(engine, 110 * MS);
    check_equal(stats->requests, 2);
    check_equal(stats->bytes, 230);
    check_equal(stats->held_requests, 1);
    check_equal(stats->held_ns, 100 * MS);
    check_equal(stats->backlog_requests, 1);
    sluice_engine_withdraw(engine, &nodes[2], 0);
    check_equal(stats->requests, 2);
    check_equal(stats->backlog_requests, 0);
    check_equal(stats->backlog_bytes, 0);
    check_equal(sluice_engine_stats(engine, 0)->requests, 0);
    sluice_engine_free(engine);
}

static void test_withdraw_any_position_uncharged(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceNode nodes[5];

    set_class(engine, 0, bytes_limit(100, 5), 0);
    for (uint32_t i = 0; i < 5; i++) {
        sluice_engine_submit(engine, 0, &nodes[i], 200, 0);
    }
    sluice_engine_withdraw(engine, &nodes[2], 0);
    sluice_engine_withdraw(engine, &nodes[4], 0);
    sluice_engine_withdraw(engine, &nodes[1], 0);
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS + 1);
    check(sluice_engine_release(engine, 100 * MS + 1) == &nodes[3]);
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    /* A class that became empty by withdrawal can be used again. */
    sluice_engine_submit(engine, 0, &nodes[0], 200, 100 * MS + 1);
    check_equal(sluice_engine_next_event_ns(engine), 300 * MS + 1);
    sluice_engine_withdraw(engine, &nodes[0], 0);
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    sluice_engine_free(engine);
}

static bool is_odd(const SluiceNode *node, const void *nodes)
{
    return (node - (const SluiceNode *)nodes) % 2 == 1;
}

static bool is_any(const SluiceNode *node, const void *nodes)
{
    return node && nodes;
}

/* Three classes hold 3, 6, 9 and 4, 7, 10 and 5, 8, 11. */
static void test_withdraw_all_that_match(void)
{
    static const unsigned left[] = { 6, 4, 8 }, held[] = { 1, 2, 1 };
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[12];

    for (uint32_t i = 0; i < 12; i++) {
        if (i < 3) {
            set_class(engine, i, bytes_limit(100, 5), 0);
        }
        sluice_engine_submit(engine, i % 3, &nodes[i], 200, 0);
    }
    sluice_engine_withdraw_if(engine, is_odd, nodes, 0);
    for (uint32_t i = 0; i < 3; i++) {
        check(sluice_engine_first_held(engine, i) == &nodes[left[i]]);
        check_equal(sluice_engine_stats(engine, i)->backlog_requests, held[i]);
        check_equal(sluice_engine_stats(engine, i)->backlog_bytes,
                    held[i] * 200);
        check_equal(sluice_engine_stats(engine, i)->requests, 1);
    }
    /* The newest has gone: a new request is behind those that are left. */
    sluice_engine_submit(engine, 0, &nodes[9], 200, 0);
    check_equal(sluice_engine_next_event_ns(engine), 100 * MS + 1);
    for (uint32_t i = 0; i < 3; i++) {
        SluiceNode *node = sluice_engine_release(engine, 100 * MS + 1);

        check(node && node == &nodes[left[node->class_index]]);
    }
    check(!sluice_engine_release(engine, 100 * MS + 1));
    check(sluice_engine_release(engine, 300 * MS + 1));
    check(sluice_engine_release(engine, 300 * MS + 1));
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    for (uint32_t i = 0; i < 12; i++) {
        sluice_engine_submit(engine, i % 3, &nodes[i], 200, 300 * MS + 1);
    }
    sluice_engine_withdraw_if(engine, is_any, nodes, 0);
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    sluice_engine_free(engine);
}

static void test_evict_in_order_uncharged(void)
{
    SluiceEngine *engine = sluice_engine_new(3);
    SluiceNode nodes[9], passed;
    unsigned taken[3] = { 0 };
    uint64_t admitted = 0;

    set_ceiling(engine, 1, 1, 0);
    sluice_engine_submit(engine, 0, &passed, 1, 0);
    for (uint32_t i = 0; i < 9; i++) {
        sluice_engine_submit(engine, i * 2 % 3, &nodes[i], 1, i);
    }
    for (uint32_t i = 0; i < 9; i++) {
        SluiceNode *node = evict(engine);

        if (check(node)) {
            /* Nodes c, c + 3 and c + 6 are of one class. */
            check(node - nodes >= 3 * (int)taken[node->class_index]);
            check(node - nodes < 3 * (int)taken[node->class_index] + 3);
            taken[node->class_index]++;
        }
    }
    check(!evict(engine));
    check_equal(sluice_engine_next_event_ns(engine), SLUICE_NEVER);
    for (uint32_t i = 0; i < 3; i++) {
        admitted += sluice_engine_stats(engine, i)->requests;
        check_equal(sluice_engine_stats(engine, i)->backlog_requests, 0);
    }
    check_equal(admitted, 1);
    sluice_engine_free(engine);
}

static const TapTest tests[] = {
    { "engine/new engine is unlimited", test_new_engine_is_unlimited },
    { "engine/configuration out of range changes nothing",
      test_configuration_out_of_range_changes_nothing },
    { "engine/hold and release by bytes", test_hold_and_release_by_bytes },
    { "engine/hold and release by operations",
      test_hold_and_release_by_operations },
    { "engine/the scarcer of bytes and operations rules",
      test_the_scarcer_of_bytes_and_operations_rules },
    { "engine/a held request is not overtaken by its own class",
      test_a_held_request_is_not_overtaken_by_its_own_class },
    { "engine/classes without a ceiling do not compete",
      test_classes_without_a_ceiling_do_not_compete },
    { "engine/ceiling serves priorities in order",
      test_ceiling_serves_priorities_in_order },
    { "engine/a newcomer does not take the ceiling from a better one",
      test_a_newcomer_does_not_take_the_ceiling_from_a_better_one },
    { "engine/a better newcomer passes waiting worse ones",
      test_a_better_newcomer_passes_waiting_worse_ones },
    { "engine/a class short of its own tokens blocks nobody",
      test_a_class_short_of_its_own_tokens_blocks_nobody },
    { "engine/equal priorities take turns", test_equal_priorities_take_turns },
    { "engine/equal priorities in the order of eligibility",
      test_equal_priorities_in_the_order_of_eligibility },
    { "engine/priority decides between classes due at once",
      test_priority_decides_between_classes_due_at_once },
    { "engine/change under backlog applies at once",
      test_change_under_backlog_applies_at_once },
    { "engine/change of priority under backlog",
      test_change_of_priority_under_backlog },
    { "engine/change of the same class keeps its turn",
      test_change_of_the_same_class_keeps_its_turn },
    { "engine/change of ceiling under backlog",
      test_change_of_ceiling_under_backlog },
    { "engine/older time counts as the newest seen",
      test_older_time_counts_as_the_newest_seen },
    { "engine/stats", test_stats },
    { "engine/withdraw at any position, uncharged",
      test_withdraw_any_position_uncharged },
    { "engine/withdraw all that match, uncharged", test_withdraw_all_that_match },
    { "engine/evict all, in order within a class, uncharged",
      test_evict_in_order_uncharged },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
