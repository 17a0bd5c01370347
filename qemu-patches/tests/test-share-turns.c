/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whose turn it is, held against a look at all classes. The trees of share.c hold
 * classes by keys that are corrected only when it matters; what they say must be what
 * they would say if all were correct at any time. Looks inside, since no caller sees
 * virtual times.
 */
#include <stdlib.h>

#include "sluice/engine-inline.h"
#include "random.h"
#include "tap.h"

#define CEILING     1000000000ULL
#define SIZE_MAX_B  16384

typedef struct Market {
    SluiceEngine *engine;
    SluiceNode *nodes;
    SluiceNode **spare;
    uint32_t spare_count;
    uint32_t classes;
    Random random;
    uint64_t now_ns;
} Market;

/* Deadlines are compared without the running number that is their lowest bits. */
static uint64_t deadline_of(const SluiceClass *class)
{
    uint64_t units = class->first_charge ? class->first_charge : 1;
    SluiceU128 cost = (SluiceU128)units * class->virtual_unit + (1ULL << 31);

    return (class->virtual_time + (uint64_t)(cost >> 32)) >> 10;
}

/* The sums are those of all who compete, and nobody who is eligible has an earlier
 * deadline than who is chosen. */
static bool turn_is_right(Market *m, unsigned priority)
{
    const ShareLevel *level = &m->engine->share.levels[priority];
    const SluiceClass *classes = m->engine->classes;
    uint64_t weight = 0, earliest = UINT64_MAX;
    SluiceU128 sum = 0;
    uint32_t chosen;

    for (uint32_t i = 0; i < m->classes; i++) {
        if (classes[i].place == PLACE_READY && classes[i].priority == priority) {
            weight += classes[i].weight;
            sum += (SluiceU128)classes[i].weight * classes[i].virtual_time;
        }
    }
    if (!check(weight == level->weight && (!weight || sum == level->sum))) {
        return false;
    }
    for (uint32_t i = 0; i < m->classes; i++) {
        if (classes[i].place == PLACE_READY && classes[i].priority == priority
            && (SluiceU128)classes[i].virtual_time * weight <= sum
            && deadline_of(&classes[i]) < earliest) {
            earliest = deadline_of(&classes[i]);
        }
    }
    if (!weight) {
        return true;
    }
    chosen = share_choose(m->engine, priority);
    return check((SluiceU128)classes[chosen].virtual_time * weight <= sum)
           && check_equal(deadline_of(&classes[chosen]), earliest);
}

/* The tree of reservations holds those who are READY, by their due times. */
static bool reservations_are_right(Market *m)
{
    uint64_t earliest = UINT64_MAX;

    for (uint32_t i = 0; i < m->classes; i++) {
        const SluiceClass *class = &m->engine->classes[i];
        int64_t due_ns = class->reservation.due_ns;

        if (class->place == PLACE_READY && has_reservation(class)
            && (due_ns > 0 ? (uint64_t)due_ns : 0) < earliest) {
            earliest = due_ns > 0 ? due_ns : 0;
        }
    }
    return check_equal(key_tree_first_key(&m->engine->reserved), earliest);
}

static bool all_is_right(Market *m)
{
    bool ok = reservations_are_right(m);

    for (unsigned p = 0; ok && p < SLUICE_PRIORITIES; p++) {
        ok = turn_is_right(m, p);
    }
    return ok;
}

static void set_any_class(Market *m, uint32_t class_index)
{
    uint64_t share = CEILING / m->classes;
    SluiceClassConfig config = {
        .priority = random_below(&m->random, 3) * 3,
        .weight = random_magnitude(&m->random, 9),
    };

    if (random_chance(&m->random, 40)) {
        config.limit.bytes_per_second = 1 + random_below(&m->random, 2 * share);
        config.limit.burst_bytes = random_below(&m->random, SIZE_MAX_B);
    }
    if (random_chance(&m->random, 60)) {
        uint64_t most = config.limit.bytes_per_second
                        ? config.limit.bytes_per_second : share;

        config.reservation_bytes_per_second = 1 + random_below(&m->random, most);
    }
    check(sluice_engine_set_class(m->engine, class_index, &config, m->now_ns));
}

static void hold_any(Market *m)
{
    uint32_t class_index = random_below(&m->random, m->classes);
    SluiceNode *node = m->spare[m->spare_count - 1];

    m->spare_count -= sluice_engine_submit(m->engine, class_index, node,
                                           random_below(&m->random, SIZE_MAX_B),
                                           m->now_ns) == SLUICE_HOLD;
}

static void withdraw_any(Market *m)
{
    uint32_t class_index = random_below(&m->random, m->classes);
    SluiceNode *node = sluice_engine_first_held(m->engine, class_index);

    if (node) {
        sluice_engine_withdraw(m->engine, node);
        m->spare[m->spare_count++] = node;
    }
}

static void release_one(Market *m)
{
    uint64_t event_ns = sluice_engine_next_event_ns(m->engine);
    SluiceNode *node;

    if (event_ns == SLUICE_NEVER) {
        return;
    }
    m->now_ns = event_ns + (random_chance(&m->random, 5)
                            ? random_magnitude(&m->random, 20) : 0);
    node = sluice_engine_release(m->engine, m->now_ns);
    if (check(node)) {
        m->spare[m->spare_count++] = node;
    }
}

static bool trade(uint64_t seed, uint32_t classes, unsigned steps)
{
    SluiceLimit ceiling = { .bytes_per_second = CEILING, .burst_bytes = 1000 };
    uint32_t held_max = 3 * classes;
    Market m = {
        .engine = sluice_engine_new(classes),
        .nodes = calloc(held_max, sizeof(*m.nodes)),
        .spare = calloc(held_max, sizeof(*m.spare)),
        .spare_count = held_max, .classes = classes,
        .random = random_seeded(seed), .now_ns = 1,
    };
    bool ok = check(m.engine && m.nodes && m.spare);

    for (uint32_t i = 0; i < held_max; i++) {
        m.spare[i] = &m.nodes[i];
    }
    check(sluice_engine_set_ceiling(m.engine, &ceiling, 0));
    for (uint32_t i = 0; i < classes; i++) {
        set_any_class(&m, i);
    }
    for (unsigned step = 0; ok && step < steps; step++) {
        while (m.spare_count > 0 && !random_chance(&m.random, 40)) {
            hold_any(&m);
        }
        if (random_chance(&m.random, 3)) {
            withdraw_any(&m);
        }
        if (random_chance(&m.random, 1)) {
            set_any_class(&m, random_below(&m.random, classes));
        }
        release_one(&m);
        ok = all_is_right(&m);
    }
    while (sluice_engine_evict(m.engine)) {
        /* Only its end matters. */
    }
    sluice_engine_free(m.engine);
    free(m.nodes);
    free(m.spare);
    return ok;
}

static void follow(uint32_t classes, unsigned steps)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 60 + 1;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        if (!trade(seed + i, classes, steps)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static void test_turns_of_few(void)
{
    follow(5, 5000);
    follow(30, 5000);
}

/* Trees of several levels, with parts; and the near ring. */
static void test_turns_of_many(void)
{
    follow(400, 2000);
    follow(1100, 1000);
}

static const TapTest tests[] = {
    { "share/property: turns of few classes are those of a look at all",
      test_turns_of_few },
    { "share/property: turns of many classes are those of a look at all",
      test_turns_of_many },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
