/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Model. A tournament. Slots stand in fours; the most urgent of each four is
 * noted in an entry above them, the most urgent of four entries in one above
 * these, and so on to the first of all.
 *
 * Invariants. An entry has the greatest urgency below it, and whose that is; 0
 * where nobody is below. Entry i stands above the entries 4i to 4i+3, which
 * share a cache line: so a level begins at a power of four, and what is between two
 * levels is not used. Those from `parents` on stand above slots. Above the first
 * of all there is a fence, which nobody beats and who wins nowhere else. What
 * lies beyond the slots that are covered holds nobody.
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

#define NOBODY              UINT32_MAX
#define PARTS_LEVEL         3           /* below the first of all */

_Static_assert(KEY_TREE_PARTS == 1 << 2 * PARTS_LEVEL
               && KEY_TREE_PARTS * KEY_TREE_ARITY <= KEY_TREE_LARGE,
               "a large tree has an entry for each of its parts");

static const KeyEntry fence = { .urgency = UINT64_MAX, .class_index = NOBODY };

/* Entry 1 is below the fence, entry 0. */
static inline size_t above(size_t entry)
{
    return entry / KEY_TREE_ARITY;
}

static inline KeyEntry *above_slot(const KeyTree *tree, uint32_t slot)
{
    return &tree->entries[tree->parents + slot / KEY_TREE_ARITY];
}

static size_t rounded(size_t count, size_t to)
{
    return (count + to - 1) / to * to;
}

bool key_tree_init(KeyTree *tree, uint32_t slots, const uint32_t *classes)
{
    size_t parents = 1, most = KEY_TREE_ARITY, entries, bytes;

    assert(slots <= KEY_TREE_SLOTS_MAX);
    while (most < slots) {
        parents *= KEY_TREE_ARITY;
        most *= KEY_TREE_ARITY;
    }
    entries = rounded(parents + key_tree_room(slots) / KEY_TREE_ARITY,
                      KEY_TREE_ARITY);
    bytes = entries * sizeof(KeyEntry);
    /* Zeroed without being touched, which aligned_alloc() has no way to do. */
    tree->memory = calloc(1, CACHE_LINE_BYTES + bytes
                             + key_tree_room(slots) * sizeof(uint64_t));
    if (!tree->memory) {
        return false;
    }
    tree->entries = (KeyEntry *)rounded((uintptr_t)tree->memory,
                                        CACHE_LINE_BYTES);
    tree->urgencies = (uint64_t *)(tree->entries + entries);
    tree->classes = classes;
    tree->parents = parents;
    key_tree_cover_few(tree);
    return true;
}

void key_tree_cover_few(KeyTree *tree)
{
    tree->slots = KEY_TREE_ARITY;
    tree->first = &tree->entries[tree->parents];
    tree->entries[above(tree->parents)] = fence;
}

void key_tree_destroy(KeyTree *tree)
{
    free(tree->memory);
    tree->memory = NULL;
}

void key_tree_cover(KeyTree *tree, uint32_t slot)
{
    while (slot >= tree->slots) {
        size_t top = above(tree->first - tree->entries);

        assert(top > 0);
        tree->entries[top] = *tree->first;
        tree->entries[above(top)] = fence;
        tree->first = &tree->entries[top];
        tree->slots *= KEY_TREE_ARITY;
    }
    if (key_tree_is_large(tree)) {
        tree->parts = &tree->entries[KEY_TREE_PARTS
                                     * (tree->first - tree->entries)];
        tree->part_shift = __builtin_ctz(tree->slots) - 2 * PARTS_LEVEL;
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
void note(KeyEntry *entry, KeyEntry winner)
{
    entry->urgency = winner.urgency;
    entry->class_index = winner.class_index;
}

/* The entry above another, of a tree whose entries these are. */
static inline __attribute__((always_inline))
KeyEntry *entry_above(KeyEntry *entries, const KeyEntry *entry)
{
    size_t bytes = (const char *)entry - (const char *)entries;

    /* As above(), without dividing by the size and multiplying again. */
    return (KeyEntry *)((char *)entries
                        + (bytes / KEY_TREE_ARITY & -sizeof(KeyEntry)));
}

/* A class is more urgent than it was: it beats whom it can on its way up. */
static inline __attribute__((always_inline))
void rise(KeyEntry *entries, KeyEntry *entry, KeyEntry risen)
{
    while (risen.urgency > entry->urgency) {
        note(entry, risen);
        entry = entry_above(entries, entry);
    }
}

/* The entry whose place among its four siblings differs in these bytes: they share a
 * cache line, which begins with the first of them. */
static inline __attribute__((always_inline))
KeyEntry sibling(const KeyEntry *entry, size_t bytes)
{
    return *(const KeyEntry *)((uintptr_t)entry ^ bytes);
}

/*
 * It had won at the entry above its slot and is less urgent now: another may win
 * there, and wherever it had won. On each level the three others are compared first,
 * for which nobody has to know who won below. Of equals one of them wins: if it were
 * always the first one in the tree, those who are next would be neighbours, and be
 * fetched too late.
 */
static inline __attribute__((always_inline))
void fall(KeyTree *tree, KeyEntry *entry, uint32_t slot, KeyEntry fallen)
{
    const size_t one = sizeof(KeyEntry);
    KeyEntry *entries = tree->entries, *next;
    KeyEntry winner;

    winner = better(better(better(at_slot(tree, slot ^ 1), at_slot(tree, slot ^ 2)),
                           at_slot(tree, slot ^ 3)), fallen);
    note(entry, winner);
    for (next = entry_above(entries, entry);
         next->class_index == fallen.class_index;
         next = entry_above(entries, next)) {
        winner = better(better(better(sibling(entry, one), sibling(entry, 2 * one)),
                               sibling(entry, 3 * one)), winner);
        note(next, winner);
        entry = next;
    }
}

SLUICE_HOT void key_tree_insert(KeyTree *tree, uint32_t slot,
                                uint32_t class_index, uint64_t key)
{
    KeyEntry entry = { .urgency = ~key, .class_index = class_index };

    assert(slot < tree->slots);
    tree->urgencies[slot] = ~key;
    rise(tree->entries, above_slot(tree, slot), entry);
}

SLUICE_HOT void key_tree_remove(KeyTree *tree, uint32_t slot,
                                uint32_t class_index)
{
    KeyEntry *entry = above_slot(tree, slot);

    tree->urgencies[slot] = 0;
    if (entry->class_index == class_index) {
        fall(tree, entry, slot, (KeyEntry){ .class_index = class_index });
    }
}

SLUICE_HOT void key_tree_update(KeyTree *tree, uint32_t slot,
                                uint32_t class_index, uint64_t key)
{
    KeyEntry changed = { .urgency = ~key, .class_index = class_index };
    KeyEntry *winner = above_slot(tree, slot);

    tree->urgencies[slot] = changed.urgency;
    if (winner->class_index == changed.class_index
        && winner->urgency > changed.urgency) {
        fall(tree, winner, slot, changed);
    } else {
        rise(tree->entries, winner, changed);
    }
}
