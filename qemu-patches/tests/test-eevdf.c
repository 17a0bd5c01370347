/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shares of a ceiling by weight, and the wait of a request for them.
 * Reservations: test-reservations.c.
 */
#include "share-load.h"

/*
 * After each service no class is ahead of or behind its share of all that has
 * been served by more than one maximum request. Rounding of virtual time adds
 * at most half a 2^-20 byte per weight and request: 16 bytes are plenty.
 */
static bool lags_hold(const Load *load, const uint16_t *weights)
{
    Wide sum = 0, total = 0;

    for (uint32_t i = 0; i < load->classes; i++) {
        sum += weights[i];
        total += load->served[i];
    }
    for (uint32_t i = 0; i < load->classes; i++) {
        Wide lag = total * weights[i] - (Wide)load->served[i] * sum;
        Wide bound = ((Wide)load->size_max + 16) * sum;

        if (!check(lag <= bound) || !check(lag >= -bound)) {
            return false;
        }
    }
    return true;
}

static bool weights_trace(uint64_t seed)
{
    Load *load = new_load(seed, 2 + seed % (CLASSES - 1));
    uint16_t weights[CLASSES];
    bool ok = true;
    Wide sum = 0, total = 0;

    load->size_max = random_magnitude(&load->random, 16);
    for (uint32_t i = 0; i < load->classes; i++) {
        weights[i] = random_magnitude(&load->random, 9);
        set_class(load, i, 5, weights[i], 0);
        fill(load, i);
        sum += weights[i];
    }
    while (ok && load->requests < 10000) {
        ok = serve(load) != UINT32_MAX && lags_hold(load, weights);
    }
    for (uint32_t i = 0; i < load->classes; i++) {
        total += load->served[i];
    }
    /* 1 %, or one maximum request where a share is smaller than 100 of them. */
    for (uint32_t i = 0; ok && i < load->classes; i++) {
        Wide ideal = total * weights[i];
        Wide off = ideal - (Wide)load->served[i] * sum;
        Wide most = ideal / 100 > load->size_max * sum
                    ? ideal / 100 : (load->size_max + 16) * sum;

        ok = check((off < 0 ? -off : off) <= most);
    }
    free_load(load);
    return ok;
}

static void test_weights_and_lag(void)
{
    run("10,000 requests each", weights_trace, 6);
}

/* Classes come and go; a class that stays is never behind by more than a request
 * for each time that another came or went. */
static bool coming_and_going(uint64_t seed)
{
    Load *load = new_load(seed, 4);
    bool present[4] = { true, true, false, false }, ok = true;
    uint64_t base[2], total = 0;
    unsigned changes = 0;

    load->size_max = 8192;
    for (uint32_t i = 0; i < 4; i++) {
        set_class(load, i, 5, 100, 0);
    }
    fill(load, 0);
    fill(load, 1);
    while (ok && load->requests < 4000) {
        uint32_t i = 2 + random_below(&load->random, 2);

        ok = serve(load) != UINT32_MAX;
        if (!random_chance(&load->random, 3)) {
            continue;
        }
        changes++;
        present[i] = !present[i];
        if (present[i]) {
            fill(load, i);
            continue;
        }
        for (SluiceNode *node;
             (node = sluice_engine_first_held(load->engine, i)); ) {
            sluice_engine_withdraw(load->engine, node, 0);
        }
    }
    base[0] = load->served[0];
    base[1] = load->served[1];
    total = base[0] > base[1] ? base[0] - base[1] : base[1] - base[0];
    /* The two that never left have equal weights: theirs stays equal. */
    ok = ok && check(changes > 20) && check(total <= 2 * load->size_max);
    free_load(load);
    return ok;
}

static void test_coming_and_going_disturbs_nobody(void)
{
    run("coming and going", coming_and_going, 10);
}

/*
 * A class with weight 1 of 4 and all others backlogged: a request waits for
 * those before it in its class and one maximum request of each kind of
 * lateness; the fluid ideal is depth * size / its rate.
 */
static void test_longest_wait_is_near_the_fluid_ideal(void)
{
    enum { WAITING = 64, SIZE = 4096 };
    Load *load = new_load(1, 4);
    static SluiceNode queue[WAITING];
    uint64_t ideal_ns = (uint64_t)WAITING * SIZE * 4 * 1000, longest_ns = 0;

    load->fixed_size = load->size_max = SIZE;
    for (uint32_t i = 0; i < 4; i++) {
        set_class(load, i, 5, 100, 0);
    }
    for (uint32_t i = 1; i < 4; i++) {
        fill(load, i);
    }
    for (unsigned i = 0; i < WAITING; i++) {
        submit(load, &queue[i], 0);
    }
    while (load->requests < 20000) {
        uint64_t event_ns = sluice_engine_next_event_ns(load->engine);
        SluiceNode *node = sluice_engine_release(load->engine, event_ns);
        uint32_t class_index;

        if (!check(node)) {
            break;
        }
        class_index = node->class_index;
        load->now_ns = event_ns;
        load->requests++;
        if (class_index == 0 && event_ns - node->held_since_ns > longest_ns) {
            longest_ns = event_ns - node->held_since_ns;
        }
        submit(load, node, class_index);
    }
    printf("# longest wait %.3f of the fluid ideal\n",
           (double)longest_ns / ideal_ns);
    check(longest_ns <= ideal_ns + ideal_ns / 10);
    free_load(load);
}

/*
 * As above, over random classes, sizes and weights, some classes with a limit of
 * their own below their share. In the fluid system a class that is limited has
 * its limit, and the others share the rest by weight; a request goes when those
 * before it in its class, and itself, have been served at that rate. The
 * first half is not judged: there the limited have their bursts beside.
 */

#define WAITING         128
#define WAITS_JUDGED    (10 * WAITING * CLASSES)

typedef struct Waiting {
    Load *load;
    uint16_t weights[CLASSES];
    uint64_t limits[CLASSES];           /* 0: none */
    double rates[CLASSES];              /* of the fluid system */
    uint64_t queued[CLASSES];           /* bytes */
    double ideals_ns[CLASSES];          /* longest */
    uint64_t waits_ns[CLASSES];
    uint64_t ahead[CLASSES][WAITING];   /* of each node, when it came */
    SluiceNode nodes[CLASSES][WAITING];
} Waiting;

/* A class with a limit below its share gets it, and leaves the rest to others. */
static void fluid_rates(Waiting *w)
{
    bool again = true;

    while (again) {
        double left = RATE, weights = 0;

        again = false;
        for (uint32_t i = 0; i < w->load->classes; i++) {
            left -= w->rates[i];
            weights += w->rates[i] > 0 ? 0 : w->weights[i];
        }
        for (uint32_t i = 0; i < w->load->classes; i++) {
            if (w->rates[i] == 0 && w->limits[i]
                && w->limits[i] < left * w->weights[i] / weights) {
                w->rates[i] = w->limits[i];
                again = true;
            }
        }
        for (uint32_t i = 0; i < w->load->classes && !again; i++) {
            if (w->rates[i] == 0) {
                w->rates[i] = left * w->weights[i] / weights;
            }
        }
    }
}

static void wait_anew(Waiting *w, SluiceNode *node, uint32_t class_index)
{
    submit(w->load, node, class_index);
    w->queued[class_index] += node->bytes;
    w->ahead[class_index][node - w->nodes[class_index]] =
        w->queued[class_index];
}

static void fill_waiting(Waiting *w)
{
    Load *load = w->load;

    for (uint32_t i = 0; i < load->classes; i++) {
        SluiceClassConfig config = {
            .priority = 5, .weight = w->weights[i],
            .limit = { .bytes_per_second = w->limits[i],
                       .burst_bytes = 4 * load->size_max },
        };

        check(sluice_engine_set_class(load->engine, i, &config, load->now_ns));
        for (unsigned n = 0; n < WAITING; n++) {
            wait_anew(w, &w->nodes[i][n], i);
        }
    }
}

/* One is served, and the longest wait and the longest ideal of its class noted. */
static bool serve_waiting(Waiting *w)
{
    Load *load = w->load;
    uint64_t event_ns = sluice_engine_next_event_ns(load->engine), waited_ns;
    SluiceNode *node = sluice_engine_release(load->engine, event_ns);
    uint32_t c;
    double ideal_ns;

    if (!check(node)) {
        return false;
    }
    c = node->class_index;
    load->now_ns = event_ns;
    load->requests++;
    waited_ns = event_ns - node->held_since_ns;
    ideal_ns = w->ahead[c][node - w->nodes[c]] / w->rates[c] * NANO;
    w->waits_ns[c] = waited_ns > w->waits_ns[c] ? waited_ns : w->waits_ns[c];
    w->ideals_ns[c] = ideal_ns > w->ideals_ns[c] ? ideal_ns : w->ideals_ns[c];
    w->queued[c] -= node->bytes;
    wait_anew(w, node, c);
    return true;
}

static bool wait_trace(uint64_t seed)
{
    static Waiting waiting;
    Waiting *w = &waiting;
    Load *load = new_load(seed, 2 + seed % (CLASSES - 1));
    Random *random = &load->random;
    bool ok = true;

    *w = (Waiting){ .load = load };
    load->size_max = random_magnitude(random, 16);
    for (uint32_t i = 0; i < load->classes; i++) {
        w->weights[i] = 1 + random_below(random, 8);
        w->limits[i] = i > 0 && random_chance(random, 40)
                       ? RATE / 50 + random_below(random, RATE / 4) : 0;
    }
    fluid_rates(w);
    fill_waiting(w);
    while (ok && load->requests < WAITS_JUDGED) {
        ok = serve_waiting(w);
    }
    memset(w->waits_ns, 0, sizeof(w->waits_ns));
    memset(w->ideals_ns, 0, sizeof(w->ideals_ns));
    while (ok && load->requests < 2 * WAITS_JUDGED) {
        ok = serve_waiting(w);
    }
    for (uint32_t i = 0; ok && i < load->classes; i++) {
        ok = check(w->waits_ns[i] <= w->ideals_ns[i] * 1.1);
        if (!ok) {
            printf("# class %u: weight %u, limit %" PRIu64 ", rate %.0f: waited "
                   "%.3f of the ideal\n", i, w->weights[i], w->limits[i],
                   w->rates[i], w->waits_ns[i] / w->ideals_ns[i]);
        }
    }
    free_load(load);
    return ok;
}

static void test_longest_waits_over_random_traces(void)
{
    run("longest waits", wait_trace, 6);
}

/* The first request of a class goes in another way; the last becomes the first. */
static void replace_first(Load *load, uint32_t class_index)
{
    SluiceNode *node = sluice_engine_first_held(load->engine, class_index);

    sluice_engine_withdraw(load->engine, node, 0);
    submit(load, node, class_index);
}

static bool withdrawal_trace(uint64_t seed)
{
    Load *load = new_load(seed, 2 + seed % (CLASSES - 1));
    uint16_t weights[CLASSES];
    bool ok = true;

    for (uint32_t i = 0; i < load->classes; i++) {
        weights[i] = 1 + random_below(&load->random, 100);
        set_class(load, i, 5, weights[i], 0);
        fill(load, i);
    }
    while (ok && load->requests < 3000) {
        replace_first(load, random_below(&load->random, load->classes));
        ok = serve(load) != UINT32_MAX && lags_hold(load, weights);
    }
    free_load(load);
    return ok;
}

/* A class charged for a withdrawn request, and not for the next, loses that. */
static void test_what_is_withdrawn_costs_nothing(void)
{
    run("withdrawals", withdrawal_trace, 10);
}

/* Virtual time is set back long before it overflows, which changes nothing. */
static void test_virtual_time_is_renewed(void)
{
    Load *load = new_load(1, 3);
    static const uint16_t weights[] = { 1, 1, 2 };
    SluiceLimit ceiling = { .bytes_per_second = 1000000000000,
                            .burst_bytes = 1 };

    sluice_engine_set_ceiling(load->engine, &ceiling, 0);
    load->fixed_size = load->size_max = UINT32_MAX;
    for (uint32_t i = 0; i < 3; i++) {
        set_class(load, i, 5, weights[i], 0);
        fill(load, i);
    }
    /* 2^39 bytes per weight bring it about: 128 requests of 2^32. */
    while (load->requests < 4000 && serve(load) != UINT32_MAX
           && lags_hold(load, weights)) {
        /* All the way. */
    }
    check_equal(load->requests, 4000);
    free_load(load);
}

/* A class that always waits and never goes: the other lives on its reservation. */
static void test_renewed_while_one_never_goes(void)
{
    enum { BOTH = 200 };
    static const uint64_t rate = 1000000000000;
    SluiceLimit ceiling = { .bytes_per_second = rate, .burst_bytes = 1 };
    Load *load = new_load(1, 2);
    uint64_t before;

    sluice_engine_set_ceiling(load->engine, &ceiling, 0);
    load->fixed_size = load->size_max = UINT32_MAX;
    set_class(load, 0, 5, 1, rate);
    set_class(load, 1, 5, 1, 0);
    fill(load, 0);
    fill(load, 1);
    /* 2^44 bytes, 4096 requests, are all that virtual time has room for. */
    while (load->requests < 3 * 4096 && check(serve(load) == 0)) {
        /* All the way. */
    }
    before = load->served[0];
    check_equal(load->served[1], 0);
    /* Without the reservation the other is first served the bytes it has missed, which
     * are remembered up to 2^38, 64 requests; from then on they take turns. */
    set_class(load, 0, 5, 1, 0);
    while (load->requests < 3 * 4096 + 64 && check(serve(load) == 1)) {
        /* The bytes it has missed. */
    }
    while (load->requests < 3 * 4096 + 64 + BOTH
           && serve(load) != UINT32_MAX) {
        /* Together. */
    }
    check(load->served[0] - before <= (BOTH / 2 + 1ULL) * UINT32_MAX);
    check(load->served[0] - before >= (BOTH / 2 - 64 - 1ULL) * UINT32_MAX);
    free_load(load);
}

/* Classes left when times are renewed keep their order, and their shares. */
static bool renewal_trace(uint64_t seed)
{
    enum { REQUESTS = 6000 };
    static const uint64_t rate = 1000000000000;
    SluiceLimit ceiling = { .bytes_per_second = rate, .burst_bytes = 1 };
    Load *load = new_load(seed, 2 + seed % (CLASSES - 1));
    uint64_t before[CLASSES];
    bool ok = true;

    sluice_engine_set_ceiling(load->engine, &ceiling, 0);
    load->fixed_size = load->size_max = UINT32_MAX;
    for (uint32_t i = 0; i < load->classes; i++) {
        set_class(load, i, 5, 1 + random_below(&load->random, 3),
                  i == 0 ? rate : 0);
        fill(load, i);
    }
    while (ok && load->requests < REQUESTS) {
        ok = serve(load) != UINT32_MAX;
    }
    for (uint32_t i = 0; i < load->classes; i++) {
        set_class(load, i, 5, 1, 0);
    }
    /* Owed are 64 requests per weight at most: then all have had that. */
    for (unsigned n = 0; ok && n < 3 * 64 * CLASSES; n++) {
        ok = serve(load) != UINT32_MAX;
    }
    memcpy(before, load->served, sizeof(before));
    for (unsigned n = 0; ok && n < 100 * load->classes; n++) {
        ok = serve(load) != UINT32_MAX;
    }
    for (uint32_t i = 0; ok && i < load->classes; i++) {
        uint64_t served = (load->served[i] - before[i]) / UINT32_MAX;

        ok = check(served >= 98 && served <= 102);
    }
    free_load(load);
    return ok;
}

static void test_shares_after_renewals(void)
{
    run("renewals", renewal_trace, 6);
}

static const TapTest tests[] = {
    { "share/property: weights within 1 %, lag within one request",
      test_weights_and_lag },
    { "share/property: coming and going disturbs nobody",
      test_coming_and_going_disturbs_nobody },
    { "share/longest wait is near the fluid ideal",
      test_longest_wait_is_near_the_fluid_ideal },
    { "share/property: longest waits within 1.1 of the fluid ideal",
      test_longest_waits_over_random_traces },
    { "share/property: what is withdrawn costs nothing",
      test_what_is_withdrawn_costs_nothing },
    { "share/virtual time is renewed", test_virtual_time_is_renewed },
    { "share/virtual time is renewed while one never goes",
      test_renewed_while_one_never_goes },
    { "share/property: shares after renewals", test_shares_after_renewals },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
