/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Words that host and guest show each other in the channel's memory: the host's on its classes,
 * the guest's on its streams and servers; and the events.
 *
 * Classes are shown as they are known under the channel's lock: a processor that asks for
 * them has no BQL, so a copy of their configuration is kept here.
 *
 * A record is read again when its sequence is another than at the last look, or when the
 * grants have changed; so records that rest cost a load each, and one that is refused is
 * counted once.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-sluice.h"
#include "shaper-internal.h"

#define SHOW_NS         (250 * SCALE_MS)
#define NOT_SEEN        UINT64_MAX

QEMU_BUILD_BUG_ON(SLUICE_CHANNEL_TAGS != SHAPER_CLASSES);
QEMU_BUILD_BUG_ON(SLUICE_CHANNEL_RESOURCES != (int)SHAPER_RESOURCE__MAX);
QEMU_BUILD_BUG_ON(SLUICE_CHANNEL_CLASS_NAME_BYTES != SHAPER_PAGE_NAME_BYTES);

/* Events */

/* Caller holds the lock. The guest wants it. */
static void make_event(ShaperChannel *channel, const SluiceChannelEvent *event)
{
    SluiceChannelHost *host = channel->host;

    if (!channel->running) {
        if (channel->pending_count < SHAPER_CHANNEL_PENDING) {
            channel->pending[channel->pending_count++] = *event;
        } else {
            channel->pending_lost++;
        }
        return;
    }
    if (sluice_events_make(&channel->upcalls, channel->guest, host, event)) {
        qatomic_set(&channel->interrupt, 1);
        qemu_bh_schedule(channel->interrupt_bh);
    }
    shaper_channel_wrote_host(
        channel, &host->events[sluice_event_slot(channel->upcalls.head)],
        sizeof(host->events[0]));
    shaper_channel_wrote_host(channel, &host->header, sizeof(host->header));
    memory_region_set_dirty(channel->guest_memory,
                            offsetof(SluiceChannelGuest, pattern),
                            sizeof(channel->guest->pattern));
}

void shaper_channel_flush_events(ShaperChannel *channel)
{
    unsigned count = channel->pending_count;

    channel->pending_count = 0;
    for (unsigned i = 0; i < count; i++) {
        make_event(channel, &channel->pending[i]);
    }
    /* Numbers without entries, which a reader takes for overwritten. */
    channel->upcalls.head += channel->pending_lost;
    channel->pending_lost = 0;
    if (channel->guest) {
        qatomic_set(&channel->host->header.event_head,
                    cpu_to_le64(channel->upcalls.head));
        shaper_channel_wrote_host(channel, &channel->host->header,
                                  sizeof(channel->host->header));
    }
}

void shaper_channel_echo(ShaperChannel *channel, unsigned tag, uint64_t word)
{
    make_event(channel, &(SluiceChannelEvent){
        .time_ns = get_clock(), .kind = SLUICE_EVENT_ECHO, .tag = tag,
        .datum = word,
    });
}

/* Caller holds the lock. */
static void tell(ShaperChannel *channel, unsigned kind, unsigned tag,
                 unsigned resource, uint64_t datum)
{
    if (channel->guest && sluice_events_wanted(&channel->upcalls, kind, tag)) {
        make_event(channel, &(SluiceChannelEvent){
            .time_ns = get_clock(), .kind = kind, .tag = tag,
            .resource = resource, .datum = datum,
        });
    }
}

void shaper_channel_event(Shaper *shaper, unsigned kind, unsigned tag,
                          unsigned resource, uint64_t datum)
{
    SLUICE_LOCK_GUARD(&shaper->channel.lock);

    tell(&shaper->channel, kind, tag, resource, datum);
}

/* Caller holds the lock. */
static void look_at(Shaper *shaper, unsigned tag, unsigned resource)
{
    ShaperChannel *channel = &shaper->channel;
    ShaperEngine *e = &shaper->engines[resource];
    uint64_t backlog_bytes = 0;

    WITH_SLUICE_LOCK(&e->lock) {
        backlog_bytes = sluice_engine_stats(e->engine, tag)->backlog_bytes;
    }
    if (sluice_events_rises(&channel->upcalls, tag, resource, backlog_bytes)) {
        tell(channel, SLUICE_EVENT_BACKLOG, tag, resource, backlog_bytes);
    }
}

void shaper_channel_look(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;
    SLUICE_LOCK_GUARD(&channel->lock);

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (sluice_events_wanted(&channel->upcalls, SLUICE_EVENT_BACKLOG, tag)) {
            for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
                look_at(shaper, tag, i);
            }
        }
    }
}

/* The configuration */

static void copy_class(ShaperChannelClass *to, const ShaperClassConfig *from)
{
    memset(to, 0, sizeof(*to));
    strncpy(to->name, from->q_class, sizeof(to->name) - 1);
    to->priority = from->priority;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        to->limits[i] = shaper_limit_of(from->limits, i);
    }
}

/* Caller holds the lock. Of a class that was granted, and is. */
static void tell_limits(ShaperChannel *channel, unsigned tag,
                        const ShaperChannelClass *now)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        const SluiceLimit *old = &channel->classes[tag].limits[i];
        const SluiceLimit *new = &now->limits[i];

        if (old->bytes_per_second != new->bytes_per_second
            || old->operations_per_second != new->operations_per_second) {
            tell(channel, SLUICE_EVENT_LIMIT_CHANGED, tag, i,
                 new->bytes_per_second);
        }
    }
}

/* Caller holds the lock. */
static void set_granted(ShaperChannel *channel, uint32_t granted)
{
    if (channel->granted == granted) {
        return;
    }
    channel->granted = granted;
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (granted >> tag & 1) {
            tell(channel, SLUICE_EVENT_GRANTS, tag, 0, granted);
        } else {
            channel->upcalls.subscriptions[tag] = (SluiceSubscription){ 0 };
        }
    }
    memset(channel->record_seen, 0xff, sizeof(channel->record_seen));
}

void shaper_channel_configure(Shaper *shaper)
{
    ShaperChannel *channel = &shaper->channel;
    uint32_t granted = 0;
    SLUICE_LOCK_GUARD(&channel->lock);

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        ShaperChannelClass now;

        copy_class(&now, shaper_class_of(shaper, tag));
        if (shaper->classes[tag]) {
            granted |= 1u << tag;
            if (channel->granted >> tag & 1) {
                tell_limits(channel, tag, &now);
            }
        }
        channel->classes[tag] = now;
    }
    set_granted(channel, granted);
    if (channel->guest && channel->driver && channel->running) {
        shaper_channel_show(shaper, shaper_now_ns());
        shaper_channel_write_header(channel);
    }
}

/* Class entries. The caller holds the lock. */

static void fill_class(ShaperEngine *e, unsigned tag, uint64_t now_ns,
                       SluiceChannelClass *entry)
{
    const ShaperChannelClass *class = &e->shaper->channel.classes[tag];
    const SluiceLimit *limit = &class->limits[e->resource];
    const SluiceClassStats *stats;
    SLUICE_LOCK_GUARD(&e->lock);

    stats = sluice_engine_stats(e->engine, tag);
    entry->used = 1;
    entry->priority = class->priority;
    entry->limited = e->watch[tag].limited;
    entry->bytes_per_second = cpu_to_le64(limit->bytes_per_second);
    entry->operations_per_second = cpu_to_le64(limit->operations_per_second);
    entry->tokens_bytes = cpu_to_le64(
        sluice_engine_tokens(e->engine, tag, now_ns).bytes);
    entry->tokens_ns = cpu_to_le64(now_ns);
    entry->backlog_bytes = cpu_to_le64(stats->backlog_bytes);
    entry->held_ns = cpu_to_le64(stats->held_ns);
    entry->bytes = cpu_to_le64(stats->bytes);
}

static void show_class(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    ShaperChannel *channel = &e->shaper->channel;
    SluiceChannelClass *entry = &channel->host->classes[shaper_slot_of(e, tag)];
    SluiceChannelClass next = { 0 };

    if (channel->granted >> tag & 1) {
        fill_class(e, tag, now_ns, &next);
    }
    next.seq = cpu_to_le32(channel->class_seq + 1);
    qatomic_set(&entry->seq, next.seq);
    smp_wmb();
    *entry = next;
    qatomic_store_release(&entry->seq, cpu_to_le32(channel->class_seq + 2));
}

static void show_classes(Shaper *shaper, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;
    SluiceChannelHost *host = channel->host;

    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        memcpy(host->class_names[tag], channel->classes[tag].name,
               sizeof(host->class_names[tag]));
        for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
            show_class(&shaper->engines[i], tag, now_ns);
        }
    }
    channel->class_seq += 2;
    qatomic_set(&host->header.heartbeat_ns, cpu_to_le64(get_clock()));
    shaper_channel_wrote_host(channel, host->class_names,
                              sizeof(host->class_names));
    shaper_channel_wrote_host(channel, host->classes, sizeof(host->classes));
}

/* Records. The caller holds the lock. */

static SluiceCallStatus note_record(ShaperChannel *channel, SluiceRecord found,
                                    uint64_t *seen, uint32_t seq)
{
    if (found != SLUICE_RECORD_CHANGING) {
        *seen = seq;
    }
    switch (found) {
    case SLUICE_RECORD_READ:
        return SLUICE_CALL_OK;
    case SLUICE_RECORD_CHANGING:
        return SLUICE_CALL_BAD;
    default:
        channel->records_refused++;
        return found == SLUICE_RECORD_DENIED ? SLUICE_CALL_DENIED
                                             : SLUICE_CALL_BAD;
    }
}

SluiceCallStatus shaper_channel_read_stream(ShaperChannel *channel, unsigned i,
                                            bool anyway)
{
    const SluiceChannelStream *from = &channel->guest->streams[i];
    uint64_t *seen = &channel->record_seen[i];
    SluiceChannelStream stream;
    SluiceRecord found;

    if (!anyway && *seen == sluice_guest_load(&from->seq)) {
        return SLUICE_CALL_OK;
    }
    found = sluice_stream_load(&stream, from, channel->granted);
    if (found == SLUICE_RECORD_READ) {
        channel->streams[i] = stream;
    } else if (found != SLUICE_RECORD_CHANGING) {
        channel->streams[i].used = 0;
    }
    return note_record(channel, found, seen, stream.seq);
}

SluiceCallStatus shaper_channel_read_server(ShaperChannel *channel, unsigned i,
                                            bool anyway)
{
    const SluiceChannelServer *from = &channel->guest->servers[i];
    uint64_t *seen = &channel->record_seen[SLUICE_CHANNEL_STREAMS + i];
    SluiceChannelServer server;
    SluiceRecord found;

    if (!anyway && *seen == sluice_guest_load(&from->seq)) {
        return SLUICE_CALL_OK;
    }
    found = sluice_server_load(&server, from, channel->granted);
    if (found == SLUICE_RECORD_READ) {
        channel->servers[i] = server;
    } else if (found != SLUICE_RECORD_CHANGING) {
        channel->servers[i].used = 0;
    }
    return note_record(channel, found, seen, server.seq);
}

void shaper_channel_remove_stream(ShaperChannel *channel, unsigned i)
{
    channel->streams[i].used = 0;
    channel->record_seen[i] = sluice_guest_load(&channel->guest->streams[i].seq);
}

void shaper_channel_remove_server(ShaperChannel *channel, unsigned i)
{
    channel->servers[i].used = 0;
    channel->record_seen[SLUICE_CHANNEL_STREAMS + i] =
        sluice_guest_load(&channel->guest->servers[i].seq);
}

void shaper_channel_forget_records(ShaperChannel *channel)
{
    memset(channel->streams, 0, sizeof(channel->streams));
    memset(channel->servers, 0, sizeof(channel->servers));
    memset(channel->record_seen, 0xff, sizeof(channel->record_seen));
}

void shaper_channel_show(Shaper *shaper, uint64_t now_ns)
{
    ShaperChannel *channel = &shaper->channel;

    channel->is_shown = true;
    channel->show_ns = now_ns + SHOW_NS;
    show_classes(shaper, now_ns);
    for (unsigned i = 0; i < SLUICE_CHANNEL_STREAMS; i++) {
        shaper_channel_read_stream(channel, i, false);
    }
    for (unsigned i = 0; i < SLUICE_CHANNEL_SERVERS; i++) {
        shaper_channel_read_server(channel, i, false);
    }
}

unsigned shaper_channel_streams(
    Shaper *shaper, SluiceChannelStream streams[SLUICE_CHANNEL_STREAMS])
{
    ShaperChannel *channel = &shaper->channel;
    SLUICE_LOCK_GUARD(&channel->lock);
    unsigned count = 0;

    memcpy(streams, channel->streams, sizeof(channel->streams));
    for (unsigned i = 0; i < SLUICE_CHANNEL_STREAMS; i++) {
        count += streams[i].used;
    }
    return count;
}

unsigned shaper_channel_servers(
    Shaper *shaper, SluiceChannelServer servers[SLUICE_CHANNEL_SERVERS])
{
    ShaperChannel *channel = &shaper->channel;
    SLUICE_LOCK_GUARD(&channel->lock);
    unsigned count = 0;

    memcpy(servers, channel->servers, sizeof(channel->servers));
    for (unsigned i = 0; i < SLUICE_CHANNEL_SERVERS; i++) {
        count += servers[i].used;
    }
    return count;
}

/* query-shaper-channel */

static ShaperStream *stream_info(const SluiceChannelStream *stream,
                                 unsigned number)
{
    static const ShaperStreamSource sources[] = {
        [SLUICE_STREAM_PROGRAM] = SHAPER_STREAM_SOURCE_PROGRAM,
        [SLUICE_STREAM_VLC] = SHAPER_STREAM_SOURCE_VLC,
        [SLUICE_STREAM_FFMPEG] = SHAPER_STREAM_SOURCE_FFMPEG,
        [SLUICE_STREAM_GSTREAMER] = SHAPER_STREAM_SOURCE_GSTREAMER,
        [SLUICE_STREAM_SOCKET] = SHAPER_STREAM_SOURCE_SOCKET,
    };
    ShaperStream *info = g_new0(ShaperStream, 1);

    info->number = number;
    info->name = g_strndup(stream->name, sizeof(stream->name));
    info->tag = stream->tag;
    info->source = sources[stream->source];
    info->rate_millihertz = stream->rate_millihertz;
    info->frames = stream->frames;
    info->late = stream->late;
    info->lost = stream->lost;
    info->last_ns = stream->last_ns;
    info->pace_bytes_per_second = (uint64_t)stream->pace_kib_per_second * 1024;
    return info;
}

static ShaperServer *server_info(const SluiceChannelServer *server,
                                 unsigned number)
{
    ShaperServer *info = g_new0(ShaperServer, 1);

    info->number = number;
    info->tag = server->tag;
    info->port = server->port;
    info->queued = server->queued;
    info->queue_max = server->queue_max;
    info->open = server->open;
    info->open_max = server->open_max;
    return info;
}

static void add_records(Shaper *shaper, ShaperChannelInfo *info)
{
    SluiceChannelStream streams[SLUICE_CHANNEL_STREAMS];
    SluiceChannelServer servers[SLUICE_CHANNEL_SERVERS];

    shaper_channel_streams(shaper, streams);
    shaper_channel_servers(shaper, servers);
    for (int i = SLUICE_CHANNEL_STREAMS - 1; i >= 0; i--) {
        if (streams[i].used) {
            QAPI_LIST_PREPEND(info->streams, stream_info(&streams[i], i));
        }
    }
    for (int i = SLUICE_CHANNEL_SERVERS - 1; i >= 0; i--) {
        if (servers[i].used) {
            QAPI_LIST_PREPEND(info->servers, server_info(&servers[i], i));
        }
    }
}

ShaperChannelInfo *qmp_query_shaper_channel(const char *id, Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    ShaperChannelInfo *info;
    ShaperChannel *channel;

    if (!shaper) {
        return NULL;
    }
    channel = &shaper->channel;
    if (!channel->device) {
        error_setg(errp, "shaper '%s' has no channel; the device "
                   "sluice-channel,shaper=%s makes one", id, id);
        return NULL;
    }
    info = g_new0(ShaperChannelInfo, 1);
    info->device = object_get_canonical_path(OBJECT(channel->device));
    WITH_SLUICE_LOCK(&channel->lock) {
        info->driver = channel->driver;
        info->port_map = channel->port_map;
        info->calls_max = channel->calls_max;
        info->calls = channel->calls;
        info->calls_refused = channel->calls_refused;
        info->deferred = channel->deferred;
        info->deferred_refused = channel->deferred_failed
                                 + channel->ring.refused;
        info->deferred_replaced = channel->ring.replaced;
        info->deferred_waiting = channel->ring.delayed_count;
        info->events = channel->upcalls.head;
        info->records_refused = channel->records_refused;
    }
    add_records(shaper, info);
    return info;
}
