/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The limit of a group: tokens, debt, corrections, and changes of the rate. */
#include "group-fixture.h"
#include "random.h"

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
 * Others read their clocks before the member that charged, or corrected, read its own:
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

/* A member that waits out a debt of 4 s that is forgiven is told at its keepalive. */
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
    check(group_configure(&page, &fast, now_ns));
    check_equal(sluice_group_next_ns(&member, now_ns), now_ns + 50001);
    check(group_configure(&page, &one_megabyte, now_ns + 20000));
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
    before = group_units(&member, START_NS);
    for (unsigned i = 1; i <= 1000; i++) {
        slow.rate = 1 + i % 2;
        check(group_configure(&page, &slow,
                                     START_NS + i * 100 * MS + i * 333));
    }
    sluice_group_admit(&member, 0, START_NS + 100 * SECOND);
    check_equal(group_units(&member, START_NS + 100 * SECOND)
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
    check(group_configure(&page, &fast, START_NS));
    check(sluice_group_keepalive(&member, START_NS));
    check_equal(sluice_group_next_ns(&member, START_NS), START_NS + 2);
    check(!sluice_group_keepalive(&member, START_NS));
}

static const TapTest tests[] = {
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
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
