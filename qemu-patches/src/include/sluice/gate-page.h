/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate page: one window for all engines that use a device, in any number of
 * processes, in a file that all of them map. The layout is docs/specs/gate-page.md; the
 * essay is in gate-page.c, and words are as in group-page.h: everything in here may have
 * been written by a process that was killed in the middle, or that is broken.
 *
 * Pure: no clock, no allocation, and no waiting for another process. The page is memory
 * that the caller has mapped. A member belongs to one gate (gate.h), whose caller
 * serialises its calls.
 */
#ifndef SLUICE_GATE_PAGE_H
#define SLUICE_GATE_PAGE_H

#include <stdbool.h>

#include "sluice/group-page.h"

#define SLUICE_GATE_MAGIC           "SLUICEGT"
#define SLUICE_GATE_VERSION         1
#define SLUICE_GATE_SLOTS           128
#define SLUICE_GATE_USED_WORDS      (SLUICE_GATE_SLOTS / 64)
/* Call _keepalive() at least this often; the slot of a member that does not is another's
 * after _REAP_NS, and until then its bytes are in flight. */
#define SLUICE_GATE_KEEPALIVE_NS    100000000ULL
#define SLUICE_GATE_REAP_NS         5000000000ULL
/* Of `flags`: one reader at a time, for the device has an arm. */
#define SLUICE_GATE_RUNS            1ULL
/* A run lasts no longer, whatever the page says. */
#define SLUICE_GATE_RUN_MOST_NS     150000000ULL
/* Of `run`: the slot's number and 1; the rest is until when. 0: nobody's. */
#define SLUICE_GATE_RUN_SLOT        0xffULL
/* Of a member: the sum of its classes'. The most is 16 classes of 1000. */
#define SLUICE_GATE_WEIGHT_DEFAULT  100
#define SLUICE_GATE_WEIGHT_MOST     16000

/* One member. Written by its owner only, except for owner, when it is freed. */
typedef struct SluiceGateSlot {
    SluiceWord owner;               /* 0: free; low half: process id */
    SluiceWord heartbeat_ns;
    SluiceWord in_flight_bytes;     /* of its background */
    SluiceWord oldest_ns;           /* since when a stream's read is under way; 0: none */
    SluiceWord waits_until_ns;      /* it waits for the window, or has gone by then */
    SluiceWord weight;              /* 0: of a QEMU that knows none, the default */
    SluiceWord virtual_ns;          /* device time it had, per weight; modulo 2^64 */
    SluiceWord reserved[1];
    SluiceWord label[SLUICE_GROUP_LABEL_WORDS];     /* NUL-padded text */
} SluiceGateSlot;

typedef struct SluiceGatePage {
    /* Written once, by the creator, the magic last. */
    char magic[SLUICE_GROUP_MAGIC_BYTES];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slot_count;
    uint64_t created_ns;
    char name[SLUICE_GROUP_NAME_BYTES];
    uint64_t flags;                 /* SLUICE_GATE_RUNS; others are for later */
    uint8_t reserved_identity[24];

    /* Written by the member that wins an update. */
    SluiceWord window_bytes;        /* 0: the first one */
    SluiceWord updated_ns;
    SluiceWord shrunk_ns;
    SluiceWord run;                 /* until when, and whose: SLUICE_GATE_RUN_SLOT */
    uint8_t reserved_window[96];

    /* Since the last update. */
    SluiceWord completions;         /* of all members */
    SluiceWord latency_ns;          /* of these, summed */
    SluiceWord held;                /* not 0: the window held some member */
    uint8_t reserved_state[104];

    /* Bit i: slot i may have an owner. */
    SluiceWord used[SLUICE_GATE_USED_WORDS];
    uint8_t reserved_used[112];

    SluiceGateSlot slots[SLUICE_GATE_SLOTS];
} SluiceGatePage;

#define SLUICE_GATE_HEADER_BYTES    512

_Static_assert(sizeof(SluiceGateSlot) == 128, "as documented");
_Static_assert(offsetof(SluiceGatePage, window_bytes) == 128, "as documented");
_Static_assert(offsetof(SluiceGatePage, completions) == 256, "as documented");
_Static_assert(offsetof(SluiceGatePage, used) == 384, "as documented");
_Static_assert(offsetof(SluiceGatePage, slots) == SLUICE_GATE_HEADER_BYTES,
               "as documented");

typedef enum SluiceGateStatus {
    SLUICE_GATE_OK,
    SLUICE_GATE_TOO_SHORT,      /* fewer bytes than the layout has */
    SLUICE_GATE_NO_MAGIC,       /* another kind of file, or not finished */
    SLUICE_GATE_OTHER_VERSION,  /* or other sizes */
    SLUICE_GATE_FULL,           /* every slot belongs to a live member */
} SluiceGateStatus;

/* A member's own side; all fields belong to the library. */
typedef struct SluiceGateMember {
    SluiceGatePage *page;
    SluiceGateSlot *slot;       /* NULL: none; its gate then has a window of its own */
    uint32_t index;             /* of the slot */
    uint32_t reap_cursor;
    uint64_t owner;
    uint64_t in_flight_bytes;   /* as on the page */
    uint64_t oldest_ns;
    uint64_t weight;
    uint64_t virtual_ns;
    uint64_t label[SLUICE_GROUP_LABEL_WORDS];
} SluiceGateMember;

/* The other members, at one look. */
typedef struct SluiceGateOthers {
    uint64_t in_flight_bytes;
    uint64_t oldest_ns;         /* of those that a pause may help; 0: none */
    uint64_t weight;            /* of those that have or want something in flight */
    uint64_t least_virtual_ns;  /* of those that wait */
    bool waiting;               /* some do */
    uint64_t run_until_ns;      /* another's run; 0: none */
} SluiceGateOthers;

/* A member, for people. */
typedef struct SluiceGateMemberInfo {
    uint32_t pid;
    uint64_t in_flight_bytes;
    uint64_t weight;
    bool waiting;
    char label[SLUICE_GROUP_LABEL_BYTES + 1];
} SluiceGateMemberInfo;

/* The length of a page. */
static inline size_t sluice_gate_page_bytes(void)
{
    return sizeof(SluiceGatePage);
}
SluiceGateStatus sluice_gate_page_check(const void *memory, size_t bytes);
/* `owner` is not 0, has the process id in its low half, and is no other member's. */
SluiceGateStatus sluice_gate_join(SluiceGateMember *member, void *memory, size_t bytes,
                                  uint64_t owner, const char *label, uint64_t now_ns);
void sluice_gate_quit(SluiceGateMember *member);
/* Shows that it lives, claims a slot if it has lost its own, and frees those of the dead. */
void sluice_gate_keepalive(SluiceGateMember *member, uint64_t now_ns);
/* Has it a slot? If not, _others() and _show_waiting() may not be called. */
bool sluice_gate_is_member(SluiceGateMember *member);
/* False: the slot is free, or its owner dead. */
bool sluice_gate_member_info(const SluiceGatePage *page, unsigned slot, uint64_t now_ns,
                             SluiceGateMemberInfo *info);
/* Bytes in flight of all members that live. */
uint64_t sluice_gate_page_in_flight(const SluiceGatePage *page, uint64_t now_ns);

SluiceGateOthers sluice_gate_others(const SluiceGateMember *member, uint64_t now_ns);
/* Waits another that has less than its part of the window, and has had less device time
 * per weight than `virtual_ns`? `weight` is the sum of all that are active. */
bool sluice_gate_another_is_first(const SluiceGateMember *member, uint64_t window_bytes,
                                  uint64_t weight, uint64_t virtual_ns,
                                  uint64_t now_ns);
uint64_t sluice_gate_page_window(const SluiceGatePage *page);
void sluice_gate_set_page_window(SluiceGatePage *page, uint64_t bytes);
/* Bytes in flight from now on; without a slot they are shown with the next one. */
void sluice_gate_show_in_flight(SluiceGateMember *member, uint64_t bytes, uint64_t now_ns);
/* Until then it counts as one that waits; 0: it does not wait. */
void sluice_gate_show_waiting(SluiceGateMember *member, uint64_t until_ns);
/* Its run from now on, if no other member's is on: until then. False: it has none. */
bool sluice_gate_take_run(SluiceGateMember *member, uint64_t until_ns, uint64_t now_ns);
/* Its run as the others see it; 0 or the past: it is over. */
void sluice_gate_show_run(SluiceGateMember *member, uint64_t until_ns);
void sluice_gate_show_oldest(SluiceGateMember *member, uint64_t oldest_ns);
/* From 1 to SLUICE_GATE_WEIGHT_MOST. */
void sluice_gate_show_weight(SluiceGateMember *member, uint64_t weight);
void sluice_gate_show_virtual(SluiceGateMember *member, uint64_t virtual_ns);

#endif
