/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cost of a group: the bucket that engines of several processes share.
 *
 *   group                sluice_group_admit() of a request that passes; no other
 *                        member uses the page
 *   pass-group           as "group", under an engine: class and ceiling limited in
 *                        bytes and operations, as in engine-bench.c's "pass"
 *   group-2-processes    as "group", while another process does the same on the
 *                        same page without a pause
 *
 * The time is supplied, as in engine-bench.c, and the figures are medians of
 * short batches. The processes of the last row have a processor each, and only
 * those batches count in which the other admitted at least a quarter as many
 * requests while this one was not interrupted: on a busy machine there may be
 * few. Without enough of them the row is left out, and report.py misses it.
 *
 * QEMU's throttle group is not among the rows: unlike its core it cannot be
 * built without QEMU's objects, coroutines and locks. It works within one
 * process only; its core, measured in engine-bench.c, is its lower bound.
 *
 * With --count NAME N it only runs N requests of one variant (for callgrind).
 */
#include "qemu/osdep.h"
#include <sys/mman.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "bench.h"
#include "sluice/engine.h"
#include "../tests/group-writer.h"

#define RIVAL_PART      4
#define RIVAL_BATCHES   101             /* with the rival beside */
#define ATTEMPTS        20000

typedef struct Shared {
    SluiceGroupPage page;
    SluiceWord rival_requests;
    SluiceWord now_ns;          /* of both processes, roughly */
} Shared;

static Shared *shared;
static SluiceGroupMember member;
static SluiceEngine *engine;

static void join(uint64_t owner)
{
    if (sluice_group_join(&member, &shared->page, sizeof(shared->page), owner,
                          "bench", 100, supplied_ns) != SLUICE_GROUP_OK) {
        fail("the group cannot be joined");
    }
}

static void prepare(void)
{
    SluiceGroupLimit group = { .rate = AMPLE, .burst = AMPLE };
    SluiceLimit limit = {
        .bytes_per_second = AMPLE, .burst_bytes = AMPLE,
        .operations_per_second = AMPLE, .burst_operations = AMPLE,
    };
    SluiceClassConfig config = { .limit = limit, .priority = 5 };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    engine = sluice_engine_new(16);
    if (shared == MAP_FAILED || !engine
        || !group_page_init(&shared->page, "bench", &group, 0)) {
        fail("no memory");
    }
    for (uint32_t i = 0; i < 16; i++) {
        sluice_engine_set_class(engine, i, &config, 0);
    }
    sluice_engine_set_ceiling(engine, &limit, 0);
    join(1);
    sluice_engine_set_group(engine, &member);
}

/* Returns how many were refused: none, unless the clocks have parted. */
static unsigned admit_all(unsigned requests)
{
    unsigned passed = 0;

    if (atomic_load(&shared->now_ns) > supplied_ns) {
        supplied_ns = atomic_load(&shared->now_ns);
    }
    for (unsigned i = 0; i < requests; i++) {
        supplied_ns += STEP_NS;
        passed += sluice_group_admit(&member, request_bytes(i), supplied_ns);
    }
    atomic_store(&shared->now_ns, supplied_ns);
    return requests - passed;
}

static void run_group(unsigned requests)
{
    if (admit_all(requests) > 0) {
        fail("a request was refused that should pass");
    }
}

static void run_engine(unsigned requests)
{
    unsigned passed = 0;
    SluiceNode node;

    for (unsigned i = 0; i < requests; i++) {
        supplied_ns += STEP_NS;
        passed += sluice_engine_submit(engine, 3, &node, request_bytes(i),
                                       supplied_ns) == SLUICE_PASS;
    }
    if (passed != requests) {
        fail("a request was held that should pass");
    }
}

static void use_processor(int number)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(number, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0) {
        fail("there are no two processors");
    }
}

static long interruptions(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw + usage.ru_nvcsw;
}

/* Never returns; ends with its parent at the latest. */
static void be_rival(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_processor(1);
    join(2);
    for (;;) {
        admit_all(100);
        atomic_fetch_add(&shared->rival_requests, 100);
    }
}

static void measure(void (*run)(unsigned requests), double *samples_ns)
{
    run(10 * BATCH);
    for (unsigned r = 0; r < REPETITIONS; r++) {
        double start_ns = clock_ns();

        run(BATCH);
        samples_ns[r] = (clock_ns() - start_ns) / BATCH;
    }
}

static void measure_with_rival(void)
{
    double samples_ns[RIVAL_BATCHES + 1];
    unsigned count = 0;
    pid_t child = fork();

    if (child < 0) {
        fail("no second process");
    }
    if (child == 0) {
        be_rival();
    }
    use_processor(0);
    while (atomic_load(&shared->rival_requests) == 0) {
        sched_yield();
    }
    for (unsigned i = 0; i < ATTEMPTS && count < RIVAL_BATCHES; i++) {
        uint64_t before = atomic_load(&shared->rival_requests);
        long interrupted = interruptions();
        double start_ns = clock_ns();
        bool valid = admit_all(BATCH) == 0;

        samples_ns[count] = (clock_ns() - start_ns) / BATCH;
        count += valid && atomic_load(&shared->rival_requests) - before
                 >= BATCH / RIVAL_PART && interruptions() == interrupted;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (count < RIVAL_BATCHES) {
        fprintf(stderr, "group-2-processes is left out: the other process had "
                "a processor in %u batches only\n", count);
        return;
    }
    report("group-2-processes", samples_ns, count);
}

int main(int argc, char **argv)
{
    double samples_ns[REPETITIONS];
    bool count = argc == 4 && !strcmp(argv[1], "--count");

    if (argc != 1 && !count) {
        fprintf(stderr, "usage: %s [--count group|pass-group REQUESTS]\n",
                argv[0]);
        return 2;
    }
    prepare();
    if (count) {
        (strcmp(argv[2], "group") ? run_engine : run_group)(
            strtoul(argv[3], NULL, 10));
        return 0;
    }
    measure(run_group, samples_ns);
    report("group", samples_ns, REPETITIONS);
    measure(run_engine, samples_ns);
    report("pass-group", samples_ns, REPETITIONS);
    fflush(stdout);
    measure_with_rival();
    return 0;
}
