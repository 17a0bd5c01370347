/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Queues are looked through one after the other, so a receipt may come after one with
 * a later serial. Were the sum begun anew for each that differs, the earlier would
 * take the later out of it, and later be removed from a sum that it is not in.
 */
#include "sluice/paid.h"

void sluice_paid_add(SluicePaid *paid, uint32_t serial, uint32_t bytes,
                     uint32_t serial_now)
{
    if (paid->serial != serial_now) {
        *paid = (SluicePaid){ .serial = serial_now };
    }
    if (serial == serial_now) {
        paid->bytes += bytes;
        paid->operations++;
    }
}

void sluice_paid_remove(SluicePaid *paid, uint32_t serial, uint32_t bytes)
{
    if (paid->serial == serial) {
        paid->bytes -= bytes;
        paid->operations--;
    }
}

void sluice_paid_give(const SluicePaid *paid, uint32_t serial_now,
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
