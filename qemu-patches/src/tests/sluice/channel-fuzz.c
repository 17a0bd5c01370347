/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the channel's device: a guest that writes registers and memory, makes calls
 * of all services, fast and deferred, and lets time pass, while the operator changes a
 * class. After each input the channel must answer, its answers to QMP must hold
 * together, and the host's header must be its own.
 *
 * An input is a list of operations: a byte that says which, and what it needs. The machine is
 * QEMU_FUZZ_ARGS, with a shaper `sluice0` and a channel in slot 5.
 */
#include "qemu/osdep.h"
#include "hw/sluice/shaper.h"
#include "qapi/qapi-commands-sluice.h"
#include "qemu/bswap.h"
#include "sluice/channel-abi.h"
#include "tests/qtest/fuzz/fuzz.h"

#define SHAPER_ID           "sluice0"
#define CONFIG_ADDRESS      0xcf8
#define CONFIG_DATA         0xcfc
#define DEVICE_CONFIG       (1u << 31 | 5 << 11)
#define CONFIG_COMMAND      0x04
#define CONFIG_BAR(i)       (0x10 + 4 * (i))
#define MEMORY_AND_MASTER   6
#define REGISTERS_AT        0xe0000000u
#define GUEST_AT            0xe0100000u
#define HOST_AT             0xe0200000u
#define WRITABLE_BYTES      offsetof(SluiceChannelGuest, reserved_servers)
#define OPERATIONS_MAX      200
#define BULK                2
#define PING_WORD           0x5c1c5c1c5c1c5c1cULL
#define NS_PER_MS           1000000
#define NS_PER_SECOND       1000000000

typedef struct Input {
    QTestState *qts;
    const unsigned char *bytes;
    size_t left;
} Input;

static Shaper *shaper;
static struct {
    uint64_t calls, deferred, events, streams, servers;
} seen;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "sluice-channel: %s\n", what);
        abort();
    }
}

/* Bytes of the input, then zeroes. */
static uint32_t take(Input *input, unsigned bytes)
{
    uint32_t value = 0;

    while (bytes-- > 0 && input->left > 0) {
        value = value << 8 | *input->bytes++;
        input->left--;
    }
    return value;
}

/* A small number mostly; else any. */
static uint32_t take_word(Input *input)
{
    uint32_t value = take(input, 1);

    return value < 0xf0 ? value % 80 : take(input, 4);
}

static void write_register(Input *input, unsigned offset, uint32_t value)
{
    qtest_writel(input->qts, REGISTERS_AT + offset, value);
}

static void write_guest(Input *input, size_t offset, const void *bytes,
                        size_t count)
{
    qtest_memwrite(input->qts, GUEST_AT + offset, bytes, count);
}

/* Operations */

static void do_register(Input *input)
{
    unsigned offset = take(input, 1) % 48;

    write_register(input, offset, take_word(input));
    qtest_readl(input->qts, REGISTERS_AT + offset);
}

static void do_bytes(Input *input)
{
    size_t offset = take(input, 2) % WRITABLE_BYTES;
    size_t count = MIN(take(input, 1) % 64, WRITABLE_BYTES - offset);
    uint8_t bytes[64];

    for (size_t i = 0; i < count; i++) {
        bytes[i] = take(input, 1);
    }
    write_guest(input, offset, bytes, count);
}

static SluiceChannelCall take_call(Input *input)
{
    SluiceChannelCall call = {
        .service = cpu_to_le32(take(input, 1) % 8),
        .operation = cpu_to_le32(take(input, 1) % 3),
    };

    for (unsigned i = 0; i < 4; i++) {
        call.arguments[i] = cpu_to_le64(take_word(input));
    }
    return call;
}

static void do_fast_call(Input *input)
{
    unsigned slot = take(input, 1) % SLUICE_CHANNEL_SLOTS;
    SluiceChannelCall call = take_call(input);

    write_guest(input, offsetof(SluiceChannelGuest, calls)
                       + slot * sizeof(call), &call, sizeof(call));
    write_register(input, SLUICE_CHANNEL_REG_CALL, slot);
}

static void do_deferred_call(Input *input)
{
    uint32_t head = qtest_readl(input->qts, GUEST_AT);
    SluiceChannelCall call = take_call(input);

    call.key = cpu_to_le32(take_word(input));
    call.delay_ms = cpu_to_le32(take_word(input));
    write_guest(input, offsetof(SluiceChannelGuest, ring)
                       + head % SLUICE_CHANNEL_RING * sizeof(call), &call,
                sizeof(call));
    qtest_writel(input->qts, GUEST_AT, head + 1);
}

static void do_stream(Input *input)
{
    SluiceChannelStream stream = {
        .seq = cpu_to_le32(take_word(input)), .used = take(input, 1) % 3,
        .tag = take(input, 1) % 18, .source = take(input, 1) % 7,
        .frames = cpu_to_le64(take_word(input)),
    };

    memset(stream.name, take(input, 1), take(input, 1) % 25);
    write_guest(input, offsetof(SluiceChannelGuest, streams)
                       + take(input, 1) % 64 * sizeof(stream), &stream,
                sizeof(stream));
}

static void do_server(Input *input)
{
    SluiceChannelServer server = {
        .seq = cpu_to_le32(take_word(input)), .used = take(input, 1) % 3,
        .tag = take(input, 1) % 18, .port = cpu_to_le16(take(input, 2)),
        .open = cpu_to_le32(take_word(input)),
    };

    write_guest(input, offsetof(SluiceChannelGuest, servers)
                       + take(input, 1) % 64 * sizeof(server), &server,
                sizeof(server));
}

static void do_kick(Input *input)
{
    shaper_channel_kick(shaper);
}

static void do_clock(Input *input)
{
    qtest_clock_step(input->qts, (1 + (int64_t)take(input, 1)) * NS_PER_MS);
}

/* The operator limits a class, or takes it away. */
static void do_class(Input *input)
{
    ShaperLimit limit = { .resource = SHAPER_RESOURCE_BLK_READ,
                          .has_bytes_per_second = true,
                          .bytes_per_second = 1 + take(input, 1) };
    ShaperLimitList limits = { .value = &limit };
    ShaperClassSetting setting = { .id = (char *)SHAPER_ID,
                                   .q_class = (char *)"fuzzed", .tag = BULK,
                                   .has_limits = true, .limits = &limits };

    if (take(input, 1) % 4) {
        qmp_shaper_set_class(&setting, NULL);
    } else {
        qmp_shaper_remove_class(SHAPER_ID, "fuzzed", NULL);
    }
}

/* The end of an input */

static void note_seen(void)
{
    ShaperChannelInfo *info = qmp_query_shaper_channel(SHAPER_ID, &error_abort);

    seen.calls = info->calls;
    seen.deferred = info->deferred;
    seen.events = info->events;
    seen.streams += info->streams != NULL;
    seen.servers += info->servers != NULL;
    for (ShaperStreamList *s = info->streams; s; s = s->next) {
        require(s->value->number < SLUICE_CHANNEL_STREAMS
                && s->value->tag < SLUICE_CHANNEL_TAGS
                && strlen(s->value->name) <= SLUICE_CHANNEL_NAME_BYTES,
                "a stream out of range is shown");
    }
    qapi_free_ShaperChannelInfo(info);
}

static void check_answers(Input *input)
{
    SluiceChannelCall ping = { .service = cpu_to_le32(SLUICE_SERVICE_CHANNEL),
                               .key = cpu_to_le32(77),
                               .arguments = { cpu_to_le64(PING_WORD) } };
    SluiceChannelHeader header;
    SluiceChannelResult result;

    write_register(input, SLUICE_CHANNEL_REG_DRIVER, 0);
    write_register(input, SLUICE_CHANNEL_REG_DRIVER, 1);
    qtest_clock_step(input->qts, NS_PER_SECOND);
    write_guest(input, offsetof(SluiceChannelGuest, calls), &ping, sizeof(ping));
    write_register(input, SLUICE_CHANNEL_REG_CALL, 0);
    qtest_memread(input->qts, HOST_AT + offsetof(SluiceChannelHost, results),
                  &result, sizeof(result));
    qtest_memread(input->qts, HOST_AT, &header, sizeof(header));
    require(le32_to_cpu(result.sequence) == 77
            && le32_to_cpu(result.status) == SLUICE_CALL_OK
            && le64_to_cpu(result.value) == PING_WORD, "a call is not answered");
    require(!memcmp(header.magic, SLUICE_CHANNEL_HEADER_MAGIC,
                    sizeof(header.magic)), "the host's header is not its own");
}

static void channel_fuzz(QTestState *qts, const unsigned char *bytes,
                         size_t size)
{
    static void (*const operations[])(Input *input) = {
        do_register, do_bytes, do_fast_call, do_deferred_call, do_stream,
        do_server, do_kick, do_clock, do_class,
    };
    Input input = { .qts = qts, .bytes = bytes, .left = size };

    for (unsigned i = 0; i < OPERATIONS_MAX && input.left > 0; i++) {
        operations[take(&input, 1) % ARRAY_SIZE(operations)](&input);
    }
    flush_events(qts);
    note_seen();
    check_answers(&input);
}

/* The beginning and the end of all */

static void write_config(QTestState *qts, unsigned offset, uint32_t value)
{
    qtest_outl(qts, CONFIG_ADDRESS, DEVICE_CONFIG | offset);
    qtest_outl(qts, CONFIG_DATA, value);
}

static void tell_seen(void)
{
    printf("channel: %" PRIu64 " calls, %" PRIu64 " deferred, %" PRIu64
           " events, %" PRIu64 " with streams, %" PRIu64 " with servers\n",
           seen.calls, seen.deferred, seen.events, seen.streams, seen.servers);
}

static void channel_pre_fuzz(QTestState *qts)
{
    fuzz_qtest_set_serialize(false);
    write_config(qts, CONFIG_BAR(SLUICE_CHANNEL_BAR_REGISTERS), REGISTERS_AT);
    write_config(qts, CONFIG_BAR(SLUICE_CHANNEL_BAR_GUEST), GUEST_AT);
    write_config(qts, CONFIG_BAR(SLUICE_CHANNEL_BAR_HOST), HOST_AT);
    write_config(qts, CONFIG_COMMAND, MEMORY_AND_MASTER);
    shaper = SHAPER(object_resolve_path_component(object_get_objects_root(),
                                                  SHAPER_ID));
    require(qtest_readl(qts, REGISTERS_AT) == SLUICE_CHANNEL_MAGIC,
            "there is no channel in slot 5");
    write_register(&(Input){ .qts = qts }, SLUICE_CHANNEL_REG_DRIVER, 1);
    atexit(tell_seen);
}

static GString *channel_cmdline(FuzzTarget *target)
{
    GString *line = g_string_new(TARGET_NAME);

    g_string_append_printf(line, " -machine accel=qtest %s",
                           getenv("QEMU_FUZZ_ARGS") ?: "");
    return line;
}

static void register_channel_fuzz_target(void)
{
    fuzz_add_target(&(FuzzTarget){
        .name = "sluice-channel",
        .description = "Fuzz the channel between guest and shaper",
        .get_init_cmdline = channel_cmdline,
        .pre_fuzz = channel_pre_fuzz,
        .fuzz = channel_fuzz,
    });
}

fuzz_target_init(register_channel_fuzz_target);
