/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two heaps of classes by key that share positions, beside arrays of keys. */
#include <stdlib.h>

#include "random.h"
#include "sluice/key-heap.h"
#include "tap.h"

#define CLASSES     300
#define STEPS       4000
#define NOWHERE     2

typedef struct Heaps {
    KeyHeap heaps[2];
    uint32_t *positions;
    Random random;
    unsigned where[CLASSES];    /* which heap, or NOWHERE */
    uint64_t keys[CLASSES];
} Heaps;

static uint64_t random_key(Heaps *h)
{
    return random_below(&h->random, 1000);      /* often the same */
}

/* A class that is in a heap, or nowhere; CLASSES: none. */
static uint32_t some_class(Heaps *h, unsigned where)
{
    uint32_t start = random_below(&h->random, CLASSES);

    for (uint32_t i = 0; i < CLASSES; i++) {
        if (h->where[(start + i) % CLASSES] == where) {
            return (start + i) % CLASSES;
        }
    }
    return CLASSES;
}

static void insert(Heaps *h, unsigned which)
{
    uint32_t class_index = some_class(h, NOWHERE);

    if (class_index < CLASSES) {
        h->keys[class_index] = random_key(h);
        h->where[class_index] = which;
        key_heap_insert(&h->heaps[which], class_index, h->keys[class_index]);
    }
}

static void exchange(Heaps *h, unsigned which, uint32_t class_index)
{
    KeyHeap *other = &h->heaps[!which];
    uint32_t first = key_heap_first_class(other);

    h->keys[class_index] = random_key(h);
    h->keys[first] = random_key(h);
    h->where[class_index] = !which;
    h->where[first] = which;
    key_heap_exchange(&h->heaps[which], class_index, h->keys[first], other,
                      h->keys[class_index]);
}

static void change(Heaps *h, unsigned which, uint32_t class_index)
{
    switch (random_below(&h->random, h->heaps[!which].count > 0 ? 3 : 2)) {
    case 0:
        h->where[class_index] = NOWHERE;
        key_heap_remove(&h->heaps[which], class_index);
        break;
    case 1:
        h->keys[class_index] = random_key(h);
        key_heap_update(&h->heaps[which], class_index, h->keys[class_index]);
        break;
    default:
        exchange(h, which, class_index);
    }
}

/* The first is the least, and those that are in are those that should be. */
static bool agrees(const Heaps *h, unsigned which)
{
    const KeyHeap *heap = &h->heaps[which];
    uint64_t least = UINT64_MAX;
    uint32_t count = 0;

    for (uint32_t i = 0; i < CLASSES; i++) {
        uint32_t position = h->positions[i];

        if (h->where[i] == NOWHERE && !check(position == KEY_HEAP_ABSENT)) {
            return false;
        }
        if (h->where[i] != which) {
            continue;
        }
        if (!check(position < heap->count)
            || !check_equal(heap->entries[position].class_index, i)
            || !check_equal(heap->entries[position].key, h->keys[i])) {
            return false;
        }
        count++;
        least = h->keys[i] < least ? h->keys[i] : least;
    }
    return check_equal(heap->count, count)
           && check_equal(key_heap_first_key(heap), least)
           && check(count == 0
                    || h->keys[key_heap_first_class(heap)] == least);
}

static bool both_agree(const Heaps *h)
{
    return agrees(h, 0) && agrees(h, 1);
}

static bool empty_in_order(Heaps *h, unsigned which)
{
    KeyHeap *heap = &h->heaps[which];
    bool ok = true;

    while (ok && heap->count > 0) {
        uint32_t first = key_heap_first_class(heap);

        h->where[first] = NOWHERE;
        key_heap_remove(heap, first);
        ok = both_agree(h);
    }
    return ok;
}

/* Fills and empties by turns, so that every depth is met. */
static bool run_steps(Heaps *h)
{
    bool ok = true;

    for (unsigned step = 0; ok && step < STEPS; step++) {
        bool filling = step / (STEPS / 8) % 2 == 0;
        unsigned which = random_below(&h->random, 2);
        uint32_t class_index = some_class(h, which);

        if (class_index == CLASSES
            || random_chance(&h->random, filling ? 60 : 10)) {
            insert(h, which);
        } else {
            change(h, which, class_index);
        }
        ok = both_agree(h);
    }
    return ok && empty_in_order(h, 0) && empty_in_order(h, 1);
}

static bool trace(uint64_t seed)
{
    static Heaps heaps;
    Heaps *h = &heaps;
    bool ok;

    *h = (Heaps){ .random = random_seeded(seed) };
    for (uint32_t i = 0; i < CLASSES; i++) {
        h->where[i] = NOWHERE;
    }
    h->positions = key_heap_positions_new(CLASSES);
    ok = check(h->positions)
         && check(key_heap_init(&h->heaps[0], CLASSES, h->positions))
         && check(key_heap_init(&h->heaps[1], CLASSES, h->positions))
         && run_steps(h);
    key_heap_destroy(&h->heaps[0]);
    key_heap_destroy(&h->heaps[1]);
    free(h->positions);
    return ok;
}

static void test_random_changes(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 10 + 1;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        if (!trace(seed + i)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

static const TapTest tests[] = {
    { "key-heap/property: insert, remove, update and exchange",
      test_random_changes },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
