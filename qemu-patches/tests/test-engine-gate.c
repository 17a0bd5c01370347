/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate beside an engine's other limits: a device that does any number of requests at a
 * time, and classes that always want more.
 */
#include <string.h>

#include "evict.h"
#include "sluice/engine.h"
#include "sluice/gate.h"
#include "tap.h"

#define MS          1000000ULL
#define SECOND      (1000 * MS)
#define MB          1000000ULL
#define CLASSES     3
#define DEPTH       64
#define REQUEST     131072

typedef struct Request {
    SluiceNode node;            /* first, so that a node is its request */
    uint64_t done_ns;           /* UINT64_MAX: not with the device */
    bool idle;
} Request;

typedef struct Disk {
    SluiceEngine *engine;
    uint64_t now_ns;
    uint64_t latency_ns[CLASSES];
    uint64_t done_bytes[CLASSES];
    unsigned classes;
    Request requests[CLASSES][DEPTH];
} Disk;

static Disk disk;

static void new_disk(unsigned classes)
{
    memset(&disk, 0, sizeof(disk));
    disk.engine = sluice_engine_new(classes);
    disk.classes = classes;
    disk.now_ns = SECOND;
    for (unsigned i = 0; i < classes; i++) {
        disk.latency_ns[i] = 10 * MS;
        for (unsigned j = 0; j < DEPTH; j++) {
            disk.requests[i][j] = (Request){ .done_ns = UINT64_MAX, .idle = true };
        }
    }
}

static void set_class(unsigned class_index, const SluiceClassConfig *config)
{
    check(sluice_engine_set_class(disk.engine, class_index, config, disk.now_ns));
}

/* With the least window. */
static void set_gate(uint16_t streams, uint64_t target_ns)
{
    check(sluice_engine_set_gate(disk.engine, streams, target_ns, disk.now_ns));
    sluice_engine_shrink_gate(disk.engine, 0);
}

static void give(Request *request, unsigned class_index)
{
    request->done_ns = disk.now_ns + disk.latency_ns[class_index];
}

static void submit_all(void)
{
    for (unsigned i = 0; i < disk.classes; i++) {
        for (unsigned j = 0; j < DEPTH; j++) {
            Request *request = &disk.requests[i][j];

            if (request->idle
                && sluice_engine_submit(disk.engine, i, &request->node, REQUEST,
                                        disk.now_ns) == SLUICE_PASS) {
                give(request, i);
            }
            request->idle = false;
        }
    }
}

/* As the shaper does: it looks only at the engine's own time. */
static void release_due(void)
{
    SluiceNode *node;

    if (sluice_engine_next_event_ns(disk.engine) > disk.now_ns) {
        return;
    }
    while ((node = sluice_engine_release(disk.engine, disk.now_ns))) {
        give((Request *)node, node->class_index);
    }
}

static uint64_t next_ns(void)
{
    uint64_t first_ns = sluice_engine_next_event_ns(disk.engine);

    for (unsigned i = 0; i < disk.classes; i++) {
        for (unsigned j = 0; j < DEPTH; j++) {
            uint64_t done_ns = disk.requests[i][j].done_ns;

            first_ns = done_ns < first_ns ? done_ns : first_ns;
        }
    }
    return first_ns;
}

static void complete_due(void)
{
    for (unsigned i = 0; i < disk.classes; i++) {
        for (unsigned j = 0; j < DEPTH; j++) {
            Request *request = &disk.requests[i][j];

            if (request->done_ns <= disk.now_ns) {
                request->done_ns = UINT64_MAX;
                request->idle = true;
                disk.done_bytes[i] += REQUEST;
                sluice_engine_complete(disk.engine, &request->node,
                                       disk.latency_ns[i], disk.now_ns);
                release_due();
            }
        }
    }
}

static void run(uint64_t for_ns)
{
    uint64_t end_ns = disk.now_ns + for_ns;

    while (disk.now_ns < end_ns) {
        submit_all();
        disk.now_ns = next_ns();
        release_due();
        complete_due();
    }
}

/* Of the next ten seconds, in bytes per second. */
static uint64_t rate_of(unsigned class_index)
{
    uint64_t before = disk.done_bytes[class_index];

    run(10 * SECOND);
    return (disk.done_bytes[class_index] - before) / 10;
}

static void free_disk(void)
{
    while (evict(disk.engine)) {
    }
    sluice_engine_free(disk.engine);
}

/* Its bucket is empty after each request, so it is due only when nobody looks. */
static void test_the_window_widens_for_a_class_without_a_burst(void)
{
    const SluiceClassConfig config = {
        .priority = 5,
        .limit = { .bytes_per_second = 100 * MB },
    };

    new_disk(1);
    set_class(0, &config);
    set_gate(0, 40 * MS);
    run(5 * SECOND);
    check(rate_of(0) > 90 * MB);
    check(sluice_engine_gate(disk.engine)->held_times > 0);
    free_disk();
}

static void test_the_window_widens_under_a_ceiling_without_a_burst(void)
{
    const SluiceLimit ceiling = { .bytes_per_second = 100 * MB };

    new_disk(1);
    check(sluice_engine_set_ceiling(disk.engine, &ceiling, disk.now_ns));
    set_gate(0, 40 * MS);
    run(5 * SECOND);
    check(rate_of(0) > 90 * MB);
    free_disk();
}

/* One request at a time, each due 1.31072 ms after the one before: the rest of 10 ms. */
static void test_waiting_is_counted_from_when_a_class_is_due(void)
{
    const SluiceClassConfig config = {
        .priority = 5,
        .limit = { .bytes_per_second = 100 * MB },
    };
    uint64_t requests;

    new_disk(1);
    set_class(0, &config);
    set_gate(0, MS);
    run(SECOND - 10 * MS);
    requests = disk.done_bytes[0] / REQUEST;
    check_equal(requests, 99);
    check_equal(sluice_engine_gate(disk.engine)->held_times, requests);
    /* A request is due to the nanosecond. */
    check(sluice_engine_gate(disk.engine)->held_ns <= requests * 8689281
          && sluice_engine_gate(disk.engine)->held_ns >= requests * 8689279);
    free_disk();
}

/* A class that the gate holds cannot have its reservation; others have theirs. */
static void test_a_stream_has_its_reservation_whoever_is_held(void)
{
    static const uint64_t reservations[CLASSES] = { 0, 40 * MB, 40 * MB };
    const SluiceLimit ceiling = { .bytes_per_second = 100 * MB, .burst_bytes = MB };
    uint64_t before;

    new_disk(CLASSES);
    for (unsigned i = 0; i < CLASSES; i++) {
        const SluiceClassConfig config = {
            .priority = i == 0 ? 1 : 5,
            .reservation_bytes_per_second = reservations[i],
        };

        set_class(i, &config);
    }
    check(sluice_engine_set_ceiling(disk.engine, &ceiling, disk.now_ns));
    disk.latency_ns[2] = 50 * MS;
    set_gate(3, 5 * MS);
    run(5 * SECOND);
    before = disk.done_bytes[2];
    check(rate_of(1) > 39 * MB);
    check(disk.done_bytes[2] - before > 20 * MB);
    free_disk();
}

/* Service that they cannot get is lost to all that are held, in proportion. */
static void test_reservations_behind_the_gate_share_it_in_proportion(void)
{
    static const uint64_t reservations[CLASSES] = { 0, 20 * MB, 60 * MB };
    uint64_t before[CLASSES];

    new_disk(CLASSES);
    for (unsigned i = 0; i < CLASSES; i++) {
        const SluiceClassConfig config = {
            .priority = 5,
            .reservation_bytes_per_second = reservations[i],
        };

        set_class(i, &config);
    }
    set_gate(0, 5 * MS);
    run(5 * SECOND);
    memcpy(before, disk.done_bytes, sizeof(before));
    run(60 * SECOND);
    check_equal((disk.done_bytes[2] - before[2]) / (disk.done_bytes[1] - before[1]),
                3);
    free_disk();
}

static bool is_held(const SluiceNode *node, const void *what)
{
    (void)node;
    (void)what;
    return true;
}

/* A full gate, behind which some have waited for a second. */
static void wait_a_second(void)
{
    const SluiceClassConfig config = { .priority = 5 };

    new_disk(2);
    set_class(0, &config);
    set_class(1, &config);
    set_gate(2, MS);
    submit_all();
    disk.now_ns += SECOND;
    check_equal(sluice_gate_held_ns(sluice_engine_gate(disk.engine), disk.now_ns),
                SECOND);
}

static void check_waiting_has_ended(void)
{
    disk.now_ns += SECOND;
    check_equal(sluice_gate_held_ns(sluice_engine_gate(disk.engine), disk.now_ns),
                SECOND);
}

/* The gate of the device */

static SluiceGatePage page;
static SluiceGateMember member;

static void join_page(uint64_t now_ns)
{
    page = (SluiceGatePage){
        .magic = SLUICE_GATE_MAGIC, .version = SLUICE_GATE_VERSION,
        .header_bytes = SLUICE_GATE_HEADER_BYTES,
        .slot_bytes = sizeof(SluiceGateSlot), .slot_count = SLUICE_GATE_SLOTS,
    };
    check_equal(sluice_gate_join(&member, &page, sizeof(page), 1, "vm", now_ns),
                SLUICE_GATE_OK);
    sluice_engine_set_gate_member(disk.engine, &member, now_ns);
}

/* An engine that has been quiet joins now, not when it was asked last. */
static void test_a_quiet_engine_joins_alive(void)
{
    SluiceGateMemberInfo info;
    uint64_t now_ns;

    new_disk(1);
    now_ns = disk.now_ns + 2 * SLUICE_GATE_REAP_NS;
    join_page(now_ns);
    check(sluice_gate_member_info(&page, 0, now_ns, &info));
    sluice_engine_free(disk.engine);
}

static uint64_t told_weight(void)
{
    SluiceGateMemberInfo info;

    sluice_engine_keep_gate(disk.engine, disk.now_ns);
    check(sluice_gate_member_info(&page, 0, disk.now_ns, &info));
    return info.weight;
}

static void pass_one(unsigned class_index)
{
    SluiceNode node;

    check_equal(sluice_engine_submit(disk.engine, class_index, &node, REQUEST,
                                     disk.now_ns), SLUICE_PASS);
    sluice_engine_complete(disk.engine, &node, MS, disk.now_ns);
}

static void test_the_weight_is_that_of_active_classes(void)
{
    static const uint64_t weights[CLASSES] = { 10, 200, 30 };

    new_disk(CLASSES);
    for (unsigned i = 0; i < CLASSES; i++) {
        const SluiceClassConfig config = { .priority = 5, .weight = weights[i] };

        set_class(i, &config);
    }
    check(sluice_engine_set_gate(disk.engine, 4, MS, disk.now_ns));
    join_page(disk.now_ns);
    check_equal(told_weight(), SLUICE_GATE_WEIGHT_DEFAULT);
    pass_one(0);
    pass_one(2);                    /* a stream has no weight here */
    check_equal(told_weight(), 10);
    pass_one(1);
    check_equal(told_weight(), 210);
    /* Both are quiet, then one goes on; the last weight stays. */
    for (unsigned i = 0; i < 10; i++) {
        disk.now_ns += SLUICE_GATE_KEEPALIVE_NS;
        told_weight();
    }
    check_equal(told_weight(), 210);
    pass_one(1);
    check_equal(told_weight(), 200);
    free_disk();
}

/* Also while none of it goes. */
static void test_a_class_that_waits_is_active(void)
{
    const SluiceClassConfig config = { .priority = 5, .weight = 30 };

    new_disk(1);
    set_class(0, &config);
    set_gate(0, MS);
    join_page(disk.now_ns);
    submit_all();
    for (unsigned i = 0; i < 10; i++) {
        disk.now_ns += SLUICE_GATE_KEEPALIVE_NS;
        check_equal(told_weight(), 30);
    }
    free_disk();
}

/* Its own completion finds the window full of another's bytes. */
static void test_one_that_waits_says_so_at_its_completions(void)
{
    SluiceNode node[2] = { 0 };

    new_disk(1);
    check(sluice_engine_set_gate(disk.engine, 0, 100 * MS, disk.now_ns));
    join_page(disk.now_ns);
    check_equal(sluice_engine_submit(disk.engine, 0, &node[0], REQUEST, disk.now_ns),
                SLUICE_PASS);
    page.used[0] |= 2;
    page.slots[1].owner = 2;
    page.slots[1].heartbeat_ns = disk.now_ns;
    page.slots[1].in_flight_bytes = SLUICE_GATE_FIRST_BYTES;
    check_equal(sluice_engine_submit(disk.engine, 0, &node[1], REQUEST, disk.now_ns),
                SLUICE_HOLD);
    disk.now_ns += 30 * MS;
    check(!sluice_engine_release(disk.engine, disk.now_ns));
    check(page.slots[0].waits_until_ns > disk.now_ns);
    disk.now_ns += MS;
    sluice_engine_complete(disk.engine, &node[0], 31 * MS, disk.now_ns);
    check(page.slots[0].waits_until_ns > disk.now_ns);
    free_disk();
}

static void test_withdrawn_requests_wait_no_longer(void)
{
    SluiceNode *node;

    wait_a_second();
    sluice_engine_withdraw_if(disk.engine, is_held, NULL, disk.now_ns);
    check_waiting_has_ended();
    free_disk();
    wait_a_second();
    while ((node = sluice_engine_first_held(disk.engine, 0))) {
        sluice_engine_withdraw(disk.engine, node, disk.now_ns);
    }
    check_waiting_has_ended();
    free_disk();
}

static void test_a_class_that_becomes_a_stream_waits_no_longer(void)
{
    wait_a_second();
    check(sluice_engine_set_gate(disk.engine, 3, MS, disk.now_ns));
    release_due();
    check_waiting_has_ended();
    free_disk();
}

static void test_a_class_that_becomes_unmanaged_waits_no_longer(void)
{
    const SluiceClassConfig config = { .priority = 5, .unmanaged = true };

    wait_a_second();
    set_class(0, &config);
    release_due();
    check_waiting_has_ended();
    free_disk();
}

int main(void)
{
    static const TapTest tests[] = {
        { "the window widens for a class without a burst",
          test_the_window_widens_for_a_class_without_a_burst },
        { "the window widens under a ceiling without a burst",
          test_the_window_widens_under_a_ceiling_without_a_burst },
        { "waiting is counted from when a class is due",
          test_waiting_is_counted_from_when_a_class_is_due },
        { "a stream has its reservation, whoever is held",
          test_a_stream_has_its_reservation_whoever_is_held },
        { "reservations behind the gate share it in proportion",
          test_reservations_behind_the_gate_share_it_in_proportion },
        { "a quiet engine joins alive", test_a_quiet_engine_joins_alive },
        { "the weight is that of active classes",
          test_the_weight_is_that_of_active_classes },
        { "a class that waits is active", test_a_class_that_waits_is_active },
        { "one that waits says so at its completions",
          test_one_that_waits_says_so_at_its_completions },
        { "withdrawn requests wait no longer",
          test_withdrawn_requests_wait_no_longer },
        { "a class that becomes a stream waits no longer",
          test_a_class_that_becomes_a_stream_waits_no_longer },
        { "a class that becomes unmanaged waits no longer",
          test_a_class_that_becomes_unmanaged_waits_no_longer },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
