/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The channel's registers and memory (docs/specs/channel.md).
 *
 * Threads. A register is read and written by a processor without the BQL, where the
 * accelerator lets it: a guest that calls waits for no disk, monitor or migration, and
 * holds up none. The lock is held for short, without calls that wait. The interrupt is
 * the main loop's: its level is set there, by a bottom half.
 *
 * Port map. Frames are classified under the BQL, and so the device goes under it: who
 * classifies a frame finds either no map, or memory that stays until the frame is
 * classified. A processor that writes the register while a device goes finds, under the
 * lock, that it has gone.
 */
#include "qemu/osdep.h"
#include "migration/vmstate.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "shaper-internal.h"

/* Memory */

/* Caller holds the lock. Tells a migration what the host has written. */
static void wrote_host(ShaperChannel *channel, const void *at, size_t bytes)
{
    memory_region_set_dirty(channel->host_memory,
                            (const char *)at - (const char *)channel->host,
                            bytes);
}

/* Caller holds the lock. */
static void clear_memory(ShaperChannel *channel)
{
    SluiceChannelHeader *header = &channel->host->header;

    memset(channel->guest, 0, sizeof(*channel->guest));
    memory_region_set_dirty(channel->guest_memory, 0, sizeof(*channel->guest));
    memset(channel->host, 0, sizeof(*channel->host));
    header->version = cpu_to_le32(SLUICE_CHANNEL_VERSION);
    header->epoch = cpu_to_le64(channel->epoch);
    memcpy(header->magic, SLUICE_CHANNEL_HEADER_MAGIC, sizeof(header->magic));
    wrote_host(channel, channel->host, sizeof(*channel->host));
}

/* Registers */

void shaper_set_port_map(Shaper *shaper, const uint8_t *map)
{
    qatomic_store_release(&shaper->port_map, map);
}

const uint8_t *shaper_port_map(const Shaper *shaper)
{
    return qatomic_load_acquire(&shaper->port_map);
}

/* Caller holds the lock. */
static void set_port_map(Shaper *shaper, bool on)
{
    ShaperChannel *channel = &shaper->channel;

    qatomic_set(&channel->port_map, on);
    shaper_set_port_map(shaper, on ? channel->guest->port_map : NULL);
}

/* Caller holds the lock. */
static void set_driver(Shaper *shaper, uint32_t version)
{
    ShaperChannel *channel = &shaper->channel;

    if (version > SLUICE_CHANNEL_VERSION) {
        version = 0;
    }
    qatomic_set(&channel->driver, version);
    if (!version) {
        set_port_map(shaper, false);
    }
}

bool shaper_channel_interrupts(Shaper *shaper)
{
    return qatomic_read(&shaper->channel.interrupt)
           && qatomic_read(&shaper->channel.events);
}

/* Caller holds the lock. */
static void write_register(Shaper *shaper, unsigned offset, uint32_t value)
{
    ShaperChannel *channel = &shaper->channel;

    switch (offset) {
    case SLUICE_CHANNEL_REG_DRIVER:
        set_driver(shaper, value);
        break;
    case SLUICE_CHANNEL_REG_PORT_MAP:
        set_port_map(shaper, value == 1 && channel->driver);
        break;
    case SLUICE_CHANNEL_REG_INTERRUPT:
        if (value & 1) {
            qatomic_set(&channel->interrupt, 0);
            qemu_bh_schedule(channel->interrupt_bh);
        }
        break;
    case SLUICE_CHANNEL_REG_EVENTS:
        qatomic_set(&channel->events, value == 1);
        qemu_bh_schedule(channel->interrupt_bh);
        break;
    }
}

void shaper_channel_write(Shaper *shaper, unsigned offset, uint32_t value)
{
    ShaperChannel *channel = &shaper->channel;
    SLUICE_LOCK_GUARD(&channel->lock);

    if (channel->guest) {
        write_register(shaper, offset, value);
    }
}

uint32_t shaper_channel_read(Shaper *shaper, unsigned offset)
{
    ShaperChannel *channel = &shaper->channel;

    switch (offset) {
    case SLUICE_CHANNEL_REG_MAGIC:
        return SLUICE_CHANNEL_MAGIC;
    case SLUICE_CHANNEL_REG_VERSION:
        return SLUICE_CHANNEL_VERSION;
    case SLUICE_CHANNEL_REG_DRIVER:
        return qatomic_read(&channel->driver);
    case SLUICE_CHANNEL_REG_PORT_MAP:
        return qatomic_read(&channel->port_map);
    case SLUICE_CHANNEL_REG_INTERRUPT:
        return qatomic_read(&channel->interrupt);
    case SLUICE_CHANNEL_REG_EVENTS:
        return qatomic_read(&channel->events);
    case SLUICE_CHANNEL_REG_CALLS_MAX:
        return qatomic_read(&channel->calls_max);
    default:
        return 0;
    }
}

/* Life cycle */

ShaperChannel *shaper_channel_of(Shaper *shaper)
{
    return &shaper->channel;
}

bool shaper_channel_attach(Shaper *shaper, const ShaperChannelDevice *lent,
                           Error **errp)
{
    ShaperChannel *channel = &shaper->channel;

    if (channel->device) {
        error_setg(errp, "shaper '%s' has a channel, the device '%s'; remove "
                   "that first, or name another shaper", shaper_id(shaper),
                   channel->device->id ?: object_get_typename(OBJECT(channel->device)));
        return false;
    }
    channel->device = lent->device;
    WITH_SLUICE_LOCK(&channel->lock) {
        channel->guest_memory = lent->guest_memory;
        channel->host_memory = lent->host_memory;
        channel->interrupt_bh = lent->interrupt_bh;
        qatomic_set(&channel->calls_max, lent->calls_max);
        channel->host = memory_region_get_ram_ptr(lent->host_memory);
        qatomic_set(&channel->guest,
                    memory_region_get_ram_ptr(lent->guest_memory));
        channel->epoch = get_clock();
    }
    return true;
}

void shaper_channel_detach(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;

    WITH_SLUICE_LOCK(&channel->lock) {
        set_driver(shaper, 0);
        qatomic_set(&channel->guest, NULL);
    }
    channel->device = NULL;
}

void shaper_channel_reset(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;

    WITH_SLUICE_LOCK(&channel->lock) {
        channel->epoch++;
        set_driver(shaper, 0);
        qatomic_set(&channel->interrupt, 0);
        qatomic_set(&channel->events, 0);
        qemu_bh_schedule(channel->interrupt_bh);
        clear_memory(channel);
    }
}

/* Migration: the memories go with the machine's. */

static int check_loaded(void *opaque, int version_id)
{
    ShaperChannel *channel = opaque;
    Shaper *shaper = container_of(channel, Shaper, channel);

    if (channel->driver > SLUICE_CHANNEL_VERSION || channel->port_map > 1
        || channel->interrupt > 1 || channel->events > 1
        || (channel->port_map && !channel->driver)) {
        error_report("shaper '%s': the channel's registers in the migration "
                     "stream are damaged (driver %u, port map %u, interrupt "
                     "%u, events %u); migrate from an undamaged source",
                     shaper_id(shaper), channel->driver, channel->port_map,
                     channel->interrupt, channel->events);
        return -EINVAL;
    }
    WITH_SLUICE_LOCK(&channel->lock) {
        set_port_map(shaper, channel->port_map);
    }
    return 0;
}

const VMStateDescription vmstate_shaper_channel = {
    .name = "shaper-channel",
    .version_id = 1,
    .minimum_version_id = 1,
    .post_load = check_loaded,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(driver, ShaperChannel),
        VMSTATE_UINT32(port_map, ShaperChannel),
        VMSTATE_UINT32(interrupt, ShaperChannel),
        VMSTATE_UINT32(events, ShaperChannel),
        VMSTATE_UINT64(epoch, ShaperChannel),
        VMSTATE_END_OF_LIST()
    },
};
