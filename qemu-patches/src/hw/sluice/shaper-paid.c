/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that were charged and have not gone on: a stop, a reset or an unplug found
 * them released, and their device had not taken them yet.
 *
 * After a stop such a request goes on without another charge if it still is what was
 * charged: the guest may have made another of it meanwhile, and its class may be
 * another. If it goes nowhere, or is judged anew, who was charged gets that back. The
 * receipt says who that was.
 *
 * Migration. Devices send their requests without saying which of them were charged, in
 * a format that is QEMU's; the target judges them all. So the charge does not travel:
 * what the buckets hold is sent as if these requests had not been charged yet. A bucket
 * has room for no more than its burst: what goes beyond is lost, and nothing is given.
 * The source keeps the charge, as it may have to go on itself.
 */
#include "qemu/osdep.h"
#include "shaper-internal.h"
#include "trace.h"

/* Stop and what comes after it */

void shaper_paid_stop(ShaperEngine *e, ShaperRequest *request)
{
    const SluiceReceipt *receipt = &request->receipt;

    request->paid = true;
    request->counted = receipt->charged;
    if (request->counted) {
        SluiceReceipt now = sluice_engine_receipt(e->engine,
                                                  receipt->class_index, 0);

        sluice_paid_add(&e->paid[receipt->class_index], receipt->class_serial,
                        receipt->bytes, now.class_serial);
        sluice_paid_add(&e->paid_ceiling, receipt->ceiling_serial,
                        receipt->bytes, now.ceiling_serial);
    }
}

void shaper_paid_goes_on(ShaperEngine *e, ShaperRequest *request)
{
    const SluiceReceipt *receipt = &request->receipt;

    request->paid = false;
    if (request->counted) {
        request->counted = false;
        sluice_paid_remove(&e->paid[receipt->class_index],
                           receipt->class_serial, receipt->bytes);
        sluice_paid_remove(&e->paid_ceiling, receipt->ceiling_serial,
                           receipt->bytes);
    }
}

void shaper_engine_refund(ShaperEngine *e, ShaperRequest *request,
                          uint64_t now_ns)
{
    shaper_paid_goes_on(e, request);
    trace_shaper_refund(request, shaper_resource_name(e->resource),
                        request->receipt.class_index, request->receipt.bytes);
    sluice_engine_refund(e->engine, &request->receipt, now_ns);
    shaper_engine_arm_timer(e);
}

void shaper_paid_check(ShaperEngine *e, ShaperRequest *request, unsigned tag,
                       uint32_t bytes, uint64_t now_ns)
{
    if (bytes > request->node.bytes
        || !sluice_engine_has_charged(e->engine, &request->receipt, tag)) {
        shaper_engine_refund(e, request, now_ns);
    }
}

void shaper_paid_check_resource(ShaperRequest *request, ShaperResource resource,
                                uint64_t now_ns)
{
    if (request->resource != resource) {
        ShaperEngine *e = &request->client->shaper->engines[request->resource];
        SLUICE_LOCK_GUARD(&e->lock);

        shaper_engine_refund(e, request, now_ns);
    }
}

void shaper_forget(ShaperRequest *request)
{
    if (request->paid) {
        ShaperEngine *e = &request->client->shaper->engines[request->resource];
        SLUICE_LOCK_GUARD(&e->lock);

        shaper_engine_refund(e, request, shaper_now_ns());
    }
}

/* Migration */

SluiceTokens shaper_paid_tokens(const ShaperEngine *e, unsigned tag,
                                uint64_t now_ns)
{
    SluiceReceipt now = sluice_engine_receipt(e->engine, tag, 0);
    SluiceTokens tokens = sluice_engine_tokens(e->engine, tag, now_ns);

    sluice_paid_give(&e->paid[tag], now.class_serial, &tokens);
    return tokens;
}

SluiceTokens shaper_paid_ceiling_tokens(const ShaperEngine *e, uint64_t now_ns)
{
    SluiceReceipt now = sluice_engine_receipt(e->engine, SLUICE_TAG_DEFAULT, 0);
    SluiceTokens tokens = sluice_engine_ceiling_tokens(e->engine, now_ns);

    sluice_paid_give(&e->paid_ceiling, now.ceiling_serial, &tokens);
    return tokens;
}
