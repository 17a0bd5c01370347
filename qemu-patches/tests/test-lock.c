/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lock, alone and between threads. The thread sanitizer sees whether it guards.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "sluice/lock.h"
#include "tap.h"

#define THREADS     4
#define ROUNDS      20000

static SluiceLock lock;
static uint64_t guarded;

static void test_free_at_first(void)
{
    SluiceLock fresh = { 0 };

    check_equal(sizeof(fresh), 4);
    sluice_lock(&fresh);
    check_equal(fresh.state, SLUICE_LOCK_TAKEN);
    sluice_unlock(&fresh);
    check_equal(fresh.state, SLUICE_LOCK_FREE);
}

static void test_try(void)
{
    SluiceLock fresh = { 0 };

    check(sluice_trylock(&fresh));
    check_equal(fresh.state, SLUICE_LOCK_TAKEN);
    check(!sluice_trylock(&fresh));
    sluice_unlock(&fresh);
    check(sluice_trylock(&fresh));
}

static int return_early(SluiceLock *fresh)
{
    SLUICE_LOCK_GUARD(fresh);

    if (fresh->state) {
        return fresh->state;
    }
    return -1;
}

static int return_from_within(SluiceLock *fresh)
{
    WITH_SLUICE_LOCK(fresh) {
        return fresh->state;
    }
    return -1;
}

static void test_guards_release(void)
{
    SluiceLock fresh = { 0 };
    unsigned times = 0;

    check_equal(return_early(&fresh), SLUICE_LOCK_TAKEN);
    check_equal(fresh.state, SLUICE_LOCK_FREE);
    check_equal(return_from_within(&fresh), SLUICE_LOCK_TAKEN);
    check_equal(fresh.state, SLUICE_LOCK_FREE);
    WITH_SLUICE_LOCK(&fresh) {
        times++;
    }
    check_equal(times, 1);
    check_equal(fresh.state, SLUICE_LOCK_FREE);
    WITH_SLUICE_LOCK(&fresh) {
        break;
    }
    check_equal(fresh.state, SLUICE_LOCK_FREE);
}

static void *adding_thread(void *argument)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        WITH_SLUICE_LOCK(&lock) {
            uint64_t seen = guarded;

            /* Others come meanwhile, also on one processor. */
            if (i % 64 == 0) {
                sched_yield();
            }
            guarded = seen + 1;
        }
    }
    return argument;
}

static void test_excludes(void)
{
    pthread_t threads[THREADS];

    guarded = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        check(!pthread_create(&threads[i], NULL, adding_thread, NULL));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_equal(guarded, THREADS * ROUNDS);
    check_equal(lock.state, SLUICE_LOCK_FREE);
}

static void *taking_thread(void *argument)
{
    WITH_SLUICE_LOCK(&lock) {
        guarded++;
    }
    return argument;
}

/* All are asleep, or about to be, when it is released: each is woken in its turn. */
static void test_wakes_all(void)
{
    const struct timespec a_moment = { .tv_nsec = 20000000 };
    pthread_t threads[THREADS];

    guarded = 0;
    sluice_lock(&lock);
    for (unsigned i = 0; i < THREADS; i++) {
        check(!pthread_create(&threads[i], NULL, taking_thread, NULL));
    }
    while (atomic_load(&lock.state) != SLUICE_LOCK_AWAITED) {
        sched_yield();
    }
    nanosleep(&a_moment, NULL);
    check_equal(guarded, 0);
    sluice_unlock(&lock);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_equal(guarded, THREADS);
    check_equal(lock.state, SLUICE_LOCK_FREE);
}

static const TapTest tests[] = {
    { "lock: free at first, taken, free", test_free_at_first },
        { "lock: tried", test_try },
    { "lock: guards release it wherever the scope is left", test_guards_release },
    { "lock: one at a time", test_excludes },
    { "lock: all who wait get it", test_wakes_all },
};

int main(void)
{
    alarm(60);                  /* a wake that is missed would be waited for */
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
