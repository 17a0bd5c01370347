/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Classes by a key, least first: a tournament of four at a time. A class has a
 * slot, which is its own, so nobody has to note where it is. The essay is in
 * key-tree.c.
 */
#ifndef SLUICE_KEY_TREE_H
#define SLUICE_KEY_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_TREE_ARITY      4
#define KEY_TREE_LARGE      256         /* slots */
#define KEY_TREE_PARTS      64          /* of a large tree */
#define KEY_TREE_SLOTS_MAX  (1u << 30)

/* The urgency is the complement of the key: greater goes first, 0 is nobody. */
typedef struct KeyEntry {
    uint64_t urgency;
    uint32_t class_index;
} KeyEntry;

typedef struct KeyTree {
    KeyEntry *first;            /* who goes before all others */
    uint64_t *urgencies;        /* by slot */
    const uint32_t *classes;    /* by slot; the caller's */
    KeyEntry *entries;          /* the winners of four, and of four of these ... */
    uint32_t parents;           /* the entry of the first four slots */
    uint32_t slots;             /* so many may be used: four, sixteen ... */
    KeyEntry *parts;            /* three levels below the first: 64 entries */
    unsigned part_shift;        /* of a slot: to whom of these it belongs */
    void *memory;
} KeyTree;

/* How many elements an array of slots must have, since four are looked at. */
static inline size_t key_tree_room(uint32_t slots)
{
    return ((size_t)slots + KEY_TREE_ARITY - 1) / KEY_TREE_ARITY * KEY_TREE_ARITY;
}

/* `classes` says whose a slot is: key_tree_room() of them. It stays the
 * caller's. */
bool key_tree_init(KeyTree *tree, uint32_t slots, const uint32_t *classes);
void key_tree_destroy(KeyTree *tree);
/* Before a slot is used for the first time. The fewer, the lower the tree. */
void key_tree_cover(KeyTree *tree, uint32_t slot);
void key_tree_cover_few(KeyTree *tree);

/* Nobody is in the tree: it is as low as in the beginning. */
static inline void key_tree_lower(KeyTree *tree)
{
    if (tree->slots > KEY_TREE_ARITY) {
        key_tree_cover_few(tree);
    }
}

/* The least key, or UINT64_MAX. */
static inline uint64_t key_tree_first_key(const KeyTree *tree)
{
    return ~tree->first->urgency;
}

/* Whose it is; there must be one. */
static inline uint32_t key_tree_first_class(const KeyTree *tree)
{
    return tree->first->class_index;
}

static inline bool key_tree_is_empty(const KeyTree *tree)
{
    return !tree->first->urgency;
}

static inline bool key_tree_holds(const KeyTree *tree, uint32_t slot)
{
    return tree->urgencies[slot];
}

static inline bool key_tree_is_large(const KeyTree *tree)
{
    return tree->slots >= KEY_TREE_LARGE;
}

/* Who wins among a 64th of all slots, that with this slot in it: commonly one of
 * those who will be the first soon. Of a large tree. */
static inline const KeyEntry *key_tree_of_part(const KeyTree *tree,
                                               uint32_t slot)
{
    return &tree->parts[slot >> tree->part_shift];
}

/* Keys are less than UINT64_MAX. */
void key_tree_insert(KeyTree *tree, uint32_t slot, uint32_t class_index,
                     uint64_t key);
void key_tree_remove(KeyTree *tree, uint32_t slot, uint32_t class_index);
/* One that is in here gets another key. */
void key_tree_update(KeyTree *tree, uint32_t slot, uint32_t class_index,
                     uint64_t key);

#endif
