/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The host's work on the channel's memory, beside the device: deferred calls, events,
 * records. Pure: no clock, no memory of its own making, no thread; the caller has a lock.
 *
 * The guest's pages may change at any moment. Each word is loaded once, and what
 * is loaded is checked before it is used.
 */
#ifndef SLUICE_CHANNEL_H
#define SLUICE_CHANNEL_H

#include <stdbool.h>

#include "sluice/channel-abi.h"
#include "sluice/engine.h"

/* Little-endian, to and from the host's order */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SLUICE_LE16(value)  ((uint16_t)(value))
#define SLUICE_LE32(value)  ((uint32_t)(value))
#define SLUICE_LE64(value)  ((uint64_t)(value))
#else
#define SLUICE_LE16(value)  __builtin_bswap16(value)
#define SLUICE_LE32(value)  __builtin_bswap32(value)
#define SLUICE_LE64(value)  __builtin_bswap64(value)
#endif

static inline uint32_t sluice_guest_load(const uint32_t *word)
{
    return SLUICE_LE32(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}

/* A copy of a call, in the host's byte order. */
void sluice_call_load(SluiceChannelCall *call, const SluiceChannelCall *from);

/* Deferred calls: channel-ring.c */

typedef struct SluiceDelayed {
    uint64_t due_ns;
    SluiceChannelCall call;
} SluiceDelayed;

typedef struct SluiceRing {
    uint32_t tail;              /* taken; atomic for those who only look */
    uint32_t delayed_count;
    SluiceDelayed delayed[SLUICE_CHANNEL_DELAYED];      /* oldest first */
    SluiceBucket bucket;        /* of entries; the caller configures it */
    uint64_t refused;           /* lost, out of range, or one too many to wait */
    uint64_t replaced;          /* of a kind with a newer one */
    /* Those to carry out, in order, of the last _take() or _due() */
    SluiceChannelCall batch[SLUICE_CHANNEL_RING];
} SluiceRing;

/* Does the guest's count differ from ours? One load. */
static inline bool sluice_ring_waits(const SluiceRing *ring,
                                     const SluiceChannelGuest *guest)
{
    return sluice_guest_load(&guest->ring_head)
           != __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
}

/* Takes entries out of the ring: how many of them are to be carried out now. */
unsigned sluice_ring_take(SluiceRing *ring, const SluiceChannelGuest *guest,
                          uint64_t now_ns);
/* Takes delayed calls whose time has come. */
unsigned sluice_ring_due(SluiceRing *ring, uint64_t now_ns);
/* When the first is due, or SLUICE_NEVER. */
uint64_t sluice_ring_due_ns(const SluiceRing *ring);
/* Forgets all, and the entries in the ring. */
void sluice_ring_forget(SluiceRing *ring, const SluiceChannelGuest *guest);

/* Events: channel-events.c */

typedef struct SluiceSubscription {
    uint8_t kinds;              /* bit k: kind k */
    uint8_t priority;
    uint8_t above;              /* bit r: the backlog of resource r is above: */
    uint64_t backlog_bytes;
} SluiceSubscription;

typedef struct SluiceEvents {
    uint64_t head;              /* events ever made */
    SluiceSubscription subscriptions[SLUICE_CHANNEL_TAGS];
} SluiceEvents;

/* Of a tag that is granted. False: a value is out of range. */
bool sluice_events_subscribe(SluiceEvents *events, unsigned tag, uint64_t kinds,
                             uint64_t priority, uint64_t backlog_bytes);
bool sluice_events_wanted(const SluiceEvents *events, unsigned kind,
                          unsigned tag);
/* Has the backlog risen above the threshold since the last look? */
bool sluice_events_rises(SluiceEvents *events, unsigned tag, unsigned resource,
                         uint64_t backlog_bytes);
/* Makes one that is wanted. True if it is the first that is pending of its priority. */
bool sluice_events_make(SluiceEvents *events, SluiceChannelGuest *guest,
                        SluiceChannelHost *host,
                        const SluiceChannelEvent *event);
static inline unsigned sluice_event_slot(uint64_t number)
{
    return (number - 1) % SLUICE_CHANNEL_EVENTS;
}

/* Records: channel-record.c */

typedef enum SluiceRecord {
    SLUICE_RECORD_READ,         /* used or not */
    SLUICE_RECORD_CHANGING,     /* it is being written: nothing is read */
    SLUICE_RECORD_DENIED,       /* of a class that is not granted */
    SLUICE_RECORD_BAD,          /* a field is out of range */
} SluiceRecord;

/* Whole copies in the host's byte order; `granted` has bit t for tag t. */
SluiceRecord sluice_stream_load(SluiceChannelStream *stream,
                                const SluiceChannelStream *from,
                                uint32_t granted);
SluiceRecord sluice_server_load(SluiceChannelServer *server,
                                const SluiceChannelServer *from,
                                uint32_t granted);

#endif
