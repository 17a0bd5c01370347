/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Invariants: entries[i] is due no later than its children entries[4i+1] to
 * entries[4i+4]; positions[entries[i].class_index] == i; entries beyond the
 * count say "never", so that looking at the first is one load, and choosing
 * among four siblings needs neither a count nor a branch that is hard to guess.
 */
#include <assert.h>
#include <stdlib.h>

#include "due-heap.h"

#define CACHE_LINE_BYTES    64
/* Places entries[1], the first of four siblings, at the start of a line. */
#define LEADING_ENTRIES     (DUE_HEAP_ARITY - 1)

static void put(DueHeap *heap, uint32_t position, DueEntry entry)
{
    heap->entries[position] = entry;
    heap->positions[entry.class_index] = position;
}

static void mark_absent(DueHeap *heap, uint32_t position)
{
    heap->entries[position] = (DueEntry){ .eligible_ns = UINT64_MAX };
}

bool due_heap_init(DueHeap *heap, uint32_t classes)
{
    /* The last group of siblings is read as a whole. */
    size_t count = (size_t)classes + DUE_HEAP_ARITY;
    size_t bytes = (count + LEADING_ENTRIES) * sizeof(DueEntry);

    bytes = (bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    heap->memory = aligned_alloc(CACHE_LINE_BYTES, bytes);
    heap->positions = calloc(classes, sizeof(*heap->positions));
    heap->count = 0;
    if (!heap->memory || !heap->positions) {
        due_heap_destroy(heap);
        return false;
    }
    heap->entries = (DueEntry *)heap->memory + LEADING_ENTRIES;
    for (size_t i = 0; i < count; i++) {
        mark_absent(heap, i);
    }
    for (uint32_t i = 0; i < classes; i++) {
        heap->positions[i] = DUE_HEAP_ABSENT;
    }
    return true;
}

void due_heap_destroy(DueHeap *heap)
{
    free(heap->memory);
    free(heap->positions);
    heap->memory = NULL;
    heap->positions = NULL;
}

static void sift_up(DueHeap *heap, uint32_t position, DueEntry entry)
{
    while (position > 0) {
        uint32_t parent = (position - 1) / DUE_HEAP_ARITY;

        if (heap->entries[parent].eligible_ns <= entry.eligible_ns) {
            break;
        }
        put(heap, position, heap->entries[parent]);
        position = parent;
    }
    put(heap, position, entry);
}

/* The earliest of the four siblings from `first` on. */
static uint32_t earliest_child(const DueHeap *heap, uint32_t first)
{
    const DueEntry *child = &heap->entries[first];
    uint64_t k0 = child[0].eligible_ns, k1 = child[1].eligible_ns;
    uint64_t k2 = child[2].eligible_ns, k3 = child[3].eligible_ns;
    uint32_t a = k1 < k0;
    uint32_t b = 2 + (k3 < k2);
    uint64_t first_ns = k1 < k0 ? k1 : k0;
    uint64_t second_ns = k3 < k2 ? k3 : k2;
    uint32_t second_pair = second_ns < first_ns;

    return first + (a ^ ((a ^ b) & -second_pair));
}

static void sift_down(DueHeap *heap, uint32_t position, DueEntry entry)
{
    for (;;) {
        uint64_t first = (uint64_t)position * DUE_HEAP_ARITY + 1;
        uint32_t child;

        if (first >= heap->count) {
            break;
        }
        child = earliest_child(heap, first);
        if (entry.eligible_ns <= heap->entries[child].eligible_ns) {
            break;
        }
        put(heap, position, heap->entries[child]);
        position = child;
    }
    put(heap, position, entry);
}

bool due_heap_only_first(const DueHeap *heap, uint64_t now_ns)
{
    return due_heap_first_ns(heap) <= now_ns
           && heap->entries[earliest_child(heap, 1)].eligible_ns > now_ns;
}

void due_heap_postpone_first(DueHeap *heap, uint64_t eligible_ns)
{
    DueEntry entry = heap->entries[0];

    assert(eligible_ns >= entry.eligible_ns);
    entry.eligible_ns = eligible_ns;
    sift_down(heap, 0, entry);
}

void due_heap_insert(DueHeap *heap, uint32_t class_index, uint64_t eligible_ns)
{
    DueEntry entry = { .eligible_ns = eligible_ns, .class_index = class_index };

    assert(heap->positions[class_index] == DUE_HEAP_ABSENT);
    sift_up(heap, heap->count++, entry);
}

void due_heap_remove(DueHeap *heap, uint32_t class_index)
{
    uint32_t position = heap->positions[class_index];
    DueEntry last;

    assert(position < heap->count);
    heap->positions[class_index] = DUE_HEAP_ABSENT;
    last = heap->entries[--heap->count];
    mark_absent(heap, heap->count);
    if (position < heap->count) {
        uint32_t parent = position ? (position - 1) / DUE_HEAP_ARITY : 0;

        if (position > 0
            && heap->entries[parent].eligible_ns > last.eligible_ns) {
            sift_up(heap, position, last);
        } else {
            sift_down(heap, position, last);
        }
    }
}
