/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The members' slots on the group page: to claim one, to lose it, to free it.
 *
 * A slot belongs to the member that changed its owner word from 0, in one
 * compare-and-swap, and everything else in it is written by that owner alone.
 * The owner shows a sign of life at every decision, and at least every
 * _KEEPALIVE_NS. A member that finds a slot without one for _REAP_NS frees it, again by
 * one compare-and-swap: a claim that dies half-way is freed like any other.
 *
 * A dead owner looks like a suspended one. So an owner looks at its owner word at every
 * decision. If it is no longer there it goes on without a slot: under the group's
 * limit, but unseen, until its next keepalive claims another.
 */
#include <assert.h>
#include <string.h>

#include "group-internal.h"

/*
 * Frees the slot if its owner is dead. A slot that its live owner loses all
 * the same, because it was suspended for longer than _REAP_NS, is found lost
 * by group_refresh(). That owner may still write into a slot that is another's by
 * then: that other writes its fields anew at its next request or keepalive.
 */
static void reap(SluiceGroupPage *page, uint32_t index, uint64_t now_ns)
{
    SluiceGroupSlot *slot = &page->slots[index];
    uint64_t owner = group_load(&slot->owner);

    if (owner != 0
        && !group_is_recent(group_load(&slot->heartbeat_ns), now_ns,
                            SLUICE_GROUP_REAP_NS)
        && atomic_compare_exchange_strong(&slot->owner, &owner, 0)) {
        atomic_fetch_and(&page->demand[index / 64], ~(1ULL << index % 64));
    }
}

static void store_label(SluiceGroupMember *member)
{
    for (unsigned w = 0; w < SLUICE_GROUP_LABEL_WORDS; w++) {
        group_store(&member->slot->label[w], member->label[w]);
    }
}

static bool claim_slot(SluiceGroupMember *member, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        SluiceGroupSlot *slot = &member->page->slots[i];
        uint64_t free_owner = 0;

        reap(member->page, i, now_ns);
        if (atomic_compare_exchange_strong(&slot->owner, &free_owner,
                                           member->owner)) {
            group_store(&slot->heartbeat_ns, now_ns);
            group_store(&slot->demand_until_ns, 0);
            group_store(&slot->weight, member->weight);
            member->slot = slot;
            member->index = i;
            store_label(member);
            group_publish(member, now_ns);
            return true;
        }
    }
    return false;
}

static void check_slot(SluiceGroupMember *member)
{
    if (member->slot && group_load(&member->slot->owner) != member->owner) {
        member->slot = NULL;
        member->demanding = false;
    }
}

void group_refresh(SluiceGroupMember *member, uint64_t now_ns)
{
    check_slot(member);
    if (atomic_load_explicit(&member->page->sequence, memory_order_relaxed)
        != member->clock.sequence
        && group_clock_read(&member->clock, member->page, now_ns)) {
        member->due_ns = 0;     /* it was reckoned with the old limit */
    }
}

/* Also where the sequence hides the change: others can write that, too. */
static bool limit_has_changed(SluiceGroupMember *member, uint64_t now_ns)
{
    const SluiceGroupClock old = member->clock;
    const SluiceGroupClock *new = &member->clock;

    return group_clock_read(&member->clock, member->page, now_ns)
           && (new->sequence != old.sequence || new->unit != old.unit
               || new->rate != old.rate || new->burst != old.burst
               || new->base_ns != old.base_ns
               || new->base_units != old.base_units);
}

SluiceGroupStatus sluice_group_join(SluiceGroupMember *member, void *memory,
                                    size_t bytes, uint64_t owner,
                                    const char *label, uint32_t weight,
                                    uint64_t now_ns)
{
    SluiceGroupStatus status = sluice_group_page_check(memory, bytes);

    assert(owner != 0);
    if (status != SLUICE_GROUP_OK) {
        return status;
    }
    *member = (SluiceGroupMember){ .page = memory, .owner = owner };
    member->group_time = group_load(&member->page->virtual_time);
    strncpy((char *)member->label, label, SLUICE_GROUP_LABEL_BYTES - 1);
    if (!group_clock_read(&member->clock, member->page, now_ns)
        || !sluice_group_set_weight(member, weight)) {
        return SLUICE_GROUP_NO_LIMIT;
    }
    return claim_slot(member, now_ns) ? SLUICE_GROUP_OK : SLUICE_GROUP_FULL;
}

void sluice_group_idle(SluiceGroupMember *member)
{
    if (!member->demanding) {
        return;
    }
    member->demanding = false;
    member->due_ns = 0;
    if (member->slot) {
        group_store(&member->slot->demand_until_ns, 0);
        atomic_fetch_and(group_demand_word(member), ~group_demand_bit(member));
    }
}

void sluice_group_leave(SluiceGroupMember *member)
{
    check_slot(member);
    sluice_group_idle(member);
    if (member->slot) {
        uint64_t owner = member->owner;

        atomic_compare_exchange_strong(&member->slot->owner, &owner, 0);
        member->slot = NULL;
    }
}

bool sluice_group_set_weight(SluiceGroupMember *member, uint32_t weight)
{
    if (weight < 1 || weight > SLUICE_GROUP_WEIGHT_MAX) {
        return false;
    }
    member->weight = weight;
    member->reciprocal =
        (1ULL << (GROUP_VIRTUAL_BITS + GROUP_FRACTION_BITS)) / weight;
    if (member->slot) {
        group_store(&member->slot->weight, weight);
    }
    return true;
}

/* The bucket only goes back where a correction gives tokens, or damage is
 * repaired: then its turn may come sooner than it reckoned. */
static bool was_given_back(const SluiceGroupMember *member)
{
    return (int64_t)(member->due_tat_units
                     - group_load(&member->page->tat_units)) > 0;
}

/* A member that waits is not away; but a process that did not run for so long was. */
static void stay_active(SluiceGroupMember *member, uint64_t now_ns)
{
    if (member->demanding
        && group_is_recent(member->active_ns, now_ns, GROUP_STALE_NS)) {
        member->active_ns = now_ns;
    }
}

bool sluice_group_keepalive(SluiceGroupMember *member, uint64_t now_ns)
{
    bool changed = limit_has_changed(member, now_ns);

    check_slot(member);
    stay_active(member, now_ns);
    if (member->slot) {
        group_publish(member, now_ns);
        group_store(&member->slot->weight, member->weight);
        store_label(member);
    } else {
        claim_slot(member, now_ns);
    }
    member->reap_cursor = (member->reap_cursor + 1) % SLUICE_GROUP_SLOTS;
    if (&member->page->slots[member->reap_cursor] != member->slot) {
        reap(member->page, member->reap_cursor, now_ns);
    }
    if (member->demanding && (changed || was_given_back(member))) {
        member->due_ns = 0;
        return true;
    }
    return member->demanding
           && member->due_sequence != member->clock.sequence;
}

/* A weight that is damaged counts for nothing, and is shown so. */
static uint32_t weight_shown(uint64_t weight)
{
    return weight <= SLUICE_GROUP_WEIGHT_MAX ? weight : 0;
}

bool sluice_group_member_info(const SluiceGroupPage *page, unsigned slot,
                              uint64_t now_ns, SluiceGroupMemberInfo *info)
{
    const SluiceGroupSlot *from = &page->slots[slot];
    uint64_t owner = group_load(&from->owner);
    uint64_t words[SLUICE_GROUP_LABEL_WORDS];

    if (owner == 0 || !group_is_recent(group_load(&from->heartbeat_ns), now_ns,
                                       SLUICE_GROUP_REAP_NS)) {
        return false;
    }
    *info = (SluiceGroupMemberInfo){
        .pid = (uint32_t)owner, .weight = weight_shown(group_load(&from->weight)),
        .requests = group_load(&from->requests),
        .units = group_load(&from->units),
        .waiting = group_load(&from->demand_until_ns) > now_ns,
    };
    for (unsigned w = 0; w < SLUICE_GROUP_LABEL_WORDS; w++) {
        words[w] = group_load(&from->label[w]);
    }
    memcpy(info->label, words, SLUICE_GROUP_LABEL_BYTES);
    return true;
}
