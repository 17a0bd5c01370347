/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cost of a decision, beside QEMU's own throttle core.
 *
 * Rows. One request that is let pass, bytes and operations both limited, the time
 * supplied by the caller:
 *
 *   pass                 sluice_engine_submit(): the class's two buckets and
 *                        the ceiling's two, priorities, statistics
 *   qemu-throttle-core   throttle_schedule_timer() and throttle_account(), as
 *                        the block layer calls them, bytes and operations
 *                        limited in total (its six buckets always leak)
 *
 * Both get the same sizes at the same times. QEMU's side is util/throttle.c as
 * it lies in the object file of the build tree; the engine is compiled with the
 * very flags of that object. throttle_schedule_timer() reads the clock itself:
 * this program provides that function (and those that a passing request never
 * reaches) and returns the supplied time, so neither side pays for a clock.
 * The locks, coroutines and timers of QEMU's throttle group are not counted.
 *
 *   pass-unlimited       as "pass", with no limit set at all
 *   hold-release         asking for the next event, releasing the request due
 *                        then and holding another of the same class, with 10
 *                        classes that all hold requests and wait for limits of
 *                        their own, in bytes and operations. They also have a
 *                        reservation, a weight and one of three priorities, and
 *                        the ceiling is limited in bytes and operations, but it
 *                        is ample: these are charged and never decide
 *   all-in-use           as "hold-release", but limits, reservations, weights and
 *                        priorities all decide: under a ceiling that
 *                        is scarce a third of the classes, of the best priority,
 *                        wait for limits of their own, which are two fifths of
 *                        it; a third, of the worst priority, gets the fifth that
 *                        is reserved for it; the others share the rest by
 *                        weight. The benchmark is void if they do not get that
 *   contended            the same with 10 classes of ample limits, under
 *                        a ceiling that is not: reservations, priorities and
 *                        weights decide every time
 *   pass-gated           as "pass", behind a gate that is open, and the request is
 *                        done before the next comes: the gate's whole work but
 *                        for an update of its window
 *   gate-release         a gate that is closed and one class that waits for it:
 *                        a request is done, the next goes, another is held
 *   lock                 taking and releasing a lock of ours that is free, as
 *                        each request does twice
 *   qemu-mutex-core      the same with the mutex of the C library, which a
 *                        QemuMutex calls, and looks at its trace events besides
 *
 *   port-map             the class of a frame by its local port; ports at random, so
 *                        that the map of 128 KiB is not in the nearest cache
 *   frame                reading the headers of the same frames (TCP over IPv4), and
 *                        their DSCP's class: what a frame costs without a map
 *
 * The most that each may cost is in bars.py.
 *
 * The variants run in turn, many times in short batches, so that a change of
 * the processor's speed meets all of them; the figure is the median. Before
 * each timed batch the variant runs 1,000 requests untimed, so that the caches and the
 * processor's predictions of branches are of its state and not of the last one's.
 *
 * With --count NAME N it only runs N requests of one variant (for callgrind).
 */
#include "qemu/osdep.h"
#include "bench.h"
#include "qapi/error.h"
#include "qemu/throttle.h"
#include "qemu/timer.h"
#include "sluice/engine.h"
#include "sluice/classify.h"
#include "sluice/gate.h"
#include "sluice/lock.h"
#include "sluice/portmap.h"

#define HELD_PER_CLASS  2
#define WARM            1000
#define SCARCE          1000000000ULL
#define SCARCE_BURST    1000000

typedef struct Variant {
    const char *name;
    void (*prepare)(void);
    void (*run)(unsigned requests);
    double samples_ns[REPETITIONS];
} Variant;

/* The calls of throttle.o: the clock, and those that only waiting requests reach. */

int64_t qemu_clock_get_ns(QEMUClockType type)
{
    return supplied_ns;
}

bool timer_pending(QEMUTimer *timer)
{
    fail("QEMU's throttle asks for its timer");
    return false;
}

void timer_mod(QEMUTimer *timer, int64_t expire_time)
{
    fail("QEMU's throttle sets its timer");
}

void timer_del(QEMUTimer *timer)
{
    fail("QEMU's throttle deletes its timer");
}

void timer_init_full(QEMUTimer *timer, QEMUTimerListGroup *group,
                     QEMUClockType type, int scale, int attributes,
                     QEMUTimerCB *callback, void *opaque)
{
    fail("QEMU's throttle makes a timer");
}

void error_setg_internal(Error **errp, const char *src, int line,
                         const char *func, const char *fmt, ...)
{
    fail("QEMU's throttle reports an error");
}

/* pass, pass-unlimited */

static SluiceEngine *limited_engine, *unlimited_engine;

static SluiceEngine *new_engine(uint32_t classes)
{
    SluiceEngine *engine = sluice_engine_new(classes);

    if (!engine) {
        fail("no memory");
    }
    return engine;
}

static SluiceEngine *new_limited_engine(void)
{
    SluiceLimit limit = {
        .bytes_per_second = AMPLE, .burst_bytes = AMPLE,
        .operations_per_second = AMPLE, .burst_operations = AMPLE,
    };
    SluiceClassConfig config = { .limit = limit, .priority = 5 };
    SluiceEngine *engine = new_engine(16);

    for (uint32_t i = 0; i < 16; i++) {
        sluice_engine_set_class(engine, i, &config, 0);
    }
    sluice_engine_set_ceiling(engine, &limit, 0);
    return engine;
}

static void prepare_pass(void)
{
    limited_engine = new_limited_engine();
}

static void prepare_unlimited(void)
{
    unlimited_engine = new_engine(16);
}

static void run_submit(SluiceEngine *engine, unsigned requests)
{
    uint64_t now_ns = supplied_ns;
    unsigned passed = 0;
    SluiceNode node;

    for (unsigned i = 0; i < requests; i++) {
        now_ns += STEP_NS;
        passed += sluice_engine_submit(engine, 3, &node, request_bytes(i),
                                       now_ns) == SLUICE_PASS;
    }
    supplied_ns = now_ns;
    if (passed != requests) {
        fail("a request was held that should pass");
    }
}

static void run_pass(unsigned requests)
{
    run_submit(limited_engine, requests);
}

static void run_unlimited(unsigned requests)
{
    run_submit(unlimited_engine, requests);
}

/* qemu-throttle-core */

static ThrottleState throttle;
static ThrottleTimers throttle_timers;
static QEMUTimer throttle_timer;

static void prepare_throttle(void)
{
    ThrottleConfig config;

    throttle_init(&throttle);
    throttle_config_init(&config);
    config.buckets[THROTTLE_BPS_TOTAL].avg = AMPLE;
    config.buckets[THROTTLE_OPS_TOTAL].avg = AMPLE;
    if (!throttle_is_valid(&config, NULL)) {
        fail("QEMU refuses the limits");
    }
    throttle_config(&throttle, QEMU_CLOCK_REALTIME, &config);
    /* Asserted to exist; touched only when a request has to wait. */
    throttle_timers.timers[THROTTLE_READ] = &throttle_timer;
    throttle_timers.timers[THROTTLE_WRITE] = &throttle_timer;
}

static void run_throttle(unsigned requests)
{
    unsigned passed = 0;

    for (unsigned i = 0; i < requests; i++) {
        supplied_ns += STEP_NS;
        passed += !throttle_schedule_timer(&throttle, &throttle_timers,
                                           THROTTLE_READ);
        throttle_account(&throttle, THROTTLE_READ, request_bytes(i));
    }
    if (passed != requests) {
        fail("QEMU's throttle held a request that should pass");
    }
}

/* hold-release */

typedef struct Backlog {
    SluiceEngine *engine;
    SluiceNode *nodes;
    uint32_t classes;
} Backlog;

typedef SluiceClassConfig Configure(uint32_t class_index, uint32_t classes);

static Backlog backlog_10, contended_10, all_in_use_10;

/* Priorities 0, 4 and 8 in turn; all have all knobs set. */
static SluiceClassConfig common_config(uint32_t class_index)
{
    return (SluiceClassConfig){
        .limit = {
            .bytes_per_second = AMPLE, .burst_bytes = AMPLE,
            .operations_per_second = AMPLE, .burst_operations = 100,
        },
        .priority = class_index % 3 * 4,
        .weight = 1 + class_index % 100,
    };
}

/* The classes differ in rate a little, so that they do not march in step. */
static SluiceClassConfig own_limits(uint32_t class_index, uint32_t classes)
{
    SluiceClassConfig config = common_config(class_index);
    uint64_t rate = 10000000 + class_index * 7919 % 1000 * 1000;

    config.limit.bytes_per_second = rate;
    config.limit.burst_bytes = 65536;
    config.limit.operations_per_second = 2000;
    config.reservation_bytes_per_second = rate / 2;
    return config;
}

/* All reservations together are half of the ceiling. */
static SluiceClassConfig no_limits(uint32_t class_index, uint32_t classes)
{
    SluiceClassConfig config = common_config(class_index);

    config.reservation_bytes_per_second = SCARCE / classes / 2;
    return config;
}

/* Parts of the ceiling in percent, by class_index % 3. */
static const unsigned limited_percent[] = { 40, 0, 0 };
static const unsigned reserved_percent[] = { 20, 5, 20 };
static const unsigned served_percent[] = { 40, 40, 20 };

static SluiceClassConfig all_knobs(uint32_t class_index, uint32_t classes)
{
    SluiceClassConfig config = common_config(class_index);
    uint32_t third = class_index % 3;
    uint64_t part = SCARCE / 100 / ((classes - third + 2) / 3);

    if (limited_percent[third]) {
        config.limit.bytes_per_second = limited_percent[third] * part;
        config.limit.burst_bytes = REQUEST_BYTES;
    }
    config.reservation_bytes_per_second = reserved_percent[third] * part;
    return config;
}

static void new_backlog(Backlog *backlog, uint32_t classes, Configure *configure,
                        const SluiceLimit *ceiling)
{
    backlog->classes = classes;
    backlog->engine = new_engine(classes);
    backlog->nodes = calloc((size_t)classes * HELD_PER_CLASS,
                            sizeof(*backlog->nodes));
    if (!backlog->nodes) {
        fail("no memory");
    }
    for (uint32_t i = 0; i < classes; i++) {
        SluiceClassConfig config = configure(i, classes);

        if (!sluice_engine_set_class(backlog->engine, i, &config,
                                     supplied_ns)) {
            fail("the engine refuses a class");
        }
    }
    sluice_engine_set_ceiling(backlog->engine, ceiling, supplied_ns);
}

/* Uses up the burst, and delays later requests. */
static void pass_one(Backlog *backlog, uint32_t class_index, uint32_t bytes)
{
    SluiceNode passed;

    if (sluice_engine_submit(backlog->engine, class_index, &passed, bytes,
                             supplied_ns) != SLUICE_PASS) {
        fail("a request was held that should pass");
    }
}

static void hold_all(Backlog *backlog, uint32_t class_index)
{
    for (uint32_t n = 0; n < HELD_PER_CLASS; n++) {
        SluiceNode *node = &backlog->nodes[class_index * HELD_PER_CLASS + n];

        if (sluice_engine_submit(backlog->engine, class_index, node,
                                 REQUEST_BYTES, supplied_ns) != SLUICE_HOLD) {
            fail("a request passed that should be held");
        }
    }
}

static void prepare_ample(Backlog *backlog, uint32_t classes)
{
    SluiceLimit ceiling = {
        .bytes_per_second = AMPLE, .burst_bytes = AMPLE,
        .operations_per_second = AMPLE, .burst_operations = AMPLE,
    };

    new_backlog(backlog, classes, own_limits, &ceiling);
    for (uint32_t i = 0; i < classes; i++) {
        pass_one(backlog, i, 65536 + i);
        hold_all(backlog, i);
    }
}

static void prepare_scarce(Backlog *backlog, uint32_t classes,
                           Configure *configure)
{
    SluiceLimit ceiling = {
        .bytes_per_second = SCARCE, .burst_bytes = SCARCE_BURST,
        .operations_per_second = AMPLE, .burst_operations = AMPLE,
    };

    new_backlog(backlog, classes, configure, &ceiling);
    pass_one(backlog, 1, SCARCE_BURST);     /* classes of ample limits */
    for (uint32_t i = 0; i < classes; i++) {
        hold_all(backlog, i);
    }
}

static void prepare_hold_release(void)
{
    prepare_ample(&backlog_10, 10);
}

static void prepare_all_in_use(void)
{
    prepare_scarce(&all_in_use_10, 10, all_knobs);
}

static void prepare_contended(void)
{
    prepare_scarce(&contended_10, 10, no_limits);
}

static void expect_about(double actual, double expected, const char *what)
{
    if (actual < expected * 0.9 || actual > expected * 1.1) {
        fprintf(stderr, "error: %s: %.3f of what was served, not %.3f\n", what,
                actual, expected);
        fail("not all of the knobs decide");
    }
}

/* Each third got its part, and the heavy of the second third theirs by weight. */
static void check_all_decide(const Backlog *backlog)
{
    double thirds[3] = { 0 }, weights = 0, heavy_weights = 0, heavy = 0, sum;

    for (uint32_t i = 0; i < backlog->classes; i++) {
        double bytes = sluice_engine_stats(backlog->engine, i)->bytes;
        uint16_t weight = common_config(i).weight;

        bytes -= i == 1 ? SCARCE_BURST : 0;
        thirds[i % 3] += bytes;
        if (i % 3 == 1) {
            bool is_heavy = weight > (backlog->classes < 100 ? 5 : 50);

            weights += weight;
            heavy_weights += is_heavy ? weight : 0;
            heavy += is_heavy ? bytes : 0;
        }
    }
    sum = thirds[0] + thirds[1] + thirds[2];
    expect_about(thirds[0] / sum, served_percent[0] / 100.0, "by limits");
    expect_about(thirds[1] / sum, served_percent[1] / 100.0, "by priority");
    expect_about(thirds[2] / sum, served_percent[2] / 100.0, "by reservations");
    expect_about(heavy / thirds[1], heavy_weights / weights, "by weight");
}

static void run_backlog(Backlog *backlog, unsigned requests)
{
    for (unsigned i = 0; i < requests; i++) {
        uint64_t event_ns = sluice_engine_next_event_ns(backlog->engine);
        SluiceNode *node = sluice_engine_release(backlog->engine, event_ns);

        if (!node
            || sluice_engine_submit(backlog->engine, node->class_index, node,
                                    request_bytes(i), event_ns)
               != SLUICE_HOLD) {
            fail("a request was not held and released");
        }
    }
}

static void run_hold_release(unsigned requests)
{
    run_backlog(&backlog_10, requests);
}

static void run_all_in_use(unsigned requests)
{
    run_backlog(&all_in_use_10, requests);
}

static void run_contended(unsigned requests)
{
    run_backlog(&contended_10, requests);
}

/* pass-gated, gate-release */

#define GATE_TARGET_NS  20000000ULL
#define GATE_BYTES      4096

static SluiceEngine *gated_engine, *closed_engine;
static SluiceNode *in_flight[SLUICE_GATE_FIRST_BYTES / GATE_BYTES];
static unsigned first_in_flight;

static void prepare_gated(void)
{
    gated_engine = new_limited_engine();
    sluice_engine_set_gate(gated_engine, 1, GATE_TARGET_NS, 0);
}

static void run_gated(unsigned requests)
{
    uint64_t now_ns = supplied_ns;
    SluiceNode node = { .gated = false };

    for (unsigned i = 0; i < requests; i++) {
        now_ns += STEP_NS;
        if (sluice_engine_submit(gated_engine, 3, &node, request_bytes(i), now_ns)
            != SLUICE_PASS || !node.gated) {
            fail("a request was held by an open gate, or not seen by it");
        }
        sluice_engine_complete(gated_engine, &node, GATE_TARGET_NS, now_ns);
    }
    supplied_ns = now_ns;
}

static void prepare_closed(void)
{
    SluiceNode *node;

    closed_engine = new_engine(16);
    sluice_engine_set_gate(closed_engine, 1, GATE_TARGET_NS, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(in_flight); i++) {
        node = g_new0(SluiceNode, 1);
        if (sluice_engine_submit(closed_engine, 3, node, GATE_BYTES, 0)
            != SLUICE_PASS) {
            fail("the gate is closed too early");
        }
        in_flight[i] = node;
    }
    for (unsigned i = 0; i < HELD_PER_CLASS; i++) {
        node = g_new0(SluiceNode, 1);
        if (sluice_engine_submit(closed_engine, 3, node, GATE_BYTES, 0)
            != SLUICE_HOLD) {
            fail("the gate is open");
        }
    }
}

/* The latency is the target: the window stays. */
static void run_closed(unsigned requests)
{
    uint64_t now_ns = supplied_ns;

    for (unsigned i = 0; i < requests; i++) {
        SluiceNode *done = in_flight[first_in_flight], *next;

        now_ns += STEP_NS;
        sluice_engine_complete(closed_engine, done, GATE_TARGET_NS, now_ns);
        next = sluice_engine_release(closed_engine, now_ns);
        if (!next || sluice_engine_release(closed_engine, now_ns)
            || sluice_engine_submit(closed_engine, 3, done, GATE_BYTES, now_ns)
               != SLUICE_HOLD) {
            fail("a request was not done for another");
        }
        in_flight[first_in_flight] = next;
        first_in_flight = (first_in_flight + 1) % ARRAY_SIZE(in_flight);
    }
    supplied_ns = now_ns;
}

/* lock, qemu-mutex-core */

static SluiceLock lock;
static pthread_mutex_t mutex;
static volatile unsigned guarded;

static void prepare_lock(void)
{
}

static void run_lock(unsigned requests)
{
    for (unsigned i = 0; i < requests; i++) {
        sluice_lock(&lock);
        guarded++;
        sluice_unlock(&lock);
    }
}

static void *sleep_on(void *argument)
{
    for (;;) {
        pause();
    }
    return argument;
}

/* A mutex is cheaper while a process has one thread, which QEMU never has. */
static void prepare_mutex(void)
{
    pthread_t thread;

    if (pthread_mutex_init(&mutex, NULL)
        || pthread_create(&thread, NULL, sleep_on, NULL)) {
        fail("no mutex, or no other thread");
    }
}

static void run_mutex(unsigned requests)
{
    for (unsigned i = 0; i < requests; i++) {
        pthread_mutex_lock(&mutex);
        guarded++;
        pthread_mutex_unlock(&mutex);
    }
}

/* Measuring */

/* port-map, frame */

#define FRAMES  4096

static uint8_t port_map[SLUICE_PORT_MAP_BYTES];
static uint8_t frames[FRAMES][54];
static SluiceFrame parsed[FRAMES];
static SluiceFragments fragments;
static unsigned next_frame;
static volatile unsigned tags_seen;     /* so that no call is left out */

static void prepare_frames(void)
{
    static const uint8_t head[] = {
        0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2, 0x08, 0x00,
        0x45, 11 << 2, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    };
    uint32_t port = 1;

    memset(port_map, 0x82, sizeof(port_map));
    for (unsigned i = 0; i < FRAMES; i++) {
        port = port * 1664525 + 1013904223;
        memcpy(frames[i], head, sizeof(head));
        frames[i][34] = port >> 24;
        frames[i][35] = port >> 16;
        sluice_frame_parse(frames[i], sizeof(frames[i]), &parsed[i]);
    }
    if (sluice_port_map_tag(port_map, &fragments, &parsed[0], 0, true) != 2) {
        fail("a frame finds no entry in the port map");
    }
}

static void run_port_map(unsigned requests)
{
    for (unsigned i = 0; i < requests; i++) {
        tags_seen += sluice_port_map_tag(port_map, &fragments,
                                         &parsed[next_frame++ % FRAMES], 0,
                                         true);
    }
}

static void run_frame(unsigned requests)
{
    SluiceFrame frame;

    for (unsigned i = 0; i < requests; i++) {
        sluice_frame_parse(frames[next_frame++ % FRAMES], sizeof(frames[0]),
                           &frame);
        tags_seen += sluice_tag_of_dscp(frame.dscp);
    }
}

static Variant variants[] = {
    { "pass", prepare_pass, run_pass },
    { "qemu-throttle-core", prepare_throttle, run_throttle },
    { "pass-unlimited", prepare_unlimited, run_unlimited },
    { "hold-release", prepare_hold_release, run_hold_release },
    { "all-in-use", prepare_all_in_use, run_all_in_use },
    { "contended", prepare_contended, run_contended },
    { "pass-gated", prepare_gated, run_gated },
    { "gate-release", prepare_closed, run_closed },
    { "lock", prepare_lock, run_lock },
    { "qemu-mutex-core", prepare_mutex, run_mutex },
    { "port-map", prepare_frames, run_port_map },
    { "frame", prepare_frames, run_frame },
};

/* Every other repetition in reverse, so that none always follows another. */
static void measure(void)
{
    const unsigned count = ARRAY_SIZE(variants);

    for (unsigned i = 0; i < count; i++) {
        variants[i].prepare();
        variants[i].run(10 * BATCH);
    }
    for (unsigned r = 0; r < REPETITIONS; r++) {
        for (unsigned i = 0; i < count; i++) {
            Variant *variant = &variants[r & 1 ? count - 1 - i : i];
            double start_ns;

            variant->run(WARM);
            start_ns = clock_ns();
            variant->run(BATCH);
            variant->samples_ns[r] = (clock_ns() - start_ns) / BATCH;
        }
    }
}

static int count_only(const char *name, const char *requests)
{
    for (unsigned i = 0; i < ARRAY_SIZE(variants); i++) {
        if (!strcmp(variants[i].name, name)) {
            variants[i].prepare();
            variants[i].run(strtoul(requests, NULL, 10));
            return 0;
        }
    }
    fprintf(stderr, "error: no variant is called \"%s\"\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--count")) {
        return count_only(argv[2], argv[3]);
    }
    if (argc != 1) {
        fprintf(stderr, "usage: %s [--count NAME REQUESTS]\n", argv[0]);
        return 2;
    }
    measure();
    check_all_decide(&all_in_use_10);
    for (unsigned i = 0; i < ARRAY_SIZE(variants); i++) {
        report(variants[i].name, variants[i].samples_ns, REPETITIONS);
    }
    return 0;
}
