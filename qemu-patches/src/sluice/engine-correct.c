/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's charges, corrected: what a request was charged is not always its cost (cost.h),
 * and some that were charged go nowhere.
 */
#include "engine-internal.h"

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
    if (engine->group && receipt->group_serial == engine->group_serial) {
        sluice_group_correct(engine->group, bytes, now_ns);
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
    if (engine->group && receipt->group_serial == engine->group_serial) {
        sluice_group_refund(engine->group, receipt->bytes, now_ns);
    }
}
