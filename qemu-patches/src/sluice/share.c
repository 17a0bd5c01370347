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
 * Structure. Two trees for each priority: classes by deadline, and those ("early")
 * that were found not to be eligible by virtual time. A class is found out when it
 * would be the first: most are eligible again by then, and never were in the other
 * tree. Its lag is what decides, so nobody's turn is another for that. And a class
 * that is served by its reservation, while others of its priority come before it,
 * stays where it is, by a key that is less than it should be ("stale"): service makes
 * keys grow, so that it is corrected in time if that is done when it would be the first.
 * What makes a deadline earlier, another request in front, corrects it at once.
 * Where a priority gets no more than its reservations its trees are not touched; when it
 * gets more for once, all who were served meanwhile may have to be corrected at once.
 * Equal deadlines go in the order in which they were noted:
 * the lowest ten binary places of a deadline, less than a thousandth of a byte
 * per weight, are a running number. A class that competes has a slot, the same in
 * both trees. Those given back are given out first, and all are free again when
 * nobody competes: so trees are as high as those need who ever competed since, not
 * as high as all classes of the priority would.
 *
 * Limits. A virtual time has 60 bits: 2^40 bytes at weight 1. Before they are
 * used up, the times of a priority are set back together, and what a class has had
 * more than another is forgotten beyond 2^38 bytes per weight.
 */
#include <stdlib.h>

#include "engine-inline.h"

#define VIRTUAL_PLACES      20
#define VIRTUAL_RENEW       (1ULL << 59)
#define AHEAD_MAX           (1ULL << 58)
#define SEQUENCE_BITS       10
/* A window's class: half its period, if that is less. */
#define CARRIED_MAX_NS      500000000ULL
#define SEQUENCE_MASK       ((1ULL << SEQUENCE_BITS) - 1)

static bool level_init(ShareLevel *level, uint32_t classes)
{
    level->classes = calloc(key_tree_room(classes), sizeof(*level->classes));
    level->free = calloc(classes, sizeof(*level->free));
    return level->classes && level->free
           && key_tree_init(&level->eligible, classes, level->classes)
           && key_tree_init(&level->early, classes, level->classes);
}

/* Slots */

/* One for a class that begins to compete. */
static inline uint32_t take_slot(ShareLevel *level, uint32_t class_index)
{
    uint32_t slot;

    if (level->free_count > 0) {
        slot = level->free[--level->free_count];
    } else {
        slot = level->slots++;
        key_tree_cover(&level->eligible, slot);
        key_tree_cover(&level->early, slot);
    }
    level->classes[slot] = class_index;
    return slot;
}

/* Nobody competes any more: the trees begin anew, as low as they were. */
static inline void forget_slots(ShareLevel *level)
{
    level->slots = 0;
    level->free_count = 0;
    key_tree_lower(&level->eligible);
    key_tree_lower(&level->early);
}

/* Life cycle */

bool share_init(Share *share, SluiceClass *classes, uint32_t count)
{
    bool complete = true;

    *share = (Share){ 0 };
    for (unsigned p = 0; complete && p < SLUICE_PRIORITIES; p++) {
        complete = level_init(&share->levels[p], count);
    }
    if (!complete) {
        share_destroy(share);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        share_set_weight(&classes[i], SLUICE_WEIGHT_DEFAULT);
    }
    return true;
}

void share_destroy(Share *share)
{
    for (unsigned p = 0; p < SLUICE_PRIORITIES; p++) {
        key_tree_destroy(&share->levels[p].eligible);
        key_tree_destroy(&share->levels[p].early);
        free(share->levels[p].classes);
        free(share->levels[p].free);
        share->levels[p].classes = NULL;
        share->levels[p].free = NULL;
    }
}

void share_set_weight(SluiceClass *class, uint32_t weight)
{
    class->weight = weight;
    class->virtual_unit = (1ULL << (VIRTUAL_PLACES + 32)) / weight;
}

void share_forget(SluiceClass *class)
{
    class->virtual_time = 0;
}

/* The virtual time that the first request takes; one without bytes takes one. */
static inline uint64_t first_cost(const SluiceClass *class)
{
    uint64_t units = class->first_charge ? class->first_charge : 1;

    return (uint64_t)(((SluiceU128)units * class->virtual_unit
                       + (1ULL << 31)) >> 32);
}

static inline void note_first(SluiceClass *class)
{
    class->first_charge = charged_bytes(class, class->oldest->bytes);
}

static bool is_eligible(const ShareLevel *level, uint64_t virtual_time)
{
    return (SluiceU128)virtual_time * level->weight <= level->sum;
}

/* When the first request of a class would be finished. */
static uint64_t deadline_key(Share *share, const SluiceClass *class)
{
    uint64_t deadline = class->virtual_time + first_cost(class);

    return (deadline & ~SEQUENCE_MASK) | (share->sequence++ & SEQUENCE_MASK);
}

/* Whatever it was before. */
static void correct_deadline(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    key_tree_update(&engine->share.levels[class->priority].eligible,
                    class->slot, class_index,
                    deadline_key(&engine->share, class));
    class->turn = 0;
}

void share_first_changed(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    uint32_t charge_before = class->first_charge;

    if (class->place != PLACE_READY) {
        return;
    }
    note_first(class);
    if (class->first_charge != charge_before && !(class->turn & TURN_EARLY)) {
        correct_deadline(engine, class_index);
    }
}

/*
 * Where there are many classes, the one that wins a part of a tree is fetched, to be
 * here when it is the first. Asked when who had won there was served, or has left.
 * Always inline, since a compiler may take a function that does nothing but fetch for
 * one that does nothing, and leave out its calls.
 */
static inline __attribute__((always_inline))
void fetch_of_part(SluiceEngine *engine, const KeyTree *tree, uint32_t slot)
{
    if (key_tree_is_large(tree)) {
        fetch_soon(&engine->due, key_tree_of_part(tree, slot)->class_index, 1);
    }
}

/* The first of those who are early has become eligible. */
SLUICE_HOT static void first_to_eligible(SluiceEngine *engine, ShareLevel *level)
{
    uint32_t class_index = key_tree_first_class(&level->early);
    SluiceClass *class = &engine->classes[class_index];

    key_tree_remove(&level->early, class->slot, class_index);
    key_tree_insert(&level->eligible, class->slot, class_index,
                    deadline_key(&engine->share, class));
    class->turn = 0;
    fetch_of_part(engine, &level->eligible, class->slot);
}

/* An eligible class has had enough. */
static void move_to_early(ShareLevel *level, SluiceClass *class,
                          uint32_t class_index)
{
    key_tree_remove(&level->eligible, class->slot, class_index);
    key_tree_insert(&level->early, class->slot, class_index,
                    class->virtual_time);
    class->turn = TURN_EARLY;
}

/* Puts a class that has begun to compete where it belongs. */
static void place_new(SluiceEngine *engine, ShareLevel *level,
                      uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    class->turn = is_eligible(level, class->virtual_time) ? 0 : TURN_EARLY;
    if (class->turn) {
        key_tree_insert(&level->early, class->slot, class_index,
                        class->virtual_time);
    } else {
        key_tree_insert(&level->eligible, class->slot, class_index,
                        deadline_key(&engine->share, class));
    }
}

static KeyTree *tree_of(ShareLevel *level, const SluiceClass *class)
{
    return class->turn & TURN_EARLY ? &level->early : &level->eligible;
}

static bool competes_at(const SluiceClass *class, unsigned priority)
{
    return class->place == PLACE_READY && class->priority == priority;
}

static uint64_t set_back(uint64_t virtual_time, uint64_t back)
{
    uint64_t left = virtual_time > back ? virtual_time - back : 0;

    return left < AHEAD_MAX ? left : AHEAD_MAX;
}

/*
 * Sets the virtual times of a priority back; their differences stay. But one that is
 * further ahead than AHEAD_MAX is from then on ahead by just that: who is never served,
 * while another lives on its reservation, would keep all of them from going back.
 */
static void renew(SluiceEngine *engine, unsigned priority)
{
    ShareLevel *level = &engine->share.levels[priority];
    uint64_t back = UINT64_MAX;
    SluiceU128 sum = 0;

    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (competes_at(class, priority)) {
            key_tree_remove(tree_of(level, class), class->slot, i);
            back = class->virtual_time < back ? class->virtual_time : back;
        }
    }
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (class->priority == priority) {
            class->virtual_time = set_back(class->virtual_time, back);
        }
        if (competes_at(class, priority)) {
            sum += (SluiceU128)class->weight * class->virtual_time;
        }
    }
    level->sum = sum;
    level->virtual_time = 0;
    for (uint32_t i = 0; i < engine->class_count; i++) {
        if (competes_at(&engine->classes[i], priority)) {
            place_new(engine, level, i);
        }
    }
}

static uint64_t reservation_key(const SluiceClass *class)
{
    return class->reservation.due_ns > 0 ? class->reservation.due_ns : 0;
}

static uint64_t carried_ns(const SluiceClass *class)
{
    uint64_t half_ns = special_window_period_ns(class) / 2;

    return half_ns && half_ns < CARRIED_MAX_NS ? half_ns : CARRIED_MAX_NS;
}

/*
 * A class that comes to compete is owed no more than a little from before its limit let
 * it; else its reserved turn would look as if it had waited for the ceiling all that
 * time, and the clock of all reservations would stand still for it.
 */
static inline __attribute__((always_inline)) void
forgo_turns(SluiceEngine *engine, SluiceClass *class)
{
    int64_t due_ns = class_due_ns(class), owed_ns = class->reservation.due_ns;
    int64_t lost_ns = engine->reservations_lost_ns;

    /* As nearly always, whatever has been lost since. No limit: due at 0. */
    if (LIKELY(due_ns <= owed_ns + lost_ns + (int64_t)CARRIED_MAX_NS
               && !(class->special & SPECIAL_WINDOW))) {
        return;
    }
    lost_ns = engine->now_ns - engine_reservations_now(engine, engine->now_ns);
    due_ns -= lost_ns + (int64_t)carried_ns(class);
    if (due_ns > 0 && due_ns > owed_ns) {
        class->reservation.due_ns = due_ns;
    }
}

/* By itself: inline it costs less where classes compete. */
void share_forgo_turns(SluiceEngine *engine, SluiceClass *class)
{
    forgo_turns(engine, class);
}

void share_forgo_before(SluiceEngine *engine, int64_t first_ns)
{
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (class->reservation.due_ns < first_ns) {
            class->reservation.due_ns = first_ns;
            if (key_tree_holds(&engine->reserved, i)) {
                key_tree_update(&engine->reserved, i, i, reservation_key(class));
            }
        }
    }
}

/* A class that competes waits for its turn again. */
SLUICE_HOT void share_return(SluiceEngine *engine, uint32_t class_index,
                             bool turned)
{
    SluiceClass *class = &engine->classes[class_index];
    const ShareLevel *level = &engine->share.levels[class->priority];

    note_first(class);
    if (!(class->turn & TURN_EARLY)
        && key_tree_first_class(&level->eligible) == class_index) {
        correct_deadline(engine, class_index);
    } else {
        class->turn |= TURN_STALE;
    }
    if (turned && has_reservation(class)) {
        key_tree_update(&engine->reserved, class_index, class_index,
                        reservation_key(class));
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
    note_first(class);
    class->slot = take_slot(level, class_index);
    place_new(engine, level, class_index);
    if (has_reservation(class)) {
        forgo_turns(engine, class);
        key_tree_insert(&engine->reserved, class_index, class_index,
                        reservation_key(class));
    }
    if (UNLIKELY(class->virtual_time >= VIRTUAL_RENEW)) {
        renew(engine, class->priority);
    }
}

SLUICE_HOT void share_account(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    uint64_t cost = first_cost(class);

    class->virtual_time += cost;
    engine->share.levels[class->priority].sum += (SluiceU128)class->weight * cost;
}

SLUICE_HOT void share_leave(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    ShareLevel *level = &engine->share.levels[class->priority];

    key_tree_remove(tree_of(level, class), class->slot, class_index);
    if (has_reservation(class)) {
        key_tree_remove(&engine->reserved, class_index, class_index);
    }
    level->sum -= (SluiceU128)class->weight * class->virtual_time;
    level->weight -= class->weight;
    level->free[level->free_count++] = class->slot;
    if (level->weight == 0) {
        forget_slots(level);
        level->virtual_time = class->virtual_time;
        engine->ready_priorities &= ~(1u << class->priority);
    }
    class->place = PLACE_IDLE;
}

SLUICE_HOT uint32_t share_choose(SluiceEngine *engine, unsigned priority)
{
    ShareLevel *level = &engine->share.levels[priority];

    /* Who has become eligible since: the average has moved on. */
    while (is_eligible(level, key_tree_first_key(&level->early))) {
        first_to_eligible(engine, level);
    }
    /* And who is not yet, or no longer: it moves back when somebody leaves. */
    for (;;) {
        uint32_t first = key_tree_first_class(&level->eligible);
        SluiceClass *class = &engine->classes[first];

        assert(!key_tree_is_empty(&level->eligible));
        if (UNLIKELY(class->turn & TURN_STALE)) {
            correct_deadline(engine, first);
        } else if (LIKELY(is_eligible(level, class->virtual_time))) {
            return first;
        } else {
            move_to_early(level, class, first);
        }
        fetch_of_part(engine, &level->eligible, class->slot);
    }
}

SLUICE_HOT void share_fetch(SluiceEngine *engine, uint32_t class_index,
                            bool reserved_turn)
{
    Share *share = &engine->share;
    unsigned priority = engine->classes[class_index].priority;

    if (priority == (unsigned)__builtin_ctz(engine->ready_priorities)) {
        fetch_of_part(engine, &share->levels[priority].eligible,
                      engine->classes[class_index].slot);
    }
    if (reserved_turn) {
        fetch_of_part(engine, &engine->reserved, class_index);
    }
}

uint32_t share_any(const SluiceEngine *engine)
{
    const ShareLevel *level = engine->share.levels;

    if (!ready_mask(engine)) {
        return NO_CLASS;
    }
    level += __builtin_ctz(ready_mask(engine));
    return key_tree_first_class(key_tree_is_empty(&level->eligible)
                                ? &level->early : &level->eligible);
}
