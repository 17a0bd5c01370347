/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timing wheel.
 *
 * Model. A time is a number of eight digits to the base 256. An item stands
 * on the level of the highest digit in which its time differs from the base
 * (the time last popped), in the slot that this digit names. Items on one
 * level come before all items on the next; on one level, slots come in order.
 * So the first slot of the lowest level has the earliest item, and a bit for
 * each level and slot that is not empty finds it in constant time.
 *
 * Exactness. Wheels commonly round to the width of a slot. Here each slot
 * keeps the earliest time in it, so that first_ns is exact; and when the base
 * moves into a slot with many items, they move to lower levels, at the lowest
 * of which a slot is one nanosecond wide. A few items are looked through where
 * they are, and the base, which may be any time before all items, stays.
 *
 * Cost. Inserting is constant. Popping is constant but for many items that
 * share the slot, each of which moves down a level. An item moves down at most
 * seven times in its life, commonly as often as the logarithm of the number
 * of items, to the base 256. Removing is constant but for the search of a slot's
 * earliest item if that is what was removed.
 *
 * Source. Hierarchical timing wheels: Varghese and Lauck, SOSP 1987; the order
 * by highest differing digit is that of the radix heap (Ahuja et al., 1990).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hot.h"
#include "wheel.h"

#define CACHE_LINE_BYTES    64
#define FEW_ITEMS           8

bool wheel_init(Wheel *wheel, uint32_t classes, const void *memory,
                size_t stride)
{
    memset(wheel, 0, sizeof(*wheel));
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++) {
            wheel->slots[level][slot].head = WHEEL_NONE;
        }
    }
    wheel->memory = memory;
    wheel->stride = stride;
    wheel->first_ns = UINT64_MAX;
    wheel->items = calloc(classes, sizeof(*wheel->items));
    return wheel->items != NULL;
}

void wheel_destroy(Wheel *wheel)
{
    free(wheel->items);
    wheel->items = NULL;
}

static inline void mark_empty(Wheel *wheel, unsigned level, unsigned slot)
{
    WheelMap *map = &wheel->maps[level];

    map->slots[slot / 64] &= ~(1ULL << slot % 64);
    if (!map->slots[slot / 64]) {
        map->words &= ~(1u << slot / 64);
        if (!map->words) {
            wheel->levels &= ~(1u << level);
        }
    }
}

static inline void find_first(Wheel *wheel)
{
    const WheelSlot *slot;
    unsigned level;

    if (!wheel->levels) {
        wheel->first_ns = UINT64_MAX;
        return;
    }
    level = __builtin_ctz(wheel->levels);
    slot = &wheel->slots[level][wheel_first_slot(wheel, level)];
    wheel->first_ns = slot->earliest_ns;
    wheel->likely = slot->head;
}

/* Takes an item out of its slot, whose earliest time and mark stay. */
static inline void unlink_item(Wheel *wheel, WheelSlot *slot,
                               const WheelItem *item)
{
    if (item->next != WHEEL_NONE) {
        wheel->items[item->next].prev = item->prev;
    }
    if (item->prev != WHEEL_NONE) {
        wheel->items[item->prev].next = item->next;
    } else {
        slot->head = item->next;
    }
}

static uint64_t earliest_in(const Wheel *wheel, const WheelSlot *slot)
{
    uint64_t earliest_ns = UINT64_MAX;

    for (uint32_t i = slot->head; i != WHEEL_NONE; i = wheel->items[i].next) {
        if (wheel->items[i].due_ns < earliest_ns) {
            earliest_ns = wheel->items[i].due_ns;
        }
    }
    return earliest_ns;
}

void wheel_remove(Wheel *wheel, uint32_t class_index)
{
    const WheelItem *item = &wheel->items[class_index];
    unsigned level = wheel_level_of(wheel, item->due_ns);
    unsigned index = wheel_slot_of(level, item->due_ns);
    WheelSlot *slot = &wheel->slots[level][index];

    unlink_item(wheel, slot, item);
    if (slot->head == WHEEL_NONE) {
        mark_empty(wheel, level, index);
    } else if (item->due_ns == slot->earliest_ns) {
        slot->earliest_ns = earliest_in(wheel, slot);
    }
    if (item->due_ns == wheel->first_ns) {
        find_first(wheel);
    }
}

/*
 * Takes the first of a few items out of their slot and leaves the others and
 * the base where they are. WHEEL_NONE, and nothing done, if they are many.
 */
static inline uint32_t pop_of_few(Wheel *wheel, WheelSlot *slot)
{
    uint64_t earliest_ns = UINT64_MAX;
    uint32_t popped = WHEEL_NONE, i = slot->head;

    for (unsigned n = 0; i != WHEEL_NONE; n++) {
        const WheelItem *item = &wheel->items[i];

        if (n == FEW_ITEMS) {
            return WHEEL_NONE;
        }
        if (popped == WHEEL_NONE && item->due_ns == wheel->first_ns) {
            popped = i;
        } else if (item->due_ns < earliest_ns) {
            earliest_ns = item->due_ns;
            wheel->likely = i;
        }
        i = item->next;
    }
    unlink_item(wheel, slot, &wheel->items[popped]);
    slot->earliest_ns = earliest_ns;
    wheel->first_ns = earliest_ns;
    return popped;
}

/* Empties a slot into lower levels, but for one item that is due first. */
static uint32_t pop_of_many(Wheel *wheel, unsigned level, unsigned index)
{
    WheelSlot *slot = &wheel->slots[level][index];
    uint32_t popped = WHEEL_NONE, i = slot->head;

    slot->head = WHEEL_NONE;
    mark_empty(wheel, level, index);
    wheel->base_ns = wheel->first_ns;
    while (i != WHEEL_NONE) {
        WheelItem *item = &wheel->items[i];
        uint32_t next = item->next;

        if (popped == WHEEL_NONE && item->due_ns == wheel->base_ns) {
            popped = i;
        } else {
            wheel_place(wheel, i, item->due_ns);
            for (size_t b = 0; b < wheel->stride; b += CACHE_LINE_BYTES) {
                __builtin_prefetch(wheel->memory + i * wheel->stride + b, 1, 2);
            }
        }
        i = next;
    }
    find_first(wheel);
    return popped;
}

SLUICE_HOT uint32_t wheel_pop(Wheel *wheel)
{
    unsigned level = __builtin_ctz(wheel->levels);
    unsigned index = wheel_first_slot(wheel, level);
    WheelSlot *slot = &wheel->slots[level][index];
    uint32_t popped = slot->head;
    uint32_t next = wheel->items[popped].next;

    if (next == WHEEL_NONE) {
        slot->head = WHEEL_NONE;
        mark_empty(wheel, level, index);
        wheel->base_ns = wheel->first_ns;
        find_first(wheel);
        return popped;
    }
    if (level == 0) {
        /* All of them are due at this very nanosecond. */
        slot->head = next;
        wheel->items[next].prev = WHEEL_NONE;
        wheel->likely = next;
        return popped;
    }
    popped = pop_of_few(wheel, slot);
    return popped != WHEEL_NONE ? popped : pop_of_many(wheel, level, index);
}
