/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A group whose page was damaged. */
#include "group-fixture.h"
#include "random.h"

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

/* The bucket changes between the refusal and the question when to ask again. */
static void test_damage_between_two_calls(void)
{
    static const uint64_t below[] = { 0, 1, 9998, 9999, 10000, 10001, 1 << 20 };

    for (unsigned i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        SluiceGroupMember member;

        new_page(&one_megabyte);
        joins(&member, 1, 100, START_NS);
        drain(&member, START_NS);
        page.tat_units = group_units(&member, START_NS)
                         + (1ULL << 63) + below[i];
        /* No member took anything for the longest time that can be told. */
        check_equal(sluice_group_next_ns(&member, START_NS), START_NS);
        check(sluice_group_admit(&member, 1, START_NS));
    }
}

static void damage(Random *random, uint64_t now_ns)
{
    SluiceWord *words = &page.sequence;
    unsigned count = (sizeof(page) - 128) / 8;

    for (unsigned i = random_below(random, count); i > 0; i--) {
        uint64_t near = random_chance(random, 50) ? now_ns : 0;

        words[random_below(random, count)] = near
                                             + random_magnitude(random, 64);
    }
}

/*
 * Any bytes where peers can write, also between two calls: every call returns, and once
 * the damage has stopped, a request goes on after the largest debt that counts as one,
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

        new_page(&one_megabyte);
        joins(&member, 1, 1 + random_below(&random, 10000), now_ns);
        for (unsigned step = 0; step < 50; step++) {
            damage(&random, now_ns);
            now_ns += random_magnitude(&random, 30);
            sluice_group_admit(&member, random_magnitude(&random, 32), now_ns);
            if (random_chance(&random, 50)) {
                damage(&random, now_ns);
            }
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
    { "group: damaged bucket is repaired", test_damaged_bucket_is_repaired },
    { "group: damage between two calls", test_damage_between_two_calls },
    { "group/property: any bytes on the page", test_any_bytes_on_the_page },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
