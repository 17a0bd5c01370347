/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The group from inside: shared by group-page.c (the limit on the page),
 * group-member.c (the slots) and group.c (the decisions, and the essay).
 *
 * The group's clock shows base_units + dt * rate / 10^9, dt = now - base_ns, in
 * whole units, rounded down. The step per nanosecond is kept with 64 binary
 * places, rounded up: exact where a unit takes whole nanoseconds, and ahead by
 * less than a quarter of a unit even after dt = 2^62. It is counted modulo
 * 2^64; only differences mean anything.
 */
#ifndef SLUICE_GROUP_INTERNAL_H
#define SLUICE_GROUP_INTERNAL_H

#include "sluice/group.h"

#define GROUP_VIRTUAL_BITS      20      /* of a virtual time, below one unit */
#define GROUP_FRACTION_BITS     32      /* and below that, private */
/* A member that was away for longer can compare no virtual times any more. */
#define GROUP_STALE_NS          1000000000ULL

__extension__ typedef unsigned __int128 SluiceWide;

static inline uint64_t group_clock_units(const SluiceGroupClock *clock,
                                         uint64_t now_ns, uint64_t *fraction)
{
    uint64_t dt_ns = now_ns > clock->base_ns ? now_ns - clock->base_ns : 0;
    SluiceWide part = (SluiceWide)dt_ns * clock->step_fraction;

    *fraction = (uint64_t)part;
    return clock->base_units + dt_ns * clock->step_units
           + (uint64_t)(part >> 64);
}

/* The words of the limit: sequence, unit, rate, burst, base_ns, base_units. */
#define GROUP_LIMIT_WORDS       6

bool group_limit_is_valid(const SluiceGroupLimit *limit);
uint64_t group_check_of(const uint64_t words[GROUP_LIMIT_WORDS]);
/* Reads the limit if it is whole, in range, and by a clock that can be that of
 * this host; else false, and no change. */
bool group_clock_read(SluiceGroupClock *clock, const SluiceGroupPage *page,
                      uint64_t now_ns);

static inline uint64_t group_load(const SluiceWord *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void group_store(SluiceWord *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* At the start of a call: is the slot still ours, and the limit the same? */
void group_refresh(SluiceGroupMember *member, uint64_t now_ns);

/* Shows the others how far the member has come, and that it lives. */
static inline void group_publish(SluiceGroupMember *member, uint64_t now_ns)
{
    SluiceGroupSlot *slot = member->slot;

    if (slot) {
        group_store(&slot->virtual_time, member->virtual_time);
        group_store(&slot->requests, member->requests);
        group_store(&slot->units, member->units);
        group_store(&slot->heartbeat_ns, now_ns);
    }
}

static inline SluiceWord *group_demand_word(const SluiceGroupMember *member)
{
    return &member->page->demand[member->index / 64];
}

static inline uint64_t group_demand_bit(const SluiceGroupMember *member)
{
    return 1ULL << member->index % 64;
}

/* No further ahead than a clock that was read a moment ago explains? */
static inline bool group_can_be(uint64_t time_ns, uint64_t now_ns)
{
    return time_ns <= now_ns || time_ns - now_ns <= SLUICE_GROUP_AHEAD_NS;
}

static inline bool group_is_recent(uint64_t seen_ns, uint64_t now_ns,
                                   uint64_t limit_ns)
{
    /* A time in the future is another thread's, or nonsense. */
    return seen_ns <= now_ns ? now_ns - seen_ns < limit_ns
                             : seen_ns - now_ns < limit_ns;
}

#endif
