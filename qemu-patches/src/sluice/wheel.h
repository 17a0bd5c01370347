/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The classes that wait for their own buckets, by due time: a hierarchical
 * timing wheel that is exact, and for many classes a ring in front of it. The
 * essays are in wheel.c and near.c.
 */
#ifndef SLUICE_WHEEL_H
#define SLUICE_WHEEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hot.h"

#define WHEEL_DIGIT_BITS    9
#define WHEEL_SLOTS         (1 << WHEEL_DIGIT_BITS)
#define WHEEL_FIRST_BITS    4           /* the lowest digit is shorter */
#define WHEEL_SHORT_BITS    (WHEEL_DIGIT_BITS - WHEEL_FIRST_BITS)
#define WHEEL_LEVELS        8           /* digits of a 64-bit time */
#define WHEEL_HEADS         (WHEEL_LEVELS * WHEEL_SLOTS)
#define WHEEL_NIL           WHEEL_HEADS         /* the item that is none */
#define WHEEL_FIRST_ITEM    (WHEEL_NIL + 1)     /* that of class 0 */
#define WHEEL_FETCH_LEVEL   1           /* whose slots are fetched ahead */
#define WHEEL_FETCHED       8           /* a power of two */
#define WHEEL_NONE          UINT32_MAX
#define WHEEL_STRIDE        256         /* bytes of a class */

/*
 * An item, or the head of a slot's ring of items: then due_ns is the earliest
 * of them, UINT64_MAX if there is none. The next of a head is due first.
 */
typedef struct WheelItem {
    uint64_t due_ns;
    uint32_t next;              /* in wheel->items */
    uint32_t prev;
} WheelItem;

/* What a class begins with, as far as the wheel cares: for what will soon be
 * wanted together with it. */
typedef struct WheelRecord {
    const void *first;
    const void *last;
} __attribute__((aligned(WHEEL_STRIDE))) WheelRecord;

/* Which slots are not empty: a bit each, and a bit for each word of these. */
typedef struct WheelMap {
    uint32_t words;
    uint64_t slots[WHEEL_SLOTS / 64];
} WheelMap;

/* The last classes that were fetched. */
typedef struct WheelFetched {
    uint32_t count;
    uint32_t classes[WHEEL_FETCHED];
} WheelFetched;

struct WheelNear;

typedef struct Wheel {
    uint64_t first_ns;          /* the earliest due time, or UINT64_MAX */
    struct WheelNear *near;     /* NULL: too few classes to need it */
    uint64_t base_ns;           /* no item is due before */
    WheelItem *items;           /* heads, nil, then one for each class */
    const WheelRecord *records; /* of the classes */
    uint32_t levels;            /* bit l: level l is not empty */
    uint32_t first_place;       /* the head of the first slot of all levels */
    uint32_t likely;            /* a class that was due first, or among them */
    uint32_t fetched_slot;      /* the last one */
    uint32_t front, back;       /* items of the slot to be emptied next, or any */
    WheelFetched fetched;
    WheelMap maps[WHEEL_LEVELS];
} Wheel;

/* `memory` is the array of the classes, which is fetched towards the cache for those
 * that will soon be due; see WheelRecord. */
bool wheel_init(Wheel *wheel, uint32_t classes, const void *memory);
void wheel_destroy(Wheel *wheel);

void wheel_remove(Wheel *wheel, uint32_t class_index);
/* A class among those that are due first, likely to be the next; or WHEEL_NONE. */
uint32_t wheel_peek(const Wheel *wheel);

/* What wheel_pop() leaves to others: a slot that is not empty now, */
void wheel_pop_shared(Wheel *wheel);
/* the last slot of a word of the map, */
void wheel_leave_word(Wheel *wheel);
/* and asking for a slot's classes. */
void wheel_fetch_slot(Wheel *wheel);

static inline unsigned wheel_level_of(const Wheel *wheel, uint64_t due_ns)
{
    return (63 + WHEEL_SHORT_BITS
            - __builtin_clzll((due_ns ^ wheel->base_ns) | 1))
           / WHEEL_DIGIT_BITS;
}

/* How many bits of time are below a level's digit. On the lowest level all
 * items have the bits above it in common, so that the digit may be longer. */
static inline unsigned wheel_shift_of(unsigned level)
{
    unsigned bits = level * WHEEL_DIGIT_BITS;

    return bits ? bits - WHEEL_SHORT_BITS : 0;
}

static inline unsigned wheel_slot_of(unsigned level, uint64_t due_ns)
{
    return due_ns >> wheel_shift_of(level) & (WHEEL_SLOTS - 1);
}

static inline void wheel_mark_filled(Wheel *wheel, unsigned level, unsigned slot)
{
    WheelMap *map = &wheel->maps[level];
    uint64_t others = map->slots[slot / 64];

    map->slots[slot / 64] = others | 1ULL << slot % 64;
    if (UNLIKELY(!others)) {
        map->words |= 1u << slot / 64;
        wheel->levels |= 1u << level;
    }
}

/* Puts an item into a slot; first_ns is the caller's business. Whether it is
 * the first there, or the only one, cannot be guessed: no branch. */
static inline __attribute__((always_inline))
void wheel_put(Wheel *wheel, uint32_t head_place, uint32_t place,
                             uint64_t due_ns)
{
    WheelItem *items = wheel->items;
    WheelItem *head = &items[head_place], *item = &items[place];
    uint64_t earliest_ns = head->due_ns;
    uint32_t first = head->next, prev, next;

    prev = first ^ ((first ^ head_place) & -(uint32_t)(due_ns < earliest_ns));
    next = items[prev].next;
    item->due_ns = due_ns;
    item->next = next;
    item->prev = prev;
    items[next].prev = place;
    items[prev].next = place;
    head->due_ns = due_ns < earliest_ns ? due_ns : earliest_ns;
    wheel_mark_filled(wheel, head_place / WHEEL_SLOTS,
                      head_place % WHEEL_SLOTS);
}

/* Returns the head of the item's slot. */
static inline __attribute__((always_inline))
uint32_t wheel_place(Wheel *wheel, uint32_t place, uint64_t due_ns)
{
    unsigned level = wheel_level_of(wheel, due_ns);
    uint32_t head_place = level * WHEEL_SLOTS + wheel_slot_of(level, due_ns);

    wheel_put(wheel, head_place, place, due_ns);
    return head_place;
}

static inline __attribute__((always_inline))
void wheel_insert_far(Wheel *wheel, uint32_t class_index,
                                    uint64_t due_ns)
{
    uint32_t head_place;

    assert(due_ns >= wheel->base_ns);
    head_place = wheel_place(wheel, WHEEL_FIRST_ITEM + class_index, due_ns);
    if (due_ns < wheel->first_ns) {
        wheel->first_ns = due_ns;
        wheel->first_place = head_place;
    }
}

static inline void wheel_unlink(Wheel *wheel, const WheelItem *item)
{
    wheel->items[item->next].prev = item->prev;
    wheel->items[item->prev].next = item->next;
}

static inline void wheel_note_first(Wheel *wheel, uint32_t head_place)
{
    const WheelItem *head = &wheel->items[head_place];

    wheel->first_place = head_place;
    wheel->first_ns = head->due_ns;
    wheel->likely = head->next - WHEEL_FIRST_ITEM;
}

/* From the first slot, now empty, to the one after it. */
static inline __attribute__((always_inline))
void wheel_leave_slot(Wheel *wheel)
{
    uint32_t head_place = wheel->first_place;
    unsigned level = head_place / WHEEL_SLOTS;
    uint64_t *slots =
        &wheel->maps[level].slots[head_place % WHEEL_SLOTS / 64];
    uint64_t left = *slots & (*slots - 1);

    wheel->items[head_place].due_ns = UINT64_MAX;
    wheel->base_ns = wheel->first_ns;
    if (LIKELY(left)) {
        *slots = left;
        wheel_note_first(wheel, head_place / 64 * 64 + __builtin_ctzll(left));
    } else {
        wheel_leave_word(wheel);
    }
    if (level == WHEEL_FETCH_LEVEL) {
        wheel_fetch_slot(wheel);
    }
}

static inline __attribute__((always_inline))
uint32_t wheel_pop_far(Wheel *wheel)
{
    uint32_t head_place = wheel->first_place;
    const WheelItem *head = &wheel->items[head_place];
    uint32_t popped = head->next;

    wheel_unlink(wheel, &wheel->items[popped]);
    if (LIKELY(head->next == head_place)) {
        wheel_leave_slot(wheel);
    } else {
        wheel_pop_shared(wheel);
    }
    return popped - WHEEL_FIRST_ITEM;
}

/* What is soon due, where there are many classes. */
#include "near.h"

/* For who knows whether there is a near ring: */
static inline __attribute__((always_inline))
void wheel_insert_as(Wheel *wheel, uint32_t class_index,
                                   uint64_t due_ns, bool has_near)
{
    if (has_near) {
        near_insert(wheel, class_index, due_ns);
    } else {
        wheel_insert_far(wheel, class_index, due_ns);
    }
}

/* due_ns must not be before a time that was popped. */
static inline void wheel_insert(Wheel *wheel, uint32_t class_index,
                                uint64_t due_ns)
{
    if (UNLIKELY(wheel->near)) {
        near_insert_slowly(wheel, class_index, due_ns);
    } else {
        wheel_insert_far(wheel, class_index, due_ns);
    }
}

static inline __attribute__((always_inline))
uint32_t wheel_pop_as(Wheel *wheel, bool has_near)
{
    return has_near ? near_pop(wheel) : wheel_pop_far(wheel);
}

/* Takes a class out that is due at first_ns; there must be one. */
static inline uint32_t wheel_pop(Wheel *wheel)
{
    return UNLIKELY(wheel->near) ? near_pop_slowly(wheel) : wheel_pop_far(wheel);
}

#endif
