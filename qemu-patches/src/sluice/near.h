/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ring in front of the wheel's levels. The essay is in near.c. Part of
 * wheel.h, which alone includes it.
 */
#ifndef SLUICE_NEAR_H
#define SLUICE_NEAR_H

#define NEAR_CLASSES_MIN    1024        /* fewer do not need the ring */
#define NEAR_SLOTS          65536
#define NEAR_WORD_SLOTS     64
#define NEAR_WORDS          (NEAR_SLOTS / NEAR_WORD_SLOTS)
#define NEAR_SUMS           (NEAR_WORDS / 64)
#define NEAR_SHIFT_MIN      WHEEL_FIRST_BITS    /* slots of 16 ns to a millisecond */
#define NEAR_SHIFT_MAX      20
/* With the narrowest slots: */
#define NEAR_WORD_NS        ((uint64_t)NEAR_WORD_SLOTS << NEAR_SHIFT_MIN)
#define NEAR_SPAN_NS        ((uint64_t)NEAR_SLOTS << NEAR_SHIFT_MIN)
#define WHEEL_IN_NEAR       (1u << 31)  /* of an item's prev */

#define FEW_ITEMS           8
#define FETCH_AHEAD         14          /* slots, to begin with */
#define FETCH_LAG           4       /* classes, until what belongs to one */
#define FETCHED_BYTES       (3 * CACHE_LINE_BYTES)  /* of SluiceClass */
#define FETCHED_REQUEST_BYTES   32      /* of SluiceNode */

typedef struct WheelNear {
    uint64_t first_ns;          /* the earliest here, or UINT64_MAX */
    uint64_t far_first_ns;      /* the same for the levels */
    uint64_t base_ns;           /* where the first word began; nothing is due
                                 * before */
    uint64_t span_ns;           /* of all slots */
    unsigned shift;             /* a slot is 2^shift ns wide */
    uint32_t first;             /* the item due at first_ns */
    uint32_t fetched_word;
    uint32_t judged_pops;       /* so many until the width is judged again */
    uint32_t pops;              /* since it was, */
    uint32_t far_pops;          /* of these, from the levels */
    uint32_t words_left;        /* words that were emptied */
    uint32_t moved;             /* items that moved from the ring to the levels */
    uint64_t unfetched;         /* of that word */
    WheelFetched passed;        /* by the cursor */
    uint64_t sums_filled;       /* a bit for each word of sums */
    uint64_t sums[NEAR_SUMS];   /* a bit for each word of slots */
    uint64_t filled[NEAR_WORDS];        /* a bit for each slot */
    uint32_t heads[NEAR_SLOTS] __attribute__((aligned(CACHE_LINE_BYTES)));
} WheelNear;

WheelNear *near_new(uint32_t classes);
void near_free(WheelNear *near);
/* Puts an item in that near_takes(). first_ns of the wheel is the caller's
 * business. */
void near_put(Wheel *wheel, uint32_t place, uint64_t due_ns);
void near_remove(Wheel *wheel, uint32_t class_index);
uint32_t near_peek(const Wheel *wheel);
/* The earlier of ring and levels becomes first_ns of the wheel. */
void near_publish_first(Wheel *wheel);

/* For who is seldom called, or seldom with a ring. */
void near_insert_slowly(Wheel *wheel, uint32_t class_index, uint64_t due_ns);
uint32_t near_pop_slowly(Wheel *wheel);

/* What near_insert() and near_pop() leave to others: what is due later, */
void near_insert_far(Wheel *wheel, uint32_t class_index, uint64_t due_ns);
/* what comes from there, */
uint32_t near_pop_far(Wheel *wheel);
/* a word that is now empty: the next one's first slot, or WHEEL_NONE, */
uint32_t near_leave_word(Wheel *wheel, uint32_t word);
/* three items or more in the slot that is now the first, */
void near_find_among_many(Wheel *wheel, uint32_t slot, uint64_t popped_ns);
/* and the cursor's way to the next word. */
void near_fetch_word(WheelNear *near);

/* wheel.c: the levels, of which wheel->first_ns then is the earliest. */
void wheel_find_first(Wheel *wheel);
void wheel_remove_far(Wheel *wheel, uint32_t class_index);
/* The base moves on to a time before which nothing is due. */
void wheel_advance(Wheel *wheel, uint64_t base_ns);

/* Slots */

static inline bool near_takes(const WheelNear *near, uint64_t due_ns)
{
    return due_ns - near->base_ns < near->span_ns;
}

static inline uint32_t near_slot_of(const WheelNear *near, uint64_t due_ns)
{
    return due_ns >> near->shift & (NEAR_SLOTS - 1);
}

static inline uint64_t near_word_start(const WheelNear *near, uint64_t time_ns)
{
    return time_ns & -((uint64_t)NEAR_WORD_SLOTS << near->shift);
}

/* True if it was not empty. */
static inline bool near_mark_filled(WheelNear *near, uint32_t slot)
{
    uint32_t word = slot / NEAR_WORD_SLOTS;
    uint64_t others = near->filled[word], bit = 1ULL << slot % NEAR_WORD_SLOTS;

    near->filled[word] = others | bit;
    if (UNLIKELY(!others)) {
        near->sums[word / 64] |= 1ULL << word % 64;
        near->sums_filled |= 1ULL << word / 64;
    }
    return others & bit;
}

static inline uint32_t near_first_slot_of(const WheelNear *near, uint32_t word)
{
    return word * NEAR_WORD_SLOTS + __builtin_ctzll(near->filled[word]);
}

/* Asking for memory */

/* Those lines of a class that a release needs. */
static inline __attribute__((always_inline))
void fetch_class(const Wheel *wheel, uint32_t class_index)
{
    const char *record = (const char *)&wheel->records[class_index];

    for (size_t b = 0; b < FETCHED_BYTES; b += CACHE_LINE_BYTES) {
        __builtin_prefetch(record + b, 0, 3);
    }
}

/* Callers put requests where they like, perhaps on two lines. There may be none. */
static inline __attribute__((always_inline))
void fetch_request(const void *request)
{
    __builtin_prefetch(request, 0, 3);
    __builtin_prefetch((const void *)((uintptr_t)request
                                      + FETCHED_REQUEST_BYTES - 1), 0, 3);
}

/* The first and last request of a class, which was fetched before. */
static inline __attribute__((always_inline))
void fetch_requests(const Wheel *wheel, uint32_t class_index)
{
    const WheelRecord *record = &wheel->records[class_index];

    fetch_request(record->first);
    fetch_request(record->last);
}

/*
 * A class is fetched, and the requests of the one that was FETCH_LAG classes ago: only
 * then is it known where they are. Returns that one. `counted`: none or one; a class
 * that is not is fetched and forgotten.
 */
static inline __attribute__((always_inline))
uint32_t fetch_after(const Wheel *wheel, WheelFetched *fetched,
                     uint32_t class_index, uint32_t counted)
{
    uint32_t count = fetched->count;
    uint32_t before = fetched->classes[(count - FETCH_LAG) % WHEEL_FETCHED];

    fetch_class(wheel, class_index);
    fetched->classes[count % WHEEL_FETCHED] = class_index;
    fetched->count = count + counted;
    fetch_requests(wheel, before);
    return before;
}

static inline __attribute__((always_inline))
void fetch_soon(Wheel *wheel, uint32_t class_index, uint32_t counted)
{
    fetch_after(wheel, &wheel->fetched, class_index, counted);
}

/* The slot under the cursor, which goes on by `slots`, none or one. */
static inline __attribute__((always_inline))
void near_fetch_slot(Wheel *wheel, WheelNear *near, uint32_t slots)
{
    const WheelItem *items = wheel->items;
    uint64_t left = near->unfetched;
    uint32_t head, before, second;

    if (UNLIKELY(!left)) {
        near_fetch_word(near);
        left = near->unfetched;
        if (!left) {
            return;
        }
    }
    head = near->heads[near->fetched_word * NEAR_WORD_SLOTS
                       + __builtin_ctzll(left)];
    near->unfetched = left & (left - slots);
    /* What was in it may have been removed. */
    head = head == WHEEL_NIL ? WHEEL_FIRST_ITEM : head;
    __builtin_prefetch(&items[head], 1, 3);
    before = fetch_after(wheel, &near->passed, head - WHEEL_FIRST_ITEM, slots);
    /* Is there a second in that slot? Its item is here by now. */
    second = items[before + WHEEL_FIRST_ITEM].next;
    if (UNLIKELY(second > WHEEL_NIL)) {
        fetch_after(wheel, &near->passed, second - WHEEL_FIRST_ITEM, slots);
    }
}

/* Items */

static inline void near_link(WheelNear *near, WheelItem *items, uint32_t place,
                             uint64_t due_ns)
{
    uint32_t slot = near_slot_of(near, due_ns), next = WHEEL_NIL;

    /* Most are empty, and who is in one that is not is far away in memory. */
    if (UNLIKELY(near_mark_filled(near, slot))) {
        next = near->heads[slot];
    }
    items[place] = (WheelItem){ .due_ns = due_ns, .next = next,
                                .prev = WHEEL_IN_NEAR | WHEEL_NIL };
    items[next].prev = WHEEL_IN_NEAR | place;
    near->heads[slot] = place;
    if (due_ns < near->first_ns) {
        near->first_ns = due_ns;
        near->first = place;
    }
}

/* Takes an item out of its slot; true if it was the last one there. */
static inline bool near_unlink(WheelNear *near, WheelItem *items,
                               uint32_t place, uint32_t slot)
{
    const WheelItem *item = &items[place];
    uint32_t prev = item->prev & ~WHEEL_IN_NEAR;
    uint32_t *link = prev == WHEEL_NIL ? &near->heads[slot] : &items[prev].next;
    bool emptied;

    *link = item->next;
    items[item->next].prev = item->prev;
    emptied = near->heads[slot] == WHEEL_NIL;
    near->filled[slot / NEAR_WORD_SLOTS] &=
        ~((uint64_t)emptied << slot % NEAR_WORD_SLOTS);
    return emptied;
}

static inline __attribute__((always_inline))
void near_insert(Wheel *wheel, uint32_t class_index,
                               uint64_t due_ns)
{
    WheelNear *near = wheel->near;

    if (UNLIKELY(!near_takes(near, due_ns))) {
        near_insert_far(wheel, class_index, due_ns);
        return;
    }
    near_link(near, wheel->items, WHEEL_FIRST_ITEM + class_index, due_ns);
    if (UNLIKELY(due_ns < wheel->first_ns)) {
        near_publish_first(wheel);
    }
}

static inline __attribute__((always_inline))
uint32_t near_pop(Wheel *wheel)
{
    WheelNear *near = wheel->near;
    WheelItem *items = wheel->items;
    uint64_t popped_ns = near->first_ns;
    uint32_t popped = near->first, slot = near_slot_of(near, popped_ns);
    uint32_t first, second;
    bool emptied;

    if (UNLIKELY(near->far_first_ns <= popped_ns)) {
        return near_pop_far(wheel);
    }
    near->pops++;
    near->base_ns = near_word_start(near, popped_ns);
    emptied = near_unlink(near, items, popped, slot);
    if (LIKELY(near->filled[slot / NEAR_WORD_SLOTS])) {
        slot = near_first_slot_of(near, slot / NEAR_WORD_SLOTS);
    } else {
        slot = near_leave_word(wheel, slot / NEAR_WORD_SLOTS);
        if (slot == WHEEL_NONE) {
            near->first_ns = UINT64_MAX;
            near_publish_first(wheel);
            return popped - WHEEL_FIRST_ITEM;
        }
    }
    near_fetch_slot(wheel, near, emptied);
    first = near->heads[slot];
    second = items[first].next;
    if (UNLIKELY(items[second].next != WHEEL_NIL)) {
        near_find_among_many(wheel, slot, popped_ns);
        return popped - WHEEL_FIRST_ITEM;
    }
    first = items[second].due_ns < items[first].due_ns ? second : first;
    popped_ns = items[first].due_ns;
    near->first = first;
    near->first_ns = popped_ns;
    wheel->first_ns = popped_ns < near->far_first_ns ? popped_ns
                                                     : near->far_first_ns;
    wheel->likely = first - WHEEL_FIRST_ITEM;
    return popped - WHEEL_FIRST_ITEM;
}

#endif
