/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The timing wheel beside a plain array that is searched for its least. */
#include <string.h>

#include "sluice/wheel.h"
#include "random.h"
#include "tap.h"

#define ITEMS   300
#define STEPS   4000

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

/* Time goes on with each pop; `spread` bits of time lie between items. */
static bool follow(Random *random, unsigned spread)
{
    static uint64_t memory[ITEMS][8];
    static Wheel wheel;
    Plain plain = { .present = { false } };
    uint64_t now_ns = random_magnitude(random, 61);
    bool ok;

    /* What it fetches is never followed: any address will do. */
    memset(memory, 0xa5, sizeof(memory));
    ok = wheel_init(&wheel, ITEMS, memory, sizeof(memory[0]));

    for (unsigned step = 0; ok && step < STEPS; step++) {
        uint32_t i = random_below(random, ITEMS);

        if (!plain.present[i] && random_chance(random, 60)) {
            plain.due_ns[i] = now_ns + random_magnitude(random, spread) - 1;
            plain.present[i] = true;
            wheel_insert(&wheel, i, plain.due_ns[i]);
        } else if (plain.present[i] && random_chance(random, 10)) {
            plain.present[i] = false;
            wheel_remove(&wheel, i);
        } else if (wheel.first_ns != UINT64_MAX && random_chance(random, 70)) {
            now_ns = wheel.first_ns > now_ns ? wheel.first_ns : now_ns;
            ok = pop(&wheel, &plain);
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

static void test_traces_follow_plain_array(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 5 + 1;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        Random random = random_seeded(seed + i);

        if (!follow(&random, 1 + random_below(&random, 60))) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static void test_times_at_both_ends(void)
{
    static uint64_t memory[2][8];
    static Wheel wheel;

    check(wheel_init(&wheel, 2, memory, sizeof(memory[0])));
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
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
