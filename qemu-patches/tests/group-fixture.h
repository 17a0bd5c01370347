/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A page, a limit and members for the unit tests of the group. */
#ifndef SLUICE_TESTS_GROUP_FIXTURE_H
#define SLUICE_TESTS_GROUP_FIXTURE_H

#include "group-writer.h"
#include "tap.h"

#define MS              1000000ULL
#define SECOND          (1000 * MS)
#define START_NS        (5 * SECOND)
#define SLOTS           SLUICE_GROUP_SLOTS

static _Alignas(128) SluiceGroupPage page;

/* 1 MB/s, so that a byte is a microsecond; a burst of 10 ms. */
static const SluiceGroupLimit one_megabyte = {
    .unit = SLUICE_GROUP_BYTES, .rate = 1000000, .burst = 10000,
};

static inline void new_page(const SluiceGroupLimit *limit)
{
    check(group_page_init(&page, "test", limit, START_NS));
}

static inline bool joins(SluiceGroupMember *member, uint64_t owner,
                         uint32_t weight, uint64_t now_ns)
{
    return check_equal(sluice_group_join(member, &page, sizeof(page), owner,
                                         "vm1 blk-read", weight, now_ns),
                       SLUICE_GROUP_OK);
}

/* Takes all tokens and one byte more, so that the next is there 2 us later. */
static inline void drain(SluiceGroupMember *member, uint64_t now_ns)
{
    check(sluice_group_admit(member, one_megabyte.burst + 1, now_ns));
    check(!sluice_group_admit(member, 1, now_ns));
}

#endif
