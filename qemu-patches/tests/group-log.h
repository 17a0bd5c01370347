/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The requests that members admitted, by the times with which they asked, and the
 * judgement of them. These times make the limit exact, however the scheduler delays a
 * member between reading the clock and the charge (group.c, invariants): a test on real
 * processes and threads needs no tolerance in time, and no luck.
 */
#ifndef SLUICE_TESTS_GROUP_LOG_H
#define SLUICE_TESTS_GROUP_LOG_H

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "sluice/group.h"
#include "tap.h"

#define GROUP_LOG_MAX   20000

typedef struct GroupEntry {
    uint64_t now_ns;
    uint64_t units;
} GroupEntry;

typedef struct GroupLog {
    _Atomic uint32_t count;     /* whole entries */
    GroupEntry entries[GROUP_LOG_MAX];
} GroupLog;

/* Sixteen times as fast as time, so that five seconds pass in a third. */
#define CLOCK_SPEED     16

static inline uint64_t fast_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec * 1000000000ULL + now.tv_nsec) * CLOCK_SPEED;
}

static inline void fast_sleep_until(uint64_t then_ns)
{
    uint64_t now_ns = fast_now_ns();
    uint64_t wait_ns = then_ns > now_ns ? (then_ns - now_ns) / CLOCK_SPEED : 0;
    struct timespec wait = { .tv_sec = wait_ns / 1000000000,
                             .tv_nsec = wait_ns % 1000000000 };

    nanosleep(&wait, NULL);
}

static inline bool log_pass(GroupLog *log, uint64_t now_ns, uint64_t units)
{
    uint32_t count = atomic_load(&log->count);

    if (count == GROUP_LOG_MAX) {
        return false;
    }
    log->entries[count] = (GroupEntry){ .now_ns = now_ns, .units = units };
    atomic_store(&log->count, count + 1);
    return true;
}

static inline int compare_entries(const void *a, const void *b)
{
    const GroupEntry *x = a, *y = b;

    return x->now_ns < y->now_ns ? -1 : x->now_ns > y->now_ns;
}

/*
 * The most that any window passed above rate * t is at most the burst and one
 * request, and one unit for reading the clock in whole units.
 */
static inline bool check_log_limit(const GroupLog *logs, unsigned count,
                                   const SluiceGroupLimit *limit,
                                   uint64_t *passes)
{
    __extension__ typedef __int128 Wide;
    GroupEntry *all = calloc((size_t)count * GROUP_LOG_MAX, sizeof(*all));
    size_t n = 0;
    Wide passed = 0, floor = 0, excess = 0;
    uint64_t largest = 0;

    for (unsigned i = 0; i < count; i++) {
        for (uint32_t k = 0; k < atomic_load(&logs[i].count); k++) {
            all[n++] = logs[i].entries[k];
        }
    }
    qsort(all, n, sizeof(*all), compare_entries);
    for (size_t k = 0; k < n; k++) {
        Wide budget = (Wide)limit->rate * (all[k].now_ns - all[0].now_ns);

        floor = passed - budget < floor ? passed - budget : floor;
        passed += (Wide)all[k].units * 1000000000;
        excess = passed - budget - floor > excess ? passed - budget - floor
                                                  : excess;
        largest = all[k].units > largest ? all[k].units : largest;
    }
    free(all);
    *passes = n;
    return check(excess <= (Wide)(limit->burst + largest + 1) * 1000000000);
}

#endif
