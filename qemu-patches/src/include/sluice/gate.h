/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of a disk: how many bytes of the background may be in flight, so that the
 * streams' reads come back in time. The essay is in gate.c.
 *
 * Pure: no clock, no allocation. The engine (engine.c) has one for the background of its VM
 * and resource, and serialises its calls. Requests of streams pass beside it.
 */
#ifndef SLUICE_GATE_H
#define SLUICE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/gate-page.h"

#define SLUICE_GATE_LEAST_BYTES     (64ULL << 10)
#define SLUICE_GATE_FIRST_BYTES     (4ULL << 20)
#define SLUICE_GATE_MOST_BYTES      (256ULL << 20)
#define SLUICE_GATE_TARGET_MAX_NS   60000000000ULL
/* A pause for a stream's read that is old ends when nothing is in flight for so long, and
 * so does a wait for other members' bytes: one request goes. */
#define SLUICE_GATE_PAUSE_NS        200000000ULL
/* The longer wait if others have bytes in flight during a pause. */
#define SLUICE_GATE_WAIT_MOST_NS    1000000000ULL
/* The longest wait for runs of other members: those of all take a second, or 25 ms each. */
#define SLUICE_GATE_TURN_MOST_NS    4000000000ULL
#define SLUICE_GATE_ROUND_NS        1000000000ULL
#define SLUICE_GATE_RUN_LEAST_NS    25000000ULL
/* So long the device is kept for a reader that has nothing in flight. */
#define SLUICE_GATE_IDLE_NS         2500000ULL
/* A read that is older is helped by no pause. */
#define SLUICE_GATE_AGE_MOST_NS     5000000000ULL
/* So often the gate looks again, and where it has less than its part of the window. */
#define SLUICE_GATE_LOOK_NS         5000000ULL
#define SLUICE_GATE_LOOK_SOON_NS    1000000ULL
/* If nothing comes or goes for that long, a little more or less, one request more goes. */
#define SLUICE_GATE_PATIENCE_SHIFT  30          /* 2^30 ns: about a second */
#define SLUICE_GATE_PATIENCE        5           /* of these, whole ones */

typedef struct SluiceGate {
    uint64_t target_ns;         /* the latency that the background may have; 0: open */
    uint64_t window_bytes;
    uint64_t alone_bytes;       /* of a window that is its own; 0: it is not */
    uint64_t in_flight_bytes;   /* let through, and not done yet */
    uint32_t in_flight_requests;
    uint32_t completions;       /* since the window was updated */
    uint64_t latency_ns;        /* of these, summed */
    uint64_t updated_ns;
    uint64_t moved_ns;          /* when a request came or went last */
    uint64_t refused_ns;        /* since when one waits, with `waited` */
    uint64_t held_ns;           /* how long it was closed and some request waited, summed */
    uint64_t held_times;        /* how often that began */
    SluiceWord oldest_ns;       /* since when a stream's read is under way; 0: none */
    uint64_t told_oldest_ns;    /* the same, as this gate tells it to the other members */
    SluiceGateMember *member;   /* of the device's gate; NULL: a window of its own */
    uint64_t others_bytes;      /* in flight of the other members, at the last look */
    uint64_t closed_until_ns;   /* a look found it closed: the next is then */
    uint64_t run_until_ns;      /* its own run; 0: none is on */
    uint64_t others_weight;     /* of those that have or want something in flight */
    bool has_runs;              /* one reader at a time has the device */
    bool others_turn;           /* a look found that another member's turn is now */
    bool pausing;               /* a look found such a read */
    bool full;                  /* a look found the shared window full */
    bool waited;                /* it is so now */
    bool held;                  /* has held a request since the window was updated */
} SluiceGate;

/* Open, with the first window. */
void sluice_gate_init(SluiceGate *gate);
/* The latency that the device should have from now on; 0 opens the gate. */
void sluice_gate_set_target(SluiceGate *gate, uint64_t target_ns, uint64_t now_ns);
/* To that part of the window, in 1024ths: the streams cannot wait for its own steps. Of
 * several members that do so within a moment, one does it. */
void sluice_gate_shrink(SluiceGate *gate, uint32_t parts, uint64_t now_ns);
/* A member of the device's gate, which has joined; NULL: none any more. */
void sluice_gate_set_member(SluiceGate *gate, SluiceGateMember *member,
                            uint64_t now_ns);
/* Since when the oldest read of the VM's streams is under way; 0: none. Any thread. */
static inline void sluice_gate_set_oldest(SluiceGate *gate, uint64_t oldest_ns)
{
    atomic_store_explicit(&gate->oldest_ns, oldest_ns, memory_order_relaxed);
}
/* The oldest read as above, told to the other members too; the caller serialises. */
void sluice_gate_tell_oldest(SluiceGate *gate, uint64_t oldest_ns);
/* The weight of its background among the members'; brought into its range. */
void sluice_gate_set_weight(SluiceGate *gate, uint64_t weight);
/* As below, at length. */
uint64_t sluice_gate_look(SluiceGate *gate, uint64_t now_ns);
static inline uint64_t sluice_gate_patience_ns(const SluiceGate *gate)
{
    return ((gate->moved_ns >> SLUICE_GATE_PATIENCE_SHIFT)
            + SLUICE_GATE_PATIENCE + 1) << SLUICE_GATE_PATIENCE_SHIFT;
}
/* False: a request may go now, for sure. */
static inline bool sluice_gate_may_hold(const SluiceGate *gate)
{
    return __builtin_expect(gate->in_flight_bytes >= gate->alone_bytes
                            || atomic_load_explicit(&gate->oldest_ns,
                                                    memory_order_relaxed), 0);
}
/*
 * From when on a request may go to the device, as it is now: its size does not matter. With
 * a page or a stream's read it is when to look again: others' doings are not foreseen.
 */
static inline uint64_t sluice_gate_due_ns(SluiceGate *gate, uint64_t now_ns)
{
    return sluice_gate_may_hold(gate) ? sluice_gate_look(gate, now_ns) : 0;
}
/*
 * Runs, with a member of a page that has them. One begins with a request that goes, if it
 * is this member's turn, and is on until its end, or until nothing has been in flight
 * for SLUICE_GATE_IDLE_NS.
 */
void sluice_gate_begin_run(SluiceGate *gate, uint64_t now_ns);
void sluice_gate_end_run(SluiceGate *gate, uint64_t now_ns);
/* The time since nothing was in flight in the run that is on counts as had. Then a request
 * goes, or the run ends. */
void sluice_gate_keep_run(SluiceGate *gate, uint64_t now_ns);
static inline uint64_t sluice_gate_run_ends_ns(const SluiceGate *gate)
{
    uint64_t idle_ns = gate->moved_ns + SLUICE_GATE_IDLE_NS;

    return gate->in_flight_requests || idle_ns > gate->run_until_ns ? gate->run_until_ns
                                                                    : idle_ns;
}
static inline bool sluice_gate_is_running(const SluiceGate *gate, uint64_t now_ns)
{
    return sluice_gate_run_ends_ns(gate) > now_ns;
}
/* How long it has been closed while some request waited, until now. */
static inline uint64_t sluice_gate_held_ns(const SluiceGate *gate, uint64_t now_ns)
{
    return gate->held_ns + (gate->waited && now_ns > gate->refused_ns
                            ? now_ns - gate->refused_ns : 0);
}
/* A request that nothing but the gate holds was not let through, since then if it is the
 * first. */
void sluice_gate_refuse(SluiceGate *gate, uint64_t since_ns, uint64_t now_ns);
/* Those who wait are served from now on, or have gone. */
void sluice_gate_end_waiting(SluiceGate *gate, uint64_t now_ns);
/* A request goes to the device, be it due or not: it is counted. */
void sluice_gate_enter(SluiceGate *gate, uint32_t bytes, uint64_t now_ns);
/* Lets a request go if it is due; if not, ask again when one is done. */
bool sluice_gate_admit(SluiceGate *gate, uint32_t bytes, uint64_t now_ns);
/* One that was counted is done, `latency_ns` after the device got it. */
void sluice_gate_complete(SluiceGate *gate, uint32_t bytes, uint64_t latency_ns,
                          uint64_t now_ns);
/* One that was counted did not go to the device after all. */
void sluice_gate_leave(SluiceGate *gate, uint32_t bytes, uint64_t now_ns);

#endif
