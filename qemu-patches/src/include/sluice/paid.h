/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The sum of what was charged to the buckets of a class, or to the ceiling's, for
 * requests that have not gone on. Buckets have a serial, as in a receipt, that grows
 * when either of them begins anew or ends: what was charged before is not given back
 * then, and not in the sum. Pure, and all zero at first.
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
void sluice_paid_add(SluicePaid *paid, uint32_t serial, uint32_t bytes,
                     uint32_t serial_now);
/* Once, and with the same, of each that was added. */
void sluice_paid_remove(SluicePaid *paid, uint32_t serial, uint32_t bytes);
/* To tokens of the buckets, which have `serial_now`. */
void sluice_paid_give(const SluicePaid *paid, uint32_t serial_now,
                      SluiceTokens *tokens);

#endif
