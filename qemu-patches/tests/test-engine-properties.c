/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine under random traces, beside the model of engine-model.h.
 *
 * SLUICE_TEST_SEED and SLUICE_TEST_TRACES choose the traces.
 */
#include "engine-trace.h"

#define STEPS   1500

static uint32_t spare_classes;
static bool gated;

static void run_traces(bool changes, bool all_knobs)
{
    static Model model;
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);
    uint64_t admitted = 0, late = 0, violations = 0, dropped = 0, gate_held = 0;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        model.random = random_seeded(seed + i);
        model.changes = changes;
        model.all_knobs = all_knobs;
        model.spare_classes = spare_classes;
        model.gated = gated;
        if (!run_trace(&model, STEPS)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;             /* the engine still holds requests */
        }
        for (uint32_t c = 0; c < model.class_count; c++) {
            const ModelWindow *window = &model.classes[c].window;

            admitted += model.admitted[c];
            late += window->stats.late_requests;
            violations += window->stats.violations;
        }
        dropped += model.dropped;
        gate_held += sluice_engine_gate(model.engine)->held_times;
        sluice_engine_free(model.engine);
    }
    printf("# %" PRIu64 " requests admitted, %" PRIu64 " missed their window, of "
           "which %" PRIu64 " dropped; %" PRIu64 " violations\n", admitted, late,
           dropped, violations);
    check(admitted > traces * 100);
    check(!gated || gate_held > traces * 10);
    check(!all_knobs || (dropped > 0 && late > dropped && violations > 0));
}

static void test_fixed_configuration(void)
{
    run_traces(false, false);
}

static void test_reconfiguration_under_backlog(void)
{
    run_traces(true, false);
}

static void test_every_knob(void)
{
    run_traces(false, true);
}

static void test_every_knob_under_change(void)
{
    run_traces(true, true);
}

/* Bytes in flight, streams and the bound on waiting: engine-model.h. */
static void test_behind_a_gate(void)
{
    gated = true;
    run_traces(true, false);
    run_traces(true, true);
    gated = false;
}

/* A full engine, most of whose classes are idle. */
static void test_every_knob_in_a_full_engine(void)
{
    spare_classes = SLUICE_CLASSES_MAX - CLASSES_MAX;
    run_traces(false, true);
    run_traces(true, true);
    spare_classes = 0;
}

/* A request of each class: they come back in time's order. */
static void give_back_in_order(uint64_t seed)
{
    enum { CLASSES = SLUICE_CLASSES_MAX };
    Random random = random_seeded(seed);
    SluiceEngine *engine = sluice_engine_new(CLASSES);
    SluiceNode nodes[CLASSES];
    uint32_t debts[CLASSES];
    SluiceClassConfig config = { .limit = { .bytes_per_second = 1000000000,
                                            .burst_bytes = 1 } };
    uint64_t before_ns = 0;
    unsigned count = 0;

    for (uint32_t i = 0; i < CLASSES; i++) {
        SluiceNode passed;

        sluice_engine_set_class(engine, i, &config, 0);
        /* A byte is a nanosecond; the bucket has one: debts[i] ns, and 1. */
        debts[i] = random_magnitude(&random, 20);
        sluice_engine_submit(engine, i, &passed, debts[i] + 1, 0);
        sluice_engine_submit(engine, i, &nodes[i], 1, 0);
    }
    for (uint32_t i = 0; i < CLASSES; i += 3) {
        sluice_engine_withdraw(engine, &nodes[i], 0);
    }
    for (;;) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);
        SluiceNode *node;

        if (event_ns == SLUICE_NEVER) {
            break;
        }
        node = sluice_engine_release(engine, event_ns);
        if (!check(node && node->class_index % 3 != 0)
            || !check_equal(event_ns, debts[node->class_index] + 1)
            || !check(event_ns >= before_ns)) {
            break;
        }
        before_ns = event_ns;
        count++;
    }
    check_equal(count, CLASSES - (CLASSES + 2) / 3);
    sluice_engine_free(engine);
}

static void test_classes_in_order_of_eligibility(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300);

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        give_back_in_order(seed + i);
    }
}

static const TapTest tests[] = {
    { "engine/property: fixed configuration", test_fixed_configuration },
    { "engine/property: reconfiguration under backlog",
      test_reconfiguration_under_backlog },
    { "engine/property: every knob", test_every_knob },
    { "engine/property: every knob, reconfigured under backlog",
      test_every_knob_under_change },
    { "engine/property: behind a gate", test_behind_a_gate },
    { "engine/property: every knob, in a full engine",
      test_every_knob_in_a_full_engine },
    { "engine/property: classes in order of eligibility",
      test_classes_in_order_of_eligibility },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
