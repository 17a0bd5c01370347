/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The sum of the charges to the buckets of a class, or of the ceiling, for requests
 * that have not gone on. Buckets have a serial, as in a receipt, that grows when either
 * of them begins anew or ends: earlier charges are not given back then, and not in the
 * sum. Pure, and all zero at first.
 *
 * Queues are looked through one after the other, so a receipt may come after one with
 * a later serial. Were the sum begun anew for each that differs, the earlier would
 * take the later out of it, and later be removed from a sum that it is not in.
 */
#ifndef SLUICE_PAID_H
#define SLUICE_PAID_H

#include "sluice/engine.h"

typedef struct SluicePaid {
    uint64_t bytes;
    uint64_t operations;
    uint32_t serial;            /* of the buckets that were charged */
} SluicePaid;

/* A request of which a receipt has this serial; the buckets have `serial_now`. */
static inline void sluice_paid_add(SluicePaid *paid, uint32_t serial,
                                   uint32_t bytes, uint32_t serial_now)
{
    if (paid->serial != serial_now) {
        *paid = (SluicePaid){ .serial = serial_now };
    }
    if (serial == serial_now) {
        paid->bytes += bytes;
        paid->operations++;
    }
}

/* Once, and with the same, of each that was added. */
static inline void sluice_paid_remove(SluicePaid *paid, uint32_t serial,
                                      uint32_t bytes)
{
    if (paid->serial == serial) {
        paid->bytes -= bytes;
        paid->operations--;
    }
}

/* To tokens of the buckets, which have `serial_now`. */
static inline void sluice_paid_give(const SluicePaid *paid, uint32_t serial_now,
                                    SluiceTokens *tokens)
{
    if (paid->serial != serial_now) {
        return;
    }
    if (tokens->bytes != SLUICE_TOKENS_UNLIMITED) {
        tokens->bytes += paid->bytes;
    }
    if (tokens->operations != SLUICE_TOKENS_UNLIMITED) {
        tokens->operations += paid->operations;
    }
}

#endif
