/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Traces for the engine and its model (engine-model.h): random configurations,
 * requests, times and changes. They come from a Random: seeded, or a fuzzer's
 * bytes.
 */
#ifndef SLUICE_TESTS_ENGINE_TRACE_H
#define SLUICE_TESTS_ENGINE_TRACE_H

#include "evict.h"
#include "engine-model.h"

static SluiceLimit random_limit(Model *model)
{
    Random *random = &model->random;
    SluiceLimit limit = { 0 };

    if (random_chance(random, 70)) {
        limit.bytes_per_second =
            (1ULL << (model->rate_bits - 1)) + random_below(
                random, 1ULL << (model->rate_bits - 1));
        limit.burst_bytes = random_magnitude(random, model->rate_bits) - 1;
    }
    if (random_chance(random, 40)) {
        limit.operations_per_second = random_magnitude(random, 30);
        limit.burst_operations = random_magnitude(random, 6) - 1;
    }
    return limit;
}

static void limiter_configure(Model *model, Limiter *limiter, SluiceLimit limit)
{
    bool had_bytes = limiter->bytes.rate > 0;
    bool had_operations = limiter->operations.rate > 0;

    limiter->life += had_bytes != (limit.bytes_per_second > 0)
                     || had_operations != (limit.operations_per_second > 0);
    limiter->limit = limit;
    exact_configure(&limiter->bytes, limit.bytes_per_second, limit.burst_bytes,
                    model->now_ns);
    exact_configure(&limiter->operations, limit.operations_per_second,
                    limit.burst_operations, model->now_ns);
}

/* All of them, and often the same one. */
static uint8_t random_priority(Random *random)
{
    return random_chance(random, 50) ? random_below(random, SLUICE_PRIORITIES)
                                     : 5;
}

/*
 * At most `rate`, which the class may have; the bytes of a period are
 * rounded down, to none at slow rates and short periods. Then there is none.
 */
static SluiceWindow random_window(Random *random, uint64_t rate)
{
    uint64_t period_ns = random_magnitude(random, 41);
    Wide bytes = (Wide)(1 + random_below(random, rate)) * period_ns / NANO;
    SluiceWindow window = {
        .period_ns = period_ns,
        .bytes = bytes < UINT32_MAX ? bytes : UINT32_MAX,
        .of = 1 + random_below(random, 5),
        .may_drop = random_chance(random, 50),
    };

    window.may_miss = random_below(random, window.of);
    return window.bytes ? window : (SluiceWindow){ 0 };
}

static SluiceClassConfig random_config(Model *model)
{
    Random *random = &model->random;
    SluiceClassConfig config = {
        .limit = random_limit(model),
        .priority = random_priority(random),
        .weight = random_below(random, SLUICE_WEIGHT_MAX + 1),
    };
    uint64_t rate = config.limit.bytes_per_second;

    if (!model->all_knobs) {
        return config;
    }
    config.policy = random_below(random, rate ? SLUICE_POLICIES : 2);
    if (config.policy == SLUICE_POLICY_TOKEN_LEAKY) {
        config.peak_bytes_per_second = rate + random_below(random, rate / 2 + 1);
    }
    if (random_chance(random, 30)) {
        config.charge_min_bytes = random_magnitude(random, 13);
    }
    if (random_chance(random, 30)) {
        config.reservation_bytes_per_second =
            1 + random_below(random, rate ? rate : 1000000);
    } else if (random_chance(random, 40)) {
        config.window = random_window(random, rate ? rate : 1000000);
    }
    config.unmanaged = random_chance(random, 5);
    config.dynamic = random_below(random, SLUICE_DYNAMICS);
    return config;
}

static bool same_window(const SluiceWindow *a, const SluiceWindow *b)
{
    return a->period_ns == b->period_ns && a->bytes == b->bytes
           && a->may_miss == b->may_miss && a->of == b->of;
}

/* Another window begins anew. */
static void model_window(ModelWindow *window, const SluiceWindow *config)
{
    if (!same_window(&window->config, config)) {
        window->seen = window->missed = 0;
    }
    window->config = *config;
}

static bool change_class(Model *model, uint32_t class_index)
{
    SluiceClassConfig config = random_config(model);
    ModelClass *class = &model->classes[class_index];
    SluiceLimit limit = config.limit;

    if (config.unmanaged) {
        limit = (SluiceLimit){ 0 };
    } else if (config.policy == SLUICE_POLICY_LEAKY_BUCKET) {
        limit.burst_bytes = limit.burst_operations = 0;
    }
    limiter_configure(model, &model->limiters[class_index], limit);
    exact_configure(&class->peak, config.peak_bytes_per_second, 0,
                    model->now_ns);
    exact_allow_late(&class->peak, SLUICE_LEAKY_LATE_MAX_NS);
    if (config.policy == SLUICE_POLICY_LEAKY_BUCKET) {
        exact_allow_late(&model->limiters[class_index].bytes,
                         SLUICE_LEAKY_LATE_MAX_NS);
        exact_allow_late(&model->limiters[class_index].operations,
                         SLUICE_LEAKY_LATE_MAX_NS);
    }
    class->priority = config.priority;
    class->unmanaged = config.unmanaged;
    /* Flows that were told apart stay so while they are held. */
    class->dynamic = config.dynamic
                     || (class->dynamic && model->lengths[class_index] > 0);
    class->windowed = config.window.period_ns > 0
                      || (class->windowed && model->lengths[class_index] > 0);
    class->reserved = config.reservation_bytes_per_second > 0
                      || config.window.period_ns > 0;
    model_window(&class->window, &config.window);
    class->charge_min = config.charge_min_bytes;
    return check(sluice_engine_set_class(model->engine, class_index, &config,
                                         model->now_ns));
}

static bool change_ceiling(Model *model)
{
    SluiceLimit limit = random_limit(model);

    limiter_configure(model, &model->ceiling, limit);
    return check(sluice_engine_set_ceiling(model->engine, &limit,
                                           model->now_ns));
}

static bool keep_receipt(Model *model, Kept *kept)
{
    uint32_t class_index = random_below(&model->random, model->class_count);

    *kept = (Kept){
        .receipt = sluice_engine_receipt(model->engine, class_index, 0),
        .class_life = model->limiters[class_index].life,
        .ceiling_life = model->ceiling.life,
    };
    return check(kept->receipt.charged
                 == !model->classes[class_index].unmanaged);
}

/*
 * The true cost of a request that went on turns out to be another, perhaps when the
 * buckets charged for it are no more.
 */
static bool correct(Model *model)
{
    Kept *kept = &model->kept[random_below(&model->random, RECEIPTS)];
    int64_t bytes = random_magnitude(&model->random, 20);
    Limiter *limiter;

    if (!model->all_knobs) {
        return true;
    }
    if ((!kept->receipt.charged || random_chance(&model->random, 50))
        && !keep_receipt(model, kept)) {
        return false;
    }
    if (random_chance(&model->random, 70)) {
        bytes = -bytes;
    }
    limiter = &model->limiters[kept->receipt.class_index];
    if (kept->receipt.charged && kept->ceiling_life == model->ceiling.life) {
        exact_correct(&model->ceiling.bytes, bytes);
    }
    if (kept->receipt.charged && kept->class_life == limiter->life) {
        exact_correct(&limiter->bytes, bytes);
    }
    model->corrected |= bytes > 0;
    sluice_engine_correct(model->engine, &kept->receipt, bytes, model->now_ns);
    return true;
}

/* Another target, other streams, or a narrower window. */
static bool change_gate(Model *model)
{
    Random *random = &model->random;

    if (random_chance(random, 20)) {
        sluice_engine_shrink_gate(model->engine, random_below(random, 1100));
        return true;
    }
    model->gate_target_ns = random_chance(random, 75)
                            ? random_magnitude(random, 35) : 0;
    model->streams = random_below(random, 1u << model->class_count);
    return check(sluice_engine_set_gate(model->engine, model->streams,
                                        model->gate_target_ns, model->now_ns));
}

static bool gate_step(Model *model)
{
    unsigned dice = random_below(&model->random, 100);

    if (dice < 2) {
        return change_gate(model);
    }
    return dice >= 40 || finish_one(model, true);
}

static bool one_step(Model *model)
{
    unsigned dice = random_below(&model->random, 100);
    bool released;

    if (model->gated && !gate_step(model)) {
        return false;
    }
    if (dice < 55) {
        return submit(model);
    }
    if (dice < 65) {
        /* Time passes; a due timer may be late while requests come in. */
        move_to(model, model->now_ns + random_magnitude(&model->random, 30));
        return random_chance(&model->random, 50) || release_all(model);
    }
    if (dice < 92) {
        return next_event(model, &released);
    }
    if (dice < 95) {
        return random_chance(&model->random, 3) ? withdraw_some(model)
                                                : withdraw(model);
    }
    if (dice < 96) {
        return correct(model);
    }
    if (!model->changes) {
        return true;
    }
    if (dice < 99) {
        return change_class(model, random_below(&model->random,
                                                model->class_count));
    }
    return change_ceiling(model);
}

static bool stats_agree(const Model *model)
{
    for (uint32_t i = 0; i < model->class_count; i++) {
        const SluiceClassStats *stats = sluice_engine_stats(model->engine, i);

        if (!check_equal(stats->requests, model->admitted[i])
            || !check_equal(stats->bytes, model->admitted_bytes[i])
            || !check_equal(stats->backlog_requests, model->lengths[i])) {
            return false;
        }
    }
    return in_flight_agrees(model);
}

/* How long a bucket can be without a token while `units` are charged to it,
 * `requests` times, each of which may round. */
static Wide empty_ns(const ExactBucket *bucket, uint64_t units,
                     uint32_t requests)
{
    Wide debt = bucket->level < 0 ? -bucket->level : 0;

    if (bucket->rate == 0) {
        return 0;
    }
    return (debt + (Wide)units * NANO + bucket->slack) / bucket->rate
           + 2 * ((Wide)requests + 1);
}

static Wide limiter_empty_ns(const Limiter *limiter, uint64_t bytes,
                             uint32_t requests)
{
    return empty_ns(&limiter->bytes, bytes, requests)
           + empty_ns(&limiter->operations, requests, requests);
}

/*
 * Held requests are out after this time. While the ceiling has tokens, a class
 * waits only for tokens of its own; so the class that is served last has waited
 * for its own buckets, or else for the ceiling's, which all of them charge.
 */
static Wide drain_max_ns(const Model *model)
{
    uint64_t all_bytes = 0;
    Wide longest_ns = 0;

    for (uint32_t i = 0; i < model->class_count; i++) {
        const ModelClass *class = &model->classes[i];
        uint32_t requests = model->lengths[i];
        uint64_t bytes = 0;
        Wide own_ns;

        for (uint32_t n = 0; n < requests; n++) {
            uint32_t asked = model->queues[i][n]->node.bytes;

            bytes += asked > class->charge_min ? asked : class->charge_min;
        }
        all_bytes += bytes;
        own_ns = limiter_empty_ns(&model->limiters[i], bytes, requests)
                 + empty_ns(&class->peak, bytes, requests);
        longest_ns = own_ns > longest_ns ? own_ns : longest_ns;
    }
    return longest_ns + limiter_empty_ns(&model->ceiling, all_bytes,
                                         backlog(model));
}

/* No class can go for longer than the clock can reach: then only a correction
 * can have put so much debt there. */
static bool evicts(Model *model)
{
    bool released;

    if (!check(model->corrected)) {
        return false;
    }
    move_to(model, model->now_ns + JUMP_MAX_NS);
    if (!release(model, &released) || !check(!released)) {
        return false;
    }
    for (uint32_t left = backlog(model); left > 0; left--) {
        if (!check(evict(model->engine))) {
            return false;
        }
    }
    return true;
}

static bool finish_all(Model *model)
{
    while (model->in_flight_count > 0) {
        if (!finish_one(model, false)) {
            return false;
        }
    }
    return true;
}

/* With nothing new coming, every held request gets out, one per event, and in
 * no more time than its bytes and operations take. */
static bool drains(Model *model)
{
    Wide end_ns = model->now_ns + drain_max_ns(model);
    bool released = true;

    while (backlog(model) > 0 && released) {
        if (!finish_all(model) || !next_event(model, &released)) {
            return false;
        }
    }
    if (backlog(model) > 0 ? !evicts(model) : !check(model->now_ns <= end_ns)) {
        return false;
    }
    return finish_all(model) && check(!evict(model->engine))
           && check_equal(sluice_engine_next_event_ns(model->engine),
                          SLUICE_NEVER);
}

/* With random, changes, all_knobs, gated and spare_classes set; the engine is the
 * caller's to free. */
static bool run_trace(Model *model, unsigned steps)
{
    Random random = model->random;
    bool changes = model->changes, all_knobs = model->all_knobs;
    bool gated = model->gated;
    uint32_t spare_classes = model->spare_classes;

    memset(model, 0, sizeof(*model));
    model->random = random;
    model->changes = changes;
    model->all_knobs = all_knobs;
    model->gated = gated;
    model->spare_classes = spare_classes;
    model->class_count = 1 + random_below(&model->random, CLASSES_MAX);
    model->rate_bits = 1 + random_below(&model->random, 39);
    model->size_max = UINT32_MAX;
    if (model->rate_bits < 30) {
        /* A request takes up to about four seconds at the rate. */
        model->size_max = 4u << model->rate_bits;
    }
    model->engine = sluice_engine_new(model->class_count
                                      + model->spare_classes);
    if (!check(model->engine)) {
        return false;
    }
    move_to(model, random_magnitude(&model->random, 60));
    for (uint32_t i = 0; i < model->class_count; i++) {
        if (!change_class(model, i)) {
            return false;
        }
    }
    if (random_chance(&model->random, 70) && !change_ceiling(model)) {
        return false;
    }
    if (gated && !change_gate(model)) {
        return false;
    }
    for (unsigned step = 0; step < steps && !random_is_spent(&model->random); step++) {
        if (!one_step(model) || (step % 64 == 0 && !stats_agree(model))) {
            return false;
        }
    }
    return stats_agree(model) && drains(model);
}

#endif
