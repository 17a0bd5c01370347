/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs: one reader of a disk at a time.
 *
 * Model. An arm that goes to and fro between readers moves more than it reads. So where the
 * gate has runs (gate.c), the device is one reader's for up to 150 ms or RUN_MOST_BYTES, and
 * then the next one's. A reader is known by its positions: a request that starts where one of
 * its class ended is that one's reader's. All others of a class are one reader together,
 * for there is nothing to be gained by parting them. When a run's reader has nothing in
 * flight, the device is kept for SLUICE_GATE_IDLE_NS: its next request is on its
 * way (anticipatory scheduling: Iyer and Druschel, SOSP 2001).
 *
 * Order. Which class runs next is the engine's rule: reservations, priorities, weights. But what
 * weights divide is the time of runs, not bytes, for a class that seeks would else have nearly
 * all of the time. Within a class the reader of the oldest request is next. Between
 * members the device's time per weight decides (gate.c).
 *
 * A stream is not concerned, and while the gate waits for a stream's read nobody goes; so its run
 * ends after SLUICE_GATE_IDLE_NS.
 *
 * Invariants.
 * - Requests of one reader keep their order.
 * - A run ends at its time, whatever its reader does.
 * - Readers beyond RUN_READERS, and requests of a class behind SCAN_MOST of it, are not found:
 *   that costs a seek, and nothing else.
 */
#include "engine-internal.h"

#define RUN_MOST_BYTES      (16ULL << 20)
#define SCAN_MOST           256     /* as many as a queue of a disk holds, or the arm idles */
/* Time counts as the bytes that a disk reads in it: 2^-3 bytes per nanosecond. */
#define UNIT_SHIFT          3

/* Readers are 1 to RUN_READERS, and for each class the others together; 0: not known yet. */
static uint8_t others_of(uint32_t class_index)
{
    return RUN_READERS + 1 + class_index;
}

/* Those that went on keep their places against any number of others, but for so few that
 * new readers that come together do not push out each other. */
static bool has_newcomers(const Runs *runs)
{
    unsigned newcomers = 0;

    for (unsigned i = 0; i < RUN_READERS; i++) {
        newcomers += !runs->readers[i].goes_on;
    }
    return newcomers > RUN_NEWCOMERS;
}

/* The reader that goes on there, or `others`. */
static uint8_t reader_at(const SluiceEngine *engine, uint32_t class_index,
                         uint64_t position)
{
    const RunReader *readers = engine->runs.readers;

    if (engine->classes[class_index].special & SPECIAL_DYNAMIC) {
        return others_of(class_index);
    }
    for (unsigned i = 0; i < RUN_READERS; i++) {
        if (readers[i].used && readers[i].next == position
            && readers[i].class_index == class_index) {
            return i + 1;
        }
    }
    return others_of(class_index);
}

/* A free place, or of one kind the one not used for longest. */
static RunReader *to_forget(Runs *runs)
{
    bool goes_on = !has_newcomers(runs);
    RunReader *least = NULL;

    for (RunReader *i = runs->readers; i < runs->readers + RUN_READERS; i++) {
        if (!i->used) {
            return i;
        }
        if (i->goes_on == goes_on && (!least || i->used < least->used)) {
            least = i;
        }
    }
    return least;
}

void engine_note_reader(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                        uint32_t bytes)
{
    Runs *runs = &engine->runs;
    uint8_t found = reader_at(engine, class_index, node->position);
    bool goes_on = found <= RUN_READERS;
    RunReader *reader = goes_on ? &runs->readers[found - 1] : to_forget(runs);

    *reader = (RunReader){ node->position + bytes, ++runs->uses, class_index, goes_on };
    node->reader = found;
}

/* The virtual time that a class is charged for a run of the longest kind. */
static uint64_t run_cost(const SluiceClass *class)
{
    return (uint64_t)(((SluiceU128)(SLUICE_GATE_RUN_MOST_NS >> UNIT_SHIFT)
                       * class->virtual_unit) >> 32);
}

/* Others may have run once since it left, the lightest of them at the highest cost. */
uint64_t engine_run_credit(const SluiceEngine *engine, uint32_t class_index,
                           uint64_t average)
{
    const SluiceClass *classes = engine->classes;
    uint64_t credit = run_cost(&classes[class_index]);

    for_each_class(i, engine->levels[classes[class_index].priority].classes) {
        uint64_t cost = run_cost(&classes[i]);

        credit = cost > credit ? cost : credit;
    }
    return credit < average ? credit : average;
}

/* The run that is on */

static SluiceNode **run_link(SluiceEngine *engine, SluiceClass *class)
{
    SluiceNode **link = &class->oldest;

    for (unsigned i = 0; *link && i < SCAN_MOST; i++) {
        if ((*link)->reader == engine->runs.reader) {
            return link;
        }
        link = &(*link)->next;
    }
    return NULL;
}

/* So long it was on: the process may not have run for a while since its end. */
static uint64_t run_lasted_ns(const SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t end_ns = sluice_gate_run_ends_ns(&engine->gate);

    end_ns = end_ns < now_ns ? end_ns : now_ns;
    return end_ns > engine->runs.began_ns ? end_ns - engine->runs.began_ns : 0;
}

static void end_run(SluiceEngine *engine, uint64_t now_ns)
{
    SluiceClass *class = &engine->classes[engine->runs.class_index];
    uint64_t lasted_ns = run_lasted_ns(engine, now_ns);

    if (!engine->gate.run_until_ns) {
        return;
    }
    sluice_gate_end_run(&engine->gate, now_ns);
    /* Nobody else waits: nothing is divided. */
    if (engine->levels[class->priority].weight) {
        eevdf_charge(engine, class, lasted_ns >> UNIT_SHIFT);
    }
}

static void begin_run(SluiceEngine *engine, uint64_t now_ns)
{
    const SluiceClass *class = &engine->classes[engine->runs.class_index];

    engine->runs.began_ns = now_ns;
    engine->runs.bytes = 0;
    engine->runs.by_reservation = reservation_is_due(engine, class, now_ns);
    sluice_gate_begin_run(&engine->gate, now_ns);
}

/* Would it be chosen again before all that are READY, if it were? */
static bool is_still_first(const SluiceEngine *engine, const SluiceClass *class,
                           uint64_t now_ns)
{
    if (ready_mask(engine) & ((1u << class->priority) - 1)) {
        return false;
    }
    for_each_class(i, engine->reserved) {
        if (reservation_is_due(engine, &engine->classes[i], now_ns)) {
            return false;
        }
    }
    for_each_class(i, engine->levels[class->priority].classes) {
        if (engine->classes[i].virtual_time < class->virtual_time) {
            return false;
        }
    }
    return true;
}

/* Its time or its bytes are over. A class whose requests are all with the device does not
 * compete, but it comes back when they are done: if it is to go then, nobody begins before,
 * unless they hang. */
static void finish_run(SluiceEngine *engine, uint64_t now_ns)
{
    const SluiceClass *class = &engine->classes[engine->runs.class_index];

    end_run(engine, now_ns);
    if (!class->oldest && now_ns - engine->gate.moved_ns < SLUICE_GATE_PAUSE_NS
        && is_still_first(engine, class, now_ns)
        && sluice_gate_due_ns(&engine->gate, now_ns) <= now_ns) {
        begin_run(engine, now_ns);
    }
}

static bool is_running(SluiceEngine *engine, uint64_t now_ns)
{
    if (engine->gate.run_until_ns && !sluice_gate_is_running(&engine->gate, now_ns)) {
        if (engine->gate.in_flight_requests) {
            finish_run(engine, now_ns);
        } else {
            end_run(engine, now_ns);
        }
    }
    return engine->gate.run_until_ns;
}

/* A class of better priority waits, and this one has no right to go before it. */
static bool gives_way(const SluiceEngine *engine, const SluiceClass *class,
                      uint64_t now_ns)
{
    uint32_t better = ready_mask(engine) & ((1u << class->priority) - 1);

    if (LIKELY(!better) || now_ns - engine->runs.began_ns < SLUICE_GATE_RUN_LEAST_NS
        || reservation_is_due(engine, class, now_ns)) {
        return false;
    }
    for_each_class(priority, better) {
        if (engine->levels[priority].classes & engine->gated) {
            return true;
        }
    }
    return false;
}

uint16_t engine_barred(SluiceEngine *engine, uint64_t now_ns)
{
    bool running = engine->gate.has_runs && is_running(engine, now_ns);
    uint32_t class_index = engine->runs.class_index;
    SluiceClass *class = &engine->classes[class_index];

    if (sluice_gate_due_ns(&engine->gate, now_ns) > now_ns) {
        return engine->gated;
    }
    if (!running) {
        return 0;
    }
    if (gives_way(engine, class, now_ns)) {
        end_run(engine, now_ns);
        return sluice_gate_due_ns(&engine->gate, now_ns) > now_ns ? engine->gated : 0;
    }
    return class->place == PLACE_READY && run_link(engine, class)
           ? engine->gated & ~(1u << class_index) : engine->gated;
}

uint64_t engine_gate_opens_ns(SluiceEngine *engine, uint32_t class_index,
                              uint64_t now_ns)
{
    bool running = engine->gate.has_runs && is_running(engine, now_ns);
    uint64_t due_ns = sluice_gate_due_ns(&engine->gate, now_ns);

    if (due_ns > now_ns || !running
        || (is_in_run(engine, class_index)
            && run_link(engine, &engine->classes[class_index]))) {
        return due_ns;
    }
    return sluice_gate_run_ends_ns(&engine->gate);
}

uint16_t engine_barred_beside(SluiceEngine *engine, uint32_t class_index,
                              uint64_t position, uint64_t now_ns)
{
    uint16_t shut = engine_barred(engine, now_ns);

    return shut && is_in_run(engine, class_index)
           && sluice_gate_due_ns(&engine->gate, now_ns) <= now_ns
           && reader_at(engine, class_index, position) == engine->runs.reader
           ? shut & ~(1u << class_index) : shut;
}

void engine_run_to_front(SluiceEngine *engine, uint32_t class_index)
{
    SluiceClass *class = &engine->classes[class_index];
    SluiceNode **link = run_link(engine, class), *node = link ? *link : class->oldest;

    /* The flows of a dynamic class have an order of their own. */
    if (node == class->oldest || (class->special & SPECIAL_DYNAMIC)) {
        return;
    }
    if (class->newest == node) {
        class->newest = (SluiceNode *)((char *)link - offsetof(SluiceNode, next));
    }
    *link = node->next;
    node->next = class->oldest;
    class->oldest = node;
    eevdf_first_changed(engine, class);
}

void engine_run(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                uint32_t bytes, uint64_t now_ns)
{
    Runs *runs = &engine->runs;

    if (!node->reader) {
        engine_note_reader(engine, class_index, node, bytes);
    }
    if (is_running(engine, now_ns)) {
        sluice_gate_keep_run(&engine->gate, now_ns);
    } else {
        runs->reader = node->reader;
        runs->class_index = class_index;
        begin_run(engine, now_ns);
    }
    runs->bytes += bytes;
    if (runs->bytes >= RUN_MOST_BYTES) {
        finish_run(engine, now_ns);
    }
    node->reader = 0;
}
