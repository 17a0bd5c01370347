/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Unit tests of the group, in the order of group.h. */
#include <string.h>

#include "random.h"
#include "sluice/engine.h"
#include "sluice/group.h"
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

static void new_page(const SluiceGroupLimit *limit)
{
    check(sluice_group_page_init(&page, "test", limit, START_NS));
}

static bool joins(SluiceGroupMember *member, uint64_t owner, uint32_t weight,
                  uint64_t now_ns)
{
    return check_equal(sluice_group_join(member, &page, sizeof(page), owner,
                                         "vm1 blk-read", weight, now_ns),
                       SLUICE_GROUP_OK);
}

/* Takes all tokens and one byte more, so that the next is there 2 us later. */
static void drain(SluiceGroupMember *member, uint64_t now_ns)
{
    check(sluice_group_admit(member, one_megabyte.burst + 1, now_ns));
    check(!sluice_group_admit(member, 1, now_ns));
}

static void test_page_is_as_documented(void)
{
    check_equal(sluice_group_page_bytes(), 512 + 128 * 128);
    new_page(&one_megabyte);
    check(!memcmp(&page, "SLUICEGP", 8));
    check_equal(*(uint32_t *)((char *)&page + 8), 1);
    check_equal(*(uint32_t *)((char *)&page + 12), 512);
    check_equal(*(uint32_t *)((char *)&page + 16), 128);
    check_equal(*(uint32_t *)((char *)&page + 20), 128);
    check(!strcmp((char *)&page + 32, "test"));
    check_equal(*(uint64_t *)((char *)&page + 144), 1000000);
    check_equal(*(uint64_t *)((char *)&page + 152), 10000);
    check_equal(*(uint64_t *)((char *)&page + 160), START_NS);
    /* What the controller, in another language, must compute too. */
    check_equal(*(uint64_t *)((char *)&page + 176), 0x9a49d302722a3b85ULL);
}

static void test_page_refuses_values_out_of_range(void)
{
    static const SluiceGroupLimit bad[] = {
        { SLUICE_GROUP_UNITS, 1, 1 },
        { SLUICE_GROUP_BYTES, 0, 1 },
        { SLUICE_GROUP_BYTES, SLUICE_GROUP_RATE_MAX + 1, 1 },
        { SLUICE_GROUP_BYTES, 1, 0 },
        { SLUICE_GROUP_BYTES, 1, SLUICE_GROUP_BURST_MAX + 1 },
    };
    SluiceGroupPage before;
    char name[SLUICE_GROUP_NAME_BYTES + 1] = { 0 };

    new_page(&one_megabyte);
    memcpy((void *)&before, (void *)&page, sizeof(page));
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        check(!sluice_group_page_init(&page, "test", &bad[i], START_NS));
        check(!sluice_group_configure(&page, &bad[i], START_NS));
    }
    memset(name, 'x', SLUICE_GROUP_NAME_BYTES);
    check(!sluice_group_page_init(&page, name, &one_megabyte, START_NS));
    check(!sluice_group_configure(&page, &(SluiceGroupLimit){
        SLUICE_GROUP_OPERATIONS, 1, 1 }, START_NS));
    check(!memcmp((void *)&before, (void *)&page, sizeof(page)));
}

static void test_foreign_pages_are_refused(void)
{
    SluiceGroupMember member;

    new_page(&one_megabyte);
    check_equal(sluice_group_page_check(&page, sizeof(page) - 1),
                SLUICE_GROUP_TOO_SHORT);
    page.magic[7] = 'X';
    check_equal(sluice_group_page_check(&page, sizeof(page)),
                SLUICE_GROUP_NO_MAGIC);
    new_page(&one_megabyte);
    page.version = 2;
    check_equal(sluice_group_page_check(&page, sizeof(page)),
                SLUICE_GROUP_OTHER_VERSION);
    new_page(&one_megabyte);
    page.slot_count = 1 << 30;
    check_equal(sluice_group_join(&member, &page, sizeof(page), 1, "", 1, 0),
                SLUICE_GROUP_OTHER_VERSION);
    new_page(&one_megabyte);
    page.rate = 0;
    check_equal(sluice_group_join(&member, &page, sizeof(page), 1, "", 1, 0),
                SLUICE_GROUP_NO_LIMIT);
}

static void test_tokens_debt_and_next_are_exact(void)
{
    SluiceGroupMember member;
    uint64_t now_ns = START_NS, next_ns;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    /* While any token is left, a request of any size goes on. */
    check(sluice_group_admit(&member, 9999, now_ns));
    check(sluice_group_admit(&member, 50001, now_ns));
    check(!sluice_group_admit(&member, 1, now_ns));
    /* 50000 bytes of debt and one byte more: 50001 us. */
    next_ns = sluice_group_next_ns(&member, now_ns);
    check_equal(next_ns, now_ns + 50001000);
    check(!sluice_group_admit(&member, 1, next_ns - 1));
    check(sluice_group_admit(&member, 1, next_ns));
    check(!sluice_group_admit(&member, 1, next_ns));
    /* A bucket that was full for an hour holds one burst. */
    now_ns = next_ns + 3600 * SECOND;
    check(sluice_group_admit(&member, 10000, now_ns));
    check(!sluice_group_admit(&member, 1, now_ns));
}

static void test_next_is_exact_at_any_rate(void)
{
    Random random = random_seeded(1);

    for (unsigned i = 0; i < 2000; i++) {
        SluiceGroupLimit limit = {
            .rate = random_magnitude(&random, 39),
            .burst = random_magnitude(&random, 39),
        };
        uint64_t now_ns = START_NS + random_magnitude(&random, 50), next_ns;
        SluiceGroupMember member;

        new_page(&limit);
        joins(&member, 1, 100, now_ns);
        while (sluice_group_admit(&member, UINT32_MAX, now_ns)) {
        }
        next_ns = sluice_group_next_ns(&member, now_ns);
        if (!check(next_ns > now_ns)) {
            printf("# rate %" PRIu64 " burst %" PRIu64 "\n", limit.rate,
                   limit.burst);
        }
        member.due_ns = 0;      /* ask the bucket, not the memory of it */
        check(!sluice_group_admit(&member, 1, next_ns - 1));
        member.due_ns = 0;
        check(sluice_group_admit(&member, 1, next_ns));
    }
}

static void test_operations(void)
{
    SluiceGroupLimit limit = { .unit = SLUICE_GROUP_OPERATIONS,
                               .rate = 3, .burst = 2 };
    SluiceGroupMember member;

    new_page(&limit);
    joins(&member, 1, 100, START_NS);
    check(sluice_group_admit(&member, UINT32_MAX, START_NS));
    check(sluice_group_admit(&member, 0, START_NS));
    check(!sluice_group_admit(&member, 0, START_NS));
    check_equal(sluice_group_next_ns(&member, START_NS),
                START_NS + 333333334);
}

static void test_corrections(void)
{
    SluiceGroupMember member, other;
    uint64_t virtual_time;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    joins(&other, 2, 100, START_NS);
    check(sluice_group_admit(&member, 5000, START_NS));
    virtual_time = page.slots[0].virtual_time;
    sluice_group_correct(&member, 2000, START_NS);
    check_equal(page.tat_units, 7000);
    check_equal(page.slots[0].virtual_time,
                virtual_time + (2000ULL << 20) / 100);
    sluice_group_correct(&member, -4000, START_NS);
    check_equal(page.tat_units, 3000);
    check_equal(page.slots[0].virtual_time,
                virtual_time - (2000ULL << 20) / 100);
    /* No more than full, also long after; and no debt that looks damaged. */
    sluice_group_correct(&other, -INT64_C(1000000), START_NS);
    check_equal(page.tat_units, 0);
    sluice_group_correct(&other, -1, START_NS + SECOND);
    check_equal(page.tat_units, 1000000);
    sluice_group_correct(&other, 4 * (int64_t)UINT32_MAX, START_NS + SECOND);
    check_equal(page.tat_units, 1000000 + one_megabyte.burst + UINT32_MAX);
    check(!sluice_group_admit(&member, 1, START_NS + SECOND));
    check_equal(page.tat_units, 1000000 + one_megabyte.burst + UINT32_MAX);
}

/*
 * Others read their clocks before the one who charged, or corrected, read his:
 * by theirs the debt is larger still. It is a debt all the same.
 */
static void test_the_largest_debt_is_no_damage(void)
{
    uint64_t now_ns = START_NS + SECOND, early_ns = now_ns - MS;
    SluiceGroupMember member, other;
    uint64_t tat_units;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    joins(&other, 2, 100, START_NS);
    check(sluice_group_admit(&member, one_megabyte.burst - 1, now_ns));
    check(sluice_group_admit(&member, UINT32_MAX, now_ns));
    tat_units = page.tat_units;
    check(!sluice_group_admit(&other, 1, early_ns));
    check_equal(page.tat_units, tat_units);
    sluice_group_correct(&member, 4 * (int64_t)UINT32_MAX, now_ns);
    tat_units = page.tat_units;
    check_equal(tat_units, 1000000 + one_megabyte.burst + UINT32_MAX);
    check(!sluice_group_admit(&other, 1, early_ns));
    check_equal(page.tat_units, tat_units);
    check_equal(sluice_group_next_ns(&other, early_ns),
                now_ns + (UINT32_MAX + 1ULL) * 1000);
    sluice_group_correct(&other, -1000, early_ns);
    check_equal(page.tat_units, tat_units - 1000);
}

static void test_a_refund_gives_back_bytes_or_an_operation(void)
{
    SluiceGroupLimit operations = { .unit = SLUICE_GROUP_OPERATIONS,
                                    .rate = 3, .burst = 2 };
    SluiceGroupMember member;
    uint64_t virtual_time;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    check(sluice_group_admit(&member, 3000, START_NS));
    virtual_time = page.slots[0].virtual_time;
    check(sluice_group_admit(&member, 5000, START_NS));
    sluice_group_refund(&member, 5000, START_NS);
    check_equal(page.tat_units, 3000);
    check_equal(page.slots[0].virtual_time, virtual_time);
    new_page(&operations);
    joins(&member, 1, 100, START_NS);
    check(sluice_group_admit(&member, 5000, START_NS));
    check(sluice_group_admit(&member, 5000, START_NS));
    sluice_group_refund(&member, 5000, START_NS);
    check_equal(page.tat_units, 1);
}

/* Who waits out a debt of 4 s that is forgiven is told at its keepalive. */
static void test_tokens_given_back_are_noticed(void)
{
    SluiceGroupMember member, waiting;
    uint64_t now_ns = START_NS;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    joins(&waiting, 2, 100, now_ns);
    check(sluice_group_admit(&member, 4000000, now_ns));
    check(!sluice_group_admit(&waiting, 1, now_ns));
    check_equal(sluice_group_next_ns(&waiting, now_ns),
                now_ns + 3990 * MS + 1000);
    now_ns += 50 * MS;
    check(!sluice_group_keepalive(&waiting, now_ns));
    check(!sluice_group_admit(&waiting, 1, now_ns));
    sluice_group_correct(&member, -3000000, now_ns);
    check(sluice_group_keepalive(&waiting, now_ns));
    /* Not all of it: the rest is reckoned anew, and that is told once. */
    check(!sluice_group_admit(&waiting, 1, now_ns));
    check_equal(sluice_group_next_ns(&waiting, now_ns),
                START_NS + 990 * MS + 1000);
    check(!sluice_group_keepalive(&waiting, now_ns));
    sluice_group_correct(&member, -1000000, now_ns);
    check(sluice_group_keepalive(&waiting, now_ns));
    check(sluice_group_admit(&waiting, 1, now_ns));
}

static void test_operations_are_not_corrected(void)
{
    SluiceGroupLimit limit = { .unit = SLUICE_GROUP_OPERATIONS,
                               .rate = 3, .burst = 2 };
    SluiceGroupMember member;

    new_page(&limit);
    joins(&member, 1, 1, START_NS);
    check(sluice_group_admit(&member, 4096, START_NS));
    sluice_group_correct(&member, 16384, START_NS);
    sluice_group_correct(&member, -4096, START_NS);
    check_equal(page.tat_units, 1);
}

static void test_change_of_rate_carries_units(void)
{
    SluiceGroupLimit fast = { .rate = 1000000000, .burst = 10000 };
    SluiceGroupMember member;
    uint64_t now_ns = START_NS + 1234000;   /* a whole unit */

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    check(sluice_group_admit(&member, 60000, now_ns));
    check(!sluice_group_admit(&member, 1, now_ns));
    check_equal(sluice_group_next_ns(&member, now_ns), now_ns + 50001000);
    /* 50000 bytes of debt take 50 us at the new rate. */
    check(sluice_group_configure(&page, &fast, now_ns));
    check_equal(sluice_group_next_ns(&member, now_ns), now_ns + 50001);
    check(sluice_group_configure(&page, &one_megabyte, now_ns + 20000));
    check_equal(sluice_group_next_ns(&member, now_ns + 20000),
                now_ns + 20000 + 30001000);
}

/* Ten changes a second between 1 and 2 bytes/s: 1.5 bytes/s, and no stall. */
static void test_many_changes_at_low_rates_lose_nothing(void)
{
    SluiceGroupLimit slow = { .rate = 1, .burst = 1 };
    SluiceGroupMember member;
    uint64_t before;

    new_page(&slow);
    joins(&member, 1, 100, START_NS);
    before = sluice_group_clock_units(&member, START_NS);
    for (unsigned i = 1; i <= 1000; i++) {
        slow.rate = 1 + i % 2;
        check(sluice_group_configure(&page, &slow,
                                     START_NS + i * 100 * MS + i * 333));
    }
    sluice_group_admit(&member, 0, START_NS + 100 * SECOND);
    check_equal(sluice_group_clock_units(&member, START_NS + 100 * SECOND)
                - before, 150);
}

static void test_a_new_limit_calls_for_asking_again(void)
{
    SluiceGroupLimit fast = { .rate = 1000000000, .burst = 10000 };
    SluiceGroupMember member;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    drain(&member, START_NS);
    sluice_group_next_ns(&member, START_NS);
    check(!sluice_group_keepalive(&member, START_NS));
    check(sluice_group_configure(&page, &fast, START_NS));
    check(sluice_group_keepalive(&member, START_NS));
    check_equal(sluice_group_next_ns(&member, START_NS), START_NS + 2);
    check(!sluice_group_keepalive(&member, START_NS));
}

static void test_what_a_page_says(void)
{
    char label[100] = { 0 };
    SluiceGroupMemberInfo info;
    SluiceGroupLimit limit;
    SluiceGroupMember member;

    memset(label, 'x', sizeof(label) - 1);
    new_page(&one_megabyte);
    check(sluice_group_limit(&page, &limit));
    check_equal(limit.unit, SLUICE_GROUP_BYTES);
    check_equal(limit.rate, 1000000);
    check_equal(limit.burst, 10000);
    check(!sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(sluice_group_join(&member, &page, sizeof(page),
                                  7ULL << 32 | 1234, label, 55, START_NS),
                SLUICE_GROUP_OK);
    drain(&member, START_NS);
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(info.pid, 1234);
    check_equal(info.weight, 55);
    check_equal(info.requests, 1);
    check_equal(info.units, 10001);
    check(!info.waiting);
    check_equal(strlen(info.label), SLUICE_GROUP_LABEL_BYTES - 1);
    sluice_group_next_ns(&member, START_NS);
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check(info.waiting);
    check(!sluice_group_member_info(&page, 0, START_NS + SLUICE_GROUP_REAP_NS,
                                    &info));
    page.rate = 0;
    check(!sluice_group_limit(&page, &limit));
}

/* Every state that a writer can leave when it is killed. */
static void test_a_limit_half_written_is_not_used(void)
{
    SluiceGroupLimit fast = { .rate = 1000000000, .burst = 77777 };
    SluiceWord *words = &page.sequence;
    uint64_t before[7], after[7];

    new_page(&one_megabyte);
    for (unsigned i = 0; i < 7; i++) {
        before[i] = words[i];
    }
    check(sluice_group_configure(&page, &fast, START_NS + SECOND));
    for (unsigned i = 0; i < 7; i++) {
        after[i] = words[i];
    }
    for (unsigned written = 0; written < 8; written++) {
        SluiceGroupMember member;

        for (unsigned i = 0; i < 7; i++) {
            words[i] = before[i];
        }
        joins(&member, 1, 100, START_NS + SECOND);
        words[0] = before[0] + 1;
        for (unsigned i = 1; i < 7 && i <= written; i++) {
            words[i] = after[i];
        }
        if (written == 7) {
            words[0] = after[0];
        }
        check(sluice_group_admit(&member, 1, START_NS + SECOND));
        check_equal(member.clock.rate, written == 7 ? fast.rate : 1000000);
        sluice_group_leave(&member);
        /* The next writer makes it whole. */
        check(sluice_group_configure(&page, &fast, START_NS + SECOND));
        check_equal(sluice_group_page_check(&page, sizeof(page)),
                    SLUICE_GROUP_OK);
    }
}

static void test_slots_are_claimed_and_given_back(void)
{
    static SluiceGroupMember members[SLOTS + 1];

    new_page(&one_megabyte);
    for (unsigned i = 0; i < SLOTS; i++) {
        joins(&members[i], i + 1, 100, START_NS);
        check_equal(members[i].index, i);
    }
    check_equal(sluice_group_join(&members[SLOTS], &page, sizeof(page),
                                  SLOTS + 1, "", 100, START_NS),
                SLUICE_GROUP_FULL);
    check(!strcmp((char *)page.slots[7].label, "vm1 blk-read"));
    sluice_group_leave(&members[7]);
    check_equal(page.slots[7].owner, 0);
    joins(&members[SLOTS], SLOTS + 1, 100, START_NS);
    check_equal(members[SLOTS].index, 7);
}

static void test_dead_members_are_reaped(void)
{
    SluiceGroupMember dead, alive;
    uint64_t now_ns = START_NS;

    new_page(&one_megabyte);
    joins(&dead, 1, 100, now_ns);
    joins(&alive, 2, 100, now_ns);
    drain(&dead, now_ns);
    sluice_group_next_ns(&dead, now_ns);
    check_equal(page.demand[0], 1);
    /* A keepalive looks at one slot: a round of them at every slot. */
    for (unsigned i = 0; i < 2 * SLOTS; i++) {
        now_ns = START_NS + SLUICE_GROUP_REAP_NS - 1;
        sluice_group_keepalive(&alive, now_ns);
    }
    check_equal(page.slots[0].owner, 1);
    for (unsigned i = 0; i < SLOTS; i++) {
        now_ns = START_NS + SLUICE_GROUP_REAP_NS;
        sluice_group_keepalive(&alive, now_ns);
    }
    check_equal(page.slots[0].owner, 0);
    check_equal(page.demand[0], 0);
    check_equal(page.slots[1].owner, 2);
}

/* A process that was suspended while others believed it dead. */
static void test_who_lost_his_slot_takes_another(void)
{
    SluiceGroupMember suspended, other;
    uint64_t now_ns = START_NS + 2 * SLUICE_GROUP_REAP_NS;

    new_page(&one_megabyte);
    joins(&suspended, 1, 100, START_NS);
    joins(&other, 2, 300, now_ns);
    check_equal(other.index, 0);
    check(sluice_group_admit(&suspended, 20000, now_ns));
    check(!sluice_group_admit(&suspended, 1, now_ns));
    check(suspended.slot == NULL);
    sluice_group_next_ns(&suspended, now_ns);
    check_equal(page.slots[0].owner, 2);
    check_equal(page.slots[0].units, 0);
    check_equal(page.demand[0], 0);
    sluice_group_keepalive(&suspended, now_ns);
    check_equal(suspended.index, 1);
    check_equal(page.slots[1].units, 20000);
}

static void test_weights_out_of_range(void)
{
    SluiceGroupMember member;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    check(!sluice_group_set_weight(&member, 0));
    check(!sluice_group_set_weight(&member, SLUICE_GROUP_WEIGHT_MAX + 1));
    check_equal(page.slots[0].weight, 100);
    check(sluice_group_set_weight(&member, SLUICE_GROUP_WEIGHT_MAX));
    check_equal(page.slots[0].weight, SLUICE_GROUP_WEIGHT_MAX);
}

/*
 * Two that wait, weights 1 and 3, requests of 4000 bytes, hence of 4 ms each.
 * Worked by hand: both start at virtual time 0, and the first has the lower
 * slot, so it goes first (to 4000); then the second (to 1333), again (2667),
 * again (4000); then the first by its slot, and so on: one in four is his.
 */
static void test_turns_of_two(void)
{
    static const char expected[] = "ABBBABBBABBB";
    SluiceGroupMember members[2];
    uint64_t now_ns = START_NS, next_ns[2];

    new_page(&one_megabyte);
    joins(&members[0], 1, 100, now_ns);
    joins(&members[1], 2, 300, now_ns);
    drain(&members[0], now_ns);
    for (unsigned i = 0; i < 2; i++) {
        members[i].virtual_time = page.virtual_time;
        members[i].active_ns = now_ns;
        check(!sluice_group_admit(&members[i], 4000, now_ns));
        next_ns[i] = sluice_group_next_ns(&members[i], now_ns);
    }
    for (unsigned i = 0; expected[i]; i++) {
        for (;;) {
            unsigned who = next_ns[1] < next_ns[0];
            bool passed;

            now_ns = next_ns[who];
            passed = sluice_group_admit(&members[who], 4000, now_ns);
            next_ns[who] = sluice_group_next_ns(&members[who], now_ns);
            if (passed) {
                check_equal('A' + who, expected[i]);
                /* The tokens of 4 ms, to the nanosecond, for each. */
                check_equal(now_ns, START_NS + 2000 + i * 4 * MS);
                break;
            }
        }
    }
}

static void test_a_waiting_member_goes_before_a_newcomer_ahead_of_it(void)
{
    SluiceGroupMember waiting, newcomer;
    uint64_t now_ns = START_NS, next_ns;

    new_page(&one_megabyte);
    joins(&waiting, 1, 100, now_ns);
    joins(&newcomer, 2, 100, now_ns);
    check(sluice_group_admit(&newcomer, 10001, now_ns));
    check(!sluice_group_admit(&waiting, 1000, now_ns));
    next_ns = sluice_group_next_ns(&waiting, now_ns);
    check_equal(next_ns, now_ns + 2000);
    /* The timer is late; the newcomer has had its share. */
    now_ns = next_ns + 100000;
    check(!sluice_group_admit(&newcomer, 1000, now_ns));
    check(sluice_group_admit(&waiting, 1000, now_ns));
}

/* In each case the share of the first goes to the second in the stated time. */
static void check_share_is_released(void (*ends)(SluiceGroupMember *),
                                    uint64_t within_ns)
{
    SluiceGroupLimit limit = { .rate = 1000000, .burst = 1000000 };
    SluiceGroupMember first, second;
    uint64_t now_ns = START_NS, next_ns;

    new_page(&limit);
    joins(&first, 1, 10000, now_ns);
    joins(&second, 2, 1, now_ns);
    check(sluice_group_admit(&second, 1000001, now_ns));
    check(!sluice_group_admit(&first, 100, now_ns));
    check(!sluice_group_admit(&second, 100, now_ns));
    sluice_group_next_ns(&first, now_ns);
    /* It is so far ahead of the first that its turn comes never. */
    next_ns = sluice_group_next_ns(&second, now_ns);
    check_equal(next_ns, now_ns + SLUICE_GROUP_RECHECK_MIN_NS);
    ends(&first);
    while (!sluice_group_admit(&second, 100, next_ns)) {
        next_ns = sluice_group_next_ns(&second, next_ns);
        if (!check(next_ns <= now_ns + within_ns)) {
            return;
        }
    }
}

static void dies(SluiceGroupMember *member)
{
    (void)member;
}

static void loses_its_mind(SluiceGroupMember *member)
{
    /* Waits until the end of time, but shows no sign of life any more. */
    member->slot->demand_until_ns = UINT64_MAX;
}

static void test_idle_member_leaves_its_share(void)
{
    check_share_is_released(sluice_group_idle, SLUICE_GROUP_RECHECK_MIN_NS);
}

static void test_leaving_member_leaves_its_share(void)
{
    check_share_is_released(sluice_group_leave, SLUICE_GROUP_RECHECK_MIN_NS);
}

static void test_dead_member_leaves_its_share(void)
{
    check_share_is_released(dies, 2000 + SLUICE_GROUP_GRACE_NS
                                  + SLUICE_GROUP_RECHECK_MIN_NS);
}

static void test_broken_member_leaves_its_share(void)
{
    check_share_is_released(loses_its_mind, SLUICE_GROUP_ALIVE_NS
                                            + SLUICE_GROUP_RECHECK_MIN_NS);
}

/* Only _CREDIT_NS of it: 1 ms of the rate, 1000 bytes. */
static void test_idleness_earns_no_more_than_the_credit(void)
{
    SluiceGroupMember idle, busy;
    uint64_t now_ns = START_NS;
    unsigned taken = 0;

    new_page(&one_megabyte);
    joins(&idle, 1, 100, now_ns);
    joins(&busy, 2, 100, now_ns);
    for (unsigned i = 0; i < 5000; i++) {
        while (!sluice_group_admit(&busy, 100, now_ns)) {
            now_ns = sluice_group_next_ns(&busy, now_ns);
        }
    }
    check(!sluice_group_admit(&busy, 100, now_ns));
    sluice_group_next_ns(&busy, now_ns);
    /* What it may take before the other, with a token always there: */
    page.tat_units = sluice_group_clock_units(&idle, now_ns)
                     + one_megabyte.burst - 1;
    while (sluice_group_admit(&idle, 100, now_ns) && taken < 100) {
        taken++;
        page.tat_units = sluice_group_clock_units(&idle, now_ns)
                         + one_megabyte.burst - 1;
    }
    /* 1000 bytes of credit, up to one request of lead, and one to see it. */
    check(taken >= 10 && taken <= 12);
}

static void test_damaged_bucket_is_repaired(void)
{
    static const uint64_t values[] = {
        1ULL << 63, (1ULL << 63) - 1, 1ULL << 62, UINT64_MAX, 1ULL << 40,
    };

    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        SluiceGroupMember member;

        new_page(&one_megabyte);
        joins(&member, 1, 100, START_NS);
        page.tat_units = values[i];
        /* Empty, or full if the value lies in the past; never stuck. */
        if (!sluice_group_admit(&member, 1, START_NS)) {
            check_equal(sluice_group_next_ns(&member, START_NS),
                        START_NS + 1000);
            check(sluice_group_admit(&member, 1, START_NS + 1000));
        }
        check(page.tat_units <= 10001);
    }
}

/*
 * Any bytes in what peers can write: every call returns, and once the damage
 * has stopped, a request goes on after the largest debt that counts as one,
 * plus the time for which broken members count.
 */
static void test_any_bytes_on_the_page(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));
    uint64_t debt_max = 2ULL * UINT32_MAX + one_megabyte.burst
                        + one_megabyte.rate + 1;
    uint64_t wait_max_ns = debt_max * 1000 + SLUICE_GROUP_ALIVE_NS
                           + SLUICE_GROUP_GRACE_NS;

    for (unsigned round = 0; round < 300; round++) {
        SluiceGroupMember member;
        uint64_t now_ns = START_NS, start_ns;
        SluiceWord *words = &page.sequence;
        unsigned count = (sizeof(page) - 128) / 8;

        new_page(&one_megabyte);
        joins(&member, 1, 1 + random_below(&random, 10000), now_ns);
        for (unsigned step = 0; step < 50; step++) {
            unsigned damage = random_below(&random, count);

            for (unsigned i = 0; i < damage; i++) {
                uint64_t near = random_chance(&random, 50) ? now_ns : 0;

                words[random_below(&random, count)] =
                    near + random_magnitude(&random, 64);
            }
            now_ns += random_magnitude(&random, 30);
            sluice_group_admit(&member, random_magnitude(&random, 32), now_ns);
            sluice_group_next_ns(&member, now_ns);
            if (random_chance(&random, 20)) {
                sluice_group_idle(&member);
                sluice_group_keepalive(&member, now_ns);
            }
        }
        start_ns = now_ns;
        member.due_ns = 0;      /* reckoned with another debt than is there */
        while (!sluice_group_admit(&member, 1, now_ns)) {
            now_ns = sluice_group_next_ns(&member, now_ns);
            if (!check(now_ns <= start_ns + wait_max_ns)) {
                return;
            }
        }
    }
}

static const TapTest tests[] = {
    { "group: page is as documented", test_page_is_as_documented },
    { "group: page refuses values out of range",
      test_page_refuses_values_out_of_range },
    { "group: foreign pages are refused", test_foreign_pages_are_refused },
    { "group: tokens, debt and next are exact",
      test_tokens_debt_and_next_are_exact },
    { "group: next is exact at any rate", test_next_is_exact_at_any_rate },
    { "group: operations", test_operations },
    { "group: corrections", test_corrections },
    { "group: the largest debt is no damage",
      test_the_largest_debt_is_no_damage },
    { "group: a refund gives back bytes, or an operation",
      test_a_refund_gives_back_bytes_or_an_operation },
    { "group: tokens given back are noticed",
      test_tokens_given_back_are_noticed },
    { "group: operations are not corrected",
      test_operations_are_not_corrected },
    { "group: a change of the rate carries units",
      test_change_of_rate_carries_units },
    { "group: many changes at low rates lose nothing",
      test_many_changes_at_low_rates_lose_nothing },
    { "group: a new limit calls for asking again",
      test_a_new_limit_calls_for_asking_again },
    { "group: what a page says", test_what_a_page_says },
    { "group: a limit half written is not used",
      test_a_limit_half_written_is_not_used },
    { "group: slots are claimed and given back",
      test_slots_are_claimed_and_given_back },
    { "group: dead members are reaped", test_dead_members_are_reaped },
    { "group: who lost his slot takes another",
      test_who_lost_his_slot_takes_another },
    { "group: weights out of range", test_weights_out_of_range },
    { "group: turns of two", test_turns_of_two },
    { "group: a waiting member goes before a newcomer ahead of it",
      test_a_waiting_member_goes_before_a_newcomer_ahead_of_it },
    { "group: idle member leaves its share",
      test_idle_member_leaves_its_share },
    { "group: leaving member leaves its share",
      test_leaving_member_leaves_its_share },
    { "group: dead member leaves its share",
      test_dead_member_leaves_its_share },
    { "group: broken member leaves its share",
      test_broken_member_leaves_its_share },
    { "group: idleness earns no more than the credit",
      test_idleness_earns_no_more_than_the_credit },
    { "group: damaged bucket is repaired", test_damaged_bucket_is_repaired },
    { "group/property: any bytes on the page", test_any_bytes_on_the_page },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
