/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Invariants: entries[i] has no greater key than its children entries[4i+1] to
 * entries[4i+4]; positions[entries[i].class_index] == i; the four entries beyond
 * the count have the greatest key, so that looking at the first is one load, and
 * choosing among four siblings needs neither a count nor a branch that is hard to
 * guess. What lies beyond them has never been touched.
 *
 * What leaves the top, or takes another's place there, belongs near the bottom
 * nearly always. So the gap goes down to the very bottom first, where nothing
 * has to be compared with the entry that will fill it, and then up (Wegener,
 * "Bottom-up heapsort", Theoretical Computer Science 118, 1993).
 */
#include <assert.h>
#include <stdlib.h>

#include "hot.h"
#include "key-heap.h"

/* Places entries[1], the first of four siblings, at the start of a line. */
#define LEADING_ENTRIES     (KEY_HEAP_ARITY - 1)

static void put(KeyHeap *heap, uint32_t position, KeyEntry entry)
{
    heap->entries[position] = entry;
    heap->positions[entry.class_index] = position;
}

static void mark_absent(KeyHeap *heap, uint32_t position)
{
    heap->entries[position] = (KeyEntry){ .key = UINT64_MAX };
}

uint32_t *key_heap_positions_new(uint32_t classes)
{
    uint32_t *positions = calloc(classes, sizeof(*positions));

    for (uint32_t i = 0; positions && i < classes; i++) {
        positions[i] = KEY_HEAP_ABSENT;
    }
    return positions;
}

bool key_heap_init(KeyHeap *heap, uint32_t classes, uint32_t *positions)
{
    size_t count = (size_t)classes + KEY_HEAP_ARITY;
    size_t bytes = (count + LEADING_ENTRIES) * sizeof(KeyEntry);

    bytes = (bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    heap->memory = aligned_alloc(CACHE_LINE_BYTES, bytes);
    heap->positions = positions;
    heap->count = 0;
    if (!heap->memory) {
        return false;
    }
    heap->entries = (KeyEntry *)heap->memory + LEADING_ENTRIES;
    for (uint32_t i = 0; i < KEY_HEAP_ARITY; i++) {
        mark_absent(heap, i);
    }
    return true;
}

void key_heap_destroy(KeyHeap *heap)
{
    free(heap->memory);
    heap->memory = NULL;
}

SLUICE_HOT static void sift_up(KeyHeap *heap, uint32_t position, KeyEntry entry)
{
    while (position > 0) {
        uint32_t parent = (position - 1) / KEY_HEAP_ARITY;

        if (heap->entries[parent].key <= entry.key) {
            break;
        }
        put(heap, position, heap->entries[parent]);
        position = parent;
    }
    put(heap, position, entry);
}

/* The least of the four siblings from `first` on. */
static uint32_t least_child(const KeyHeap *heap, uint32_t first)
{
    const KeyEntry *child = &heap->entries[first];
    uint64_t k0 = child[0].key, k1 = child[1].key;
    uint64_t k2 = child[2].key, k3 = child[3].key;
    uint32_t a = k1 < k0;
    uint32_t b = 2 + (k3 < k2);
    uint64_t first_key = k1 < k0 ? k1 : k0;
    uint64_t second_key = k3 < k2 ? k3 : k2;
    uint32_t second_pair = second_key < first_key;

    return first + (a ^ ((a ^ b) & -second_pair));
}

/* Fills the gap at a position: first it goes to the bottom, then up. */
SLUICE_HOT static void sift_down(KeyHeap *heap, uint32_t position, KeyEntry entry)
{
    uint32_t count = heap->count;
    uint32_t first = position * KEY_HEAP_ARITY + 1;

    while (first < count) {
        uint32_t child = least_child(heap, first);

        put(heap, position, heap->entries[child]);
        position = child;
        first = position * KEY_HEAP_ARITY + 1;
    }
    sift_up(heap, position, entry);
}

SLUICE_HOT void key_heap_insert(KeyHeap *heap, uint32_t class_index,
                                uint64_t key)
{
    KeyEntry entry = { .key = key, .class_index = class_index };

    assert(heap->positions[class_index] == KEY_HEAP_ABSENT);
    mark_absent(heap, heap->count + KEY_HEAP_ARITY);
    sift_up(heap, heap->count++, entry);
}

/* Puts an entry where it belongs, from a position that is free on. */
SLUICE_HOT static void settle(KeyHeap *heap, uint32_t position, KeyEntry entry)
{
    if (position > 0
        && heap->entries[(position - 1) / KEY_HEAP_ARITY].key > entry.key) {
        sift_up(heap, position, entry);
    } else {
        sift_down(heap, position, entry);
    }
}

SLUICE_HOT void key_heap_remove(KeyHeap *heap, uint32_t class_index)
{
    uint32_t position = heap->positions[class_index];
    KeyEntry last;

    assert(position < heap->count);
    heap->positions[class_index] = KEY_HEAP_ABSENT;
    last = heap->entries[--heap->count];
    mark_absent(heap, heap->count);
    if (position < heap->count) {
        settle(heap, position, last);
    }
}

SLUICE_HOT void key_heap_update(KeyHeap *heap, uint32_t class_index,
                                uint64_t key)
{
    uint32_t position = heap->positions[class_index];

    assert(position < heap->count);
    if (heap->entries[position].key != key) {
        settle(heap, position, (KeyEntry){ .key = key,
                                           .class_index = class_index });
    }
}

SLUICE_HOT void key_heap_exchange(KeyHeap *heap, uint32_t class_index,
                                  uint64_t first_key, KeyHeap *other,
                                  uint64_t key)
{
    uint32_t position = heap->positions[class_index];
    uint32_t first = key_heap_first_class(other);

    assert(heap != other && heap->positions == other->positions);
    assert(position < heap->count && other->count > 0);
    settle(heap, position, (KeyEntry){ .key = first_key,
                                       .class_index = first });
    sift_down(other, 0, (KeyEntry){ .key = key, .class_index = class_index });
}
