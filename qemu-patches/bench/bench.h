/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the benchmarks, each of which is one program: supplied time, and figures. */
#ifndef BENCH_H
#define BENCH_H

#define REPETITIONS     301
#define BATCH           4000
#define STEP_NS         1000
#define REQUEST_BYTES   4096
#define AMPLE           100000000000ULL

static uint64_t supplied_ns = 1;

static void fail(const char *reason)
{
    fprintf(stderr, "error: benchmark is void: %s\n", reason);
    exit(1);
}

/* Sizes that vary, so that no result can be reused. */
static uint32_t request_bytes(unsigned i)
{
    return REQUEST_BYTES + (i & 7) * 512;
}

static double clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int compare_samples(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A row: name, median, lower and upper quartile. Sorts the samples. */
static void report(const char *name, double *samples_ns, unsigned count)
{
    qsort(samples_ns, count, sizeof(*samples_ns), compare_samples);
    printf("%s %.2f %.2f %.2f\n", name, samples_ns[count / 2],
           samples_ns[count / 4], samples_ns[count * 3 / 4]);
}

#endif
