/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Classes by a key, least first: a four-way heap whose entries carry the key,
 * so that a comparison never touches a class. Four siblings share a cache line.
 * Heaps may share the array that says where a class is, if it is in one of them
 * at most.
 */
#ifndef SLUICE_KEY_HEAP_H
#define SLUICE_KEY_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define KEY_HEAP_ARITY      4
#define KEY_HEAP_ABSENT     UINT32_MAX

typedef struct KeyEntry {
    uint64_t key;
    uint32_t class_index;
} KeyEntry;

typedef struct KeyHeap {
    KeyEntry *entries;          /* entries[0] has the least key */
    uint32_t *positions;        /* by class; KEY_HEAP_ABSENT: in none */
    uint32_t count;
    void *memory;
} KeyHeap;

/* Where classes are: nowhere yet. NULL: no memory; free() it. */
uint32_t *key_heap_positions_new(uint32_t classes);
/* `positions` stays the caller's. */
bool key_heap_init(KeyHeap *heap, uint32_t classes, uint32_t *positions);
void key_heap_destroy(KeyHeap *heap);

/* The least key, or UINT64_MAX. */
static inline uint64_t key_heap_first_key(const KeyHeap *heap)
{
    return heap->entries[0].key;
}

static inline uint32_t key_heap_first_class(const KeyHeap *heap)
{
    return heap->entries[0].class_index;
}

void key_heap_insert(KeyHeap *heap, uint32_t class_index, uint64_t key);
void key_heap_remove(KeyHeap *heap, uint32_t class_index);
/* One that is in here gets another key. */
void key_heap_update(KeyHeap *heap, uint32_t class_index, uint64_t key);
/* One that is in here changes places with the first of another heap, which
 * shares its positions: it goes there with `key`, that one comes with first_key. */
void key_heap_exchange(KeyHeap *heap, uint32_t class_index, uint64_t first_key,
                       KeyHeap *other, uint64_t key);

#endif
