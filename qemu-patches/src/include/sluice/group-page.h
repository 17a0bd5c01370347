/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The group page: shared by the members of a group, in a file that all of
 * them map. The layout is docs/specs/group-page.md; the sizes are checked at
 * build time. Everything in here may have been written by a process that was
 * killed in the middle, or that is broken: read it once, check it, use it.
 *
 * Words are in the byte order of the host, naturally aligned, and only
 * accessed as atomics; words written by different processes lie in different pairs of
 * cache lines.
 */
#ifndef SLUICE_GROUP_PAGE_H
#define SLUICE_GROUP_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SLUICE_GROUP_MAGIC          "SLUICEGP"
#define SLUICE_GROUP_MAGIC_BYTES    8
#define SLUICE_GROUP_VERSION        1
#define SLUICE_GROUP_SLOTS          128
#define SLUICE_GROUP_NAME_BYTES     64      /* with the NUL */
#define SLUICE_GROUP_LABEL_WORDS    8
#define SLUICE_GROUP_LABEL_BYTES    (SLUICE_GROUP_LABEL_WORDS * 8)
#define SLUICE_GROUP_DEMAND_WORDS   (SLUICE_GROUP_SLOTS / 64)

typedef _Atomic uint64_t SluiceWord;

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && sizeof(SluiceWord) == 8,
               "a lock inside an atomic would die with its holder");

/* One member. Written by its owner only, except for owner, when reaped. */
typedef struct SluiceGroupSlot {
    SluiceWord owner;               /* 0: free; low half: process id */
    SluiceWord heartbeat_ns;
    SluiceWord weight;
    SluiceWord virtual_time;        /* start tag of its next request */
    SluiceWord demand_until_ns;     /* waits, and will have come by then */
    SluiceWord head_units;          /* the size of its next request */
    SluiceWord requests;            /* admitted, and their units */
    SluiceWord units;
    SluiceWord label[SLUICE_GROUP_LABEL_WORDS];     /* NUL-padded text */
} SluiceGroupSlot;

typedef struct SluiceGroupPage {
    /* Written once, by the creator, the magic last. */
    char magic[SLUICE_GROUP_MAGIC_BYTES];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slot_count;
    uint64_t created_ns;
    char name[SLUICE_GROUP_NAME_BYTES];
    uint8_t reserved_identity[32];

    /* The limit: one writer, the controller; odd sequence while it writes. */
    SluiceWord sequence;
    SluiceWord unit;                /* SluiceGroupUnit */
    SluiceWord rate;                /* units per second */
    SluiceWord burst;               /* units */
    SluiceWord base_ns;             /* the group's clock showed base_units */
    SluiceWord base_units;          /* at base_ns */
    SluiceWord check;               /* of the six words above */
    uint8_t reserved_limit[72];

    /* Written by every admitted request. */
    SluiceWord tat_units;           /* theoretical arrival time */
    SluiceWord virtual_time;        /* latest start tag admitted */
    uint8_t reserved_bucket[112];

    /* Bit i: the member in slot i waits for the group. */
    SluiceWord demand[SLUICE_GROUP_DEMAND_WORDS];
    uint8_t reserved_demand[112];

    SluiceGroupSlot slots[SLUICE_GROUP_SLOTS];
} SluiceGroupPage;

#define SLUICE_GROUP_HEADER_BYTES   512

_Static_assert(sizeof(SluiceGroupSlot) == 128, "as documented");
_Static_assert(offsetof(SluiceGroupPage, sequence) == 128, "as documented");
_Static_assert(offsetof(SluiceGroupPage, tat_units) == 256, "as documented");
_Static_assert(offsetof(SluiceGroupPage, demand) == 384, "as documented");
_Static_assert(offsetof(SluiceGroupPage, slots) == SLUICE_GROUP_HEADER_BYTES,
               "as documented");

#endif
