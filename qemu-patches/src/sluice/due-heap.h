/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The classes that wait for their own bucket, by eligible time: a four-way
 * heap whose entries carry the time, so that a comparison never touches a
 * class. Four siblings share a cache line.
 */
#ifndef SLUICE_DUE_HEAP_H
#define SLUICE_DUE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define DUE_HEAP_ARITY      4
#define DUE_HEAP_ABSENT     UINT32_MAX

typedef struct DueEntry {
    uint64_t eligible_ns;
    uint32_t class_index;
} DueEntry;

typedef struct DueHeap {
    DueEntry *entries;          /* entries[0] is the first due */
    uint32_t *positions;        /* by class; DUE_HEAP_ABSENT: not in here */
    uint32_t count;
    void *memory;
} DueHeap;

bool due_heap_init(DueHeap *heap, uint32_t classes);
void due_heap_destroy(DueHeap *heap);

/* When the first is due, or UINT64_MAX. */
static inline uint64_t due_heap_first_ns(const DueHeap *heap)
{
    return heap->entries[0].eligible_ns;
}

static inline uint32_t due_heap_first_class(const DueHeap *heap)
{
    return heap->entries[0].class_index;
}

/* Is the first due at now_ns, and nobody else? */
bool due_heap_only_first(const DueHeap *heap, uint64_t now_ns);

/* Gives the first another, later time. */
void due_heap_postpone_first(DueHeap *heap, uint64_t eligible_ns);
void due_heap_insert(DueHeap *heap, uint32_t class_index, uint64_t eligible_ns);
void due_heap_remove(DueHeap *heap, uint32_t class_index);

#endif
