/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Properties of the group over random hosts in virtual time
 * (group-simulation.h): members of all sizes, weights and habits, with timers
 * that are late, which come, go and die.
 *
 * Limit. No window passes more than rate * t + burst + one request. The clock
 * is read in whole units, which may admit one unit early, and each change of
 * the limit rounds once: one unit for each. Exact otherwise.
 *
 * Shares. Let L be the lateness of all timers together, c a member's largest
 * request, w its weight. A member is admitted ahead of one that waits by no
 * more than the tokens that lie there unused: L * rate units, that is, its
 * virtual time before the request is ahead by at most L * rate / w_j, after it
 * by c_i / w_i more. So over any time in which both wait, their services s
 * differ by
 *
 *     |s_i w_j - s_j w_i| <= c_i w_j + c_j w_i + L * rate * (w_i + w_j).
 *
 * Where sizes and lateness are small against a second's share, this is within
 * the 5 % that the product promises; the second test checks just that number.
 *
 * Floor. A member that waits all the time gets its weight's part of the rate,
 * of the weights of all members, even if all of them ask; less the burst that
 * the others found in the bucket, one request each, and the lateness.
 *
 * No waste. The bucket is not full, while a member waits, for longer than the
 * stated time, plus its own lateness.
 */
#include "group-simulation.h"
#include "tap.h"

#define WINDOW_SAMPLES  10                      /* one second */
#define START_NS        (123 * SECOND_NS)

static Simulation simulation;

/* How late all timers together can be, in units of the rate. */
static double lateness_units(const Simulation *s)
{
    double late_ns = 0;

    for (unsigned i = 0; i < s->count; i++) {
        late_ns += s->clients[i].late_max_ns;
    }
    return late_ns / SECOND_NS * s->limit.rate;
}

static bool waited_all(const Client *c, unsigned last)
{
    for (unsigned i = 0; i < WINDOW_SAMPLES; i++) {
        if (!c->waited[last - i]) {
            return false;
        }
    }
    return true;
}

static double service(const Client *c, unsigned last)
{
    return c->samples[last] - c->samples[last - WINDOW_SAMPLES];
}

static bool check_limit(const Simulation *s, unsigned changes)
{
    __int128 allowed = (__int128)(s->limit.burst + s->largest + 1 + changes)
                       * SECOND_NS;

    return check(s->excess_max <= allowed);
}

/* Pairs that waited for the whole window; how many there were. */
static bool check_shares(const Simulation *s, unsigned last, double tolerance,
                         unsigned *pairs)
{
    double late = lateness_units(s);

    for (unsigned i = 0; i < s->count; i++) {
        const Client *a = &s->clients[i];

        for (unsigned j = 0; j < i && waited_all(a, last); j++) {
            const Client *b = &s->clients[j];
            double by_weight = service(a, last) * b->weight
                               - service(b, last) * a->weight;
            double bound = (double)a->size_max * b->weight
                           + (double)b->size_max * a->weight
                           + late * (a->weight + b->weight);

            if (!waited_all(b, last)) {
                continue;
            }
            if (tolerance > 0) {
                bound = tolerance * service(b, last) * a->weight;
            }
            ++*pairs;
            if (!check(by_weight <= bound) || !check(by_weight >= -bound)) {
                printf("# weights %u and %u got %.0f and %.0f\n", a->weight,
                       b->weight, service(a, last), service(b, last));
                return false;
            }
        }
    }
    return true;
}

static bool check_floor(const Simulation *s, unsigned last, unsigned *count)
{
    double weights = 0, requests = 0;

    for (unsigned i = 0; i < s->count; i++) {
        weights += s->clients[i].weight;
        requests += s->clients[i].size_max;
    }
    for (unsigned i = 0; i < s->count; i++) {
        const Client *c = &s->clients[i];
        double part = c->weight / weights;
        /* Those that were idle may each come back with their credit. */
        double credit = (double)SLUICE_GROUP_CREDIT_NS / SECOND_NS
                        * s->limit.rate * s->count;
        double floor = part * (s->limit.rate - (double)s->limit.burst - credit)
                       - requests - lateness_units(s);

        if (waited_all(c, last)) {
            ++*count;
            if (!check(service(c, last) >= floor)) {
                printf("# weight %u of %.0f got %.0f, floor %.0f\n", c->weight,
                       weights, service(c, last), floor);
                return false;
            }
        }
    }
    return true;
}

static void random_habits(Simulation *s, Client *c)
{
    Random *random = &s->random;

    switch (random_below(random, 4)) {
    case 0:                             /* at its own rate, often less */
        c->depth = 0;
        c->interval_ns = 1 + (uint64_t)((double)c->size_max * SECOND_NS
                                        / s->limit.rate
                                        * (1 + random_below(random, 16)) / 2);
        break;
    case 1:                             /* on and off */
        c->depth = 1 + random_below(random, 32);
        c->on_ns = 1 + random_magnitude(random, 29);
        c->off_ns = 1 + random_magnitude(random, 29);
        break;
    default:                            /* as much as it gets */
        c->depth = 1 + random_below(random, 32);
    }
    c->latency_ns = random_magnitude(random, 20);
}

/* Sizes up to `part` of a second's units; timers late by up to late_max_ns. */
static void random_client(Simulation *s, unsigned weight_max, unsigned part,
                          uint64_t late_max_ns)
{
    Client *c = &s->clients[s->count++];
    uint64_t size_max = s->limit.rate / part + 1;

    *c = (Client){ .weight = 1 + random_below(&s->random, weight_max) };
    c->size_max = 1 + random_below(&s->random,
                                   size_max < UINT32_MAX ? size_max
                                                         : UINT32_MAX);
    c->size_min = random_chance(&s->random, 50) ? c->size_max
                  : 1 + random_below(&s->random, c->size_max);
    c->late_max_ns = random_below(&s->random, late_max_ns + 1);
    random_habits(s, c);
}

static bool start(Simulation *s, uint64_t seed, unsigned rate_bits_min,
                  unsigned rate_bits_max)
{
    *s = (Simulation){ .random = random_seeded(seed) };
    s->limit.rate = (1ULL << (rate_bits_min - 1))
                    + random_magnitude(&s->random, rate_bits_max);
    s->limit.burst = s->limit.rate / 20 + 1;
    return check(simulation_start(s, START_NS));
}

static bool join_all(Simulation *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (!s->clients[i].alive && !check(client_join(s, &s->clients[i]))) {
            return false;
        }
    }
    return true;
}

/* Runs one random host through `body`, for many seeds. */
static void for_seeds(bool (*body)(Simulation *s, uint64_t seed,
                                   unsigned *judged), unsigned divisor)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / divisor + 1;
    unsigned judged = 0;

    printf("# seeds %" PRIu64 " to %" PRIu64 "\n", seed, seed + traces - 1);
    for (uint64_t i = 0; i < traces; i++) {
        bool ok = body(&simulation, seed + i, &judged);

        free(simulation.page);
        if (!ok) {
            printf("# failed with seed %" PRIu64 "\n", seed + i);
            return;
        }
    }
    printf("# %u windows judged\n", judged);
    check(judged > traces);
}

static bool judge_windows(const Simulation *s, double tolerance,
                          unsigned *judged)
{
    for (unsigned last = WINDOW_SAMPLES + 1; last < s->samples; last++) {
        if (!check_shares(s, last, tolerance, judged)
            || !check_floor(s, last, judged)) {
            return false;
        }
    }
    return true;
}

/* Sizes up to a fifth of a second's units, any weights, timers up to 2 ms. */
static bool any_host(Simulation *s, uint64_t seed, unsigned *judged)
{
    if (!start(s, seed, 10, 34)) {
        return false;
    }
    for (unsigned n = 2 + random_below(&s->random, 10); n > 0; n--) {
        random_client(s, random_chance(&s->random, 50) ? 10000 : 4, 5
                      + random_below(&s->random, 5000), 2000000);
    }
    if (!join_all(s)) {
        return false;
    }
    simulation_run(s, START_NS + 3 * SECOND_NS);
    return check_limit(s, 0) && judge_windows(s, 0, judged)
           && check(s->idle_max_ns <= SLUICE_GROUP_RECHECK_MAX_NS
                                      + SLUICE_GROUP_GRACE_NS + 2000000);
}

static void test_limit_shares_floor_and_no_waste(void)
{
    for_seeds(any_host, 4);
}

/* Requests below 1/4000 s, weights up to 1:8, timers up to 100 us late. */
static bool ordinary_host(Simulation *s, uint64_t seed, unsigned *judged)
{
    if (!start(s, seed, 20, 34)) {
        return false;
    }
    for (unsigned n = 2 + random_below(&s->random, 4); n > 0; n--) {
        random_client(s, 8, 4000, 100000);
        s->clients[s->count - 1].depth = 1 + random_below(&s->random, 32);
        s->clients[s->count - 1].off_ns = 0;
        s->clients[s->count - 1].latency_ns = 0;
    }
    if (!join_all(s)) {
        return false;
    }
    simulation_run(s, START_NS + 2 * SECOND_NS);
    return check_limit(s, 0) && judge_windows(s, 0.05, judged);
}

static void test_weights_within_five_percent(void)
{
    for_seeds(ordinary_host, 4);
}

/*
 * As above, beside members that come and go, ask at a rate of their own, or have
 * requests that take long: two or three wait all the time, others have any habits.
 * Timers are up to 25 us late, so that the bound above is within 5 % for so many
 * members.
 */
static bool uneven_host(Simulation *s, uint64_t seed, unsigned *judged)
{
    unsigned waiting;

    if (!start(s, seed, 20, 34)) {
        return false;
    }
    waiting = 2 + random_below(&s->random, 2);
    for (unsigned n = waiting + 1 + random_below(&s->random, 4); n > 0; n--) {
        Client *c = &s->clients[s->count];

        random_client(s, 8, 4000, 25000);
        if (s->count <= waiting) {
            c->depth = 1 + random_below(&s->random, 32);
            c->off_ns = 0;
            c->latency_ns = 0;
        }
    }
    if (!join_all(s)) {
        return false;
    }
    simulation_run(s, START_NS + 2 * SECOND_NS);
    return check_limit(s, 0) && judge_windows(s, 0.05, judged);
}

static void test_weights_beside_uneven_askers(void)
{
    for_seeds(uneven_host, 4);
}

/*
 * Members die (nothing of them moves any more, their slots stay as they are),
 * others come, more than there are slots; the limit holds throughout, nothing
 * goes to waste, and the last sees an empty page.
 */
static bool mortal_host(Simulation *s, uint64_t seed, unsigned *judged)
{
    unsigned joined = 0;

    if (!start(s, seed, 20, 30)) {
        return false;
    }
    for (unsigned n = 0; n < 8; n++) {
        random_client(s, 1000, 1000, 500000);
        s->clients[n].depth = 1 + random_below(&s->random, 8);
        s->clients[n].off_ns = 0;
    }
    /* The first lives on, and asks all the time. */
    for (unsigned round = 0; round < 250; round++) {
        Client *c = &s->clients[round == 0 ? 0
                                : 1 + random_below(&s->random, s->count - 1)];

        if (!c->alive) {
            if (!check(client_join(s, c))) {
                return false;
            }
            joined++;
        } else if (c != &s->clients[0]) {
            c->alive = false;           /* killed */
        }
        simulation_run(s, s->now_ns + random_magnitude(&s->random, 27));
        if (joined % 32 == 31) {
            joined++;
            simulation_run(s, s->now_ns + SLUICE_GROUP_REAP_NS);
        }
    }
    *judged += joined;
    for (unsigned n = 1; n < s->count; n++) {
        s->clients[n].alive = false;
    }
    simulation_run(s, s->now_ns + SLUICE_GROUP_REAP_NS
                      + SLUICE_GROUP_SLOTS * SAMPLE_NS + SAMPLE_NS);
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        if (!check((s->page->slots[i].owner != 0)
                   == (i == s->clients[0].member.index))) {
            return false;
        }
    }
    return check_limit(s, 0) && check(s->clients[0].requests > 1000)
           && check(s->idle_max_ns <= SLUICE_GROUP_RECHECK_MAX_NS
                                      + SLUICE_GROUP_GRACE_NS + 500000);
}

static void test_deaths(void)
{
    for_seeds(mortal_host, 30);
}

/* The limit changes under load: at no time more than the highest allows. */
static bool changing_host(Simulation *s, uint64_t seed, unsigned *judged)
{
    uint64_t rate;
    unsigned changes = 0;

    if (!start(s, seed, 20, 30)) {
        return false;
    }
    rate = s->limit.rate;
    for (unsigned n = 0; n < 4; n++) {
        random_client(s, 100, 200, 500000);
    }
    if (!join_all(s)) {
        return false;
    }
    for (; changes < 200; changes++) {
        SluiceGroupLimit limit = s->limit;

        limit.rate = rate / (1 + random_below(&s->random, 20)) + 1;
        limit.rate = limit.rate < rate ? limit.rate : rate;
        if (!check(group_configure(s->page, &limit, s->now_ns))) {
            return false;
        }
        simulation_run(s, s->now_ns + random_magnitude(&s->random, 25));
    }
    ++*judged;
    *judged += s->clients[0].requests > 0;
    return check_limit(s, changes)
           && check(s->idle_max_ns <= SLUICE_GROUP_RECHECK_MAX_NS
                                      + SLUICE_GROUP_GRACE_NS + 500000);
}

static void test_changes_of_the_limit(void)
{
    for_seeds(changing_host, 10);
}

/* A herd would wake everybody at every turn: 16 wakes for a request. */
static void test_timers_are_no_herd(void)
{
    Simulation *s = &simulation;
    uint64_t wakes = 0, requests = 0;

    *s = (Simulation){ .random = random_seeded(1),
                       .limit = { .rate = 100000000, .burst = 5000000 } };
    check(simulation_start(s, START_NS));
    for (s->count = 0; s->count < 16; s->count++) {
        s->clients[s->count] = (Client){
            .weight = 100, .size_min = 65536, .size_max = 65536, .depth = 8,
            .late_max_ns = 50000,
        };
    }
    join_all(s);
    simulation_run(s, START_NS + 2 * SECOND_NS);
    for (unsigned i = 0; i < s->count; i++) {
        wakes += s->clients[i].wakes;
        requests += s->clients[i].requests;
    }
    printf("# %" PRIu64 " wakes for %" PRIu64 " requests\n", wakes, requests);
    check(wakes < 3 * requests);
    free(s->page);
}

static const TapTest tests[] = {
    { "group/property: limit, shares, floor, no waste",
      test_limit_shares_floor_and_no_waste },
    { "group/property: weights within five percent in any second",
      test_weights_within_five_percent },
    { "group/property: weights within five percent beside uneven askers",
      test_weights_beside_uneven_askers },
    { "group/property: deaths", test_deaths },
    { "group/property: changes of the limit", test_changes_of_the_limit },
    { "group/property: timers are no herd", test_timers_are_no_herd },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
