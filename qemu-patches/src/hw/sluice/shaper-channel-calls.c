/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Calls of the guest: fast ones, by a register, and deferred ones, by the ring.
 *
 * A fast call is carried out by the processor that makes it, before its write of the
 * register returns: nothing here waits for another thread but for a lock that is held for
 * microseconds. Whatever would take longer is answered `slow`, and asked on the port.
 *
 * The ring is looked at in three moments: when a guest tells a shaped queue that there is
 * something, at a fast call, and by the timer. The first costs a disk or a card one load
 * when there is nothing, and never a wait: if another thread has the lock, the
 * timer comes soon.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "shaper-internal.h"

#define LOOK_NS         (10 * SCALE_MS)
#define BUSY_NS         (1000 * SCALE_MS)
#define SHOW_NS         (250 * SCALE_MS)

/* Services */

typedef SluiceCallStatus ServiceFn(Shaper *shaper, const SluiceChannelCall *call,
                                   uint64_t now_ns, uint64_t *value);

typedef struct Service {
    char name[SLUICE_CHANNEL_NAME_BYTES];       /* NUL-padded */
    uint32_t number;
    ServiceFn *fn;
} Service;

static ServiceFn channel_service;

static SluiceCallStatus classes_service(Shaper *shaper,
                                        const SluiceChannelCall *call,
                                        uint64_t now_ns, uint64_t *value)
{
    if (call->operation != SLUICE_CLASSES_REFRESH) {
        return SLUICE_CALL_UNKNOWN;
    }
    if (!shaper->channel.is_shown) {
        shaper_channel_show(shaper, now_ns);
    }
    *value = shaper->channel.granted;
    return SLUICE_CALL_OK;
}

static SluiceCallStatus events_service(Shaper *shaper,
                                       const SluiceChannelCall *call,
                                       uint64_t now_ns, uint64_t *value)
{
    ShaperChannel *channel = &shaper->channel;
    uint64_t tag = call->arguments[0];

    if (call->operation > SLUICE_EVENTS_ECHO) {
        return SLUICE_CALL_UNKNOWN;
    }
    if (tag >= SLUICE_CHANNEL_TAGS) {
        return SLUICE_CALL_BAD;
    }
    if (!(channel->granted >> tag & 1)) {
        return SLUICE_CALL_DENIED;
    }
    if (call->operation == SLUICE_EVENTS_ECHO) {
        shaper_channel_echo(channel, tag, call->arguments[1]);
        return SLUICE_CALL_OK;
    }
    return sluice_events_subscribe(&channel->upcalls, tag, call->arguments[1],
                                   call->arguments[2], call->arguments[3])
           ? SLUICE_CALL_OK : SLUICE_CALL_BAD;
}

static SluiceCallStatus streams_service(Shaper *shaper,
                                        const SluiceChannelCall *call,
                                        uint64_t now_ns, uint64_t *value)
{
    uint64_t i = call->arguments[0];

    if (call->operation > SLUICE_RECORD_REMOVE) {
        return SLUICE_CALL_UNKNOWN;
    }
    if (i >= SLUICE_CHANNEL_STREAMS) {
        return SLUICE_CALL_BAD;
    }
    if (call->operation == SLUICE_RECORD_REMOVE) {
        shaper_channel_remove_stream(&shaper->channel, i);
        return SLUICE_CALL_OK;
    }
    return shaper_channel_read_stream(&shaper->channel, i, true);
}

static SluiceCallStatus servers_service(Shaper *shaper,
                                        const SluiceChannelCall *call,
                                        uint64_t now_ns, uint64_t *value)
{
    uint64_t i = call->arguments[0];

    if (call->operation > SLUICE_RECORD_REMOVE) {
        return SLUICE_CALL_UNKNOWN;
    }
    if (i >= SLUICE_CHANNEL_SERVERS) {
        return SLUICE_CALL_BAD;
    }
    if (call->operation == SLUICE_RECORD_REMOVE) {
        shaper_channel_remove_server(&shaper->channel, i);
        return SLUICE_CALL_OK;
    }
    return shaper_channel_read_server(&shaper->channel, i, true);
}

static const Service services[] = {
    { "channel", SLUICE_SERVICE_CHANNEL, channel_service },
    { "classes", SLUICE_SERVICE_CLASSES, classes_service },
    { "events", SLUICE_SERVICE_EVENTS, events_service },
    { "streams", SLUICE_SERVICE_STREAMS, streams_service },
    { "servers", SLUICE_SERVICE_SERVERS, servers_service },
};

QEMU_BUILD_BUG_ON(ARRAY_SIZE(services) > SLUICE_CHANNEL_SERVICES);

static SluiceCallStatus find_service(const SluiceChannelCall *call,
                                     uint64_t *value)
{
    uint64_t name[SLUICE_CHANNEL_NAME_BYTES / sizeof(uint64_t)];

    for (unsigned i = 0; i < ARRAY_SIZE(name); i++) {
        name[i] = cpu_to_le64(call->arguments[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(services); i++) {
        if (!memcmp(services[i].name, name, sizeof(name))) {
            *value = services[i].number;
            return SLUICE_CALL_OK;
        }
    }
    return SLUICE_CALL_UNKNOWN;
}

static SluiceCallStatus channel_service(Shaper *shaper,
                                        const SluiceChannelCall *call,
                                        uint64_t now_ns, uint64_t *value)
{
    switch (call->operation) {
    case SLUICE_CHANNEL_PING:
        *value = call->arguments[0];
        return SLUICE_CALL_OK;
    case SLUICE_CHANNEL_FIND:
        return find_service(call, value);
    default:
        return SLUICE_CALL_UNKNOWN;
    }
}

void shaper_channel_write_services(ShaperChannel *channel)
{
    for (unsigned i = 0; i < ARRAY_SIZE(services); i++) {
        SluiceChannelService *entry = &channel->host->services[i];

        memcpy(entry->name, services[i].name, sizeof(entry->name));
        entry->number = cpu_to_le32(services[i].number);
        entry->version = cpu_to_le32(1);
    }
}

static SluiceCallStatus carry_out(Shaper *shaper, const SluiceChannelCall *call,
                                  uint64_t now_ns, uint64_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(services); i++) {
        if (services[i].number == call->service) {
            return services[i].fn(shaper, call, now_ns, value);
        }
    }
    return SLUICE_CALL_UNKNOWN;
}

/* Deferred calls. The caller holds the lock. */

static void carry_out_batch(Shaper *shaper, unsigned count, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;

    channel->is_shown = false;
    for (unsigned i = 0; i < count; i++) {
        uint64_t value;

        if (carry_out(shaper, &channel->ring.batch[i], now_ns, &value)
            == SLUICE_CALL_OK) {
            channel->deferred++;
        } else {
            channel->deferred_failed++;
        }
    }
}

/* True: an entry was taken. */
static bool drain(Shaper *shaper, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;
    uint32_t tail = channel->ring.tail;
    unsigned count;

    if (!sluice_ring_waits(&channel->ring, channel->guest)) {
        return false;
    }
    count = sluice_ring_take(&channel->ring, channel->guest, now_ns);
    carry_out_batch(shaper, count, now_ns);
    return channel->ring.tail != tail;
}

/* Carries out the calls that wait; the timer looks more often for a while. */
static void drain_now(Shaper *shaper, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;

    if (drain(shaper, now_ns)) {
        bool was_busy = now_ns < channel->busy_until_ns;

        channel->busy_until_ns = now_ns + BUSY_NS;
        shaper_channel_write_header(channel);
        if (!was_busy) {
            shaper_channel_set_timer(channel, now_ns);
        }
    }
}

void shaper_channel_kick(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;
    SluiceChannelGuest *guest;

    if (!qatomic_read(&channel->guest)) {
        return;
    }
    RCU_READ_LOCK_GUARD();
    guest = qatomic_rcu_read(&channel->guest);
    if (guest && sluice_ring_waits(&channel->ring, guest)
        && qatomic_read(&channel->driver) && sluice_trylock(&channel->lock)) {
        if (channel->guest && channel->driver && channel->running) {
            drain_now(shaper, shaper_request_now_ns());
        }
        sluice_unlock(&channel->lock);
    }
}

void shaper_channel_forget_calls(ShaperChannel *channel)
{
    sluice_ring_forget(&channel->ring, channel->guest);
    channel->busy_until_ns = 0;
}

/* Timer */

void shaper_channel_set_timer(ShaperChannel *channel, uint64_t now_ns)
{
    uint64_t due_ns = sluice_ring_due_ns(&channel->ring);
    uint64_t next_ns = MIN(channel->show_ns, now_ns + SHOW_NS);

    if (now_ns < channel->busy_until_ns) {
        next_ns = MIN(next_ns, now_ns + LOOK_NS);
    }
    next_ns = MIN(next_ns, MAX(due_ns, now_ns + LOOK_NS));
    if (channel->driver && channel->running) {
        timer_mod_ns(channel->timer, MAX(next_ns, now_ns));
    }
}

static void look(Shaper *shaper, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;

    if (drain(shaper, now_ns)) {
        channel->busy_until_ns = now_ns + BUSY_NS;
    }
    carry_out_batch(shaper, sluice_ring_due(&channel->ring, now_ns), now_ns);
    if (now_ns >= channel->show_ns) {
        shaper_channel_show(shaper, now_ns);
    }
    shaper_channel_write_header(channel);
    shaper_channel_set_timer(channel, now_ns);
}

void shaper_channel_timer_cb(void *opaque)
{
    Shaper *shaper = opaque;
    ShaperChannel *channel = &shaper->channel;
    uint64_t now_ns = shaper_now_ns();

    if (!sluice_trylock(&channel->lock)) {
        timer_mod_ns(channel->timer, now_ns + LOOK_NS);
        return;
    }
    if (channel->guest && channel->driver && channel->running) {
        look(shaper, now_ns);
    }
    sluice_unlock(&channel->lock);
}

/* Fast calls */

static void write_result(ShaperChannel *channel, unsigned slot,
                         uint32_t sequence, SluiceCallStatus status,
                         uint64_t value)
{
    SluiceChannelResult *result = &channel->host->results[slot];

    qatomic_set(&result->status, cpu_to_le32(status));
    qatomic_set(&result->value, cpu_to_le64(value));
    qatomic_store_release(&result->sequence, cpu_to_le32(sequence));
    shaper_channel_wrote_host(channel, result, sizeof(*result));
    shaper_channel_write_header(channel);
}

void shaper_channel_call(Shaper *shaper, unsigned slot)
{
    ShaperChannel *channel = &shaper->channel;
    const SluiceChannelCall *from = &channel->guest->calls[slot];
    uint64_t now_ns = shaper_request_now_ns(), value;
    SluiceChannelCall call;
    SluiceCallStatus status;

    if (!sluice_bucket_conforms(&channel->bucket, now_ns)) {
        channel->calls_refused++;
        write_result(channel, slot, sluice_guest_load(&from->key),
                     SLUICE_CALL_BUSY, 0);
        return;
    }
    sluice_bucket_charge(&channel->bucket, 1, now_ns);
    drain_now(shaper, now_ns);
    sluice_call_load(&call, from);
    channel->is_shown = false;
    status = carry_out(shaper, &call, now_ns, &value);
    channel->calls++;
    write_result(channel, slot, call.key, status, value);
}
