/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One gate for several members: the page, the rules that they share, and the invariants of
 * gate.c over random traces, also with members that die, and with a page that anybody
 * writes.
 */
#include <string.h>

#include "gate-page-fixture.h"
#include "random.h"
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
    make_gate_page(&page, 0);
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

    make_gate_page(&page, 0);
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

    make_gate_page(&page, 0);
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
    make_gate_page(&page, 0);
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
        sluice_gate_set_weight(&gates[who], 1ULL << random_below(&trace->random, 20));
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

/* Shares */

#define NS_PER_BYTE     10      /* 100 MB/s */
/* A member is ahead of one that waits by that much of its own device time, at most, when
 * it takes the next request. */
#define AHEAD_NS        (10 * MS)

/* Of a member that always wants more, up to `depth` requests at a time. */
typedef struct Load {
    uint32_t bytes;
    unsigned depth;
    unsigned in_flight;
    unsigned done;
    uint64_t latency_ns;        /* of these, summed */
    uint64_t waits_since_ns;    /* with nothing in flight; 0: it does not */
    uint64_t longest_wait_ns;
} Load;

/* A device that serves in turn. */
typedef struct Device {
    struct { unsigned who; uint64_t given_ns; } queue[QUEUE];
    unsigned head, tail;
    uint64_t now_ns;
    Load loads[MEMBERS];
} Device;

static Device device;

static void new_device(unsigned count, uint64_t target_ns)
{
    memset(&device, 0, sizeof(device));
    device.now_ns = SECOND;
    new_members(count, target_ns, device.now_ns);
    for (unsigned i = 0; i < count; i++) {
        device.loads[i] = (Load){ .bytes = REQUEST, .depth = QUEUE / MEMBERS };
    }
}

static void send_all(unsigned who)
{
    Load *load = &device.loads[who];

    while (load->in_flight < load->depth) {
        if (!sluice_gate_admit(&gates[who], load->bytes, device.now_ns)) {
            if (!load->in_flight && !load->waits_since_ns) {
                load->waits_since_ns = device.now_ns;
            }
            return;
        }
        if (load->waits_since_ns
            && device.now_ns - load->waits_since_ns > load->longest_wait_ns) {
            load->longest_wait_ns = device.now_ns - load->waits_since_ns;
        }
        load->waits_since_ns = 0;
        load->in_flight++;
        device.queue[device.tail % QUEUE].who = who;
        device.queue[device.tail++ % QUEUE].given_ns = device.now_ns;
    }
}

static void send_all_members(void)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        send_all(i);
    }
}

static void complete_first(void)
{
    unsigned who = device.queue[device.head % QUEUE].who;
    uint64_t latency_ns = device.now_ns - device.queue[device.head++ % QUEUE].given_ns;
    Load *load = &device.loads[who];

    load->in_flight--;
    load->done++;
    load->latency_ns += latency_ns;
    sluice_gate_complete(&gates[who], load->bytes, latency_ns, device.now_ns);
    send_all(who);
}

/* Members look each millisecond meanwhile. */
static void serve_one(void)
{
    uint64_t left_ns = device.loads[device.queue[device.head % QUEUE].who].bytes
                       * NS_PER_BYTE;

    while (left_ns) {
        uint64_t step_ns = left_ns < SLUICE_GATE_LOOK_SOON_NS
                           ? left_ns : SLUICE_GATE_LOOK_SOON_NS;

        device.now_ns += step_ns;
        left_ns -= step_ns;
        if (left_ns) {
            send_all_members();
        }
    }
    complete_first();
}

static void serve(uint64_t for_ns)
{
    uint64_t end_ns = device.now_ns + for_ns;

    for (unsigned i = 0; i < MEMBERS; i++) {
        device.loads[i].done = 0;
        device.loads[i].latency_ns = 0;
        device.loads[i].longest_wait_ns = 0;
    }
    while (device.now_ns < end_ns) {
        send_all_members();
        if (device.head == device.tail) {
            device.now_ns += SLUICE_GATE_LOOK_SOON_NS;
        } else {
            serve_one();
        }
    }
}

static uint64_t device_time_ns(unsigned who)
{
    return (uint64_t)device.loads[who].done * device.loads[who].bytes * NS_PER_BYTE;
}

/* Device times per weight differ by what a member may be ahead, and a request. */
static void check_shares(unsigned a, uint64_t weight_a, unsigned b, uint64_t weight_b)
{
    double a_ns = (double)device_time_ns(a) / weight_a;
    double b_ns = (double)device_time_ns(b) / weight_b;
    double most_ns = (double)(2 * AHEAD_NS + device.loads[a].bytes * NS_PER_BYTE) / weight_a
                     + (double)(2 * AHEAD_NS + device.loads[b].bytes * NS_PER_BYTE)
                       / weight_b;

    check(a_ns - b_ns < most_ns && b_ns - a_ns < most_ns);
}

static void test_latency_settles_at_the_target_and_parts_are_equal(void)
{
    const uint64_t target_ns = 50 * MS;
    uint64_t latency_ns = 0, done = 0;

    new_device(3, target_ns);
    serve(10 * SECOND);
    serve(10 * SECOND);
    for (unsigned i = 0; i < 3; i++) {
        latency_ns += device.loads[i].latency_ns;
        done += device.loads[i].done;
    }
    check(latency_ns / done > target_ns * 3 / 4);
    check(latency_ns / done < target_ns * 5 / 4);
    for (unsigned i = 0; i < 3; i++) {
        check(device.loads[i].done > done / 3 * 9 / 10);
    }
}

/* The window is some 38 requests, so a part is right to a request in nine. */
static void test_parts_follow_weights(void)
{
    new_device(2, 50 * MS);
    sluice_gate_set_weight(&gates[0], 300);
    serve(10 * SECOND);
    serve(10 * SECOND);
    check(device.loads[0].done > device.loads[1].done * 3 * 8 / 9);
    check(device.loads[0].done < device.loads[1].done * 3 * 10 / 9);
}

static void test_parts_follow_a_change_of_weight(void)
{
    new_device(2, 50 * MS);
    serve(10 * SECOND);
    sluice_gate_set_weight(&gates[1], 300);
    serve(SECOND);
    serve(10 * SECOND);
    check(device.loads[1].done > device.loads[0].done * 3 * 8 / 9);
    check(device.loads[1].done < device.loads[0].done * 3 * 10 / 9);
}

/* A target that no request meets keeps the window at its least, below one request. */
static void test_shares_follow_weights_where_a_request_fills_the_window(void)
{
    static const uint64_t weights[] = { 100, 300, 1, 16000 };

    for (unsigned i = 0; i < 4; i++) {
        new_device(2, 1);
        sluice_gate_set_weight(&gates[1], weights[i]);
        serve(SECOND);
        serve(10 * SECOND);
        if (i < 2) {
            check_shares(0, SLUICE_GATE_WEIGHT_DEFAULT, 1, weights[i]);
        }
        /* The least weight gets one request each pause, the greatest leaves as many. */
        for (unsigned who = 0; who < 2; who++) {
            check(device.loads[who].done >= 10 * SECOND / (SLUICE_GATE_PAUSE_NS + 10 * MS));
        }
    }
}

/* Requests of 1 MiB fill the window, and one of 4 KiB at a time waits for no more than
 * these: the one in the device, and as many as its member may be ahead by. */
static void test_small_requests_go_beside_large_ones(void)
{
    const uint64_t large_ns = 1024 * KIB * NS_PER_BYTE;

    for (unsigned depth = 1; depth <= 16; depth *= 4) {
        new_device(2, 1);
        device.loads[0].bytes = 1024 * KIB;
        device.loads[1].bytes = 4 * KIB;
        device.loads[1].depth = depth;
        serve(SECOND);
        serve(10 * SECOND);
        check(device.loads[1].longest_wait_ns
              <= AHEAD_NS + 2 * large_ns + SLUICE_GATE_LOOK_SOON_NS);
        check(device.loads[1].done > 10 * SECOND / (AHEAD_NS + 3 * large_ns));
        /* Large ones lose no more than small ones have, and the looks between. */
        check(device_time_ns(0) > 10 * SECOND * 8 / 10);
    }
}

/* Time saved up by being quiet is a pause's worth at most. */
static void test_a_quiet_member_saves_up_little(void)
{
    new_device(2, 1);
    device.loads[1].depth = 0;
    serve(60 * SECOND);
    device.loads[1].depth = 4;
    serve(SECOND);
    check(device_time_ns(0) > SECOND / 2 - SLUICE_GATE_PAUSE_NS);
    serve(10 * SECOND);
    check_shares(0, 1, 1, 1);
}

/* As after a member of another page, or damage. */
static void test_any_virtual_time_is_brought_near(void)
{
    static const uint64_t anything[] = { 1ULL << 62, 1ULL << 63, UINT64_MAX / 4 * 3 };

    for (unsigned i = 0; i < 3; i++) {
        new_device(2, 1);
        serve(SECOND);
        members[1].virtual_ns += anything[i];
        serve(SECOND);
        serve(10 * SECOND);
        check_shares(0, 1, 1, 1);
    }
}

/* The one that waits has all of the weight that a word can mean, and no more. */
static void test_a_weight_out_of_range_is_the_most_or_the_default(void)
{
    const uint64_t most = SLUICE_GATE_WEIGHT_MOST, weight = SLUICE_GATE_WEIGHT_DEFAULT;
    SluiceGateMemberInfo info;

    new_members(2, 100 * MS, SECOND);
    sluice_gate_set_weight(&gates[1], UINT64_MAX);
    check_equal(page.slots[1].weight, most);
    sluice_gate_set_weight(&gates[1], 0);
    check_equal(page.slots[1].weight, 1);
    page.slots[1].weight = 0;
    check(sluice_gate_member_info(&page, 1, SECOND, &info));
    check_equal(info.weight, weight);
    page.slots[1].weight = UINT64_MAX;
    check(sluice_gate_member_info(&page, 1, SECOND, &info));
    check_equal(info.weight, most);
    sluice_gate_set_weight(&gates[0], 4 * weight);
    page.slots[1].waits_until_ns = SECOND + MS;
    check_equal(admit_all(0, SECOND),
                (SLUICE_GATE_FIRST_BYTES * 4 * weight / (most + 4 * weight) + REQUEST - 1)
                / REQUEST);
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
        { "parts follow weights", test_parts_follow_weights },
        { "parts follow a change of weight", test_parts_follow_a_change_of_weight },
        { "shares follow weights where a request fills the window",
          test_shares_follow_weights_where_a_request_fills_the_window },
        { "small requests go beside large ones", test_small_requests_go_beside_large_ones },
        { "a quiet member saves up little", test_a_quiet_member_saves_up_little },
        { "any virtual time is brought near", test_any_virtual_time_is_brought_near },
        { "a weight out of range is the most, or the default",
          test_a_weight_out_of_range_is_the_most_or_the_default },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
