/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stream and server records, which the guest writes: a copy is taken whole, or not at
 * all. A record is read once, without another try: the next look comes soon, and a guest
 * that writes all the time must not keep the host.
 */
#include <string.h>

#include "sluice/channel.h"

#define WORD_BYTES  sizeof(uint64_t)

/* The sequence is in the first word. False: it is being written. */
static bool load_whole(void *record, const void *from, size_t bytes)
{
    const uint64_t *words = from;
    const uint32_t *sequence = from;
    uint32_t before = sluice_guest_load(sequence), after;

    for (size_t i = 0; i < bytes / WORD_BYTES; i++) {
        uint64_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);

        memcpy((char *)record + i * WORD_BYTES, &word, WORD_BYTES);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    after = SLUICE_LE32(__atomic_load_n(sequence, __ATOMIC_RELAXED));
    return before % 2 == 0 && before == after;
}

/* Printable ASCII, then NULs. */
static bool is_name(const char name[SLUICE_CHANNEL_NAME_BYTES])
{
    unsigned i = 0;

    while (i < SLUICE_CHANNEL_NAME_BYTES && name[i] >= ' ' && name[i] <= '~') {
        i++;
    }
    while (i < SLUICE_CHANNEL_NAME_BYTES && !name[i]) {
        i++;
    }
    return i == SLUICE_CHANNEL_NAME_BYTES;
}

static SluiceRecord check_class(unsigned tag, uint32_t granted)
{
    return tag >= SLUICE_CHANNEL_TAGS ? SLUICE_RECORD_BAD
           : granted >> tag & 1 ? SLUICE_RECORD_READ : SLUICE_RECORD_DENIED;
}

SluiceRecord sluice_stream_load(SluiceChannelStream *stream,
                                const SluiceChannelStream *from,
                                uint32_t granted)
{
    SluiceChannelStream read;

    if (!load_whole(&read, from, sizeof(read))) {
        return SLUICE_RECORD_CHANGING;
    }
    read.seq = SLUICE_LE32(read.seq);
    read.rate_millihertz = SLUICE_LE32(read.rate_millihertz);
    read.late = SLUICE_LE32(read.late);
    read.frames = SLUICE_LE64(read.frames);
    read.last_ns = SLUICE_LE64(read.last_ns);
    read.lost = SLUICE_LE32(read.lost);
    read.pace_kib_per_second = SLUICE_LE32(read.pace_kib_per_second);
    *stream = read;
    if (!read.used) {
        return SLUICE_RECORD_READ;
    }
    if (read.used != 1 || read.reserved || !is_name(read.name)
        || read.source < SLUICE_STREAM_PROGRAM
        || read.source > SLUICE_STREAM_SOCKET) {
        return SLUICE_RECORD_BAD;
    }
    return check_class(read.tag, granted);
}

SluiceRecord sluice_server_load(SluiceChannelServer *server,
                                const SluiceChannelServer *from,
                                uint32_t granted)
{
    SluiceChannelServer read;

    if (!load_whole(&read, from, sizeof(read))) {
        return SLUICE_RECORD_CHANGING;
    }
    read.seq = SLUICE_LE32(read.seq);
    read.port = SLUICE_LE16(read.port);
    read.queued = SLUICE_LE32(read.queued);
    read.queue_max = SLUICE_LE32(read.queue_max);
    read.open = SLUICE_LE32(read.open);
    read.open_max = SLUICE_LE32(read.open_max);
    *server = read;
    if (!read.used) {
        return SLUICE_RECORD_READ;
    }
    if (read.used != 1 || !read.port || read.reserved) {
        return SLUICE_RECORD_BAD;
    }
    return check_class(read.tag, granted);
}
