/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shares of a ceiling by reservation, which nothing may take away: neither priorities,
 * nor other classes' own limits, nor a long wait of all.
 */
#include "share-load.h"

/*
 * Backlogged classes get their reservations, with any priorities. The
 * ceiling serves one request at a time; due turns are taken by due time, so a
 * turn is late by no more than one request of each reserved class and one of
 * another, and the class's own last request may be under way.
 */
static bool reservation_trace(uint64_t seed)
{
    Load *load = new_load(seed, CLASSES);
    uint64_t reserved[CLASSES], left = RATE * 9 / 10, begin_ns;
    bool ok = true;

    load->size_max = random_magnitude(&load->random, 13);
    for (uint32_t i = 0; i < CLASSES; i++) {
        reserved[i] = i < 5 ? random_below(&load->random, left) : 0;
        left -= reserved[i];
        set_class(load, i, random_below(&load->random, 10),
                  1 + random_below(&load->random, 1000), reserved[i]);
        fill(load, i);
    }
    begin_ns = sluice_engine_next_event_ns(load->engine);
    while (ok && load->requests < 5000) {
        Wide late = (CLASSES + 2) * (Wide)load->size_max;
        Wide elapsed_ns;

        ok = serve(load) != UINT32_MAX;
        elapsed_ns = load->now_ns - begin_ns;
        for (uint32_t i = 0; ok && i < CLASSES; i++) {
            Wide due = elapsed_ns * reserved[i] / NANO;

            ok = check((Wide)load->served[i] + late >= due);
        }
    }
    free_load(load);
    return ok;
}

static void test_reservations_hold_against_priorities(void)
{
    run("reservations", reservation_trace, 6);
}

static void test_reservations_are_no_more_than_promised(void)
{
    Load *load = new_load(1, 2);

    /* A tenth reserved, worst priority: it gets that tenth and no more. */
    load->fixed_size = load->size_max = 1000;
    set_class(load, 0, 0, 100, 0);
    set_class(load, 1, 9, 100, RATE / 10);
    fill(load, 0);
    fill(load, 1);
    while (load->requests < 10000 && serve(load) != UINT32_MAX) {
        /* Until enough is served. */
    }
    check(load->served[1] >= 990000 && load->served[1] <= 1010000);
    free_load(load);
}

static void test_too_many_reservations_share_in_proportion(void)
{
    Load *load = new_load(1, 3);

    load->fixed_size = load->size_max = 1000;
    set_class(load, 0, 0, 1000, 0);
    set_class(load, 1, 5, 1, RATE);
    set_class(load, 2, 9, 1, RATE * 3);
    for (uint32_t i = 0; i < 3; i++) {
        fill(load, i);
    }
    while (load->requests < 10000 && serve(load) != UINT32_MAX) {
        /* Until enough is served. */
    }
    check(load->served[1] >= 2400000 && load->served[1] <= 2600000);
    check(load->served[2] >= 7400000 && load->served[2] <= 7600000);
    free_load(load);
}

static void test_idleness_saves_up_no_reserved_turns(void)
{
    Load *load = new_load(1, 2);
    uint64_t before;

    load->fixed_size = load->size_max = 1000;
    set_class(load, 0, 0, 100, 0);
    set_class(load, 1, 9, 100, RATE / 10);
    fill(load, 0);
    while (load->requests < 10000 && serve(load) != UINT32_MAX) {
        /* Class 1 is idle for ten seconds. */
    }
    fill(load, 1);
    before = load->requests;
    while (load->requests < before + 100 && serve(load) != UINT32_MAX) {
        /* A tenth of a second. */
    }
    check(load->served[1] >= 9000 && load->served[1] <= 12000);
    free_load(load);
}

/* Serves until so many requests have been. */
static bool serve_until(Load *load, uint64_t requests)
{
    while (load->requests < requests) {
        if (serve(load) == UINT32_MAX) {
            return false;
        }
    }
    return true;
}

/* Class 0 is unreserved and goes first; class 1 has half the ceiling reserved. */
static Load *load_of_half_reserved(void)
{
    Load *load = new_load(1, 3);

    load->fixed_size = load->size_max = 1000;
    set_class(load, 0, 0, 100, 0);
    set_class(load, 1, 9, 100, RATE / 2);
    return load;
}

static void set_third(Load *load, const SluiceClassConfig *config)
{
    check(sluice_engine_set_class(load->engine, 2, config, load->now_ns));
}

/* Its bytes would be a tenth of the ceiling, but it may ask but once a second. */
static void test_own_operations_limit_costs_others_no_reservation(void)
{
    Load *load = load_of_half_reserved();
    SluiceClassConfig slow = {
        .priority = 5, .weight = 100,
        .reservation_bytes_per_second = RATE / 10,
        .limit = { .operations_per_second = 1, .burst_operations = 1 },
    };

    set_third(load, &slow);
    for (uint32_t i = 0; i < 3; i++) {
        fill(load, i);
    }
    check(serve_until(load, 20000));            /* 20 seconds */
    check(load->served[1] >= 9900000);
    check(load->served[2] >= 19000 && load->served[2] <= 21000);
    free_load(load);
}

/* Nor is a request late for its window by the wait for its own limit: `others` compete,
 * or none does. */
static void check_own_limit_makes_nothing_late(bool others)
{
    Load *load = load_of_half_reserved();
    SluiceClassConfig slow = {
        .priority = 5, .weight = 100,
        .window = { .bytes = 1000, .period_ns = 40000000,
                    .may_miss = 1, .of = 2, .may_drop = true },
        .limit = { .operations_per_second = 1, .burst_operations = 1 },
    };
    SluiceWindowStats stats;

    set_third(load, &slow);
    for (uint32_t i = others ? 0 : 2; i < 3; i++) {
        fill(load, i);
    }
    check(serve_until(load, others ? 20000 : 20));
    stats = sluice_engine_window_stats(load->engine, 2);
    check_equal(stats.late_requests, 0);
    check_equal(stats.violations, 0);
    free_load(load);
}

static void test_own_operations_limit_makes_nothing_late(void)
{
    check_own_limit_makes_nothing_late(true);
}

static void test_own_operations_limit_makes_nothing_late_alone(void)
{
    check_own_limit_makes_nothing_late(false);
}

/* After idleness one request passes, as large as ten seconds of its limit. The
 * next waits for that, and no other class does. */
static void test_own_debt_costs_others_no_reservation(void)
{
    Load *load = load_of_half_reserved();
    SluiceClassConfig slow = {
        .priority = 5, .weight = 100,
        .reservation_bytes_per_second = RATE / 20,
        .limit = { .bytes_per_second = RATE / 10, .burst_bytes = 1 },
    };
    SluiceNode huge, next;
    uint64_t before;

    set_third(load, &slow);
    load->now_ns = 2000000;
    check_equal(sluice_engine_submit(load->engine, 2, &huge, RATE,
                                     load->now_ns), SLUICE_PASS);
    check_equal(sluice_engine_submit(load->engine, 2, &next, 1000,
                                     load->now_ns), SLUICE_HOLD);
    fill(load, 0);
    fill(load, 1);
    while (load->served[2] == 0 && serve(load) != UINT32_MAX) {
        /* Until it goes, in ten seconds. */
    }
    check(load->now_ns >= 10 * (uint64_t)NANO);
    before = load->served[1];
    check(serve_until(load, load->requests + 4000));
    check(load->served[1] >= before + 1900000);
    free_load(load);
}

/* The real work of a disk may be charged later: own debt, too. */
static void test_what_is_charged_later_costs_others_no_reservation(void)
{
    Load *load = load_of_half_reserved();
    SluiceClassConfig seeking = {
        .priority = 5, .weight = 100,
        .reservation_bytes_per_second = RATE / 10,
        .limit = { .bytes_per_second = RATE / 5, .burst_bytes = 1 },
    };
    uint64_t before = 0, before_ns = 0;

    set_third(load, &seeking);
    for (uint32_t i = 0; i < 3; i++) {
        fill(load, i);
    }
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t class_index = serve(load);
        SluiceReceipt receipt = sluice_engine_receipt(load->engine, 2, 1000);

        if (class_index == 2) {
            sluice_engine_correct(load->engine, &receipt, 4000, load->now_ns);
        }
        if (i == 9999) {
            before = load->served[1];
            before_ns = load->now_ns;
        }
    }
    check(load->served[1] - before
          >= (load->now_ns - before_ns) * (RATE / 2) / NANO * 99 / 100);
    free_load(load);
}

/* The ceiling is in debt for a minute. A class that comes at its end has its reservation
 * at once, like those that waited all the time. */
static void begin_a_minute_of_debt(Load *load, uint64_t reservation)
{
    SluiceClassConfig own = {
        .priority = 9, .weight = 100,
        .limit = { .bytes_per_second = RATE, .burst_bytes = 1 },
        .reservation_bytes_per_second = reservation,
    };
    SluiceNode huge;

    set_class(load, 1, 5, 100, RATE / 10);
    set_third(load, &own);
    load->now_ns = 2000000;
    check_equal(sluice_engine_submit(load->engine, 2, &huge, 60 * RATE,
                                     load->now_ns), SLUICE_PASS);
    fill(load, 0);
    fill(load, 1);
    load->now_ns = 50 * (uint64_t)NANO;
}

static void test_a_wait_of_all_costs_a_newcomer_no_reservation(void)
{
    Load *load = load_of_half_reserved();

    begin_a_minute_of_debt(load, RATE / 2);
    fill(load, 2);
    check(serve_until(load, 20000));
    check(load->served[2] >= 9900000);
    free_load(load);
}

static void test_a_wait_of_all_costs_a_new_reservation_nothing(void)
{
    Load *load = load_of_half_reserved();

    begin_a_minute_of_debt(load, 0);
    fill(load, 2);
    set_class(load, 2, 9, 100, RATE / 2);
    check(serve_until(load, 20000));
    check(load->served[2] >= 9900000);
    free_load(load);
}

/* While there is a long window, reserved service may come later and still come.
 * When it goes, service that comes too late is lost to the class that waits for it, to
 * no other. */
static void test_a_window_that_goes_costs_others_no_reservation(void)
{
    Load *load = load_of_half_reserved();
    SluiceClassConfig window = {
        .priority = 9, .weight = 100,
        .window = { .bytes = RATE, .period_ns = 30 * (uint64_t)NANO,
                    .may_miss = 0, .of = 1 },
    };
    SluiceClassConfig plain = { .priority = 9, .weight = 100 };
    SluiceNode huge;

    set_third(load, &window);
    set_class(load, 0, 0, 100, RATE / 10);
    load->now_ns = 2000000;
    check_equal(sluice_engine_submit(load->engine, 1, &huge, 20 * RATE,
                                     load->now_ns), SLUICE_PASS);
    fill(load, 0);              /* waits for 20 seconds */
    load->now_ns = 20 * (uint64_t)NANO;
    fill(load, 1);
    check(serve_until(load, 100));
    set_third(load, &plain);
    memset(load->served, 0, sizeof(load->served));
    check(serve_until(load, 10100));
    check(load->served[1] >= 4900000);
    free_load(load);
}

/* Own limits in any number, of operations or bytes: a class without gets its due. */
static bool own_limits_trace(uint64_t seed)
{
    Load *load = new_load(seed, CLASSES);
    uint64_t reserved[CLASSES], left = RATE * 9 / 10, begin_ns;
    bool ok = true;

    load->size_max = random_magnitude(&load->random, 13);
    for (uint32_t i = 0; i < CLASSES; i++) {
        SluiceClassConfig config = { .weight = 100 };

        reserved[i] = random_below(&load->random, left / 2);
        left -= reserved[i];
        config.priority = random_below(&load->random, 10);
        config.reservation_bytes_per_second = reserved[i];
        if (i % 2) {
            config.limit.operations_per_second =
                1 + random_below(&load->random, 20);
            config.limit.burst_operations = 1;
        }
        check(sluice_engine_set_class(load->engine, i, &config, load->now_ns));
        fill(load, i);
    }
    begin_ns = sluice_engine_next_event_ns(load->engine);
    while (ok && load->requests < 5000) {
        Wide late = 2 * (CLASSES + 2) * (Wide)load->size_max;
        Wide elapsed_ns;

        ok = serve(load) != UINT32_MAX;
        elapsed_ns = load->now_ns - begin_ns;
        for (uint32_t i = 0; ok && i < CLASSES; i += 2) {
            Wide due = elapsed_ns * reserved[i] / NANO;

            ok = check((Wide)load->served[i] + late >= due);
        }
    }
    free_load(load);
    return ok;
}

static void test_own_limits_are_nobody_elses_loss(void)
{
    run("own limits", own_limits_trace, 6);
}

static const TapTest tests[] = {
    { "reservations/property: hold against priorities",
      test_reservations_hold_against_priorities },
    { "reservations/are no more than promised",
      test_reservations_are_no_more_than_promised },
    { "reservations/too many share in proportion",
      test_too_many_reservations_share_in_proportion },
    { "reservations/idleness saves up no turns",
      test_idleness_saves_up_no_reserved_turns },
    { "reservations/own operations limit costs others nothing",
      test_own_operations_limit_costs_others_no_reservation },
    { "reservations/own operations limit makes nothing late",
      test_own_operations_limit_makes_nothing_late },
    { "reservations/own operations limit makes nothing late for a class alone",
      test_own_operations_limit_makes_nothing_late_alone },
    { "reservations/own debt costs others nothing",
      test_own_debt_costs_others_no_reservation },
    { "reservations/what is charged later costs others nothing",
      test_what_is_charged_later_costs_others_no_reservation },
    { "reservations/a wait of all costs a newcomer nothing",
      test_a_wait_of_all_costs_a_newcomer_no_reservation },
    { "reservations/a wait of all costs a new reservation nothing",
      test_a_wait_of_all_costs_a_new_reservation_nothing },
    { "reservations/a window that goes costs others nothing",
      test_a_window_that_goes_costs_others_no_reservation },
    { "reservations/property: own limits are nobody else's loss",
      test_own_limits_are_nobody_elses_loss },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
