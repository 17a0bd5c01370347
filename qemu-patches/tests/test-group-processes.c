/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Members in processes of their own, and the page that they leave when they are killed.
 *
 * Every instruction. A child is run through all calls of a member one machine
 * instruction at a time. Each state of the page between two instructions is that of a
 * SIGKILL at that moment. Each one is taken up by a survivor, on a copy: its requests
 * must go on, at the full rate after the stated time, within the limit, and the slot
 * must become free.
 *
 * Storm. Real SIGKILLs at random times, on members that do nothing but ask.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "group-writer.h"
#include "group-log.h"
#include "random.h"
#include "sluice/engine.h"

#define MS          1000000ULL
#define SECOND      (1000 * MS)

static SluiceGroupPage *page;           /* shared with the children */

static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

/* Every instruction */

#define STEP_BYTES      4000            /* 4 ms at the limit */
#define STEPS_MAX       2000000

static const SluiceGroupLimit step_limit = { .rate = 1000000, .burst = 50000 };

/* All that a member does: passing, correcting, waiting, idling, changing, leaving. */
static void victim(uint64_t now_ns)
{
    SluiceGroupMember member;

    if (sluice_group_join(&member, page, sizeof(*page), 77, "victim", 500,
                          now_ns) != SLUICE_GROUP_OK) {
        _exit(1);
    }
    for (unsigned i = 0; i < 3; i++) {
        sluice_group_admit(&member, 20000, now_ns);
        sluice_group_admit(&member, 60000, now_ns);
        sluice_group_correct(&member, i % 2 ? 3000 : -3000, now_ns);
        sluice_group_next_ns(&member, now_ns);
        now_ns += 100 * MS;
        sluice_group_admit(&member, 100, now_ns);
        sluice_group_idle(&member);
        sluice_group_set_weight(&member, 700);
        sluice_group_keepalive(&member, now_ns);
    }
    sluice_group_leave(&member);
}

/* The survivor's handle, moved to a copy of the page. */
static SluiceGroupMember moved(const SluiceGroupMember *member,
                               SluiceGroupPage *copy)
{
    SluiceGroupMember other = *member;

    other.page = copy;
    other.slot = &copy->slots[member->index];
    return other;
}

/*
 * From this page on: the debt that is there is at most 60000 bytes, 60 ms;
 * then the survivor waits no longer than the stated time for the dead one.
 */
static bool survives(const SluiceGroupMember *survivor, uint64_t now_ns)
{
    static _Alignas(128) SluiceGroupPage copy;
    uint64_t start_ns = now_ns, keepalive_ns = now_ns, bytes = 0;
    uint64_t stated_ns = 60 * MS + SLUICE_GROUP_GRACE_NS
                         + SLUICE_GROUP_RECHECK_MAX_NS;
    SluiceGroupMember member, newcomer;

    memcpy((void *)&copy, (void *)page, sizeof(copy));
    member = moved(survivor, &copy);
    while (now_ns < start_ns + SECOND) {
        uint64_t next_ns;

        if (sluice_group_admit(&member, STEP_BYTES, now_ns)) {
            bytes += STEP_BYTES;
            continue;
        }
        next_ns = sluice_group_next_ns(&member, now_ns);
        if (!check(next_ns >= now_ns)
            || !check(bytes > 0 || next_ns <= start_ns + stated_ns)) {
            return false;
        }
        now_ns = next_ns;
    }
    if (!check(bytes <= step_limit.burst + step_limit.rate + STEP_BYTES)
        || !check(bytes >= step_limit.rate - step_limit.rate / 1000
                           * (stated_ns / MS) - STEP_BYTES)) {
        printf("# %" PRIu64 " bytes in a second\n", bytes);
        return false;
    }
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        keepalive_ns = start_ns + 2 * SLUICE_GROUP_REAP_NS;
        sluice_group_keepalive(&member, keepalive_ns);
    }
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        if (!check((copy.slots[i].owner != 0) == (i == member.index))) {
            return false;
        }
    }
    return check_equal(sluice_group_join(&newcomer, &copy, sizeof(copy), 88,
                                         "newcomer", 1, keepalive_ns),
                       SLUICE_GROUP_OK);
}

#define NO_PTRACE   3                   /* exit status */

/* False if it cannot be; a machine that forbids ptrace is no failure. */
static bool start_victim(pid_t *child, uint64_t now_ns)
{
    int status;

    *child = fork();
    if (*child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) {
            _exit(NO_PTRACE);
        }
        raise(SIGSTOP);
        victim(now_ns);
        _exit(0);
    }
    if (!check(*child > 0 && waitpid(*child, &status, 0) == *child)) {
        return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE) {
        tap_skip("this machine forbids ptrace");
        return false;
    }
    return check(WIFSTOPPED(status));
}

static void test_killed_at_every_instruction(void)
{
    static _Alignas(128) SluiceGroupPage seen;
    uint64_t now_ns = 1000 * SECOND;
    SluiceGroupMember survivor;
    unsigned steps = 0, states = 0;
    pid_t child;
    int status;

    page = shared_memory(sizeof(*page));
    check(group_page_init(page, "test", &step_limit, now_ns));
    check_equal(sluice_group_join(&survivor, page, sizeof(*page), 66,
                                  "survivor", 100, now_ns), SLUICE_GROUP_OK);
    sluice_group_admit(&survivor, STEP_BYTES, now_ns);
    memcpy((void *)&seen, (void *)page, sizeof(seen));
    if (!start_victim(&child, now_ns)) {
        munmap(page, sizeof(*page));
        return;
    }
    while (steps < STEPS_MAX) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) < 0
            || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
            break;
        }
        steps++;
        if (memcmp((void *)&seen, (void *)page, sizeof(seen))) {
            memcpy((void *)&seen, (void *)page, sizeof(seen));
            states++;
            if (!survives(&survivor, now_ns + SECOND)) {
                printf("# after %u instructions\n", steps);
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                break;
            }
        }
    }
    printf("# %u instructions, %u states of the page\n", steps, states);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check(states > 50);
    munmap(page, sizeof(*page));
}

/* Processes that run on, and the storm */

#define PROCESSES   4
#define KILLS       150
#define ASKS_BYTES  65536

static const SluiceGroupLimit storm_limit = { .rate = 100000000,
                                              .burst = 5000000 };

/* Asks without end, or for so many requests. */
static void ask(GroupLog *log, unsigned index, unsigned requests)
{
    Random random = random_seeded(getpid());
    SluiceGroupMember member;
    unsigned passed = 0;

    while (sluice_group_join(&member, page, sizeof(*page),
                             random_next(&random) << 32 | (uint32_t)getpid(),
                             "child", 100 * (index + 1), fast_now_ns())
           != SLUICE_GROUP_OK) {
        fast_sleep_until(fast_now_ns() + SECOND);
    }
    while (passed < requests) {
        uint32_t bytes = 1 + random_below(&random, ASKS_BYTES);
        uint64_t now_ns = fast_now_ns();

        while (!sluice_group_admit(&member, bytes, now_ns)) {
            uint64_t next_ns = sluice_group_next_ns(&member, now_ns);

            sluice_group_keepalive(&member, now_ns);
            fast_sleep_until(next_ns);
            now_ns = fast_now_ns();
        }
        if (!log_pass(log, now_ns, bytes)) {
            break;
        }
        passed++;
    }
    sluice_group_leave(&member);
}

static pid_t spawn(GroupLog *log, unsigned index, unsigned requests)
{
    pid_t child = fork();

    if (child == 0) {
        ask(log, index, requests);
        _exit(0);
    }
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    return child;
}

static void test_processes_share(void)
{
    GroupLog *logs = shared_memory(PROCESSES * sizeof(*logs));
    pid_t children[PROCESSES];
    uint64_t passes;

    page = shared_memory(sizeof(*page));
    check(group_page_init(page, "test", &storm_limit, fast_now_ns()));
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = spawn(&logs[i], i, 3000);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;

        check(waitpid(children[i], &status, 0) == children[i] && status == 0);
        check_equal(logs[i].count, 3000);
    }
    check_log_limit(logs, PROCESSES, &storm_limit, &passes);
    check_equal(passes, PROCESSES * 3000);
    check_equal(page->demand[0], 0);
    munmap(page, sizeof(*page));
    munmap(logs, PROCESSES * sizeof(*logs));
}

static void test_kill_storm(void)
{
    unsigned count = KILLS + PROCESSES + 1, used = 0;
    GroupLog *logs = shared_memory(count * sizeof(*logs));
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));
    pid_t children[PROCESSES];
    uint64_t passes, now_ns;
    SluiceGroupMember last;
    int status;

    page = shared_memory(sizeof(*page));
    check(group_page_init(page, "test", &storm_limit, fast_now_ns()));
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = spawn(&logs[used++], i, UINT32_MAX);
    }
    for (unsigned i = 0; i < KILLS; i++) {
        unsigned who = random_below(&random, PROCESSES);

        usleep(random_below(&random, 20000));
        kill(children[who], SIGKILL);
        waitpid(children[who], &status, 0);
        check(WIFSIGNALED(status));
        children[who] = spawn(&logs[used++], who, UINT32_MAX);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], &status, 0);
    }
    /* A member that comes after them all has the whole rate, and an empty page. */
    ask(&logs[used++], 0, 500);
    check_equal(logs[used - 1].count, 500);
    check_log_limit(logs, used, &storm_limit, &passes);
    printf("# %" PRIu64 " requests, %u members\n", passes, used);
    check(passes > 500 + KILLS);
    now_ns = fast_now_ns() + SLUICE_GROUP_REAP_NS;
    check_equal(sluice_group_join(&last, page, sizeof(*page), 1, "last", 1,
                                  now_ns), SLUICE_GROUP_OK);
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        sluice_group_keepalive(&last, now_ns);
    }
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        check((page->slots[i].owner != 0) == (i == last.index));
    }
    munmap(page, sizeof(*page));
    munmap(logs, count * sizeof(*logs));
}

static const TapTest tests[] = {
    { "group/property: killed at every instruction",
      test_killed_at_every_instruction },
    { "group: processes share", test_processes_share },
    { "group/property: kill storm", test_kill_storm },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
