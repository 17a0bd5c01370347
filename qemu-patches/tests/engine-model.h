/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine beside a plain model of it: exact buckets (exact-bucket.h, which
 * also derives the tolerance) and an array per class. The model leaves the choice to
 * the engine where rounding could decide; everywhere else the two must
 * agree on every single request. The traces are in engine-trace.h.
 */
#ifndef SLUICE_TESTS_ENGINE_MODEL_H
#define SLUICE_TESTS_ENGINE_MODEL_H

#include <string.h>

#include "sluice/engine.h"
#include "sluice/gate.h"
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
    uint32_t class_index;       /* while the gate counts it */
} Item;

/* A class's window constraint, and how it has fared. */
typedef struct ModelWindow {
    SluiceWindow config;
    uint16_t seen;              /* of the present `of` requests */
    uint16_t missed;
    SluiceWindowStats stats;    /* of the engine, when last looked at */
} ModelWindow;

/* A class as the model knows it. */
typedef struct ModelClass {
    uint8_t priority;
    bool unmanaged;
    bool dynamic;
    bool reserved;              /* may go before better priorities */
    bool windowed;              /* now, or when the held request came */
    uint32_t charge_min;
    uint64_t waiting_since_ns;  /* if it holds requests: without a break */
    ExactBucket peak;
    ModelWindow window;
} ModelClass;

/* Two buckets, and the units passed in the worst window so far (see admit()). */
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
    bool corrected;             /* something cost more than was charged */
    uint32_t class_count;
    uint32_t spare_classes;     /* of the engine, beyond these */
    Limiter ceiling;
    Limiter limiters[CLASSES_MAX];
    ModelClass classes[CLASSES_MAX];
    Item *queues[CLASSES_MAX][ITEMS];
    uint32_t lengths[CLASSES_MAX];
    uint64_t admitted[CLASSES_MAX];
    uint64_t dropped;
    uint64_t admitted_bytes[CLASSES_MAX];
    Kept kept[RECEIPTS];
    bool gated;                 /* there is a gate now and then */
    uint64_t gate_target_ns;    /* 0: not now */
    uint16_t streams;           /* classes beside it, a bit each */
    uint64_t gate_moved_ns;     /* when a request came or went last */
    Item *in_flight[ITEMS];     /* those that the gate counts */
    uint32_t in_flight_count;
    uint64_t in_flight_bytes;
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
 * No window of length t lets more than burst + rate * t + one request through. The
 * worst window that ends now has let through, beyond rate * t, the contents of a bucket
 * that drains at the rate and never below 0. A request needs a token, so it begins at
 * less than the burst (1 ns at the rate, if the burst is shorter) and adds itself.
 * Rounding of tolerance and TAT: 2 ns.
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

/* The gate */

static bool is_behind_gate(const Model *model, uint32_t class_index)
{
    return model->gate_target_ns && !model->classes[class_index].unmanaged
           && !(model->streams & (1u << class_index));
}

static uint64_t window_bytes(const Model *model)
{
    return sluice_engine_gate(model->engine)->window_bytes;
}

/* After six seconds without a request that comes or goes it may not be closed for more than
 * one; before five are over it is. */
static bool gate_closed(const Model *model, uint64_t patience_ns)
{
    return model->in_flight_bytes >= window_bytes(model)
           && model->now_ns - model->gate_moved_ns <= patience_ns;
}

static bool may_be_barred(const Model *model, uint32_t class_index)
{
    return is_behind_gate(model, class_index)
           && gate_closed(model, 7 * (uint64_t)NANO);
}

static bool must_be_barred(const Model *model, uint32_t class_index)
{
    return is_behind_gate(model, class_index)
           && gate_closed(model, 5 * (uint64_t)NANO);
}

/* It has gone to the device, and may be counted by the gate: then its node stays. */
static bool enter_gate(Model *model, Item *item, uint32_t class_index)
{
    if (!check(item->node.gated == is_behind_gate(model, class_index))) {
        return false;
    }
    item->in_use = item->node.gated;
    if (item->node.gated) {
        model->in_flight[model->in_flight_count++] = item;
        model->in_flight_bytes += item->node.bytes;
        model->gate_moved_ns = model->now_ns;
        item->class_index = class_index;
    }
    return true;
}

static bool in_flight_agrees(const Model *model)
{
    const SluiceGate *gate = sluice_engine_gate(model->engine);

    return check_equal(gate->in_flight_bytes, model->in_flight_bytes)
           && check_equal(gate->in_flight_requests, model->in_flight_count)
           && check(!model->in_flight_count || model->gated);
}

/* Any of those in flight is done, or does not go to the device: not at all, or, if it may
 * come back, not now. */
static bool finish_one(Model *model, bool may_come_back)
{
    uint32_t which;
    Item *item;

    if (model->in_flight_count == 0) {
        return true;
    }
    which = random_below(&model->random, model->in_flight_count);
    item = model->in_flight[which];
    model->in_flight[which] = model->in_flight[--model->in_flight_count];
    model->in_flight_bytes -= item->node.bytes;
    model->gate_moved_ns = model->now_ns;
    item->in_use = false;
    if (random_chance(&model->random, 5)) {
        sluice_engine_leave(model->engine, &item->node, model->now_ns);
        if (!check(!item->node.gated) || !in_flight_agrees(model)) {
            return false;
        }
        if (may_come_back && random_chance(&model->random, 50)) {
            sluice_engine_enter(model->engine, item->class_index, &item->node,
                                item->node.bytes, model->now_ns);
            return enter_gate(model, item, item->class_index)
                   && in_flight_agrees(model);
        }
    } else {
        sluice_engine_complete(model->engine, &item->node,
                               random_magnitude(&model->random, 30),
                               model->now_ns);
    }
    return check(!item->node.gated) && in_flight_agrees(model);
}

/* A class that waits for nothing but the ceiling, for certain. */
static bool certainly_ready(const Model *model, uint32_t class_index)
{
    return model->lengths[class_index] > 0
           && !may_be_barred(model, class_index)
           && class_must_pass(model, class_index);
}

static bool possibly_ready(const Model *model, uint32_t class_index)
{
    return model->lengths[class_index] > 0
           && !must_be_barred(model, class_index)
           && class_may_pass(model, class_index);
}

/* Would `class_index` going on now invert a priority? */
static bool inverts(const Model *model, uint32_t class_index, bool newcomer)
{
    uint8_t priority = model->classes[class_index].priority;

    if (model->classes[class_index].reserved) {
        return false;           /* see test-reservations.c */
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

/*
 * Windows. The counting is of fixed groups of `of` requests, each of which is
 * in time, missed as allowed, or late though the group has no miss left.
 */

static bool window_counts(ModelWindow *window, bool missed)
{
    window->missed += missed;
    if (!check(window->missed <= window->config.may_miss)) {
        return false;
    }
    if (++window->seen >= window->config.of) {
        window->seen = window->missed = 0;
    }
    return true;
}

/*
 * The requests that the engine has counted as late since it was last asked, of one class.
 * A turn is due no earlier than the class began to wait, so nothing is late
 * before it has waited for more than a period.
 */
static bool window_judged(Model *model, uint32_t class_index, bool *missed)
{
    ModelClass *class = &model->classes[class_index];
    ModelWindow *window = &class->window;
    SluiceWindowStats stats = sluice_engine_window_stats(model->engine,
                                                         class_index);
    uint64_t late = stats.late_requests - window->stats.late_requests;
    uint64_t violations = stats.violations - window->stats.violations;

    window->stats = stats;
    *missed = late > 0;
    if (late + violations == 0) {
        return true;
    }
    return check_equal(late + violations, 1)
           && check(window->config.period_ns > 0 && !class->unmanaged)
           && check(model->now_ns - class->waiting_since_ns
                    > window->config.period_ns)
           && check(late || window->missed == window->config.may_miss)
           && window_counts(window, late > 0);
}

/* A request goes on, by submission or release; `late` is the engine's word. */
static bool window_serves(Model *model, uint32_t class_index, SluiceLate late)
{
    ModelClass *class = &model->classes[class_index];

    if (late != SLUICE_IN_TIME) {
        return check(class->windowed);
    }
    return class->unmanaged || class->window.config.period_ns == 0
           || window_counts(&class->window, false);
}

/* A late request may be dropped if its class says so and has a miss left; it
 * takes its turn as if it went on, but is charged to nothing. */
static bool may_drop(const Model *model, uint32_t class_index, bool missed)
{
    const ModelClass *class = &model->classes[class_index];

    return check(class->window.config.may_drop) && check(missed)
           && check(class_may_pass(model, class_index))
           && check(may_pass(&model->ceiling));
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
           && check(!must_be_barred(model, class_index))
           && check(may_pass(&model->ceiling))
           && check(!newcomer || model->lengths[class_index] == 0)
           && check((newcomer && !is_limited(&model->ceiling)
                     && !is_behind_gate(model, class_index))
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
    if (!class_must_pass(model, class_index) || !must_pass(&model->ceiling)
        || may_be_barred(model, class_index)) {
        return true;
    }
    for (uint32_t i = 0; i < model->class_count; i++) {
        if ((is_limited(&model->ceiling) || is_behind_gate(model, class_index))
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
    if (model->lengths[class_index] == 0) {
        exact_forget_idleness(&model->limiters[class_index].bytes,
                              SLUICE_LEAKY_IDLE_MAX_NS);
        exact_forget_idleness(&model->limiters[class_index].operations,
                              SLUICE_LEAKY_IDLE_MAX_NS);
        exact_forget_idleness(&model->classes[class_index].peak,
                              SLUICE_LEAKY_IDLE_MAX_NS);
    }
    item->node.flow = random_below(&model->random, FLOWS);
    if (sluice_engine_submit(model->engine, class_index, &item->node, bytes,
                             model->now_ns) == SLUICE_PASS) {
        return admit(model, class_index, bytes, true)
               && window_serves(model, class_index, SLUICE_IN_TIME)
               && enter_gate(model, item, class_index);
    }
    item->in_use = true;
    if (!check(may_hold(model, class_index))
        || !check(item->node.class_index == class_index)) {
        return false;
    }
    if (model->lengths[class_index] == 0) {
        model->classes[class_index].waiting_since_ns = model->now_ns;
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

/* Nothing was released: no class was ready, as far as rounding can tell. */
static bool nobody_is_ready(const Model *model)
{
    for (uint32_t i = 0; i < model->class_count; i++) {
        if (!check(!certainly_ready(model, i)
                   || (!must_pass(&model->ceiling)
                       && !model->classes[i].unmanaged))) {
            return false;
        }
    }
    return true;
}

/* The engine gave this request back: was it the one to go? */
static bool released_rightly(Model *model, const SluiceNode *node, bool missed)
{
    uint32_t class_index = node->class_index;
    uint32_t position = position_of(model, class_index, node);
    Item *item;

    if (!check(position < model->lengths[class_index])
        || !check(may_go_next(model, class_index, position))) {
        return false;
    }
    if (node->late == SLUICE_LATE_DROP) {
        if (!may_drop(model, class_index, missed)) {
            return false;
        }
        model->dropped++;
        queue_remove(model, class_index, position);
        return check(!node->gated);
    }
    if (!admit(model, class_index, node->bytes, false)
               || !window_serves(model, class_index, node->late)) {
        return false;           /* its own class may well be ready */
    }
    item = model->queues[class_index][position];
    queue_remove(model, class_index, position);
    return enter_gate(model, item, class_index);
}

/* Releases one request if there is one to release; false on a violation. */
static bool release(Model *model, bool *released)
{
    SluiceNode *node = sluice_engine_release(model->engine, model->now_ns);
    bool missed[CLASSES_MAX] = { false };

    *released = node != NULL;
    for (uint32_t i = 0; i < model->class_count; i++) {
        if (!window_judged(model, i, &missed[i])) {
            return false;
        }
    }
    return node ? released_rightly(model, node, missed[node->class_index])
                : nobody_is_ready(model);
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

/* Goes to the next event, exactly: a nanosecond before it nothing comes, and
 * nothing should have. */
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
        move_to(model, event_ns - 1);
        if (!release(model, released) || !check(!*released)) {
            return false;
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
                           &model->queues[class_index][position]->node,
                           model->now_ns);
    queue_remove(model, class_index, position);
    return true;
}

/* As when a queue of a device goes: here requests of an even size. */
static bool is_even(const SluiceNode *node, const void *what)
{
    (void)what;
    return node->bytes % 2 == 0;
}

static bool withdraw_some(Model *model)
{
    for (uint32_t i = 0; i < model->class_count; i++) {
        for (uint32_t position = model->lengths[i]; position-- > 0; ) {
            if (is_even(&model->queues[i][position]->node, NULL)) {
                queue_remove(model, i, position);
            }
        }
    }
    sluice_engine_withdraw_if(model->engine, is_even, NULL, model->now_ns);
    return true;
}

#endif
