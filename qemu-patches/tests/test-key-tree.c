/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A tournament of classes by key, beside arrays of keys. */
#include <stdlib.h>

#include "random.h"
#include "sluice/key-tree.h"
#include "tap.h"

#define SLOTS       300         /* a large tree of five levels, not all filled */
#define STEPS       4000
#define NOBODY      UINT64_MAX

typedef struct Tournament {
    KeyTree tree;
    Random random;
    uint32_t covered;           /* slots that are in use */
    uint32_t classes[SLOTS + KEY_TREE_ARITY];   /* by slot; not in its order */
    uint64_t keys[SLOTS];       /* by slot; or NOBODY */
} Tournament;

static uint64_t random_key(Tournament *t)
{
    uint64_t key = random_below(&t->random, 1000);      /* often the same */

    return random_chance(&t->random, 1) ? NOBODY - 1 - key : key;
}

/* A slot that holds a class, or that holds none; SLOTS: there is no such. */
static uint32_t some_slot(Tournament *t, bool holding)
{
    uint32_t start = random_below(&t->random, t->covered);

    for (uint32_t i = 0; i < t->covered; i++) {
        uint32_t slot = (start + i) % t->covered;

        if ((t->keys[slot] != NOBODY) == holding) {
            return slot;
        }
    }
    return SLOTS;
}

static void insert(Tournament *t, uint32_t slot)
{
    t->keys[slot] = random_key(t);
    key_tree_insert(&t->tree, slot, t->classes[slot], t->keys[slot]);
}

static void remove_one(Tournament *t, uint32_t slot)
{
    t->keys[slot] = NOBODY;
    key_tree_remove(&t->tree, slot, t->classes[slot]);
}

static void change(Tournament *t, uint32_t slot)
{
    if (random_chance(&t->random, 50)) {
        remove_one(t, slot);
    } else {
        t->keys[slot] = random_key(t);
        key_tree_update(&t->tree, slot, t->classes[slot], t->keys[slot]);
    }
}

/* Of so many slots from one on: whether the winner noted has the least key. */
static bool wins(const Tournament *t, const KeyEntry *winner, uint32_t from,
                 uint32_t count)
{
    uint64_t least = NOBODY, of_winner = NOBODY;

    for (uint32_t slot = from; slot < from + count && slot < t->covered; slot++) {
        least = t->keys[slot] < least ? t->keys[slot] : least;
        if (t->classes[slot] == winner->class_index) {
            of_winner = t->keys[slot];
        }
    }
    return check_equal(~winner->urgency, least)
           && (least == NOBODY || check_equal(of_winner, least));
}

static bool agrees(const Tournament *t)
{
    const KeyTree *tree = &t->tree;
    bool ok = wins(t, tree->first, 0, t->covered)
              && check_equal(key_tree_first_key(tree), ~tree->first->urgency)
              && check(key_tree_is_empty(tree)
                       == (key_tree_first_key(tree) == NOBODY));

    for (uint32_t slot = 0; ok && tree->slots >= KEY_TREE_LARGE
                            && slot < t->covered;
         slot += tree->slots / KEY_TREE_PARTS) {
        ok = wins(t, key_tree_of_part(tree, slot), slot,
                  tree->slots / KEY_TREE_PARTS);
    }
    return ok;
}

static void cover_more(Tournament *t)
{
    if (t->covered < SLOTS) {
        key_tree_cover(&t->tree, t->covered++);
    }
}

static bool empty_in_order(Tournament *t)
{
    bool ok = true;

    while (ok && !key_tree_is_empty(&t->tree)) {
        uint32_t slot = 0;

        while (t->classes[slot] != key_tree_first_class(&t->tree)) {
            slot++;
        }
        remove_one(t, slot);
        ok = agrees(t);
    }
    return ok;
}

/* Fills and empties by turns, while the tree grows. */
static bool run_steps(Tournament *t)
{
    bool ok = true;

    for (unsigned step = 0; ok && step < STEPS; step++) {
        bool filling = step / (STEPS / 8) % 2 == 0;
        uint32_t held = some_slot(t, true), empty = some_slot(t, false);

        if (random_chance(&t->random, 15)) {
            cover_more(t);
        }
        if (empty < SLOTS
            && (held == SLOTS || random_chance(&t->random, filling ? 60 : 10))) {
            insert(t, empty);
        } else {
            change(t, held);
        }
        ok = agrees(t);
    }
    return ok && empty_in_order(t);
}

static bool trace(uint64_t seed)
{
    static Tournament tournament;
    Tournament *t = &tournament;
    bool ok;

    *t = (Tournament){ .random = random_seeded(seed) };
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        t->classes[slot] = (slot * 7 + 3) % SLOTS;
        t->keys[slot] = NOBODY;
    }
    ok = check(key_tree_room(SLOTS) <= SLOTS + KEY_TREE_ARITY)
         && check(key_tree_init(&t->tree, SLOTS, t->classes));
    if (ok) {
        cover_more(t);
        ok = check(key_tree_is_empty(&t->tree)) && run_steps(t);
        /* Once more, from a low tree on. */
        key_tree_lower(&t->tree);
        t->covered = 0;
        cover_more(t);
        ok = ok && check_equal(t->tree.slots, KEY_TREE_ARITY) && run_steps(t);
    }
    key_tree_destroy(&t->tree);
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

/* Not always the one in front, or those in front would all be next: of eight in a
 * row, each is of another part of the tree. */
static void test_equals_take_turns(void)
{
    enum { IN_A_ROW = 8, PART = KEY_TREE_LARGE / KEY_TREE_PARTS };
    static uint32_t classes[KEY_TREE_LARGE];
    uint32_t parts[IN_A_ROW];
    KeyTree tree = { 0 };

    for (uint32_t i = 0; i < KEY_TREE_LARGE; i++) {
        classes[i] = i;
    }
    if (!check(key_tree_init(&tree, KEY_TREE_LARGE, classes))) {
        return;
    }
    key_tree_cover(&tree, KEY_TREE_LARGE - 1);
    for (uint32_t i = 0; i < KEY_TREE_LARGE; i++) {
        key_tree_insert(&tree, i, i, 5);
    }
    for (uint32_t i = 0; i < KEY_TREE_LARGE / 8; i++) {
        uint32_t first = key_tree_first_class(&tree);

        for (uint32_t j = 1; j < IN_A_ROW && j <= i; j++) {
            check(parts[(i - j) % IN_A_ROW] != first / PART);
        }
        parts[i % IN_A_ROW] = first / PART;
        key_tree_remove(&tree, first, first);
    }
    key_tree_destroy(&tree);
}

static const TapTest tests[] = {
    { "key-tree/property: insert, remove, update, cover and lower",
      test_random_changes },
    { "key-tree/equals take turns in a large tree", test_equals_take_turns },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
