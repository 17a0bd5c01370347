/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * EEVDF, earliest eligible virtual deadline first: proportional shares among READY
 * classes of one priority.
 *
 * Model. Classes that compete for the ceiling have weights. In the ideal,
 * fluid system each of them would at any time be served in proportion to its
 * weight. The lag of a class is the service that it would have had there less the
 * service that it has had. A class is eligible if its lag is not negative; of the
 * eligible ones the earliest virtual deadline goes first (PS section 3.1; Stoica and
 * others, "A proportional share resource allocation algorithm", RTSS 1996). With this
 * rule no lag exceeds one maximum request, in either direction: the least
 * bound that is possible. Equal deadlines go in the order in which they were noted.
 *
 * Units. The virtual time of a class is the service that it has had, in bytes per
 * weight, with 20 binary places. Serving L bytes moves it by L / weight; the deadline
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
 * nothing. A class that competes with no other is not charged.
 *
 * Cost. A priority has 16 classes at most, all of which are looked at.
 *
 * Limits. A virtual time has 60 bits: 2^40 bytes at weight 1. Before they are
 * used up, the times of a priority are set back together, and service that a class
 * has had more than another is forgotten beyond 2^38 bytes per weight.
 */
#include "engine-internal.h"

#define VIRTUAL_PLACES      20
#define VIRTUAL_RENEW       (1ULL << 59)
#define AHEAD_MAX           (1ULL << 58)

void eevdf_set_weight(SluiceClass *class, uint32_t weight)
{
    class->weight = weight;
    class->virtual_unit = (1ULL << (VIRTUAL_PLACES + 32)) / weight;
}

/* Of the first request; one without bytes takes the virtual time of a byte. */
static inline uint64_t deadline_of(const SluiceClass *class)
{
    uint64_t units = charged_bytes(class, class->oldest->bytes);

    units += !units;
    return class->virtual_time + (uint64_t)(((SluiceU128)units * class->virtual_unit
                                             + (1ULL << 31)) >> 32);
}

static inline void note_deadline(SluiceEngine *engine, SluiceClass *class)
{
    class->deadline = deadline_of(class);
    class->noted = engine->deadlines_noted++;
}

void eevdf_first_changed(SluiceEngine *engine, SluiceClass *class)
{
    if (class->place == PLACE_READY && class->deadline != deadline_of(class)) {
        note_deadline(engine, class);
    }
}

static uint64_t set_back(uint64_t virtual_time, uint64_t back)
{
    uint64_t left = virtual_time > back ? virtual_time - back : 0;

    return left < AHEAD_MAX ? left : AHEAD_MAX;
}

/*
 * Sets the virtual times of a priority back; their differences stay. But a time that is
 * further ahead than AHEAD_MAX is from then on ahead by just that: a class that is never
 * served, while another lives on its reservation, would keep all from going back.
 */
static void renew(SluiceEngine *engine, unsigned priority)
{
    EevdfLevel *level = &engine->levels[priority];
    uint64_t back = UINT64_MAX;

    for_each_class(i, level->classes) {
        uint64_t virtual_time = engine->classes[i].virtual_time;

        back = virtual_time < back ? virtual_time : back;
    }
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];

        if (class->priority == priority) {
            class->virtual_time = set_back(class->virtual_time, back);
        }
    }
    level->sum = 0;
    level->virtual_time = 0;
    for_each_class(i, level->classes) {
        SluiceClass *class = &engine->classes[i];

        level->sum += (SluiceU128)class->weight * class->virtual_time;
        note_deadline(engine, class);
    }
}

SLUICE_HOT void eevdf_return(SluiceEngine *engine, SluiceClass *class)
{
    note_deadline(engine, class);
    if (UNLIKELY(class->virtual_time >= VIRTUAL_RENEW)) {
        renew(engine, class->priority);
    }
}

/* The virtual time of the classes that compete. */
static uint64_t average_of(const EevdfLevel *level)
{
    return level->weight > 0 ? (uint64_t)(level->sum / level->weight)
                             : level->virtual_time;
}

SLUICE_HOT void eevdf_join(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    EevdfLevel *level = &engine->levels[class->priority];
    uint64_t average = average_of(level);

    if (UNLIKELY(engine->gate.has_runs)) {
        average -= engine_run_credit(engine, class_index, average);
    }
    if (class->virtual_time < average) {
        class->virtual_time = average;
    }
    level->weight += class->weight;
    level->sum += (SluiceU128)class->weight * class->virtual_time;
    level->classes |= 1u << class_index;
    engine->ready_priorities |= 1u << class->priority;
    class->place = PLACE_READY;
    eevdf_return(engine, class);
}

SLUICE_HOT void eevdf_account(SluiceEngine *engine, SluiceClass *class)
{
    uint64_t cost = class->deadline - class->virtual_time;

    class->virtual_time = class->deadline;
    engine->levels[class->priority].sum += (SluiceU128)class->weight * cost;
}

void eevdf_charge(SluiceEngine *engine, SluiceClass *class, uint64_t units)
{
    uint64_t cost = (uint64_t)(((SluiceU128)units * class->virtual_unit) >> 32);

    class->virtual_time += cost;
    if (class->place == PLACE_READY) {
        engine->levels[class->priority].sum += (SluiceU128)class->weight * cost;
    }
    if (class->place == PLACE_READY && class->oldest) {
        eevdf_return(engine, class);
    }
}

SLUICE_HOT void eevdf_leave(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    EevdfLevel *level = &engine->levels[class->priority];

    level->sum -= (SluiceU128)class->weight * class->virtual_time;
    level->weight -= class->weight;
    level->classes &= ~(1u << class_index);
    if (level->weight == 0) {
        level->virtual_time = class->virtual_time;
        engine->ready_priorities &= ~(1u << class->priority);
    }
    class->place = PLACE_IDLE;
}

static inline bool goes_before(const SluiceClass *a, const SluiceClass *b)
{
    return a->deadline < b->deadline
           || (a->deadline == b->deadline && a->noted < b->noted);
}

SLUICE_HOT uint32_t eevdf_choose(const SluiceEngine *engine, unsigned priority)
{
    const EevdfLevel *level = &engine->levels[priority];
    const SluiceClass *classes = engine->classes;
    uint32_t first = NO_CLASS;

    for_each_class(i, level->classes) {
        bool eligible = (SluiceU128)classes[i].virtual_time * level->weight
                        <= level->sum;

        if (eligible && (first == NO_CLASS
                         || goes_before(&classes[i], &classes[first]))) {
            first = i;
        }
    }
    assert(first != NO_CLASS);
    return first;
}

/* Whether they are eligible says nothing: others of the average cannot go. */
uint32_t eevdf_choose_among(const SluiceEngine *engine, unsigned priority,
                            uint16_t classes)
{
    uint32_t first = NO_CLASS;

    for_each_class(i, engine->levels[priority].classes & classes) {
        if (first == NO_CLASS
            || goes_before(&engine->classes[i], &engine->classes[first])) {
            first = i;
        }
    }
    assert(first != NO_CLASS);
    return first;
}
