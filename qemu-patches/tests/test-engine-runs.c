/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs: engines on one device that serves a request at a time and has an arm, and readers
 * that each go on where they were.
 */
#include <string.h>

#include "evict.h"
#include "gate-page-fixture.h"
#include "random.h"
#include "sluice/engine.h"
#include "tap.h"

#define MS          1000000ULL
#define SECOND      (1000 * MS)
#define REQUEST     (256U << 10)
#define MB_PER_S    100ULL
#define SEEK_NS     (10 * MS)
#define ENGINES     2
#define READERS     8
#define READERS_MOST 24
#define DEPTH       8
#define STREAM      2                   /* a class */
#define REGION      (1ULL << 32)
#define RUN_BYTES   (16ULL << 20)

typedef struct Request {
    SluiceNode node;            /* first, so that a node is its request */
    unsigned who;
    uint64_t given_ns;          /* with the device; 0: not */
    bool idle;
} Request;

typedef struct Reader {
    unsigned engine, class_index, depth;
    bool is_random, is_over;
    uint64_t think_ns, thinks_until_ns;
    uint64_t position, served_position;
    uint64_t bytes, busy_ns;            /* had of the device */
    Request requests[DEPTH];
} Reader;

static SluiceGatePage page;
static SluiceGateMember members[ENGINES];
static SluiceEngine *engines[ENGINES];
static Reader readers[READERS_MOST];
static unsigned reader_count, switches;
static uint64_t now_ns, free_ns, head;     /* free_ns: when the device is done; 0: idle */
static Request *queue[READERS_MOST * DEPTH];
static unsigned queued;
static Random chance;

static void new_engines(uint64_t flags)
{
    now_ns = 100 * SECOND;
    head = free_ns = 0;
    reader_count = switches = queued = 0;
    memset(readers, 0, sizeof(readers));
    make_gate_page(&page, flags);
    for (unsigned i = 0; i < ENGINES; i++) {
        engines[i] = sluice_engine_new(3);
        check_equal(sluice_gate_join(&members[i], &page, sizeof(page), i + 1, "vm",
                                     now_ns), SLUICE_GATE_OK);
        sluice_engine_set_gate_member(engines[i], &members[i], now_ns);
        check(sluice_engine_set_gate(engines[i], 1u << STREAM, 100 * MS, now_ns));
    }
}

static void free_engines(void)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        while (evict(engines[i])) {
        }
        sluice_engine_free(engines[i]);
    }
}

static Reader *add_reader(unsigned engine, unsigned class_index, unsigned depth)
{
    Reader *reader = &readers[reader_count++];

    *reader = (Reader){ .engine = engine, .class_index = class_index, .depth = depth,
                        .position = reader_count * REGION,
                        .served_position = reader_count * REGION };
    for (unsigned i = 0; i < DEPTH; i++) {
        reader->requests[i] = (Request){ .who = reader_count - 1, .idle = true };
    }
    return reader;
}

/* The device, in order of arrival */

static void give(Request *request)
{
    unsigned engine = readers[request->who].engine;

    request->given_ns = now_ns;
    switches += queued && queue[queued - 1]->who != request->who;
    queue[queued++] = request;
    check(queued <= READERS_MOST * DEPTH && engine < ENGINES);
}

static uint64_t takes_ns(const Request *request)
{
    return REQUEST * 1000 / MB_PER_S + (request->node.position == head ? 0 : SEEK_NS);
}

static void release(unsigned engine)
{
    SluiceNode *node;

    while ((node = sluice_engine_release(engines[engine], now_ns))) {
        give((Request *)node);
    }
}

static void submit_all(void)
{
    for (Reader *reader = readers; reader < readers + reader_count; reader++) {
        for (unsigned i = 0; i < reader->depth; i++) {
            Request *request = &reader->requests[i];

            if (!request->idle || reader->is_over || reader->thinks_until_ns > now_ns) {
                continue;
            }
            request->idle = false;
            request->node.gated = false;
            reader->position += reader->is_random ? REQUEST * random_below(&chance, 999)
                                                  : 0;
            request->node.position = reader->position;
            reader->position += REQUEST;
            if (sluice_engine_submit(engines[reader->engine], reader->class_index,
                                     &request->node, REQUEST, now_ns) == SLUICE_PASS) {
                give(request);
            }
        }
    }
}

static void complete_first(void)
{
    Request *request = queue[0];
    Reader *reader = &readers[request->who];

    reader->bytes += REQUEST;
    reader->busy_ns += takes_ns(request);
    check(reader->is_random || request->node.position == reader->served_position);
    reader->served_position = head = request->node.position + REQUEST;
    memmove(queue, queue + 1, --queued * sizeof(queue[0]));
    reader->thinks_until_ns = now_ns + reader->think_ns;
    request->idle = true;
    sluice_engine_complete(engines[reader->engine], &request->node,
                           now_ns - request->given_ns, now_ns);
}

static uint64_t next_ns(void)
{
    uint64_t first_ns = free_ns ? free_ns : UINT64_MAX;

    for (unsigned i = 0; i < ENGINES; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(engines[i]);

        first_ns = event_ns < first_ns ? event_ns : first_ns;
    }
    for (unsigned i = 0; i < reader_count; i++) {
        uint64_t thinks_ns = readers[i].thinks_until_ns;

        first_ns = thinks_ns > now_ns && thinks_ns < first_ns ? thinks_ns : first_ns;
    }
    return first_ns > now_ns ? first_ns : now_ns + 1;
}

static void run(uint64_t for_ns)
{
    uint64_t end_ns = now_ns + for_ns;

    for (;;) {
        submit_all();
        for (unsigned i = 0; i < ENGINES; i++) {
            release(i);
        }
        if (queued && !free_ns) {
            free_ns = now_ns + takes_ns(queue[0]);
        }
        if (next_ns() >= end_ns) {
            now_ns = end_ns;
            return;
        }
        now_ns = next_ns();
        for (unsigned i = 0; i < ENGINES; i++) {
            sluice_engine_keep_gate(engines[i], now_ns);
        }
        if (free_ns && free_ns <= now_ns) {
            free_ns = 0;
            complete_first();
        }
    }
}

static uint64_t rate_of_all(uint64_t for_ns)
{
    uint64_t before = 0, after = 0;

    for (unsigned i = 0; i < reader_count; i++) {
        before += readers[i].bytes;
    }
    run(for_ns);
    for (unsigned i = 0; i < reader_count; i++) {
        after += readers[i].bytes;
    }
    return (after - before) * SECOND / for_ns;
}

/* Order */

static void add_four(void)
{
    add_reader(0, 0, 4);
    add_reader(0, 0, 1);
    add_reader(0, 1, 4);
    add_reader(1, 0, 4);
}

static void test_one_reader_at_a_time_has_the_disk(void)
{
    uint64_t with_runs, without;

    new_engines(SLUICE_GATE_RUNS);
    add_four();
    with_runs = rate_of_all(20 * SECOND);
    /* A run ends after 150 ms, of which it seeks 10. */
    check(switches < 20 * 10);
    check(with_runs > MB_PER_S * 1000000 * 85 / 100);
    for (unsigned i = 0; i < reader_count; i++) {
        check(readers[i].bytes > 20 * RUN_BYTES / 10);
    }
    free_engines();
    new_engines(0);
    add_four();
    without = rate_of_all(20 * SECOND);
    check(without < with_runs / 2);
    free_engines();
}

static void test_a_reader_that_thinks_for_a_moment_keeps_the_disk(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 1)->think_ns = SLUICE_GATE_IDLE_NS * 4 / 5;
    add_reader(0, 0, 1);
    run(10 * SECOND);
    check(switches < 10 * 20);
    /* Equal times, of which the one spends some in thought. */
    check(readers[0].bytes * 3 > readers[1].bytes);
    free_engines();
}

static void test_a_reader_that_ends_leaves_the_disk_at_once(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 2);
    run(SECOND / 10);
    add_reader(1, 0, 2);
    add_reader(0, 1, 2);
    readers[0].is_over = true;
    run(3 * REQUEST * 1000 / MB_PER_S + SLUICE_GATE_IDLE_NS + 2 * SLUICE_GATE_LOOK_NS
        + SEEK_NS);
    check(readers[1].bytes + readers[2].bytes > 0);
    free_engines();
}

static void test_streams_wait_for_no_run(void)
{
    Request read = { .who = 0 };

    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    run(SECOND / 20);
    for (unsigned i = 0; i < ENGINES; i++) {
        check_equal(sluice_engine_submit(engines[i], STREAM, &read.node, REQUEST, now_ns),
                    SLUICE_PASS);
    }
    free_engines();
}

static void test_a_stream_that_waits_stops_the_run(void)
{
    uint64_t before;

    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    run(SECOND / 20);
    sluice_engine_tell_oldest(engines[1], now_ns - 80 * MS);
    run(20 * MS);
    before = readers[0].bytes;
    run(100 * MS);
    check_equal(readers[0].bytes, before);
    sluice_engine_tell_oldest(engines[1], 0);
    run(100 * MS);
    check(readers[0].bytes > before);
    free_engines();
}

/* A reader that cannot go on */

static void set_class(unsigned engine, unsigned class_index, SluiceClassConfig config)
{
    check(sluice_engine_set_class(engines[engine], class_index, &config, now_ns));
}

/* Looks at each event until one goes, for so long at most. */
static SluiceNode *next_released(SluiceEngine *engine, uint64_t for_ns)
{
    uint64_t end_ns = now_ns + for_ns;
    SluiceNode *node;

    while (!(node = sluice_engine_release(engine, now_ns)) && now_ns < end_ns) {
        uint64_t event_ns = sluice_engine_next_event_ns(engine);

        now_ns = event_ns > now_ns ? event_ns : now_ns + 1;
    }
    return now_ns < end_ns ? node : NULL;
}

/* One request of a class goes and is done; the run that it was is over. */
static void go_once(unsigned class_index, uint64_t position)
{
    Request request = { .node.position = position };

    check_equal(sluice_engine_submit(engines[0], class_index, &request.node, REQUEST,
                                     now_ns), SLUICE_PASS);
    sluice_engine_complete(engines[0], &request.node, MS, now_ns += MS);
    now_ns += 20 * MS;
}

static void test_a_request_that_hangs_keeps_the_device_for_no_run_after_it(void)
{
    Request hangs = { .node.position = REGION }, waits = { .node.position = 2 * REGION };

    new_engines(SLUICE_GATE_RUNS);
    set_class(0, 0, (SluiceClassConfig){ .priority = 0 });
    set_class(0, 1, (SluiceClassConfig){ .priority = 9 });
    check_equal(sluice_engine_submit(engines[0], 0, &hangs.node, REQUEST, now_ns),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engines[0], 1, &waits.node, REQUEST, now_ns),
                SLUICE_HOLD);
    check(next_released(engines[0], SECOND) == &waits.node);
    free_engines();
}

static void test_a_request_goes_on_with_its_run_when_its_limit_lets_it(void)
{
    Request first = { .node.position = REGION };
    Request second = { .node.position = REGION + REQUEST };
    uint64_t began_ns;

    new_engines(SLUICE_GATE_RUNS);
    set_class(0, 0, (SluiceClassConfig){
        .limit = { .bytes_per_second = 50000000, .burst_bytes = 1 }, .priority = 5,
    });
    go_once(0, REGION - REQUEST);
    began_ns = now_ns;
    check_equal(sluice_engine_submit(engines[0], 0, &first.node, REQUEST, now_ns),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engines[0], 0, &second.node, REQUEST, now_ns),
                SLUICE_HOLD);
    check(next_released(engines[0], SECOND) == &second.node);
    check(now_ns - began_ns <= REQUEST * SECOND / 50000000 + MS);
    free_engines();
}

static void test_a_process_that_was_stopped_pays_for_no_more_than_a_run(void)
{
    uint64_t before[2];

    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    add_reader(0, 1, 4);
    run(SECOND);
    now_ns += 20 * SECOND;
    before[0] = readers[0].bytes;
    before[1] = readers[1].bytes;
    run(2 * SECOND);
    for (unsigned i = 0; i < 2; i++) {
        check(readers[i].bytes - before[i] > 2 * MB_PER_S * 1000000 / 4);
    }
    free_engines();
}

/* Parts */

/* A VM that has been up for long has had more readers than there are places. */
static void test_new_readers_are_told_apart_after_many_others(void)
{
    new_engines(SLUICE_GATE_RUNS);
    for (unsigned i = 0; i < 100; i++) {
        go_once(0, (100 + i) * REGION);
        go_once(0, (100 + i) * REGION + REQUEST);
    }
    for (unsigned i = 0; i < 4; i++) {
        add_reader(0, 0, 1);
    }
    add_reader(0, 1, 1)->is_random = true;
    run(5 * SECOND);
    switches = 0;
    run(10 * SECOND);
    check(switches < 10 * 20);
    free_engines();
}

static void test_readers_keep_the_disk_behind_many_requests(void)
{
    new_engines(SLUICE_GATE_RUNS);
    for (unsigned i = 0; i < READERS_MOST; i++) {
        add_reader(0, 0, DEPTH);
    }
    check(rate_of_all(20 * SECOND) > MB_PER_S * 1000000 * 85 / 100);
    free_engines();
}

static void test_weights_divide_the_time(void)
{
    new_engines(SLUICE_GATE_RUNS);
    set_class(0, 0, (SluiceClassConfig){ .priority = 5, .weight = 200 });
    set_class(0, 1, (SluiceClassConfig){ .priority = 5, .weight = 100 });
    add_reader(0, 0, 4);
    add_reader(0, 1, 4)->is_random = true;
    run(60 * SECOND);
    check(readers[0].busy_ns > readers[1].busy_ns * 17 / 10);
    check(readers[0].busy_ns < readers[1].busy_ns * 23 / 10);
    free_engines();
}

static void test_members_have_times_by_weight(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    add_reader(0, 0, 4);
    add_reader(0, 1, 4);
    add_reader(1, 0, 4)->is_random = true;
    run(60 * SECOND);
    /* One class of three that are active. */
    check(readers[3].busy_ns > 60 * SECOND * 28 / 100);
    check(readers[3].busy_ns < 60 * SECOND * 38 / 100);
    free_engines();
}

/* The device is kept for one of them while it thinks. */
static void test_members_have_equal_times_whoever_thinks(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 1)->think_ns = SLUICE_GATE_IDLE_NS * 4 / 5;
    add_reader(1, 0, 4);
    run(60 * SECOND);
    check(readers[1].busy_ns > 60 * SECOND * 43 / 100);
    check(readers[1].busy_ns < 60 * SECOND * 57 / 100);
    free_engines();
}

static void test_a_class_keeps_its_limit_and_leaves_the_rest(void)
{
    new_engines(SLUICE_GATE_RUNS);
    set_class(0, 0, (SluiceClassConfig){
        .limit = { .bytes_per_second = 5000000, .burst_bytes = REQUEST }, .priority = 5,
    });
    add_reader(0, 0, 4);
    add_reader(0, 1, 4);
    run(20 * SECOND);
    check(readers[0].bytes <= 20 * 5000000 + 2 * REQUEST);
    check(readers[0].bytes > 20 * 5000000 / 2);
    check(readers[1].bytes > 20 * MB_PER_S * 1000000 / 2);
    free_engines();
}

static void test_a_reservation_is_served_between_runs(void)
{
    new_engines(SLUICE_GATE_RUNS);
    set_class(0, 0, (SluiceClassConfig){ .priority = 9, .reservation_bytes_per_second = 20000000 });
    set_class(0, 1, (SluiceClassConfig){ .priority = 0 });
    add_reader(0, 0, 4);
    add_reader(0, 1, 4);
    run(20 * SECOND);
    check(readers[0].bytes > 20 * 20000000ULL * 9 / 10);
    check(readers[1].bytes > readers[0].bytes);
    free_engines();
}

/* Members that do not behave */

static void test_a_killed_member_loses_its_run(void)
{
    uint64_t killed_ns;

    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    run(SECOND / 20);
    check(page.run != 0);
    readers[0].is_over = true;
    killed_ns = now_ns;
    page.slots[0].in_flight_bytes = 0;
    page.run = (now_ns + SLUICE_GATE_RUN_MOST_NS) & ~SLUICE_GATE_RUN_SLOT;
    page.run |= 77;
    add_reader(1, 0, 4);
    while (!readers[1].bytes && now_ns < killed_ns + SECOND) {
        run(MS);
    }
    check(now_ns - killed_ns < SLUICE_GATE_RUN_MOST_NS + 2 * SLUICE_GATE_LOOK_NS
                               + 2 * SEEK_NS);
    free_engines();
}

static void test_a_word_that_is_no_run_stops_nobody(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(1, 0, 1);
    page.run = (now_ns + SECOND) | 77;
    run(20 * MS);
    check(readers[0].bytes > 0);
    free_engines();
}

static void test_a_run_that_began_a_moment_later_is_one(void)
{
    Request read = { .node.position = REGION };

    new_engines(SLUICE_GATE_RUNS);
    go_once(0, REGION);
    page.run = ((now_ns + SLUICE_GATE_RUN_MOST_NS + MS / 20) & ~SLUICE_GATE_RUN_SLOT) | 77;
    check_equal(sluice_engine_submit(engines[0], 0, &read.node, REQUEST, now_ns),
                SLUICE_HOLD);
    free_engines();
}

/* Its device does not hang: nothing was with it. */
static void test_a_member_that_was_quiet_waits_for_a_run(void)
{
    Request read = { .node.position = REGION };

    new_engines(SLUICE_GATE_RUNS);
    page.run = ((now_ns + 100 * MS) & ~SLUICE_GATE_RUN_SLOT) | 77;
    check_equal(sluice_engine_submit(engines[0], 0, &read.node, REQUEST, now_ns),
                SLUICE_HOLD);
    check(next_released(engines[0], SECOND) == &read.node);
    free_engines();
}

static void test_nobody_waits_for_runs_for_good(void)
{
    uint64_t before = 0;

    new_engines(SLUICE_GATE_RUNS);
    add_reader(1, 0, 1);
    for (unsigned i = 0; i < 13000; i++) {
        page.run = ((now_ns + 100 * MS) & ~SLUICE_GATE_RUN_SLOT) | 77;
        run(MS);
        before = i == 1000 ? readers[0].bytes : before;
    }
    /* Its run is over by the first second. */
    check(readers[0].bytes - before >= 2 * REQUEST);
    check(readers[0].bytes - before <= 4 * REQUEST);
    free_engines();
}

static void test_a_lost_page_leaves_runs_within_the_vm(void)
{
    new_engines(SLUICE_GATE_RUNS);
    add_reader(0, 0, 4);
    add_reader(0, 0, 4);
    run(SECOND);
    memset(&page, 0, sizeof(page));
    switches = 0;
    check(rate_of_all(10 * SECOND) > MB_PER_S * 1000000 * 8 / 10);
    check(switches < 10 * 10);
    free_engines();
}

/* Whatever comes, each reader's requests come out in order, and all of them. */
static void test_readers_over_random_traces(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) / 10;

    for (uint64_t i = 0; i < traces && !tap_failures; i++) {
        chance = random_seeded(seed + i);
        new_engines(SLUICE_GATE_RUNS);
        for (unsigned j = 0; j < READERS; j++) {
            Reader *reader = add_reader(random_below(&chance, ENGINES),
                                        random_below(&chance, 3),
                                        1 + random_below(&chance, DEPTH));

            reader->is_random = !random_below(&chance, 4);
            reader->think_ns = random_below(&chance, 2) * random_below(&chance, 5 * MS);
        }
        for (unsigned step = 0; step < 20; step++) {
            Reader *reader = &readers[random_below(&chance, READERS)];

            reader->is_over = !reader->is_over;
            if (!random_below(&chance, 3)) {
                sluice_engine_tell_oldest(engines[0], now_ns);
            }
            if (!random_below(&chance, 3)) {
                page.run = random_below(&chance, 2) ? random_next(&chance)
                                                    : now_ns + random_below(&chance, 200 * MS);
            }
            run(random_below(&chance, SECOND));
            sluice_engine_tell_oldest(engines[0], 0);
        }
        for (unsigned j = 0; j < READERS; j++) {
            readers[j].is_over = true;
        }
        run(20 * SECOND);
        for (unsigned j = 0; j < READERS; j++) {
            for (unsigned k = 0; k < readers[j].depth; k++) {
                check(readers[j].requests[k].idle);
            }
        }
        check_equal(queued, 0);
        if (tap_failures) {
            printf("# seed %" PRIu64 "\n", seed + i);
        }
        free_engines();
    }
}

int main(void)
{
    static const TapTest tests[] = {
        { "one reader at a time has the disk", test_one_reader_at_a_time_has_the_disk },
        { "a reader that thinks for a moment keeps the disk",
          test_a_reader_that_thinks_for_a_moment_keeps_the_disk },
        { "a reader that ends leaves the disk at once",
          test_a_reader_that_ends_leaves_the_disk_at_once },
        { "streams wait for no run", test_streams_wait_for_no_run },
        { "a stream that waits stops the run", test_a_stream_that_waits_stops_the_run },
        { "a request that hangs keeps the device for no run after it",
          test_a_request_that_hangs_keeps_the_device_for_no_run_after_it },
        { "a request goes on with its run when its limit lets it",
          test_a_request_goes_on_with_its_run_when_its_limit_lets_it },
        { "a process that was stopped pays for no more than a run",
          test_a_process_that_was_stopped_pays_for_no_more_than_a_run },
        { "new readers are told apart after many others",
          test_new_readers_are_told_apart_after_many_others },
        { "readers keep the disk behind many requests",
          test_readers_keep_the_disk_behind_many_requests },
        { "weights divide the time", test_weights_divide_the_time },
        { "members have times by weight", test_members_have_times_by_weight },
        { "members have equal times whoever thinks",
          test_members_have_equal_times_whoever_thinks },
        { "a class keeps its limit and leaves the rest",
          test_a_class_keeps_its_limit_and_leaves_the_rest },
        { "a reservation is served between runs", test_a_reservation_is_served_between_runs },
        { "a killed member loses its run", test_a_killed_member_loses_its_run },
        { "a word that is no run stops nobody", test_a_word_that_is_no_run_stops_nobody },
        { "a run that began a moment later is one",
          test_a_run_that_began_a_moment_later_is_one },
        { "a member that was quiet waits for a run",
          test_a_member_that_was_quiet_waits_for_a_run },
        { "nobody waits for runs for good", test_nobody_waits_for_runs_for_good },
        { "a lost page leaves runs within the VM",
          test_a_lost_page_leaves_runs_within_the_vm },
        { "readers over random traces", test_readers_over_random_traces },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
