/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proportional shares: whose turn is it among classes of one priority?
 *
 * Model. Classes that compete for the ceiling have weights. In the ideal,
 * fluid system each of them would at any time be served in proportion to its
 * weight. The lag of a class is what it would have had there less what it has
 * had. A class is eligible if its lag is not negative; of the eligible ones
 * the earliest virtual deadline goes first (PS section 3.1; Stoica and others,
 * "A proportional share resource allocation algorithm", RTSS 1996). With this
 * rule no lag exceeds one maximum request, in either direction: the least
 * bound that is possible.
 *
 * Units. The virtual time of a class is what it has had, in bytes per weight,
 * with 20 binary places. Serving L bytes moves it by L / weight; the deadline
 * of a request is the virtual time at which it would be finished. The virtual
 * time of the system is the average over the classes that compete, weighted:
 *
 *     V = sum(weight * virtual time) / sum(weight)
 *
 * so lags always sum to zero, also when a class comes or goes. It is kept as
 * the two sums and never divided for a decision: a class is eligible if
 * virtual time * sum(weight) <= sum(weight * virtual time). All of this is
 * exact but for the virtual time of one request, which is rounded to the
 * nearest 2^-20 byte per weight.
 *
 * Coming and going. A class that comes starts at V, or later if it had more
 * than its share when it left: idleness earns nothing, leaving forgives
 * nothing. Where nobody competes nobody is charged.
 *
 * Structure. Two heaps for all priorities together: eligible classes by
 * deadline, the others ("early") by virtual time, the priority in front of
 * either key. Equal deadlines go in the order of arrival: the lowest ten
 * binary places of a deadline, less than a thousandth of a byte per weight,
 * are a running number. A class stays in the heaps while it is served; then its
 * keys change, and it moves on from where it is.
 *
 * Limits. A virtual time has 60 bits: 2^40 bytes at weight 1. Before they are
 * used up, the times of a priority are set back together.
 */
#include "engine-internal.h"

#define VIRTUAL_BITS        60          /* below the priority, in a key */
#define VIRTUAL_PLACES      20
#define VIRTUAL_RENEW       (1ULL << 59)
#define SEQUENCE_BITS       10
#define SEQUENCE_MASK       ((1ULL << SEQUENCE_BITS) - 1)

bool share_init(Share *share, uint32_t classes)
{
    share->sequence = 0;
    for (unsigned p = 0; p < SLUICE_PRIORITIES; p++) {
        share->levels[p] = (ShareLevel){ 0 };
    }
    if (!key_heap_init(&share->eligible, classes)) {
        return false;
    }
    if (!key_heap_init(&share->early, classes)) {
        key_heap_destroy(&share->eligible);
        return false;
    }
    return true;
}

void share_destroy(Share *share)
{
    key_heap_destroy(&share->eligible);
    key_heap_destroy(&share->early);
}

void share_set_weight(SluiceClass *class, uint32_t weight)
{
    class->weight = weight;
    class->virtual_unit = (1ULL << (VIRTUAL_PLACES + 32)) / weight;
}

static uint64_t key_of(unsigned priority, uint64_t virtual_time)
{
    return (uint64_t)priority << VIRTUAL_BITS | virtual_time;
}

/* The virtual time that a request takes; a request without bytes takes one. */
static uint64_t virtual_cost(const SluiceClass *class, uint32_t bytes)
{
    uint64_t units = bytes ? bytes : 1;

    return (uint64_t)(((SluiceU128)units * class->virtual_unit
                       + (1ULL << 31)) >> 32);
}

static bool is_eligible(const ShareLevel *level, uint64_t virtual_time)
{
    return (SluiceU128)virtual_time * level->weight <= level->sum;
}

static uint64_t early_key(const SluiceClass *class)
{
    return key_of(class->priority, class->virtual_time);
}

static uint64_t deadline_key(Share *share, const SluiceClass *class)
{
    uint32_t charged = charged_bytes(class, class->oldest->bytes);
    uint64_t deadline = class->virtual_time + virtual_cost(class, charged);

    deadline = (deadline & ~SEQUENCE_MASK)
               | (share->sequence++ & SEQUENCE_MASK);
    return key_of(class->priority, deadline);
}

static bool contains(const KeyHeap *heap, uint32_t class_index)
{
    return heap->positions[class_index] != KEY_HEAP_ABSENT;
}

static bool class_is_eligible(const SluiceEngine *engine, uint32_t class_index)
{
    const SluiceClass *class = &engine->classes[class_index];

    return is_eligible(&engine->share.levels[class->priority],
                       class->virtual_time);
}

SLUICE_HOT static void place_eligible(SluiceEngine *engine, uint32_t class_index)
{
    Share *share = &engine->share;
    uint64_t key = deadline_key(share, &engine->classes[class_index]);

    if (contains(&share->eligible, class_index)) {
        key_heap_update(&share->eligible, class_index, key);
        return;
    }
    if (contains(&share->early, class_index)) {
        key_heap_remove(&share->early, class_index);
    }
    key_heap_insert(&share->eligible, class_index, key);
}

/* Commonly one has had enough by being served, and another has become eligible
 * by that: they change places. */
SLUICE_HOT static void place_early(SluiceEngine *engine, uint32_t class_index)
{
    Share *share = &engine->share;
    uint64_t key = early_key(&engine->classes[class_index]);
    uint32_t first = key_heap_first_class(&share->early);

    if (contains(&share->early, class_index)) {
        key_heap_update(&share->early, class_index, key);
    } else if (!contains(&share->eligible, class_index)) {
        key_heap_insert(&share->early, class_index, key);
    } else if (share->early.count > 0 && class_is_eligible(engine, first)) {
        key_heap_replace(&share->early, first, class_index, key);
        key_heap_replace(&share->eligible, class_index, first,
                         deadline_key(share, &engine->classes[first]));
    } else {
        key_heap_remove(&share->eligible, class_index);
        key_heap_insert(&share->early, class_index, key);
    }
}

/* Puts a competing class into the heap, and to the place, where it belongs. */
SLUICE_HOT static void place(SluiceEngine *engine, uint32_t class_index)
{
    if (class_is_eligible(engine, class_index)) {
        place_eligible(engine, class_index);
    } else {
        place_early(engine, class_index);
    }
}

/* Takes a class out of the heaps, if it is in one. */
SLUICE_HOT static void unplace(SluiceEngine *engine, uint32_t class_index)
{
    Share *share = &engine->share;

    if (contains(&share->eligible, class_index)) {
        key_heap_remove(&share->eligible, class_index);
    } else if (contains(&share->early, class_index)) {
        key_heap_remove(&share->early, class_index);
    }
}

/* Sets the virtual times of a priority back; their differences stay. */
static void renew(SluiceEngine *engine, unsigned priority)
{
    Share *share = &engine->share;
    ShareLevel *level = &share->levels[priority];
    uint64_t back = UINT64_MAX;

    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (class->place == PLACE_READY && class->priority == priority) {
            unplace(engine, i);
            back = class->virtual_time < back ? class->virtual_time : back;
        }
    }
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (class->priority != priority) {
            continue;
        }
        class->virtual_time = class->virtual_time > back
                              ? class->virtual_time - back : 0;
    }
    level->sum -= (SluiceU128)back * level->weight;
    level->virtual_time = 0;
    for (uint32_t i = 0; i < engine->class_count; i++) {
        if (engine->classes[i].place == PLACE_READY
            && engine->classes[i].priority == priority) {
            place(engine, i);
        }
    }
}

/* A class that competes waits for its turn again. */
SLUICE_HOT void share_return(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    place(engine, class_index);
    if (has_reservation(class)) {
        int64_t due_ns = class->reservation.due_ns;
        uint64_t key = due_ns > 0 ? due_ns : 0;

        if (contains(&engine->reserved, class_index)) {
            key_heap_update(&engine->reserved, class_index, key);
        } else {
            key_heap_insert(&engine->reserved, class_index, key);
        }
    }
    if (class->virtual_time >= VIRTUAL_RENEW) {
        renew(engine, class->priority);
    }
}

SLUICE_HOT void share_join(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    ShareLevel *level = &engine->share.levels[class->priority];
    uint64_t virtual_time = level->virtual_time;

    if (level->weight > 0) {
        virtual_time = (uint64_t)(level->sum / level->weight);
    }
    if (class->virtual_time < virtual_time) {
        class->virtual_time = virtual_time;
    }
    level->weight += class->weight;
    level->sum += (SluiceU128)class->weight * class->virtual_time;
    class->place = PLACE_READY;
    engine->ready_priorities |= 1u << class->priority;
    share_return(engine, class_index);
}

SLUICE_HOT void share_account(SluiceEngine *engine, uint32_t class_index, uint32_t bytes)
{
    SluiceClass *class = &engine->classes[class_index];
    uint64_t cost = virtual_cost(class, bytes);

    class->virtual_time += cost;
    engine->share.levels[class->priority].sum +=
        (SluiceU128)class->weight * cost;
}

SLUICE_HOT void share_leave(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    ShareLevel *level = &engine->share.levels[class->priority];

    unplace(engine, class_index);
    if (contains(&engine->reserved, class_index)) {
        key_heap_remove(&engine->reserved, class_index);
    }
    level->sum -= (SluiceU128)class->weight * class->virtual_time;
    level->weight -= class->weight;
    if (level->weight == 0) {
        level->virtual_time = class->virtual_time;
        engine->ready_priorities &= ~(1u << class->priority);
    }
    class->place = PLACE_IDLE;
}

SLUICE_HOT uint32_t share_choose(SluiceEngine *engine, unsigned priority)
{
    Share *share = &engine->share;
    const ShareLevel *level = &share->levels[priority];
    uint64_t next_key = key_of(priority + 1, 0);

    /* Who has become eligible since: the average has moved on. */
    while (key_heap_first_key(&share->early) < next_key) {
        uint32_t first = key_heap_first_class(&share->early);

        if (!is_eligible(level, engine->classes[first].virtual_time)) {
            break;
        }
        place_eligible(engine, first);
    }
    /* And who no longer is: it moves back when somebody leaves. */
    for (;;) {
        uint32_t first = key_heap_first_class(&share->eligible);

        assert(key_heap_first_key(&share->eligible) < next_key);
        if (is_eligible(level, engine->classes[first].virtual_time)) {
            return first;
        }
        place_early(engine, first);
    }
}

uint32_t share_any(const SluiceEngine *engine)
{
    const Share *share = &engine->share;

    if (share->eligible.count > 0) {
        return key_heap_first_class(&share->eligible);
    }
    return share->early.count > 0 ? key_heap_first_class(&share->early)
                                  : NO_CLASS;
}
