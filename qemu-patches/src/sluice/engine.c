/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice engine: classes, priorities and a ceiling for one resource of a VM.
 *
 * Model. Every request belongs to a class. It goes on when no earlier request
 * of its class is held, a token is left in both buckets of the class (bytes
 * and operations) and a token is left in both buckets of the VM's ceiling;
 * then it is charged to all four. Else it is held, first in first out within
 * its class. Which of several held requests goes first when the ceiling lets
 * one pass is decided by strict priority, 0 first, in constant time (TAP
 * section 5.1); between equal priorities the classes take turns in the order
 * in which they became eligible. The bucket is described in bucket.c.
 *
 * Eligibility of a class does not depend on the size of its next request
 * (debt pays for what is too large), and once eligible a class stays so until
 * it is charged or configured anew. So a class with held requests is in one of two places:
 *
 *   DUE    its own buckets are empty: in a heap, by the time they no longer are
 *   READY  its own buckets would let it go; it waits for the ceiling, or for
 *          the caller's next _release(): in the FIFO of its priority
 *
 * and a bit per priority says which FIFO is not empty. Time moves classes from
 * DUE to READY, lazily, at the start of a call.
 *
 * Priority against newcomers. While the ceiling is limited, a request is held
 * if a class of better or equal priority is READY, even if the ceiling would
 * let it pass: else a newcomer would take the tokens that the better one waits
 * for. Without a ceiling classes do not compete, and nobody is held for them.
 *
 * Invariants.
 * - The heap and the FIFOs hold exactly the classes with held requests, each
 *   once. _next_event_ns() is SLUICE_NEVER exactly when nothing is held.
 * - A _release() at _next_event_ns() succeeds; one before it returns NULL.
 * - Every request is charged once, when it goes on, and never when withdrawn.
 * - After _new() nothing allocates; guests cannot make the engine grow.
 *
 * Group. Above the ceiling there may be a group, shared with other engines
 * (group.c). It is asked last, and charged by the same question. Under a group
 * classes compete as under a ceiling. Others may take its tokens at any time: a
 * _release() at _next_event_ns() may then return NULL, and one asks again.
 *
 * Limits. Priorities are strict: a class of worse priority can starve under a
 * ceiling, by design. Turns between equal priorities count requests, not
 * bytes. Cost: _submit() is constant when it passes; holding and releasing a
 * request costs one step of a four-way heap, log4 of the waiting classes.
 */
#include <assert.h>
#include <stdlib.h>

#include "sluice/engine.h"
#include "bucket-inline.h"
#include "due-heap.h"
#include "engine-group.h"

#define CACHE_LINE_BYTES    64
#define NO_CLASS            UINT32_MAX
#define DEFAULT_PRIORITY    5

typedef enum ClassPlace {
    PLACE_IDLE,                 /* holds nothing */
    PLACE_DUE,                  /* in the heap */
    PLACE_READY,                /* in the FIFO of its priority */
} ClassPlace;

typedef struct SluiceClass {
    SluiceBucket bytes;
    SluiceBucket operations;
    SluiceNode *oldest;
    SluiceNode *newest;
    uint32_t next_ready;
    uint32_t prev_ready;
    uint8_t place;
    uint8_t priority;
    SluiceClassStats stats;
} __attribute__((aligned(CACHE_LINE_BYTES))) SluiceClass;

typedef struct ReadyList {
    uint32_t first;
    uint32_t last;
} ReadyList;

struct SluiceEngine {
    SluiceClass *classes;
    uint64_t now_ns;            /* newest time seen */
    DueHeap due;
    uint32_t ready_priorities;  /* bit p: ready[p] is not empty */
    uint32_t class_count;
    bool ceiling_limited;
    SluiceGroupMember *group;   /* NULL: none above the ceiling */
    SluiceBucket ceiling_bytes;
    SluiceBucket ceiling_operations;
    ReadyList ready[SLUICE_PRIORITIES];
};

static uint64_t later_ns(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static uint64_t advance_clock(SluiceEngine *engine, uint64_t now_ns)
{
    engine->now_ns = later_ns(engine->now_ns, now_ns);
    return engine->now_ns;
}

static SluiceClass *class_at(const SluiceEngine *engine, uint32_t class_index)
{
    assert(class_index < engine->class_count);
    return &engine->classes[class_index];
}

/* Eligibility and charge */

static bool class_conforms(const SluiceClass *class, uint64_t now_ns)
{
    return bucket_conforms(&class->bytes, now_ns)
           && bucket_conforms(&class->operations, now_ns);
}

static uint64_t class_eligible_ns(const SluiceClass *class)
{
    return later_ns(bucket_eligible_ns(&class->bytes),
                    bucket_eligible_ns(&class->operations));
}

static bool ceiling_conforms(const SluiceEngine *engine, uint64_t now_ns)
{
    return !engine->ceiling_limited
           || (bucket_conforms(&engine->ceiling_bytes, now_ns)
               && bucket_conforms(&engine->ceiling_operations, now_ns));
}

static uint64_t ceiling_eligible_ns(const SluiceEngine *engine)
{
    if (!engine->ceiling_limited) {
        return 0;
    }
    return later_ns(bucket_eligible_ns(&engine->ceiling_bytes),
                    bucket_eligible_ns(&engine->ceiling_operations));
}

static void charge(SluiceEngine *engine, SluiceClass *class, uint32_t bytes,
                   uint64_t now_ns)
{
    bucket_charge(&class->bytes, bytes, now_ns);
    bucket_charge(&class->operations, 1, now_ns);
    if (engine->ceiling_limited) {
        bucket_charge(&engine->ceiling_bytes, bytes, now_ns);
        bucket_charge(&engine->ceiling_operations, 1, now_ns);
    }
    class->stats.requests++;
    class->stats.bytes += bytes;
}

/* The two places of a class with held requests */

static void ready_append(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    ReadyList *list = &engine->ready[class->priority];

    class->place = PLACE_READY;
    class->next_ready = NO_CLASS;
    class->prev_ready = list->last;
    if (list->last == NO_CLASS) {
        list->first = class_index;
        engine->ready_priorities |= 1u << class->priority;
    } else {
        engine->classes[list->last].next_ready = class_index;
    }
    list->last = class_index;
}

static void ready_remove(SluiceEngine *engine, SluiceClass *class)
{
    ReadyList *list = &engine->ready[class->priority];

    if (class->prev_ready == NO_CLASS) {
        list->first = class->next_ready;
    } else {
        engine->classes[class->prev_ready].next_ready = class->next_ready;
    }
    if (class->next_ready == NO_CLASS) {
        list->last = class->prev_ready;
    } else {
        engine->classes[class->next_ready].prev_ready = class->prev_ready;
    }
    if (list->first == NO_CLASS) {
        engine->ready_priorities &= ~(1u << class->priority);
    }
    class->place = PLACE_IDLE;
}

/* Puts an idle class that holds requests where it belongs now. */
static void place_class(SluiceEngine *engine, uint32_t class_index,
                        uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class_conforms(class, now_ns)) {
        ready_append(engine, class_index);
    } else {
        class->place = PLACE_DUE;
        due_heap_insert(&engine->due, class_index, class_eligible_ns(class));
    }
}

static void unplace_class(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_READY) {
        ready_remove(engine, class);
    } else if (class->place == PLACE_DUE) {
        due_heap_remove(&engine->due, class_index);
        class->place = PLACE_IDLE;
    }
}

/* Moves all classes that have become eligible, in that order. */
static void promote_due(SluiceEngine *engine, uint64_t now_ns)
{
    while (due_heap_first_ns(&engine->due) <= now_ns) {
        uint32_t class_index = due_heap_first_class(&engine->due);

        due_heap_remove(&engine->due, class_index);
        ready_append(engine, class_index);
    }
}

/* The FIFO of a class */

static void queue_append(SluiceClass *class, SluiceNode *node)
{
    node->next = NULL;
    node->prev = class->newest;
    if (class->newest) {
        class->newest->next = node;
    } else {
        class->oldest = node;
    }
    class->newest = node;
    class->stats.backlog_requests++;
    class->stats.backlog_bytes += node->bytes;
}

static void queue_remove(SluiceClass *class, SluiceNode *node)
{
    if (node->prev) {
        node->prev->next = node->next;
    } else {
        class->oldest = node->next;
    }
    if (node->next) {
        node->next->prev = node->prev;
    } else {
        class->newest = node->prev;
    }
    node->next = NULL;
    node->prev = NULL;
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
}

/* Lifecycle */

SluiceEngine *sluice_engine_new(uint32_t classes)
{
    SluiceEngine *engine = calloc(1, sizeof(*engine));

    assert(classes > 0 && classes < NO_CLASS);
    if (!engine) {
        return NULL;
    }
    engine->class_count = classes;
    engine->classes = aligned_alloc(CACHE_LINE_BYTES,
                                    classes * sizeof(*engine->classes));
    if (!engine->classes || !due_heap_init(&engine->due, classes)) {
        free(engine->classes);
        free(engine);
        return NULL;
    }
    for (uint32_t i = 0; i < classes; i++) {
        engine->classes[i] = (SluiceClass){ .priority = DEFAULT_PRIORITY };
        sluice_bucket_configure(&engine->classes[i].bytes, 0, 0, 0);
        sluice_bucket_configure(&engine->classes[i].operations, 0, 0, 0);
    }
    for (unsigned p = 0; p < SLUICE_PRIORITIES; p++) {
        engine->ready[p] = (ReadyList){ .first = NO_CLASS, .last = NO_CLASS };
    }
    sluice_bucket_configure(&engine->ceiling_bytes, 0, 0, 0);
    sluice_bucket_configure(&engine->ceiling_operations, 0, 0, 0);
    return engine;
}

void sluice_engine_free(SluiceEngine *engine)
{
    if (!engine) {
        return;
    }
    assert(engine->due.count == 0 && engine->ready_priorities == 0);
    due_heap_destroy(&engine->due);
    free(engine->classes);
    free(engine);
}

/* Configuration */

static bool limit_is_valid(const SluiceLimit *limit)
{
    return limit->bytes_per_second <= SLUICE_RATE_MAX
           && limit->operations_per_second <= SLUICE_RATE_MAX
           && limit->burst_bytes <= SLUICE_BURST_MAX
           && limit->burst_operations <= SLUICE_BURST_MAX;
}

bool sluice_engine_set_class(SluiceEngine *engine, uint32_t class_index,
                             const SluiceClassConfig *config, uint64_t now_ns)
{
    const SluiceLimit *limit = &config->limit;
    SluiceClass *class;

    if (class_index >= engine->class_count || !limit_is_valid(limit)
        || config->priority > SLUICE_PRIORITY_MAX) {
        return false;
    }
    now_ns = advance_clock(engine, now_ns);
    promote_due(engine, now_ns);
    class = &engine->classes[class_index];
    sluice_bucket_configure(&class->bytes, limit->bytes_per_second,
                            limit->burst_bytes, now_ns);
    sluice_bucket_configure(&class->operations, limit->operations_per_second,
                            limit->burst_operations, now_ns);
    /* A class that keeps its priority and stays eligible keeps its turn. */
    if (class->place == PLACE_READY && class->priority == config->priority
        && class_conforms(class, now_ns)) {
        return true;
    }
    unplace_class(engine, class_index);
    class->priority = config->priority;
    if (class->oldest) {
        place_class(engine, class_index, now_ns);
    }
    return true;
}

bool sluice_engine_set_ceiling(SluiceEngine *engine, const SluiceLimit *limit,
                               uint64_t now_ns)
{
    if (!limit_is_valid(limit)) {
        return false;
    }
    now_ns = advance_clock(engine, now_ns);
    sluice_bucket_configure(&engine->ceiling_bytes, limit->bytes_per_second,
                            limit->burst_bytes, now_ns);
    sluice_bucket_configure(&engine->ceiling_operations,
                            limit->operations_per_second,
                            limit->burst_operations, now_ns);
    engine->ceiling_limited = limit->bytes_per_second > 0
                              || limit->operations_per_second > 0;
    return true;
}

void sluice_engine_set_group(SluiceEngine *engine, SluiceGroupMember *group)
{
    engine->group = group;
}

/* Data path */

static bool may_pass(SluiceEngine *engine, const SluiceClass *class,
                     uint32_t bytes, uint64_t now_ns)
{
    uint32_t first_served = (2u << class->priority) - 1;

    if (class->oldest || !class_conforms(class, now_ns)) {
        return false;
    }
    if (!engine->ceiling_limited && !engine->group) {
        return true;
    }
    promote_due(engine, now_ns);
    return !(engine->ready_priorities & first_served)
           && ceiling_conforms(engine, now_ns)
           && engine_group_admits(engine->group, bytes, now_ns);
}

SluiceVerdict sluice_engine_submit(SluiceEngine *engine, uint32_t class_index,
                                   SluiceNode *node, uint32_t bytes,
                                   uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, class_index);

    now_ns = advance_clock(engine, now_ns);
    if (may_pass(engine, class, bytes, now_ns)) {
        charge(engine, class, bytes, now_ns);
        return SLUICE_PASS;
    }
    node->bytes = bytes;
    node->class_index = class_index;
    node->held_since_ns = now_ns;
    queue_append(class, node);
    if (class->place == PLACE_IDLE) {
        place_class(engine, class_index, now_ns);
    }
    return SLUICE_HOLD;
}

/*
 * The class to serve next, or NO_CLASS. When just one class is due and none is
 * READY there is nothing to choose, and it stays in the heap: cheaper than to
 * leave it and come back.
 */
static uint32_t choose_class(SluiceEngine *engine, uint64_t now_ns)
{
    if (engine->ready_priorities || !due_heap_only_first(&engine->due, now_ns)) {
        promote_due(engine, now_ns);
        if (!engine->ready_priorities) {
            return NO_CLASS;
        }
        return engine->ready[__builtin_ctz(engine->ready_priorities)].first;
    }
    return due_heap_first_class(&engine->due);
}

/* Puts a class that has just been served where it belongs now. */
static void replace_class(SluiceEngine *engine, uint32_t class_index,
                          uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_DUE && class->oldest
        && !class_conforms(class, now_ns)) {
        due_heap_postpone_first(&engine->due, class_eligible_ns(class));
        return;
    }
    unplace_class(engine, class_index);
    if (class->oldest) {
        place_class(engine, class_index, now_ns);
    }
}

SluiceNode *sluice_engine_release(SluiceEngine *engine, uint64_t now_ns)
{
    uint32_t class_index;
    SluiceClass *class;
    SluiceNode *node;

    now_ns = advance_clock(engine, now_ns);
    class_index = choose_class(engine, now_ns);
    if (class_index == NO_CLASS || !ceiling_conforms(engine, now_ns)) {
        return NULL;
    }
    class = &engine->classes[class_index];
    node = class->oldest;
    if (!engine_group_admits(engine->group, node->bytes, now_ns)) {
        return NULL;
    }
    queue_remove(class, node);
    charge(engine, class, node->bytes, now_ns);
    class->stats.held_requests++;
    class->stats.held_ns += now_ns - node->held_since_ns;
    replace_class(engine, class_index, now_ns);
    return node;
}

uint64_t sluice_engine_next_event_ns(SluiceEngine *engine)
{
    uint64_t class_ns = engine->now_ns;

    if (!engine->ready_priorities) {
        class_ns = later_ns(class_ns, due_heap_first_ns(&engine->due));
    }
    return engine_group_event_ns(engine->group,
                                 later_ns(class_ns,
                                          ceiling_eligible_ns(engine)),
                                 engine->now_ns);
}

SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index)
{
    return class_at(engine, class_index)->oldest;
}

void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node)
{
    SluiceClass *class = class_at(engine, node->class_index);

    queue_remove(class, node);
    if (!class->oldest) {
        unplace_class(engine, node->class_index);
    }
}

SluiceNode *sluice_engine_evict(SluiceEngine *engine)
{
    SluiceNode *oldest = NULL;

    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceNode *node = engine->classes[i].oldest;

        if (node && (!oldest || node->held_since_ns < oldest->held_since_ns)) {
            oldest = node;
        }
    }
    if (oldest) {
        sluice_engine_withdraw(engine, oldest);
    }
    return oldest;
}

const SluiceClassStats *sluice_engine_stats(const SluiceEngine *engine,
                                            uint32_t class_index)
{
    return &class_at(engine, class_index)->stats;
}
