/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine under a trace, beside a plain model of it: exact buckets
 * (exact-bucket.h, which also derives the tolerance) and an array per class.
 * The model never says what the engine must do where rounding could decide;
 * everywhere else the two must agree on every single request.
 *
 * The trace comes from a Random: seeded, or a fuzzer's bytes.
 */
#ifndef SLUICE_TESTS_ENGINE_MODEL_H
#define SLUICE_TESTS_ENGINE_MODEL_H

#include <string.h>

#include "sluice/engine.h"
#include "exact-bucket.h"
#include "random.h"
#include "tap.h"

#define CLASSES_MAX     6
#define ITEMS           400
#define FLOWS           5
#define RECEIPTS        4
#define JUMP_MAX_NS     (1ULL << 50)

typedef struct Item {
    SluiceNode node;            /* first, so that a node is its item */
    bool in_use;
} Item;

/* A class as the model knows it. */
typedef struct ModelClass {
    uint8_t priority;
    bool unmanaged;
    bool dynamic;
    bool reserved;              /* may go before better priorities */
    uint32_t charge_min;
    ExactBucket peak;
} ModelClass;

/* Two buckets, and what passed in the worst window so far (see admit()). */
typedef struct Limiter {
    SluiceLimit limit;
    ExactBucket bytes;
    ExactBucket operations;
    Wide bytes_excess;
    Wide operations_excess;
    uint64_t excess_seen_ns;
    uint32_t life;              /* of its buckets */
} Limiter;

/* Of a request that was admitted some time ago. */
typedef struct Kept {
    SluiceReceipt receipt;
    uint32_t class_life;
    uint32_t ceiling_life;
} Kept;

typedef struct Model {
    Random random;
    SluiceEngine *engine;
    uint64_t now_ns;
    unsigned rate_bits;
    uint32_t size_max;
    bool changes;               /* reconfigure during the trace */
    bool all_knobs;             /* not only limits, priorities, weights */
    uint32_t class_count;
    uint32_t spare_classes;     /* of the engine, beyond these */
    Limiter ceiling;
    Limiter limiters[CLASSES_MAX];
    ModelClass classes[CLASSES_MAX];
    Item *queues[CLASSES_MAX][ITEMS];
    uint32_t lengths[CLASSES_MAX];
    uint64_t admitted[CLASSES_MAX];
    uint64_t admitted_bytes[CLASSES_MAX];
    Kept kept[RECEIPTS];
    Item items[ITEMS];
} Model;

static bool is_limited(const Limiter *limiter)
{
    return limiter->bytes.rate > 0 || limiter->operations.rate > 0;
}

static bool may_pass(const Limiter *limiter)
{
    return exact_may_pass(&limiter->bytes)
           && exact_may_pass(&limiter->operations);
}

static bool must_pass(const Limiter *limiter)
{
    return exact_must_pass(&limiter->bytes)
           && exact_must_pass(&limiter->operations);
}

static void move_to(Model *model, uint64_t now_ns)
{
    model->now_ns = now_ns;
    exact_advance(&model->ceiling.bytes, now_ns);
    exact_advance(&model->ceiling.operations, now_ns);
    for (uint32_t i = 0; i < model->class_count; i++) {
        exact_advance(&model->limiters[i].bytes, now_ns);
        exact_advance(&model->limiters[i].operations, now_ns);
        exact_advance(&model->classes[i].peak, now_ns);
    }
}

/*
 * No window of length t lets more than burst + rate * t + one request through.
 * The worst window that ends now has let through, beyond rate * t, what a
 * bucket that drains at the rate and never below 0 would hold. A request needs
 * a token, so it begins at less than the burst (1 ns at the rate, if the burst
 * is shorter) and adds itself. Rounding of tolerance and TAT: 2 ns.
 */
static bool window_holds(Wide *excess, uint64_t rate, uint64_t burst,
                         uint32_t units, uint64_t units_max, uint64_t waited_ns)
{
    Wide bound = (Wide)burst * NANO;

    if (rate == 0) {
        return true;
    }
    *excess -= (Wide)rate * waited_ns;
    *excess = (*excess < 0 ? 0 : *excess) + (Wide)units * NANO;
    bound = bound < (Wide)rate ? (Wide)rate : bound;
    return *excess <= bound + (Wide)units_max * NANO + 2 * (Wide)rate;
}

static bool charge(const Model *model, Limiter *limiter, uint32_t bytes)
{
    const SluiceLimit *limit = &limiter->limit;
    uint64_t waited_ns = model->now_ns - limiter->excess_seen_ns;

    exact_charge(&limiter->bytes, bytes);
    exact_charge(&limiter->operations, 1);
    limiter->excess_seen_ns = model->now_ns;
    return model->changes || model->all_knobs
           || (window_holds(&limiter->bytes_excess, limit->bytes_per_second,
                            limit->burst_bytes, bytes, model->size_max,
                            waited_ns)
               && window_holds(&limiter->operations_excess,
                               limit->operations_per_second,
                               limit->burst_operations, 1, 1, waited_ns));
}

static bool class_may_pass(const Model *model, uint32_t class_index)
{
    return may_pass(&model->limiters[class_index])
           && exact_may_pass(&model->classes[class_index].peak);
}

static bool class_must_pass(const Model *model, uint32_t class_index)
{
    return must_pass(&model->limiters[class_index])
           && exact_must_pass(&model->classes[class_index].peak);
}

/* A class that waits for nothing but the ceiling, for certain. */
static bool certainly_ready(const Model *model, uint32_t class_index)
{
    return model->lengths[class_index] > 0
           && class_must_pass(model, class_index);
}

static bool possibly_ready(const Model *model, uint32_t class_index)
{
    return model->lengths[class_index] > 0
           && class_may_pass(model, class_index);
}

/* Would `class_index` going on now invert a priority? */
static bool inverts(const Model *model, uint32_t class_index, bool newcomer)
{
    uint8_t priority = model->classes[class_index].priority;

    if (model->classes[class_index].reserved) {
        return false;           /* test-share.c looks at reservations */
    }
    for (uint32_t i = 0; i < model->class_count; i++) {
        bool before = model->classes[i].priority < priority
                      || (newcomer && model->classes[i].priority == priority);

        if (i != class_index && before && certainly_ready(model, i)) {
            return true;
        }
    }
    return false;
}

static bool admit(Model *model, uint32_t class_index, uint32_t bytes,
                  bool newcomer)
{
    Limiter *limiter = &model->limiters[class_index];
    ModelClass *class = &model->classes[class_index];

    model->admitted[class_index]++;
    model->admitted_bytes[class_index] += bytes;
    if (class->unmanaged) {
        return true;
    }
    if (!check(class_may_pass(model, class_index))) {
        return false;
    }
    bytes = bytes > class->charge_min ? bytes : class->charge_min;
    exact_charge(&class->peak, bytes);
    return check(may_pass(limiter))
           && check(may_pass(&model->ceiling))
           && check(!newcomer || model->lengths[class_index] == 0)
           && check((newcomer && !is_limited(&model->ceiling))
                    || !inverts(model, class_index, newcomer))
           && check(charge(model, limiter, bytes))
           && check(charge(model, &model->ceiling, bytes));
}

static Item *free_item(Model *model)
{
    uint32_t start = random_below(&model->random, ITEMS);

    for (uint32_t i = 0; i < ITEMS; i++) {
        Item *item = &model->items[(start + i) % ITEMS];

        if (!item->in_use) {
            return item;
        }
    }
    return NULL;
}

static void queue_remove(Model *model, uint32_t class_index, uint32_t position)
{
    Item **queue = model->queues[class_index];
    uint32_t behind = --model->lengths[class_index] - position;

    queue[position]->in_use = false;
    memmove(&queue[position], &queue[position + 1], behind * sizeof(*queue));
}

/* Was there a reason to hold a request of this class? */
static bool may_hold(const Model *model, uint32_t class_index)
{
    uint8_t priority = model->classes[class_index].priority;

    if (model->lengths[class_index] > 0) {
        return true;
    }
    if (model->classes[class_index].unmanaged) {
        return false;
    }
    if (!class_must_pass(model, class_index) || !must_pass(&model->ceiling)) {
        return true;
    }
    for (uint32_t i = 0; i < model->class_count; i++) {
        if (is_limited(&model->ceiling)
            && (model->classes[i].priority <= priority
                || model->classes[i].reserved)
            && possibly_ready(model, i)) {
            return true;
        }
    }
    return false;
}

static bool submit(Model *model)
{
    uint32_t class_index = random_below(&model->random, model->class_count);
    uint32_t bytes = random_below(&model->random, model->size_max) + 1;
    Item *item = free_item(model);

    if (!item) {
        return true;
    }
    if (random_chance(&model->random, 5)) {
        bytes = 0;
    }
    item->node.flow = random_below(&model->random, FLOWS);
    if (sluice_engine_submit(model->engine, class_index, &item->node, bytes,
                             model->now_ns) == SLUICE_PASS) {
        return admit(model, class_index, bytes, true);
    }
    item->in_use = true;
    if (!check(may_hold(model, class_index))
        || !check(item->node.class_index == class_index)) {
        return false;
    }
    model->queues[class_index][model->lengths[class_index]++] = item;
    return true;
}

static uint32_t position_of(const Model *model, uint32_t class_index,
                            const SluiceNode *node)
{
    uint32_t i = 0;

    while (i < model->lengths[class_index]
           && &model->queues[class_index][i]->node != node) {
        i++;
    }
    return i;
}

/* FIFO within a class; in a dynamic one, within a flow. */
static bool may_go_next(const Model *model, uint32_t class_index,
                        uint32_t position)
{
    Item *const *queue = model->queues[class_index];

    for (uint32_t i = 0; i < position; i++) {
        if (!model->classes[class_index].dynamic
            || queue[i]->node.flow == queue[position]->node.flow) {
            return false;
        }
    }
    return true;
}

/* Releases one request if there is one to release; false on a violation. */
static bool release(Model *model, bool *released)
{
    SluiceNode *node = sluice_engine_release(model->engine, model->now_ns);
    uint32_t class_index, bytes, position;

    *released = node != NULL;
    if (!node) {
        for (uint32_t i = 0; i < model->class_count; i++) {
            if (!check(!certainly_ready(model, i)
                       || (!must_pass(&model->ceiling)
                           && !model->classes[i].unmanaged))) {
                return false;
            }
        }
        return true;
    }
    class_index = node->class_index;
    bytes = node->bytes;
    position = position_of(model, class_index, node);
    if (!check(position < model->lengths[class_index])
        || !check(may_go_next(model, class_index, position))) {
        return false;
    }
    /* Its own class may well be ready: that is why it goes on. */
    if (!admit(model, class_index, bytes, false)) {
        return false;
    }
    queue_remove(model, class_index, position);
    return true;
}

static bool release_all(Model *model)
{
    bool released;

    do {
        if (!release(model, &released)) {
            return false;
        }
    } while (released);
    return true;
}

static uint32_t backlog(const Model *model)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < model->class_count; i++) {
        sum += model->lengths[i];
    }
    return sum;
}

/* Goes to the next event, exactly: one before it nothing may come. */
static bool next_event(Model *model, bool *released)
{
    uint64_t event_ns = sluice_engine_next_event_ns(model->engine);

    *released = false;
    if (!check((event_ns == SLUICE_NEVER) == (backlog(model) == 0))) {
        return false;
    }
    if (event_ns > model->now_ns + JUMP_MAX_NS) {
        return true;
    }
    if (event_ns > model->now_ns) {
        if (event_ns > model->now_ns + 1) {
            move_to(model, event_ns - 1);
            if (!check(!sluice_engine_release(model->engine, model->now_ns))) {
                return false;
            }
        }
        move_to(model, event_ns);
    }
    return release(model, released) && check(*released);
}

static bool withdraw(Model *model)
{
    uint32_t class_index = random_below(&model->random, model->class_count);
    uint32_t position;

    if (model->lengths[class_index] == 0) {
        return true;
    }
    position = random_below(&model->random, model->lengths[class_index]);
    sluice_engine_withdraw(model->engine,
                           &model->queues[class_index][position]->node);
    queue_remove(model, class_index, position);
    return true;
}

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

static SluiceClassConfig random_config(Model *model)
{
    Random *random = &model->random;
    SluiceClassConfig config = {
        .limit = random_limit(model),
        .priority = random_below(random, 3) * 4,
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
    }
    config.unmanaged = random_chance(random, 5);
    config.dynamic = random_below(random, SLUICE_DYNAMICS);
    return config;
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
    class->priority = config.priority;
    class->unmanaged = config.unmanaged;
    /* Flows that were told apart stay so while they are held. */
    class->dynamic = config.dynamic
                     || (class->dynamic && model->lengths[class_index] > 0);
    class->reserved = config.reservation_bytes_per_second > 0;
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
 * The true cost of something that went on turns out to be another, perhaps
 * when what was charged for it is no more.
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
    sluice_engine_correct(model->engine, &kept->receipt, bytes, model->now_ns);
    return true;
}

static bool one_step(Model *model)
{
    unsigned dice = random_below(&model->random, 100);
    bool released;

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
        return withdraw(model);
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
    return true;
}

/*
 * With nothing new coming, every held request gets out, one per event, and in
 * no more time than its bytes and operations take at the slowest rate.
 */
static bool drains(Model *model)
{
    uint32_t left = backlog(model);
    bool released = true;

    while (left > 0 && released) {
        if (!next_event(model, &released)) {
            return false;
        }
        left -= released;
    }
    while (left > 0 && sluice_engine_evict(model->engine)) {
        left--;                 /* beyond what the clock can reach */
    }
    return check_equal(left, 0)
           && check(!sluice_engine_evict(model->engine))
           && check_equal(sluice_engine_next_event_ns(model->engine),
                          SLUICE_NEVER);
}

/* With random, changes, all_knobs and spare_classes set; the engine is the
 * caller's to free. */
static bool run_trace(Model *model, unsigned steps)
{
    Random random = model->random;
    bool changes = model->changes, all_knobs = model->all_knobs;
    uint32_t spare_classes = model->spare_classes;

    memset(model, 0, sizeof(*model));
    model->random = random;
    model->changes = changes;
    model->all_knobs = all_knobs;
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
    for (unsigned step = 0; step < steps && !random_is_spent(&model->random); step++) {
        if (!one_step(model) || (step % 64 == 0 && !stats_agree(model))) {
            return false;
        }
    }
    return stats_agree(model) && drains(model);
}

#endif
