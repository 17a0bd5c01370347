/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CoDel: one spell step by step, the rules of codel.c over random queues, and
 * its purpose: senders that react keep the queue short and the link busy.
 */
#include <string.h>

#include "sluice/codel.h"
#include "random.h"
#include "tap.h"

#define MS          1000000ULL
#define FRAME       1500
#define MANY        100000
#define BAD_NS      (2 * SLUICE_CODEL_TARGET_NS)

static SluiceCodel fresh(void)
{
    SluiceCodel codel = { 0 };

    sluice_codel_configure(&codel, 1000000000, FRAME);
    return codel;
}

static bool bad_frame(SluiceCodel *codel, uint64_t now_ns)
{
    return sluice_codel_dequeue(codel, BAD_NS, MANY, FRAME, now_ns);
}

static void test_configure(void)
{
    SluiceCodel codel = fresh();

    check_equal(codel.target_ns, 5 * MS);
    check_equal(codel.interval_ns, 100 * MS);
    sluice_codel_configure(&codel, 0, FRAME);
    check_equal(codel.target_ns, 5 * MS);
    /* 1500 bytes take 15 ms at 100 kB/s: 22.5 ms, and as much more. */
    sluice_codel_configure(&codel, 100000, FRAME);
    check_equal(codel.target_ns, 22500000);
    check_equal(codel.interval_ns, 117500000);
    sluice_codel_configure(&codel, 1, UINT32_MAX);
    check_equal(codel.target_ns, UINT32_MAX);
    check_equal(codel.interval_ns, UINT32_MAX);
    check(!bad_frame(&codel, 1));
}

/* The first after an interval, then after 100 / sqrt(n) ms each. */
static void test_spell(void)
{
    SluiceCodel codel = fresh();
    static const uint64_t gaps_us[] = { 100000, 70710, 57735, 50000, 44721 };
    uint64_t at = 1000 * MS;

    check(!bad_frame(&codel, at));
    check(!bad_frame(&codel, at + 100 * MS - 1));
    at += 100 * MS;
    check(bad_frame(&codel, at));
    for (unsigned i = 0; i < 5; i++) {
        at += gaps_us[i] * 1000;
        check(!bad_frame(&codel, at - MS));
        /* The table is cut to whole microseconds: less than 5 us in all. */
        check(bad_frame(&codel, at + 5000));
    }
}

static void test_good_frame_ends_it(void)
{
    SluiceCodel codel = fresh();

    check(!bad_frame(&codel, 0));
    check(!sluice_codel_dequeue(&codel, 5 * MS - 1, MANY, FRAME, 50 * MS));
    check(!bad_frame(&codel, 60 * MS));
    check(!bad_frame(&codel, 159 * MS));
    check(bad_frame(&codel, 160 * MS));
    /* One frame left behind is no queue, however long it waited. */
    check(!sluice_codel_dequeue(&codel, BAD_NS, FRAME, FRAME, 900 * MS));
    check(!bad_frame(&codel, 901 * MS));
}

/* A drop asks again for the frame behind it; late calls catch up. */
static void test_catches_up(void)
{
    SluiceCodel codel = fresh();
    unsigned signals = 0;

    bad_frame(&codel, 0);
    check(bad_frame(&codel, 100 * MS));
    while (bad_frame(&codel, 400 * MS)) {
        signals++;
    }
    /* 100 + 70.7 + 57.7 + 50 fit into 300 ms; the fifth would not. */
    check_equal(signals, 4);
}

static void test_remembers_rate(void)
{
    SluiceCodel codel = fresh();
    uint64_t now = 0;

    while (codel.count < 20) {
        bad_frame(&codel, now += MS);
    }
    check(!sluice_codel_dequeue(&codel, 0, MANY, FRAME, now += MS));
    bad_frame(&codel, now += MS);
    check(bad_frame(&codel, now += 100 * MS));
    check_equal(codel.count, 19);
    /* Long after, it begins anew. */
    check(!sluice_codel_dequeue(&codel, 0, MANY, FRAME, now += 10000 * MS));
    bad_frame(&codel, now += MS);
    check(bad_frame(&codel, now += 100 * MS));
    check_equal(codel.count, 1);
}

/* Random waits and times: the invariants at the top of codel.c. */
static void test_rules(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);
    uint64_t signals = 0;

    for (uint64_t trace = 0; trace < traces; trace++) {
        Random random = random_seeded(seed + trace);
        SluiceCodel codel = fresh();
        uint64_t now = random_magnitude(&random, 61);
        uint64_t bad_since = UINT64_MAX;
        unsigned bad_percent = 50 + random_below(&random, 51);

        for (unsigned i = 0; i < 2000; i++) {
            bool waits = random_chance(&random, bad_percent);
            uint64_t waited = waits ? 5 * MS + random_magnitude(&random, 40)
                                    : random_below(&random, 5 * MS);
            uint64_t left = random_chance(&random, 99) ? FRAME + 1 : FRAME;
            bool bad = waits && left > FRAME;
            bool signal;

            now += random_below(&random, 10 * MS);
            signal = sluice_codel_dequeue(&codel, waited, left, FRAME, now);
            bad_since = !bad ? UINT64_MAX
                             : bad_since == UINT64_MAX ? now : bad_since;
            signals += signal;
            if (!check(!signal || (bad && now - bad_since >= 100 * MS))
                || !check(!codel.signalling || bad)
                || !check(!codel.signalling || codel.count > 0)) {
                printf("# seed %" PRIu64 "\n", seed + trace);
                return;
            }
        }
    }
    check(signals > traces / 10);
}

/*
 * A link of 1 frame per ms and a sender that doubles its window until the
 * first loss, then adds a frame per round trip and halves at a loss (AIMD). A
 * round trip is 20 ms and the queue. Returns the mean wait after 20 s, in ms,
 * and how many frames the link sent in the last 60 s.
 */
#define ROUND_TRIP_MS   20
#define QUEUE_FRAMES    1000

static double run_sender(bool with_codel, unsigned *sent)
{
    SluiceCodel codel = fresh();
    uint64_t arrived_ms[QUEUE_FRAMES];
    uint64_t returns_at[2 * QUEUE_FRAMES];      /* acknowledgements */
    unsigned head = 0, queued = 0, first = 0, flying = 0;
    double window = 2, waits = 0;
    uint64_t deaf_until = 0;
    bool slow_start = true;

    *sent = 0;
    for (uint64_t now = 0; now < 80000; now++) {
        bool lost = false;

        while (flying && returns_at[first % (2 * QUEUE_FRAMES)] <= now) {
            first++;
            flying--;
            window += slow_start ? 1 : 1 / window;
        }
        while (queued + flying < (unsigned)window) {
            if (queued == QUEUE_FRAMES) {
                lost = true;
                break;
            }
            arrived_ms[(head + queued++) % QUEUE_FRAMES] = now;
        }
        if (queued) {
            uint64_t waited = now - arrived_ms[head % QUEUE_FRAMES];

            head++;
            queued--;
            returns_at[(first + flying++) % (2 * QUEUE_FRAMES)] =
                now + ROUND_TRIP_MS;
            if (now >= 20000) {
                waits += waited;
                ++*sent;
            }
            while (with_codel && queued
                   && sluice_codel_dequeue(&codel, waited * MS,
                                           (uint64_t)queued * FRAME, FRAME,
                                           now * MS)) {
                lost = true;
                waited = now - arrived_ms[head % QUEUE_FRAMES];
                head++;
                queued--;
            }
        }
        if (lost && now >= deaf_until) {        /* one loss per round trip */
            window = window / 2 > 2 ? window / 2 : 2;
            deaf_until = now + ROUND_TRIP_MS + queued;
            slow_start = false;
        }
    }
    return waits / *sent;
}

/*
 * Without it the sender keeps the queue between half full and full. With it
 * the wait oscillates around a value that lets the shortest of an interval come below
 * the target: a sender that halves 20 + w ms down to 20 ms has w = 20 ms at
 * most, so the mean stays below. Halving below one round trip empties the
 * link now and then: less than a tenth of the time.
 */
static void test_senders_that_react(void)
{
    unsigned sent, sent_without;
    double wait = run_sender(true, &sent);
    double wait_without = run_sender(false, &sent_without);

    printf("# wait %.1f ms, %u frames; without %.1f ms, %u frames\n", wait,
           sent, wait_without, sent_without);
    check(wait < 20);
    check(wait_without > 300);
    check(sent > 60000 * 9 / 10);
}

static const TapTest tests[] = {
    { "codel/configure", test_configure },
    { "codel/spell", test_spell },
    { "codel/a good frame ends it", test_good_frame_ends_it },
    { "codel/catches up", test_catches_up },
    { "codel/remembers the rate", test_remembers_rate },
    { "codel/property: rules", test_rules },
    { "codel/senders that react", test_senders_that_react },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
