/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the engine for clang -fsanitize=fuzzer,address,undefined. The
 * bytes decide what is called with what; the engine is held to the model of
 * engine-model.h at every step. Seeds are in fuzz-engine-seeds/.
 */
#include "engine-model.h"

#define STEPS_MAX   4000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Model model;

    if (size < 2) {
        return 0;
    }
    tap_failures = 0;
    model.random = (Random){ .bytes = data + 1, .left = size - 1 };
    model.changes = data[0] & 1;
    model.all_knobs = data[0] & 2;
    if (!run_trace(&model, STEPS_MAX) || tap_failures > 0) {
        abort();
    }
    sluice_engine_free(model.engine);
    return 0;
}
