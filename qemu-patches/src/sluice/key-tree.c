/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Model. A tournament. Slots stand in fours; the most urgent of each four is
 * noted in an entry above them, the most urgent of four entries in one above
 * these, and so on to the first of all.
 *
 * Invariants. An entry has the greatest urgency below it, and whose that is; 0
 * where nobody is below. Entry i stands above the entries 4i+1 to 4i+4, which
 * share a cache line; those from `parents` on stand above slots. Above the first
 * of all there is a fence, which nobody beats and who wins nowhere else. What
 * lies beyond the slots that are covered has never been touched.
 *
 * Why not a heap. In a heap, where to go on is known only when four entries
 * have been compared, so each level waits for memory after the one above it, and
 * every entry that is moved has to be noted at its class. Here the way up is
 * known from the slot, its entries are fetched at once, and what is compared
 * decides by conditional moves, not by branches. A class that is not the most
 * urgent of its four, before and after, changes nothing but its slot.
 *
 * Cost. The first of all leaves in as many steps as the tree has levels, seven
 * for 10,000 slots, also if few of these are filled; any other change takes one or
 * two on average.
 */
#include <assert.h>
#include <stdlib.h>

#include "hot.h"
#include "key-tree.h"

/* Places entries[1], the first of four siblings, at the start of a line; the
 * last but one may be the fence. */
#define LEADING_ENTRIES     (KEY_TREE_ARITY - 1)
#define NOBODY              UINT32_MAX

static const KeyEntry fence = { .urgency = UINT64_MAX, .class_index = NOBODY };

/* Entry 0 is below the fence, entry -1. */
static inline ptrdiff_t above(ptrdiff_t entry)
{
    return (entry - 1) >> 2;
}

static inline ptrdiff_t above_slot(const KeyTree *tree, uint32_t slot)
{
    return (ptrdiff_t)tree->parents + slot / KEY_TREE_ARITY;
}

static size_t rounded(size_t count, size_t to)
{
    return (count + to - 1) / to * to;
}

bool key_tree_init(KeyTree *tree, uint32_t slots, const uint32_t *classes)
{
    size_t parents = 0, most = KEY_TREE_ARITY, entries, bytes;

    assert(slots <= KEY_TREE_SLOTS_MAX);
    while (most < slots) {
        parents = parents * KEY_TREE_ARITY + 1;
        most *= KEY_TREE_ARITY;
    }
    entries = parents + key_tree_room(slots) / KEY_TREE_ARITY;
    entries = 1 + rounded(entries - 1, KEY_TREE_ARITY);
    bytes = (LEADING_ENTRIES + entries) * sizeof(KeyEntry);
    /* Zeroed without being touched, which aligned_alloc() has no way to do. */
    tree->memory = calloc(1, CACHE_LINE_BYTES + bytes
                             + key_tree_room(slots) * sizeof(uint64_t));
    if (!tree->memory) {
        return false;
    }
    tree->entries = (KeyEntry *)rounded((uintptr_t)tree->memory,
                                        CACHE_LINE_BYTES) + LEADING_ENTRIES;
    tree->urgencies = (uint64_t *)(tree->entries + entries);
    tree->classes = classes;
    tree->parents = parents;
    tree->slots = KEY_TREE_ARITY;
    tree->first = &tree->entries[parents];
    tree->entries[above(parents)] = fence;
    return true;
}

void key_tree_destroy(KeyTree *tree)
{
    free(tree->memory);
    tree->memory = NULL;
}

void key_tree_cover(KeyTree *tree, uint32_t slot)
{
    while (slot >= tree->slots) {
        ptrdiff_t top = above(tree->first - tree->entries);

        assert(top >= 0);
        tree->entries[top] = *tree->first;
        tree->entries[above(top)] = fence;
        tree->first = &tree->entries[top];
        tree->slots *= KEY_TREE_ARITY;
        tree->last_four = &tree->entries[KEY_TREE_ARITY * top + 1];
        tree->last_sixteen = &tree->entries[KEY_TREE_ARITY
                                            * (KEY_TREE_ARITY * top + 1) + 1];
        tree->sixteen_shift = __builtin_ctz(tree->slots) - 4;
    }
}

/* The more urgent of two; without a branch, since it cannot be guessed. */
static inline __attribute__((always_inline))
KeyEntry better(KeyEntry a, KeyEntry b)
{
    bool second = b.urgency > a.urgency;

    return (KeyEntry){
        .urgency = second ? b.urgency : a.urgency,
        .class_index = second ? b.class_index : a.class_index,
    };
}

static inline __attribute__((always_inline))
KeyEntry at_slot(const KeyTree *tree, uint32_t slot)
{
    return (KeyEntry){ .urgency = tree->urgencies[slot],
                       .class_index = tree->classes[slot] };
}

static inline __attribute__((always_inline))
void note(KeyTree *tree, ptrdiff_t entry, KeyEntry winner)
{
    tree->entries[entry].urgency = winner.urgency;
    tree->entries[entry].class_index = winner.class_index;
}

/* A class is more urgent than it was: it beats whom it can on its way up. */
static inline __attribute__((always_inline))
void rise(KeyTree *tree, ptrdiff_t entry, KeyEntry risen)
{
    while (risen.urgency > tree->entries[entry].urgency) {
        note(tree, entry, risen);
        entry = above(entry);
    }
}

/* An entry `offset` bytes on. */
static inline __attribute__((always_inline))
KeyEntry at_offset(const KeyEntry *entries, size_t offset)
{
    return *(const KeyEntry *)((const char *)entries + offset);
}

/* It had won at the entry above its slot and is less urgent now: another may win
 * there, and wherever it had won. Of equals, that of the `turn`. */
static inline __attribute__((always_inline))
void fall_in_turn(KeyTree *tree, ptrdiff_t entry, uint32_t slot,
                  uint32_t class_index, uint32_t turn)
{
    uint32_t four = slot & ~(KEY_TREE_ARITY - 1);
    size_t a = turn * sizeof(KeyEntry), b = a ^ sizeof(KeyEntry);
    size_t c = a ^ 2 * sizeof(KeyEntry), d = a ^ 3 * sizeof(KeyEntry);
    KeyEntry winner;

    winner = better(better(at_slot(tree, four + turn),
                           at_slot(tree, four + (turn ^ 1))),
                    better(at_slot(tree, four + (turn ^ 2)),
                           at_slot(tree, four + (turn ^ 3))));
    note(tree, entry, winner);
    for (entry = above(entry); tree->entries[entry].class_index == class_index;
         entry = above(entry)) {
        const KeyEntry *below = &tree->entries[KEY_TREE_ARITY * entry + 1];

        winner = better(better(at_offset(below, a), at_offset(below, b)),
                        better(at_offset(below, c), at_offset(below, d)));
        note(tree, entry, winner);
    }
}

/* In a large tree it is another turn each time: if of equals always the first one
 * won, those who are next would be neighbours, and be fetched too late. */
static inline __attribute__((always_inline))
void fall(KeyTree *tree, ptrdiff_t entry, uint32_t slot, uint32_t class_index)
{
    if (LIKELY(!key_tree_is_large(tree))) {
        fall_in_turn(tree, entry, slot, class_index, 0);
    } else {
        fall_in_turn(tree, entry, slot, class_index,
                     tree->falls++ % KEY_TREE_ARITY);
    }
}

SLUICE_HOT void key_tree_insert(KeyTree *tree, uint32_t slot,
                                uint32_t class_index, uint64_t key)
{
    KeyEntry entry = { .urgency = ~key, .class_index = class_index };

    assert(slot < tree->slots);
    tree->urgencies[slot] = ~key;
    rise(tree, above_slot(tree, slot), entry);
}

SLUICE_HOT void key_tree_remove(KeyTree *tree, uint32_t slot,
                                uint32_t class_index)
{
    ptrdiff_t entry = above_slot(tree, slot);

    tree->urgencies[slot] = 0;
    if (tree->entries[entry].class_index == class_index) {
        fall(tree, entry, slot, class_index);
    }
}

SLUICE_HOT void key_tree_update(KeyTree *tree, uint32_t slot,
                                uint32_t class_index, uint64_t key)
{
    KeyEntry changed = { .urgency = ~key, .class_index = class_index };
    ptrdiff_t entry = above_slot(tree, slot);
    const KeyEntry *winner = &tree->entries[entry];

    tree->urgencies[slot] = changed.urgency;
    if (winner->class_index == changed.class_index
        && winner->urgency > changed.urgency) {
        fall(tree, entry, slot, changed.class_index);
    } else {
        rise(tree, entry, changed);
    }
}

uint64_t key_tree_take(KeyTree *tree, uint32_t slot)
{
    uint64_t taken = tree->urgencies[slot];

    key_tree_remove(tree, slot, tree->classes[slot]);
    return taken;
}

void key_tree_give(KeyTree *tree, uint32_t slot, uint64_t taken)
{
    key_tree_insert(tree, slot, tree->classes[slot], ~taken);
}
