/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The page of a device's gate, as the controller makes it. */
#ifndef GATE_PAGE_FIXTURE_H
#define GATE_PAGE_FIXTURE_H

#include <string.h>

#include "sluice/gate.h"

/* Without members, and with the first window. */
static inline void make_gate_page(SluiceGatePage *page, uint64_t flags)
{
    memset(page, 0, sizeof(*page));
    memcpy(page->magic, SLUICE_GATE_MAGIC, SLUICE_GROUP_MAGIC_BYTES);
    page->version = SLUICE_GATE_VERSION;
    page->header_bytes = SLUICE_GATE_HEADER_BYTES;
    page->slot_bytes = sizeof(SluiceGateSlot);
    page->slot_count = SLUICE_GATE_SLOTS;
    page->flags = flags;
}

#endif
