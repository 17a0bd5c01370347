/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the channel beside a disk: calls and their three moments, services, events,
 * records.
 */
#include "qemu/osdep.h"
#include "hw/pci/pci_regs.h"
#include "sluice-channel.h"
#include "sluice-disk.h"

#define LOOK_NS     (10 * NS_PER_MS)
#define SHOW_NS     (250 * NS_PER_MS)
#define KIND(kind)  (1u << SLUICE_EVENT_##kind)
#define BULK        2

typedef struct Guest {
    Disk *disk;
    Channel channel;
} Guest;

static Guest *machine_new(const char *options)
{
    Guest *guest = g_new0(Guest, 1);
    g_autofree char *more = g_strconcat(CHANNEL, options, NULL);

    guest->disk = disk_new("", more);
    channel_find(&guest->channel, guest->disk->qs);
    set_register(&guest->channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    return guest;
}

static void machine_free(Guest *guest)
{
    channel_free(&guest->channel);
    disk_free(guest->disk);
    g_free(guest);
}

static void kick(Guest *guest)
{
    Request request = send_request(guest->disk, VIRTIO_BLK_T_IN, 0, 0, 1);

    wait_for(status_of(guest->disk, request) == VIRTIO_BLK_S_OK);
}

static void grant_bulk(Guest *guest)
{
    qmp_ok(guest->disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'priority': 7}}");
}

static void remove_bulk(Guest *guest)
{
    qmp_ok(guest->disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
}

/* Fast calls */

static uint64_t find(Channel *channel, const char *name, uint32_t *status)
{
    SluiceChannelCall call = make_call(SLUICE_SERVICE_CHANNEL,
                                       SLUICE_CHANNEL_FIND, 0, 0);
    uint64_t value;

    strncpy((char *)call.arguments, name, SLUICE_CHANNEL_NAME_BYTES);
    *status = fast_call(channel, call, &value);
    return value;
}

static void test_services(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    unsigned known = 0;
    uint32_t status;

    for (unsigned i = 0; i < SLUICE_CHANNEL_SERVICES; i++) {
        SluiceChannelService service = read_host(channel, services[i]);
        uint32_t number = le32_to_cpu(service.number);

        if (number) {
            g_assert_cmpuint(find(channel, service.name, &status), ==, number);
            g_assert_cmpuint(status, ==, SLUICE_CALL_OK);
            /* None has a hundred operations. */
            g_assert_cmpuint(fast_status(channel, number, 99, 0, 0), ==,
                             SLUICE_CALL_UNKNOWN);
            known++;
        }
    }
    g_assert_cmpuint(known, ==, 5);
    find(channel, "nothing", &status);
    g_assert_cmpuint(status, ==, SLUICE_CALL_UNKNOWN);
    find(channel, "", &status);
    g_assert_cmpuint(status, ==, SLUICE_CALL_UNKNOWN);
    g_assert_cmpuint(fast_status(channel, 0, 0, 0, 0), ==, SLUICE_CALL_UNKNOWN);
    g_assert_cmpuint(fast_status(channel, UINT32_MAX, 0, 0, 0), ==,
                     SLUICE_CALL_UNKNOWN);
    machine_free(guest);
}

static void test_fast(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelCall ping = make_call(SLUICE_SERVICE_CHANNEL,
                                       SLUICE_CHANNEL_PING, 0xfeedULL << 44, 0);
    uint64_t value;

    g_assert_cmpuint(fast_call(channel, ping, &value), ==, SLUICE_CALL_OK);
    g_assert_cmphex(value, ==, 0xfeedULL << 44);
    g_assert_cmpuint(le64_to_cpu(read_host(channel, header.calls)), ==, 1);
    g_assert_cmpint(channel_number(channel->qts, "calls"), ==, 1);
    /* No such slot, and then no driver. */
    set_register(channel, SLUICE_CHANNEL_REG_CALL, SLUICE_CHANNEL_SLOTS);
    set_register(channel, SLUICE_CHANNEL_REG_CALL, UINT32_MAX);
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 0);
    set_register(channel, SLUICE_CHANNEL_REG_CALL, 1);
    g_assert_cmpint(channel_number(channel->qts, "calls"), ==, 1);
    machine_free(guest);
}

/* A tenth of a second's calls at once, then one each 50 ms. */
static void test_limit(void)
{
    Guest *guest = machine_new(",calls=20");
    Channel *channel = &guest->channel;

    for (unsigned i = 0; i < 4; i++) {
        g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_CHANNEL,
                                     SLUICE_CHANNEL_PING, 0, 0), ==,
                         i < 2 ? SLUICE_CALL_OK : SLUICE_CALL_BUSY);
    }
    qtest_clock_step(channel->qts, 50 * NS_PER_MS);
    g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_CHANNEL, 0, 0, 0), ==,
                     SLUICE_CALL_OK);
    g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_CHANNEL, 0, 0, 0), ==,
                     SLUICE_CALL_BUSY);
    g_assert_cmpint(channel_number(channel->qts, "calls"), ==, 3);
    g_assert_cmpint(channel_number(channel->qts, "calls-refused"), ==, 3);
    g_assert_cmpuint(le64_to_cpu(read_host(channel, header.calls_refused)), ==, 3);
    machine_free(guest);
}

/*
 * Deferred calls. Writing one is a write to plain memory, which does not leave the guest;
 * a register is touched by none of these, but for the fast call.
 */

static int64_t deferred(Guest *guest)
{
    uint64_t shown = le64_to_cpu(read_host(&guest->channel, header.deferred));

    g_assert_cmpuint(channel_number(guest->disk->qts, "deferred"), ==, shown);
    return shown;
}

static void test_moments(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    defer_ping(channel, 0, 0);
    g_assert_cmpint(deferred(guest), ==, 0);
    kick(guest);
    g_assert_cmpint(deferred(guest), ==, 1);
    g_assert_cmpuint(le32_to_cpu(read_host(channel, header.ring_tail)), ==, 1);

    defer_ping(channel, 0, 0);
    g_assert_cmpint(deferred(guest), ==, 1);
    fast_status(channel, SLUICE_SERVICE_CHANNEL, SLUICE_CHANNEL_PING, 0, 0);
    g_assert_cmpint(deferred(guest), ==, 2);

    /* Soon after an entry the timer looks often, and later seldom. */
    defer_ping(channel, 0, 0);
    qtest_clock_step(channel->qts, LOOK_NS);
    g_assert_cmpint(deferred(guest), ==, 3);
    qtest_clock_step(channel->qts, 2000 * NS_PER_MS);
    defer_ping(channel, 0, 0);
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpint(deferred(guest), ==, 4);
    machine_free(guest);
}

static void test_delayed(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    defer_ping(channel, 1, 100);
    defer_ping(channel, 2, 100);
    defer_ping(channel, 2, 300);
    kick(guest);
    g_assert_cmpint(deferred(guest), ==, 0);
    g_assert_cmpint(channel_number(channel->qts, "deferred-waiting"), ==, 2);
    g_assert_cmpint(channel_number(channel->qts, "deferred-replaced"), ==, 1);
    qtest_clock_step(channel->qts, 100 * NS_PER_MS + LOOK_NS);
    g_assert_cmpint(deferred(guest), ==, 1);
    qtest_clock_step(channel->qts, 200 * NS_PER_MS);
    g_assert_cmpint(deferred(guest), ==, 2);
    /* Without a driver none is carried out any more. */
    defer_ping(channel, 0, 10);
    kick(guest);
    defer_ping(channel, 0, 0);
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 0);
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    qtest_clock_step(channel->qts, SHOW_NS);
    kick(guest);
    g_assert_cmpint(deferred(guest), ==, 2);
    machine_free(guest);
}

/* Refused: lost in the ring, of no service, out of range. */
static void test_deferred_refused(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    write_guest(channel, ring_head, cpu_to_le32(1000));
    kick(guest);
    g_assert_cmpint(channel_number(channel->qts, "deferred-refused"), ==, 1000);
    defer_call_of(channel, make_call(77, 0, 0, 0), 0, 0);
    defer_ping(channel, 256, 0);
    defer_ping(channel, 0, 60001);
    kick(guest);
    g_assert_cmpint(channel_number(channel->qts, "deferred-refused"), ==, 1003);
    g_assert_cmpint(deferred(guest), ==, 0);
    machine_free(guest);
}

/* Events */

static SluiceChannelEvent last_event(Channel *channel)
{
    uint64_t head = le64_to_cpu(read_host(channel, header.event_head));
    SluiceChannelEvent event =
        read_host(channel, events[(head - 1) % SLUICE_CHANNEL_EVENTS]);

    g_assert_cmpuint(le64_to_cpu(event.number), ==, head);
    return event;
}

static bool interrupts(Channel *channel)
{
    return qpci_config_readw(channel->pci, PCI_STATUS) & PCI_STATUS_INTERRUPT;
}

static uint64_t event_count(Channel *channel)
{
    return le64_to_cpu(read_host(channel, header.event_head));
}

static uint32_t echo(Channel *channel, uint64_t tag, uint64_t word)
{
    return fast_status(channel, SLUICE_SERVICE_EVENTS, SLUICE_EVENTS_ECHO, tag,
                       word);
}

static void test_subscribe(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    g_assert_cmpuint(subscribe(channel, 0, KIND(GRANTS), 0, 0), ==,
                     SLUICE_CALL_OK);
    g_assert_cmpuint(subscribe(channel, BULK, KIND(LIMITED), 0, 0), ==,
                     SLUICE_CALL_DENIED);
    g_assert_cmpuint(subscribe(channel, 16, KIND(LIMITED), 0, 0), ==,
                     SLUICE_CALL_BAD);
    g_assert_cmpuint(subscribe(channel, 0, KIND(LIMITED), 4, 0), ==,
                     SLUICE_CALL_BAD);
    g_assert_cmpuint(subscribe(channel, 0, 1, 0, 0), ==, SLUICE_CALL_BAD);
    g_assert_cmpuint(event_count(channel), ==, 0);
    machine_free(guest);
}

/* An echo needs no subscription, and interrupts as any event. A deferred one does, too. */
static void test_echo(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelEvent event;

    set_register(channel, SLUICE_CHANNEL_REG_EVENTS, 1);
    g_assert_cmpuint(echo(channel, 0, 1ULL << 63 | 5), ==, SLUICE_CALL_OK);
    event = last_event(channel);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_ECHO);
    g_assert_cmpuint(event.tag, ==, 0);
    g_assert_cmpuint(event.priority, ==, 0);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 1ULL << 63 | 5);
    g_assert_cmpuint(le64_to_cpu(read_guest(channel, pattern[0])), ==, 1);
    wait_for(interrupts(channel));

    g_assert_cmpuint(echo(channel, BULK, 0), ==, SLUICE_CALL_DENIED);
    g_assert_cmpuint(echo(channel, 16, 0), ==, SLUICE_CALL_BAD);
    g_assert_cmpuint(echo(channel, 1ULL << 32, 0), ==, SLUICE_CALL_BAD);
    g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_EVENTS,
                                 SLUICE_EVENTS_ECHO + 1, 0, 0), ==,
                     SLUICE_CALL_UNKNOWN);
    g_assert_cmpuint(subscribe(channel, 0, KIND(ECHO), 0, 0), ==,
                     SLUICE_CALL_BAD);
    g_assert_cmpuint(event_count(channel), ==, 1);

    subscribe(channel, 0, KIND(LIMITED), 3, 0);
    defer_call_of(channel, make_call(SLUICE_SERVICE_EVENTS, SLUICE_EVENTS_ECHO,
                                     0, 6), 0, 0);
    kick(guest);
    event = last_event(channel);
    g_assert_cmpuint(event.priority, ==, 3);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 6);
    machine_free(guest);
}

/* An echo more than CALLS_MAX allows makes no event. */
static void test_echo_busy(void)
{
    Guest *guest = machine_new(",calls=10");
    Channel *channel = &guest->channel;
    uint64_t answered = 0;

    for (unsigned i = 0; i < 5; i++) {
        answered += echo(channel, 0, i) == SLUICE_CALL_OK;
    }
    g_assert_cmpuint(answered, ==, 1);
    g_assert_cmpuint(event_count(channel), ==, answered);
    machine_free(guest);
}

/* Grants and limits: what the operator changes. */
static void test_changes(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelEvent event;

    set_register(channel, SLUICE_CHANNEL_REG_EVENTS, 1);
    subscribe(channel, 0, KIND(GRANTS), 3, 0);
    grant_bulk(guest);
    event = last_event(channel);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_GRANTS);
    g_assert_cmpuint(event.priority, ==, 3);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 1 | 1 << BULK);
    g_assert_cmpuint(le64_to_cpu(read_guest(channel, pattern[3])), ==, 1);
    wait_for(interrupts(channel));

    subscribe(channel, BULK, KIND(LIMIT_CHANGED), 1, 0);
    limit_class(guest->disk, "bulk", BULK, "blk-write");
    event = last_event(channel);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_LIMIT_CHANGED);
    g_assert_cmpuint(event.tag, ==, BULK);
    g_assert_cmpuint(event.resource, ==, 1);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 1000000);
    g_assert_cmpuint(event_count(channel), ==, 2);
    /* The same again is no news; and with the class goes its subscription. */
    limit_class(guest->disk, "bulk", BULK, "blk-write");
    g_assert_cmpuint(event_count(channel), ==, 2);
    remove_bulk(guest);
    g_assert_cmpuint(event_count(channel), ==, 3);
    grant_bulk(guest);
    limit_class(guest->disk, "bulk", BULK, "blk-write");
    g_assert_cmpuint(event_count(channel), ==, 4);
    machine_free(guest);
}

/* Of events of one priority that are pending, the first interrupts. */
static void test_interrupt(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    subscribe(channel, 0, KIND(GRANTS), 0, 0);
    grant_bulk(guest);
    g_assert_cmpuint(get_register(channel, SLUICE_CHANNEL_REG_INTERRUPT), ==, 1);
    g_assert(!interrupts(channel));             /* they are not wanted */
    set_register(channel, SLUICE_CHANNEL_REG_EVENTS, 1);
    wait_for(interrupts(channel));
    set_register(channel, SLUICE_CHANNEL_REG_INTERRUPT, 1);
    wait_for(!interrupts(channel));
    remove_bulk(guest);
    g_assert_cmpuint(event_count(channel), ==, 2);
    g_assert_cmpuint(get_register(channel, SLUICE_CHANNEL_REG_INTERRUPT), ==, 0);
    write_guest(channel, pattern[0], (uint64_t)0);
    grant_bulk(guest);
    g_assert_cmpuint(get_register(channel, SLUICE_CHANNEL_REG_INTERRUPT), ==, 1);
    wait_for(interrupts(channel));
    machine_free(guest);
}

/* Four looks with held requests; then none, for eight. */
static void test_limited(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelEvent event;
    Request requests[8];

    grant_bulk(guest);
    subscribe(channel, BULK, KIND(LIMITED) | KIND(UNLIMITED) | KIND(BACKLOG), 0,
              REQUEST_BYTES);
    qmp_ok(channel->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': "
           "[{'resource': 'blk-read', 'bytes-per-second': 1, "
           "'burst-bytes': 1}]}}");
    send_many(guest->disk, 8, VIRTIO_BLK_T_IN, BULK, requests);
    wait_for(backlog(guest->disk, "bulk", "blk-read") == 7);
    qtest_clock_step(channel->qts, SHOW_NS);
    event = last_event(channel);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_BACKLOG);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 7 * REQUEST_BYTES);
    g_assert_cmpuint(event_count(channel), ==, 1);
    qtest_clock_step(channel->qts, 3 * SHOW_NS);
    event = last_event(channel);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_LIMITED);
    g_assert_cmpuint(event.resource, ==, 0);
    g_assert_cmpuint(le64_to_cpu(event.datum), ==, 7);
    g_assert_cmpuint(event_count(channel), ==, 2);
    g_assert_cmpuint(read_host(channel, classes[BULK * 4]).limited, ==, 1);

    grant_bulk(guest);                          /* without a limit */
    for (unsigned i = 0; i < 8; i++) {
        wait_for(status_of(guest->disk, requests[i]) == VIRTIO_BLK_S_OK);
    }
    qtest_clock_step(channel->qts, 9 * SHOW_NS);
    g_assert_cmpuint(last_event(channel).kind, ==, SLUICE_EVENT_UNLIMITED);
    g_assert_cmpuint(event_count(channel), ==, 3);
    machine_free(guest);
}

/* While the machine stands its memory does not change; it is told when it goes on. */
static void test_stopped(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    subscribe(channel, 0, KIND(GRANTS), 0, 0);
    qmp_ok(channel->qts, "{'execute': 'stop'}");
    grant_bulk(guest);
    defer_ping(channel, 0, 0);
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpuint(event_count(channel), ==, 0);
    g_assert_cmpuint(le32_to_cpu(read_host(channel, header.ring_tail)), ==, 0);
    qmp_ok(channel->qts, "{'execute': 'cont'}");
    g_assert_cmpuint(event_count(channel), ==, 1);
    g_assert_cmpuint(last_event(channel).kind, ==, SLUICE_EVENT_GRANTS);
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpuint(deferred(guest), ==, 1);
    machine_free(guest);
}

/* More than wait while it stands leave a gap in the numbers. */
static void test_stopped_long(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    subscribe(channel, 0, KIND(GRANTS), 0, 0);
    qmp_ok(channel->qts, "{'execute': 'stop'}");
    for (unsigned i = 0; i < 35; i++) {
        grant_bulk(guest);
        remove_bulk(guest);
    }
    qmp_ok(channel->qts, "{'execute': 'cont'}");
    g_assert_cmpint(channel_number(channel->qts, "events"), ==, 70);
    g_assert_cmpuint(event_count(channel), ==, 70);
    g_assert_cmpuint(le64_to_cpu(read_host(channel, events[63]).number), ==, 64);
    g_assert_cmpuint(le64_to_cpu(read_host(channel, events[64]).number), ==, 0);
    machine_free(guest);
}

/* Classes */

static void test_classes(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelClass class;
    uint64_t value;
    char name[SLUICE_CHANNEL_CLASS_NAME_BYTES];

    limit_class(guest->disk, "bulk", BULK, "blk-read");
    read_guest(channel, ring_head);
    kick(guest);
    g_assert_cmpuint(fast_call(channel,
                               make_call(SLUICE_SERVICE_CLASSES,
                                         SLUICE_CLASSES_REFRESH, 0, 0),
                               &value), ==, SLUICE_CALL_OK);
    g_assert_cmpuint(value, ==, 1 | 1 << BULK);
    g_assert_cmpuint(le32_to_cpu(read_host(channel, header.granted)), ==, value);
    class = read_host(channel, classes[BULK * SLUICE_CHANNEL_RESOURCES]);
    g_assert_cmpuint(class.used, ==, 1);
    g_assert_cmpuint(class.priority, ==, 5);
    g_assert_cmpuint(class.limited, ==, 0);
    g_assert_cmpuint(le64_to_cpu(class.bytes_per_second), ==, 1000000);
    g_assert_cmpint((int64_t)le64_to_cpu(class.tokens_bytes), ==, 4096);
    class = read_host(channel, classes[0]);
    g_assert_cmpuint(le32_to_cpu(class.seq) % 2, ==, 0);
    g_assert_cmpuint(le64_to_cpu(class.bytes), ==, REQUEST_BYTES);
    g_assert_cmpint((int64_t)le64_to_cpu(class.tokens_bytes), ==, INT64_MAX);
    g_assert_cmpuint(read_host(channel, classes[4]).used, ==, 0);
    qpci_memread(channel->pci, channel->host,
                 offsetof(SluiceChannelHost, class_names[BULK]), name,
                 sizeof(name));
    g_assert_cmpstr(name, ==, "bulk");
    /* Without a call, by the timer. */
    kick(guest);
    qtest_clock_step(channel->qts, SHOW_NS);
    class = read_host(channel, classes[0]);
    g_assert_cmpuint(le64_to_cpu(class.bytes), ==, 2 * REQUEST_BYTES);
    machine_free(guest);
}

/* Streams and servers */

static SluiceChannelStream movie(uint32_t seq, uint8_t tag, uint64_t frames)
{
    return (SluiceChannelStream){
        .seq = cpu_to_le32(seq), .used = 1, .tag = tag,
        .source = SLUICE_STREAM_VLC, .rate_millihertz = cpu_to_le32(25000),
        .frames = cpu_to_le64(frames), .pace_kib_per_second = cpu_to_le32(2),
        .name = "movie",
    };
}

static QDict *query_channel(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-channel', "
                                "'arguments': {'id': 'sluice0'}}");
    QDict *info = qdict_get_qdict(response, "return");

    qobject_ref(info);
    qobject_unref(response);
    return info;
}

/* A guest that asks a hundred times at once costs one answer. */
static void test_refresh_flood(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    uint32_t before = le32_to_cpu(read_host(channel, classes[0]).seq);

    for (unsigned i = 0; i < 100; i++) {
        defer_call_of(channel, make_call(SLUICE_SERVICE_CLASSES,
                                         SLUICE_CLASSES_REFRESH, 0, 0), 0, 0);
    }
    g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_CHANNEL,
                                 SLUICE_CHANNEL_PING, 0, 0), ==,
                     SLUICE_CALL_OK);
    g_assert_cmpint(channel_number(channel->qts, "deferred"), ==, 100);
    g_assert_cmpuint(le32_to_cpu(read_host(channel, classes[0]).seq), ==,
                     before + 2);
    machine_free(guest);
}

/* Frames of the only stream; -1: there is none. */
static int64_t stream_frames(Guest *guest)
{
    QDict *info = query_channel(guest->disk->qts);
    QList *streams = qdict_get_qlist(info, "streams");
    QDict *stream = qobject_to(QDict, qlist_peek(streams));
    int64_t frames = stream ? qdict_get_int(stream, "frames") : -1;

    if (stream) {
        g_assert_cmpuint(qlist_size(streams), ==, 1);
        g_assert_cmpint(qdict_get_int(stream, "number"), ==, 5);
        g_assert_cmpstr(qdict_get_str(stream, "name"), ==, "movie");
        g_assert_cmpstr(qdict_get_str(stream, "source"), ==, "vlc");
        g_assert_cmpint(qdict_get_int(stream, "rate-millihertz"), ==, 25000);
        g_assert_cmpint(qdict_get_int(stream, "pace-bytes-per-second"), ==, 2048);
    }
    qobject_unref(info);
    return frames;
}

static uint32_t stream_call(Guest *guest, uint32_t operation, uint64_t record)
{
    return fast_status(&guest->channel, SLUICE_SERVICE_STREAMS, operation,
                       record, 0);
}

/* A record that is removed before the host has looked at it. */
static void test_removed_early(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    write_guest(channel, streams[5], movie(2, 0, 100));
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_REMOVE, 5), ==,
                     SLUICE_CALL_OK);
    qtest_clock_step(channel->qts, 2 * SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, -1);
    write_guest(channel, streams[5], movie(4, 0, 101));
    qtest_clock_step(channel->qts, 2 * SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, 101);
    machine_free(guest);
}

static void test_streams(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;

    write_guest(channel, streams[5], movie(2, 0, 100));
    g_assert_cmpint(stream_frames(guest), ==, -1);
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_UPDATE, 5), ==,
                     SLUICE_CALL_OK);
    g_assert_cmpint(stream_frames(guest), ==, 100);
    /* By the timer, where the sequence is another. */
    write_guest(channel, streams[5], movie(4, 0, 101));
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, 101);
    /* While it is written, it keeps its value. */
    write_guest(channel, streams[5], movie(5, 0, 102));
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_UPDATE, 5), ==,
                     SLUICE_CALL_BAD);
    g_assert_cmpint(stream_frames(guest), ==, 101);
    g_assert_cmpint(channel_number(channel->qts, "records-refused"), ==, 0);
    /* A class that is not granted, counted once; then it is. */
    write_guest(channel, streams[5], movie(6, BULK, 103));
    qtest_clock_step(channel->qts, 4 * SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, -1);
    g_assert_cmpint(channel_number(channel->qts, "records-refused"), ==, 1);
    grant_bulk(guest);
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, 103);
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_REMOVE, 5), ==,
                     SLUICE_CALL_OK);
    qtest_clock_step(channel->qts, SHOW_NS);
    g_assert_cmpint(stream_frames(guest), ==, -1);
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_UPDATE, 64), ==,
                     SLUICE_CALL_BAD);
    g_assert_cmpuint(stream_call(guest, SLUICE_RECORD_UPDATE, UINT64_MAX), ==,
                     SLUICE_CALL_BAD);
    machine_free(guest);
}

static void test_servers(void)
{
    Guest *guest = machine_new("");
    Channel *channel = &guest->channel;
    SluiceChannelServer server = {
        .seq = cpu_to_le32(2), .used = 1, .port = cpu_to_le16(80),
        .queued = cpu_to_le32(3), .queue_max = cpu_to_le32(128),
        .open = cpu_to_le32(40), .open_max = cpu_to_le32(50),
    };
    QDict *info, *shown;

    write_guest(channel, servers[63], server);
    defer_call_of(channel, make_call(SLUICE_SERVICE_SERVERS,
                                     SLUICE_RECORD_UPDATE, 63, 0), 0, 0);
    kick(guest);
    g_assert_cmpint(deferred(guest), ==, 1);
    info = query_channel(channel->qts);
    shown = qobject_to(QDict, qlist_peek(qdict_get_qlist(info, "servers")));
    g_assert_nonnull(shown);
    g_assert_cmpint(qdict_get_int(shown, "number"), ==, 63);
    g_assert_cmpint(qdict_get_int(shown, "port"), ==, 80);
    g_assert_cmpint(qdict_get_int(shown, "queued"), ==, 3);
    g_assert_cmpint(qdict_get_int(shown, "queue-max"), ==, 128);
    g_assert_cmpint(qdict_get_int(shown, "open"), ==, 40);
    g_assert_cmpint(qdict_get_int(shown, "open-max"), ==, 50);
    qobject_unref(info);
    server.port = 0;
    server.seq = cpu_to_le32(4);
    write_guest(channel, servers[63], server);
    g_assert_cmpuint(fast_status(channel, SLUICE_SERVICE_SERVERS,
                                 SLUICE_RECORD_UPDATE, 63, 0), ==,
                     SLUICE_CALL_BAD);
    info = query_channel(channel->qts);
    g_assert(qlist_empty(qdict_get_qlist(info, "servers")));
    qobject_unref(info);
    machine_free(guest);
}

static void test_query(void)
{
    Guest *guest = machine_new("");
    Disk *none;

    g_assert_cmpint(channel_number(guest->disk->qts, "driver"), ==, 1);
    g_assert(!channel_flag(guest->disk->qts, "port-map"));
    set_register(&guest->channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);
    g_assert(channel_flag(guest->disk->qts, "port-map"));
    machine_free(guest);
    none = disk_new("", "");
    qmp_refused(none->qts, "{'execute': 'query-shaper-channel', 'arguments': "
                "{'id': 'sluice0'}}", "sluice0", "sluice-channel,shaper=sluice0");
    disk_free(none);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("sluice/channel-call/services", test_services);
    qtest_add_func("sluice/channel-call/fast", test_fast);
    qtest_add_func("sluice/channel-call/limit", test_limit);
    qtest_add_func("sluice/channel-call/moments", test_moments);
    qtest_add_func("sluice/channel-call/delayed", test_delayed);
    qtest_add_func("sluice/channel-call/deferred-refused", test_deferred_refused);
    qtest_add_func("sluice/channel-call/subscribe", test_subscribe);
    qtest_add_func("sluice/channel-call/echo", test_echo);
    qtest_add_func("sluice/channel-call/echo-busy", test_echo_busy);
    qtest_add_func("sluice/channel-call/changes", test_changes);
    qtest_add_func("sluice/channel-call/interrupt", test_interrupt);
    qtest_add_func("sluice/channel-call/limited", test_limited);
    qtest_add_func("sluice/channel-call/stopped", test_stopped);
    qtest_add_func("sluice/channel-call/stopped-long", test_stopped_long);
    qtest_add_func("sluice/channel-call/classes", test_classes);
    qtest_add_func("sluice/channel-call/refresh-flood", test_refresh_flood);
    qtest_add_func("sluice/channel-call/streams", test_streams);
    qtest_add_func("sluice/channel-call/removed-early", test_removed_early);
    qtest_add_func("sluice/channel-call/servers", test_servers);
    qtest_add_func("sluice/channel-call/query", test_query);
    return g_test_run();
}
