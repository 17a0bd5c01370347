/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Engines under a group: class, then ceiling, then group; and that nothing is
 * lost, doubled, reordered or left behind when several engines share one.
 */
#include <string.h>

#include "evict.h"
#include "random.h"
#include "sluice/engine.h"
#include "group-writer.h"
#include "tap.h"

#define MS          1000000ULL
#define SECOND      (1000 * MS)
#define START_NS    (5 * SECOND)

static _Alignas(128) SluiceGroupPage page;

/* A byte is a microsecond. */
static const SluiceGroupLimit group_limit = { .rate = 1000000, .burst = 10000 };

typedef struct Host {
    SluiceEngine *engine;
    SluiceGroupMember member;
} Host;

static void new_page(const SluiceGroupLimit *limit)
{
    check(group_page_init(&page, "test", limit, START_NS));
}

static Host new_host(uint64_t owner, uint32_t weight, uint32_t classes)
{
    Host host = { .engine = sluice_engine_new(classes) };

    check_equal(sluice_group_join(&host.member, &page, sizeof(page), owner,
                                  "vm", weight, START_NS), SLUICE_GROUP_OK);
    return host;
}

static void attach(Host *host)
{
    sluice_engine_set_group(host->engine, &host->member);
}

static void free_host(Host *host)
{
    while (evict(host->engine)) {
    }
    check_equal(sluice_engine_next_event_ns(host->engine), SLUICE_NEVER);
    sluice_engine_set_group(host->engine, NULL);
    sluice_group_leave(&host->member);
    sluice_engine_free(host->engine);
}

static void limit_class(Host *host, uint32_t class_index, uint64_t rate,
                        uint64_t burst, uint8_t priority)
{
    SluiceClassConfig config = {
        .limit = { .bytes_per_second = rate, .burst_bytes = burst },
        .priority = priority,
    };

    check(sluice_engine_set_class(host->engine, class_index, &config,
                                  START_NS));
}

static void test_class_then_ceiling_then_group(void)
{
    SluiceLimit ceiling = { .bytes_per_second = 2000000, .burst_bytes = 1 };
    SluiceNode nodes[4];
    Host host;
    uint64_t event_ns;

    new_page(&group_limit);
    host = new_host(1, 100, 2);
    attach(&host);
    limit_class(&host, 0, 4000000, 1, 5);
    check(sluice_engine_set_ceiling(host.engine, &ceiling, START_NS));
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[0], 20000,
                                     START_NS), SLUICE_PASS);
    check_equal(page.tat_units, 20000);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[1], 100, START_NS),
                SLUICE_HOLD);
    /* The class is due after 5 ms, the ceiling after 10; not the group yet. */
    event_ns = sluice_engine_next_event_ns(host.engine);
    check(event_ns >= START_NS + 5 * MS && event_ns <= START_NS + 10 * MS);
    check_equal(page.demand[0], 0);
    while (event_ns < START_NS + 10 * MS) {
        check(!sluice_engine_release(host.engine, event_ns));
        event_ns = sluice_engine_next_event_ns(host.engine);
    }
    /* The group has 10000 bytes of debt: 10 ms and one byte. */
    check(!sluice_engine_release(host.engine, START_NS + 10 * MS));
    check_equal(sluice_engine_next_event_ns(host.engine),
                START_NS + 10 * MS + 1000);
    check_equal(page.demand[0], 1);
    check(!sluice_engine_release(host.engine, START_NS + 10 * MS + 999));
    check(sluice_engine_release(host.engine, START_NS + 10 * MS + 1000)
          == &nodes[1]);
    check_equal(page.tat_units, 20100);
    check_equal(sluice_engine_next_event_ns(host.engine), SLUICE_NEVER);
    check_equal(page.demand[0], 0);
    free_host(&host);
}

static void test_a_refused_request_costs_its_class_nothing(void)
{
    SluiceNode nodes[2];
    Host host;

    new_page(&group_limit);
    host = new_host(1, 100, 2);
    attach(&host);
    limit_class(&host, 1, 1000000, 1000, 5);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[0], 10001,
                                     START_NS), SLUICE_PASS);
    check_equal(sluice_engine_submit(host.engine, 1, &nodes[1], 1000,
                                     START_NS), SLUICE_HOLD);
    check_equal(sluice_engine_stats(host.engine, 1)->requests, 0);
    sluice_engine_withdraw(host.engine, &nodes[1], 0);
    check_equal(sluice_engine_next_event_ns(host.engine), SLUICE_NEVER);
    check_equal(page.demand[0], 0);
    check_equal(page.tat_units, 10001);
    free_host(&host);
}

static void test_priorities_under_a_group_without_ceiling(void)
{
    SluiceNode nodes[3], newcomer;
    Host host;
    uint64_t event_ns;

    new_page(&group_limit);
    host = new_host(1, 100, 2);
    attach(&host);
    limit_class(&host, 0, 0, 0, 6);
    limit_class(&host, 1, 0, 0, 2);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[0], 10001,
                                     START_NS), SLUICE_PASS);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[1], 1000,
                                     START_NS), SLUICE_HOLD);
    check_equal(sluice_engine_submit(host.engine, 1, &nodes[2], 1000,
                                     START_NS), SLUICE_HOLD);
    event_ns = sluice_engine_next_event_ns(host.engine);
    /* Late, and one of the worse priority comes: the waiting one goes first. */
    check_equal(sluice_engine_submit(host.engine, 0, &newcomer, 1,
                                     event_ns + MS), SLUICE_HOLD);
    check(sluice_engine_release(host.engine, event_ns + MS) == &nodes[2]);
    free_host(&host);
}

static void test_a_group_that_is_left_holds_nobody(void)
{
    SluiceNode nodes[2];
    Host host;

    new_page(&group_limit);
    host = new_host(1, 100, 1);
    attach(&host);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[0], 1000000,
                                     START_NS), SLUICE_PASS);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[1], 1, START_NS),
                SLUICE_HOLD);
    check(sluice_engine_next_event_ns(host.engine) > START_NS + 900 * MS);
    sluice_engine_set_group(host.engine, NULL);
    check_equal(sluice_engine_next_event_ns(host.engine), START_NS);
    check(sluice_engine_release(host.engine, START_NS) == &nodes[1]);
    free_host(&host);
}

static void test_a_correction_reaches_the_group(void)
{
    SluiceReceipt receipt;
    SluiceNode nodes[2];
    Host host;

    new_page(&group_limit);
    host = new_host(1, 100, 1);
    attach(&host);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[0], 12000,
                                     START_NS), SLUICE_PASS);
    receipt = sluice_engine_receipt(host.engine, 0, 12000);
    check_equal(sluice_engine_submit(host.engine, 0, &nodes[1], 1, START_NS),
                SLUICE_HOLD);
    check_equal(sluice_engine_next_event_ns(host.engine),
                START_NS + 2 * MS + 1000);
    sluice_engine_correct(host.engine, &receipt, 1000, START_NS);
    check_equal(page.tat_units, 13000);
    check_equal(sluice_engine_next_event_ns(host.engine),
                START_NS + 3 * MS + 1000);
    /* It goes earlier than it was told, too. */
    sluice_engine_correct(host.engine, &receipt, -12000, START_NS);
    check_equal(page.tat_units, 1000);
    check_equal(sluice_engine_next_event_ns(host.engine), START_NS);
    check(sluice_engine_release(host.engine, START_NS) == &nodes[1]);
    free_host(&host);
}

/* Two VMs, weights 1 and 3, both with more than they get: exact by request. */
static void test_engines_share_by_weight(void)
{
    enum { HELD = 64 };
    static SluiceNode nodes[2][HELD];
    Host hosts[2];
    uint64_t bytes[2] = { 0 }, now_ns = START_NS;

    new_page(&group_limit);
    for (unsigned i = 0; i < 2; i++) {
        hosts[i] = new_host(i + 1, i ? 300 : 100, 1);
        attach(&hosts[i]);
        for (unsigned n = 0; n < HELD; n++) {
            if (sluice_engine_submit(hosts[i].engine, 0, &nodes[i][n], 5000,
                                     now_ns) == SLUICE_PASS) {
                n--;
            }
        }
    }
    while (now_ns < START_NS + 10 * SECOND) {
        uint64_t next_ns[2] = { sluice_engine_next_event_ns(hosts[0].engine),
                                sluice_engine_next_event_ns(hosts[1].engine) };
        unsigned who = next_ns[1] < next_ns[0];
        SluiceNode *node;

        now_ns = next_ns[who];
        while ((node = sluice_engine_release(hosts[who].engine, now_ns))) {
            bytes[who] += 5000;
            check_equal(sluice_engine_submit(hosts[who].engine, 0, node, 5000,
                                             now_ns), SLUICE_HOLD);
        }
    }
    /* One request of each, over its weight. */
    check(bytes[1] <= 3 * bytes[0] + 3 * 5000 + 5000);
    check(bytes[1] + 3 * 5000 + 5000 >= 3 * bytes[0]);
    check(bytes[0] + bytes[1] >= 10 * 1000000 - 10000);
    check(bytes[0] + bytes[1] <= 10 * 1000000 + 10000 + 5000);
    free_host(&hosts[0]);
    free_host(&hosts[1]);
}

/* Random traces */

#define HOSTS       4
#define CLASSES     4
#define ITEMS       64

typedef struct Item {
    SluiceNode node;            /* first */
    uint64_t number;            /* within its class */
    bool held;
} Item;

typedef struct Trace {
    Random random;
    Host hosts[HOSTS];
    bool attached[HOSTS];
    Item items[HOSTS][ITEMS];
    uint64_t submitted[HOSTS][CLASSES];     /* numbers given */
    uint64_t admitted[HOSTS][CLASSES];      /* next number expected */
    unsigned held[HOSTS];
    uint64_t now_ns;
} Trace;

static bool release_all(Trace *t, unsigned h)
{
    SluiceNode *node;

    while ((node = sluice_engine_release(t->hosts[h].engine, t->now_ns))) {
        Item *item = (Item *)node;
        uint32_t c = node->class_index;

        if (!check(item->held) || !check_equal(item->number,
                                               t->admitted[h][c])) {
            return false;
        }
        item->held = false;
        t->admitted[h][c]++;
        t->held[h]--;
    }
    return true;
}

static bool submit_one(Trace *t, unsigned h)
{
    uint32_t c = random_below(&t->random, CLASSES);
    Item *item = NULL;

    for (unsigned i = 0; i < ITEMS && !item; i++) {
        item = t->items[h][i].held ? NULL : &t->items[h][i];
    }
    if (!item) {
        return true;
    }
    item->number = t->submitted[h][c]++;
    if (sluice_engine_submit(t->hosts[h].engine, c, &item->node,
                             random_below(&t->random, 3000), t->now_ns)
        == SLUICE_PASS) {
        return check_equal(item->number, t->admitted[h][c]++);
    }
    item->held = true;
    t->held[h]++;
    return true;
}

static uint64_t next_of_all(Trace *t)
{
    uint64_t next_ns = SLUICE_NEVER;

    for (unsigned h = 0; h < HOSTS; h++) {
        uint64_t host_ns = sluice_engine_next_event_ns(t->hosts[h].engine);

        if (!check((host_ns == SLUICE_NEVER) == (t->held[h] == 0))) {
            return 0;
        }
        next_ns = host_ns < next_ns ? host_ns : next_ns;
    }
    return next_ns;
}

static bool step(Trace *t)
{
    unsigned h = random_below(&t->random, HOSTS);
    unsigned dice = random_below(&t->random, 100);

    if (dice < 60) {
        return submit_one(t, h);
    }
    if (dice < 80) {
        t->now_ns += random_magnitude(&t->random, 24);
        return release_all(t, h);
    }
    if (dice < 95) {
        uint64_t next_ns = next_of_all(t);

        t->now_ns = next_ns != SLUICE_NEVER && next_ns > t->now_ns ? next_ns
                                                                   : t->now_ns;
        return next_ns && release_all(t, h);
    }
    if (dice < 97) {
        limit_class(&t->hosts[h], random_below(&t->random, CLASSES),
                    random_magnitude(&t->random, 24), 3000,
                    random_below(&t->random, 10));
        return true;
    }
    t->attached[h] = !t->attached[h];
    sluice_group_idle(&t->hosts[h].member);
    sluice_engine_set_group(t->hosts[h].engine,
                            t->attached[h] ? &t->hosts[h].member : NULL);
    return true;
}

/* Going from event to event, everything gets out. */
static bool drains(Trace *t)
{
    for (unsigned round = 0; round < 1000000; round++) {
        uint64_t next_ns = next_of_all(t);

        if (next_ns == SLUICE_NEVER) {
            for (unsigned h = 0; h < HOSTS; h++) {
                for (unsigned c = 0; c < CLASSES; c++) {
                    check_equal(t->admitted[h][c], t->submitted[h][c]);
                }
            }
            return check_equal(page.demand[0], 0);
        }
        t->now_ns = next_ns > t->now_ns ? next_ns : t->now_ns;
        for (unsigned h = 0; h < HOSTS; h++) {
            if (!release_all(t, h)) {
                return false;
            }
        }
    }
    return check(false);
}

static void test_nothing_is_lost(void)
{
    static Trace t;
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 10 + 1;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        bool ok = true;

        memset(&t, 0, sizeof(t));
        t.random = random_seeded(seed + i);
        t.now_ns = START_NS;
        new_page(&group_limit);
        for (unsigned h = 0; h < HOSTS; h++) {
            t.hosts[h] = new_host(h + 1, 1 + random_below(&t.random, 1000),
                                  CLASSES);
            attach(&t.hosts[h]);
            t.attached[h] = true;
        }
        for (unsigned n = 0; n < 4000 && ok; n++) {
            ok = step(&t);
        }
        if (!ok || !drains(&t)) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
        for (unsigned h = 0; h < HOSTS; h++) {
            free_host(&t.hosts[h]);
        }
    }
}

static const TapTest tests[] = {
    { "engine/group: class, then ceiling, then group",
      test_class_then_ceiling_then_group },
    { "engine/group: a refused request costs its class nothing",
      test_a_refused_request_costs_its_class_nothing },
    { "engine/group: priorities under a group without ceiling",
      test_priorities_under_a_group_without_ceiling },
    { "engine/group: a group that is left holds nobody",
      test_a_group_that_is_left_holds_nobody },
    { "engine/group: a correction reaches the group",
      test_a_correction_reaches_the_group },
    { "engine/group: engines share by weight", test_engines_share_by_weight },
    { "engine/group/property: nothing is lost", test_nothing_is_lost },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
