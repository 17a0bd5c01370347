/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The classes that wait for their own buckets, by due time: a hierarchical
 * timing wheel that is exact. The essay is in wheel.c.
 */
#ifndef SLUICE_WHEEL_H
#define SLUICE_WHEEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WHEEL_DIGIT_BITS    8
#define WHEEL_SLOTS         (1 << WHEEL_DIGIT_BITS)
#define WHEEL_LEVELS        8           /* digits of a 64-bit time */
#define WHEEL_NONE          UINT32_MAX

typedef struct WheelItem {
    uint64_t due_ns;
    uint32_t next;
    uint32_t prev;
} WheelItem;

typedef struct WheelSlot {
    uint64_t earliest_ns;       /* of its items */
    uint32_t head;
} WheelSlot;

/* Which slots are not empty: a bit each, and a bit for each word of these. */
typedef struct WheelMap {
    uint32_t words;
    uint64_t slots[WHEEL_SLOTS / 64];
} WheelMap;

typedef struct Wheel {
    uint64_t first_ns;          /* the earliest due time, or UINT64_MAX */
    uint64_t base_ns;           /* no item is due before */
    WheelItem *items;           /* by class */
    const char *memory;
    size_t stride;
    uint32_t levels;            /* bit l: level l is not empty */
    uint32_t likely;            /* a class that was due first, or among them */
    WheelMap maps[WHEEL_LEVELS];
    WheelSlot slots[WHEEL_LEVELS][WHEEL_SLOTS];
} Wheel;

/* `memory` is an array of classes of `stride` bytes each, which is fetched
 * towards the cache for classes that will soon be due. */
bool wheel_init(Wheel *wheel, uint32_t classes, const void *memory,
                size_t stride);
void wheel_destroy(Wheel *wheel);

void wheel_remove(Wheel *wheel, uint32_t class_index);
/* Takes a class out that is due at first_ns; there must be one. */
uint32_t wheel_pop(Wheel *wheel);

static inline unsigned wheel_first_slot(const Wheel *wheel, unsigned level)
{
    const WheelMap *map = &wheel->maps[level];
    unsigned word = __builtin_ctz(map->words);

    return word * 64 + __builtin_ctzll(map->slots[word]);
}

/* Some class in the first slot, likely to be the next; or WHEEL_NONE. */
static inline uint32_t wheel_peek(const Wheel *wheel)
{
    unsigned level;

    if (!wheel->levels) {
        return WHEEL_NONE;
    }
    level = __builtin_ctz(wheel->levels);
    return wheel->slots[level][wheel_first_slot(wheel, level)].head;
}

static inline unsigned wheel_level_of(const Wheel *wheel, uint64_t due_ns)
{
    return (63 - __builtin_clzll((due_ns ^ wheel->base_ns) | 1))
           / WHEEL_DIGIT_BITS;
}

static inline unsigned wheel_slot_of(unsigned level, uint64_t due_ns)
{
    return due_ns >> (level * WHEEL_DIGIT_BITS) & (WHEEL_SLOTS - 1);
}

static inline void wheel_mark_filled(Wheel *wheel, unsigned level, unsigned slot)
{
    WheelMap *map = &wheel->maps[level];

    map->slots[slot / 64] |= 1ULL << slot % 64;
    map->words |= 1u << slot / 64;
    wheel->levels |= 1u << level;
}

/* Puts an item into its slot; first_ns is the caller's business. */
static inline void wheel_place(Wheel *wheel, uint32_t class_index, uint64_t due_ns)
{
    unsigned level = wheel_level_of(wheel, due_ns);
    unsigned index = wheel_slot_of(level, due_ns);
    WheelSlot *slot = &wheel->slots[level][index];
    WheelItem *item = &wheel->items[class_index];

    item->due_ns = due_ns;
    item->next = slot->head;
    item->prev = WHEEL_NONE;
    if (slot->head != WHEEL_NONE) {
        wheel->items[slot->head].prev = class_index;
        if (due_ns < slot->earliest_ns) {
            slot->earliest_ns = due_ns;
        }
    } else {
        slot->earliest_ns = due_ns;
        wheel_mark_filled(wheel, level, index);
    }
    slot->head = class_index;
}

/* due_ns must not be before a time that was popped. */
static inline void wheel_insert(Wheel *wheel, uint32_t class_index,
                                uint64_t due_ns)
{
    assert(due_ns >= wheel->base_ns);
    wheel_place(wheel, class_index, due_ns);
    if (due_ns < wheel->first_ns) {
        wheel->first_ns = due_ns;
    }
}

#endif
