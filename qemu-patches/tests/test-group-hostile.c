/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A member that means harm writes the page: each word that others read from it,
 * with the value that would make them stand still, or spin. docs/specs/group-page.md
 * says how much it can take for itself; here it takes nothing, so the
 * others have to get all that they would get without it.
 */
#include "group-fixture.h"
#include "group-simulation.h"

#define HOUR            (3600 * SECOND)
#define WAKES_MAX       2000    /* in a second, of a member that gets nothing */

/* The limit with a check that matches, as any process can that may write the page. */
static void seal(SluiceGroupPage *target)
{
    const SluiceWord *words = &target->sequence;
    uint64_t check = 0;

    for (unsigned i = 0; i < 6; i++) {
        check = (check ^ words[i]) * 0x9e3779b97f4a7c15ULL;
        check ^= check >> 32;
    }
    target->check = check;
}

static void set_base(SluiceGroupPage *target, uint64_t base_ns)
{
    target->sequence += 2;
    target->base_ns = base_ns;
    seal(target);
}

/* The clock */

static void test_a_clock_far_ahead_is_not_believed(void)
{
    static const uint64_t ahead_ns[] = {
        2 * SLUICE_GROUP_AHEAD_NS, HOUR, 1ULL << 62, UINT64_MAX - START_NS,
    };

    for (unsigned i = 0; i < sizeof(ahead_ns) / sizeof(ahead_ns[0]); i++) {
        SluiceGroupMember member;
        uint64_t now_ns = START_NS;

        new_page(&one_megabyte);
        joins(&member, 1, 100, now_ns);
        drain(&member, now_ns);
        set_base(&page, now_ns + ahead_ns[i]);
        /* It goes on by the clock that it had. */
        check(!sluice_group_admit(&member, 1, now_ns));
        check_equal(sluice_group_next_ns(&member, now_ns), now_ns + 2000);
        check(!sluice_group_keepalive(&member, now_ns + 1000));
        check(sluice_group_admit(&member, 1, now_ns + 2000));
        check_equal(member.clock.base_ns, START_NS);
    }
}

/* A reader may have read its own clock before the writer read his. */
static void test_a_clock_a_little_ahead_is_waited_for_once(void)
{
    SluiceGroupMember member;
    uint64_t now_ns = START_NS, base_ns = now_ns + SLUICE_GROUP_AHEAD_NS;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    drain(&member, now_ns);
    set_base(&page, base_ns);
    check(!sluice_group_admit(&member, 1, now_ns));
    check_equal(sluice_group_next_ns(&member, now_ns), base_ns + 2000);
    check(!sluice_group_admit(&member, 1, base_ns + 1999));
    check(sluice_group_admit(&member, 1, base_ns + 2000));
}

static void test_a_page_with_such_a_clock_is_not_joined(void)
{
    SluiceGroupMember member;
    SluiceGroupLimit limit;

    new_page(&one_megabyte);
    check(sluice_group_limit(&page, START_NS, &limit));
    set_base(&page, START_NS + HOUR);
    check(!sluice_group_limit(&page, START_NS, &limit));
    check_equal(sluice_group_join(&member, &page, sizeof(page), 1, "", 1,
                                  START_NS), SLUICE_GROUP_NO_LIMIT);
    set_base(&page, START_NS + SLUICE_GROUP_AHEAD_NS);
    joins(&member, 1, 100, START_NS);
}

/* Damaged again and again, repaired again and again: nothing is won by it. */
static void test_repairs_give_no_burst(void)
{
    SluiceGroupMember member;
    uint64_t now_ns = START_NS + SECOND;
    unsigned passed = 0;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t base_units = page.base_units;

        page.base_units = base_units + i * HOUR;
        set_base(&page, now_ns + HOUR);
        while (sluice_group_admit(&member, 1, now_ns)) {
            passed++;
        }
        check(group_configure(&page, &one_megabyte, now_ns));
        now_ns += MS;
    }
    /* A burst, and a second at the rate; 1 unit for each rounding. */
    check(passed <= one_megabyte.burst + one_megabyte.rate + 1000);
    check(passed >= one_megabyte.rate - 1000);
}

/*
 * A member that knows the limit to come can write the sequence that it will have,
 * or put back the one that members have seen.
 */
static void test_a_limit_cannot_be_hidden(void)
{
    SluiceGroupLimit slow = { .rate = 1000, .burst = 10000 };
    SluiceGroupMember member;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    drain(&member, START_NS);
    sluice_group_next_ns(&member, START_NS);
    page.sequence -= 2;
    check(group_configure(&page, &slow, START_NS));
    check_equal(page.sequence, member.clock.sequence);
    check(sluice_group_keepalive(&member, START_NS + 1));
    check_equal(member.clock.rate, 1000);
    sluice_group_next_ns(&member, START_NS + 1);
    check(!sluice_group_keepalive(&member, START_NS + 2));
}

/* Retries */

/* Each time that a turn comes its token has been taken: less than a unit's
 * time ahead lies the next one, for ever. */
static void test_nobody_spins_for_tokens_that_vanish(void)
{
    SluiceGroupMember member;
    uint64_t now_ns = START_NS, next_ns;
    unsigned wakes = 0;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    drain(&member, now_ns);
    while (now_ns < START_NS + SECOND) {
        page.tat_units = group_units(&member, now_ns)
                         + one_megabyte.burst;
        check(!sluice_group_admit(&member, 1, now_ns));
        now_ns = sluice_group_next_ns(&member, now_ns);
        wakes++;
    }
    printf("# %u wakes\n", wakes);
    check(wakes <= WAKES_MAX);
    /* When that ends, one request does, and then turns are exact again. */
    check(sluice_group_admit(&member, 1, now_ns));
    now_ns += 100 * MS;
    drain(&member, now_ns);
    next_ns = sluice_group_next_ns(&member, now_ns);
    check(next_ns > now_ns + 1000 && next_ns <= now_ns + 2000);
}

/* Tokens are there when the member asks when to ask, and gone when it asks. */
static void test_nobody_spins_for_tokens_that_come_and_go(void)
{
    SluiceGroupMember member;
    uint64_t now_ns = START_NS;
    unsigned wakes = 0;

    new_page(&one_megabyte);
    joins(&member, 1, 100, now_ns);
    for (; now_ns < START_NS + SECOND && wakes < 100 * WAKES_MAX; wakes++) {
        page.tat_units = 1ULL << 62;
        check(!sluice_group_admit(&member, 1, now_ns));
        page.tat_units = group_units(&member, now_ns);
        now_ns = sluice_group_next_ns(&member, now_ns);
    }
    printf("# %u wakes\n", wakes);
    check(wakes <= WAKES_MAX);
}

/* An operation is one: a page of operations cannot owe 4 GiB. */
static void test_operations_owe_no_more_than_one(void)
{
    SluiceGroupLimit limit = { .unit = SLUICE_GROUP_OPERATIONS, .rate = 100,
                               .burst = 5 };
    SluiceGroupMember member;

    new_page(&limit);
    joins(&member, 1, 100, START_NS);
    page.tat_units = group_units(&member, START_NS) + 5 + 2 + 101;
    check(!sluice_group_admit(&member, 4096, START_NS));
    check_equal(sluice_group_next_ns(&member, START_NS), START_NS + 10 * MS);
    /* A charge that another may have made with a clock ahead is a debt. */
    new_page(&limit);
    joins(&member, 1, 100, START_NS);
    page.tat_units = group_units(&member, START_NS) + 5 + 2 + 100;
    check(!sluice_group_admit(&member, 4096, START_NS));
    check_equal(sluice_group_next_ns(&member, START_NS),
                START_NS + 1030 * MS);
}

/* The other members */

static void fake_rival(unsigned index, uint64_t now_ns)
{
    SluiceGroupSlot *slot = &page.slots[index];

    slot->owner = index + 1;
    slot->heartbeat_ns = now_ns;
    slot->weight = SLUICE_GROUP_WEIGHT_MAX;
    slot->virtual_time = page.virtual_time - (1ULL << 62);
    slot->demand_until_ns = UINT64_MAX;
    slot->head_units = UINT64_MAX;
    page.demand[index / 64] |= 1ULL << index % 64;
}

/* Every other slot waits, of the greatest weight and far behind, and never
 * comes: that is noticed when the bucket has been full for _GRACE_NS. */
static void test_who_never_comes_is_not_waited_for(void)
{
    uint64_t wait_max_ns = 10 * MS + SLUICE_GROUP_GRACE_NS
                           + SLUICE_GROUP_RECHECK_MAX_NS + 2000;
    SluiceGroupMember member;
    uint64_t now_ns = START_NS;

    new_page(&one_megabyte);
    joins(&member, 1, 1, now_ns);
    drain(&member, now_ns);
    for (unsigned request = 0; request < 10; request++) {
        uint64_t start_ns = now_ns;

        do {
            for (unsigned i = 1; i < SLOTS; i++) {
                fake_rival(i, now_ns);
            }
            now_ns = sluice_group_next_ns(&member, now_ns);
            if (!check(now_ns <= start_ns + wait_max_ns)) {
                return;
            }
        } while (!sluice_group_admit(&member, 1000, now_ns));
        check(!sluice_group_admit(&member, 1000, now_ns));
    }
}

static void test_a_sign_of_life_from_the_future_is_none(void)
{
    SluiceGroupMember member;

    new_page(&one_megabyte);
    joins(&member, 1, 100, START_NS);
    fake_rival(1, START_NS);
    drain(&member, START_NS + 200 * MS);
    page.slots[1].heartbeat_ns = START_NS + 200 * MS + SLUICE_GROUP_AHEAD_NS;
    check(!sluice_group_admit(&member, 1, START_NS + 200 * MS + 2000));
    page.slots[1].heartbeat_ns += 3000;
    check(sluice_group_admit(&member, 1, START_NS + 200 * MS + 2000));
}

static void test_readers_are_shown_what_can_be(void)
{
    SluiceGroupMemberInfo info;

    new_page(&one_megabyte);
    fake_rival(0, START_NS);
    page.slots[0].weight = (1ULL << 32) + 100;
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(info.weight, 0);
    page.slots[0].weight = SLUICE_GROUP_WEIGHT_MAX;
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(info.weight, SLUICE_GROUP_WEIGHT_MAX);
    check(info.waiting);
    page.slots[0].heartbeat_ns = START_NS + HOUR;
    check(!sluice_group_member_info(&page, 0, START_NS, &info));
}

/* Hosts */

static Simulation simulation;

/* Two clients of weights 1 and 3 that always ask, and a hostile member. */
static void run_host(uint64_t seed, void (*damage)(Simulation *s),
                     uint64_t damaged_ns)
{
    Simulation *s = &simulation;

    *s = (Simulation){ .random = random_seeded(seed), .count = 2,
                       .limit = { .rate = 10000000, .burst = 500000 } };
    check(simulation_start(s, START_NS));
    for (unsigned i = 0; i < s->count; i++) {
        s->clients[i] = (Client){
            .weight = i ? 300 : 100, .size_min = 1000, .size_max = 4096,
            .depth = 8, .late_max_ns = 20000,
        };
        check(client_join(s, &s->clients[i]));
    }
    while (s->now_ns < START_NS + damaged_ns) {
        damage(s);
        simulation_run(s, s->now_ns + MS);
    }
}

static void check_simulated_limit(const Simulation *s)
{
    check(s->excess_max <= (__int128)(s->limit.burst + s->largest + 1)
                           * SECOND_NS);
}

static void damage_clock(Simulation *s)
{
    set_base(s->page, s->now_ns + HOUR + random_magnitude(&s->random, 63));
}

static void test_a_host_beside_who_sets_the_clock(void)
{
    const Client *clients = simulation.clients;
    uint64_t passed, wakes;

    run_host(1, damage_clock, 2 * SECOND);
    check_simulated_limit(&simulation);
    passed = simulation.passed;
    wakes = clients[0].wakes + clients[1].wakes;
    printf("# %" PRIu64 " bytes, %" PRIu64 " wakes for %" PRIu64 " requests\n",
           passed, wakes, clients[0].requests + clients[1].requests);
    check(passed >= 2 * simulation.limit.rate * 99 / 100);
    check(wakes <= 3 * (clients[0].requests + clients[1].requests));
    free(simulation.page);
}

/* Everything but the limit and the bucket: the words that decide on the shares. */
static void damage_shares(Simulation *s)
{
    SluiceGroupSlot *slot = &s->page->slots[5];
    SluiceWord *words = &slot->heartbeat_ns;

    s->page->virtual_time = random_next(&s->random);
    s->page->demand[0] |= 1ULL << 5;
    slot->owner = 5;
    for (unsigned i = 0; i < 7; i++) {
        words[i] = random_magnitude(&s->random, 64);
    }
    if (random_chance(&s->random, 90)) {
        slot->heartbeat_ns = s->now_ns;
        slot->weight = 1 + random_below(&s->random, SLUICE_GROUP_WEIGHT_MAX);
    }
}

/* A member apart from the others by any virtual time is not so for long. */
static bool check_shares_after_damage(Simulation *s, uint64_t seed)
{
    uint64_t first, second;

    /* Its last sign of life is this old, then all is as it was. */
    simulation_run(s, s->now_ns + SLUICE_GROUP_ALIVE_NS + 100 * MS);
    first = s->clients[0].bytes;
    second = s->clients[1].bytes;
    simulation_run(s, s->now_ns + SECOND);
    first = s->clients[0].bytes - first;
    second = s->clients[1].bytes - second;
    check_simulated_limit(s);
    if (check(first + second >= s->limit.rate * 99 / 100)
        && check(second >= 3 * first * 95 / 100)
        && check(second <= 3 * first * 105 / 100)) {
        return true;
    }
    printf("# seed %" PRIu64 ": %" PRIu64 " and %" PRIu64 " bytes\n", seed,
           first, second);
    return false;
}

static void test_a_host_beside_who_garbles_the_shares(void)
{
    Simulation *s = &simulation;
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 15 + 1;
    bool ok = true;

    for (uint64_t i = 0; i < traces && ok; i++) {
        run_host(seed + i, damage_shares, SECOND);
        /* At worst one of a client's requests each time that the bucket, of
         * 50 ms, was full for the grace, and by turns. */
        for (unsigned c = 0; c < s->count; c++) {
            ok &= check(s->clients[c].held_max_ns
                        <= 2 * (50 * MS + SLUICE_GROUP_GRACE_NS
                                + SLUICE_GROUP_RECHECK_MAX_NS));
        }
        ok &= check_shares_after_damage(s, seed + i);
        free(s->page);
    }
}

static const TapTest tests[] = {
    { "group/hostile: a clock far ahead is not believed",
      test_a_clock_far_ahead_is_not_believed },
    { "group/hostile: a clock a little ahead is waited for once",
      test_a_clock_a_little_ahead_is_waited_for_once },
    { "group/hostile: a page with such a clock is not joined",
      test_a_page_with_such_a_clock_is_not_joined },
    { "group/hostile: repairs give no burst", test_repairs_give_no_burst },
    { "group/hostile: a limit cannot be hidden",
      test_a_limit_cannot_be_hidden },
    { "group/hostile: nobody spins for tokens that vanish",
      test_nobody_spins_for_tokens_that_vanish },
    { "group/hostile: nobody spins for tokens that come and go",
      test_nobody_spins_for_tokens_that_come_and_go },
    { "group/hostile: operations owe no more than one",
      test_operations_owe_no_more_than_one },
    { "group/hostile: who never comes is not waited for",
      test_who_never_comes_is_not_waited_for },
    { "group/hostile: a sign of life from the future is none",
      test_a_sign_of_life_from_the_future_is_none },
    { "group/hostile: readers are shown what can be",
      test_readers_are_shown_what_can_be },
    { "group/hostile: a host beside who sets the clock",
      test_a_host_beside_who_sets_the_clock },
    { "group/hostile: a host beside who garbles the shares",
      test_a_host_beside_who_garbles_the_shares },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
