/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The channel's registers, its memory and its life (docs/specs/channel.md). Calls are in
 * shaper-channel-calls.c; what the host tells of itself, and reads of records, in
 * shaper-channel-show.c; migration in shaper-channel-state.c.
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
 *
 * Stop. While the machine stands, a migration may have sent the memory already: nothing
 * is written to it, and events wait in the host.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "shaper-internal.h"

/* Memory */

void shaper_channel_wrote_host(ShaperChannel *channel, const void *at,
                               size_t bytes)
{
    memory_region_set_dirty(channel->host_memory,
                            (const char *)at - (const char *)channel->host,
                            bytes);
}

void shaper_channel_write_header(ShaperChannel *channel)
{
    SluiceChannelHeader *header = &channel->host->header;

    qatomic_set(&header->ring_tail, cpu_to_le32(channel->ring.tail));
    qatomic_set(&header->calls, cpu_to_le64(channel->calls));
    qatomic_set(&header->calls_refused, cpu_to_le64(channel->calls_refused));
    qatomic_set(&header->deferred, cpu_to_le64(channel->deferred));
    qatomic_set(&header->deferred_refused,
                cpu_to_le64(channel->deferred_failed + channel->ring.refused));
    qatomic_set(&header->deferred_replaced, cpu_to_le64(channel->ring.replaced));
    qatomic_set(&header->granted, cpu_to_le32(channel->granted));
    shaper_channel_wrote_host(channel, header, sizeof(*header));
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
    header->event_head = cpu_to_le64(channel->upcalls.head);
    memcpy(header->magic, SLUICE_CHANNEL_HEADER_MAGIC, sizeof(header->magic));
    shaper_channel_write_services(channel);
    shaper_channel_wrote_host(channel, channel->host, sizeof(*channel->host));
    shaper_channel_forget_calls(channel);
    shaper_channel_write_header(channel);
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

void shaper_channel_set_port_map(Shaper *shaper, bool on)
{
    ShaperChannel *channel = &shaper->channel;

    qatomic_set(&channel->port_map, on);
    shaper_set_port_map(shaper, on ? channel->guest->port_map : NULL);
}

/* Caller holds the lock. */
static void end_driver(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;

    qatomic_set(&channel->driver, 0);
    shaper_channel_set_port_map(shaper, false);
    memset(channel->upcalls.subscriptions, 0,
           sizeof(channel->upcalls.subscriptions));
    channel->pending_count = channel->pending_lost = 0;
    shaper_channel_forget_calls(channel);
    shaper_channel_forget_records(channel);
}

/* Caller holds the lock. */
static void set_driver(Shaper *shaper, uint32_t version)
{
    ShaperChannel *channel = &shaper->channel;

    if (!version || version > SLUICE_CHANNEL_VERSION) {
        end_driver(shaper);
        shaper_channel_write_header(channel);
        return;
    }
    qatomic_set(&channel->driver, version);
    channel->show_ns = 0;
    shaper_channel_set_timer(channel, shaper_request_now_ns());
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
        shaper_channel_set_port_map(shaper, value == 1 && channel->driver);
        break;
    case SLUICE_CHANNEL_REG_CALL:
        if (value < SLUICE_CHANNEL_SLOTS && channel->driver) {
            shaper_channel_call(shaper, value);
        }
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

/* Caller holds the lock. A tenth of a second's calls may come at once, and ten times as
 * many deferred ones. */
static void set_rates(ShaperChannel *channel, uint32_t calls_max)
{
    uint64_t now_ns = shaper_request_now_ns();

    qatomic_set(&channel->calls_max, calls_max);
    channel->bucket = channel->ring.bucket = (SluiceBucket){ 0 };
    sluice_bucket_configure(&channel->bucket, calls_max,
                            MAX(calls_max / 10, 1), now_ns);
    sluice_bucket_configure(&channel->ring.bucket, 10ULL * calls_max,
                            calls_max, now_ns);
}

/* Caller holds the lock. */
static void borrow(Shaper *shaper, const ShaperChannelDevice *lent)
{
    ShaperChannel *channel = &shaper->channel;

    channel->guest_memory = lent->guest_memory;
    channel->host_memory = lent->host_memory;
    channel->interrupt_bh = lent->interrupt_bh;
    channel->host = memory_region_get_ram_ptr(lent->host_memory);
    qatomic_set(&channel->guest, memory_region_get_ram_ptr(lent->guest_memory));
    set_rates(channel, lent->calls_max);
    channel->epoch = get_clock();
    channel->calls = channel->calls_refused = 0;
    channel->deferred = channel->deferred_failed = 0;
    channel->ring.refused = channel->ring.replaced = 0;
    channel->records_refused = channel->upcalls.head = 0;
    shaper_channel_forget_records(channel);
}

bool shaper_channel_attach(Shaper *shaper, const ShaperChannelDevice *lent,
                           Error **errp)
{
    ShaperChannel *channel = &shaper->channel;

    if (channel->device) {
        error_setg(errp, "shaper '%s' has a channel, the device '%s'; remove "
                   "that first, or name another shaper", shaper_id(shaper),
                   channel->device->id
                   ?: object_get_typename(OBJECT(channel->device)));
        return false;
    }
    channel->device = lent->device;
    channel->timer = shaper_timer_new(qemu_get_aio_context(),
                                      shaper_channel_timer_cb, shaper);
    WITH_SLUICE_LOCK(&channel->lock) {
        borrow(shaper, lent);
    }
    shaper_channel_configure(shaper);
    return true;
}

void shaper_channel_detach(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;

    WITH_SLUICE_LOCK(&channel->lock) {
        end_driver(shaper);
        qatomic_set(&channel->guest, NULL);
    }
    timer_free(channel->timer);
    channel->timer = NULL;
    channel->device = NULL;
}

void shaper_channel_reset(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;

    WITH_SLUICE_LOCK(&channel->lock) {
        channel->epoch++;
        channel->upcalls.head = 0;
        end_driver(shaper);
        qatomic_set(&channel->interrupt, 0);
        qatomic_set(&channel->events, 0);
        qemu_bh_schedule(channel->interrupt_bh);
        clear_memory(channel);
    }
}

void shaper_channel_set_running(Shaper *shaper, bool running)
{
    ShaperChannel *channel = &shaper->channel;
    SLUICE_LOCK_GUARD(&channel->lock);

    channel->running = running;
    if (running) {
        shaper_channel_flush_events(channel);
        channel->show_ns = 0;
        shaper_channel_set_timer(channel, shaper_request_now_ns());
        qemu_bh_schedule(channel->interrupt_bh);
    }
}
