/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of a disk.
 *
 * Model. A stream's read waits for the requests that are in the device before it, so its
 * waiting is bounded by bounding these. Bytes in flight act within a request's time, while
 * a rate acts when its queue has drained. The right number of bytes depends on the device
 * and on its present load, and follows from the latency that the background's own requests
 * have: there are hundreds of these a second, and few of a stream.
 *
 * Control. At an update, L is the mean latency of the background's requests since the last
 * one, T the target, and the window W becomes W (1 + (clamp(T / L, 0.5, 1.5) - 1) / 2). An
 * update comes with the first completion UPDATE_NS after the last if there were
 * UPDATE_COMPLETIONS, else UPDATE_LATE_NS after it. So W falls by at most a quarter and rises
 * by at most a quarter each time. W rises only if it held a request: a window that
 * is not used says nothing about larger ones. Unused, it falls by a twentieth down to its
 * first size, or twice the bytes in flight, so that a new load does not find it wide open.
 *
 * The target is the streams': a part of the time that a read of theirs can bear, moved by
 * sluiced ten times a second (controller/src/sluice_controller/domain/gate.py).
 *
 * Invariants.
 * - A request is let through while the bytes in flight are less than W: its own size does
 *   not matter, so that the engine need not compare sizes. So the bytes in flight
 *   exceed W by at most one request, until W shrinks.
 * - A gate that is closed has something in flight, and asks again when that is done. If
 *   nothing comes or goes for 5.4 to 6.5 s the device hangs, or one of several disks does;
 *   then one request goes, and the next after as long.
 * - W stays between SLUICE_GATE_LEAST_BYTES and SLUICE_GATE_MOST_BYTES.
 * - An open gate holds nothing, and counts all the same.
 */
#include <string.h>

#include "sluice/gate.h"
#include "hot.h"

#define MS                  1000000ULL
#define UPDATE_NS           (10 * MS)
#define UPDATE_LATE_NS      (60 * MS)
#define UPDATE_COMPLETIONS  8
#define ONE                 1024ULL     /* of fractions */
#define LEAST_RATIO         (ONE / 2)
#define MOST_RATIO          (ONE * 3 / 2)

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static void set_window(SluiceGate *gate, uint64_t bytes)
{
    gate->window_bytes = within(bytes, SLUICE_GATE_LEAST_BYTES,
                                SLUICE_GATE_MOST_BYTES);
}

static void begin_anew(SluiceGate *gate, uint64_t now_ns)
{
    gate->completions = 0;
    gate->latency_ns = 0;
    gate->held = false;
    gate->updated_ns = now_ns;
}

SLUICE_HOT void sluice_gate_end_waiting(SluiceGate *gate, uint64_t now_ns)
{
    if (gate->waited) {
        gate->waited = false;
        gate->held_ns += now_ns - gate->refused_ns;
    }
}

void sluice_gate_init(SluiceGate *gate)
{
    memset(gate, 0, sizeof(*gate));
    gate->window_bytes = SLUICE_GATE_FIRST_BYTES;
}

void sluice_gate_set_target(SluiceGate *gate, uint64_t target_ns, uint64_t now_ns)
{
    if (!gate->target_ns && target_ns) {
        set_window(gate, SLUICE_GATE_FIRST_BYTES);
        begin_anew(gate, now_ns);
    }
    gate->target_ns = target_ns;
    if (!target_ns) {
        sluice_gate_end_waiting(gate, now_ns);
    }
}

void sluice_gate_shrink(SluiceGate *gate, uint32_t parts)
{
    set_window(gate, gate->window_bytes * within(parts, 0, ONE) / ONE);
}

void sluice_gate_refuse(SluiceGate *gate, uint64_t now_ns)
{
    gate->held = true;
    if (!gate->waited) {
        gate->waited = true;
        gate->refused_ns = now_ns;
        gate->held_times++;
    }
}

SLUICE_HOT void sluice_gate_enter(SluiceGate *gate, uint32_t bytes,
                                  uint64_t now_ns)
{
    sluice_gate_end_waiting(gate, now_ns);
    gate->moved_ns = now_ns;
    gate->in_flight_bytes += bytes;
    gate->in_flight_requests++;
}

bool sluice_gate_admit(SluiceGate *gate, uint32_t bytes, uint64_t now_ns)
{
    if (sluice_gate_due_ns(gate) > now_ns) {
        sluice_gate_refuse(gate, now_ns);
        return false;
    }
    sluice_gate_enter(gate, bytes, now_ns);
    return true;
}

SLUICE_HOT void sluice_gate_leave(SluiceGate *gate, uint32_t bytes,
                                  uint64_t now_ns)
{
    gate->moved_ns = now_ns;
    gate->in_flight_bytes -= bytes;
    gate->in_flight_requests--;
    if (gate->in_flight_bytes < gate->window_bytes) {
        sluice_gate_end_waiting(gate, now_ns);
    }
}

/* T / L in 1024ths; latencies of a stuck device do not overflow. */
static uint64_t ratio(uint64_t target_ns, uint64_t latency_ns)
{
    if (target_ns / 2 >= latency_ns) {
        return MOST_RATIO;
    }
    while (target_ns > UINT64_MAX / ONE) {
        target_ns /= 2;
        latency_ns /= 2;
    }
    return within(target_ns * ONE / latency_ns, LEAST_RATIO, MOST_RATIO);
}

static void update(SluiceGate *gate, uint64_t now_ns)
{
    uint64_t part = ratio(gate->target_ns, gate->latency_ns / gate->completions);
    uint64_t unused = gate->window_bytes - gate->window_bytes / 20;

    if (part < ONE || gate->held) {
        set_window(gate, gate->window_bytes * (ONE + part) / (2 * ONE));
    } else if (unused >= SLUICE_GATE_FIRST_BYTES
               && unused >= 2 * gate->in_flight_bytes) {
        set_window(gate, unused);
    }
    begin_anew(gate, now_ns);
}

SLUICE_HOT void sluice_gate_complete(SluiceGate *gate, uint32_t bytes,
                                     uint64_t latency_ns, uint64_t now_ns)
{
    uint64_t since_ns = now_ns - gate->updated_ns;

    sluice_gate_leave(gate, bytes, now_ns);
    gate->completions++;
    gate->latency_ns += latency_ns;
    if (gate->target_ns
        && ((since_ns >= UPDATE_NS && gate->completions >= UPDATE_COMPLETIONS)
            || since_ns >= UPDATE_LATE_NS)) {
        update(gate, now_ns);
    }
}
