/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of a disk: how many bytes of the background may be in flight, so that the
 * streams' reads come back in time. The essay is in gate.c.
 *
 * Pure: no clock, no allocation. One SluiceGate for the background of one VM on one disk;
 * the caller serialises its calls. Requests of streams pass beside it.
 */
#ifndef SLUICE_GATE_H
#define SLUICE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#define SLUICE_GATE_LEAST_BYTES     (64ULL << 10)
#define SLUICE_GATE_FIRST_BYTES     (4ULL << 20)
#define SLUICE_GATE_MOST_BYTES      (256ULL << 20)

typedef struct SluiceGate {
    uint64_t target_ns;         /* the latency that the background may have; 0: open */
    uint64_t window_bytes;
    uint64_t in_flight_bytes;   /* let through, and not done yet */
    uint32_t in_flight_requests;
    uint32_t completions;       /* since the window was updated */
    uint64_t latency_ns;        /* of these, summed */
    uint64_t updated_ns;
    bool held;                  /* has held a request since then */
} SluiceGate;

/* Open, with the first window. */
void sluice_gate_init(SluiceGate *gate);
/* The latency that the device should have from now on; 0 opens the gate. */
void sluice_gate_set_target(SluiceGate *gate, uint64_t target_ns, uint64_t now_ns);
/* To that part of the window, in 1024ths: the streams cannot wait for its own steps. */
void sluice_gate_shrink(SluiceGate *gate, uint32_t parts);
/* May a request go to the device? If so it is counted; if not, ask again when one is done,
 * or after the target has changed. One is always let through if none is in flight. */
bool sluice_gate_admit(SluiceGate *gate, uint32_t bytes);
/* An admitted request is done, `latency_ns` after the device got it. */
void sluice_gate_complete(SluiceGate *gate, uint32_t bytes, uint64_t latency_ns,
                          uint64_t now_ns);

#endif
