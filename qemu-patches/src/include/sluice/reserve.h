/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservation of buffer space: how many bytes and frames the queue of each
 * class may hold, so that all of them together fit into one pool of memory.
 */
#ifndef SLUICE_RESERVE_H
#define SLUICE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

/* A pool is handed out in chunks; a frame has chunks of its own. */
#define SLUICE_CHUNK_BYTES          256
/* The room of a queue however slow it is, and however scarce the memory. */
#define SLUICE_QUEUE_BYTES_MIN      (128 * 1024)
/* Without a limit of its own a queue holds this time's worth at its rate. */
#define SLUICE_QUEUE_TIME_DIVISOR   20          /* 1/20 s */
/* And one frame for so many bytes. */
#define SLUICE_QUEUE_FRAME_BYTES    128

typedef struct SluiceQueueWish {
    bool used;
    uint64_t bytes_per_second;  /* the rate the queue drains at; 0: not known */
    uint64_t limit_bytes;       /* the operator's; 0: from the rate */
    uint32_t limit_frames;      /* the operator's; 0: from the bytes */
} SluiceQueueWish;

typedef struct SluiceQueueRoom {
    uint64_t bytes;
    uint32_t frames;
} SluiceQueueRoom;

/* Chunks that hold any frames that a queue of this room may hold. */
uint64_t sluice_room_chunks(const SluiceQueueRoom *room);

/*
 * Gives each used wish its room, an unused one none, from a pool of that many
 * chunks, which must be enough for the smallest room of each (see reserve.c).
 */
void sluice_reserve(const SluiceQueueWish *wishes, SluiceQueueRoom *rooms,
                    unsigned count, uint64_t pool_chunks);

#endif
