/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The order of a group's members, and the share that a member leaves.
 */
#include "group-fixture.h"

/* Both show that they live until `now_ns`, as a process does. */
static void keep_alive(SluiceGroupMember *members, uint64_t *alive_ns,
                       uint64_t now_ns)
{
    while (*alive_ns + SLUICE_GROUP_KEEPALIVE_NS <= now_ns) {
        *alive_ns += SLUICE_GROUP_KEEPALIVE_NS;
        sluice_group_keepalive(&members[0], *alive_ns);
        sluice_group_keepalive(&members[1], *alive_ns);
    }
}

/*
 * Two that wait, weights 1 and 3, requests of equal size. Worked by hand: both
 * start at virtual time 0, and the first has the lower slot, so it goes first
 * (to 1); then the second (to 1/3), again (2/3), again (1); then the first by
 * its slot, and so on: one in four is the first's. If both are due at the same time,
 * the timer of the first fires first.
 */
static void check_turns(uint32_t bytes)
{
    static const char expected[] = "ABBBABBBABBB";
    SluiceGroupMember members[2];
    uint64_t now_ns = START_NS, alive_ns = START_NS, next_ns[2];

    new_page(&one_megabyte);
    joins(&members[0], 1, 100, now_ns);
    joins(&members[1], 2, 300, now_ns);
    drain(&members[0], now_ns);
    for (unsigned i = 0; i < 2; i++) {
        members[i].virtual_time = page.virtual_time;
        members[i].active_ns = now_ns;
        check(!sluice_group_admit(&members[i], bytes, now_ns));
        next_ns[i] = sluice_group_next_ns(&members[i], now_ns);
    }
    for (unsigned i = 0; expected[i]; i++) {
        for (;;) {
            unsigned who = next_ns[1] < next_ns[0];
            bool passed;

            now_ns = next_ns[who];
            keep_alive(members, &alive_ns, now_ns);
            passed = sluice_group_admit(&members[who], bytes, now_ns);
            next_ns[who] = sluice_group_next_ns(&members[who], now_ns);
            if (passed) {
                check_equal('A' + who, expected[i]);
                /* The tokens of a request, to the nanosecond, for each. */
                check_equal(now_ns, START_NS + 2000 + i * 1000ULL * bytes);
                break;
            }
        }
    }
}

static void test_turns_of_two(void)
{
    check_turns(4000);
}

/* Debts of 1.5 s and 12 s: a member that waits for one has not been away meanwhile. */
static void test_turns_of_two_in_debt(void)
{
    check_turns(1500000);
    check_turns(12000000);
}

/*
 * One takes five seconds' worth, is away for two, and comes back while the
 * group is still in debt. The other has waited all the time: it goes next.
 */
static void test_absence_does_not_undo_a_lead(void)
{
    SluiceGroupMember greedy, waiting;
    uint64_t now_ns = START_NS, back_ns = now_ns + 2 * SECOND, due_ns;

    new_page(&one_megabyte);
    joins(&greedy, 1, 100, now_ns);
    joins(&waiting, 2, 100, now_ns);
    check(sluice_group_admit(&waiting, 1500000, now_ns));
    now_ns = START_NS + 1490001 * 1000ULL;
    check(sluice_group_admit(&greedy, 5000000, now_ns));
    check(!sluice_group_admit(&waiting, 1500000, now_ns));
    due_ns = sluice_group_next_ns(&waiting, now_ns);
    for (now_ns += 50 * MS; now_ns < due_ns; now_ns += 50 * MS) {
        sluice_group_keepalive(&waiting, now_ns);
        sluice_group_keepalive(&greedy, now_ns);
        if (now_ns >= back_ns) {
            check(!sluice_group_admit(&greedy, 5000000, now_ns));
            sluice_group_next_ns(&greedy, now_ns);
        }
    }
    check(!sluice_group_admit(&greedy, 5000000, due_ns));
    check(sluice_group_admit(&waiting, 1500000, due_ns));
}

/* A process that did not run for so long that no number can be compared. */
static void test_suspended_member_starts_anew(void)
{
    SluiceGroupLimit limit = { .rate = SLUICE_GROUP_RATE_MAX,
                               .burst = SLUICE_GROUP_BURST_MAX };
    SluiceGroupMember suspended, busy;
    uint64_t now_ns = START_NS, end_ns = now_ns + 10 * SECOND;

    new_page(&limit);
    joins(&suspended, 1, 1, now_ns);
    joins(&busy, 2, 1, now_ns);
    while (sluice_group_admit(&suspended, UINT32_MAX, now_ns)) {
    }
    sluice_group_next_ns(&suspended, now_ns);
    /* 2^43 units of weight 1 are 2^63 of virtual time: 9 s of this rate. The
     * other has not yet come by to free the slot. */
    while (now_ns < end_ns) {
        now_ns += 4 * MS;
        sluice_group_admit(&busy, UINT32_MAX, now_ns);
    }
    sluice_group_keepalive(&suspended, now_ns);
    check(!sluice_group_admit(&busy, 1, now_ns));
    sluice_group_next_ns(&busy, now_ns);
    now_ns += 10 * MS;
    check(sluice_group_admit(&suspended, 1, now_ns));
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
    /* The units it may take before the other, with a token always there: */
    page.tat_units = group_units(&idle, now_ns)
                     + one_megabyte.burst - 1;
    while (sluice_group_admit(&idle, 100, now_ns) && taken < 100) {
        taken++;
        page.tat_units = group_units(&idle, now_ns)
                         + one_megabyte.burst - 1;
    }
    /* 1000 bytes of credit, up to one request of lead, and one to see it. */
    check(taken >= 10 && taken <= 12);
}

static const TapTest tests[] = {
    { "group: turns of two", test_turns_of_two },
    { "group: turns of two in debt", test_turns_of_two_in_debt },
    { "group: absence does not undo a lead",
      test_absence_does_not_undo_a_lead },
    { "group: suspended member starts anew",
      test_suspended_member_starts_anew },
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
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
