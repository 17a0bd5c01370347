/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Members in threads, at once: for the thread sanitizer, which sees no other
 * process. The limit is judged by the times with which they asked.
 */
#include <pthread.h>
#include <stdio.h>

#include "group-writer.h"
#include "group-log.h"
#include "random.h"

#define THREADS     4
#define REQUESTS    2000
#define RECONFIGURE 200
#define CORRECTIONS 20000

static _Alignas(128) SluiceGroupPage page;
static GroupLog logs[THREADS];
static const SluiceGroupLimit limit = { .rate = 2000000000ULL / CLOCK_SPEED,
                                        .burst = 200000 };

static void *member_thread(void *argument)
{
    unsigned index = (uintptr_t)argument;
    Random random = random_seeded(index);
    SluiceGroupMember member;
    unsigned passed = 0;

    if (sluice_group_join(&member, &page, sizeof(page), index + 1, "thread",
                          100 * (index + 1), fast_now_ns())
        != SLUICE_GROUP_OK) {
        return NULL;
    }
    while (passed < REQUESTS) {
        uint32_t bytes = 1 + random_below(&random, 8192);
        uint64_t now_ns = fast_now_ns();

        while (!sluice_group_admit(&member, bytes, now_ns)) {
            fast_sleep_until(sluice_group_next_ns(&member, now_ns));
            now_ns = fast_now_ns();
        }
        /* A limit set since it read the clock counts from when it was set. */
        log_pass(&logs[index],
                 now_ns > member.clock.base_ns ? now_ns : member.clock.base_ns,
                 bytes);
        passed++;
        if (random_chance(&random, 10)) {
            sluice_group_idle(&member);
            sluice_group_keepalive(&member, now_ns);
        }
    }
    sluice_group_leave(&member);
    return argument;
}

static void test_threads_share(void)
{
    pthread_t threads[THREADS];
    uint64_t passes;

    check(group_page_init(&page, "test", &limit, fast_now_ns()));
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(!pthread_create(&threads[i], NULL, member_thread, (void *)i));
    }
    /* One limit again and again: no thread may see it half written. */
    for (unsigned i = 0; i < RECONFIGURE; i++) {
        check(group_configure(&page, &limit, fast_now_ns()));
        fast_sleep_until(fast_now_ns() + 2000000);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_equal(logs[i].count, REQUESTS);
    }
    check_log_limit(logs, THREADS, &limit, &passes);
    check_equal(passes, THREADS * REQUESTS);
    for (unsigned i = 0; i < SLUICE_GROUP_SLOTS; i++) {
        check_equal(page.slots[i].owner, 0);
    }
    check_equal(page.demand[0], 0);
}

/* Each correction counts, also while other threads change the bucket. */
static void *correcting_thread(void *argument)
{
    unsigned index = (uintptr_t)argument;
    SluiceGroupMember member;

    if (sluice_group_join(&member, &page, sizeof(page), index + 1, "thread",
                          100, 0) != SLUICE_GROUP_OK) {
        return NULL;
    }
    for (unsigned i = 0; i < CORRECTIONS; i++) {
        sluice_group_correct(&member, 3, 0);
        sluice_group_correct(&member, -1, 0);
    }
    sluice_group_leave(&member);
    return argument;
}

static void test_corrections_add_up(void)
{
    pthread_t threads[THREADS];

    check(group_page_init(&page, "test", &limit, 0));
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(!pthread_create(&threads[i], NULL, correcting_thread,
                              (void *)i));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_equal(page.tat_units, THREADS * CORRECTIONS * 2);
}

static const TapTest tests[] = {
    { "group: threads share", test_threads_share },
    { "group: corrections of threads add up", test_corrections_add_up },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
