/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A ceiling of one byte per microsecond, under which classes are kept backlogged;
 * time goes from event to event.
 */
#ifndef SLUICE_TESTS_SHARE_LOAD_H
#define SLUICE_TESTS_SHARE_LOAD_H

#include <stdlib.h>
#include <string.h>

#include "evict.h"
#include "sluice/engine.h"
#include "exact-bucket.h"
#include "random.h"
#include "tap.h"

#define CLASSES     8
#define DEPTH       4
#define RATE        1000000         /* a byte is a microsecond */
#define SIZE_MAX_B  65536

typedef struct Load {
    SluiceEngine *engine;
    Random random;
    uint64_t now_ns;
    uint32_t classes;
    uint32_t size_max;
    uint32_t fixed_size;            /* not 0: all requests */
    uint64_t served[CLASSES];
    uint64_t requests;
    SluiceNode nodes[CLASSES][DEPTH];
} Load;

static inline uint32_t random_size(Load *load)
{
    return load->fixed_size ? load->fixed_size
                            : 1 + random_below(&load->random, load->size_max);
}

static inline void submit(Load *load, SluiceNode *node, uint32_t class_index)
{
    /* The ceiling is always in debt. */
    check_equal(sluice_engine_submit(load->engine, class_index, node,
                                     random_size(load), load->now_ns),
                SLUICE_HOLD);
}

static inline Load *new_load(uint64_t seed, uint32_t classes)
{
    Load *load = calloc(1, sizeof(*load));
    SluiceLimit ceiling = { .bytes_per_second = RATE, .burst_bytes = 1 };
    SluiceNode passed;

    load->random = random_seeded(seed);
    load->engine = sluice_engine_new(classes);
    load->classes = classes;
    load->size_max = SIZE_MAX_B;
    check(sluice_engine_set_ceiling(load->engine, &ceiling, 0));
    sluice_engine_submit(load->engine, 0, &passed, 1000, 0);
    return load;
}

static inline void set_class(Load *load, uint32_t class_index,
                             uint8_t priority, uint16_t weight,
                             uint64_t reservation)
{
    SluiceClassConfig config = {
        .priority = priority, .weight = weight,
        .reservation_bytes_per_second = reservation,
    };

    check(sluice_engine_set_class(load->engine, class_index, &config,
                                  load->now_ns));
}

static inline void fill(Load *load, uint32_t class_index)
{
    for (uint32_t i = 0; i < DEPTH; i++) {
        submit(load, &load->nodes[class_index][i], class_index);
    }
}

/* Serves one request; its class submits another. Its class, or UINT32_MAX. */
static inline uint32_t serve(Load *load)
{
    uint64_t event_ns = sluice_engine_next_event_ns(load->engine);
    SluiceNode *node;
    uint32_t class_index;

    if (!check(event_ns != SLUICE_NEVER)) {
        return UINT32_MAX;
    }
    load->now_ns = event_ns;
    node = sluice_engine_release(load->engine, event_ns);
    if (!check(node)) {
        return UINT32_MAX;
    }
    class_index = node->class_index;
    load->served[class_index] += node->bytes;
    load->requests++;
    submit(load, node, class_index);
    return class_index;
}

static inline void free_load(Load *load)
{
    while (evict(load->engine)) {
        /* Only its end matters. */
    }
    sluice_engine_free(load->engine);
    free(load);
}

static inline void run(const char *what, bool (*trace)(uint64_t seed),
                       unsigned divisor)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / divisor + 1;

    printf("# %s: seeds %" PRIu64 " to %" PRIu64 "\n", what, seed,
           seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        if (!trace(seed + i)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
}

#endif
