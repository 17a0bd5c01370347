/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The timing wheel beside a plain array that is searched for its least. */
#include <string.h>

#include "sluice/wheel.h"
#include "random.h"
#include "tap.h"

#define ITEMS   300
#define STEPS   4000
#define MANY    NEAR_CLASSES_MIN        /* then there is a ring */

typedef struct Plain {
    uint64_t due_ns[ITEMS];
    bool present[ITEMS];
} Plain;

static uint64_t plain_first_ns(const Plain *plain)
{
    uint64_t first_ns = UINT64_MAX;

    for (uint32_t i = 0; i < ITEMS; i++) {
        if (plain->present[i] && plain->due_ns[i] < first_ns) {
            first_ns = plain->due_ns[i];
        }
    }
    return first_ns;
}

static bool pop(Wheel *wheel, Plain *plain)
{
    uint64_t first_ns = wheel->first_ns;
    uint32_t i = wheel_pop(wheel);

    if (!check(i < ITEMS) || !check(plain->present[i])
        || !check_equal(plain->due_ns[i], first_ns)) {
        return false;
    }
    plain->present[i] = false;
    return true;
}

/* When the next item is due; `spread` bits of time lie between items. */
static uint64_t any_due_ns(Random *random, uint64_t now_ns, unsigned spread)
{
    return now_ns + random_magnitude(random, spread) - 1;
}

/* How wide the ring's slots are, and how often that was changed. */
static unsigned ring_shift;
static unsigned widened, narrowed;
/* After so many pops the ring asks itself: often within a trace. */
#define JUDGED_POPS     40
/* How many times in a trace the time between items is another. */
#define PHASES          8

static void note_width(const Wheel *wheel)
{
    unsigned shift = wheel->near ? wheel->near->shift : NEAR_SHIFT_MIN;

    widened += shift > ring_shift;
    narrowed += shift < ring_shift;
    ring_shift = shift;
}

/* The same, about the edges of the ring: the slot and the word of now, those
 * after it, the end of the span, a whole round later, and far beyond. */
static uint64_t edge_due_ns(Random *random, uint64_t now_ns, unsigned spread)
{
    uint64_t width_ns = (uint64_t)NEAR_WORD_SLOTS << ring_shift;
    uint64_t span_ns = (uint64_t)NEAR_SLOTS << ring_shift;
    uint64_t word_ns = now_ns & -width_ns;
    uint64_t due_ns;

    switch (random_below(random, 6)) {
    case 0:
        due_ns = now_ns + random_below(random, 16);
        break;
    case 1:
        due_ns = word_ns + width_ns - 32 + random_below(random, 64);
        break;
    case 2:
        due_ns = word_ns + span_ns - 32 + random_below(random, 64);
        break;
    case 3:
        due_ns = now_ns + span_ns + random_below(random, 32);
        break;
    case 4:
        due_ns = now_ns + random_below(random, span_ns);
        break;
    default:
        due_ns = now_ns + random_magnitude(random, spread);
        break;
    }
    return due_ns < now_ns ? now_ns : due_ns;
}

typedef uint64_t (*DueTime)(Random *random, uint64_t now_ns, unsigned spread);

/* Time goes on with each pop; with `jumps` also by itself: items are late. */
static bool follow(Random *random, uint32_t classes, DueTime due_time,
                   bool jumps, unsigned spread_max)
{
    static WheelRecord memory[ITEMS];
    static Wheel wheel;
    Plain plain = { .present = { false } };
    uint64_t now_ns = random_magnitude(random, 61);
    unsigned spread = 0;
    bool ok;

    /* What it fetches is never followed: any address will do. */
    memset(memory, 0xa5, sizeof(memory));
    ok = wheel_init(&wheel, classes, memory);
    ok = ok && check((wheel.near != NULL) == (classes >= NEAR_CLASSES_MIN));
    ring_shift = NEAR_SHIFT_MIN;
    if (ok && wheel.near) {
        wheel.near->judged_pops = JUDGED_POPS;
    }
    for (unsigned step = 0; ok && step < STEPS; step++) {
        uint32_t i = random_below(random, ITEMS);

        note_width(&wheel);
        if (step % (STEPS / PHASES) == 0) {
            spread = 1 + random_below(random, spread_max);
        }
        if (!plain.present[i] && random_chance(random, 60)) {
            plain.due_ns[i] = due_time(random, now_ns, spread);
            plain.present[i] = true;
            wheel_insert(&wheel, i, plain.due_ns[i]);
        } else if (plain.present[i] && random_chance(random, 10)) {
            plain.present[i] = false;
            wheel_remove(&wheel, i);
        } else if (wheel.first_ns != UINT64_MAX && random_chance(random, 70)) {
            now_ns = wheel.first_ns > now_ns ? wheel.first_ns : now_ns;
            ok = pop(&wheel, &plain);
        } else if (jumps && random_chance(random, 5)) {
            now_ns += random_magnitude(random, spread);
        }
        ok = ok && check_equal(wheel.first_ns, plain_first_ns(&plain))
             && check((wheel.first_ns == UINT64_MAX)
                      == (wheel_peek(&wheel) == WHEEL_NONE));
    }
    while (ok && wheel.first_ns != UINT64_MAX) {
        ok = pop(&wheel, &plain)
             && check_equal(wheel.first_ns, plain_first_ns(&plain));
    }
    wheel_destroy(&wheel);
    return ok;
}

static void follow_traces(uint32_t classes, DueTime due_time, bool jumps)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 5 + 1;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        Random random = random_seeded(seed + i);
        /* With jumps, time must not run out. */
        if (!follow(&random, classes, due_time, jumps, jumps ? 40 : 60)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static void test_traces_follow_plain_array(void)
{
    follow_traces(ITEMS, any_due_ns, false);
}

static void test_traces_with_ring(void)
{
    widened = narrowed = 0;
    follow_traces(MANY, any_due_ns, false);
    printf("# widened %u times, narrowed %u\n", widened, narrowed);
    check(widened > 0 && narrowed > 0);
}

static void test_traces_at_the_edges_of_the_ring(void)
{
    follow_traces(MANY, edge_due_ns, false);
}

static void test_traces_with_jumps_of_time(void)
{
    follow_traces(ITEMS, any_due_ns, true);
    follow_traces(MANY, any_due_ns, true);
    follow_traces(MANY, edge_due_ns, true);
}

/* Twelve of one slot, backwards. Two leave before it comes first, one when all
 * have just moved, two later, and one comes then. One beyond the span waits. */
static void test_many_in_a_slot_of_the_ring(void)
{
    static const uint32_t order[] = { 10, 9, 8, 6, 5, 13, 2, 1, 12 };
    static WheelRecord memory[MANY];
    static Wheel wheel;
    uint64_t start_ns = 3 * NEAR_SPAN_NS + 5 * NEAR_WORD_NS;

    check(wheel_init(&wheel, MANY, memory));
    wheel_insert(&wheel, 100, start_ns - 100);
    check(wheel.levels);
    check_equal(wheel_pop(&wheel), 100);
    wheel_insert(&wheel, 12, start_ns + 2 * NEAR_SPAN_NS);
    for (uint32_t i = 0; i < 12; i++) {
        wheel_insert(&wheel, i, start_ns + 15 - i);
    }
    /* On the levels is only item 12. */
    check_equal(wheel.levels & (wheel.levels - 1), 0);
    wheel_remove(&wheel, 0);
    wheel_remove(&wheel, 11);
    for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        check_equal(wheel_pop(&wheel), order[i]);
        if (i == 0) {
            check(wheel.levels & 1);    /* nine are left: too many */
            wheel_remove(&wheel, 7);
        }
        if (i == 2) {
            wheel_remove(&wheel, 4);
            wheel_remove(&wheel, 3);
            wheel_insert(&wheel, 13, start_ns + 12);
        }
    }
    check_equal(wheel.first_ns, UINT64_MAX);
    wheel_destroy(&wheel);
}

/* Two items at a time, almost a round apart from those before: all in the ring. */
static void test_ring_goes_round(void)
{
    static WheelRecord memory[MANY];
    static Wheel wheel;
    uint64_t now_ns = 0;

    check(wheel_init(&wheel, MANY, memory));
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t due_ns = now_ns + NEAR_SPAN_NS - 2 * NEAR_WORD_NS - i % 100;

        wheel_insert(&wheel, i % MANY, due_ns);
        wheel_insert(&wheel, (i + 1) % MANY, due_ns + NEAR_WORD_NS);
        check_equal(wheel.first_ns, due_ns);
        check(!wheel.levels);
        check_equal(wheel_pop(&wheel), i % MANY);
        check_equal(wheel.first_ns, due_ns + NEAR_WORD_NS);
        wheel_remove(&wheel, (i + 1) % MANY);
        check_equal(wheel.first_ns, UINT64_MAX);
        now_ns = due_ns;
    }
    wheel_destroy(&wheel);
}

/* All items, so far apart. */
static void spread(Wheel *wheel, uint64_t *due_ns, uint64_t now_ns, uint64_t step_ns)
{
    for (uint32_t i = 0; i < MANY; i++) {
        if (wheel->first_ns != UINT64_MAX && due_ns[i]) {
            wheel_remove(wheel, i);
        }
        due_ns[i] = now_ns + 1 + i * step_ns;
        wheel_insert(wheel, i, due_ns[i]);
    }
}

/* All are popped in order, each at its very time, and come again so much later: after
 * some rounds slots are as wide as that asks for. */
static bool go_round(Wheel *wheel, uint64_t *due_ns, uint64_t *now_ns,
                     uint64_t later_ns)
{
    bool ok = true;

    for (uint32_t n = 0; ok && n < 12 * MANY; n++) {
        uint64_t first_ns = wheel->first_ns;
        uint32_t i = wheel_pop(wheel);

        ok = check(i < MANY) && check_equal(due_ns[i], first_ns)
             && check(first_ns >= *now_ns);
        *now_ns = first_ns;
        due_ns[i] = first_ns + later_ns + n * 7919 % (later_ns / 8);
        wheel_insert(wheel, i, due_ns[i]);
    }
    return ok;
}

/* Of MANY items in so many nanoseconds a word of slots has some, but not too many. */
static bool width_suits(const WheelNear *near, uint64_t round_ns)
{
    uint64_t items = ((uint64_t)MANY * NEAR_WORD_SLOTS << near->shift) / round_ns;

    return (items >= 4 || near->shift == NEAR_SHIFT_MAX)
           && (items <= 120 || near->shift == NEAR_SHIFT_MIN);
}

static void test_slots_are_as_wide_as_they_should(void)
{
    static const uint64_t rounds_ns[] = {
        100000, 60000000, 100000, 7000000000, 3000000, 900000000000, 1000,
    };
    static WheelRecord memory[MANY];
    static uint64_t due_ns[MANY];
    static Wheel wheel;
    uint64_t now_ns = 0;

    check(wheel_init(&wheel, MANY, memory));
    for (size_t r = 0; r < sizeof(rounds_ns) / sizeof(rounds_ns[0]); r++) {
        spread(&wheel, due_ns, now_ns, rounds_ns[r] / MANY);
        check(go_round(&wheel, due_ns, &now_ns, rounds_ns[r]));
        check(width_suits(wheel.near, rounds_ns[r]));
    }
    for (uint32_t i = 0; i < MANY; i += 2) {
        wheel_remove(&wheel, i);
    }
    for (uint32_t i = 1; i < MANY; i += 2) {
        uint64_t first_ns = wheel.first_ns;

        check(first_ns >= now_ns && due_ns[wheel_pop(&wheel)] == first_ns);
        now_ns = first_ns;
    }
    check_equal(wheel.first_ns, UINT64_MAX);
    wheel_destroy(&wheel);
}

/* As many at the same time as there are: none is looked for, and none is lost. */
static void test_many_in_a_wide_slot(void)
{
    static WheelRecord memory[MANY];
    static uint64_t due_ns[MANY];
    static Wheel wheel;
    uint64_t now_ns = 0;

    check(wheel_init(&wheel, MANY, memory));
    spread(&wheel, due_ns, now_ns, 60000000 / MANY);
    check(go_round(&wheel, due_ns, &now_ns, 60000000));
    check(wheel.near->shift > NEAR_SHIFT_MIN + 4);
    spread(&wheel, due_ns, now_ns, 3);
    check(go_round(&wheel, due_ns, &now_ns, 3000));
    wheel_destroy(&wheel);
}

static void test_times_at_both_ends(void)
{
    static WheelRecord memory[2];
    static Wheel wheel;

    check(wheel_init(&wheel, 2, memory));
    wheel_insert(&wheel, 0, UINT64_MAX - 1);
    check_equal(wheel.first_ns, UINT64_MAX - 1);
    wheel_insert(&wheel, 1, 0);
    check_equal(wheel.first_ns, 0);
    check_equal(wheel_pop(&wheel), 1);
    check_equal(wheel_pop(&wheel), 0);
    check_equal(wheel.first_ns, UINT64_MAX);
    wheel_destroy(&wheel);
}

static const TapTest tests[] = {
    { "wheel/times at both ends", test_times_at_both_ends },
    { "wheel/property: traces follow a plain array",
      test_traces_follow_plain_array },
    { "wheel/many in a slot of the ring", test_many_in_a_slot_of_the_ring },
    { "wheel/the ring goes round", test_ring_goes_round },
    { "wheel/slots of the ring are as wide as they should be",
      test_slots_are_as_wide_as_they_should },
    { "wheel/many in a wide slot of the ring", test_many_in_a_wide_slot },
    { "wheel/property: traces with the ring", test_traces_with_ring },
    { "wheel/property: traces at the edges of the ring",
      test_traces_at_the_edges_of_the_ring },
    { "wheel/property: traces with jumps of time",
      test_traces_with_jumps_of_time },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
