/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small TAP producer: a test function calls check(), or tap_skip() where the
 * machine does not let it run; tap_run() prints one line per test and, at the
 * end, "N passed, N failed" and, if there were any, ", N skipped".
 */
#ifndef SLUICE_TESTS_TAP_H
#define SLUICE_TESTS_TAP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define TAP_DIAGNOSTICS_MAX 20

typedef struct TapTest {
    const char *name;
    void (*run)(void);
} TapTest;

static unsigned tap_failures;           /* in the running test */
static const char *tap_skipped;         /* why the running test is */

/* Says whether it held, so that a trace can stop at the first violation. */
#define check(condition) \
    ((condition) ? true : tap_fail(__FILE__, __LINE__, #condition))

#define check_equal(actual, expected) \
    tap_equal(__FILE__, __LINE__, #actual, (actual), (expected))

static inline bool tap_fail(const char *file, int line, const char *what)
{
    if (tap_failures++ < TAP_DIAGNOSTICS_MAX) {
        printf("# %s:%d: not true: %s\n", file, line, what);
    }
    return false;
}

static inline bool tap_equal(const char *file, int line, const char *what,
                             uint64_t actual, uint64_t expected)
{
    if (actual == expected) {
        return true;
    }
    if (tap_failures++ < TAP_DIAGNOSTICS_MAX) {
        printf("# %s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n",
               file, line, what, actual, expected);
    }
    return false;
}

static inline void tap_skip(const char *why)
{
    tap_skipped = why;
}

static inline void tap_result(unsigned number, const char *name)
{
    bool skipped = tap_skipped && tap_failures == 0;

    printf("%s %u - %s%s%s\n", tap_failures ? "not ok" : "ok", number, name,
           skipped ? " # SKIP " : "", skipped ? tap_skipped : "");
    fflush(stdout);
}

static inline int tap_run(const TapTest *tests, unsigned count)
{
    unsigned failed = 0, skipped = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("TAP version 13\n1..%u\n", count);
    for (unsigned i = 0; i < count; i++) {
        tap_failures = 0;
        tap_skipped = NULL;
        tests[i].run();
        tap_result(i + 1, tests[i].name);
        failed += tap_failures > 0;
        skipped += tap_skipped && tap_failures == 0;
    }
    printf("%u passed, %u failed", count - failed - skipped, failed);
    if (skipped) {
        printf(", %u skipped", skipped);
    }
    printf("\n");
    return failed > 0;
}

/* A whole number from the environment, for seeds and counts. */
static inline uint64_t tap_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 0) : otherwise;

    if (text && (end == text || *end)) {
        fprintf(stderr, "error: %s is \"%s\", give a whole number\n", name,
                text);
        exit(2);
    }
    return value;
}

#endif
