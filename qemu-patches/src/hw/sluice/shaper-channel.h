/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The host's end of the channel, which is a part of the shaper: shaper-channel*.c. The PCI
 * device (channel.c) lends it the memory and the interrupt, from its realization to its end.
 */
#ifndef HW_SLUICE_SHAPER_CHANNEL_H
#define HW_SLUICE_SHAPER_CHANNEL_H

#include "exec/memory.h"
#include "qemu/main-loop.h"
#include "sluice/channel-abi.h"
#include "sluice/lock.h"

typedef struct Shaper Shaper;

/*
 * It lives as long as its shaper, so that any thread may come at any time; the memory is
 * there while `guest` is not NULL, and goes by RCU.
 */
typedef struct ShaperChannel {
    SluiceLock lock;            /* guards everything here; taken before an engine's */
    SluiceChannelGuest *guest;  /* atomic; NULL: there is no device */
    SluiceChannelHost *host;
    MemoryRegion *guest_memory;
    MemoryRegion *host_memory;
    QEMUBH *interrupt_bh;       /* sets the interrupt's level */
    DeviceState *device;        /* BQL */
    /* Registers: atomic, written under the lock */
    uint32_t driver;
    uint32_t port_map;
    uint32_t interrupt;
    uint32_t events;
    uint32_t calls_max;
    uint64_t epoch;
} ShaperChannel;

/* What the device lends. */
typedef struct ShaperChannelDevice {
    DeviceState *device;
    MemoryRegion *guest_memory;
    MemoryRegion *host_memory;
    uint32_t calls_max;
    QEMUBH *interrupt_bh;
} ShaperChannelDevice;

extern const VMStateDescription vmstate_shaper_channel;

/* BQL. False, with an error, if the shaper has a channel. */
bool shaper_channel_attach(Shaper *shaper, const ShaperChannelDevice *lent,
                           Error **errp);
void shaper_channel_detach(Shaper *shaper);
void shaper_channel_reset(Shaper *shaper);
ShaperChannel *shaper_channel_of(Shaper *shaper);
/* Registers: any thread. */
uint32_t shaper_channel_read(Shaper *shaper, unsigned offset);
void shaper_channel_write(Shaper *shaper, unsigned offset, uint32_t value);
/* The level of the interrupt. */
bool shaper_channel_interrupts(Shaper *shaper);

#endif
