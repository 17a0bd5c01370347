/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a disk's requests are handled: tests that run with each. */
#ifndef TESTS_SLUICE_VARIANTS_H
#define TESTS_SLUICE_VARIANTS_H

#include "sluice-disk.h"

#define IOTHREAD        "-object iothread,id=io0"

typedef struct Variant {
    const char *name;
    const char *options;
    const char *more;
} Variant;

static const Variant variants[] = {
    { "main-loop", "", "" },
    { "iothread", ",iothread=io0", IOTHREAD },
    { "no-ioeventfd", ",ioeventfd=off", "" },
};

typedef struct VariantTest {
    const char *name;
    GTestDataFunc run;          /* is given a Variant */
} VariantTest;

static void add_tests(const char *prefix, const VariantTest *tests,
                      unsigned count)
{
    for (unsigned t = 0; t < count; t++) {
        for (unsigned v = 0; v < ARRAY_SIZE(variants); v++) {
            g_autofree char *path = g_strdup_printf("%s/%s/%s", prefix,
                                                    tests[t].name,
                                                    variants[v].name);

            qtest_add_data_func(path, &variants[v], tests[t].run);
        }
    }
}

#endif
