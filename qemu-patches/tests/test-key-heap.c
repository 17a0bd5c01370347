/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The heap of classes by key, beside an array of keys. */
#include "random.h"
#include "sluice/key-heap.h"
#include "tap.h"

#define CLASSES     300
#define STEPS       4000

typedef struct Heap {
    KeyHeap heap;
    Random random;
    bool present[CLASSES];
    uint64_t keys[CLASSES];
} Heap;

static uint64_t random_key(Heap *h)
{
    return random_below(&h->random, 1000);      /* often the same */
}

/* A class that is in the heap, or one that is not; CLASSES: none. */
static uint32_t some_class(Heap *h, bool present)
{
    uint32_t start = random_below(&h->random, CLASSES);

    for (uint32_t i = 0; i < CLASSES; i++) {
        if (h->present[(start + i) % CLASSES] == present) {
            return (start + i) % CLASSES;
        }
    }
    return CLASSES;
}

static void insert(Heap *h)
{
    uint32_t class_index = some_class(h, false);

    if (class_index < CLASSES) {
        h->keys[class_index] = random_key(h);
        h->present[class_index] = true;
        key_heap_insert(&h->heap, class_index, h->keys[class_index]);
    }
}

static void change(Heap *h, uint32_t class_index)
{
    uint32_t by = some_class(h, false);

    switch (random_below(&h->random, by < CLASSES ? 3 : 2)) {
    case 0:
        h->present[class_index] = false;
        key_heap_remove(&h->heap, class_index);
        break;
    case 1:
        h->keys[class_index] = random_key(h);
        key_heap_update(&h->heap, class_index, h->keys[class_index]);
        break;
    default:
        h->keys[by] = random_key(h);
        h->present[class_index] = false;
        h->present[by] = true;
        key_heap_replace(&h->heap, class_index, by, h->keys[by]);
    }
}

/* The first is the least, and those that are in are those that should be. */
static bool agrees(const Heap *h)
{
    uint64_t least = UINT64_MAX;
    uint32_t count = 0;

    for (uint32_t i = 0; i < CLASSES; i++) {
        bool present = h->heap.positions[i] != KEY_HEAP_ABSENT;

        if (!check(present == h->present[i])) {
            return false;
        }
        count += present;
        least = present && h->keys[i] < least ? h->keys[i] : least;
    }
    return check_equal(h->heap.count, count)
           && check_equal(key_heap_first_key(&h->heap), least)
           && check(count == 0
                    || h->keys[key_heap_first_class(&h->heap)] == least);
}

/* Fills and empties by turns, so that every depth is met. */
static bool trace(uint64_t seed)
{
    static Heap heap;
    Heap *h = &heap;
    bool ok;

    *h = (Heap){ .random = random_seeded(seed) };
    ok = check(key_heap_init(&h->heap, CLASSES));
    for (unsigned step = 0; ok && step < STEPS; step++) {
        bool filling = step / (STEPS / 8) % 2 == 0;
        uint32_t class_index = some_class(h, true);

        if (class_index == CLASSES
            || random_chance(&h->random, filling ? 60 : 10)) {
            insert(h);
        } else {
            change(h, class_index);
        }
        ok = agrees(h);
    }
    while (ok && h->heap.count > 0) {
        uint32_t first = key_heap_first_class(&h->heap);

        h->present[first] = false;
        key_heap_remove(&h->heap, first);
        ok = agrees(h);
    }
    key_heap_destroy(&h->heap);
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
    { "key-heap/property: insert, remove, update and replace",
      test_random_changes },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
