/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pool of chunks that holds frames of any size. Memory comes in segments,
 * which are only asked for by _grow(): keeping and dropping a frame allocates
 * nothing. The caller serialises the calls.
 */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "sluice/reserve.h"

#define SLUICE_POOL_SEGMENT_CHUNKS  4096        /* 1 MiB */
#define SLUICE_POOL_SEGMENTS_MAX    64
#define SLUICE_POOL_CHUNKS_MAX      (SLUICE_POOL_SEGMENT_CHUNKS \
                                     * SLUICE_POOL_SEGMENTS_MAX)
/* The size of the largest frame, and the pieces that it then lies in. */
#define SLUICE_POOL_FRAME_BYTES_MAX (96 * 1024)
#define SLUICE_POOL_PIECES_MAX      (SLUICE_POOL_FRAME_BYTES_MAX \
                                     / SLUICE_CHUNK_BYTES)

typedef struct SluicePool SluicePool;

/* A frame in the pool; bytes == 0: none. */
typedef struct SluicePooled {
    uint32_t first;             /* chunk */
    uint32_t bytes;
} SluicePooled;

SluicePool *sluice_pool_new(void);              /* NULL: memory is short */
void sluice_pool_free(SluicePool *pool);        /* with any contents */
/* Has that many chunks from now on, or more; false if memory is short or
 * SLUICE_POOL_CHUNKS_MAX is exceeded. Never shrinks. */
bool sluice_pool_grow(SluicePool *pool, uint32_t chunks);
uint32_t sluice_pool_chunks(const SluicePool *pool);
uint32_t sluice_pool_chunks_used(const SluicePool *pool);

/* Takes room for a frame of 1 to SLUICE_POOL_FRAME_BYTES_MAX bytes; false and
 * no change if there is none. */
bool sluice_pool_take(SluicePool *pool, size_t bytes, SluicePooled *pooled);
void sluice_pool_give(SluicePool *pool, SluicePooled *pooled);
/* The pieces of a frame, in order; returns how many there are. */
unsigned sluice_pool_pieces(const SluicePool *pool, SluicePooled pooled,
                            struct iovec pieces[SLUICE_POOL_PIECES_MAX]);
/* The first piece alone, where the headers are. */
uint8_t *sluice_pool_head(const SluicePool *pool, SluicePooled pooled,
                          size_t *bytes);

#endif
