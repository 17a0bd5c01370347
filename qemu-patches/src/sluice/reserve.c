/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reservation of buffer space in proportion to rates.
 *
 * Model. A queue must take the frames that come in while its class waits for its next
 * turn, so it needs room in proportion to its rate: entries for a time, not a
 * number (PS section 4.5, after Druschel and Banga). Room is reserved, not
 * shared: no class ever takes an entry from another.
 *
 * A queue wishes the room that its operator gives, or 1/20 s at its rate and at least
 * SLUICE_QUEUE_BYTES_MIN. If the pool has room for all wishes, each gets its
 * own. Else each gets the smallest room, or less if it wished less, and the rest
 * of the pool is divided in proportion to the missing parts.
 *
 * Units. The pool is counted in chunks of SLUICE_CHUNK_BYTES. A frame of b
 * bytes takes ceil(b / chunk) of them, less than b / chunk + 1, so that
 * bytes / chunk + frames chunks hold any frames within a room.
 *
 * Invariants, for a pool of at least count * CHUNKS_MIN chunks.
 * - The rooms together need no more chunks than the pool has.
 * - No room is larger than its wish, none is smaller than the lesser of its
 *   wish and the smallest room.
 * - A used room takes at least one frame.
 */
#include <assert.h>

#include "sluice/reserve.h"

__extension__ typedef unsigned __int128 U128;

#define FRAMES_MIN  (SLUICE_QUEUE_BYTES_MIN / SLUICE_QUEUE_FRAME_BYTES)
#define CHUNKS_MIN  (SLUICE_QUEUE_BYTES_MIN / SLUICE_CHUNK_BYTES + FRAMES_MIN)

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t sluice_room_chunks(const SluiceQueueRoom *room)
{
    return room->bytes / SLUICE_CHUNK_BYTES + room->frames;
}

static SluiceQueueRoom wished_room(const SluiceQueueWish *wish)
{
    SluiceQueueRoom room = { .bytes = wish->limit_bytes };
    uint64_t frames = wish->limit_frames;

    if (!wish->used) {
        return (SluiceQueueRoom){ 0 };
    }
    if (!room.bytes) {
        room.bytes = wish->bytes_per_second / SLUICE_QUEUE_TIME_DIVISOR;
        if (room.bytes < SLUICE_QUEUE_BYTES_MIN) {
            room.bytes = SLUICE_QUEUE_BYTES_MIN;
        }
    }
    if (!frames) {
        frames = room.bytes / SLUICE_QUEUE_FRAME_BYTES;
    }
    room.frames = lower(frames ? frames : 1, UINT32_MAX);
    return room;
}

static SluiceQueueRoom smallest_room(const SluiceQueueRoom *wished)
{
    return (SluiceQueueRoom){
        .bytes = lower(wished->bytes, SLUICE_QUEUE_BYTES_MIN),
        .frames = lower(wished->frames, FRAMES_MIN),
    };
}

/* The part of `more` that falls to it when `left` of `missing` is there. Rounded
 * down, in the units of these: the parts together are not more than is left. */
static uint64_t share(uint64_t more, uint64_t left, uint64_t missing)
{
    return (uint64_t)((U128)more * left / missing);
}

void sluice_reserve(const SluiceQueueWish *wishes, SluiceQueueRoom *rooms,
                    unsigned count, uint64_t pool_chunks)
{
    uint64_t left = pool_chunks, missing = 0;

    for (unsigned i = 0; i < count; i++) {
        SluiceQueueRoom wished = wished_room(&wishes[i]);
        SluiceQueueRoom smallest = smallest_room(&wished);
        uint64_t chunks = sluice_room_chunks(&smallest);

        assert(chunks <= left);
        left -= chunks;
        missing += sluice_room_chunks(&wished) - chunks;
        rooms[i] = smallest;
    }
    for (unsigned i = 0; i < count; i++) {
        SluiceQueueRoom wished = wished_room(&wishes[i]);

        if (missing <= left) {
            rooms[i] = wished;
            continue;
        }
        rooms[i].bytes += share(wished.bytes / SLUICE_CHUNK_BYTES
                                - rooms[i].bytes / SLUICE_CHUNK_BYTES,
                                left, missing)
                          * SLUICE_CHUNK_BYTES;
        rooms[i].frames += share(wished.frames - rooms[i].frames, left,
                                 missing);
    }
}
