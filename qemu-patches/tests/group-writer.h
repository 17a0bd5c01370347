/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The writer of a group page, as the controller is: makes the page and sets its limit; and
 * the reading of a member's clock.
 */
#ifndef SLUICE_TESTS_GROUP_WRITER_H
#define SLUICE_TESTS_GROUP_WRITER_H

#include <string.h>

#include "../src/sluice/group-internal.h"

static inline void group_write_limit(SluiceGroupPage *page,
                                     const SluiceGroupLimit *limit,
                                     uint64_t base_ns, uint64_t base_units)
{
    uint64_t odd = group_load(&page->sequence) | 1;
    uint64_t words[GROUP_LIMIT_WORDS] = {
        odd + 1, limit->unit, limit->rate, limit->burst, base_ns, base_units,
    };

    group_store(&page->sequence, odd);
    atomic_thread_fence(memory_order_release);
    group_store(&page->unit, words[1]);
    group_store(&page->rate, words[2]);
    group_store(&page->burst, words[3]);
    group_store(&page->base_ns, words[4]);
    group_store(&page->base_units, words[5]);
    group_store(&page->check, group_check_of(words));
    atomic_store_explicit(&page->sequence, words[0], memory_order_release);
}

/* False, and nothing changed, if a value is out of range. The memory must be
 * aligned to 128 bytes, as mapped memory is. */
static inline bool group_page_init(void *memory, const char *name,
                                   const SluiceGroupLimit *limit,
                                   uint64_t now_ns)
{
    SluiceGroupPage *page = memory;

    if (!group_limit_is_valid(limit)
        || strlen(name) >= SLUICE_GROUP_NAME_BYTES) {
        return false;
    }
    memset(memory, 0, sizeof(*page));
    page->version = SLUICE_GROUP_VERSION;
    page->header_bytes = SLUICE_GROUP_HEADER_BYTES;
    page->slot_bytes = sizeof(SluiceGroupSlot);
    page->slot_count = SLUICE_GROUP_SLOTS;
    page->created_ns = now_ns;
    strcpy(page->name, name);
    group_write_limit(page, limit, now_ns, 0);
    atomic_thread_fence(memory_order_release);
    memcpy(page->magic, SLUICE_GROUP_MAGIC, SLUICE_GROUP_MAGIC_BYTES);
    return true;
}

/* Tokens and debt are carried over in units. The unit cannot change. */
static inline bool group_configure(SluiceGroupPage *page,
                                   const SluiceGroupLimit *limit,
                                   uint64_t now_ns)
{
    SluiceGroupClock clock;
    uint64_t fraction, base_units, part_ns = 0;

    if (!group_limit_is_valid(limit)) {
        return false;
    }
    if (group_clock_read(&clock, page, now_ns)) {
        if (clock.unit != limit->unit) {
            return false;
        }
        base_units = group_clock_units(&clock, now_ns, &fraction);
        part_ns = (uint64_t)((SluiceWide)fraction * 1000000000ULL
                             / limit->rate >> 64);
    } else {
        /* A writer died, or meant harm; the bucket starts empty rather than
         * full, so that nothing is won by it. */
        base_units = group_load(&page->tat_units) - limit->burst;
    }
    group_write_limit(page, limit, now_ns > part_ns ? now_ns - part_ns : 0,
                base_units);
    return true;
}

/* The units that the rate of its group has produced. */
static inline uint64_t group_units(const SluiceGroupMember *member,
                                   uint64_t now_ns)
{
    uint64_t fraction;

    return group_clock_units(&member->clock, now_ns, &fraction);
}

#endif
