/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small seeded generator (xorshift with a multiplied output): the same seed
 * gives the same trace on every machine. It can also deal out given bytes, by
 * which a fuzzer makes the decisions.
 */
#ifndef SLUICE_TESTS_RANDOM_H
#define SLUICE_TESTS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Random {
    uint64_t state;
    const uint8_t *bytes;       /* not NULL: these instead, then zeros */
    size_t left;
} Random;

static inline bool random_is_spent(const Random *random)
{
    return random->bytes && random->left == 0;
}

static inline uint64_t random_bytes(Random *random, unsigned count)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < count && random->left > 0; i++) {
        value = value << 8 | *random->bytes++;
        random->left--;
    }
    return value;
}

static inline uint64_t random_next(Random *random)
{
    uint64_t x = random->state;

    if (random->bytes) {
        return random_bytes(random, sizeof(uint64_t));
    }

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * 0x2545f4914f6cdd1dULL;
}

static inline Random random_seeded(uint64_t seed)
{
    /* The state must not be 0; neighbouring seeds must not look alike. */
    Random random = { .state = (seed + 1) * 0x9e3779b97f4a7c15ULL | 1 };

    for (int i = 0; i < 8; i++) {
        random_next(&random);
    }
    return random;
}

/* From 0 to limit - 1. */
static inline uint64_t random_below(Random *random, uint64_t limit)
{
    if (random->bytes && limit <= UINT16_MAX) {
        return random_bytes(random, limit <= UINT8_MAX ? 1 : 2) % limit;
    }
    return random_next(random) % limit;
}

static inline bool random_chance(Random *random, unsigned percent)
{
    return random_below(random, 100) < percent;
}

/* From 1 to 2^bits - 1, every magnitude equally likely. */
static inline uint64_t random_magnitude(Random *random, unsigned bits)
{
    unsigned length = 1 + random_below(random, bits);
    uint64_t top = 1ULL << (length - 1);

    return top | (random_below(random, top) & (top - 1));
}

#endif
