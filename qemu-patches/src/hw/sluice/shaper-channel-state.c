/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The channel in the migration stream: registers, subscriptions, calls and events that
 * wait. Its memories go with the machine's, records are in them. A delayed call goes with the
 * time that is left of its delay. Everything that came is checked before it is used.
 */
#include "qemu/osdep.h"
#include "migration/vmstate.h"
#include "qemu/error-report.h"
#include "shaper-internal.h"

static int prepare_to_save(void *opaque)
{
    ShaperChannel *channel = opaque;
    uint64_t now_ns = shaper_now_ns();
    SLUICE_LOCK_GUARD(&channel->lock);

    for (unsigned i = 0; i < channel->ring.delayed_count; i++) {
        SluiceDelayed *delayed = &channel->ring.delayed[i];

        delayed->call.delay_ms = delayed->due_ns > now_ns
            ? MIN(DIV_ROUND_UP(delayed->due_ns - now_ns, SCALE_MS),
                  SLUICE_CHANNEL_DELAY_MAX_MS) : 0;
    }
    return 0;
}

/* Registers and numbers of entries. */
static bool check_numbers(const ShaperChannel *channel)
{
    return channel->driver <= SLUICE_CHANNEL_VERSION && channel->port_map <= 1
           && channel->interrupt <= 1 && channel->events <= 1
           && (channel->driver || !channel->port_map)
           && channel->class_seq % 2 == 0
           && channel->ring.delayed_count <= SLUICE_CHANNEL_DELAYED
           && channel->pending_count <= SHAPER_CHANNEL_PENDING;
}

static bool check_waiting(const ShaperChannel *channel)
{
    for (unsigned i = 0; i < channel->ring.delayed_count; i++) {
        const SluiceChannelCall *call = &channel->ring.delayed[i].call;

        if (call->key >= SLUICE_CHANNEL_KINDS
            || call->delay_ms > SLUICE_CHANNEL_DELAY_MAX_MS) {
            return false;
        }
    }
    for (unsigned i = 0; i < channel->pending_count; i++) {
        const SluiceChannelEvent *event = &channel->pending[i];

        if (event->tag >= SLUICE_CHANNEL_TAGS
            || event->resource >= SLUICE_CHANNEL_RESOURCES
            || event->kind < SLUICE_EVENT_LIMITED
            || event->kind >= SLUICE_EVENT_KINDS) {
            return false;
        }
    }
    return true;
}

static bool check_subscriptions(const ShaperChannel *channel)
{
    for (unsigned tag = 0; tag < SLUICE_CHANNEL_TAGS; tag++) {
        const SluiceSubscription *subscription =
            &channel->upcalls.subscriptions[tag];
        SluiceEvents events;

        if (!sluice_events_subscribe(&events, 0, subscription->kinds,
                                     subscription->priority, 0)
            || subscription->above >> SLUICE_CHANNEL_RESOURCES) {
            return false;
        }
    }
    return true;
}

/* As without a driver. */
static void discard(ShaperChannel *channel)
{
    channel->driver = channel->port_map = 0;
    channel->interrupt = channel->events = 0;
    channel->ring.delayed_count = channel->pending_count = 0;
    memset(channel->upcalls.subscriptions, 0,
           sizeof(channel->upcalls.subscriptions));
}

static int check_loaded(void *opaque, int version_id)
{
    ShaperChannel *channel = opaque;
    Shaper *shaper = container_of(channel, Shaper, channel);
    uint64_t now_ns = shaper_now_ns();
    SLUICE_LOCK_GUARD(&channel->lock);

    if (!check_numbers(channel) || !check_waiting(channel)
        || !check_subscriptions(channel)) {
        error_report("shaper '%s': its channel is damaged in the migration "
                     "stream (driver %u, port map %u, %u delayed calls, %u "
                     "events); migrate from an undamaged source",
                     shaper_id(shaper), channel->driver, channel->port_map,
                     channel->ring.delayed_count, channel->pending_count);
        discard(channel);
        return -EINVAL;
    }
    for (unsigned i = 0; i < channel->ring.delayed_count; i++) {
        SluiceDelayed *delayed = &channel->ring.delayed[i];

        delayed->due_ns = now_ns + delayed->call.delay_ms * SCALE_MS;
    }
    shaper_channel_set_port_map(shaper, channel->port_map);
    shaper_channel_forget_records(channel);
    return 0;
}

static const VMStateDescription vmstate_delayed = {
    .name = "shaper-channel-delayed",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(call.service, SluiceDelayed),
        VMSTATE_UINT32(call.operation, SluiceDelayed),
        VMSTATE_UINT32(call.key, SluiceDelayed),
        VMSTATE_UINT32(call.delay_ms, SluiceDelayed),
        VMSTATE_UINT64_ARRAY(call.arguments, SluiceDelayed,
                             SLUICE_CHANNEL_ARGUMENTS),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_subscription = {
    .name = "shaper-channel-subscription",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT8(kinds, SluiceSubscription),
        VMSTATE_UINT8(priority, SluiceSubscription),
        VMSTATE_UINT8(above, SluiceSubscription),
        VMSTATE_UINT64(backlog_bytes, SluiceSubscription),
        VMSTATE_END_OF_LIST()
    },
};

static const VMStateDescription vmstate_event = {
    .name = "shaper-channel-event",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(time_ns, SluiceChannelEvent),
        VMSTATE_UINT8(kind, SluiceChannelEvent),
        VMSTATE_UINT8(tag, SluiceChannelEvent),
        VMSTATE_UINT8(resource, SluiceChannelEvent),
        VMSTATE_UINT64(datum, SluiceChannelEvent),
        VMSTATE_END_OF_LIST()
    },
};

const VMStateDescription vmstate_shaper_channel = {
    .name = "shaper-channel",
    .version_id = 1,
    .minimum_version_id = 1,
    .pre_save = prepare_to_save,
    .post_load = check_loaded,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(driver, ShaperChannel),
        VMSTATE_UINT32(port_map, ShaperChannel),
        VMSTATE_UINT32(interrupt, ShaperChannel),
        VMSTATE_UINT32(events, ShaperChannel),
        VMSTATE_UINT64(epoch, ShaperChannel),
        VMSTATE_UINT64(calls, ShaperChannel),
        VMSTATE_UINT64(calls_refused, ShaperChannel),
        VMSTATE_UINT64(deferred, ShaperChannel),
        VMSTATE_UINT64(deferred_failed, ShaperChannel),
        VMSTATE_UINT32(ring.tail, ShaperChannel),
        VMSTATE_UINT64(ring.refused, ShaperChannel),
        VMSTATE_UINT64(ring.replaced, ShaperChannel),
        VMSTATE_UINT32(ring.delayed_count, ShaperChannel),
        VMSTATE_STRUCT_ARRAY(ring.delayed, ShaperChannel,
                             SLUICE_CHANNEL_DELAYED, 1, vmstate_delayed,
                             SluiceDelayed),
        VMSTATE_UINT64(upcalls.head, ShaperChannel),
        VMSTATE_STRUCT_ARRAY(upcalls.subscriptions, ShaperChannel,
                             SLUICE_CHANNEL_TAGS, 1, vmstate_subscription,
                             SluiceSubscription),
        VMSTATE_UINT32(pending_count, ShaperChannel),
        VMSTATE_UINT32(pending_lost, ShaperChannel),
        VMSTATE_STRUCT_ARRAY(pending, ShaperChannel, SHAPER_CHANNEL_PENDING, 1,
                             vmstate_event, SluiceChannelEvent),
        VMSTATE_UINT32(class_seq, ShaperChannel),
        VMSTATE_END_OF_LIST()
    },
};
