/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Late timers, or none at all. As long as ceiling and group have tokens, and each call
 * first releases the requests that are due, as the shaper's calls do, no request is held
 * for another: a class without a limit never waits, and a limited one no longer than
 * until the next call after its own tokens have come.
 */
#include "evict.h"
#include "group-fixture.h"
#include "random.h"
#include "sluice/engine.h"

#define LIMITED     6               /* classes, from 0 on; the others have no limit */
#define CLASSES     10
#define HELD_MAX    256
#define STEPS       2000
#define STEP_MAX_NS (200 * MS)      /* from call to call: so late is a timer here */

typedef struct Machine {
    SluiceEngine *engine;
    SluiceGroupMember member;
    Random random;
    SluiceNode nodes[HELD_MAX];
    SluiceNode *spare[HELD_MAX];
    uint32_t spare_count;
    uint64_t now_ns;
    uint64_t held;
} Machine;

static void set_classes(Machine *m)
{
    for (uint32_t i = 0; i < CLASSES; i++) {
        SluiceClassConfig config = {
            .priority = random_below(&m->random, SLUICE_PRIORITIES),
            .weight = 1 + random_below(&m->random, SLUICE_WEIGHT_MAX),
        };

        if (i < LIMITED) {
            config.limit.operations_per_second = 1 + random_below(&m->random, 10000);
            config.policy = random_below(&m->random, 2);
        }
        check(sluice_engine_set_class(m->engine, i, &config, m->now_ns));
    }
}

/* At the start of each call. */
static bool release_due(Machine *m)
{
    SluiceNode *node;

    while ((node = sluice_engine_release(m->engine, m->now_ns))) {
        if (!check(node->class_index < LIMITED)) {
            return false;
        }
        m->spare[m->spare_count++] = node;
    }
    /* Nothing is left that has its own tokens. */
    return check(sluice_engine_next_event_ns(m->engine) > m->now_ns);
}

static bool submit_any(Machine *m)
{
    uint32_t class_index = random_below(&m->random, CLASSES);
    SluiceNode *node;

    if (m->spare_count == 0) {
        class_index = CLASSES - 1;
    }
    node = class_index < LIMITED ? m->spare[m->spare_count - 1]
                                 : &(SluiceNode){ 0 };
    if (sluice_engine_submit(m->engine, class_index, node,
                             random_below(&m->random, 65536), m->now_ns)
        == SLUICE_HOLD) {
        m->spare_count--;
        m->held++;
        return check(class_index < LIMITED);
    }
    return true;
}

static bool run_late(uint64_t seed, bool grouped)
{
    SluiceLimit ample = { .bytes_per_second = SLUICE_RATE_MAX,
                          .burst_bytes = SLUICE_BURST_MAX };
    SluiceGroupLimit group_limit = { .unit = SLUICE_GROUP_BYTES,
                                     .rate = SLUICE_RATE_MAX,
                                     .burst = SLUICE_BURST_MAX };
    Machine m = {
        .engine = sluice_engine_new(CLASSES), .random = random_seeded(seed),
        .spare_count = HELD_MAX, .now_ns = START_NS,
    };
    bool ok = true;

    for (uint32_t i = 0; i < HELD_MAX; i++) {
        m.spare[i] = &m.nodes[i];
    }
    if (grouped) {
        new_page(&group_limit);
        check(joins(&m.member, 1, 100, m.now_ns));
        sluice_engine_set_group(m.engine, &m.member);
    } else {
        check(sluice_engine_set_ceiling(m.engine, &ample, m.now_ns));
    }
    set_classes(&m);
    for (unsigned step = 0; ok && step < STEPS; step++) {
        if (random_chance(&m.random, 30)) {
            m.now_ns += random_below(&m.random, STEP_MAX_NS);
            if (grouped) {
                sluice_group_keepalive(&m.member, m.now_ns);
            }
        }
        ok = release_due(&m) && submit_any(&m);
    }
    check(m.held > 0);
    while (evict(m.engine)) {
        /* Only its end matters. */
    }
    if (grouped) {
        sluice_engine_set_group(m.engine, NULL);
        sluice_group_leave(&m.member);
    }
    sluice_engine_free(m.engine);
    return ok;
}

static void run_all_late(bool grouped)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 10 + 1;

    for (uint64_t i = 0; i < traces; i++) {
        if (!run_late(seed + i, grouped)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static void test_under_an_ample_ceiling(void)
{
    run_all_late(false);
}

static void test_under_an_ample_group(void)
{
    run_all_late(true);
}

static const TapTest tests[] = {
    { "late/property: under an ample ceiling none is held for another",
      test_under_an_ample_ceiling },
    { "late/property: under an ample group none is held for another",
      test_under_an_ample_group },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
