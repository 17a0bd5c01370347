/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the engine for clang -fsanitize=fuzzer,address,undefined. The
 * first byte is the kind of the trace (engine-trace.h), the others decide the
 * calls and their arguments; the engine is held to the model of engine-model.h
 * at every step. Seeds are in fuzz-engine-seeds/.
 */
#include "engine-trace.h"

#define STEPS_MAX   4000

/* Of the first byte. */
enum {
    KIND_CHANGES = 1,
    KIND_ALL_KNOBS = 2,
    KIND_FULL = 4,              /* as many classes as an engine may have */
    KIND_GATED = 8,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Model model;

    if (size < 2) {
        return 0;
    }
    tap_failures = 0;
    model.random = (Random){ .bytes = data + 1, .left = size - 1 };
    model.changes = data[0] & KIND_CHANGES;
    model.all_knobs = data[0] & KIND_ALL_KNOBS;
    model.gated = data[0] & KIND_GATED;
    model.spare_classes = data[0] & KIND_FULL ? SLUICE_CLASSES_MAX - CLASSES_MAX
                                                 : 0;
    if (!run_trace(&model, STEPS_MAX) || tap_failures > 0) {
        abort();
    }
    sluice_engine_free(model.engine);
    return 0;
}
