/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of a disk: its steps one by one, the invariants of gate.c over random traces,
 * and its purpose: beside a device that serves one byte after another, the latency of the
 * background settles at the target.
 */
#include "random.h"
#include "sluice/gate.h"
#include "tap.h"

#define MS      1000000ULL
#define KIB     1024U

static SluiceGate gate_of(uint64_t target_ns)
{
    SluiceGate gate;

    sluice_gate_init(&gate);
    sluice_gate_set_target(&gate, target_ns, 0);
    return gate;
}

/* So many requests go and come back, the last of them at now_ns. */
static void serve(SluiceGate *gate, unsigned count, uint64_t latency_ns, uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        check(sluice_gate_admit(gate, KIB, now_ns));
    }
    for (unsigned i = 0; i < count; i++) {
        sluice_gate_complete(gate, KIB, latency_ns, now_ns);
    }
}

static void test_an_open_gate_holds_nothing(void)
{
    SluiceGate gate = gate_of(0);

    for (unsigned i = 0; i < 1000; i++) {
        check(sluice_gate_admit(&gate, 1024 * KIB, 0));
    }
    check_equal(gate.in_flight_bytes, 1000ULL * 1024 * KIB);
    sluice_gate_set_target(&gate, MS, 0);
    check(!sluice_gate_admit(&gate, 1, 0));
    sluice_gate_set_target(&gate, 0, 0);
    check(sluice_gate_admit(&gate, 1, 0));
}

static void test_the_window_bounds_what_is_in_flight(void)
{
    SluiceGate gate = gate_of(100 * MS);

    for (unsigned i = 0; i < 4; i++) {
        check(sluice_gate_admit(&gate, 1024 * KIB, 0));
    }
    check(!sluice_gate_admit(&gate, 1, 0));
    sluice_gate_complete(&gate, 1024 * KIB, MS, MS);
    check(sluice_gate_admit(&gate, 1024 * KIB, MS));
}

static void test_one_request_goes_however_large_it_is(void)
{
    SluiceGate gate = gate_of(1);

    sluice_gate_shrink(&gate, 0, 0);
    check_equal(gate.window_bytes, SLUICE_GATE_LEAST_BYTES);
    check(sluice_gate_admit(&gate, UINT32_MAX, 1));
    check(!sluice_gate_admit(&gate, 1, 0));
    sluice_gate_complete(&gate, UINT32_MAX, 1, 1);
    check_equal(gate.in_flight_bytes, 0);
    check(sluice_gate_admit(&gate, UINT32_MAX, 1));
}

static void test_a_device_that_hangs_gets_one_now_and_then(void)
{
    SluiceGate gate = gate_of(MS);
    uint64_t now_ns = 7777 * MS;

    check(sluice_gate_admit(&gate, SLUICE_GATE_FIRST_BYTES, now_ns));
    for (unsigned i = 0; i < 3; i++) {
        check(!sluice_gate_admit(&gate, 1, now_ns + 5000 * MS));
        now_ns = sluice_gate_due_ns(&gate, now_ns);
        check(!sluice_gate_admit(&gate, 1, now_ns - 1));
        check(sluice_gate_admit(&gate, 1, now_ns));
    }
    check(now_ns >= (7777 + 3 * 5000) * MS && now_ns <= (7777 + 3 * 6500) * MS);
}

static void test_a_slow_device_narrows_the_window_by_at_most_a_quarter(void)
{
    SluiceGate gate = gate_of(10 * MS);

    serve(&gate, 8, 20 * MS, 9 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES);
    serve(&gate, 1, 20 * MS, 10 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES / 4 * 3);
    /* Few completions are waited for, but not for long. */
    serve(&gate, 1, UINT64_MAX / 2, 69 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES / 4 * 3);
    serve(&gate, 1, 1, 70 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES / 16 * 9);
}

static void test_the_window_widens_only_where_it_held(void)
{
    SluiceGate gate = gate_of(10 * MS);

    serve(&gate, 8, MS, 10 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES);
    check(sluice_gate_admit(&gate, SLUICE_GATE_FIRST_BYTES, 11 * MS));
    check(!sluice_gate_admit(&gate, 1, 12 * MS));
    sluice_gate_complete(&gate, SLUICE_GATE_FIRST_BYTES, MS, 15 * MS);
    check_equal(gate.held_times, 1);
    check_equal(gate.held_ns, 3 * MS);
    serve(&gate, 8, MS, 20 * MS);
    check_equal(gate.window_bytes, SLUICE_GATE_FIRST_BYTES / 4 * 5);
    /* Unused it falls back to its first size, and no further. */
    for (uint64_t at = 30; at < 300; at += 10) {
        serve(&gate, 8, MS, at * MS);
    }
    check(gate.window_bytes >= SLUICE_GATE_FIRST_BYTES);
    check(gate.window_bytes < SLUICE_GATE_FIRST_BYTES / 100 * 106);
}

/* A device that serves in turn, and a load that always wants more. */
static void test_latency_settles_at_the_target(void)
{
    static const uint64_t rates[] = { 2000000, 50000000, 1000000000 };
    const uint64_t target_ns = 50 * MS;
    enum { REQUEST = 128 * 1024, ROUNDS = 20000, QUEUE = 1 << 14 };
    static uint64_t given[QUEUE];

    for (unsigned i = 0; i < 3; i++) {
        SluiceGate gate = gate_of(target_ns);
        uint64_t now_ns = 0, sum_ns = 0;
        unsigned head = 0, tail = 0;

        for (unsigned round = 0; round < ROUNDS; round++) {
            while (sluice_gate_admit(&gate, REQUEST, now_ns)) {
                given[tail++ % QUEUE] = now_ns;
            }
            now_ns += REQUEST * 1000000000ULL / rates[i];
            sluice_gate_complete(&gate, REQUEST, now_ns - given[head % QUEUE], now_ns);
            if (round >= ROUNDS / 2) {
                sum_ns += now_ns - given[head % QUEUE];
            }
            head++;
        }
        /* A request of 128 KiB alone takes 65 ms at 2 MB/s. */
        if (rates[i] * target_ns / 1000000000ULL >= 2 * REQUEST) {
            check(sum_ns / (ROUNDS / 2) > target_ns * 3 / 4);
            check(sum_ns / (ROUNDS / 2) < target_ns * 5 / 4);
        } else {
            check_equal(gate.in_flight_requests, 0);
        }
    }
}

static void random_trace(uint64_t seed)
{
    Random random = random_seeded(seed);
    SluiceGate gate = gate_of(0);
    uint32_t in_flight[64];
    unsigned count = 0;
    uint64_t now_ns = 0, sum = 0;

    for (unsigned step = 0; step < 2000; step++) {
        uint32_t bytes = random_below(&random, 4) ? random_below(&random, 1 << 20)
                                                  : (uint32_t)random_next(&random);

        now_ns += random_below(&random, 20 * MS);
        switch (random_below(&random, 8)) {
        case 0:
            sluice_gate_set_target(&gate, random_below(&random, 3) * 40 * MS, now_ns);
            break;
        case 1:
            sluice_gate_shrink(&gate, random_below(&random, 2000), now_ns);
            break;
        case 2:
        case 3:
        case 4:
            if (count == 64) {
                break;
            }
            if (sluice_gate_admit(&gate, bytes, now_ns)) {
                check(!gate.target_ns || sum < gate.window_bytes);
                in_flight[count++] = bytes;
                sum += bytes;
            } else {
                check(gate.target_ns && sum >= gate.window_bytes);
                check(sluice_gate_due_ns(&gate, now_ns) > now_ns);
            }
            break;
        default:
            if (count) {
                unsigned which = random_below(&random, count);

                sum -= in_flight[which];
                if (random_below(&random, 8)) {
                    sluice_gate_complete(&gate, in_flight[which],
                                         random_below(&random, 1000) * MS, now_ns);
                } else {
                    sluice_gate_leave(&gate, in_flight[which], now_ns);
                }
                in_flight[which] = in_flight[--count];
            }
        }
        if (!check(gate.in_flight_bytes == sum && gate.in_flight_requests == count)
            || !check(gate.window_bytes >= SLUICE_GATE_LEAST_BYTES)
            || !check(gate.window_bytes <= SLUICE_GATE_MOST_BYTES)) {
            printf("# seed %" PRIu64 ", step %u\n", seed, step);
            return;
        }
    }
}

static void test_invariants_over_random_traces(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);

    for (uint64_t i = 0; i < traces && !tap_failures; i++) {
        random_trace(seed + i);
    }
}

int main(void)
{
    static const TapTest tests[] = {
        { "an open gate holds nothing", test_an_open_gate_holds_nothing },
        { "the window bounds what is in flight",
          test_the_window_bounds_what_is_in_flight },
        { "one request goes, however large it is",
          test_one_request_goes_however_large_it_is },
        { "a device that hangs gets one request now and then",
          test_a_device_that_hangs_gets_one_now_and_then },
        { "a slow device narrows the window by at most a quarter",
          test_a_slow_device_narrows_the_window_by_at_most_a_quarter },
        { "the window widens only where it held",
          test_the_window_widens_only_where_it_held },
        { "latency settles at the target", test_latency_settles_at_the_target },
        { "invariants over random traces", test_invariants_over_random_traces },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
