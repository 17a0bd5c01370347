/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One gate for several members: the page, the rules that they share, and the invariants of
 * gate.c over random traces, also with members that die, and with a page that anybody
 * writes.
 */
#include <string.h>

#include "random.h"
#include "sluice/gate.h"
#include "tap.h"

#define MS          1000000ULL
#define SECOND      (1000 * MS)
#define KIB         1024ULL
#define REQUEST     (128 * KIB)
#define MEMBERS     4
#define QUEUE       1024

static SluiceGatePage page;
static SluiceGate gates[MEMBERS];
static SluiceGateMember members[MEMBERS];

static void new_page(void)
{
    memset(&page, 0, sizeof(page));
    memcpy(page.magic, SLUICE_GATE_MAGIC, SLUICE_GROUP_MAGIC_BYTES);
    page.version = SLUICE_GATE_VERSION;
    page.header_bytes = SLUICE_GATE_HEADER_BYTES;
    page.slot_bytes = sizeof(SluiceGateSlot);
    page.slot_count = SLUICE_GATE_SLOTS;
}

static void join(unsigned index, uint64_t target_ns, uint64_t now_ns)
{
    sluice_gate_init(&gates[index]);
    sluice_gate_set_target(&gates[index], target_ns, now_ns);
    check_equal(sluice_gate_join(&members[index], &page, sizeof(page), index + 1,
                                 "vm", now_ns), SLUICE_GATE_OK);
    sluice_gate_set_member(&gates[index], &members[index], now_ns);
}

static void new_members(unsigned count, uint64_t target_ns, uint64_t now_ns)
{
    new_page();
    for (unsigned i = 0; i < count; i++) {
        join(i, target_ns, now_ns);
    }
}

static bool admit(unsigned index, uint64_t now_ns)
{
    return sluice_gate_admit(&gates[index], REQUEST, now_ns);
}

static void complete(unsigned index, uint64_t latency_ns, uint64_t now_ns)
{
    sluice_gate_complete(&gates[index], REQUEST, latency_ns, now_ns);
}

static unsigned admit_all(unsigned index, uint64_t now_ns)
{
    unsigned count = 0;

    while (admit(index, now_ns)) {
        count++;
    }
    return count;
}

#define FIRST   (SLUICE_GATE_FIRST_BYTES / REQUEST)

/* The page */

static void test_a_page_is_checked(void)
{
    SluiceGateMember member;

    new_page();
    check_equal(sluice_gate_page_check(&page, sizeof(page) - 1), SLUICE_GATE_TOO_SHORT);
    page.slot_bytes++;
    check_equal(sluice_gate_page_check(&page, sizeof(page)), SLUICE_GATE_OTHER_VERSION);
    page.magic[0]++;
    check_equal(sluice_gate_page_check(&page, sizeof(page)), SLUICE_GATE_NO_MAGIC);
    check_equal(sluice_gate_join(&member, &page, sizeof(page), 1, "", 0),
                SLUICE_GATE_NO_MAGIC);
}

static void test_a_page_has_room_for_so_many(void)
{
    static SluiceGateMember many[SLUICE_GATE_SLOTS + 1];
    SluiceGateMemberInfo info;

    new_page();
    for (unsigned i = 0; i < SLUICE_GATE_SLOTS; i++) {
        check_equal(sluice_gate_join(&many[i], &page, sizeof(page), i + 1, "one",
                                     SECOND), SLUICE_GATE_OK);
    }
    check_equal(sluice_gate_join(&many[SLUICE_GATE_SLOTS], &page, sizeof(page), 1000,
                                 "late", SECOND), SLUICE_GATE_FULL);
    check(sluice_gate_member_info(&page, 127, SECOND, &info));
    check_equal(info.pid, 128);
    check(!strcmp(info.label, "one"));
    sluice_gate_quit(&many[5]);
    check(!sluice_gate_member_info(&page, 5, SECOND, &info));
    check_equal(sluice_gate_join(&many[SLUICE_GATE_SLOTS], &page, sizeof(page), 1000,
                                 "late", SECOND), SLUICE_GATE_OK);
}

/* The window */

static void test_the_window_is_that_of_all(void)
{
    new_members(2, 100 * MS, SECOND);
    check_equal(admit_all(0, SECOND), FIRST);
    check(!admit(1, SECOND));
    check_equal(sluice_gate_page_in_flight(&page, SECOND), SLUICE_GATE_FIRST_BYTES);
    sluice_gate_quit(&members[0]);
    check_equal(sluice_gate_page_in_flight(&page, SECOND), 0);
}

static void test_a_member_that_waits_gets_its_part(void)
{
    uint64_t now_ns = SECOND;

    new_members(2, 100 * MS, now_ns);
    check_equal(admit_all(0, now_ns), FIRST);
    check(!admit(1, now_ns));
    for (unsigned i = 0; i < FIRST / 2; i++) {
        now_ns += SLUICE_GATE_LOOK_SOON_NS;
        complete(0, 100 * MS, now_ns);
        check(!admit(0, now_ns));
        check(admit(1, now_ns));
        check(!admit(1, now_ns));
    }
    /* Both have their part: nobody leaves anything to the other any more. */
    now_ns += SLUICE_GATE_LOOK_SOON_NS;
    complete(0, 100 * MS, now_ns);
    check(admit(0, now_ns));
}

/* An idle one is no reason to leave anything. */
static void test_one_that_does_not_wait_is_left_nothing(void)
{
    new_members(3, 100 * MS, SECOND);
    check_equal(admit_all(0, SECOND), FIRST);
    check(!admit(1, SECOND));
    sluice_gate_end_waiting(&gates[1], SECOND);
    complete(0, MS, SECOND);
    check(admit(0, SECOND));
}

static void test_nobody_waits_for_others_for_good(void)
{
    uint64_t now_ns = SECOND;

    new_members(2, 100 * MS, now_ns);
    admit_all(0, now_ns);
    for (unsigned i = 0; i < 3; i++) {
        check(!admit(1, now_ns));
        check(!admit(1, now_ns + SLUICE_GATE_PAUSE_NS - 1));
        now_ns += SLUICE_GATE_PAUSE_NS + SLUICE_GATE_LOOK_SOON_NS;
        check(admit(1, now_ns));
        check(!admit(1, now_ns));
        complete(1, 100 * MS, now_ns);
    }
}

static void test_the_window_is_updated_once_by_all_latencies(void)
{
    uint64_t now_ns = SECOND;

    new_members(2, 10 * MS, now_ns);
    for (unsigned i = 0; i < 8; i++) {
        check(admit(i % 2, now_ns));
    }
    now_ns += 10 * MS;
    /* 14 ms in the mean: T / L is 0.714, which is 731 / 1024. */
    for (unsigned i = 0; i < 8; i++) {
        check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES);
        complete(i % 2, i % 2 ? 20 * MS : 8 * MS, now_ns);
    }
    check_equal(sluice_gate_page_window(&page),
                SLUICE_GATE_FIRST_BYTES * (1024 + 731) / 2048);
    check_equal(page.completions, 0);
    check_equal(page.latency_ns, 0);
}

static void test_the_window_widens_for_any_that_is_held(void)
{
    new_members(2, 10 * MS, SECOND);
    admit_all(0, SECOND);
    check(!admit(1, SECOND));
    for (unsigned i = 0; i < 8; i++) {
        complete(0, MS, SECOND + 10 * MS);
    }
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES / 4 * 5);
}

static void test_the_window_shrinks_once_for_all(void)
{
    new_members(3, 10 * MS, SECOND);
    for (unsigned i = 0; i < 3; i++) {
        sluice_gate_shrink(&gates[i], 512, SECOND + i * 10 * MS);
    }
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES / 2);
    sluice_gate_shrink(&gates[0], 512, SECOND + 150 * MS);
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES / 4);
}

static void test_the_first_member_begins_with_the_first_window(void)
{
    new_page();
    page.window_bytes = SLUICE_GATE_LEAST_BYTES;
    join(0, MS, SECOND);
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES);
    page.window_bytes = SLUICE_GATE_LEAST_BYTES;
    join(1, MS, SECOND);
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_LEAST_BYTES);
}

/* Age */

static void check_pause(SluiceGate *gate, void (*set_oldest)(uint64_t ns))
{
    const uint64_t began_ns = 10 * SECOND;
    uint64_t now_ns;

    set_oldest(began_ns);
    check(sluice_gate_admit(gate, REQUEST, began_ns + 15 * MS));
    check(!sluice_gate_admit(gate, REQUEST, began_ns + 15 * MS + 1));
    /* Found to be closed, it looks again soon. */
    check(sluice_gate_due_ns(gate, began_ns + 15 * MS + 1)
          <= began_ns + 15 * MS + 1 + SLUICE_GATE_LOOK_NS);
    set_oldest(0);
    now_ns = began_ns + 20 * MS + 1;
    check(sluice_gate_admit(gate, REQUEST, now_ns));
    set_oldest(began_ns);
    sluice_gate_complete(gate, REQUEST, MS, now_ns);
    now_ns += SLUICE_GATE_PAUSE_NS;
    check(!sluice_gate_admit(gate, REQUEST, now_ns));
    sluice_gate_complete(gate, REQUEST, MS, now_ns);
    /* One request after each pause, while nothing is in the device. */
    for (unsigned i = 0; i < 3; i++) {
        check(!sluice_gate_admit(gate, REQUEST, now_ns));
        check(!sluice_gate_admit(gate, REQUEST, now_ns + SLUICE_GATE_PAUSE_NS - 1));
        now_ns += SLUICE_GATE_PAUSE_NS + SLUICE_GATE_LOOK_NS;
        check(sluice_gate_admit(gate, REQUEST, now_ns));
        now_ns += SLUICE_GATE_PAUSE_NS;
        check(!sluice_gate_admit(gate, REQUEST, now_ns));
        sluice_gate_complete(gate, REQUEST, MS, now_ns);
    }
    /* No pause helps a read that the device has lost. */
    check(sluice_gate_admit(gate, REQUEST, began_ns + SLUICE_GATE_AGE_MOST_NS));
}

static void set_own_oldest(uint64_t oldest_ns)
{
    sluice_gate_set_oldest(&gates[0], oldest_ns);
    gates[0].closed_until_ns = 0;
}

static void tell_others_oldest(uint64_t oldest_ns)
{
    sluice_gate_tell_oldest(&gates[1], oldest_ns);
    gates[0].closed_until_ns = 0;
    sluice_gate_keepalive(&members[1], 10 * SECOND);
}

static void test_an_old_read_of_its_own_streams_pauses_it(void)
{
    sluice_gate_init(&gates[0]);
    sluice_gate_set_target(&gates[0], 20 * MS, 10 * SECOND);
    check_pause(&gates[0], set_own_oldest);
}

static void test_an_old_read_of_any_member_pauses_all(void)
{
    new_members(2, 20 * MS, 10 * SECOND);
    check_pause(&gates[0], tell_others_oldest);
}

/* The gate for writes is set it, and the gate for reads tells it: one that has joined
 * meanwhile would show it for good. */
static void test_only_a_told_read_is_shown_to_others(void)
{
    new_members(1, 20 * MS, SECOND);
    sluice_gate_init(&gates[1]);
    sluice_gate_set_target(&gates[1], 20 * MS, SECOND);
    sluice_gate_set_oldest(&gates[1], SECOND);
    sluice_gate_join(&members[1], &page, sizeof(page), 2, "vm", SECOND);
    sluice_gate_set_member(&gates[1], &members[1], SECOND);
    sluice_gate_set_oldest(&gates[1], 0);
    check(admit(0, SECOND + 100 * MS));
}

/* As one of a disk that hangs, or of a broken process. */
static void test_a_read_that_is_lost_hides_no_other(void)
{
    const uint64_t now_ns = 10 * SECOND;

    new_members(3, 20 * MS, now_ns);
    sluice_gate_tell_oldest(&gates[1], now_ns - SLUICE_GATE_AGE_MOST_NS);
    check(admit(0, now_ns));
    sluice_gate_tell_oldest(&gates[2], now_ns - 100 * MS);
    check(!admit(0, now_ns));
}

static void test_a_pause_widens_no_window(void)
{
    new_members(2, 20 * MS, SECOND);
    for (unsigned i = 0; i < 8; i++) {
        check(admit(0, SECOND));
    }
    sluice_gate_tell_oldest(&gates[1], SECOND - 100 * MS);
    check(!admit(0, SECOND));
    check(gates[0].waited);
    for (unsigned i = 0; i < 8; i++) {
        complete(0, MS, SECOND + 10 * MS);
    }
    check_equal(sluice_gate_page_window(&page), SLUICE_GATE_FIRST_BYTES);
}

/* Death and damage */

/* As a process that was suspended: another has freed its slot. */
static void lose_slot(unsigned index, unsigned other, uint64_t now_ns)
{
    for (unsigned i = 0; i < SLUICE_GATE_SLOTS; i++) {
        sluice_gate_keepalive(&members[other], now_ns);
    }
    check(!sluice_gate_is_member(&members[index]));
}

static void test_a_killed_member_gives_back(void)
{
    uint64_t now_ns = SECOND;

    new_members(2, 100 * MS, now_ns);
    admit_all(0, now_ns);
    sluice_gate_tell_oldest(&gates[0], now_ns);
    check(!admit(1, now_ns));
    for (; now_ns < SECOND + SLUICE_GATE_REAP_NS; now_ns += SLUICE_GATE_KEEPALIVE_NS) {
        sluice_gate_keepalive(&members[1], now_ns);
        check_equal(sluice_gate_page_in_flight(&page, now_ns),
                    SLUICE_GATE_FIRST_BYTES);
    }
    check_equal(admit_all(1, now_ns), FIRST);
    lose_slot(0, 1, now_ns);
    check_equal(page.slots[0].owner, 0);
    check_equal(page.used[0], 2);
    /* It was only suspended: it claims another, with what it has in flight. */
    sluice_gate_keepalive(&members[0], now_ns);
    check_equal(sluice_gate_page_in_flight(&page, now_ns), 2 * SLUICE_GATE_FIRST_BYTES);
}

static void test_one_without_a_slot_claims_it_with_the_present(void)
{
    uint64_t now_ns = SECOND + SLUICE_GATE_REAP_NS;

    new_members(2, 100 * MS, SECOND);
    admit_all(0, SECOND);
    sluice_gate_tell_oldest(&gates[0], SECOND);
    lose_slot(0, 1, now_ns);
    for (unsigned i = 0; i < FIRST; i++) {
        complete(0, 100 * MS, now_ns);
    }
    sluice_gate_tell_oldest(&gates[0], now_ns);
    sluice_gate_keepalive(&members[0], now_ns);
    check_equal(sluice_gate_page_in_flight(&page, now_ns), 0);
    check_equal(members[0].slot->oldest_ns, now_ns);
    now_ns += SLUICE_GATE_REAP_NS;
    lose_slot(0, 1, now_ns);
    check(admit(0, now_ns));
    sluice_gate_tell_oldest(&gates[0], 0);
    sluice_gate_keepalive(&members[0], now_ns);
    check_equal(sluice_gate_page_in_flight(&page, now_ns), REQUEST);
    check_equal(members[0].slot->oldest_ns, 0);
}

/* As a process is left when another has shortened the file. */
static void test_a_lost_page_leaves_each_its_window(void)
{
    uint64_t now_ns = SECOND;

    new_members(2, 10 * MS, now_ns);
    page.window_bytes = 1024 * KIB;
    check_equal(admit_all(0, now_ns), 8);
    memset(&page, 0, sizeof(page));
    for (unsigned i = 0; i < 3; i++) {
        now_ns += SLUICE_GATE_KEEPALIVE_NS;
        sluice_gate_keepalive(&members[0], now_ns);
        sluice_gate_keepalive(&members[1], now_ns);
        check(!sluice_gate_is_member(&members[0]));
        check(!admit(0, now_ns));
    }
    check_equal(admit_all(1, now_ns), SLUICE_GATE_FIRST_BYTES / REQUEST);
    for (unsigned i = 0; i < 8; i++) {
        complete(0, 20 * MS, now_ns);
    }
    check_equal(gates[0].window_bytes, 768 * KIB);
    check_equal(page.window_bytes, 0);
}

/* A trace comes back to each member within that time. */
#define UNSEEN_NS   (30 * MS)

typedef struct Trace {
    Random random;
    uint64_t now_ns;
    uint64_t refused_ns[MEMBERS];   /* since when it waits with nothing in flight; 0: it does not */
    unsigned in_flight[MEMBERS];
    bool hostile;
} Trace;

/* Any word but the identity, which is written once. */
static void write_anything(Trace *trace)
{
    SluiceWord *words = (SluiceWord *)((char *)&page + 128);
    unsigned count = (sizeof(page) - 128) / 8;
    unsigned index = random_below(&trace->random, 8) ? random_below(&trace->random, 112)
                                                     : random_below(&trace->random, count);

    switch (random_below(&trace->random, 4)) {
    case 0:
        words[index] = random_next(&trace->random);
        break;
    case 1:
        words[index] = 0;
        break;
    case 2:
        words[index] = trace->now_ns + random_below(&trace->random, SECOND);
        break;
    default:
        words[index] = trace->now_ns - random_below(&trace->random, SECOND);
    }
}

/* A page that is whole keeps the sum below the window but for a request that went. */
static bool admission_is_right(const Trace *trace, unsigned who, uint64_t before_bytes)
{
    return trace->hostile || before_bytes < gates[who].window_bytes
           || trace->in_flight[who] == 0;
}

static bool try_one(Trace *trace, unsigned who)
{
    uint64_t before_bytes = sluice_gate_page_in_flight(&page, trace->now_ns);

    if (admit(who, trace->now_ns)) {
        bool right = admission_is_right(trace, who, before_bytes);

        trace->in_flight[who]++;
        trace->refused_ns[who] = 0;
        return right;
    }
    if (trace->in_flight[who] == 0 && !trace->refused_ns[who]) {
        trace->refused_ns[who] = trace->now_ns;
    }
    return trace->in_flight[who] > 0
           || trace->now_ns - trace->refused_ns[who]
              <= SLUICE_GATE_WAIT_MOST_NS + SLUICE_GATE_LOOK_NS + UNSEEN_NS;
}

static bool trace_step(Trace *trace)
{
    unsigned who = random_below(&trace->random, MEMBERS);

    trace->now_ns += random_below(&trace->random, MS / 2);
    if (trace->hostile && !random_below(&trace->random, 4)) {
        write_anything(trace);
    }
    if (!random_below(&trace->random, 16)) {
        sluice_gate_keepalive(&members[who], trace->now_ns);
    }
    if (random_below(&trace->random, 2) && trace->in_flight[who]) {
        trace->in_flight[who]--;
        complete(who, random_below(&trace->random, 20 * MS), trace->now_ns);
    }
    if (!random_below(&trace->random, 64)) {
        sluice_gate_shrink(&gates[who], random_below(&trace->random, 1025), trace->now_ns);
    }
    return try_one(trace, who)
           && check_equal(gates[who].in_flight_bytes, trace->in_flight[who] * REQUEST);
}

static void run_traces(bool hostile)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 5;

    for (uint64_t i = 0; i < traces && !tap_failures; i++) {
        Trace trace = { .random = random_seeded(seed + i), .now_ns = 100 * SECOND,
                        .hostile = hostile };

        new_members(MEMBERS, 1 + random_below(&trace.random, 20 * MS), trace.now_ns);
        for (unsigned step = 0; step < 4000; step++) {
            if (!check(trace_step(&trace))) {
                printf("# seed %" PRIu64 ", step %u\n", seed + i, step);
                break;
            }
        }
    }
}

static void test_invariants_over_random_traces(void)
{
    run_traces(false);
}

/* Where anybody writes the page nobody waits for longer, and each knows its own. */
static void test_a_hostile_page_stops_nobody(void)
{
    run_traces(true);
}

/* A device that serves in turn, and members that always want more. */
static void test_latency_settles_at_the_target_and_parts_are_equal(void)
{
    static struct { unsigned who; uint64_t given_ns; } queue[QUEUE];
    const uint64_t target_ns = 50 * MS, each_ns = REQUEST * 10;     /* 100 MB/s */
    uint64_t now_ns = SECOND, sum_ns = 0, done[MEMBERS] = { 0 };
    unsigned head = 0, tail = 0, rounds = 20000;

    new_members(3, target_ns, now_ns);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned who;

        for (unsigned i = 0; i < 3; i++) {
            while (tail - head < QUEUE && admit(i, now_ns)) {
                queue[tail % QUEUE].who = i;
                queue[tail++ % QUEUE].given_ns = now_ns;
            }
        }
        now_ns += each_ns;
        if (head == tail) {
            continue;
        }
        who = queue[head % QUEUE].who;
        complete(who, now_ns - queue[head % QUEUE].given_ns, now_ns);
        if (round >= rounds / 2) {
            sum_ns += now_ns - queue[head % QUEUE].given_ns;
            done[who]++;
        }
        head++;
    }
    check(sum_ns / (done[0] + done[1] + done[2]) > target_ns * 3 / 4);
    check(sum_ns / (done[0] + done[1] + done[2]) < target_ns * 5 / 4);
    for (unsigned i = 0; i < 3; i++) {
        check(done[i] > rounds / 2 / 3 * 9 / 10);
    }
}

int main(void)
{
    static const TapTest tests[] = {
        { "a page is checked", test_a_page_is_checked },
        { "a page has room for so many", test_a_page_has_room_for_so_many },
        { "the window is that of all", test_the_window_is_that_of_all },
        { "a member that waits gets its part", test_a_member_that_waits_gets_its_part },
        { "one that does not wait is left nothing",
          test_one_that_does_not_wait_is_left_nothing },
        { "nobody waits for others for good", test_nobody_waits_for_others_for_good },
        { "the window is updated once, by all latencies",
          test_the_window_is_updated_once_by_all_latencies },
        { "the window widens for any that is held",
          test_the_window_widens_for_any_that_is_held },
        { "the window shrinks once for all", test_the_window_shrinks_once_for_all },
        { "the first member begins with the first window",
          test_the_first_member_begins_with_the_first_window },
        { "an old read of its own streams pauses it",
          test_an_old_read_of_its_own_streams_pauses_it },
        { "an old read of any member pauses all",
          test_an_old_read_of_any_member_pauses_all },
        { "only a told read is shown to others", test_only_a_told_read_is_shown_to_others },
        { "a read that is lost hides no other", test_a_read_that_is_lost_hides_no_other },
        { "a pause widens no window", test_a_pause_widens_no_window },
        { "a killed member gives back", test_a_killed_member_gives_back },
        { "one without a slot claims it with the present",
          test_one_without_a_slot_claims_it_with_the_present },
        { "a lost page leaves each its window", test_a_lost_page_leaves_each_its_window },
        { "invariants over random traces", test_invariants_over_random_traces },
        { "a hostile page stops nobody", test_a_hostile_page_stops_nobody },
        { "latency settles at the target, and parts are equal",
          test_latency_settles_at_the_target_and_parts_are_equal },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
