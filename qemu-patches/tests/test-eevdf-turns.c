/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which class goes, held against the rules, stated here once more over all classes: among
 * READY ones, after each of many random steps. Looks inside, since no caller sees virtual
 * times. A class that goes without competing is no concern of these rules.
 */
#include <stdlib.h>

#include "evict.h"
#include "sluice/engine-internal.h"
#include "random.h"
#include "tap.h"

#define CEILING     1000000000ULL
#define SIZE_MAX_B  16384
#define FORETOLD_PERCENT    10
#define ASKED_PERCENT       2

typedef struct Market {
    SluiceEngine *engine;
    SluiceNode *nodes;
    SluiceNode **spare;
    uint32_t spare_count;
    uint32_t classes;
    Random random;
    uint64_t now_ns;
    uint64_t dropped;
} Market;

static uint64_t deadline_of(const SluiceClass *class)
{
    uint64_t charged = charged_bytes(class, class->oldest->bytes);
    SluiceU128 cost = (SluiceU128)(charged ? charged : 1) * class->virtual_unit
                      + (1ULL << 31);

    return class->virtual_time + (uint64_t)(cost >> 32);
}

static uint64_t turn_of(const SluiceClass *class)
{
    return class->reservation.due_ns > 0 ? class->reservation.due_ns : 0;
}

/* The deadlines that are noted, and the masks, say how all READY classes are. */
static bool notes_are_right(const Market *m)
{
    for (uint32_t i = 0; i < m->classes; i++) {
        const SluiceClass *class = &m->engine->classes[i];
        bool ready = class->place == PLACE_READY;

        if (!check_equal(m->engine->levels[class->priority].classes >> i & 1, ready)
            || !check_equal(m->engine->reserved >> i & 1,
                            ready && has_reservation(class))
            || !check_equal(m->engine->due >> i & 1, class->place == PLACE_DUE)
            || (ready && !check_equal(class->deadline, deadline_of(class)))) {
            return false;
        }
    }
    return true;
}

/* The sums are those of all classes that compete, and no eligible one has an earlier
 * deadline than the chosen one. */
static bool turn_is_right(Market *m, unsigned priority)
{
    const EevdfLevel *level = &m->engine->levels[priority];
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
    chosen = eevdf_choose(m->engine, priority);
    return check((SluiceU128)classes[chosen].virtual_time * weight <= sum)
           && check_equal(deadline_of(&classes[chosen]), earliest);
}

static uint64_t first_turn(const SluiceEngine *engine)
{
    uint64_t earliest = UINT64_MAX;

    for (uint32_t i = 0; i < engine->class_count; i++) {
        const SluiceClass *class = &engine->classes[i];

        if (class->place == PLACE_READY && has_reservation(class)
            && turn_of(class) < earliest) {
            earliest = turn_of(class);
        }
    }
    return earliest;
}

static bool all_is_right(Market *m)
{
    bool ok = true;

    for (unsigned p = 0; ok && p < SLUICE_PRIORITIES; p++) {
        ok = turn_is_right(m, p);
    }
    return ok;
}

static void reserve_any(Market *m, SluiceClassConfig *config, uint64_t share)
{
    uint64_t most = config->limit.bytes_per_second
                    ? config->limit.bytes_per_second : share;

    if (!config->limit.bytes_per_second && random_chance(&m->random, 30)) {
        config->window = (SluiceWindow){
            .period_ns = 10000 + random_below(&m->random, 1000000),
            .may_miss = random_below(&m->random, 3), .of = 3, .may_drop = true,
        };
        config->window.bytes = 1 + share * config->window.period_ns / CEILING;
    } else if (random_chance(&m->random, 60)) {
        config->reservation_bytes_per_second = 1 + random_below(&m->random, most);
    }
}

static void set_any_class(Market *m, uint32_t class_index)
{
    uint64_t share = CEILING / m->classes;
    SluiceClassConfig config = {
        .priority = random_below(&m->random, 3) * 3,
        .weight = random_magnitude(&m->random, 9),
        .charge_min_bytes = random_chance(&m->random, 20) ? 4096 : 0,
        .dynamic = random_chance(&m->random, 20) ? SLUICE_DYNAMIC_LATENCY
                                                 : SLUICE_DYNAMIC_NONE,
    };

    if (random_chance(&m->random, 40)) {
        config.limit.bytes_per_second = 1 + random_below(&m->random, 2 * share);
        config.limit.burst_bytes = random_below(&m->random, SIZE_MAX_B);
    }
    reserve_any(m, &config, share);
    check(sluice_engine_set_class(m->engine, class_index, &config, m->now_ns));
}

static void hold_any(Market *m)
{
    uint32_t class_index = random_below(&m->random, m->classes);
    SluiceNode *node = m->spare[m->spare_count - 1];

    node->flow = random_below(&m->random, 20);
    m->spare_count -= sluice_engine_submit(m->engine, class_index, node,
                                           random_below(&m->random, SIZE_MAX_B),
                                           m->now_ns) == SLUICE_HOLD;
}

static void withdraw_any(Market *m)
{
    uint32_t class_index = random_below(&m->random, m->classes);
    SluiceNode *node = sluice_engine_first_held(m->engine, class_index);

    if (node) {
        sluice_engine_withdraw(m->engine, node, 0);
        m->spare[m->spare_count++] = node;
    }
}

/* The key of each class under the rule that decides now; else UINT64_MAX. */
static void foretell(Market *m, uint64_t orders[SLUICE_CLASSES_MAX])
{
    SluiceEngine *engine = m->engine;
    uint64_t clock_ns = engine_reservations_now(engine, m->now_ns);
    unsigned priority = __builtin_ctz(ready_mask(engine));
    const EevdfLevel *level = &engine->levels[priority];
    bool reserved = first_turn(engine) <= clock_ns;

    for (uint32_t i = 0; i < m->classes; i++) {
        const SluiceClass *class = &engine->classes[i];
        bool decides = class->place == PLACE_READY
                       && (reserved ? has_reservation(class)
                                    : class->priority == priority
                                      && (SluiceU128)class->virtual_time
                                         * level->weight <= level->sum);

        orders[i] = !decides ? UINT64_MAX
                    : reserved ? turn_of(class) : deadline_of(class);
    }
}

static uint64_t least_of(const uint64_t *orders, uint32_t count)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        least = orders[i] < least ? orders[i] : least;
    }
    return least;
}

/* The next one, and whether it was the right one, of those that are as good. */
static bool release_one(Market *m)
{
    static uint64_t orders[SLUICE_CLASSES_MAX];
    bool foretold = random_chance(&m->random, FORETOLD_PERCENT);
    uint64_t event_ns = sluice_engine_next_event_ns(m->engine);
    SluiceNode *node;

    if (event_ns == SLUICE_NEVER) {
        return true;
    }
    m->now_ns = event_ns + (random_chance(&m->random, 5)
                            ? random_magnitude(&m->random, 20) : 0);
    if (foretold) {
        /* As releasing does, but for a class that would go without competing. */
        advance_clock(m->engine, m->now_ns);
        engine_promote_due(m->engine, m->now_ns);
        foretell(m, orders);
    }
    node = sluice_engine_release(m->engine, m->now_ns);
    if (!check(node)) {
        return false;
    }
    m->spare[m->spare_count++] = node;
    m->dropped += node->late == SLUICE_LATE_DROP;
    return !foretold || check_equal(orders[node->class_index],
                                    least_of(orders, m->classes));
}

static uint64_t dropped;

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
        ok = release_one(&m) && notes_are_right(&m)
             && (!random_chance(&m.random, ASKED_PERCENT) || all_is_right(&m));
    }
    dropped += m.dropped;
    while (evict(m.engine)) {
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
    check(dropped > 0);
}

static void test_turns_of_a_full_engine(void)
{
    follow(SLUICE_CLASSES_MAX, 10000);
}

static const TapTest tests[] = {
    { "share/property: turns of few classes are those of a look at all",
      test_turns_of_few },
    { "share/property: turns of a full engine are those of a look at all",
      test_turns_of_a_full_engine },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
