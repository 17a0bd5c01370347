/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cost model on simulated devices, of which the truth is known. */
#include "sluice/cost.h"
#include "random.h"
#include "tap.h"

#define US          1000ULL
#define MILLI       1000000ULL
#define WARM_UP     2000
#define JUDGED      20000
#define ALONE       UINT64_MAX          /* no completion before it */

typedef struct Kind {
    SluiceCostKind kind;
    uint64_t latency_ns;        /* give or take 30 % */
    unsigned percent;
} Kind;

static uint64_t spread(Random *random, uint64_t latency_ns)
{
    /* The sum of three, so that most are near the middle. */
    uint64_t sum = 0;

    for (int i = 0; i < 3; i++) {
        sum += latency_ns * 7 / 10 + random_below(random, latency_ns * 6 / 10);
    }
    return sum / 3;
}

static const Kind *choose(Random *random, const Kind *kinds)
{
    int dice = random_below(random, 100);

    while ((dice -= (int)kinds->percent) >= 0) {
        kinds++;
    }
    return kinds;
}

/* How many of JUDGED requests it takes for something else, after a warm-up. */
static unsigned mistakes(SluiceCostModel *model, Random *random,
                         const Kind *kinds)
{
    unsigned wrong = 0;

    for (unsigned i = 0; i < WARM_UP + JUDGED; i++) {
        const Kind *kind = choose(random, kinds);
        uint32_t bytes = 512 << random_below(random, 8);
        uint64_t latency_ns = spread(random, kind->latency_ns);

        /* A larger request takes longer, by its bytes. */
        latency_ns += latency_ns * bytes / 65536;
        if (sluice_cost_observe(model, bytes, latency_ns, ALONE)
            != kind->kind && i >= WARM_UP) {
            wrong++;
        }
    }
    return wrong;
}

static const Kind flash[] = {
    { SLUICE_COST_SEQUENTIAL, 85 * US, 100 },
};
static const Kind flash_that_tidies_up[] = {
    { SLUICE_COST_SEQUENTIAL, 85 * US, 95 },
    { SLUICE_COST_SEQUENTIAL, 1 * MILLI, 5 },
};
static const Kind flash_behind_memory[] = {
    { SLUICE_COST_HOST_CACHE, 12 * US, 70 },
    { SLUICE_COST_SEQUENTIAL, 85 * US, 30 },
};
static const Kind rotating[] = {
    { SLUICE_COST_SEQUENTIAL, 300 * US, 80 },
    { SLUICE_COST_SEEK, 8 * MILLI, 20 },
};
static const Kind rotating_with_caches[] = {
    { SLUICE_COST_HOST_CACHE, 12 * US, 40 },
    { SLUICE_COST_DEVICE_CACHE, 150 * US, 20 },
    { SLUICE_COST_SEQUENTIAL, 900 * US, 25 },
    { SLUICE_COST_SEEK, 9 * MILLI, 15 },
};
static const Kind rotating_mostly_elsewhere[] = {
    { SLUICE_COST_HOST_CACHE, 12 * US, 60 },
    { SLUICE_COST_SEQUENTIAL, 300 * US, 10 },
    { SLUICE_COST_SEEK, 8 * MILLI, 30 },
};
static const Kind remote[] = {
    { SLUICE_COST_SEQUENTIAL, 5 * MILLI, 100 },
};
static const Kind in_memory[] = {
    { SLUICE_COST_SEQUENTIAL, 15 * US, 100 },
};

static const struct {
    const char *name;
    const Kind *kinds;
} devices[] = {
    { "flash", flash },
    { "flash that tidies up", flash_that_tidies_up },
    { "flash behind memory", flash_behind_memory },
    { "rotating", rotating },
    { "rotating with caches", rotating_with_caches },
    { "rotating, read here and there", rotating_mostly_elsewhere },
    { "remote", remote },
    { "in memory", in_memory },
};

#define DEVICES     (sizeof(devices) / sizeof(devices[0]))

static void test_learns_each_device(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));

    for (unsigned i = 0; i < DEVICES; i++) {
        SluiceCostModel model;
        unsigned wrong;

        sluice_cost_init(&model);
        wrong = mistakes(&model, &random, devices[i].kinds);
        printf("# %s: %u of %u wrong\n", devices[i].name, wrong, JUDGED);
        check(wrong * 100 <= JUDGED);
    }
}

/* The disk moves to another device: half the counts are soon forgotten. */
static void test_learns_anew_when_the_device_changes(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));
    SluiceCostModel model;

    sluice_cost_init(&model);
    mistakes(&model, &random, rotating_with_caches);
    for (unsigned i = 0; i < 40; i++) {
        mistakes(&model, &random, flash_behind_memory);
    }
    check(mistakes(&model, &random, flash_behind_memory) * 100 <= JUDGED);
}

static void test_knows_nothing_at_first(void)
{
    SluiceCostModel model;

    sluice_cost_init(&model);
    for (unsigned i = 0; i < 500; i++) {
        check_equal(sluice_cost_observe(&model, 4096,
                                        i % 2 ? 10 * US : 10 * MILLI,
                                        ALONE),
                    SLUICE_COST_SEQUENTIAL);
    }
}

static void test_any_latency_is_taken(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    Random random = random_seeded(seed);
    SluiceCostModel model;

    sluice_cost_init(&model);
    for (unsigned i = 0; i < 300000; i++) {
        uint64_t own_ns = random_magnitude(&random, 64) - 1;
        uint64_t turn_ns = random_magnitude(&random, 64) - 1;
        uint32_t bytes = random_magnitude(&random, 32);

        check(sluice_cost_observe(&model, bytes, own_ns, turn_ns)
              <= SLUICE_COST_SEEK);
        if (!check(model.host_cache_below_ns <= model.device_cache_below_ns)
            || !check(!model.seek_from_ns
                      || model.device_cache_below_ns <= model.seek_from_ns)) {
            printf("# seed %" PRIu64 "\n", seed);
            return;
        }
    }
    sluice_cost_observe(&model, UINT32_MAX, UINT64_MAX, UINT64_MAX);
    sluice_cost_observe(&model, 0, 0, 0);
}

/* Bytes of `batch` requests that are found done at the same look, less the bytes
 * given back for them; the look takes a microsecond each. */
static int64_t batch_cost(SluiceCostModel *model, unsigned batch,
                          uint32_t bytes, uint64_t latency_ns)
{
    int64_t cost = 0;

    for (unsigned i = 0; i < batch; i++) {
        uint64_t own_ns = latency_ns + i * US;
        SluiceCostKind kind = sluice_cost_observe(model, bytes, own_ns,
                                                  i ? US : own_ns + 50 * US);

        cost += bytes + sluice_cost_correction(kind, bytes);
    }
    return cost;
}

/*
 * Merged into one, or reaped in one batch: all but the first come 1 us after
 * the one before. They read the medium, and cost the bytes that they ask for.
 */
static void test_requests_done_together_are_no_hits(void)
{
    static const uint64_t latencies_ns[] = {
        30 * US, 85 * US, 150 * US, 800 * US, 6 * MILLI,
    };

    for (unsigned i = 0; i < sizeof(latencies_ns) / sizeof(*latencies_ns); i++) {
        uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
        Random random = random_seeded(seed);
        SluiceCostModel model;
        int64_t cost = 0, asked = 0;

        sluice_cost_init(&model);
        for (unsigned n = 0; n < JUDGED / 8; n++) {
            /* Now and then one alone, so that the medium is known. */
            unsigned batch = random_chance(&random, 10) ? 1 : 8;

            cost += batch_cost(&model, batch, 4096,
                               spread(&random, latencies_ns[i]));
            asked += 4096 * batch;
        }
        check_equal(cost, asked);
    }
}

/* A memory hit is one among others that wait for the disk, too. */
static void test_hits_are_seen_beside_others(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));
    SluiceCostModel model;
    unsigned hits = 0;

    sluice_cost_init(&model);
    mistakes(&model, &random, rotating_with_caches);
    for (unsigned i = 0; i < JUDGED; i++) {
        hits += sluice_cost_observe(&model, 4096, spread(&random, 12 * US), US)
                == SLUICE_COST_HOST_CACHE;
    }
    check(hits * 100 >= JUDGED * 99);
}

/* An arm that always has 32 requests before it: the turns count. */
static void test_seeks_are_seen_in_a_queue(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));
    SluiceCostModel model;
    unsigned wrong = 0;

    sluice_cost_init(&model);
    for (unsigned i = 0; i < WARM_UP + JUDGED; i++) {
        const Kind *kind = choose(&random, rotating);
        uint64_t turn_ns = spread(&random, kind->latency_ns);

        wrong += sluice_cost_observe(&model, 4096, 60 * MILLI + turn_ns,
                                     turn_ns) != kind->kind && i >= WARM_UP;
    }
    check(wrong * 100 <= JUDGED);
}

static void test_corrections(void)
{
    check(sluice_cost_correction(SLUICE_COST_HOST_CACHE, 1000) == -1000);
    check(sluice_cost_correction(SLUICE_COST_DEVICE_CACHE, 1000) == -900);
    check(sluice_cost_correction(SLUICE_COST_SEQUENTIAL, 1000) == 0);
    check(sluice_cost_correction(SLUICE_COST_SEEK, 1000) == 4000);
    check(sluice_cost_correction(SLUICE_COST_SEEK, UINT32_MAX)
          == 4 * (int64_t)UINT32_MAX);
}

static const TapTest tests[] = {
    { "cost/learns each device", test_learns_each_device },
    { "cost/learns anew when the device changes",
      test_learns_anew_when_the_device_changes },
    { "cost/knows nothing at first", test_knows_nothing_at_first },
    { "cost/property: any latency is taken", test_any_latency_is_taken },
    { "cost/requests done together are no hits",
      test_requests_done_together_are_no_hits },
    { "cost/hits are seen beside others", test_hits_are_seen_beside_others },
    { "cost/seeks are seen in a queue", test_seeks_are_seen_in_a_queue },
    { "cost/corrections", test_corrections },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
