/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate page: the members of a device's gate, and what each has in flight.
 *
 * Bytes in flight are not one sum that all change, but a word for each member, which it
 * alone writes; a member that decides adds them up. So a process that is killed leaves
 * behind what its slot says, until another frees the slot, and no sum is wrong for good.
 * Two members that add up at one time may both go: together they exceed the window by
 * at most one request each. The rule itself is gate.c's.
 *
 * Slots are claimed, lost and freed as those of a group (group-member.c). A bit for each
 * tells which are in use, so that a look costs no more than there are members; a bit that
 * somebody cleared is set again by its owner's next sign of life.
 *
 * Whose run it is, and until when, is one word, so that no reader sees one without the
 * other. A run needs no end by its owner.
 *
 * Trust. A wrong word of a slot counts for at most the largest window, or the greatest weight,
 * while its owner seems to live. A window out of range is brought into it. A run that is
 * longer than runs are, by more than clocks that were read at two moments explain, is none.
 * Times in the future are another's nonsense, and count for nothing. Virtual times only say
 * who goes first.
 */
#include <assert.h>
#include <string.h>

#include "group-internal.h"
#include "sluice/gate-page.h"
#include "sluice/gate.h"
#include "hot.h"

static bool lives(const SluiceGateSlot *slot, uint64_t now_ns)
{
    return group_load(&slot->owner) != 0
           && group_is_recent(group_load(&slot->heartbeat_ns), now_ns,
                              SLUICE_GATE_REAP_NS);
}

static uint64_t bytes_of(const SluiceGateSlot *slot)
{
    uint64_t bytes = group_load(&slot->in_flight_bytes);

    return bytes < SLUICE_GATE_MOST_BYTES ? bytes : SLUICE_GATE_MOST_BYTES;
}

static uint64_t weight_of(const SluiceGateSlot *slot)
{
    uint64_t weight = group_load(&slot->weight);

    return weight == 0 ? SLUICE_GATE_WEIGHT_DEFAULT
           : weight < SLUICE_GATE_WEIGHT_MOST ? weight : SLUICE_GATE_WEIGHT_MOST;
}

static bool waits(const SluiceGateSlot *slot, uint64_t now_ns)
{
    uint64_t until_ns = group_load(&slot->waits_until_ns);

    return until_ns > now_ns && group_can_be(until_ns, now_ns);
}

/* The page */

SluiceGateStatus sluice_gate_page_check(const void *memory, size_t bytes)
{
    const SluiceGatePage *page = memory;

    if (bytes < sizeof(*page)) {
        return SLUICE_GATE_TOO_SHORT;
    }
    if (memcmp(page->magic, SLUICE_GATE_MAGIC, SLUICE_GROUP_MAGIC_BYTES)) {
        return SLUICE_GATE_NO_MAGIC;
    }
    atomic_thread_fence(memory_order_acquire);
    return page->version == SLUICE_GATE_VERSION
           && page->header_bytes == SLUICE_GATE_HEADER_BYTES
           && page->slot_bytes == sizeof(SluiceGateSlot)
           && page->slot_count == SLUICE_GATE_SLOTS
           ? SLUICE_GATE_OK : SLUICE_GATE_OTHER_VERSION;
}

uint64_t sluice_gate_page_window(const SluiceGatePage *page)
{
    uint64_t bytes = group_load(&page->window_bytes);

    return bytes == 0 ? SLUICE_GATE_FIRST_BYTES
           : bytes < SLUICE_GATE_LEAST_BYTES ? SLUICE_GATE_LEAST_BYTES
           : bytes > SLUICE_GATE_MOST_BYTES ? SLUICE_GATE_MOST_BYTES : bytes;
}

void sluice_gate_set_page_window(SluiceGatePage *page, uint64_t bytes)
{
    group_store(&page->window_bytes, bytes);
}

/* Slots */

static void mark_used(SluiceGatePage *page, uint32_t index)
{
    uint64_t bit = 1ULL << index % 64;

    if (!(group_load(&page->used[index / 64]) & bit)) {
        atomic_fetch_or(&page->used[index / 64], bit);
    }
}

static void mark_free(SluiceGatePage *page, uint32_t index)
{
    atomic_fetch_and(&page->used[index / 64], ~(1ULL << index % 64));
}

static void reap(SluiceGatePage *page, uint32_t index, uint64_t now_ns)
{
    SluiceGateSlot *slot = &page->slots[index];
    uint64_t owner = group_load(&slot->owner);

    if (owner != 0 && !lives(slot, now_ns)
        && atomic_compare_exchange_strong(&slot->owner, &owner, 0)) {
        mark_free(page, index);
    }
}

/* All of the slot, as it is now. */
static void publish(SluiceGateMember *member, uint64_t now_ns)
{
    SluiceGateSlot *slot = member->slot;

    group_store(&slot->in_flight_bytes, member->in_flight_bytes);
    group_store(&slot->oldest_ns, member->oldest_ns);
    group_store(&slot->weight, member->weight);
    group_store(&slot->virtual_ns, member->virtual_ns);
    for (unsigned w = 0; w < SLUICE_GROUP_LABEL_WORDS; w++) {
        group_store(&slot->label[w], member->label[w]);
    }
    group_store(&slot->heartbeat_ns, now_ns);
    mark_used(member->page, member->index);
}

static bool claim_slot(SluiceGateMember *member, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SLUICE_GATE_SLOTS; i++) {
        SluiceGateSlot *slot = &member->page->slots[i];
        uint64_t free_owner = 0;

        reap(member->page, i, now_ns);
        if (atomic_compare_exchange_strong(&slot->owner, &free_owner,
                                           member->owner)) {
            group_store(&slot->waits_until_ns, 0);
            member->slot = slot;
            member->index = i;
            publish(member, now_ns);
            return true;
        }
    }
    return false;
}

bool sluice_gate_is_member(SluiceGateMember *member)
{
    if (member->slot && group_load(&member->slot->owner) != member->owner) {
        member->slot = NULL;
    }
    return member->slot;
}

/* A window from before, for other members, says nothing to the first. */
static void begin_page(SluiceGatePage *page, uint64_t now_ns)
{
    for (unsigned i = 0; i < SLUICE_GATE_SLOTS; i++) {
        if (lives(&page->slots[i], now_ns)) {
            return;
        }
    }
    group_store(&page->window_bytes, 0);
    group_store(&page->updated_ns, now_ns);
    group_store(&page->completions, 0);
    group_store(&page->latency_ns, 0);
    group_store(&page->held, 0);
    group_store(&page->run, 0);
}

SluiceGateStatus sluice_gate_join(SluiceGateMember *member, void *memory, size_t bytes,
                                  uint64_t owner, const char *label, uint64_t now_ns)
{
    SluiceGateStatus status = sluice_gate_page_check(memory, bytes);

    assert(owner != 0);
    if (status != SLUICE_GATE_OK) {
        return status;
    }
    *member = (SluiceGateMember){
        .page = memory, .owner = owner, .weight = SLUICE_GATE_WEIGHT_DEFAULT,
    };
    strncpy((char *)member->label, label, SLUICE_GROUP_LABEL_BYTES - 1);
    begin_page(member->page, now_ns);
    return claim_slot(member, now_ns) ? SLUICE_GATE_OK : SLUICE_GATE_FULL;
}

void sluice_gate_quit(SluiceGateMember *member)
{
    if (sluice_gate_is_member(member)) {
        uint64_t owner = member->owner;

        if (atomic_compare_exchange_strong(&member->slot->owner, &owner, 0)) {
            mark_free(member->page, member->index);
        }
        member->slot = NULL;
    }
}

void sluice_gate_keepalive(SluiceGateMember *member, uint64_t now_ns)
{
    if (sluice_gate_is_member(member)) {
        publish(member, now_ns);
    } else if (sluice_gate_page_check(member->page, sizeof(*member->page))
               == SLUICE_GATE_OK) {
        claim_slot(member, now_ns);
    }
    member->reap_cursor = (member->reap_cursor + 1) % SLUICE_GATE_SLOTS;
    if (&member->page->slots[member->reap_cursor] != member->slot) {
        reap(member->page, member->reap_cursor, now_ns);
    }
}

bool sluice_gate_member_info(const SluiceGatePage *page, unsigned slot, uint64_t now_ns,
                             SluiceGateMemberInfo *info)
{
    const SluiceGateSlot *from = &page->slots[slot];
    uint64_t words[SLUICE_GROUP_LABEL_WORDS];

    if (!lives(from, now_ns)) {
        return false;
    }
    *info = (SluiceGateMemberInfo){
        .pid = (uint32_t)group_load(&from->owner),
        .in_flight_bytes = bytes_of(from),
        .weight = weight_of(from),
        .waiting = waits(from, now_ns),
    };
    for (unsigned w = 0; w < SLUICE_GROUP_LABEL_WORDS; w++) {
        words[w] = group_load(&from->label[w]);
    }
    memcpy(info->label, words, SLUICE_GROUP_LABEL_BYTES);
    return true;
}

/* Decisions */

#define for_each_used(page, index) \
    for (unsigned word_ = 0, index = 0; word_ < SLUICE_GATE_USED_WORDS; word_++) \
        for (uint64_t left_ = group_load(&(page)->used[word_]); \
             left_ && (index = 64 * word_ + __builtin_ctzll(left_), true); \
             left_ &= left_ - 1)

/* Is the first of two virtual times the earlier? They go round. */
static bool is_earlier(uint64_t a_ns, uint64_t b_ns)
{
    return (int64_t)(a_ns - b_ns) < 0;
}

static void add_oldest(SluiceGateOthers *others, uint64_t oldest_ns, uint64_t now_ns)
{
    if (oldest_ns && oldest_ns <= now_ns
        && now_ns - oldest_ns < SLUICE_GATE_AGE_MOST_NS
        && (!others->oldest_ns || oldest_ns < others->oldest_ns)) {
        others->oldest_ns = oldest_ns;
    }
}

static void add_waiting(SluiceGateOthers *others, uint64_t virtual_ns)
{
    if (!others->waiting || is_earlier(virtual_ns, others->least_virtual_ns)) {
        others->least_virtual_ns = virtual_ns;
    }
    others->waiting = true;
}

/* Until when another's run is on; 0: none is. It may have begun after the caller has read
 * its clock. */
static uint64_t others_run_ns(const SluiceGateMember *member, uint64_t now_ns)
{
    uint64_t word = group_load(&member->page->run);
    uint64_t until_ns = word & ~SLUICE_GATE_RUN_SLOT;

    return (word & SLUICE_GATE_RUN_SLOT) != member->index + 1 && until_ns > now_ns
           && until_ns - now_ns <= SLUICE_GATE_RUN_MOST_NS + SLUICE_GROUP_AHEAD_NS
           ? until_ns : 0;
}

SLUICE_HOT SluiceGateOthers sluice_gate_others(const SluiceGateMember *member,
                                               uint64_t now_ns)
{
    SluiceGateOthers others = { .run_until_ns = others_run_ns(member, now_ns) };

    for_each_used(member->page, i) {
        const SluiceGateSlot *slot = &member->page->slots[i];
        uint64_t bytes;
        bool waiting;

        if (slot == member->slot || !lives(slot, now_ns)) {
            continue;
        }
        bytes = bytes_of(slot);
        waiting = waits(slot, now_ns);
        others.in_flight_bytes += bytes;
        others.weight += bytes || waiting ? weight_of(slot) : 0;
        add_oldest(&others, group_load(&slot->oldest_ns), now_ns);
        if (waiting) {
            add_waiting(&others, group_load(&slot->virtual_ns));
        }
    }
    return others;
}

SLUICE_HOT bool sluice_gate_another_is_first(const SluiceGateMember *member,
                                             uint64_t window_bytes, uint64_t weight,
                                             uint64_t virtual_ns, uint64_t now_ns)
{
    for_each_used(member->page, i) {
        const SluiceGateSlot *slot = &member->page->slots[i];

        if (slot != member->slot && lives(slot, now_ns) && waits(slot, now_ns)
            && bytes_of(slot) * weight < window_bytes * weight_of(slot)
            && is_earlier(group_load(&slot->virtual_ns), virtual_ns)) {
            return true;
        }
    }
    return false;
}

uint64_t sluice_gate_page_in_flight(const SluiceGatePage *page, uint64_t now_ns)
{
    uint64_t sum = 0;

    for_each_used(page, i) {
        sum += lives(&page->slots[i], now_ns) ? bytes_of(&page->slots[i]) : 0;
    }
    return sum;
}

SLUICE_HOT void sluice_gate_show_in_flight(SluiceGateMember *member, uint64_t bytes,
                                           uint64_t now_ns)
{
    member->in_flight_bytes = bytes;
    if (sluice_gate_is_member(member)) {
        group_store(&member->slot->in_flight_bytes, bytes);
        group_store(&member->slot->heartbeat_ns, now_ns);
    }
}

void sluice_gate_show_waiting(SluiceGateMember *member, uint64_t until_ns)
{
    group_store(&member->slot->waits_until_ns, until_ns);
}

static uint64_t run_word(const SluiceGateMember *member, uint64_t until_ns)
{
    return (until_ns & ~SLUICE_GATE_RUN_SLOT) | (member->index + 1);
}

bool sluice_gate_take_run(SluiceGateMember *member, uint64_t until_ns, uint64_t now_ns)
{
    uint64_t word = group_load(&member->page->run);

    return !others_run_ns(member, now_ns)
           && atomic_compare_exchange_strong(&member->page->run, &word,
                                             run_word(member, until_ns));
}

void sluice_gate_show_run(SluiceGateMember *member, uint64_t until_ns)
{
    uint64_t word = group_load(&member->page->run);

    if ((word & SLUICE_GATE_RUN_SLOT) == member->index + 1) {
        atomic_compare_exchange_strong(&member->page->run, &word,
                                       until_ns ? run_word(member, until_ns) : 0);
    }
}

void sluice_gate_show_oldest(SluiceGateMember *member, uint64_t oldest_ns)
{
    member->oldest_ns = oldest_ns;
    if (sluice_gate_is_member(member)) {
        group_store(&member->slot->oldest_ns, oldest_ns);
    }
}

void sluice_gate_show_weight(SluiceGateMember *member, uint64_t weight)
{
    member->weight = weight;
    if (sluice_gate_is_member(member)) {
        group_store(&member->slot->weight, weight);
    }
}

void sluice_gate_show_virtual(SluiceGateMember *member, uint64_t virtual_ns)
{
    member->virtual_ns = virtual_ns;
    if (sluice_gate_is_member(member)) {
        group_store(&member->slot->virtual_ns, virtual_ns);
    }
}
