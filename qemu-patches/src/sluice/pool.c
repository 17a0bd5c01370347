/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pool of chunks.
 *
 * Model. Chunks are numbered through all segments. Free ones form a list, last
 * in first out, and so do the chunks of a frame, by the same array of
 * successors. Chunks from `touched` on have never been used and are in no
 * list, so that memory which no load has needed is never touched, and the
 * kernel need not back it.
 *
 * Invariants. Each chunk below `touched` is in the free list or in exactly one
 * frame; free + those in frames + those never touched = all.
 */
#include <assert.h>
#include <stdlib.h>

#include "sluice/pool.h"

#define NO_CHUNK            UINT32_MAX
#define SEGMENT_BYTES       ((size_t)SLUICE_POOL_SEGMENT_CHUNKS \
                             * SLUICE_CHUNK_BYTES)

struct SluicePool {
    uint8_t *segments[SLUICE_POOL_SEGMENTS_MAX];
    uint32_t *next[SLUICE_POOL_SEGMENTS_MAX];
    uint32_t chunks;
    uint32_t touched;
    uint32_t used;
    uint32_t free;              /* first of the list */
};

static uint32_t *next_of(const SluicePool *pool, uint32_t chunk)
{
    return &pool->next[chunk / SLUICE_POOL_SEGMENT_CHUNKS]
                      [chunk % SLUICE_POOL_SEGMENT_CHUNKS];
}

static uint8_t *bytes_of(const SluicePool *pool, uint32_t chunk)
{
    return pool->segments[chunk / SLUICE_POOL_SEGMENT_CHUNKS]
           + (size_t)(chunk % SLUICE_POOL_SEGMENT_CHUNKS) * SLUICE_CHUNK_BYTES;
}

static uint32_t chunks_for(size_t bytes)
{
    return (bytes + SLUICE_CHUNK_BYTES - 1) / SLUICE_CHUNK_BYTES;
}

SluicePool *sluice_pool_new(void)
{
    SluicePool *pool = calloc(1, sizeof(*pool));

    if (pool) {
        pool->free = NO_CHUNK;
    }
    return pool;
}

void sluice_pool_free(SluicePool *pool)
{
    for (unsigned i = 0; pool && i < SLUICE_POOL_SEGMENTS_MAX; i++) {
        free(pool->segments[i]);
        free(pool->next[i]);
    }
    free(pool);
}

bool sluice_pool_grow(SluicePool *pool, uint32_t chunks)
{
    if (chunks > SLUICE_POOL_CHUNKS_MAX) {
        return false;
    }
    while (pool->chunks < chunks) {
        uint32_t segment = pool->chunks / SLUICE_POOL_SEGMENT_CHUNKS;

        pool->segments[segment] = malloc(SEGMENT_BYTES);
        pool->next[segment] = malloc(SLUICE_POOL_SEGMENT_CHUNKS
                                     * sizeof(uint32_t));
        if (!pool->segments[segment] || !pool->next[segment]) {
            free(pool->segments[segment]);
            free(pool->next[segment]);
            pool->segments[segment] = NULL;
            pool->next[segment] = NULL;
            return false;
        }
        pool->chunks += SLUICE_POOL_SEGMENT_CHUNKS;
    }
    return true;
}

uint32_t sluice_pool_chunks(const SluicePool *pool)
{
    return pool->chunks;
}

uint32_t sluice_pool_chunks_used(const SluicePool *pool)
{
    return pool->used;
}

static uint32_t take_chunk(SluicePool *pool)
{
    uint32_t chunk = pool->free;

    if (chunk == NO_CHUNK) {
        return pool->touched++;
    }
    pool->free = *next_of(pool, chunk);
    return chunk;
}

bool sluice_pool_take(SluicePool *pool, size_t bytes, SluicePooled *pooled)
{
    uint32_t chunks = chunks_for(bytes);
    uint32_t first = NO_CHUNK;

    if (bytes == 0 || bytes > SLUICE_POOL_FRAME_BYTES_MAX
        || chunks > pool->chunks - pool->used) {
        return false;
    }
    pool->used += chunks;
    while (chunks--) {
        uint32_t chunk = take_chunk(pool);

        *next_of(pool, chunk) = first;
        first = chunk;
    }
    *pooled = (SluicePooled){ .first = first, .bytes = bytes };
    return true;
}

void sluice_pool_give(SluicePool *pool, SluicePooled *pooled)
{
    uint32_t chunks = chunks_for(pooled->bytes);
    uint32_t chunk = pooled->first;

    assert(chunks <= pool->used);
    pool->used -= chunks;
    while (chunks--) {
        uint32_t next = *next_of(pool, chunk);

        *next_of(pool, chunk) = pool->free;
        pool->free = chunk;
        chunk = next;
    }
    *pooled = (SluicePooled){ 0 };
}

unsigned sluice_pool_pieces(const SluicePool *pool, SluicePooled pooled,
                            struct iovec pieces[SLUICE_POOL_PIECES_MAX])
{
    uint32_t chunk = pooled.first;
    size_t left = pooled.bytes;
    unsigned count = 0;

    while (left) {
        size_t bytes = left < SLUICE_CHUNK_BYTES ? left : SLUICE_CHUNK_BYTES;

        pieces[count++] = (struct iovec){ .iov_base = bytes_of(pool, chunk),
                                          .iov_len = bytes };
        left -= bytes;
        chunk = *next_of(pool, chunk);
    }
    return count;
}

uint8_t *sluice_pool_head(const SluicePool *pool, SluicePooled pooled,
                          size_t *bytes)
{
    *bytes = pooled.bytes < SLUICE_CHUNK_BYTES ? pooled.bytes
                                               : SLUICE_CHUNK_BYTES;
    return bytes_of(pool, pooled.first);
}
