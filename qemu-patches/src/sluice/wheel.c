/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timing wheel.
 *
 * Model. A time is a number of eight digits: the lowest of 4 bits, the others
 * of 9. An item stands on the level of the highest digit in which its time
 * differs from the base (the time last popped), in the slot that this digit
 * names. Items on one level come before all items on the next; on one level,
 * slots come in order. So the first slot of the lowest level has the earliest
 * item, and a bit for each level and slot that is not empty finds it in
 * constant time.
 *
 * Exactness. Wheels commonly round to the width of a slot. Here each slot
 * keeps the earliest time in it, and that item in front, so that first_ns is
 * exact; and when the base moves into a slot with many items, they move to
 * lower levels, at the lowest of which a slot is one nanosecond wide. A few
 * items are looked through where they are, and the base, which may be any time
 * before all items, stays.
 *
 * Cost. Inserting is constant. Popping is constant but for many items that
 * share the slot, each of which moves down a level. An item moves down at most
 * seven times in its life, commonly as often as the logarithm of the number
 * of items, to the base 512. Removing is constant but for the search of a slot's
 * earliest item if that is what was removed.
 *
 * Widths. A slot of level 1 is 16 ns wide, less than a release takes: so in the
 * long run few items share one, however many classes there are, and there is
 * seldom anything to look through. One of level 2 is 8 us, one of level 3 4 ms.
 * Where there are many classes, what is soon due does without level 2: near.c.
 *
 * Memory. Thousands of classes are more than a core's own caches hold, and
 * waiting for memory is then most of what a release costs. Nobody but the wheel
 * knows who comes next. So whenever the base moves on to the next slot of level
 * 1, a slot some way ahead of it has its classes fetched, and a class that was
 * fetched some time ago has its first and last request fetched, whose addresses
 * are in it. Of items that share a slot two are fetched. Where slots are wider
 * nothing is, since there is time enough, but where there are many classes:
 * near.c. The slots themselves take 64 KiB.
 *
 * Branches. Whether an item is alone in its slot, or the earliest there, is
 * chance, and a wrong guess costs as much as twenty instructions or more. Hence
 * rings with heads, so that no item is the last, and arithmetic in place of
 * choices in what follows.
 *
 * Source. Hierarchical timing wheels: Varghese and Lauck, SOSP 1987; the order
 * by highest differing digit is that of the radix heap (Ahuja et al., 1990).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wheel.h"

bool wheel_init(Wheel *wheel, uint32_t classes, const void *memory)
{
    assert(classes < WHEEL_IN_NEAR - WHEEL_FIRST_ITEM);
    memset(wheel, 0, sizeof(*wheel));
    wheel->records = memory;
    wheel->first_ns = UINT64_MAX;
    wheel->items = calloc((size_t)classes + WHEEL_FIRST_ITEM,
                          sizeof(*wheel->items));
    if (!wheel->items) {
        return false;
    }
    for (uint32_t i = 0; i < WHEEL_FIRST_ITEM; i++) {
        wheel->items[i] = (WheelItem){ .due_ns = UINT64_MAX, .next = i,
                                       .prev = i };
    }
    if (classes >= NEAR_CLASSES_MIN) {
        wheel->near = near_new(classes);
        return wheel->near != NULL;
    }
    return true;
}

void wheel_destroy(Wheel *wheel)
{
    near_free(wheel->near);
    free(wheel->items);
    wheel->near = NULL;
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

/* The slot after the one fetched last. */
SLUICE_HOT void wheel_fetch_slot(Wheel *wheel)
{
    const WheelMap *map = &wheel->maps[WHEEL_FETCH_LEVEL];
    unsigned word = wheel->fetched_slot / 64;
    uint64_t later = map->slots[word]
                     & (UINT64_MAX - 1) << wheel->fetched_slot % 64;
    const WheelItem *head;

    if (!later) {
        uint32_t words = map->words & (UINT32_MAX - 1) << word;

        if (!words) {
            return;
        }
        word = __builtin_ctz(words);
        later = map->slots[word];
    }
    wheel->fetched_slot = word * 64 + __builtin_ctzll(later);
    head = &wheel->items[WHEEL_FETCH_LEVEL * WHEEL_SLOTS + wheel->fetched_slot];
    fetch_class(wheel, head->prev - WHEEL_FIRST_ITEM);
    fetch_soon(wheel, head->next - WHEEL_FIRST_ITEM, 1);
}

void wheel_find_first(Wheel *wheel)
{
    const WheelMap *map;
    unsigned level, word;

    if (!wheel->levels) {
        wheel->first_ns = UINT64_MAX;
        return;
    }
    level = __builtin_ctz(wheel->levels);
    map = &wheel->maps[level];
    word = __builtin_ctz(map->words);
    wheel_note_first(wheel, level * WHEEL_SLOTS + word * 64
                            + __builtin_ctzll(map->slots[word]));
}

/*
 * Moves the earliest item of a slot, which is not empty, to its front. False,
 * and nothing done, if there are more items than `few`.
 */
static inline bool find_earliest(Wheel *wheel, uint32_t head_place, size_t few)
{
    WheelItem *items = wheel->items, *head = &items[head_place], *item;
    uint64_t earliest_ns = UINT64_MAX;
    uint32_t earliest = head->next;

    for (uint32_t i = head->next; i != head_place; i = items[i].next) {
        bool earlier = items[i].due_ns < earliest_ns;

        if (few-- == 0) {
            return false;
        }
        earliest_ns = earlier ? items[i].due_ns : earliest_ns;
        earliest = earlier ? i : earliest;
    }
    item = &items[earliest];
    wheel_unlink(wheel, item);
    item->prev = head_place;
    item->next = head->next;
    items[head->next].prev = earliest;
    head->next = earliest;
    head->due_ns = earliest_ns;
    return true;
}

void wheel_remove_far(Wheel *wheel, uint32_t class_index)
{
    const WheelItem *item = &wheel->items[WHEEL_FIRST_ITEM + class_index];
    unsigned level = wheel_level_of(wheel, item->due_ns);
    unsigned slot = wheel_slot_of(level, item->due_ns);
    uint32_t head_place = level * WHEEL_SLOTS + slot;
    WheelItem *head = &wheel->items[head_place];

    wheel_unlink(wheel, item);
    if (head->next == head_place) {
        head->due_ns = UINT64_MAX;
        mark_empty(wheel, level, slot);
    } else if (item->due_ns == head->due_ns) {
        find_earliest(wheel, head_place, SIZE_MAX);
    }
    if (item->due_ns == wheel->first_ns) {
        wheel_find_first(wheel);
    }
}

void wheel_remove(Wheel *wheel, uint32_t class_index)
{
    if (wheel->near) {
        near_remove(wheel, class_index);
    } else {
        wheel_remove_far(wheel, class_index);
    }
}

uint32_t wheel_peek(const Wheel *wheel)
{
    if (wheel->first_ns == UINT64_MAX) {
        return WHEEL_NONE;
    }
    return wheel->near ? near_peek(wheel)
                       : wheel->items[wheel->first_place].next - WHEEL_FIRST_ITEM;
}

/* The slot that is emptied next, if there is one on this level, has its items asked
 * for from both ends, one after each release: see near.c. */
static void begin_asking(Wheel *wheel, unsigned level)
{
    const WheelMap *map = &wheel->maps[level];
    unsigned word = map->words ? __builtin_ctz(map->words) : 0;
    const WheelItem *head;

    if (map->words) {
        head = &wheel->items[level * WHEEL_SLOTS + word * 64
                             + __builtin_ctzll(map->slots[word])];
        wheel->front = head->next;
        wheel->back = head->prev;
    }
}

/* Moves what was in a slot to where it belongs now. */
static void settle_slot(Wheel *wheel, uint32_t head_place)
{
    WheelItem *head = &wheel->items[head_place];
    uint32_t i = head->next, level = head_place / WHEEL_SLOTS;
    unsigned shift = wheel_shift_of(level - 1);
    /* Where slots are narrower; else they might come back from there. */
    bool to_near = wheel->near && wheel_shift_of(level) > wheel->near->shift;

    *head = (WheelItem){ .due_ns = UINT64_MAX, .next = head_place,
                         .prev = head_place };
    mark_empty(wheel, level, head_place % WHEEL_SLOTS);
    while (i != head_place) {
        uint32_t next = wheel->items[i].next;
        uint64_t due_ns = wheel->items[i].due_ns;

        if (to_near && near_takes(wheel->near, due_ns)) {
            near_put(wheel, i, due_ns);
        } else if (LIKELY((due_ns ^ wheel->base_ns) >> shift)) {
            /* Most go just one level down. */
            wheel_put(wheel, (level - 1) * WHEEL_SLOTS
                             + (due_ns >> shift & (WHEEL_SLOTS - 1)),
                      i, due_ns);
        } else {
            wheel_place(wheel, i, due_ns);
        }
        i = next;
    }
    begin_asking(wheel, level);
}

/* Empties a slot into lower levels; the base moves to what has been popped. */
static void empty_slot(Wheel *wheel, uint32_t head_place)
{
    wheel->base_ns = wheel->first_ns;
    settle_slot(wheel, head_place);
    if (head_place / WHEEL_SLOTS - 1 == WHEEL_FETCH_LEVEL) {
        wheel->fetched_slot = 0;
        for (unsigned n = 0; n < FETCH_AHEAD; n++) {
            wheel_fetch_slot(wheel);
        }
    }
    wheel_find_first(wheel);
}

/* Nothing is due between the two bases, so all levels below that on which they
 * differ are empty; on it one slot is that of the new base. */
void wheel_advance(Wheel *wheel, uint64_t base_ns)
{
    unsigned level = wheel_level_of(wheel, base_ns);
    uint32_t head_place = level * WHEEL_SLOTS + wheel_slot_of(level, base_ns);

    wheel->base_ns = base_ns;
    if (level > 0 && wheel->items[head_place].next != head_place) {
        settle_slot(wheel, head_place);
    }
}

SLUICE_HOT void wheel_leave_word(Wheel *wheel)
{
    unsigned level = wheel->first_place / WHEEL_SLOTS;
    WheelMap *map = &wheel->maps[level];
    uint32_t left = map->words & (map->words - 1);

    map->slots[wheel->first_place % WHEEL_SLOTS / 64] = 0;
    map->words = left;
    wheel->levels &= ~((uint32_t)!left << level);
    wheel_find_first(wheel);
}

SLUICE_HOT void wheel_pop_shared(Wheel *wheel)
{
    uint32_t head_place = wheel->first_place;

    if (head_place < WHEEL_SLOTS) {
        /* All of them are due at this very nanosecond. */
        wheel->likely = wheel->items[head_place].next - WHEEL_FIRST_ITEM;
    } else if (find_earliest(wheel, head_place, FEW_ITEMS)) {
        wheel_note_first(wheel, head_place);
    } else {
        empty_slot(wheel, head_place);
    }
}
