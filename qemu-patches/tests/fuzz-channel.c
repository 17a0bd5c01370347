/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the channel's memory: a guest that writes anything anywhere in its pages,
 * between takings of deferred calls, events and readings of records. Every entry that is
 * taken is carried out, waits, was replaced, or was refused, and of a kind at most one is left;
 * what is told of a record is what is in it, and in range. Seeds are in
 * fuzz-channel-seeds/.
 */
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "sluice/channel.h"

#define MS              1000000ULL
#define WRITABLE_BYTES  offsetof(SluiceChannelGuest, reserved_servers)
#define STEPS_MAX       400

typedef struct World {
    Random random;
    SluiceChannelGuest *guest;
    SluiceChannelHost *host;
    SluiceRing ring;
    SluiceEvents events;
    uint64_t now_ns;
} World;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* The guest */

static void write_call(World *world)
{
    uint32_t head = SLUICE_LE32(world->guest->ring_head);
    SluiceChannelCall *call = &world->guest->ring[head % SLUICE_CHANNEL_RING];

    call->service = random_below(&world->random, 8);
    call->key = SLUICE_LE32(random_below(&world->random, 4)
                            << random_below(&world->random, 12));
    call->delay_ms = SLUICE_LE32(random_below(&world->random, 8)
                                 << random_below(&world->random, 16));
    world->guest->ring_head = SLUICE_LE32(head + 1);
}

static void write_calls(World *world)
{
    for (unsigned i = random_below(&world->random, 100); i > 0; i--) {
        write_call(world);
    }
}

static void write_bytes(World *world)
{
    uint8_t *bytes = (uint8_t *)world->guest;
    size_t at = random_below(&world->random, WRITABLE_BYTES);

    for (unsigned i = random_below(&world->random, 64); i > 0; i--) {
        bytes[at++ % WRITABLE_BYTES] = random_bytes(&world->random, 1);
    }
}

static void write_stream(World *world)
{
    SluiceChannelStream *stream =
        &world->guest->streams[random_below(&world->random, 4)];

    stream->seq = SLUICE_LE32(2 * random_below(&world->random, 4)
                              + random_chance(&world->random, 10));
    stream->used = random_below(&world->random, 3);
    stream->tag = random_below(&world->random, 18);
    stream->source = random_below(&world->random, 7);
    memset(stream->name, random_bytes(&world->random, 1),
           random_below(&world->random, sizeof(stream->name) + 1));
}

static void write_server(World *world)
{
    SluiceChannelServer *server =
        &world->guest->servers[random_below(&world->random, 4)];

    server->seq = SLUICE_LE32(random_below(&world->random, 8));
    server->used = random_below(&world->random, 3);
    server->tag = random_below(&world->random, 18);
    server->port = random_below(&world->random, 3);
}

/* The host */

static void check_kinds(const World *world, unsigned count)
{
    unsigned seen[SLUICE_CHANNEL_KINDS] = { 0 };

    for (unsigned i = 0; i < count; i++) {
        require(world->ring.batch[i].key < SLUICE_CHANNEL_KINDS);
        seen[world->ring.batch[i].key]++;
    }
    for (unsigned i = 0; i < world->ring.delayed_count; i++) {
        require(world->ring.delayed[i].call.key < SLUICE_CHANNEL_KINDS);
        seen[world->ring.delayed[i].call.key]++;
    }
    for (unsigned kind = 1; kind < SLUICE_CHANNEL_KINDS; kind++) {
        require(seen[kind] <= 1);
    }
}

static void take(World *world)
{
    SluiceRing *ring = &world->ring;
    uint32_t tail = ring->tail, delayed = ring->delayed_count;
    uint64_t gone = ring->refused + ring->replaced;
    unsigned count = sluice_ring_take(ring, world->guest, world->now_ns);

    require(count <= SLUICE_CHANNEL_RING);
    require(ring->delayed_count <= SLUICE_CHANNEL_DELAYED);
    require((uint32_t)(ring->tail - tail) + (uint64_t)delayed
            == count + ring->delayed_count
               + (ring->refused + ring->replaced - gone));
    check_kinds(world, count);
    for (unsigned i = 0; i < count; i++) {
        require(ring->batch[i].delay_ms == 0);
    }
}

static void take_due(World *world)
{
    SluiceRing *ring = &world->ring;
    uint64_t due_ns = sluice_ring_due_ns(ring);
    unsigned delayed = ring->delayed_count;
    unsigned count = sluice_ring_due(ring, world->now_ns);

    require((count > 0) == (due_ns <= world->now_ns));
    require(count + ring->delayed_count == delayed);
    require(sluice_ring_due_ns(ring) > world->now_ns);
    check_kinds(world, count);
}

static void forget(World *world)
{
    sluice_ring_forget(&world->ring, world->guest);
    require(!sluice_ring_waits(&world->ring, world->guest));
    require(sluice_ring_due_ns(&world->ring) == SLUICE_NEVER);
}

static void subscribe(World *world)
{
    unsigned tag = random_below(&world->random, SLUICE_CHANNEL_TAGS);
    uint64_t kinds = random_bytes(&world->random, 1);
    uint64_t priority = random_below(&world->random, 6);
    bool valid = (kinds & ~0x3eULL) == 0 && priority < SLUICE_CHANNEL_PRIORITIES;

    require(sluice_events_subscribe(&world->events, tag, kinds, priority, 1000)
            == valid);
    for (unsigned kind = 1; valid && kind < SLUICE_EVENT_KINDS; kind++) {
        require(sluice_events_wanted(&world->events, kind, tag)
                == (kinds >> kind & 1));
    }
}

static void make_event(World *world)
{
    SluiceChannelEvent event = {
        .kind = 1 + random_below(&world->random, 5),
        .tag = random_below(&world->random, SLUICE_CHANNEL_TAGS),
        .resource = random_below(&world->random, SLUICE_CHANNEL_RESOURCES),
    };
    unsigned priority = world->events.subscriptions[event.tag].priority;
    uint64_t before = world->guest->pattern[priority];
    uint64_t bit = 1ULL << (event.tag * SLUICE_CHANNEL_RESOURCES
                            + event.resource);
    const SluiceChannelEvent *entry;

    require(sluice_events_make(&world->events, world->guest, world->host, &event)
            == !before);
    require(world->guest->pattern[priority] == (before | SLUICE_LE64(bit)));
    entry = &world->host->events[sluice_event_slot(world->events.head)];
    require(SLUICE_LE64(entry->number) == world->events.head);
    require(entry->kind == event.kind && entry->tag == event.tag
            && entry->priority == priority);
}

static void read_stream(World *world)
{
    const SluiceChannelStream *from =
        &world->guest->streams[random_below(&world->random, 4)];
    uint32_t granted = random_bytes(&world->random, 2);
    SluiceChannelStream stream;

    if (sluice_stream_load(&stream, from, granted) == SLUICE_RECORD_READ
        && stream.used) {
        require(stream.seq % 2 == 0 && stream.used == 1);
        require(stream.tag < SLUICE_CHANNEL_TAGS && granted >> stream.tag & 1);
        require(stream.source >= 1 && stream.source <= 5);
        require(!memcmp(stream.name, from->name, sizeof(stream.name)));
        for (unsigned i = 0; i < sizeof(stream.name); i++) {
            require(!stream.name[i]
                    || (stream.name[i] >= ' ' && stream.name[i] <= '~'));
        }
    }
}

static void read_server(World *world)
{
    const SluiceChannelServer *from =
        &world->guest->servers[random_below(&world->random, 4)];
    uint32_t granted = random_bytes(&world->random, 2);
    SluiceChannelServer server;

    if (sluice_server_load(&server, from, granted) == SLUICE_RECORD_READ
        && server.used) {
        require(server.seq % 2 == 0 && server.used == 1 && server.port);
        require(server.tag < SLUICE_CHANNEL_TAGS && granted >> server.tag & 1);
        require(SLUICE_LE32(from->open) == server.open);
    }
}

static void pass_time(World *world)
{
    world->now_ns += random_below(&world->random, 200) * MS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const actions[])(World *world) = {
        write_calls, write_bytes, write_stream, write_server, take, take_due,
        forget, subscribe, make_event, read_stream, read_server, pass_time,
    };
    static SluiceChannelGuest guest;
    static SluiceChannelHost host;
    static World world;

    memset(&guest, 0, WRITABLE_BYTES);
    memset(&host, 0, sizeof(host));
    memset(&world, 0, sizeof(world));
    world.random = (Random){ .bytes = data, .left = size };
    world.guest = &guest;
    world.host = &host;
    sluice_bucket_configure(&world.ring.bucket, 1000, 100, 0);
    for (unsigned i = 0; i < STEPS_MAX && !random_is_spent(&world.random); i++) {
        actions[random_below(&world.random,
                             sizeof(actions) / sizeof(actions[0]))](&world);
    }
    return 0;
}
