/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The pool: frames come back unchanged, nothing is lost or shared. */
#include <string.h>

#include "sluice/pool.h"
#include "random.h"
#include "tap.h"

#define SLOTS   2000

static void fill(SluicePool *pool, SluicePooled pooled, uint32_t value)
{
    struct iovec pieces[SLUICE_POOL_PIECES_MAX];
    unsigned count = sluice_pool_pieces(pool, pooled, pieces);

    for (unsigned i = 0; i < count; i++) {
        memset(pieces[i].iov_base, (value + i) & 0xff, pieces[i].iov_len);
    }
}

static bool holds(SluicePool *pool, SluicePooled pooled, uint32_t value)
{
    struct iovec pieces[SLUICE_POOL_PIECES_MAX];
    unsigned count = sluice_pool_pieces(pool, pooled, pieces);
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        const uint8_t *piece = pieces[i].iov_base;

        for (size_t b = 0; b < pieces[i].iov_len; b++) {
            if (piece[b] != ((value + i) & 0xff)) {
                return false;
            }
        }
        bytes += pieces[i].iov_len;
    }
    return bytes == pooled.bytes;
}

static void test_sizes(void)
{
    SluicePool *pool = sluice_pool_new();
    SluicePooled pooled = { 0 };
    size_t head;

    check(!sluice_pool_take(pool, 1, &pooled));
    check(sluice_pool_grow(pool, 1));
    check_equal(sluice_pool_chunks(pool), SLUICE_POOL_SEGMENT_CHUNKS);
    check(!sluice_pool_take(pool, 0, &pooled));
    check(!sluice_pool_take(pool, SLUICE_POOL_FRAME_BYTES_MAX + 1, &pooled));
    check_equal(pooled.bytes, 0);
    check(sluice_pool_take(pool, SLUICE_POOL_FRAME_BYTES_MAX, &pooled));
    check_equal(sluice_pool_chunks_used(pool), SLUICE_POOL_PIECES_MAX);
    fill(pool, pooled, 1);
    check(holds(pool, pooled, 1));
    check_equal(*sluice_pool_head(pool, pooled, &head), 1);
    check_equal(head, SLUICE_CHUNK_BYTES);
    sluice_pool_give(pool, &pooled);
    check_equal(sluice_pool_chunks_used(pool), 0);
    check(sluice_pool_take(pool, SLUICE_CHUNK_BYTES + 1, &pooled));
    check_equal(sluice_pool_chunks_used(pool), 2);
    sluice_pool_give(pool, &pooled);
    sluice_pool_free(pool);
}

static void test_grow(void)
{
    SluicePool *pool = sluice_pool_new();

    check(!sluice_pool_grow(pool, SLUICE_POOL_CHUNKS_MAX + 1));
    check_equal(sluice_pool_chunks(pool), 0);
    check(sluice_pool_grow(pool, SLUICE_POOL_SEGMENT_CHUNKS + 1));
    check_equal(sluice_pool_chunks(pool), 2 * SLUICE_POOL_SEGMENT_CHUNKS);
    check(sluice_pool_grow(pool, 1));
    check_equal(sluice_pool_chunks(pool), 2 * SLUICE_POOL_SEGMENT_CHUNKS);
    sluice_pool_free(pool);
    sluice_pool_free(NULL);
}

/* Frames come and go in any order, up to and beyond the size of the pool. */
static void test_random(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 20 + 1;
    uint64_t full = 0;

    for (uint64_t trace = 0; trace < traces; trace++) {
        Random random = random_seeded(seed + trace);
        SluicePool *pool = sluice_pool_new();
        SluicePooled frames[SLOTS] = { 0 };
        uint32_t used = 0;

        sluice_pool_grow(pool, 1);
        for (uint32_t step = 0; step < 20000; step++) {
            uint32_t slot = random_below(&random, SLOTS);
            SluicePooled *frame = &frames[slot];
            uint32_t chunks;

            if (frame->bytes) {
                if (!check(holds(pool, *frame, slot))) {
                    printf("# seed %" PRIu64 "\n", seed + trace);
                    sluice_pool_free(pool);
                    return;
                }
                used -= (frame->bytes + 255) / 256;
                sluice_pool_give(pool, frame);
                continue;
            }
            if (step % 5000 == 4999) {
                sluice_pool_grow(pool, sluice_pool_chunks(pool) + 1);
            }
            chunks = random_chance(&random, 90)
                     ? random_below(&random, 7) : random_below(&random, 300);
            if (sluice_pool_take(pool, chunks * 256 + 1, frame)) {
                used += chunks + 1;
                fill(pool, *frame, slot);
            } else {
                full++;
                check(used + chunks + 1 > sluice_pool_chunks(pool));
            }
            check_equal(sluice_pool_chunks_used(pool), used);
        }
        sluice_pool_free(pool);
    }
    check(full > 0);
}

static const TapTest tests[] = {
    { "pool/sizes", test_sizes },
    { "pool/grow", test_grow },
    { "pool/property: random frames", test_random },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
