/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's gate, beside the path of a request (engine.c): what is done or has gone
 * otherwise, and who waits. The gate itself is gate.c.
 */
#include "engine-internal.h"

/* A class with few requests would come and go: it is active for one to two of these. */
#define LATELY_NS           200000000ULL

/*
 * A class may have become due, or the ceiling, since the gate closed: nobody is told to
 * look then, for none could go. Since the last of the three the gate holds somebody.
 */
SLUICE_HOT static __attribute__((noinline)) void
note_refused(SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t since_ns = engine->gate.moved_ns;

    if (!barred(engine, now_ns) || !ceiling_conforms(engine, now_ns)) {
        return;
    }
    if (!ready_mask(engine)) {
        since_ns = later_ns(since_ns, engine->due_first_ns);
    }
    engine_promote_due(engine, now_ns);
    if (ready_mask(engine) && !open_classes(engine, PRIORITY_BITS, now_ns)) {
        sluice_gate_refuse(&engine->gate, ceiling_event_ns(engine, since_ns), now_ns);
    }
}

/* A request that was counted is to leave. Returns the time. */
static inline uint64_t before_leaving(SluiceEngine *engine, SluiceNode *node,
                                      uint64_t now_ns)
{
    node->gated = false;
    now_ns = advance_clock(engine, now_ns);
    if (UNLIKELY(sluice_gate_may_hold(&engine->gate))) {
        note_refused(engine, now_ns);
    }
    return now_ns;
}

SLUICE_HOT void sluice_engine_complete(SluiceEngine *engine, SluiceNode *node,
                                       uint64_t latency_ns, uint64_t now_ns)
{
    if (node->gated) {
        now_ns = before_leaving(engine, node, now_ns);
        sluice_gate_complete(&engine->gate, node->bytes, latency_ns, now_ns);
    }
}

void sluice_engine_leave(SluiceEngine *engine, SluiceNode *node, uint64_t now_ns)
{
    if (node->gated) {
        now_ns = before_leaving(engine, node, now_ns);
        sluice_gate_leave(&engine->gate, node->bytes, now_ns);
    }
}

void sluice_engine_enter(SluiceEngine *engine, uint32_t class_index,
                         SluiceNode *node, uint32_t bytes, uint64_t now_ns)
{
    if (!(class_at(engine, class_index)->special & SPECIAL_UNMANAGED)) {
        pass_gate(engine, class_index, node, bytes,
                  advance_clock(engine, now_ns));
    }
}

/* The READY classes behind the gate. */
static uint16_t waiting_classes(const SluiceEngine *engine)
{
    uint16_t ready = 0;

    for_each_class(priority, ready_mask(engine)) {
        ready |= engine->levels[priority].classes;
    }
    return ready & engine->gated;
}

void engine_gate_left(SluiceEngine *engine, uint64_t now_ns)
{
    if (engine->gate.waited && !waiting_classes(engine)) {
        sluice_gate_end_waiting(&engine->gate, now_ns);
    }
}

bool sluice_engine_set_gate(SluiceEngine *engine, uint16_t streams,
                            uint64_t target_ns, uint64_t now_ns)
{
    uint32_t classes = (1u << engine->class_count) - 1;

    if (target_ns > SLUICE_GATE_TARGET_MAX_NS || (streams & ~classes)) {
        return false;
    }
    now_ns = advance_clock(engine, now_ns);
    sluice_gate_set_target(&engine->gate, target_ns, now_ns);
    engine->gated = target_ns ? classes & ~streams : 0;
    engine->ready_priorities &= ~GATE_BIT;
    engine->ready_priorities |= engine->gated ? GATE_BIT : 0;
    engine_gate_left(engine, now_ns);
    return true;
}

/* Of the classes behind the gate that wait, or of which a request went lately. */
static uint64_t active_weight(SluiceEngine *engine, uint64_t now_ns)
{
    uint16_t went = engine->went | engine->went_before;
    uint64_t weight = 0;

    for_each_class(i, (went & engine->gated) | waiting_classes(engine)) {
        weight += engine->classes[i].weight;
    }
    if (now_ns - engine->went_since_ns >= LATELY_NS) {
        engine->went_before = engine->went;
        engine->went = 0;
        engine->went_since_ns = now_ns;
    }
    return weight;
}

/* A member that is quiet keeps its weight, which counts for nothing meanwhile. */
void sluice_engine_keep_gate(SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t weight = active_weight(engine, advance_clock(engine, now_ns));

    if (weight) {
        sluice_gate_set_weight(&engine->gate, weight);
    }
    sluice_gate_keepalive(engine->gate.member, now_ns);
}

void sluice_engine_shrink_gate(SluiceEngine *engine, uint32_t parts)
{
    sluice_gate_shrink(&engine->gate, parts, engine->now_ns);
}

void sluice_engine_set_gate_member(SluiceEngine *engine, SluiceGateMember *member,
                                   uint64_t now_ns)
{
    sluice_gate_set_member(&engine->gate, member, advance_clock(engine, now_ns));
}

void sluice_engine_set_oldest(SluiceEngine *engine, uint64_t oldest_ns)
{
    sluice_gate_set_oldest(&engine->gate, oldest_ns);
}

void sluice_engine_tell_oldest(SluiceEngine *engine, uint64_t oldest_ns)
{
    sluice_gate_tell_oldest(&engine->gate, oldest_ns);
}

const SluiceGate *sluice_engine_gate(const SluiceEngine *engine)
{
    return &engine->gate;
}
