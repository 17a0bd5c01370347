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
 * Structure. Two heaps for each priority: eligible classes by deadline, the
 * others ("early") by virtual time. Equal deadlines go in the order of arrival:
 * the lowest ten binary places of a deadline, less than a thousandth of a byte
 * per weight, are a running number. A class stays in its heap while it is
 * served; then its key changes, and it moves on from where it is.
 *
 * Limits. A virtual time has 60 bits: 2^40 bytes at weight 1. Before they are
 * used up, the times of a priority are set back together.
 */
#include <stdlib.h>

#include "engine-internal.h"

#define VIRTUAL_PLACES      20
#define VIRTUAL_RENEW       (1ULL << 59)
#define SEQUENCE_BITS       10
#define SEQUENCE_MASK       ((1ULL << SEQUENCE_BITS) - 1)

bool share_init(Share *share, uint32_t classes)
{
    bool complete;

    *share = (Share){ .positions = key_heap_positions_new(classes) };
    complete = share->positions;
    for (unsigned p = 0; complete && p < SLUICE_PRIORITIES; p++) {
        ShareLevel *level = &share->levels[p];

        complete = key_heap_init(&level->eligible, classes, share->positions)
                   && key_heap_init(&level->early, classes, share->positions);
    }
    if (!complete) {
        share_destroy(share);
    }
    return complete;
}

void share_destroy(Share *share)
{
    for (unsigned p = 0; p < SLUICE_PRIORITIES; p++) {
        key_heap_destroy(&share->levels[p].eligible);
        key_heap_destroy(&share->levels[p].early);
    }
    free(share->positions);
    share->positions = NULL;
}

void share_set_weight(SluiceClass *class, uint32_t weight)
{
    class->weight = weight;
    class->virtual_unit = (1ULL << (VIRTUAL_PLACES + 32)) / weight;
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

/* When the first request of a class would be finished. */
static uint64_t deadline_key(Share *share, const SluiceClass *class)
{
    uint32_t charged = charged_bytes(class, class->oldest->bytes);
    uint64_t deadline = class->virtual_time + virtual_cost(class, charged);

    return (deadline & ~SEQUENCE_MASK) | (share->sequence++ & SEQUENCE_MASK);
}

/* An early class has become eligible. */
SLUICE_HOT static void move_to_eligible(SluiceEngine *engine, ShareLevel *level,
                                        uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    key_heap_remove(&level->early, class_index);
    key_heap_insert(&level->eligible, class_index,
                    deadline_key(&engine->share, class));
    class->is_early = false;
}

/* An eligible class has had enough. Commonly another becomes eligible by that:
 * they change places. */
SLUICE_HOT static void move_to_early(SluiceEngine *engine, ShareLevel *level,
                                     uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    uint64_t key = class->virtual_time;

    class->is_early = true;
    if (is_eligible(level, key_heap_first_key(&level->early))) {
        uint32_t first = key_heap_first_class(&level->early);
        SluiceClass *other = &engine->classes[first];

        other->is_early = false;
        key_heap_exchange(&level->eligible, class_index,
                          deadline_key(&engine->share, other),
                          &level->early, key);
    } else {
        key_heap_remove(&level->eligible, class_index);
        key_heap_insert(&level->early, class_index, key);
    }
}

/* Puts a class that has begun to compete into the heap where it belongs. */
static void place_new(SluiceEngine *engine, ShareLevel *level,
                      uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    class->is_early = !is_eligible(level, class->virtual_time);
    if (class->is_early) {
        key_heap_insert(&level->early, class_index, class->virtual_time);
    } else {
        key_heap_insert(&level->eligible, class_index,
                        deadline_key(&engine->share, class));
    }
}

/* Puts a class that competes and was served where it belongs now. */
SLUICE_HOT static void place_again(SluiceEngine *engine, ShareLevel *level,
                                   uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    if (!is_eligible(level, class->virtual_time)) {
        if (class->is_early) {
            key_heap_update(&level->early, class_index, class->virtual_time);
        } else {
            move_to_early(engine, level, class_index);
        }
    } else if (class->is_early) {
        move_to_eligible(engine, level, class_index);
    } else {
        key_heap_update(&level->eligible, class_index,
                        deadline_key(&engine->share, class));
    }
}

static KeyHeap *heap_of(ShareLevel *level, const SluiceClass *class)
{
    return class->is_early ? &level->early : &level->eligible;
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
            key_heap_remove(heap_of(level, class), i);
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
            place_new(engine, level, i);
        }
    }
}

static uint64_t reservation_key(const SluiceClass *class)
{
    return class->reservation.due_ns > 0 ? class->reservation.due_ns : 0;
}

/* A class that competes waits for its turn again. */
SLUICE_HOT void share_return(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    place_again(engine, &engine->share.levels[class->priority], class_index);
    if (has_reservation(class)) {
        key_heap_update(&engine->reserved, class_index, reservation_key(class));
    }
    if (UNLIKELY(class->virtual_time >= VIRTUAL_RENEW)) {
        renew(engine, class->priority);
    }
}

/* The virtual time of those who compete. */
static uint64_t average_of(const ShareLevel *level)
{
    return level->weight > 0 ? (uint64_t)(level->sum / level->weight)
                             : level->virtual_time;
}

SLUICE_HOT void share_join(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    ShareLevel *level = &engine->share.levels[class->priority];
    uint64_t average = average_of(level);

    if (class->virtual_time < average) {
        class->virtual_time = average;
    }
    level->weight += class->weight;
    level->sum += (SluiceU128)class->weight * class->virtual_time;
    class->place = PLACE_READY;
    engine->ready_priorities |= 1u << class->priority;
    place_new(engine, level, class_index);
    if (has_reservation(class)) {
        key_heap_insert(&engine->reserved, class_index, reservation_key(class));
    }
    if (UNLIKELY(class->virtual_time >= VIRTUAL_RENEW)) {
        renew(engine, class->priority);
    }
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

    key_heap_remove(heap_of(level, class), class_index);
    if (engine->reserved.positions[class_index] != KEY_HEAP_ABSENT) {
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
    ShareLevel *level = &engine->share.levels[priority];
    uint32_t first;

    /* Who has become eligible since: the average has moved on. */
    while (is_eligible(level, key_heap_first_key(&level->early))) {
        move_to_eligible(engine, level, key_heap_first_class(&level->early));
    }
    /* And who no longer is: it moves back when somebody leaves. */
    for (;;) {
        assert(level->eligible.count > 0);
        first = key_heap_first_class(&level->eligible);
        if (is_eligible(level, engine->classes[first].virtual_time)) {
            return first;
        }
        move_to_early(engine, level, first);
    }
}

uint32_t share_any(const SluiceEngine *engine)
{
    const ShareLevel *level = engine->share.levels;

    if (!ready_mask(engine)) {
        return NO_CLASS;
    }
    level += __builtin_ctz(ready_mask(engine));
    return key_heap_first_class(level->eligible.count > 0 ? &level->eligible
                                                          : &level->early);
}
