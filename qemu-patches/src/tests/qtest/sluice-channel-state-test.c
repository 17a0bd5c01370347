/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the channel in a migration: memories, registers, calls and events that wait;
 * and of a stream in which it is damaged.
 */
#include "qemu/osdep.h"
#include "sluice-channel.h"
#include "sluice-state.h"

#define GRANTS          (1u << SLUICE_EVENT_GRANTS)
#define DELAY_MS        100
#define VMSTATE_NAME    "sluice-channel"

static void set_up(Channel *channel, Disk *disk)
{
    channel_find(channel, disk->qs);
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    set_register(channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);
    set_register(channel, SLUICE_CHANNEL_REG_EVENTS, 1);
    write_guest(channel, port_map[65536 + 53], (uint8_t)0x83);
    subscribe(channel, 0, GRANTS, 2, 0);
    defer_ping(channel, 9, DELAY_MS);
    fast_status(channel, SLUICE_SERVICE_CHANNEL, SLUICE_CHANNEL_PING, 0, 0);
}

static void test_move(void)
{
    Channel channel, moved;
    SluiceChannelEvent event;
    uint64_t epoch;
    Move move;

    move_init(&move, CHANNEL);
    set_up(&channel, move.source);
    epoch = read_host(&channel, header.epoch);
    qmp_ok(move.source->qts, "{'execute': 'stop'}");
    set_bulk(move.source, OWED);                /* an event that waits */
    move_go(&move);
    qmp_ok(move.target.qts, "{'execute': 'cont'}");

    channel_find(&moved, move.target.qs);
    g_assert_cmpuint(get_register(&moved, SLUICE_CHANNEL_REG_DRIVER), ==, 1);
    g_assert_cmpuint(get_register(&moved, SLUICE_CHANNEL_REG_EVENTS), ==, 1);
    g_assert_cmpuint(get_register(&moved, SLUICE_CHANNEL_REG_PORT_MAP), ==, 1);
    g_assert(channel_flag(move.target.qts, "port-map"));
    g_assert_cmpuint(read_guest(&moved, port_map[65536 + 53]), ==, 0x83);
    g_assert_cmpuint(read_host(&moved, header.epoch), ==, epoch);
    g_assert_cmpint(channel_number(move.target.qts, "calls"), ==, 2);

    event = read_host(&moved, events[0]);
    g_assert_cmpuint(le64_to_cpu(event.number), ==, 1);
    g_assert_cmpuint(event.kind, ==, SLUICE_EVENT_GRANTS);
    g_assert_cmpuint(event.priority, ==, 2);
    g_assert_cmpuint(get_register(&moved, SLUICE_CHANNEL_REG_INTERRUPT), ==, 1);
    g_assert_cmpuint(le64_to_cpu(read_guest(&moved, pattern[2])), ==, 1);

    g_assert_cmpint(channel_number(move.target.qts, "deferred-waiting"), ==, 1);
    qtest_clock_step(move.target.qts, (DELAY_MS + 10) * NS_PER_MS);
    g_assert_cmpint(channel_number(move.target.qts, "deferred"), ==, 1);
    /* The ring goes on where it was. */
    defer_ping(&moved, 0, 0);
    fast_status(&moved, SLUICE_SERVICE_CHANNEL, SLUICE_CHANNEL_PING, 0, 0);
    g_assert_cmpint(channel_number(move.target.qts, "deferred"), ==, 2);
    g_assert_cmpint(channel_number(move.target.qts, "deferred-refused"), ==, 0);
    channel_free(&channel);
    channel_free(&moved);
    move_end(&move);
}

/* Loads it into a QEMU that goes on without; returns the output of that QEMU. */
static char *said_of(Disk *disk, const char *state)
{
    g_autofree char *log = g_strconcat(disk->image, ".log", NULL);
    g_autofree char *more = g_strdup_printf("-incoming defer " CHANNEL " 2>%s",
                                            log);
    Disk target = { .image = disk->image, .format = "raw",
                    .page = g_strconcat(disk->image, ".page2", NULL) };
    Channel channel;
    char *said;

    disk_boot(&target, "", more);
    load_refused(target.qts, state);
    channel_find(&channel, target.qs);
    g_assert(!channel_flag(target.qts, "port-map"));
    channel_free(&channel);
    qtest_shutdown(target.qs);
    g_assert(g_file_get_contents(log, &said, NULL, NULL));
    unlink(log);
    unlink(target.page);
    g_free(target.page);
    return said;
}

static char *saved_state(Disk *disk, const char *state, size_t *count)
{
    g_autofree char *uri = g_strconcat("file:", state, NULL);
    char *bytes;

    qmp_ok(disk->qts, "{'execute': 'migrate', 'arguments': {'uri': %s}}", uri);
    wait_for(migration_completed(disk->qts));
    g_assert(g_file_get_contents(state, &bytes, count, NULL));
    return bytes;
}

/*
 * The registers in the stream, big-endian: driver, port map, interrupt, events. The
 * number of delayed calls is the sixteenth word behind them, as vmstate has it.
 */
static void test_damaged(void)
{
    static const uint8_t registers[] = { 0, 0, 0, 1,  0, 0, 0, 1,
                                         0, 0, 0, 0,  0, 0, 0, 1 };
    static const unsigned places[] = { 3, 7, 11, 15, 79 };
    Disk *disk = disk_new("", CHANNEL);
    g_autofree char *state = g_strconcat(disk->image, ".state", NULL);
    g_autofree char *bytes = NULL;
    Channel channel;
    size_t count;
    char *at;

    set_up(&channel, disk);
    bytes = saved_state(disk, state, &count);
    at = memmem(bytes, count, registers, sizeof(registers));
    g_assert_nonnull(at);
    g_assert_cmpint(at[79], ==, 1);             /* that wait */
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        g_autofree char *said = NULL;
        char kept = at[places[i]];

        at[places[i]] = 77;
        g_assert(g_file_set_contents(state, bytes, count, NULL));
        at[places[i]] = kept;
        said = said_of(disk, state);
        g_assert_nonnull(strstr(said, "sluice0"));
        g_assert_nonnull(strstr(said, "damaged"));
    }
    unlink(state);
    channel_free(&channel);
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("sluice/channel-state/move", test_move);
    qtest_add_func("sluice/channel-state/damaged", test_damaged);
    return g_test_run();
}
