/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice engine: classes under a ceiling, for one resource of a VM.
 *
 * Model. Every request belongs to a class. It goes on when no earlier request
 * of its class is held, a token is left in both buckets of the class (bytes
 * and operations) and a token is left in both buckets of the VM's ceiling;
 * then it is charged to all four. Else it is held, first in first out within
 * its class. The bucket is described in bucket.c.
 *
 * The order of classes when the ceiling lets one pass:
 *  1. a class whose reservation is due, the longest due first (mClock's first
 *     phase; a service in the other phases does not use up the reservation);
 *  2. the best priority, 0 before 9 (TAP section 5.1);
 *  3. between equal priorities the order of their weights (eevdf.c).
 *
 * Eligibility of a class does not depend on the size of its next request
 * (debt pays for units beyond the tokens), and once eligible a class stays so until
 * it is charged or configured anew. So a class with held requests is in one of
 * two places:
 *
 *   DUE    can't send: its own buckets are empty until due_ns
 *   READY  can send: its own buckets would let it go; it waits for the ceiling,
 *          or for the caller's next _release()
 *
 * An engine has 16 classes at most, so a place is a mask of 16 bits, and the first
 * of a place is found by a look at all that are there. A bit per priority says where
 * a class is READY. Time moves classes from DUE to READY, lazily, at the start of a
 * call. A class that becomes due by itself and goes before all that are READY goes
 * straight to the caller.
 *
 * Priority against newcomers. While the ceiling is limited, a request is held
 * if a class that goes first, or of equal priority, is READY, even if the
 * ceiling would let it pass: else a newcomer would take the tokens that the
 * other waits for. Without a ceiling classes do not compete, and none is
 * held for them.
 *
 * Invariants.
 * - DUE and READY hold exactly the classes with held requests, each once.
 *   _next_event_ns() is SLUICE_NEVER exactly when nothing is held.
 * - A _release() at _next_event_ns() succeeds; one before it returns NULL.
 * - Every request is charged once, when it goes on, and never when withdrawn.
 * - After _set_class() nothing allocates; guests cannot make the engine grow.
 *
 * Gate. Below all there may be a gate (gate.c), for all classes but the streams. It bounds
 * what they have in flight, so it opens when a request is done. While it is closed these
 * classes stay READY, and only streams are chosen: nobody competes with those that
 * cannot go, and no stream is held for the gate. It is asked before the group, and
 * counts what goes. Behind a gate classes compete as under a ceiling. Between a
 * stream and others of its priority weights decide as ever: what it was served
 * while they were held counts as had, under a ceiling.
 *
 * On a device with an arm one reader goes at a time (engine-runs.c): while its run is on, the
 * gate is closed for all but its requests.
 *
 * With a page of the device (gate-page.c), or while a stream's read is under way, a gate
 * looks at others' doings: a _release() at _next_event_ns() may return NULL, and one
 * asks again.
 *
 * Group. Above the ceiling there may be a group, shared with other engines
 * (group.c). It is asked last, and charged by the same question. Under a group
 * classes compete as under a ceiling. Others may take its tokens at any time: a
 * _release() at _next_event_ns() may then return NULL, and one asks again.
 *
 * Limits. Priorities are strict: a class of worse priority can starve under a
 * ceiling but for its reservation, by design. Reservations that together
 * exceed the ceiling share it in proportion.
 *
 * The rules of some classes only are in leaky.c, flows.c and window.c.
 */
#include "engine-internal.h"

/* A reserved turn may be owed for so long before the class's own limits let it send; with
 * a window, half its period if that is less. */
#define CARRIED_MAX_NS      500000000ULL

/* The ceiling and the group above it */

static inline void charge_ceiling(SluiceEngine *engine, uint32_t charged,
                                  uint64_t now_ns)
{
    bucket_charge(&engine->ceiling_bytes, charged, now_ns);
    bucket_charge_one(&engine->ceiling_operations, now_ns);
}

/* Charges the request to the group, or says no. */
static inline bool group_admits(const SluiceEngine *engine, uint32_t charged,
                                uint64_t now_ns)
{
    return !engine->group || sluice_group_admit(engine->group, charged, now_ns);
}

/* The gate below all */

/* True, and noted, if the gate holds the class; `shut` are those that it holds now. */
static bool gate_refuses(SluiceEngine *engine, uint32_t class_index,
                         uint16_t shut, uint64_t now_ns)
{
    if (LIKELY(!(shut & (1u << class_index)))) {
        return false;
    }
    sluice_gate_refuse(&engine->gate, now_ns, now_ns);
    return true;
}

/* The queue of a class */

static inline void count(SluiceClass *class, uint32_t bytes)
{
    class->stats.requests++;
    class->stats.bytes += bytes;
}

static inline void queue_append(SluiceClass *class, SluiceNode *node)
{
    node->next = NULL;
    if (class->newest) {
        class->newest->next = node;
    } else {
        class->oldest = node;
    }
    class->newest = node;
}

static inline SluiceNode *take_oldest(SluiceClass *class, uint64_t now_ns)
{
    SluiceNode *node = class->oldest, *next = node->next;

    class->oldest = next;
    if (!next) {
        class->newest = NULL;
        class->special &= ~SPECIAL_HOLDS;
    }
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
    class->stats.held_requests++;
    class->stats.held_ns += now_ns - node->held_since_ns;
    return node;
}

/* Takes a request out from the middle; `before` is in front of it, or NULL. */
static void queue_remove(SluiceClass *class, SluiceNode *before,
                         SluiceNode *node)
{
    if (class->special & SPECIAL_DYNAMIC) {
        flow_removed(class, node, before);
    }
    *(before ? &before->next : &class->oldest) = node->next;
    if (!node->next) {
        class->newest = before;
    }
    node->next = NULL;
    node->reader = 0;           /* it may come again, elsewhere */
    if (!class->oldest) {
        class->special &= ~SPECIAL_HOLDS;
    }
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
}

/* Reserved turns */

/* The clock does not stand still for a class that the gate may have held: all behind it
 * lose as much, and the streams nothing. */
static void lose_behind_gate(SluiceEngine *engine, uint64_t lost_ns)
{
    for_each_class(i, engine->gated) {
        Turns *reservation = &engine->classes[i].reservation;

        reservation->due_ns = later_due_ns(reservation->due_ns, 0) + lost_ns;
    }
}

static uint32_t find_reserved_class(SluiceEngine *engine, uint16_t classes,
                                    uint64_t now_ns)
{
    uint64_t clock_ns = reservations_now(engine, now_ns);
    uint64_t late_max_ns = reservations_late_max_ns(engine);
    int64_t first_ns = INT64_MAX;
    uint32_t first = NO_CLASS;

    for_each_class(i, classes) {
        int64_t due_ns = engine->classes[i].reservation.due_ns;

        first = due_ns < first_ns ? i : first;
        first_ns = due_ns < first_ns ? due_ns : first_ns;
    }
    first_ns = later_due_ns(first_ns, 0);
    if ((uint64_t)first_ns > clock_ns) {
        return NO_CLASS;
    }
    if (clock_ns - (uint64_t)first_ns > late_max_ns) {
        uint64_t lost_ns = clock_ns - (uint64_t)first_ns - late_max_ns;

        if (UNLIKELY(is_gated(engine, first))) {
            lose_behind_gate(engine, lost_ns);
            return find_reserved_class(engine, classes, now_ns);
        }
        engine->reservations_lost_ns += lost_ns;
    }
    return first;
}

/* The READY class whose reservation has been due for longest, or NO_CLASS. Asking also
 * settles the service that is lost by now. */
static inline uint32_t reserved_class(SluiceEngine *engine, uint64_t now_ns)
{
    return engine->reserved
           ? find_reserved_class(engine, engine->reserved, now_ns) : NO_CLASS;
}

uint64_t engine_reservations_now(SluiceEngine *engine, uint64_t now_ns)
{
    reserved_class(engine, now_ns);
    return reservations_now(engine, now_ns);
}

/* Idleness saves up no reserved turns. */
static void forget_turns(SluiceEngine *engine, SluiceClass *class,
                         uint64_t now_ns)
{
    int64_t clock_ns = engine_reservations_now(engine, now_ns);

    if (has_reservation(class) && class->reservation.due_ns < clock_ns) {
        class->reservation.due_ns = clock_ns;
    }
}

static uint64_t carried_ns(const SluiceClass *class)
{
    uint64_t half_ns = window_period_ns(class) / 2;

    return half_ns && half_ns < CARRIED_MAX_NS ? half_ns : CARRIED_MAX_NS;
}

/*
 * A class that comes to compete is owed no more than a little from before its limit let
 * it; else its reserved turn would look as if it had waited for the ceiling all that
 * time, and the clock of all reservations would stand still for it.
 */
static inline void forgo_turns(SluiceEngine *engine, SluiceClass *class)
{
    int64_t due_ns = class_due_ns(class), owed_ns = class->reservation.due_ns;
    int64_t lost_ns = engine->reservations_lost_ns;

    /* As nearly always, also after losses. No limit: due at 0. */
    if (LIKELY(due_ns <= owed_ns + lost_ns + (int64_t)CARRIED_MAX_NS
               && !(class->special & SPECIAL_WINDOW))) {
        return;
    }
    lost_ns = engine->now_ns - engine_reservations_now(engine, engine->now_ns);
    due_ns -= lost_ns + (int64_t)carried_ns(class);
    if (due_ns > 0 && due_ns > owed_ns) {
        class->reservation.due_ns = due_ns;
    }
}

/* The two places of a class with held requests */

static inline void find_first_due(SluiceEngine *engine)
{
    uint64_t first_ns = UINT64_MAX;
    uint32_t first = 0;

    for_each_class(i, engine->due) {
        uint64_t due_ns = engine->due_ns[i];

        first = due_ns < first_ns ? i : first;
        first_ns = due_ns < first_ns ? due_ns : first_ns;
    }
    engine->due_first = first;
    engine->due_first_ns = first_ns;
}

static inline void put_due(SluiceEngine *engine, uint32_t class_index,
                           uint64_t due_ns)
{
    engine->classes[class_index].place = PLACE_DUE;
    engine->due |= 1u << class_index;
    engine->due_ns[class_index] = due_ns;
    if (due_ns < engine->due_first_ns) {
        engine->due_first_ns = due_ns;
        engine->due_first = class_index;
    }
}

/* The class that is due first; there must be one. */
static inline uint32_t take_first_due(SluiceEngine *engine)
{
    uint32_t class_index = engine->due_first;

    engine->due &= ~(1u << class_index);
    find_first_due(engine);
    return class_index;
}

static void make_ready(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    eevdf_join(engine, class_index);
    if (has_reservation(class)) {
        forgo_turns(engine, class);
        engine->reserved |= 1u << class_index;
    }
}

static inline void leave_ready(SluiceEngine *engine, uint32_t class_index)
{
    eevdf_leave(engine, class_index);
    engine->reserved &= ~(1u << class_index);
}

SLUICE_HOT void engine_place(SluiceEngine *engine, uint32_t class_index,
                             uint64_t now_ns)
{
    int64_t due_ns = class_due_ns(&engine->classes[class_index]);

    if (due_ns > (int64_t)now_ns) {
        put_due(engine, class_index, due_ns);
    } else {
        make_ready(engine, class_index);
    }
}

void engine_unplace(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_READY) {
        leave_ready(engine, class_index);
    } else if (class->place == PLACE_DUE) {
        engine->due &= ~(1u << class_index);
        find_first_due(engine);
        class->place = PLACE_IDLE;
    }
}

/* Moves all classes that have become eligible, in that order. */
SLUICE_HOT void engine_promote_due(SluiceEngine *engine, uint64_t now_ns)
{
    while (engine->due_first_ns <= now_ns) {
        make_ready(engine, take_first_due(engine));
    }
}

/* Data path: submission */

/* As below, with the gate closed. */
static bool is_blocked_by_open(SluiceEngine *engine, const SluiceClass *class,
                               uint64_t now_ns)
{
    uint16_t open = open_classes(engine, PRIORITY_BITS, now_ns);

    if (open & engine->reserved
        && find_reserved_class(engine, open & engine->reserved, now_ns)
           != NO_CLASS) {
        return true;
    }
    return open_classes(engine, (2u << class->priority) - 1, now_ns)
           && !reservation_is_due(engine, class, now_ns);
}

static bool is_blocked_by_others(SluiceEngine *engine,
                                 const SluiceClass *class, uint16_t shut,
                                 uint64_t now_ns)
{
    uint32_t served_first = (2u << class->priority) - 1;

    if (engine->due_first_ns <= now_ns) {
        engine_promote_due(engine, now_ns);
    }
    if (UNLIKELY(shut)) {
        return is_blocked_by_open(engine, class, now_ns);
    }
    if (reserved_class(engine, now_ns) != NO_CLASS) {
        return true;
    }
    return (ready_mask(engine) & served_first)
           && !reservation_is_due(engine, class, now_ns);
}

/* Everything that the short way leaves out. */
static bool may_pass(SluiceEngine *engine, uint32_t class_index,
                     const SluiceNode *node, uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];
    uint16_t shut;

    if (class->oldest) {
        return false;
    }
    if (class->special & SPECIAL_UNMANAGED) {
        return true;
    }
    if (!class_conforms(class, now_ns)) {
        return false;
    }
    if (!engine->ceiling_limited && !engine->group
        && !is_gated(engine, class_index)) {
        return true;
    }
    shut = UNLIKELY(gate_may_bar(engine))
           ? engine_barred_beside(engine, class_index, node->position, now_ns) : 0;
    return !is_blocked_by_others(engine, class, shut, now_ns)
           && ceiling_conforms(engine, now_ns)
           && !gate_refuses(engine, class_index, shut, now_ns)
           && group_admits(engine, charged_bytes(class, bytes), now_ns);
}

static inline void count_backlog(SluiceClass *class, SluiceNode *node,
                                 uint32_t class_index, uint32_t bytes,
                                 uint64_t now_ns)
{
    node->bytes = bytes;
    node->class_index = class_index;
    node->held_since_ns = now_ns;
    node->late = SLUICE_IN_TIME;
    class->stats.backlog_requests++;
    class->stats.backlog_bytes += bytes;
}

static __attribute__((noinline)) void hold(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                 uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];
    bool was_empty = !class->oldest;

    count_backlog(class, node, class_index, bytes, now_ns);
    note_reader(engine, class_index, node, bytes);
    if (class->special & SPECIAL_DYNAMIC) {
        flow_insert(class, node, now_ns);
    } else {
        queue_append(class, node);
    }
    if (was_empty) {
        class->special |= SPECIAL_HOLDS;
        leaky_begin_waiting(class, now_ns);
        if (LIKELY(!is_in_run(engine, class_index))) {
            forget_turns(engine, class, now_ns);
        }
        engine_place(engine, class_index, now_ns);
    } else if (UNLIKELY(class->special & SPECIAL_DYNAMIC)) {
        eevdf_first_changed(engine, class);
    }
}

static __attribute__((noinline)) SluiceVerdict
submit_specially(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                 uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    if (!may_pass(engine, class_index, node, bytes, now_ns)) {
        hold(engine, class_index, node, bytes, now_ns);
        return SLUICE_HOLD;
    }
    count(class, bytes);
    if (class->special & SPECIAL_UNMANAGED) {
        return SLUICE_PASS;
    }
    pass_gate(engine, class_index, node, bytes, now_ns);
    leaky_charge(class, charged_bytes(class, bytes), now_ns);
    charge_ceiling(engine, charged_bytes(class, bytes), now_ns);
    /* It may have gone before a better priority by this right. */
    if (ready_mask(engine)
        && (is_in_reserved_run(engine, class_index)
            || reservation_is_due(engine, class, now_ns))) {
        if (!is_in_run(engine, class_index)) {
            forget_turns(engine, class, now_ns);
        }
        turns_charge(&class->reservation, charged_bytes(class, bytes));
    }
    if (UNLIKELY(class->special & (SPECIAL_DYNAMIC | SPECIAL_WINDOW))) {
        if (class->special & SPECIAL_DYNAMIC) {
            flow_passed(class, node->flow, bytes, now_ns);
        }
        if (class->special & SPECIAL_WINDOW) {
            window_served(class);
        }
    }
    return SLUICE_PASS;
}

/* Commonly, a request behind a held one is held. */
SLUICE_HOT static __attribute__((noinline)) SluiceVerdict
submit_slowly(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
              uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, class_index);

    if (LIKELY((class->special & (SPECIAL_HOLDS | SPECIAL_DYNAMIC))
               == SPECIAL_HOLDS)) {
        count_backlog(class, node, class_index, bytes, now_ns);
        note_reader(engine, class_index, node, bytes);
        queue_append(class, node);
        return SLUICE_HOLD;
    }
    return submit_specially(engine, class_index, node, bytes, now_ns);
}
SLUICE_HOT SluiceVerdict sluice_engine_submit(SluiceEngine *engine,
                                              uint32_t class_index,
                                              SluiceNode *node, uint32_t bytes,
                                              uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    now_ns = advance_clock(engine, now_ns);
    if (LIKELY(class_index < engine->class_count
               && !(class->special | engine->ready_priorities)
               && engine->due_first_ns > now_ns
               && class_limits_conform(class, now_ns)
               && ceiling_conforms(engine, now_ns))) {
        charge_class(class, charged_bytes(class, bytes), now_ns);
        charge_ceiling(engine, charged_bytes(class, bytes), now_ns);
        count(class, bytes);
        return SLUICE_PASS;
    }
    return submit_slowly(engine, class_index, node, bytes, now_ns);
}

/* Data path: release */

/*
 * Does a class that has just become due go before all that are READY? Then its
 * weight decides nothing, and it need not compete: as everywhere, a class that
 * competes with no other is not charged.
 */
static inline bool goes_before_all(SluiceEngine *engine, uint32_t class_index,
                                   uint64_t now_ns)
{
    uint32_t served_first = (2u << engine->classes[class_index].priority) - 1;

    return !(ready_mask(engine) & served_first)
           && reserved_class(engine, now_ns) == NO_CLASS;
}

/* As below, with the gate closed: a stream, if any can go. */
SLUICE_HOT static __attribute__((noinline)) uint32_t
choose_stream(SluiceEngine *engine, uint64_t now_ns)
{
    uint16_t open;
    uint32_t class_index = NO_CLASS;

    engine_promote_due(engine, now_ns);
    open = open_classes(engine, PRIORITY_BITS, now_ns);
    if (!open) {
        if (ready_mask(engine)) {
            sluice_gate_refuse(&engine->gate, now_ns, now_ns);
        }
        return NO_CLASS;
    }
    if (open & engine->reserved) {
        class_index = find_reserved_class(engine, open & engine->reserved, now_ns);
    }
    for_each_class(priority, ready_mask(engine)) {
        if (class_index == NO_CLASS
            && (engine->levels[priority].classes & open)) {
            class_index = eevdf_choose_among(engine, priority, open);
        }
    }
    if (has_runs(engine, class_index)) {
        engine_run_to_front(engine, class_index);
    }
    return class_index;
}

/*
 * The class to serve next, or NO_CLASS; then put_back(). When just one class is
 * due and goes before all others there is nothing to choose: it does not even
 * join.
 */
static inline uint32_t choose_class(SluiceEngine *engine, uint64_t now_ns)
{
    uint32_t class_index;

    if (UNLIKELY(barred(engine, now_ns))) {
        return choose_stream(engine, now_ns);
    }
    if (engine->due_first_ns <= now_ns) {
        class_index = take_first_due(engine);
        if (engine->due_first_ns > now_ns
            && (!ready_mask(engine)
                || goes_before_all(engine, class_index, now_ns))) {
            engine->classes[class_index].place = PLACE_IDLE;
            return class_index;
        }
        make_ready(engine, class_index);
        engine_promote_due(engine, now_ns);
    } else if (!ready_mask(engine)) {
        return NO_CLASS;
    }
    class_index = reserved_class(engine, now_ns);
    return class_index != NO_CLASS
           ? class_index
           : eevdf_choose(engine, __builtin_ctz(ready_mask(engine)));
}

/* Puts the class that was chosen where it belongs now. */
static inline void put_back(SluiceEngine *engine, uint32_t class_index,
                            uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_READY) {
        if (class->oldest && class_due_ns(class) <= (int64_t)now_ns) {
            eevdf_return(engine, class);
            return;
        }
        leave_ready(engine, class_index);
    }
    if (class->oldest) {
        engine_place(engine, class_index, now_ns);
    }
}

/* With a constant: most classes have nothing special, most engines no group and no gate. */
static inline __attribute__((always_inline)) SluiceNode *
serve(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns, bool special)
{
    SluiceClass *class = &engine->classes[class_index];
    uint32_t charged = charged_bytes(class, class->oldest->bytes);
    SluiceNode *node;

    if (special && !group_admits(engine, charged, now_ns)) {
        put_back(engine, class_index, now_ns);
        return NULL;
    }
    if (special && (class->special & SPECIAL_DYNAMIC)) {
        flow_removed(class, class->oldest, NULL);
    }
    node = take_oldest(class, now_ns);
    if (special) {
        pass_gate(engine, class_index, node, node->bytes, now_ns);
        leaky_charge_held(class, charged, now_ns);
        if ((class->special & SPECIAL_WINDOW) && !node->late) {
            window_served(class);
        }
    } else {
        charge_class(class, charged, now_ns);
    }
    charge_ceiling(engine, charged, now_ns);
    count(class, node->bytes);
    if (special && is_in_reserved_run(engine, class_index)) {
        turns_charge(&class->reservation, charged);
    } else {
        turns_charge_if_due(&class->reservation, charged,
                            reservations_now(engine, now_ns));
    }
    /* Runs are accounted for by their time. */
    if (class->place == PLACE_READY && !(special && has_runs(engine, class_index))) {
        eevdf_account(engine, class);
    }
    put_back(engine, class_index, now_ns);
    return node;
}

/* A late request that is dropped costs nothing but its reserved turn. */
static SluiceNode *drop_late(SluiceEngine *engine, uint32_t class_index,
                             uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];
    SluiceNode *node = class->oldest;

    queue_remove(class, NULL, node);
    turns_charge(&class->reservation, charged_bytes(class, node->bytes));
    put_back(engine, class_index, now_ns);
    return node;
}

/* NULL if the group refuses, or if the class has lost its turn: `again`. */
static __attribute__((noinline)) SluiceNode *
serve_specially(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns,
                bool *again)
{
    SluiceClass *class = &engine->classes[class_index];
    SluiceNode *node = class->oldest;

    if (class->special & SPECIAL_WINDOW) {
        if (class->place == PLACE_IDLE) {
            forgo_turns(engine, class);     /* it had none to compete with */
        }
        switch (window_judge(class, node, reservations_now(engine, now_ns))) {
        case WINDOW_DROP:
            return drop_late(engine, class_index, now_ns);
        case WINDOW_FORFEIT:
            turns_charge(&class->reservation, charged_bytes(class, node->bytes));
            put_back(engine, class_index, now_ns);
            *again = true;
            return NULL;
        case WINDOW_SERVE:
            break;
        }
    }
    return serve(engine, class_index, now_ns, true);
}

/* A class that became unmanaged while it held requests, or NO_CLASS. */
static uint32_t find_draining(SluiceEngine *engine)
{
    for (uint32_t i = 0; engine->draining && i < engine->class_count; i++) {
        if ((engine->classes[i].special & SPECIAL_UNMANAGED)
            && engine->classes[i].oldest) {
            return i;
        }
    }
    engine->draining = false;
    return NO_CLASS;
}

/* Some of a class's held requests have left it without its turn. */
static void others_left(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    if (!class->oldest) {
        engine_unplace(engine, class_index);
        engine_gate_left(engine, engine->now_ns);
    } else {
        eevdf_first_changed(engine, class);
    }
}

/* The next request of a class that is draining, or NULL: it goes at once, uncharged. */
static SluiceNode *drain(SluiceEngine *engine, uint64_t now_ns)
{
    uint32_t class_index = find_draining(engine);
    SluiceClass *class;
    SluiceNode *node;

    if (class_index == NO_CLASS) {
        return NULL;
    }
    class = &engine->classes[class_index];
    if (class->special & SPECIAL_DYNAMIC) {
        flow_removed(class, class->oldest, NULL);
    }
    node = take_oldest(class, now_ns);
    count(class, node->bytes);
    others_left(engine, class_index);
    return node;
}

SLUICE_HOT SluiceNode *sluice_engine_release(SluiceEngine *engine,
                                             uint64_t now_ns)
{
    SluiceNode *node = NULL;
    uint32_t class_index;
    bool again = true;

    now_ns = advance_clock(engine, now_ns);
    if (UNLIKELY(engine->draining)) {
        node = drain(engine, now_ns);
    }
    while (!node && again && ceiling_conforms(engine, now_ns)) {
        class_index = choose_class(engine, now_ns);
        if (class_index == NO_CLASS) {
            return NULL;
        }
        if (LIKELY(engine->classes[class_index].special == SPECIAL_HOLDS
                   && !(engine->ready_priorities & ~PRIORITY_BITS))) {
            return serve(engine, class_index, now_ns, false);
        }
        again = false;
        node = serve_specially(engine, class_index, now_ns, &again);
    }
    return node;
}

/* The engine waits for its group only while nothing else is missing. */
static uint64_t group_event_ns(const SluiceEngine *engine, uint64_t event_ns)
{
    if (!engine->group) {
        return event_ns;
    }
    if (event_ns > engine->now_ns) {
        sluice_group_idle(engine->group);
        return event_ns;
    }
    return sluice_group_next_ns(engine->group, engine->now_ns);
}

/* When a class that holds requests may go, with the gate closed. */
static uint64_t gate_event_ns(SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t event_ns = ready_mask(engine)
                        ? engine_gate_opens_ns(engine, NO_CLASS, now_ns) : UINT64_MAX;

    if (open_classes(engine, PRIORITY_BITS, now_ns)) {
        return now_ns;
    }
    for_each_class(i, engine->due) {
        uint64_t due_ns = later_ns(now_ns, engine->due_ns[i]);

        due_ns = is_gated(engine, i)
                 ? later_ns(due_ns, engine_gate_opens_ns(engine, i, now_ns)) : due_ns;
        event_ns = due_ns < event_ns ? due_ns : event_ns;
    }
    return event_ns;
}

SLUICE_HOT static __attribute__((noinline)) uint64_t
next_event_specially(SluiceEngine *engine)
{
    uint64_t event_ns = engine->now_ns;

    if (UNLIKELY(engine->draining) && find_draining(engine) != NO_CLASS) {
        return event_ns;
    }
    if (UNLIKELY(barred(engine, event_ns))) {
        event_ns = gate_event_ns(engine, event_ns);
    } else if (!ready_mask(engine)) {
        event_ns = later_ns(event_ns, engine->due_first_ns);
    }
    return group_event_ns(engine, ceiling_event_ns(engine, event_ns));
}

SLUICE_HOT uint64_t sluice_engine_next_event_ns(SluiceEngine *engine)
{
    if (UNLIKELY(engine->ready_priorities || engine->draining)) {
        return next_event_specially(engine);
    }
    return ceiling_event_ns(engine,
                            later_ns(engine->now_ns, engine->due_first_ns));
}

/* Held requests, one by one */

SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index)
{
    return class_at(engine, class_index)->oldest;
}

/* The one in front of a held request, or NULL. A queue has no way back: it would make
 * every request longer, for a question that is seldom asked. Of many, ask for all at
 * once. */
static SluiceNode *in_front_of(const SluiceClass *class, const SluiceNode *node)
{
    SluiceNode *before = NULL;

    for (SluiceNode *i = class->oldest; i != node; i = i->next) {
        before = i;
    }
    return before;
}

void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node, uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, node->class_index);

    advance_clock(engine, now_ns);
    queue_remove(class, in_front_of(class, node), node);
    others_left(engine, node->class_index);
}

void sluice_engine_withdraw_if(SluiceEngine *engine,
                               bool (*matches)(const SluiceNode *node,
                                               const void *what),
                               const void *what, uint64_t now_ns)
{
    advance_clock(engine, now_ns);
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];
        SluiceNode *first = class->oldest, *before = NULL, *next;

        for (SluiceNode *node = first; node; node = next) {
            next = node->next;
            if (matches(node, what)) {
                queue_remove(class, before, node);
            } else {
                before = node;
            }
        }
        if (class->oldest != first) {
            others_left(engine, i);
        }
    }
}
