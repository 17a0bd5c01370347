/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CoDel (RFC 8289): says which frame of a queue should carry the signal that
 * the queue stands too long, by being dropped or marked. Pure: time is an
 * argument, nothing is allocated, the queue itself is the caller's.
 *
 * Units: nanoseconds of any monotonic clock, bytes.
 */
#ifndef SLUICE_CODEL_H
#define SLUICE_CODEL_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 8289 section 4: TARGET and INTERVAL for the open Internet. */
#define SLUICE_CODEL_TARGET_NS      5000000ULL
#define SLUICE_CODEL_INTERVAL_NS    100000000ULL
/* Keeps the square of an interval below 2^64. */
#define SLUICE_CODEL_INTERVAL_MAX_NS    UINT32_MAX

/* All zero but the first two, which _configure() sets, is a queue at rest. */
typedef struct SluiceCodel {
    uint64_t target_ns;         /* how long a frame may wait */
    uint64_t interval_ns;       /* how long the queue may be above it */
    uint64_t tolerated_until_ns;    /* with above: the end of that interval */
    uint64_t next_signal_ns;    /* with signalling, or the one before */
    uint32_t count;             /* signals since signalling began */
    uint32_t count_at_start;    /* the first value of count, the last time */
    bool above;
    bool signalling;
} SluiceCodel;

/*
 * Sets target and interval for a queue of that rate (bytes per second; 0: not
 * known) whose largest frame has that many bytes. A spell in progress goes on.
 */
void sluice_codel_configure(SluiceCodel *codel, uint64_t bytes_per_second,
                            uint32_t largest_bytes);

/*
 * A frame leaves the queue after that long, with so many bytes left behind it.
 * True: signal. Where the signal is a drop, ask again for the frame that takes
 * the place of the dropped one; where it is a mark, do not.
 */
bool sluice_codel_dequeue(SluiceCodel *codel, uint64_t waited_ns,
                          uint64_t bytes_left, uint32_t largest_bytes,
                          uint64_t now_ns);

#endif
