/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The group page: its check, and the limit on it, which the controller writes.
 *
 * The limit is six words that belong together, with one writer. The writer
 * makes the sequence odd, writes, and makes it even again. A reader that finds
 * it odd, or changed meanwhile, or whose copy does not match the check word,
 * goes on with the limit it had; it tries a fixed number of times and never
 * waits. So a writer that dies half-way leaves the old limit in force, and the
 * next writer, which starts from any sequence that it finds, repairs the page.
 * The check word makes this hold without trust in the order in which another
 * processor, or another language, writes.
 *
 * A process that may write the page can give any limit a check that matches. The clock of
 * a limit with a base in the future stands still until then; each reader holds
 * the base against its own clock (the host has but one), and a limit whose base
 * is further ahead than _AHEAD_NS is damaged like one half written: members go
 * on with theirs, and the next writer makes it whole.
 *
 * A change of the rate moves the base of the group's clock to the present, so
 * that the clock goes on from its reading; and then back by the time that the
 * new rate takes for the part of a unit that had been produced, so that many
 * changes at a low rate lose nothing. The theoretical arrival time is in units
 * of that clock and stays as it is: tokens and debt are carried over in units, and need
 * no conversion.
 */
#include <string.h>

#include "group-internal.h"

#define NANOSECONDS_PER_SECOND  1000000000ULL
#define READ_ATTEMPTS           4
#define CHECK_FACTOR            0x9e3779b97f4a7c15ULL

bool group_limit_is_valid(const SluiceGroupLimit *limit)
{
    return (unsigned)limit->unit < SLUICE_GROUP_UNITS
           && limit->rate >= 1 && limit->rate <= SLUICE_GROUP_RATE_MAX
           && limit->burst >= 1 && limit->burst <= SLUICE_GROUP_BURST_MAX;
}

uint64_t group_check_of(const uint64_t words[GROUP_LIMIT_WORDS])
{
    uint64_t check = 0;

    for (unsigned i = 0; i < GROUP_LIMIT_WORDS; i++) {
        check = (check ^ words[i]) * CHECK_FACTOR;
        check ^= check >> 32;
    }
    return check;
}

static void clock_set(SluiceGroupClock *clock,
                      const uint64_t words[GROUP_LIMIT_WORDS])
{
    SluiceWide step = (((SluiceWide)words[2] << 64)
                       + NANOSECONDS_PER_SECOND - 1) / NANOSECONDS_PER_SECOND;

    *clock = (SluiceGroupClock){
        .sequence = words[0], .unit = (SluiceGroupUnit)words[1],
        .rate = words[2], .burst = words[3],
        .base_ns = words[4], .base_units = words[5],
        .step_units = (uint64_t)(step >> 64), .step_fraction = (uint64_t)step,
    };
    clock->request_max = clock->unit == SLUICE_GROUP_OPERATIONS ? 1
                                                                : UINT32_MAX;
    clock->grace_units = (uint64_t)((SluiceWide)clock->rate
                                    * SLUICE_GROUP_GRACE_NS
                                    / NANOSECONDS_PER_SECOND);
    clock->credit_units = (uint64_t)((SluiceWide)clock->rate
                                     * SLUICE_GROUP_CREDIT_NS
                                     / NANOSECONDS_PER_SECOND);
}

bool group_clock_read(SluiceGroupClock *clock, const SluiceGroupPage *page,
                      uint64_t now_ns)
{
    for (unsigned i = 0; i < READ_ATTEMPTS; i++) {
        uint64_t words[GROUP_LIMIT_WORDS] = {
            atomic_load_explicit(&page->sequence, memory_order_acquire),
            group_load(&page->unit), group_load(&page->rate),
            group_load(&page->burst), group_load(&page->base_ns),
            group_load(&page->base_units),
        };
        uint64_t check = group_load(&page->check);
        SluiceGroupLimit limit = { .unit = (SluiceGroupUnit)words[1],
                                   .rate = words[2], .burst = words[3] };

        atomic_thread_fence(memory_order_acquire);
        if (words[0] % 2 == 0 && words[1] < SLUICE_GROUP_UNITS
            && group_load(&page->sequence) == words[0]
            && check == group_check_of(words) && group_limit_is_valid(&limit)
            && group_can_be(words[4], now_ns)) {
            clock_set(clock, words);
            return true;
        }
    }
    return false;
}

bool sluice_group_limit(const SluiceGroupPage *page, uint64_t now_ns,
                        SluiceGroupLimit *limit)
{
    SluiceGroupClock clock;

    if (!group_clock_read(&clock, page, now_ns)) {
        return false;
    }
    *limit = (SluiceGroupLimit){ .unit = clock.unit, .rate = clock.rate,
                                 .burst = clock.burst };
    return true;
}

SluiceGroupStatus sluice_group_page_check(const void *memory, size_t bytes)
{
    const SluiceGroupPage *page = memory;
    SluiceGroupClock clock;

    if (bytes < sizeof(*page)) {
        return SLUICE_GROUP_TOO_SHORT;
    }
    if (memcmp(page->magic, SLUICE_GROUP_MAGIC, SLUICE_GROUP_MAGIC_BYTES)) {
        return SLUICE_GROUP_NO_MAGIC;
    }
    atomic_thread_fence(memory_order_acquire);
    if (page->version != SLUICE_GROUP_VERSION
        || page->header_bytes != SLUICE_GROUP_HEADER_BYTES
        || page->slot_bytes != sizeof(SluiceGroupSlot)
        || page->slot_count != SLUICE_GROUP_SLOTS) {
        return SLUICE_GROUP_OTHER_VERSION;
    }
    return group_clock_read(&clock, page, UINT64_MAX) ? SLUICE_GROUP_OK
                                                      : SLUICE_GROUP_NO_LIMIT;
}
