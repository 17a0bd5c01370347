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
 * Who goes first when the ceiling lets one pass:
 *  1. a class whose reservation is due, the longest due first (mClock's first
 *     phase; a service in the other phases does not use up the reservation);
 *  2. the best priority, 0 before 9, in constant time (TAP section 5.1);
 *  3. between equal priorities the one whose weight says so (share.c).
 *
 * Eligibility of a class does not depend on the size of its next request
 * (debt pays for what is too large), and once eligible a class stays so until
 * it is charged or configured anew. So a class with held requests is in one of
 * two places:
 *
 *   DUE    its own buckets are empty: in a timing wheel, by the time they no
 *          longer are (wheel.c)
 *   READY  its own buckets would let it go; it waits for the ceiling, or for
 *          the caller's next _release(): in the share of its priority
 *
 * and a bit per priority says where somebody is READY. Time moves classes from
 * DUE to READY, lazily, at the start of a call. One that becomes due by itself
 * and goes before all who are READY goes straight from the wheel to the caller.
 *
 * Priority against newcomers. While the ceiling is limited, a request is held
 * if a class that goes first, or of equal priority, is READY, even if the
 * ceiling would let it pass: else a newcomer would take the tokens that the
 * other waits for. Without a ceiling classes do not compete, and nobody is
 * held for them.
 *
 * Invariants.
 * - Wheel and share hold exactly the classes with held requests, each once.
 *   _next_event_ns() is SLUICE_NEVER exactly when nothing is held.
 * - A _release() at _next_event_ns() succeeds; one before it returns NULL.
 * - Every request is charged once, when it goes on, and never when withdrawn.
 * - After _set_class() nothing allocates; guests cannot make the engine grow.
 *
 * Group. Above the ceiling there may be a group, shared with other engines
 * (group.c). It is asked last, and charged by the same question. Under a group
 * classes compete as under a ceiling. Others may take its tokens at any time: a
 * _release() at _next_event_ns() may then return NULL, and one asks again.
 *
 * Limits. Priorities are strict: a class of worse priority can starve under a
 * ceiling but for its reservation, by design. Reservations that together
 * exceed the ceiling share it in proportion. Cost: constant when a request
 * passes, and for holding and releasing where classes do not compete for the
 * ceiling; where they do, as many steps as a four-way tree has levels, in the mean of
 * many releases: one may have to correct as many classes as were served since the
 * last (share.c).
 */
#include "engine-inline.h"

/* Eligibility */

bool class_conforms(const SluiceClass *class, uint64_t now_ns)
{
    return class_limits_conform(class, now_ns)
           && (LIKELY(!(class->special & SPECIAL_PEAK))
               || special_conforms(class, now_ns));
}

/* The two places of a class with held requests */

/* Whether the wheel has a near ring: a constant on the way of every release. */
typedef enum Many {
    MANY_NO,
    MANY_YES,
    MANY_MAYBE,                 /* the wheel is asked */
} Many;

static inline __attribute__((always_inline)) void
place(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns, Many many)
{
    SluiceClass *class = &engine->classes[class_index];
    int64_t due_ns = class_due_ns(class);

    if (due_ns > (int64_t)now_ns) {
        class->place = PLACE_DUE;
        if (many == MANY_MAYBE) {
            wheel_insert(&engine->due, class_index, due_ns);
        } else {
            wheel_insert_as(&engine->due, class_index, due_ns,
                            many == MANY_YES);
        }
    } else {
        share_join(engine, class_index);
    }
}

SLUICE_HOT __attribute__((noinline)) void
engine_place(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns)
{
    place(engine, class_index, now_ns, MANY_MAYBE);
}

void engine_unplace(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_READY) {
        share_leave(engine, class_index);
    } else if (class->place == PLACE_DUE) {
        wheel_remove(&engine->due, class_index);
        class->place = PLACE_IDLE;
    }
}

/* Moves all classes that have become eligible, in that order. */
SLUICE_HOT __attribute__((noinline)) void
engine_promote_due(SluiceEngine *engine, uint64_t now_ns)
{
    while (engine->due.first_ns <= now_ns) {
        share_join(engine, wheel_pop(&engine->due));
    }
}

/* Is a READY class's reservation due? Then it is the first in its tree. Asking also
 * settles what is lost by now. */
static bool some_reservation_is_due(SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t clock_ns = reservations_now(engine, now_ns);
    uint64_t first_ns = key_tree_first_key(&engine->reserved);
    uint64_t late_max_ns = reservations_late_max_ns(engine);

    if (first_ns > clock_ns) {
        return false;
    }
    if (clock_ns - first_ns > late_max_ns) {
        engine->reservations_lost_ns += clock_ns - first_ns - late_max_ns;
    }
    return true;
}

uint64_t engine_reservations_now(SluiceEngine *engine, uint64_t now_ns)
{
    some_reservation_is_due(engine, now_ns);
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

/* Data path: submission */

static bool is_blocked_by_others(SluiceEngine *engine,
                                 const SluiceClass *class, uint64_t now_ns)
{
    uint32_t served_first = (2u << class->priority) - 1;

    if (engine->due.first_ns <= now_ns) {
        engine_promote_due(engine, now_ns);
    }
    if (some_reservation_is_due(engine, now_ns)) {
        return true;
    }
    return (ready_mask(engine) & served_first)
           && !reservation_is_due(engine, class, now_ns);
}

/* Everything that the short way leaves out. */
static bool may_pass(SluiceEngine *engine, SluiceClass *class, uint32_t bytes,
                     uint64_t now_ns)
{
    if (class->oldest) {
        return false;
    }
    if (class->special & SPECIAL_UNMANAGED) {
        return true;
    }
    if (!class_conforms(class, now_ns)) {
        return false;
    }
    if (!engine->ceiling_limited && !engine->group) {
        return true;
    }
    return !is_blocked_by_others(engine, class, now_ns)
           && ceiling_conforms(engine, now_ns)
           && engine_group_admits(engine->group, charged_bytes(class, bytes),
                                  now_ns);
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

static void hold(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                 uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];
    bool was_empty = !class->oldest;

    count_backlog(class, node, class_index, bytes, now_ns);
    if (class->special & SPECIAL_DYNAMIC) {
        special_flow_insert(class, node, now_ns);
    } else {
        queue_append(class, node);
    }
    if (was_empty) {
        class->special |= SPECIAL_HOLDS;
        special_begin_waiting(class, now_ns);
        forget_turns(engine, class, now_ns);
        engine_place(engine, class_index, now_ns);
    } else if (UNLIKELY(class->special & SPECIAL_DYNAMIC)) {
        share_first_changed(engine, class_index);
    }
}

static __attribute__((noinline)) SluiceVerdict
submit_specially(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                 uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];

    if (!may_pass(engine, class, bytes, now_ns)) {
        hold(engine, class_index, node, bytes, now_ns);
        return SLUICE_HOLD;
    }
    count(class, bytes);
    if (class->special & SPECIAL_UNMANAGED) {
        return SLUICE_PASS;
    }
    special_charge(class, charged_bytes(class, bytes), now_ns);
    charge_ceiling(engine, charged_bytes(class, bytes), now_ns);
    /* It may have gone before a better priority by this right. */
    if (ready_mask(engine)
        && reservation_is_due(engine, class, now_ns)) {
        forget_turns(engine, class, now_ns);
        turns_charge(&class->reservation, charged_bytes(class, bytes));
    }
    if (class->special & SPECIAL_DYNAMIC) {
        special_flow_passed(class, node->flow, bytes, now_ns);
    }
    if (class->special & SPECIAL_WINDOW) {
        special_window_served(class);
    }
    return SLUICE_PASS;
}

/* Commonly, what follows a held request is held. */
SLUICE_HOT static __attribute__((noinline)) SluiceVerdict
submit_slowly(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
              uint32_t bytes, uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, class_index);

    if (LIKELY((class->special & (SPECIAL_HOLDS | SPECIAL_DYNAMIC))
               == SPECIAL_HOLDS)) {
        count_backlog(class, node, class_index, bytes, now_ns);
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
               && engine->due.first_ns > now_ns
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
 * weight decides nothing, and it need not compete: as everywhere, nobody is
 * charged where nobody competes.
 */
static inline bool goes_before_all(SluiceEngine *engine, uint32_t class_index,
                                   uint64_t now_ns)
{
    uint32_t served_first = (2u << engine->classes[class_index].priority) - 1;

    return !(ready_mask(engine) & served_first)
           && !some_reservation_is_due(engine, now_ns);
}

/*
 * The class to serve next, or NO_CLASS; then put_back(). When just one class is
 * due and goes before all others there is nothing to choose: it does not even
 * join.
 */
static inline __attribute__((always_inline)) uint32_t
choose_class(SluiceEngine *engine, uint64_t now_ns, Many many)
{
    uint32_t class_index;

    if (engine->due.first_ns <= now_ns) {
        class_index = wheel_pop_as(&engine->due, many == MANY_YES);
        if (engine->due.first_ns > now_ns
            && (!ready_mask(engine)
                || goes_before_all(engine, class_index, now_ns))) {
            engine->classes[class_index].place = PLACE_IDLE;
            return class_index;
        }
        share_join(engine, class_index);
        engine_promote_due(engine, now_ns);
    } else if (!ready_mask(engine)) {
        return NO_CLASS;
    }
    if (some_reservation_is_due(engine, now_ns)) {
        return key_tree_first_class(&engine->reserved);
    }
    return share_choose(engine, __builtin_ctz(ready_mask(engine)));
}

/* Puts the class that was chosen where it belongs now. */
static inline __attribute__((always_inline)) void
put_back(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns, bool turned,
         Many many)
{
    SluiceClass *class = &engine->classes[class_index];

    if (class->place == PLACE_READY) {
        if (class->oldest && class_due_ns(class) <= (int64_t)now_ns) {
            share_return(engine, class_index, turned);
            return;
        }
        share_leave(engine, class_index);
    }
    if (class->oldest) {
        place(engine, class_index, now_ns, many);
    }
}

static __attribute__((noinline)) void
put_back_slowly(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns)
{
    put_back(engine, class_index, now_ns, true, MANY_MAYBE);
}

static bool group_admits(SluiceEngine *engine, const SluiceClass *class,
                         uint64_t now_ns)
{
    return engine_group_admits(engine->group,
                               charged_bytes(class, class->oldest->bytes),
                               now_ns);
}

/* With constants: most classes have nothing special, most engines no group. */
static inline __attribute__((always_inline)) SluiceNode *
serve(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns, bool special,
      Many many)
{
    SluiceClass *class = &engine->classes[class_index];
    SluiceNode *node;
    int64_t turn_ns = class->reservation.due_ns;
    uint32_t charged;
    bool competed, turned;

    if (special && !group_admits(engine, class, now_ns)) {
        put_back_slowly(engine, class_index, now_ns);
        return NULL;
    }
    if (special && (class->special & SPECIAL_DYNAMIC)) {
        special_flow_removed(class, class->oldest, NULL);
    }
    node = take_oldest(class, now_ns);
    charged = charged_bytes(class, node->bytes);
    if (special) {
        special_charge_held(class, charged, now_ns);
        if ((class->special & SPECIAL_WINDOW) && !node->late) {
            special_window_served(class);
        }
    } else {
        charge_class(class, charged, now_ns);
    }
    charge_ceiling(engine, charged, now_ns);
    count(class, node->bytes);
    turns_charge_if_due(&class->reservation, charged,
                        reservations_now(engine, now_ns));
    competed = class->place == PLACE_READY;
    if (competed) {
        share_account(engine, class_index);
    }
    turned = class->reservation.due_ns != turn_ns;
    put_back(engine, class_index, now_ns, turned, many);
    if (many == MANY_YES && competed && ready_mask(engine)) {
        share_fetch(engine, node->class_index, turned);
    }
    return node;
}

/* A late request that is dropped costs nothing but its reserved turn. */
static SluiceNode *drop_late(SluiceEngine *engine, uint32_t class_index,
                             uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[class_index];
    SluiceNode *node = class->oldest;

    engine_queue_remove(class, node);
    turns_charge(&class->reservation, charged_bytes(class, node->bytes));
    if (class->oldest) {
        /* Its deadline may be an earlier one now, for which nobody would look. */
        share_first_changed(engine, class_index);
    }
    put_back_slowly(engine, class_index, now_ns);
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
            share_forgo_turns(engine, class);   /* it had nobody to compete with */
        }
        switch (special_window_judge(class, node,
                                     reservations_now(engine, now_ns))) {
        case WINDOW_DROP:
            return drop_late(engine, class_index, now_ns);
        case WINDOW_FORFEIT:
            turns_charge(&class->reservation, charged_bytes(class, node->bytes));
            put_back_slowly(engine, class_index, now_ns);
            *again = true;
            return NULL;
        case WINDOW_SERVE:
            break;
        }
    }
    return serve(engine, class_index, now_ns, true, MANY_MAYBE);
}

static inline __attribute__((always_inline)) SluiceNode *
release(SluiceEngine *engine, uint64_t now_ns, Many many)
{
    SluiceNode *node = NULL;
    uint32_t class_index;
    bool again = true;

    now_ns = advance_clock(engine, now_ns);
    if (UNLIKELY(engine->draining)) {
        node = engine_drain(engine, now_ns);
    }
    while (!node && again && ceiling_conforms(engine, now_ns)) {
        class_index = choose_class(engine, now_ns, many);
        if (class_index == NO_CLASS) {
            return NULL;
        }
        if (LIKELY(engine->classes[class_index].special == SPECIAL_HOLDS
                   && !engine->group)) {
            return serve(engine, class_index, now_ns, false, many);
        }
        again = false;
        node = serve_specially(engine, class_index, now_ns, &again);
    }
    return node;
}

SLUICE_HOT static __attribute__((noinline)) SluiceNode *
release_of_many(SluiceEngine *engine, uint64_t now_ns)
{
    return release(engine, now_ns, MANY_YES);
}

SLUICE_HOT static __attribute__((noinline)) SluiceNode *
release_of_few(SluiceEngine *engine, uint64_t now_ns)
{
    return release(engine, now_ns, MANY_NO);
}

/* Each of the two is long, and saves registers that asking does not need. */
SLUICE_HOT SluiceNode *sluice_engine_release(SluiceEngine *engine,
                                             uint64_t now_ns)
{
    return engine->due.near ? release_of_many(engine, now_ns)
                            : release_of_few(engine, now_ns);
}

static uint64_t ceiling_event_ns(const SluiceEngine *engine, uint64_t event_ns)
{
    int64_t due_ns = later_due_ns(engine->ceiling_bytes.due_ns,
                                  engine->ceiling_operations.due_ns);

    return due_ns > 0 ? later_ns(event_ns, due_ns) : event_ns;
}

SLUICE_HOT static __attribute__((noinline)) uint64_t
next_event_specially(SluiceEngine *engine)
{
    uint64_t event_ns = engine->now_ns;

    if (UNLIKELY(engine->draining)
        && engine_find_draining(engine) != NO_CLASS) {
        return event_ns;
    }
    if (!ready_mask(engine)) {
        event_ns = later_ns(event_ns, engine->due.first_ns);
    }
    event_ns = ceiling_event_ns(engine, event_ns);
    return engine_group_event_ns(engine->group, event_ns, engine->now_ns);
}

SLUICE_HOT uint64_t sluice_engine_next_event_ns(SluiceEngine *engine)
{
    const SluiceClass *likely = &engine->classes[engine->due.likely];

    if (UNLIKELY(engine->ready_priorities || engine->draining)) {
        return next_event_specially(engine);
    }
    /* What the next release will touch is on its way by then. */
    __builtin_prefetch(likely->oldest, 1);
    return ceiling_event_ns(engine,
                            later_ns(engine->now_ns, engine->due.first_ns));
}
