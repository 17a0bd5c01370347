/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The real cost of a disk request: a model that learns a device's latencies
 * while it runs (TAP section 5.1, RESOURCE mode). The essay is in cost.c.
 *
 * Pure: no clock, no allocation. One SluiceCostModel per device and direction;
 * the caller serialises its calls.
 */
#ifndef SLUICE_COST_H
#define SLUICE_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Latencies are counted by eighths of an octave, from 256 ns to 17 s. */
#define SLUICE_COST_BINS        208

/* The kinds of requests, by their latency. */
typedef enum SluiceCostKind {
    SLUICE_COST_HOST_CACHE,     /* never reached the device: free */
    SLUICE_COST_DEVICE_CACHE,   /* a tenth */
    SLUICE_COST_SEQUENTIAL,     /* the bytes that it asked for */
    SLUICE_COST_SEEK,           /* five times */
} SluiceCostKind;

typedef struct SluiceCostModel {
    uint32_t bins[SLUICE_COST_BINS];
    uint32_t total;
    uint32_t since_learnt;
    /* Learnt: latencies below belong to the kind; 0: no such kind is known. */
    uint64_t host_cache_below_ns;
    uint64_t device_cache_below_ns;
    uint64_t seek_from_ns;
} SluiceCostModel;

void sluice_cost_init(SluiceCostModel *model);
/* Learns from a finished request, and returns its kind. `own_ns` is from its
 * submission to the device below to its completion, without being held;
 * `turn_ns` since the completion before it, UINT64_MAX if there was none. */
SluiceCostKind sluice_cost_observe(SluiceCostModel *model, uint32_t bytes,
                                   uint64_t own_ns, uint64_t turn_ns);
/* The bytes to hand to sluice_engine_correct() for a request charged `charged`. */
int64_t sluice_cost_correction(SluiceCostKind kind, uint32_t charged);

#endif
