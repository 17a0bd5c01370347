/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Events: upcalls from the host to the guest.
 *
 * An event is two things: an entry in a ring, which tells, and a bit in the pattern of
 * its priority, which wakes. The entry is written first, the number in it last; the bit
 * after it. Only the first bit of a pattern interrupts: until the guest has taken the
 * pattern, it is going to look anyway.
 */
#include "sluice/channel.h"

#define KINDS_MASK  ((1u << SLUICE_EVENT_ECHO) - 2)     /* from kind 1 on */

bool sluice_events_subscribe(SluiceEvents *events, unsigned tag, uint64_t kinds,
                             uint64_t priority, uint64_t backlog_bytes)
{
    if ((kinds & ~(uint64_t)KINDS_MASK)
        || priority >= SLUICE_CHANNEL_PRIORITIES) {
        return false;
    }
    events->subscriptions[tag] = (SluiceSubscription){
        .kinds = (uint8_t)kinds, .priority = (uint8_t)priority,
        .backlog_bytes = backlog_bytes,
    };
    return true;
}

bool sluice_events_wanted(const SluiceEvents *events, unsigned kind,
                          unsigned tag)
{
    return events->subscriptions[tag].kinds >> kind & 1;
}

bool sluice_events_rises(SluiceEvents *events, unsigned tag, unsigned resource,
                         uint64_t backlog_bytes)
{
    SluiceSubscription *subscription = &events->subscriptions[tag];
    bool above = backlog_bytes > subscription->backlog_bytes;
    bool was = subscription->above >> resource & 1;

    subscription->above &= (uint8_t)~(1u << resource);
    subscription->above |= (uint8_t)(above << resource);
    return above && !was;
}

bool sluice_events_make(SluiceEvents *events, SluiceChannelGuest *guest,
                        SluiceChannelHost *host,
                        const SluiceChannelEvent *event)
{
    uint64_t number = ++events->head;
    SluiceChannelEvent *entry = &host->events[sluice_event_slot(number)];
    unsigned priority = events->subscriptions[event->tag].priority;
    uint64_t bit = 1ULL << (event->tag * SLUICE_CHANNEL_RESOURCES
                            + event->resource);

    __atomic_store_n(&entry->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    entry->time_ns = SLUICE_LE64(event->time_ns);
    entry->kind = event->kind;
    entry->tag = event->tag;
    entry->resource = event->resource;
    entry->priority = (uint8_t)priority;
    entry->reserved = 0;
    entry->datum = SLUICE_LE64(event->datum);
    __atomic_store_n(&entry->number, SLUICE_LE64(number), __ATOMIC_RELEASE);
    __atomic_store_n(&host->header.event_head, SLUICE_LE64(number),
                     __ATOMIC_RELEASE);
    return !__atomic_fetch_or(&guest->pattern[priority], SLUICE_LE64(bit),
                              __ATOMIC_SEQ_CST);
}
