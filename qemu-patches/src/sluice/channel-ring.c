/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deferred calls: the ring, and those that wait for their time.
 *
 * Entries are taken in order. Of one kind only the newest counts, among those taken
 * together and those that wait: so the entries of a taking are looked at from the newest
 * to the oldest, and a kind that was seen is not seen again. A call without a kind,
 * or 0, always counts.
 *
 * A guest that overtakes the host by more than the ring has lost all of it: which
 * entries it overwrote last cannot be known.
 */
#include <string.h>

#include "sluice/channel.h"

#define NANOSECONDS_PER_MS  1000000ULL
#define KIND_WORDS          (SLUICE_CHANNEL_KINDS / 64)

typedef struct KindSet {
    uint64_t words[KIND_WORDS];
} KindSet;

/* Was it in? It is now. */
static bool add_kind(KindSet *set, uint32_t kind)
{
    uint64_t bit = 1ULL << kind % 64;
    bool was = set->words[kind / 64] & bit;

    set->words[kind / 64] |= bit;
    return was;
}

static bool has_kind(const KindSet *set, uint32_t kind)
{
    return set->words[kind / 64] >> kind % 64 & 1;
}

void sluice_call_load(SluiceChannelCall *call, const SluiceChannelCall *from)
{
    call->service = sluice_guest_load(&from->service);
    call->operation = sluice_guest_load(&from->operation);
    call->key = sluice_guest_load(&from->key);
    call->delay_ms = sluice_guest_load(&from->delay_ms);
    for (unsigned i = 0; i < SLUICE_CHANNEL_ARGUMENTS; i++) {
        call->arguments[i] = SLUICE_LE64(
            __atomic_load_n(&from->arguments[i], __ATOMIC_RELAXED));
    }
}

static void set_tail(SluiceRing *ring, uint32_t tail)
{
    __atomic_store_n(&ring->tail, tail, __ATOMIC_RELAXED);
}

/* Copies of as many entries as there are, and as the bucket lets go. */
static unsigned load_entries(SluiceRing *ring, const SluiceChannelGuest *guest,
                             uint64_t now_ns)
{
    uint32_t waiting = sluice_guest_load(&guest->ring_head) - ring->tail;
    unsigned count = 0;

    if (waiting > SLUICE_CHANNEL_RING) {
        ring->refused += waiting;
        set_tail(ring, ring->tail + waiting);
        return 0;
    }
    while (count < waiting && sluice_bucket_conforms(&ring->bucket, now_ns)) {
        sluice_bucket_charge(&ring->bucket, 1, now_ns);
        sluice_call_load(&ring->batch[count],
                         &guest->ring[(ring->tail + count) % SLUICE_CHANNEL_RING]);
        count++;
    }
    set_tail(ring, ring->tail + count);
    return count;
}

static bool in_range(const SluiceChannelCall *call)
{
    return call->key < SLUICE_CHANNEL_KINDS
           && call->delay_ms <= SLUICE_CHANNEL_DELAY_MAX_MS;
}

/* Takes older waiting calls of these kinds out. */
static void replace_delayed(SluiceRing *ring, const KindSet *newer)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < ring->delayed_count; i++) {
        if (has_kind(newer, ring->delayed[i].call.key)) {
            ring->replaced++;
        } else {
            ring->delayed[kept++] = ring->delayed[i];
        }
    }
    ring->delayed_count = kept;
}

/* Marks those of the batch that count, from the newest on. */
static void pick_newest(SluiceRing *ring, unsigned count,
                        bool counts[SLUICE_CHANNEL_RING])
{
    KindSet seen = { 0 };

    for (unsigned i = count; i-- > 0; ) {
        const SluiceChannelCall *call = &ring->batch[i];

        counts[i] = false;
        if (!in_range(call)) {
            ring->refused++;
        } else if (call->key && add_kind(&seen, call->key)) {
            ring->replaced++;
        } else {
            counts[i] = true;
        }
    }
    replace_delayed(ring, &seen);
}

static void delay(SluiceRing *ring, const SluiceChannelCall *call,
                  uint64_t now_ns)
{
    if (ring->delayed_count == SLUICE_CHANNEL_DELAYED) {
        ring->refused++;
        return;
    }
    ring->delayed[ring->delayed_count++] = (SluiceDelayed){
        .due_ns = now_ns + call->delay_ms * NANOSECONDS_PER_MS,
        .call = *call,
    };
}

unsigned sluice_ring_take(SluiceRing *ring, const SluiceChannelGuest *guest,
                          uint64_t now_ns)
{
    bool counts[SLUICE_CHANNEL_RING];
    unsigned count = load_entries(ring, guest, now_ns), now = 0;

    pick_newest(ring, count, counts);
    for (unsigned i = 0; i < count; i++) {
        if (counts[i] && ring->batch[i].delay_ms) {
            delay(ring, &ring->batch[i], now_ns);
        } else if (counts[i]) {
            ring->batch[now++] = ring->batch[i];
        }
    }
    return now;
}

unsigned sluice_ring_due(SluiceRing *ring, uint64_t now_ns)
{
    unsigned count = 0, kept = 0;

    for (unsigned i = 0; i < ring->delayed_count; i++) {
        if (ring->delayed[i].due_ns <= now_ns) {
            ring->batch[count++] = ring->delayed[i].call;
        } else {
            ring->delayed[kept++] = ring->delayed[i];
        }
    }
    ring->delayed_count = kept;
    return count;
}

uint64_t sluice_ring_due_ns(const SluiceRing *ring)
{
    uint64_t due_ns = SLUICE_NEVER;

    for (unsigned i = 0; i < ring->delayed_count; i++) {
        if (ring->delayed[i].due_ns < due_ns) {
            due_ns = ring->delayed[i].due_ns;
        }
    }
    return due_ns;
}

void sluice_ring_forget(SluiceRing *ring, const SluiceChannelGuest *guest)
{
    ring->delayed_count = 0;
    set_tail(ring, sluice_guest_load(&guest->ring_head));
}
