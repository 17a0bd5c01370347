/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Held requests that leave in another way than by their turn, and corrections
 * of what went. The essay is in engine.c.
 */
#include "engine-inline.h"

void engine_queue_remove(SluiceClass *class, SluiceNode *node)
{
    if (class->special & SPECIAL_DYNAMIC) {
        special_flow_removed(class, node);
    }
    if (node->prev) {
        node->prev->next = node->next;
    } else {
        class->oldest = node->next;
    }
    if (node->next) {
        node->next->prev = node->prev;
    } else {
        class->newest = node->prev;
    }
    node->next = NULL;
    node->prev = NULL;
    if (!class->oldest) {
        class->special &= ~SPECIAL_HOLDS;
    }
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
}

/* Unmanaged */

/* Classes that have become unmanaged while they held requests. */
uint32_t engine_find_draining(SluiceEngine *engine)
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

/* Their requests go at once, and nothing is charged. */
SluiceNode *engine_drain(SluiceEngine *engine, uint64_t now_ns)
{
    uint32_t class_index = engine_find_draining(engine);
    SluiceClass *class;
    SluiceNode *node;

    if (class_index == NO_CLASS) {
        return NULL;
    }
    class = &engine->classes[class_index];
    if (class->special & SPECIAL_DYNAMIC) {
        special_flow_removed(class, class->oldest);
    }
    node = take_oldest(class, now_ns);
    count(class, node->bytes);
    if (!class->oldest) {
        engine_unplace(engine, class_index);
    }
    return node;
}

/* Held requests, one by one */

SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index)
{
    return class_at(engine, class_index)->oldest;
}

void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node)
{
    SluiceClass *class = class_at(engine, node->class_index);

    engine_queue_remove(class, node);
    if (!class->oldest) {
        engine_unplace(engine, node->class_index);
    }
}

SluiceNode *sluice_engine_evict(SluiceEngine *engine)
{
    uint32_t class_index = share_any(engine);
    SluiceNode *node;

    if (class_index == NO_CLASS) {
        class_index = wheel_peek(&engine->due);
    }
    if (class_index == NO_CLASS) {
        return NULL;
    }
    node = engine->classes[class_index].oldest;
    sluice_engine_withdraw(engine, node);
    return node;
}

/* Correction */

uint32_t sluice_engine_charged_bytes(const SluiceEngine *engine,
                                     uint32_t class_index, uint32_t bytes)
{
    return charged_bytes(class_at(engine, class_index), bytes);
}

static void correct_bucket(SluiceBucket *bucket, int64_t bytes, uint64_t now_ns)
{
    if (bytes >= 0) {
        sluice_bucket_charge(bucket, bytes, now_ns);
    } else {
        sluice_bucket_credit(bucket, -(uint64_t)bytes, now_ns);
    }
}

void sluice_engine_correct(SluiceEngine *engine, uint32_t class_index,
                           int64_t bytes, uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, class_index);

    now_ns = advance_clock(engine, now_ns);
    if (class->special & SPECIAL_UNMANAGED) {
        return;
    }
    correct_bucket(&engine->ceiling_bytes, bytes, now_ns);
    correct_bucket(&class->bytes, bytes, now_ns);
    engine_group_correct(engine->group, bytes, now_ns);
    /* Its due time is another, unless it holds nothing. */
    if (class->place == PLACE_DUE
        || (class->place == PLACE_READY && !class_conforms(class, now_ns))) {
        engine_unplace(engine, class_index);
        engine_place(engine, class_index, now_ns);
    }
}
