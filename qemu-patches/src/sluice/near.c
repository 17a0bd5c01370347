/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The near ring: what is soon due, where there are many classes.
 *
 * Model. A ring of 65,536 slots stands in front of the wheel's levels. What is due
 * within its span goes to the slot of its time and stays there until it is popped; all
 * else goes to the levels, and from there to the ring when their slots are emptied. The
 * earliest of all is the earlier of the two.
 *
 * Width. Slots are from 16 ns wide, so that the span is a millisecond, to a
 * millisecond. How wide is judged by the work: a word of 64 slots that has come first
 * is to have had about as many items as it takes for asking ahead, but not so many that
 * they share slots; and it is no good if most are due beyond the span. Where it is wrong
 * slots become four times as wide or a quarter, and all items move, at most once for as
 * many pops as there are classes.
 *
 * Why. With thousands of classes a slot of the wheel's level 2 holds a hundred
 * of them, each of which has to move to level 1 before it is due: 60 instructions
 * of a release, which the ring does without. With ten microseconds between
 * two classes the same is true of level 3. The ring takes 264 KiB, so engines of fewer
 * than NEAR_CLASSES_MIN classes have none.
 *
 * Invariants.
 * - base_ns is the beginning of a word of 64 slots, no item is due before, and
 *   all in the ring are due before base_ns + span_ns. So a slot has items of
 *   one round only, and the words in their order, from that of the base around,
 *   are in the order of time.
 * - `filled` has a bit for each slot that is not empty, `sums` one for each word
 *   of these that is not 0, sums_filled one for each word of those: the first
 *   slot is found in constant time, however far away it is.
 * - first is the earliest item here, due at first_ns.
 * - An item in the ring has WHEEL_IN_NEAR in prev, an item on a level has not.
 *   Its prev is nil in front; the next of the last is nil, whose due time is
 *   the latest and whose prev anybody may write: no branch for either end.
 * - The levels have a base of their own, never after the time last popped.
 *   wheel->first_ns is the earliest of both, but while the levels are at work
 *   theirs.
 *
 * Exactness. The items of a slot are in no order. When it comes first, its
 * earliest is looked for; of two without a branch. If more than FEW_ITEMS are
 * left when one has been popped, all move to the lowest levels, at the end to slots
 * that are 1 ns wide, where nobody is looked for. From a level whose slots are no wider
 * than those of the ring nothing moves to the ring: it would come back.
 *
 * Cost. Constant, as that of the wheel; what does not fit the span pays for the
 * levels, and one move more.
 *
 * Memory. See wheel.c. Here a cursor runs ahead of the first slot, about a word, and
 * has fetched the classes of those that it passes; one that it passed some time
 * ago has its requests fetched, and the second class of its slot. A class that is
 * popped from the levels has the second or third slot after it fetched, and two more
 * items of the slot that will be emptied next.
 */
#include <stdlib.h>
#include <string.h>

#include "wheel.h"

/* How many items a word of slots is to have. */
#define WORD_ITEMS_MIN      6
#define WORD_ITEMS_FEW      16
#define WORD_ITEMS_MAX      96
#define WIDTH_STEP          2           /* four times as wide, or a quarter */

static inline uint32_t base_word(const WheelNear *near)
{
    return near_slot_of(near, near->base_ns) / NEAR_WORD_SLOTS;
}

/* How many words a word is after that of the base. */
static inline uint32_t distance_of(const WheelNear *near, uint32_t word)
{
    return (word - base_word(near)) & (NEAR_WORDS - 1);
}

static void set_width(WheelNear *near, unsigned shift)
{
    near->shift = shift;
    near->span_ns = (uint64_t)NEAR_SLOTS << shift;
    near->base_ns = near_word_start(near, near->base_ns);
    near->first_ns = UINT64_MAX;
}

WheelNear *near_new(uint32_t classes)
{
    WheelNear *near = aligned_alloc(CACHE_LINE_BYTES, sizeof(*near));

    if (!near) {
        return NULL;
    }
    memset(near, 0, sizeof(*near));
    set_width(near, NEAR_SHIFT_MIN);
    near->judged_pops = classes;
    near->far_first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < NEAR_SLOTS; i++) {
        near->heads[i] = WHEEL_NIL;
    }
    return near;
}

void near_free(WheelNear *near)
{
    free(near);
}

/* Which slots are not empty */

static inline void mark_word_empty(WheelNear *near, uint32_t word)
{
    uint64_t left = near->sums[word / 64] & ~(1ULL << word % 64);

    near->sums[word / 64] = left;
    near->sums_filled &= ~((uint64_t)!left << word / 64);
}

/* The first word that is not empty, from one on and around. There must be one. */
static inline uint32_t filled_word(const WheelNear *near, uint32_t from)
{
    uint32_t sum = from / 64;
    uint64_t left = near->sums[sum] & UINT64_MAX << from % 64;
    uint64_t sums;

    if (!left) {
        sums = near->sums_filled & (UINT64_MAX - 1) << sum;
        sum = __builtin_ctzll(sums ? sums : near->sums_filled);
        left = near->sums[sum];
    }
    return sum * 64 + __builtin_ctzll(left);
}

static uint32_t filled_word_after(const WheelNear *near, uint32_t word)
{
    return filled_word(near, (word + 1) & (NEAR_WORDS - 1));
}

/* Asking for memory */

/* The cursor goes on to a word ahead, if there is one. */
void near_fetch_word(WheelNear *near)
{
    uint32_t word, after;

    if (!near->sums_filled) {
        return;
    }
    word = filled_word_after(near, near->fetched_word);
    if (distance_of(near, word) <= distance_of(near, near->fetched_word)) {
        return;
    }
    near->fetched_word = word;
    near->unfetched = near->filled[word];
    after = (word + 1) & (NEAR_WORDS - 1);
    for (uint32_t i = 0; i < NEAR_WORD_SLOTS; i += CACHE_LINE_BYTES / 4) {
        __builtin_prefetch(&near->heads[after * NEAR_WORD_SLOTS + i], 1, 3);
    }
}

/* It starts again from the first word, and does not go beyond the one after it. */
static void restart_cursor(Wheel *wheel, uint32_t word)
{
    WheelNear *near = wheel->near;
    uint32_t after = filled_word_after(near, word);

    near->fetched_word = word;
    near->unfetched = near->filled[word];
    for (unsigned n = 0; n < FETCH_AHEAD; n++) {
        if (near->fetched_word == after && !near->unfetched) {
            return;
        }
        near_fetch_slot(wheel, near, 1);
    }
}

/*
 * The first word is another. The cursor belongs in it or in the one after it, where it
 * stays once it is there. It is elsewhere if it was left behind, or if what was put
 * into the ring since came before it.
 */
static void follow_with_cursor(Wheel *wheel, uint32_t word)
{
    WheelNear *near = wheel->near;

    if (near->fetched_word == word) {
        near_fetch_slot(wheel, near, 1);
    } else if (near->fetched_word != filled_word_after(near, word)) {
        restart_cursor(wheel, word);
    }
}

/* The first of all */

void near_publish_first(Wheel *wheel)
{
    const WheelNear *near = wheel->near;
    bool far = near->far_first_ns < near->first_ns;

    wheel->first_ns = far ? near->far_first_ns : near->first_ns;
    if (wheel->first_ns != UINT64_MAX) {
        wheel->likely = near_peek(wheel);
    }
}

/* The earliest of the items from one on, and how many they are. */
static uint32_t earliest_of(const WheelItem *items, uint32_t from,
                            uint32_t *count)
{
    uint32_t earliest = from;

    *count = 0;
    for (uint32_t i = from; i != WHEEL_NIL; i = items[i].next) {
        earliest = items[i].due_ns < items[earliest].due_ns ? i : earliest;
        ++*count;
    }
    return earliest;
}

static void find_first(WheelNear *near, const WheelItem *items)
{
    uint32_t count;

    near->first_ns = UINT64_MAX;
    if (near->sums_filled) {
        uint32_t word = filled_word(near, base_word(near));
        uint32_t slot = near_first_slot_of(near, word);

        near->first = earliest_of(items, near->heads[slot], &count);
        near->first_ns = items[near->first].due_ns;
    }
}

/* Items */

void near_put(Wheel *wheel, uint32_t place, uint64_t due_ns)
{
    near_link(wheel->near, wheel->items, place, due_ns);
}

void near_insert_far(Wheel *wheel, uint32_t class_index, uint64_t due_ns)
{
    WheelNear *near = wheel->near;

    assert(due_ns >= near->base_ns);
    if (!wheel->levels) {
        wheel->base_ns = near->base_ns;     /* the fewer levels to go down */
    }
    if (LIKELY(due_ns >= near->far_first_ns)) {
        wheel_place(wheel, WHEEL_FIRST_ITEM + class_index, due_ns);
        return;
    }
    wheel->first_ns = near->far_first_ns;
    wheel_insert_far(wheel, class_index, due_ns);
    near->far_first_ns = wheel->first_ns;
    near_publish_first(wheel);
}

void near_remove(Wheel *wheel, uint32_t class_index)
{
    WheelNear *near = wheel->near;
    uint32_t place = WHEEL_FIRST_ITEM + class_index;
    const WheelItem *item = &wheel->items[place];
    uint32_t slot = near_slot_of(near, item->due_ns);

    if (!(item->prev & WHEEL_IN_NEAR)) {
        wheel->first_ns = near->far_first_ns;
        wheel_remove_far(wheel, class_index);
        near->far_first_ns = wheel->first_ns;
    } else {
        if (near_unlink(near, wheel->items, place, slot)
            && !near->filled[slot / NEAR_WORD_SLOTS]) {
            mark_word_empty(near, slot / NEAR_WORD_SLOTS);
        }
        if (place == near->first) {
            find_first(near, wheel->items);
        }
    }
    near_publish_first(wheel);
}

uint32_t near_peek(const Wheel *wheel)
{
    const WheelNear *near = wheel->near;

    return (near->far_first_ns < near->first_ns
            ? wheel->items[wheel->first_place].next : near->first)
           - WHEEL_FIRST_ITEM;
}

/* The width of slots */

/* Takes all items out, and returns them in a chain. */
static uint32_t take_all(WheelNear *near, WheelItem *items)
{
    uint32_t chain = WHEEL_NIL;

    while (near->sums_filled) {
        uint32_t word = filled_word(near, 0);
        uint32_t slot = near_first_slot_of(near, word), next;

        for (uint32_t i = near->heads[slot]; i != WHEEL_NIL; i = next) {
            next = items[i].next;
            items[i].next = chain;
            chain = i;
        }
        near->heads[slot] = WHEEL_NIL;
        near->filled[word] &= near->filled[word] - 1;
        if (!near->filled[word]) {
            mark_word_empty(near, word);
        }
    }
    return chain;
}

static void change_width(Wheel *wheel, unsigned shift)
{
    WheelNear *near = wheel->near;
    uint32_t i = take_all(near, wheel->items), next;

    set_width(near, shift);
    if (!wheel->levels) {
        wheel->base_ns = near->base_ns;
    }
    for (; i != WHEEL_NIL; i = next) {
        uint64_t due_ns = wheel->items[i].due_ns;

        next = wheel->items[i].next;
        if (near_takes(near, due_ns)) {
            near_link(near, wheel->items, i, due_ns);
        } else {
            wheel_place(wheel, i, due_ns);
        }
    }
    wheel_find_first(wheel);
    near->far_first_ns = wheel->first_ns;
}

/* Should slots be wider, or narrower? By so many bits. */
static int wrong_by(const WheelNear *near)
{
    uint32_t here = near->pops - near->far_pops, words = near->words_left;
    uint32_t far = near->far_pops - (near->moved < near->far_pops
                                     ? near->moved : near->far_pops);

    if (near->moved > near->pops / 8 || here / WORD_ITEMS_MAX > words) {
        return -WIDTH_STEP;
    }
    if (here / WORD_ITEMS_MIN < words
        || (far > near->pops / 2 && here / WORD_ITEMS_FEW <= words)) {
        return WIDTH_STEP;
    }
    return 0;
}

/*
 * A word is to have some items: the cursor goes from word to word, and what does not
 * fit the span costs more. And a slot is to have few, which are looked through. Judged
 * whenever as many have been popped as there are classes, so that moving them all is
 * constant time for each.
 */
static void judge_width(Wheel *wheel)
{
    WheelNear *near = wheel->near;
    int shift;

    if (LIKELY(near->pops < near->judged_pops)) {
        return;
    }
    shift = (int)near->shift + wrong_by(near);
    near->pops = near->far_pops = near->words_left = near->moved = 0;
    if (shift != (int)near->shift && shift >= NEAR_SHIFT_MIN
        && shift <= NEAR_SHIFT_MAX) {
        change_width(wheel, shift);
        /* Where the cursor was is another time. */
        near->fetched_word = base_word(near);
        near->unfetched = 0;
    }
}

/* Popping */

/* On wider slots nobody asks ahead but here: for the classes of the slot after the
 * next, as far as it is found in the same word or the one after it. */
static inline __attribute__((always_inline))
void fetch_far(Wheel *wheel)
{
    uint32_t place = wheel->first_place, word = place / 64, first, last;
    const WheelMap *map = &wheel->maps[place / WHEEL_SLOTS];
    uint64_t later = map->slots[word % (WHEEL_SLOTS / 64)]
                     & (UINT64_MAX - 1) << place % 64;
    uint64_t after = later & (later - 1);

    later = after ? after : later;
    if (UNLIKELY(!after) && (word + 1) % (WHEEL_SLOTS / 64)
        && map->slots[(word + 1) % (WHEEL_SLOTS / 64)]) {
        word++;
        later = map->slots[word % (WHEEL_SLOTS / 64)];
    }
    if (LIKELY(later)) {
        place = word * 64 + __builtin_ctzll(later);
        first = wheel->items[place].next;
        last = wheel->items[place].prev;
        fetch_soon(wheel, first - WHEEL_FIRST_ITEM, 1);
        fetch_soon(wheel, last - WHEEL_FIRST_ITEM, first != last);
    }
}

/* Two more of the items that will move to other slots together. Each was asked for
 * the last time, and tells which is next; it may have moved since, nothing is lost. */
static inline void fetch_items(Wheel *wheel)
{
    wheel->front = wheel->items[wheel->front].next;
    wheel->back = wheel->items[wheel->back].prev & ~WHEEL_IN_NEAR;
    __builtin_prefetch(&wheel->items[wheel->front], 1, 3);
    __builtin_prefetch(&wheel->items[wheel->back], 1, 3);
}

uint32_t near_pop_far(Wheel *wheel)
{
    WheelNear *near = wheel->near;
    uint32_t popped;

    near->pops++;
    near->far_pops++;
    near->base_ns = near_word_start(near, wheel->first_ns);
    popped = wheel_pop_far(wheel);
    near->far_first_ns = wheel->first_ns;
    fetch_items(wheel);
    fetch_far(wheel);
    judge_width(wheel);
    near_publish_first(wheel);
    return popped;
}

/* The first slot has too many to look through them each time. Everything is due
 * at popped_ns or later, so the base of the levels may come here. */
static void move_slot_to_levels(Wheel *wheel, uint32_t slot, uint64_t popped_ns)
{
    WheelNear *near = wheel->near;
    uint32_t word = slot / NEAR_WORD_SLOTS, i = near->heads[slot];

    near->heads[slot] = WHEEL_NIL;
    near->filled[word] &= ~(1ULL << slot % NEAR_WORD_SLOTS);
    if (!near->filled[word]) {
        mark_word_empty(near, word);
    }
    wheel_advance(wheel, popped_ns);
    while (i != WHEEL_NIL) {
        uint32_t next = wheel->items[i].next;

        wheel_place(wheel, i, wheel->items[i].due_ns);
        i = next;
    }
    wheel_find_first(wheel);
    near->far_first_ns = wheel->first_ns;
}

void near_find_among_many(Wheel *wheel, uint32_t slot, uint64_t popped_ns)
{
    WheelNear *near = wheel->near;
    uint32_t count;

    near->first = earliest_of(wheel->items, near->heads[slot], &count);
    near->first_ns = wheel->items[near->first].due_ns;
    if (count > FEW_ITEMS && slot == near_slot_of(near, popped_ns)) {
        move_slot_to_levels(wheel, slot, popped_ns);
        find_first(near, wheel->items);
        near->moved += count;
        judge_width(wheel);
    }
    near_publish_first(wheel);
}

uint32_t near_leave_word(Wheel *wheel, uint32_t word)
{
    WheelNear *near = wheel->near;

    mark_word_empty(near, word);
    near->words_left++;
    judge_width(wheel);
    if (!near->sums_filled) {
        return WHEEL_NONE;
    }
    word = filled_word(near, base_word(near));
    follow_with_cursor(wheel, word);
    return near_first_slot_of(near, word);
}

/* Out of line */

SLUICE_HOT void near_insert_slowly(Wheel *wheel, uint32_t class_index,
                                   uint64_t due_ns)
{
    near_insert(wheel, class_index, due_ns);
}

SLUICE_HOT uint32_t near_pop_slowly(Wheel *wheel)
{
    return near_pop(wheel);
}
