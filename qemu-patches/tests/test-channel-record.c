/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Records: each field out of range alone, and a writer in another thread, of whose
 * records none may be seen in part.
 */
#include <pthread.h>
#include <string.h>

#include "sluice/channel.h"
#include "tap.h"

#define GRANTED     (1u << 2)
#define WRITES      200000

static SluiceChannelStream good_stream(void)
{
    return (SluiceChannelStream){
        .seq = SLUICE_LE32(4), .used = 1, .tag = 2,
        .source = SLUICE_STREAM_VLC, .rate_millihertz = SLUICE_LE32(25000),
        .late = SLUICE_LE32(3), .frames = SLUICE_LE64(1ULL << 40),
        .last_ns = SLUICE_LE64(77), .lost = SLUICE_LE32(5),
        .pace_kib_per_second = SLUICE_LE32(9), .name = "movie: \"a\" ~",
    };
}

static SluiceChannelServer good_server(void)
{
    return (SluiceChannelServer){
        .seq = SLUICE_LE32(8), .used = 1, .tag = 2, .port = SLUICE_LE16(80),
        .queued = SLUICE_LE32(1), .queue_max = SLUICE_LE32(128),
        .open = SLUICE_LE32(7), .open_max = SLUICE_LE32(500),
    };
}

static SluiceRecord load_stream(SluiceChannelStream from)
{
    SluiceChannelStream stream;

    return sluice_stream_load(&stream, &from, GRANTED);
}

static SluiceRecord load_server(SluiceChannelServer from)
{
    SluiceChannelServer server;

    return sluice_server_load(&server, &from, GRANTED);
}

/* The record with one field changed is refused, or what is expected. */
#define check_stream(expected, field, value) do {           \
        SluiceChannelStream changed_ = good_stream();       \
                                                            \
        changed_.field = (value);                           \
        check_equal(load_stream(changed_), (expected));     \
    } while (0)
#define check_server(expected, field, value) do {           \
        SluiceChannelServer changed_ = good_server();       \
                                                            \
        changed_.field = (value);                           \
        check_equal(load_server(changed_), (expected));     \
    } while (0)

static void test_stream(void)
{
    SluiceChannelStream from = good_stream(), stream;

    check_equal(sluice_stream_load(&stream, &from, GRANTED),
                SLUICE_RECORD_READ);
    check_equal(stream.seq, 4);
    check_equal(stream.rate_millihertz, 25000);
    check_equal(stream.late, 3);
    check_equal(stream.frames, 1ULL << 40);
    check_equal(stream.last_ns, 77);
    check_equal(stream.lost, 5);
    check_equal(stream.pace_kib_per_second, 9);
    check(!strcmp(stream.name, "movie: \"a\" ~"));
    check_stream(SLUICE_RECORD_CHANGING, seq, SLUICE_LE32(5));
    check_stream(SLUICE_RECORD_BAD, used, 2);
    check_stream(SLUICE_RECORD_BAD, reserved, 1);
    check_stream(SLUICE_RECORD_BAD, tag, 16);
    check_stream(SLUICE_RECORD_BAD, tag, 255);
    check_stream(SLUICE_RECORD_DENIED, tag, 3);
    check_stream(SLUICE_RECORD_BAD, source, 0);
    check_stream(SLUICE_RECORD_BAD, source, SLUICE_STREAM_SOCKET + 1);
    check_stream(SLUICE_RECORD_BAD, name[3], '\n');
    check_stream(SLUICE_RECORD_BAD, name[3], (char)0xe4);
    check_stream(SLUICE_RECORD_BAD, name[2], 0);        /* and more behind */
    check_stream(SLUICE_RECORD_BAD, name[SLUICE_CHANNEL_NAME_BYTES - 1], 'x');
    /* What is not used is not looked at. */
    check_stream(SLUICE_RECORD_READ, used, 0);
}

static void test_full_name(void)
{
    SluiceChannelStream from = good_stream();

    memset(from.name, 'n', sizeof(from.name));
    check_equal(load_stream(from), SLUICE_RECORD_READ);
}

static void test_server(void)
{
    SluiceChannelServer from = good_server(), server;

    check_equal(sluice_server_load(&server, &from, GRANTED),
                SLUICE_RECORD_READ);
    check_equal(server.seq, 8);
    check_equal(server.port, 80);
    check_equal(server.queued, 1);
    check_equal(server.queue_max, 128);
    check_equal(server.open, 7);
    check_equal(server.open_max, 500);
    check_server(SLUICE_RECORD_CHANGING, seq, SLUICE_LE32(9));
    check_server(SLUICE_RECORD_BAD, used, 3);
    check_server(SLUICE_RECORD_BAD, port, 0);
    check_server(SLUICE_RECORD_BAD, reserved, SLUICE_LE64(1));
    check_server(SLUICE_RECORD_BAD, tag, 16);
    check_server(SLUICE_RECORD_DENIED, tag, 0);
    check_server(SLUICE_RECORD_READ, used, 0);
}

static SluiceChannelStream shared;

/* As the guest's agent does: all words the same, so that a mixture shows. */
static void *writing_thread(void *done)
{
    uint64_t *words = (uint64_t *)&shared;
    uint32_t sequence = 0;

    for (unsigned i = 0; i < WRITES; i++) {
        __atomic_store_n(&shared.seq, SLUICE_LE32(++sequence), __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        for (unsigned j = 1; j < sizeof(shared) / sizeof(*words); j++) {
            __atomic_store_n(&words[j], SLUICE_LE64(i), __ATOMIC_RELAXED);
        }
        __atomic_store_n(&shared.seq, SLUICE_LE32(++sequence), __ATOMIC_RELEASE);
    }
    __atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void test_never_in_part(void)
{
    bool done = false, whole = true;
    pthread_t writer;
    unsigned read = 0;

    check(!pthread_create(&writer, NULL, writing_thread, &done));
    do {
        SluiceChannelStream stream;

        if (sluice_stream_load(&stream, &shared, GRANTED)
            == SLUICE_RECORD_READ) {
            read++;
            whole &= stream.frames == stream.last_ns
                     && stream.lost == (uint32_t)stream.frames
                     && !memcmp(stream.name, &stream.name[8], 8);
        }
    } while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE));
    pthread_join(writer, NULL);
    check(whole);
    check_equal(load_stream(shared), SLUICE_RECORD_READ);
    printf("# read %u records whole\n", read);
}

int main(void)
{
    static const TapTest tests[] = {
        { "record: stream", test_stream },
        { "record: full name", test_full_name },
        { "record: server", test_server },
        { "record: never seen in part", test_never_in_part },
    };

    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
