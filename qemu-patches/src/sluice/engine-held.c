/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Held requests that leave in another way than by their turn, and corrections
 * of what went. The essay is in engine.c.
 */
#include "engine-inline.h"

/* The one in front of a held request, or NULL. A queue has no way back: it would make
 * every request longer, for what is seldom asked. Of many, ask for all at once. */
static SluiceNode *in_front_of(const SluiceClass *class, const SluiceNode *node)
{
    SluiceNode *before = NULL;

    for (SluiceNode *i = class->oldest; i != node; i = i->next) {
        before = i;
    }
    return before;
}

static void queue_remove_behind(SluiceClass *class, SluiceNode *before,
                                SluiceNode *node)
{
    if (class->special & SPECIAL_DYNAMIC) {
        special_flow_removed(class, node, before);
    }
    *(before ? &before->next : &class->oldest) = node->next;
    if (!node->next) {
        class->newest = before;
    }
    node->next = NULL;
    if (!class->oldest) {
        class->special &= ~SPECIAL_HOLDS;
    }
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
}

void engine_queue_remove(SluiceClass *class, SluiceNode *node)
{
    queue_remove_behind(class, in_front_of(class, node), node);
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
        special_flow_removed(class, class->oldest, NULL);
    }
    node = take_oldest(class, now_ns);
    count(class, node->bytes);
    if (!class->oldest) {
        engine_unplace(engine, class_index);
    } else {
        share_first_changed(engine, class_index);
    }
    return node;
}

/* Held requests, one by one */

SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index)
{
    return class_at(engine, class_index)->oldest;
}

/* Some of what a class held has left it without its turn. */
static void others_left(SluiceEngine *engine, uint32_t class_index)
{
    if (!engine->classes[class_index].oldest) {
        engine_unplace(engine, class_index);
    } else {
        share_first_changed(engine, class_index);
    }
}

void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node)
{
    engine_queue_remove(class_at(engine, node->class_index), node);
    others_left(engine, node->class_index);
}

void sluice_engine_withdraw_if(SluiceEngine *engine,
                               bool (*matches)(const SluiceNode *node,
                                               const void *what),
                               const void *what)
{
    for (uint32_t i = 0; i < engine->class_count; i++) {
        SluiceClass *class = &engine->classes[i];
        SluiceNode *first = class->oldest, *before = NULL, *next;

        for (SluiceNode *node = first; node; node = next) {
            next = node->next;
            if (matches(node, what)) {
                queue_remove_behind(class, before, node);
            } else {
                before = node;
            }
        }
        if (class->oldest != first) {
            others_left(engine, i);
        }
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

SluiceReceipt sluice_engine_receipt(const SluiceEngine *engine,
                                    uint32_t class_index, uint32_t bytes)
{
    const SluiceClass *class = class_at(engine, class_index);

    return (SluiceReceipt){
        .class_index = class_index,
        .bytes = charged_bytes(class, bytes),
        .class_serial = class->serial,
        .ceiling_serial = engine->ceiling_serial,
        .group_serial = engine->group_serial,
        .charged = !(class->special & SPECIAL_UNMANAGED),
    };
}

bool sluice_engine_has_charged(const SluiceEngine *engine,
                               const SluiceReceipt *receipt,
                               uint32_t class_index)
{
    return receipt->class_index == class_index
           && receipt->class_serial == class_at(engine, class_index)->serial;
}

static void correct_buckets(SluiceBucket *bucket, int64_t bytes,
                            SluiceBucket *operations, bool gives_operation,
                            uint64_t now_ns)
{
    if (bytes >= 0) {
        sluice_bucket_charge(bucket, bytes, now_ns);
    } else {
        sluice_bucket_credit(bucket, -(uint64_t)bytes, now_ns);
    }
    if (gives_operation) {
        sluice_bucket_credit(operations, 1, now_ns);
    }
}

/* Class and ceiling, if they are those that were charged. */
static void correct(SluiceEngine *engine, const SluiceReceipt *receipt,
                    int64_t bytes, bool gives_operation, uint64_t now_ns)
{
    uint32_t class_index = receipt->class_index;
    SluiceClass *class = class_at(engine, class_index);

    if (receipt->ceiling_serial == engine->ceiling_serial) {
        correct_buckets(&engine->ceiling_bytes, bytes,
                        &engine->ceiling_operations, gives_operation, now_ns);
    }
    if (!sluice_engine_has_charged(engine, receipt, class_index)) {
        return;
    }
    correct_buckets(&class->bytes, bytes, &class->operations, gives_operation,
                    now_ns);
    /* Its due time is another, unless it holds nothing. */
    if (class->place == PLACE_DUE
        || (class->place == PLACE_READY && !class_conforms(class, now_ns))) {
        engine_unplace(engine, class_index);
        engine_place(engine, class_index, now_ns);
    }
}

void sluice_engine_correct(SluiceEngine *engine, const SluiceReceipt *receipt,
                           int64_t bytes, uint64_t now_ns)
{
    if (!receipt->charged) {
        return;
    }
    now_ns = advance_clock(engine, now_ns);
    correct(engine, receipt, bytes, false, now_ns);
    if (receipt->group_serial == engine->group_serial) {
        engine_group_correct(engine->group, bytes, now_ns);
    }
}

void sluice_engine_refund(SluiceEngine *engine, const SluiceReceipt *receipt,
                          uint64_t now_ns)
{
    if (!receipt->charged) {
        return;
    }
    now_ns = advance_clock(engine, now_ns);
    correct(engine, receipt, -(int64_t)receipt->bytes, true, now_ns);
    if (receipt->group_serial == engine->group_serial) {
        engine_group_refund(engine->group, receipt->bytes, now_ns);
    }
}
