/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The members' slots on the page of a group. */
#include <string.h>

#include "group-fixture.h"

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

/* A slow former owner of the slot may still write into it. */
static void test_what_another_wrote_is_written_anew(void)
{
    SluiceGroupMember member;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    page.slots[0].weight = 7;
    memset((void *)page.slots[0].label, 'x', sizeof(page.slots[0].label));
    sluice_group_keepalive(&member, START_NS + 1);
    check_equal(page.slots[0].weight, 100);
    check(!strcmp((char *)page.slots[0].label, (char *)member.label));
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

static const TapTest tests[] = {
    { "group: slots are claimed and given back",
      test_slots_are_claimed_and_given_back },
    { "group: dead members are reaped", test_dead_members_are_reaped },
    { "group: who lost his slot takes another",
      test_who_lost_his_slot_takes_another },
    { "group: what another wrote into a slot is written anew",
      test_what_another_wrote_is_written_anew },
    { "group: weights out of range", test_weights_out_of_range },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
