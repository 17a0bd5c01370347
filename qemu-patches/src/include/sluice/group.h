/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice group: one limit shared by several engines of a host, in one or many
 * processes, in proportion to their weights. The essay is in group.c.
 *
 * The library is pure: it reads no clock, allocates nothing, opens nothing
 * and never waits for another process. The page is memory that the caller has
 * mapped; a member handle belongs to one caller, which serialises its calls.
 *
 * Units: times are nanoseconds of a clock that all members share
 * (CLOCK_MONOTONIC of the host); a group counts bytes or operations.
 */
#ifndef SLUICE_GROUP_H
#define SLUICE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/group-page.h"

#define SLUICE_GROUP_RATE_MAX       1000000000000ULL    /* units per second */
#define SLUICE_GROUP_BURST_MAX      (1ULL << 40)        /* units */
#define SLUICE_GROUP_WEIGHT_MAX     10000
#define SLUICE_GROUP_WEIGHT_DEFAULT 100

/* A member that waits and is this late for its turn is no longer waited for. */
#define SLUICE_GROUP_GRACE_NS       25000000ULL
/* So much of its past share a member that was idle may still claim. */
#define SLUICE_GROUP_CREDIT_NS      1000000ULL
/* A member that leaves its share is noticed after this, per waiting member. */
#define SLUICE_GROUP_RECHECK_NS     500000ULL
#define SLUICE_GROUP_RECHECK_MIN_NS 2000000ULL
#define SLUICE_GROUP_RECHECK_MAX_NS 20000000ULL
/* Call _keepalive() at least this often; without it a waiting member counts
 * for nothing after _ALIVE_NS, its slot is another's after _REAP_NS, and it
 * waits as long as it once seemed, though others gave tokens back. */
#define SLUICE_GROUP_KEEPALIVE_NS   100000000ULL
#define SLUICE_GROUP_ALIVE_NS       1000000000ULL
#define SLUICE_GROUP_REAP_NS        5000000000ULL
/* So much may another's time lie ahead of a clock that was read before;
 * a time beyond that is not believed. */
#define SLUICE_GROUP_AHEAD_NS       100000000ULL
/* A member that is refused again and again although its turn had come asks no sooner. */
#define SLUICE_GROUP_RETRY_NS       1000000ULL

typedef enum SluiceGroupUnit {
    SLUICE_GROUP_BYTES,
    SLUICE_GROUP_OPERATIONS,
    SLUICE_GROUP_UNITS          /* how many there are */
} SluiceGroupUnit;

typedef struct SluiceGroupLimit {
    SluiceGroupUnit unit;
    uint64_t rate;              /* 1.._RATE_MAX units per second */
    uint64_t burst;             /* 1.._BURST_MAX units */
} SluiceGroupLimit;

/* The fault of a page, or of the wish to join it. */
typedef enum SluiceGroupStatus {
    SLUICE_GROUP_OK,
    SLUICE_GROUP_TOO_SHORT,     /* fewer bytes than the layout has */
    SLUICE_GROUP_NO_MAGIC,      /* another kind of file, or not finished */
    SLUICE_GROUP_OTHER_VERSION, /* or other sizes */
    SLUICE_GROUP_NO_LIMIT,      /* rate, burst or unit missing or damaged */
    SLUICE_GROUP_FULL,          /* every slot belongs to a live member */
} SluiceGroupStatus;

/* The limit as last read, and the group's clock that it defines. */
typedef struct SluiceGroupClock {
    uint64_t sequence;          /* of the page, when read */
    SluiceGroupUnit unit;
    uint64_t rate;
    uint64_t burst;
    uint64_t base_ns;
    uint64_t base_units;
    uint64_t step_units;        /* units per nanosecond, whole */
    uint64_t step_fraction;     /* and 2^-64 */
    uint64_t grace_units;       /* the units of the rate in _GRACE_NS */
    uint64_t credit_units;      /* and in _CREDIT_NS */
    uint64_t request_max;       /* units of the largest request there is */
} SluiceGroupClock;

/* A member's own side; all fields belong to the library. */
typedef struct SluiceGroupMember {
    SluiceGroupPage *page;
    SluiceGroupSlot *slot;      /* NULL: none; the limit holds all the same */
    uint32_t index;             /* of the slot */
    uint32_t reap_cursor;
    uint64_t owner;
    uint64_t weight;
    uint64_t reciprocal;        /* 2^52 / weight */
    SluiceGroupClock clock;
    uint64_t virtual_time;
    uint64_t virtual_fraction;  /* 2^-32 */
    uint64_t group_time;        /* the group's latest virtual time, as seen */
    uint64_t active_ns;         /* when it last asked, or waited */
    uint64_t due_ns;            /* when to ask again, while demanding */
    uint64_t due_sequence;      /* of the limit that due_ns was reckoned with */
    uint64_t due_tat_units;     /* and the bucket */
    uint64_t refused_units;
    uint64_t refused_ns;        /* when it was refused last */
    uint32_t refusals;          /* in a row, soon after each other */
    uint64_t requests;
    uint64_t units;
    uint64_t label[SLUICE_GROUP_LABEL_WORDS];
    bool demanding;             /* others are told that it waits */
} SluiceGroupMember;

/* The page. The controller makes it and sets its limit. */
static inline size_t sluice_group_page_bytes(void)
{
    return sizeof(SluiceGroupPage);
}

/* Without a clock: whether its times are sound is seen by members that join. */
SluiceGroupStatus sluice_group_page_check(const void *memory, size_t bytes);

/* The contents of a page, for people. */
typedef struct SluiceGroupMemberInfo {
    uint32_t pid;
    uint32_t weight;            /* 0: damaged, the others do not wait for it */
    uint64_t requests;
    uint64_t units;
    bool waiting;
    char label[SLUICE_GROUP_LABEL_BYTES + 1];
} SluiceGroupMemberInfo;

/* False if the limit is damaged. */
bool sluice_group_limit(const SluiceGroupPage *page, uint64_t now_ns,
                        SluiceGroupLimit *limit);
/* False if the slot is free, or its member has been dead for _REAP_NS. */
bool sluice_group_member_info(const SluiceGroupPage *page, unsigned slot,
                              uint64_t now_ns, SluiceGroupMemberInfo *info);

/*
 * Members. `owner` is not 0 and differs between processes, with the process
 * id in its low half; `label` is its name, for people, and is cut to fit.
 */
SluiceGroupStatus sluice_group_join(SluiceGroupMember *member, void *memory,
                                    size_t bytes, uint64_t owner,
                                    const char *label, uint32_t weight,
                                    uint64_t now_ns);
void sluice_group_leave(SluiceGroupMember *member);
/* False, and nothing changed, if the weight is not 1.._WEIGHT_MAX. */
bool sluice_group_set_weight(SluiceGroupMember *member, uint32_t weight);
/* Also frees the slots of the dead, one a call. True if the limit has changed,
 * or tokens were given back, since the member was told when to ask again: it
 * should ask now. */
bool sluice_group_keepalive(SluiceGroupMember *member, uint64_t now_ns);

/* Data path. True: charged, the request goes on. False: it has to wait. */
bool sluice_group_admit(SluiceGroupMember *member, uint32_t bytes,
                        uint64_t now_ns);
/*
 * When to try again: an absolute time, not before now_ns. Tells the others
 * that this member waits; ask after an _admit() that said no, and again when
 * that time has come. _idle() takes it back.
 */
uint64_t sluice_group_next_ns(SluiceGroupMember *member, uint64_t now_ns);
void sluice_group_idle(SluiceGroupMember *member);
/* The cost of an admitted request in addition, or less if negative, in bytes.
 * Ask for the next time again. An operation costs an operation. */
void sluice_group_correct(SluiceGroupMember *member, int64_t bytes,
                          uint64_t now_ns);

/* An admitted request of so many bytes does not go on after all. */
void sluice_group_refund(SluiceGroupMember *member, uint32_t bytes,
                         uint64_t now_ns);

#endif
