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
 * Age. L is a mean, and comes when requests are done. A stream's read that is older than 3/4
 * of T, which is 0.3 of the time that it can bear, and than AGE_LEAST_NS, says more: nothing goes
 * to the device until it is done. After a pause of SLUICE_GATE_PAUSE_NS with nothing in
 * flight one request goes. This is by all streams' reads, of all members.
 *
 * Members. Where several engines use a device, W, its updates and the bytes in flight are
 * theirs together, on a page (gate-page.c): L is the mean of all, and an update is made by
 * the member that moves the page's time of it. Without a slot on the page a gate goes on
 * with the window as it was, alone.
 *
 * Shares. A member's part of W is that of its weight among those that have or want something
 * in flight. The next request is left to a member that waits and has less than its part, by
 * one that has its part, and by one that is ahead. Ahead is by virtual time: the device's time
 * that a member had, per weight. It moves when a request is done, by its latency times its part
 * of the bytes in flight. So where a part is many requests the parts decide, and nobody waits for
 * another's look; where a request fills the window the order of virtual times does (start-time
 * fair queueing, Goyal and others, SIGCOMM 1996, with the time had in place of bytes, since
 * a small request may cost an arm as much as a large one). Within AHEAD_NS of its own device
 * time a member goes on: else each change of turn would cost a look. Nobody has, or
 * owes, more than SLUICE_GATE_PAUSE_NS of its device time against the least that waits, so
 * quiet members save up little. The least that waits and has less than its part leaves
 * nothing to anybody, so the window is never left empty for good.
 *
 * Nobody tells a member that waits: it looks again after a millisecond, or five if
 * it has its part and completions of its own will make it look.
 *
 * Runs. Where the device has an arm, the page says that one reader at a time has it. A
 * request then goes only in a run of this member, which has all of W; parts do not count. A
 * run begins when no other's is on and no member that waits has had less time; it is on for
 * the member's share of SLUICE_GATE_ROUND_NS, within bounds, or until nothing has been in
 * flight for SLUICE_GATE_IDLE_NS. While nothing is, the device is kept for the member, so that
 * is its device time, too. Whose the run is within the VM is the engine's matter
 * (engine-runs.c).
 *
 * The target is the streams': a part of the time that a read of theirs can bear, moved by
 * sluiced ten times a second (controller/src/sluice_controller/domain/gate.py).
 *
 * Invariants.
 * - A request is let through while the bytes in flight are less than W: its own size does
 *   not matter, so that the engine need not compare sizes. So the bytes in flight
 *   exceed W by at most one request, until W shrinks; those of all members by one request
 *   of each, if they decide at one time.
 * - A member with nothing in flight waits for others at most SLUICE_GATE_PAUSE_NS, and
 *   in a pause SLUICE_GATE_WAIT_MOST_NS, and for their runs SLUICE_GATE_TURN_MOST_NS, and
 *   one look: then one request goes, whatever the page says.
 * - A member that has less than its part, and has had no more device time per weight than
 *   others, waits for a look, for what is in flight, and for AHEAD_NS of the device's time
 *   and a request of each other member, at most.
 * - A gate that is closed has something in flight, and asks again when that is done. If
 *   nothing comes or goes for 5.4 to 6.5 s the device hangs, or one of several disks does;
 *   then one request goes, and the next after as long.
 * - W stays between SLUICE_GATE_LEAST_BYTES and SLUICE_GATE_MOST_BYTES.
 * - An open gate holds nothing, and counts all the same.
 */
#include <string.h>

#include "sluice/gate.h"
#include "group-internal.h"
#include "hot.h"

#define MS                  1000000ULL
#define UPDATE_NS           (10 * MS)
#define UPDATE_LATE_NS      (60 * MS)
#define UPDATE_COMPLETIONS  8
#define ONE                 1024ULL     /* of fractions */
#define AGE_LEAST_NS        MS
#define SHRUNK_AGAIN_NS     (75 * MS)   /* the outer loop does so each 150 ms at most */
#define WAITS_NS            (2 * SLUICE_GATE_LOOK_NS)   /* one that waits looks sooner */
#define LATENCY_MOST_NS     (1ULL << 40)
#define AHEAD_NS            (10 * MS)       /* or a change of turn would cost too much */
#define ANY_NS              (1ULL << 62)    /* ahead of any virtual time */
#define SHARE_BITS          20
#define LEAST_RATIO         (ONE / 2)
#define MOST_RATIO          (ONE * 3 / 2)

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Is it a member of a page that is whole? */
static inline bool shares(SluiceGate *gate)
{
    return UNLIKELY(gate->member) && sluice_gate_is_member(gate->member);
}

/* Of the page, if it shares one. */
static void set_window(SluiceGate *gate, uint64_t bytes)
{
    gate->window_bytes = within(bytes, SLUICE_GATE_LEAST_BYTES,
                                SLUICE_GATE_MOST_BYTES);
    gate->alone_bytes = gate->member ? 0 : gate->window_bytes;
    gate->closed_until_ns = 0;
    if (shares(gate)) {
        sluice_gate_set_page_window(gate->member->page, gate->window_bytes);
    }
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
        if (shares(gate)) {
            sluice_gate_show_waiting(gate->member, 0);
        }
    }
}

void sluice_gate_init(SluiceGate *gate)
{
    memset(gate, 0, sizeof(*gate));
    gate->window_bytes = SLUICE_GATE_FIRST_BYTES;
    gate->alone_bytes = SLUICE_GATE_FIRST_BYTES;
}

void sluice_gate_set_target(SluiceGate *gate, uint64_t target_ns, uint64_t now_ns)
{
    if (!gate->target_ns && target_ns) {
        gate->window_bytes = SLUICE_GATE_FIRST_BYTES;
        gate->alone_bytes = gate->member ? 0 : gate->window_bytes;
        begin_anew(gate, now_ns);
    }
    gate->target_ns = target_ns;
    gate->closed_until_ns = 0;
    if (!target_ns) {
        sluice_gate_end_waiting(gate, now_ns);
        sluice_gate_end_run(gate, now_ns);
    }
}

/* Has nobody moved that time of the page since? Then it is moved. */
static bool takes(SluiceWord *word, uint64_t after_ns, uint64_t now_ns)
{
    uint64_t seen_ns = group_load(word);

    return !group_is_recent(seen_ns, now_ns, after_ns)
           && atomic_compare_exchange_strong(word, &seen_ns, now_ns);
}

void sluice_gate_shrink(SluiceGate *gate, uint32_t parts, uint64_t now_ns)
{
    uint64_t bytes = gate->window_bytes;

    if (parts >= ONE) {
        return;
    }
    if (shares(gate)) {
        if (!takes(&gate->member->page->shrunk_ns, SHRUNK_AGAIN_NS, now_ns)) {
            return;
        }
        bytes = sluice_gate_page_window(gate->member->page);
    }
    set_window(gate, bytes * parts / ONE);
}

void sluice_gate_set_member(SluiceGate *gate, SluiceGateMember *member,
                            uint64_t now_ns)
{
    gate->member = member;
    gate->closed_until_ns = 0;
    gate->alone_bytes = member ? 0 : gate->window_bytes;
    gate->run_until_ns = 0;
    gate->has_runs = member && (member->page->flags & SLUICE_GATE_RUNS);
    if (shares(gate)) {
        gate->window_bytes = sluice_gate_page_window(member->page);
    }
    if (member) {
        sluice_gate_show_in_flight(member, gate->in_flight_bytes, now_ns);
        sluice_gate_show_oldest(member, gate->told_oldest_ns);
    }
    begin_anew(gate, now_ns);
}

void sluice_gate_set_weight(SluiceGate *gate, uint64_t weight)
{
    if (gate->member) {
        sluice_gate_show_weight(gate->member,
                                within(weight, 1, SLUICE_GATE_WEIGHT_MOST));
    }
}

void sluice_gate_tell_oldest(SluiceGate *gate, uint64_t oldest_ns)
{
    sluice_gate_set_oldest(gate, oldest_ns);
    gate->told_oldest_ns = oldest_ns;
    gate->closed_until_ns = 0;
    if (gate->member) {
        sluice_gate_show_oldest(gate->member, oldest_ns);
    }
}

/* A look */

/* Is a read that began then to be waited for? */
static bool is_old(const SluiceGate *gate, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t age_ns = now_ns > began_ns ? now_ns - began_ns : 0;
    uint64_t most_ns = gate->target_ns - gate->target_ns / 4;

    return began_ns && age_ns < SLUICE_GATE_AGE_MOST_NS && age_ns > AGE_LEAST_NS
           && age_ns > most_ns;
}

/* Device time per weight; at the default weight it is itself. */
static uint64_t virtual_of(const SluiceGate *gate, uint64_t device_ns)
{
    return device_ns * SLUICE_GATE_WEIGHT_DEFAULT / gate->member->weight;
}

/* Does one that waits go before it by the order of virtual times alone? */
static bool goes_before(const SluiceGate *gate, const SluiceGateOthers *others)
{
    return others->waiting
           && (int64_t)(others->least_virtual_ns - gate->member->virtual_ns) < 0;
}

/* Has it its part of the window? */
static bool has_part(const SluiceGate *gate, const SluiceGateOthers *others)
{
    uint64_t weight = gate->member->weight;

    return gate->in_flight_bytes * (others->weight + weight)
           >= gate->window_bytes * weight;
}

/* Is the next request another's? */
static bool leaves_next(const SluiceGate *gate, const SluiceGateOthers *others,
                        uint64_t now_ns)
{
    const SluiceGateMember *member = gate->member;
    uint64_t before_ns;

    if (!others->waiting) {
        return false;
    }
    before_ns = has_part(gate, others)
                ? member->virtual_ns + ANY_NS
                : member->virtual_ns - virtual_of(gate, AHEAD_NS);
    return sluice_gate_another_is_first(member, gate->window_bytes,
                                        others->weight + member->weight, before_ns,
                                        now_ns);
}

/* Is a run another's, or the next one? */
static bool is_others_turn(const SluiceGate *gate, const SluiceGateOthers *others,
                           uint64_t now_ns)
{
    return gate->has_runs && !sluice_gate_is_running(gate, now_ns)
           && (others->run_until_ns || goes_before(gate, others));
}

/* The window, or the room in it is another's. Runs have all of it. */
static bool is_full(const SluiceGate *gate, const SluiceGateOthers *others,
                    uint64_t now_ns)
{
    return gate->in_flight_bytes + others->in_flight_bytes >= gate->window_bytes
           || (!gate->has_runs && leaves_next(gate, others, now_ns));
}

/* Of the least that waits: so much may a member have had less, or more. */
static void bound_virtual(SluiceGate *gate, const SluiceGateOthers *others)
{
    int64_t most_ns = virtual_of(gate, SLUICE_GATE_PAUSE_NS);
    int64_t ahead_ns = gate->member->virtual_ns - others->least_virtual_ns;

    if (others->waiting && (ahead_ns > most_ns || ahead_ns < -most_ns)) {
        sluice_gate_show_virtual(gate->member, others->least_virtual_ns
                                 + (ahead_ns < 0 ? -most_ns : most_ns));
    }
}

/* How long somebody has waited, while nothing came or went. */
static uint64_t waits_ns(const SluiceGate *gate, uint64_t now_ns)
{
    uint64_t since_ns = gate->refused_ns > gate->moved_ns ? gate->refused_ns
                                                          : gate->moved_ns;

    return gate->waited && now_ns > since_ns ? now_ns - since_ns : 0;
}

/* One goes all the same: nobody waits for others' bytes for good, whoever wrote them. */
static bool may_go_at_last(const SluiceGate *gate, const SluiceGateOthers *others,
                           uint64_t now_ns)
{
    uint64_t most_ns = gate->others_turn ? SLUICE_GATE_TURN_MOST_NS
                       : gate->pausing && others->in_flight_bytes > 0
                       ? SLUICE_GATE_WAIT_MOST_NS : SLUICE_GATE_PAUSE_NS;

    return gate->in_flight_bytes == 0 ? waits_ns(gate, now_ns) >= most_ns
                                      : sluice_gate_patience_ns(gate) <= now_ns;
}

static bool is_closed(SluiceGate *gate, const SluiceGateOthers *others, uint64_t now_ns)
{
    gate->pausing = is_old(gate, group_load(&gate->oldest_ns), now_ns)
                    || is_old(gate, others->oldest_ns, now_ns);
    gate->full = is_full(gate, others, now_ns);
    gate->others_turn = is_others_turn(gate, others, now_ns);
    return (gate->pausing || gate->full || gate->others_turn)
           && !may_go_at_last(gate, others, now_ns);
}

/* Is it the next that may go, as far as can be seen? */
static bool looks_soon(const SluiceGate *gate, const SluiceGateOthers *others)
{
    return gate->has_runs ? !goes_before(gate, others)
                          : !gate->pausing && !has_part(gate, others);
}

static __attribute__((noinline)) uint64_t look_around(SluiceGate *gate,
                                                      uint64_t now_ns)
{
    SluiceGateOthers others = { 0 };
    bool is_member = shares(gate);

    if (is_member) {
        gate->window_bytes = sluice_gate_page_window(gate->member->page);
        others = sluice_gate_others(gate->member, now_ns);
        gate->others_bytes = others.in_flight_bytes;
        gate->others_weight = others.weight;
        bound_virtual(gate, &others);
    }
    gate->closed_until_ns = 0;
    if (!is_closed(gate, &others, now_ns)) {
        if (is_member && gate->has_runs && gate->waited) {
            /* Its turn; if the group has no tokens for it, the next member's. */
            sluice_gate_show_waiting(gate->member, now_ns + SLUICE_GATE_LOOK_SOON_NS);
        }
        return 0;
    }
    gate->closed_until_ns = now_ns + (is_member && looks_soon(gate, &others)
                                      ? SLUICE_GATE_LOOK_SOON_NS
                                      : SLUICE_GATE_LOOK_NS);
    return gate->closed_until_ns;
}

SLUICE_HOT uint64_t sluice_gate_look(SluiceGate *gate, uint64_t now_ns)
{
    if (!gate->target_ns) {
        return 0;
    }
    if (!gate->member && !group_load(&gate->oldest_ns)) {
        return gate->in_flight_bytes < gate->window_bytes
               ? 0 : sluice_gate_patience_ns(gate);
    }
    return gate->closed_until_ns > now_ns ? gate->closed_until_ns
                                          : look_around(gate, now_ns);
}

/* A pause says nothing about the window. */
static void note_held(SluiceGate *gate, uint64_t now_ns)
{
    if (!shares(gate)) {
        gate->held |= gate->in_flight_bytes >= gate->window_bytes;
        return;
    }
    if (gate->full && !gate->pausing) {
        if (!group_load(&gate->member->page->held)) {
            group_store(&gate->member->page->held, 1);
        }
    }
    if ((gate->full && !gate->pausing) || gate->has_runs) {
        sluice_gate_show_waiting(gate->member, now_ns + WAITS_NS);
    }
}

SLUICE_HOT void sluice_gate_refuse(SluiceGate *gate, uint64_t since_ns,
                                   uint64_t now_ns)
{
    note_held(gate, now_ns);
    if (!gate->waited) {
        gate->waited = true;
        gate->refused_ns = since_ns;
        gate->held_times++;
    }
}

/* Somebody waits, or others are to be told. */
static inline bool concerns_others(const SluiceGate *gate)
{
    return UNLIKELY(gate->waited || gate->member);
}

SLUICE_HOT static __attribute__((noinline)) void
tell_moved(SluiceGate *gate, uint64_t now_ns)
{
    if (gate->member) {
        sluice_gate_show_in_flight(gate->member, gate->in_flight_bytes, now_ns);
    }
    if (gate->run_until_ns && gate->in_flight_requests <= 1 && shares(gate)) {
        sluice_gate_show_run(gate->member, sluice_gate_run_ends_ns(gate));
    }
    if (gate->waited && sluice_gate_due_ns(gate, now_ns) <= now_ns) {
        sluice_gate_end_waiting(gate, now_ns);
    }
}

SLUICE_HOT static __attribute__((noinline)) void
tell_entered(SluiceGate *gate, uint64_t now_ns)
{
    sluice_gate_end_waiting(gate, now_ns);
    tell_moved(gate, now_ns);
}

SLUICE_HOT void sluice_gate_enter(SluiceGate *gate, uint32_t bytes,
                                  uint64_t now_ns)
{
    gate->in_flight_bytes += bytes;
    gate->in_flight_requests++;
    gate->moved_ns = now_ns;
    gate->closed_until_ns = 0;
    if (concerns_others(gate)) {
        tell_entered(gate, now_ns);
    }
}

bool sluice_gate_admit(SluiceGate *gate, uint32_t bytes, uint64_t now_ns)
{
    if (sluice_gate_due_ns(gate, now_ns) > now_ns) {
        sluice_gate_refuse(gate, now_ns, now_ns);
        return false;
    }
    sluice_gate_enter(gate, bytes, now_ns);
    return true;
}

static inline void count_out(SluiceGate *gate, uint32_t bytes, uint64_t now_ns)
{
    gate->in_flight_bytes -= bytes;
    gate->in_flight_requests--;
    gate->moved_ns = now_ns;
    gate->closed_until_ns = 0;
}

void sluice_gate_leave(SluiceGate *gate, uint32_t bytes, uint64_t now_ns)
{
    count_out(gate, bytes, now_ns);
    if (concerns_others(gate)) {
        tell_moved(gate, now_ns);
    }
}

/* Runs */

/* Of a round its part by weight, within bounds. */
static uint64_t run_length_ns(const SluiceGate *gate)
{
    uint64_t weight = gate->member->weight;

    return within(SLUICE_GATE_ROUND_NS * weight / (weight + gate->others_weight),
                  SLUICE_GATE_RUN_LEAST_NS, SLUICE_GATE_RUN_MOST_NS);
}

void sluice_gate_begin_run(SluiceGate *gate, uint64_t now_ns)
{
    uint64_t until_ns = now_ns + run_length_ns(gate);
    bool is_on = !shares(gate) || sluice_gate_take_run(gate->member, until_ns, now_ns);

    gate->run_until_ns = is_on ? until_ns : 0;
    gate->moved_ns = gate->in_flight_requests ? gate->moved_ns : now_ns;
}

void sluice_gate_keep_run(SluiceGate *gate, uint64_t now_ns)
{
    uint64_t kept_ns = within(now_ns - gate->moved_ns, 0, SLUICE_GATE_IDLE_NS);

    if (!gate->run_until_ns || gate->in_flight_requests) {
        return;
    }
    gate->moved_ns = now_ns;
    if (shares(gate)) {
        sluice_gate_show_virtual(gate->member, gate->member->virtual_ns
                                               + virtual_of(gate, kept_ns));
    }
}

void sluice_gate_end_run(SluiceGate *gate, uint64_t now_ns)
{
    sluice_gate_keep_run(gate, now_ns);
    if (gate->run_until_ns && shares(gate)) {
        sluice_gate_show_run(gate->member, 0);
    }
    gate->run_until_ns = 0;
    gate->closed_until_ns = 0;
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

/* With L and the bytes in flight, its own or all members'. */
static void update_window(SluiceGate *gate, uint64_t latency_ns, bool held,
                          uint64_t in_flight_bytes)
{
    uint64_t part = ratio(gate->target_ns, latency_ns);
    uint64_t unused = gate->window_bytes - gate->window_bytes / 20;

    if (part < ONE || held) {
        set_window(gate, gate->window_bytes * (ONE + part) / (2 * ONE));
    } else if (unused >= SLUICE_GATE_FIRST_BYTES && unused >= 2 * in_flight_bytes) {
        set_window(gate, unused);
    }
}

static bool is_time(uint64_t since_ns, uint64_t completions)
{
    return (since_ns >= UPDATE_NS && completions >= UPDATE_COMPLETIONS)
           || since_ns >= UPDATE_LATE_NS;
}

static __attribute__((noinline)) void update_alone(SluiceGate *gate, uint64_t now_ns)
{
    if (!gate->target_ns) {
        return;
    }
    update_window(gate, gate->latency_ns / gate->completions, gate->held,
                  gate->in_flight_bytes);
    begin_anew(gate, now_ns);
}

/* A time of the page that is not of the past is damage, and as good as none. */
static void update_together(SluiceGate *gate, uint64_t latency_ns, uint64_t now_ns)
{
    SluiceGatePage *page = gate->member->page;
    uint64_t updated_ns = group_load(&page->updated_ns), completions, sum_ns;
    bool held;

    if (!gate->target_ns) {
        return;
    }
    completions = atomic_fetch_add(&page->completions, 1) + 1;
    atomic_fetch_add(&page->latency_ns, within(latency_ns, 0, LATENCY_MOST_NS));
    if (group_can_be(updated_ns, now_ns)
        && !is_time(now_ns > updated_ns ? now_ns - updated_ns : 0, completions)) {
        return;
    }
    if (!atomic_compare_exchange_strong(&page->updated_ns, &updated_ns, now_ns)) {
        return;
    }
    completions = atomic_exchange(&page->completions, 0);
    sum_ns = atomic_exchange(&page->latency_ns, 0);
    held = atomic_exchange(&page->held, 0);
    gate->window_bytes = sluice_gate_page_window(page);
    update_window(gate, sum_ns / (completions ? completions : 1), held,
                  sluice_gate_page_in_flight(page, now_ns));
}

static inline void count_latency(SluiceGate *gate, uint64_t latency_ns, uint64_t now_ns)
{
    gate->completions++;
    gate->latency_ns += latency_ns;
    if (UNLIKELY(is_time(now_ns - gate->updated_ns, gate->completions))) {
        update_alone(gate, now_ns);
    }
}

/* The device's time that a request took: of its latency its part of all bytes in flight. */
static uint64_t device_ns(const SluiceGate *gate, uint32_t bytes, uint64_t latency_ns)
{
    uint64_t all_bytes = gate->in_flight_bytes + bytes + gate->others_bytes;
    uint64_t share = ((uint64_t)bytes << SHARE_BITS) / (all_bytes ? all_bytes : 1);

    return within(latency_ns, 0, LATENCY_MOST_NS) * share >> SHARE_BITS;
}

SLUICE_HOT static __attribute__((noinline)) void
complete_beside_others(SluiceGate *gate, uint32_t bytes, uint64_t latency_ns,
                       uint64_t now_ns)
{
    tell_moved(gate, now_ns);
    if (shares(gate)) {
        sluice_gate_show_virtual(
            gate->member,
            gate->member->virtual_ns
            + virtual_of(gate, device_ns(gate, bytes, latency_ns)));
        update_together(gate, latency_ns, now_ns);
    } else {
        count_latency(gate, latency_ns, now_ns);
    }
}

SLUICE_HOT void sluice_gate_complete(SluiceGate *gate, uint32_t bytes,
                                     uint64_t latency_ns, uint64_t now_ns)
{
    count_out(gate, bytes, now_ns);
    if (concerns_others(gate)) {
        complete_beside_others(gate, bytes, latency_ns, now_ns);
    } else {
        count_latency(gate, latency_ns, now_ns);
    }
}
