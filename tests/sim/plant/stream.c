// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A stream: a server in a guest that reads a film ahead and sends it at its pace, and a
 * player elsewhere that buffers.
 *
 * The server has `depth` reads under way at most, and as many read and not yet sent, but for
 * the request that it sends. A byte at p is due to leave at began + p / rate; if it is late, it
 * leaves as soon as it is there, and the server catches up at CATCH_UP times the rate. The
 * player wants it `buffer` later. If it comes later than that the picture stands still: each
 * half-second from when it was due until it came is imperfect, and the clocks of both go on
 * that much later. A lost frame makes the half-second imperfect in which it was due.
 *
 * A stream that reads nothing has its bytes at once (a camera); a stream that sends nothing hands
 * them to a player in the guest.
 */
#include "plant.h"

#define CATCH_UP 4.0
#define HALF_NS (SECOND / 2)

static uint64_t leaves_ns(const Stream *stream, uint64_t position)
{
    return stream->began_ns + stream->slip_ns
           + (uint64_t)(position * 1e9 / stream->what.bytes_per_second);
}

static uint64_t due_ns(const Plant *plant, const Stream *stream, uint64_t position)
{
    uint64_t way_ns = stream->what.sends ? plant->delay_ns : 0;

    return leaves_ns(stream, position) + stream->what.buffer_ns + way_ns;
}

static void mark(Stream *stream, uint64_t from_ns, uint64_t to_ns)
{
    for (uint64_t half = from_ns / HALF_NS; half <= to_ns / HALF_NS && half < HALVES_MAX;
         half++) {
        stream->bad[half] = 1;
    }
}

/* Reading */

static void count_until_now(Plant *plant, Stream *stream)
{
    uint64_t passed_ns = plant->now_ns - stream->counted_ns;

    stream->reads.busy_ns += passed_ns * stream->outstanding;
    stream->reads.outstanding_ns += stream->outstanding ? passed_ns : 0;
    stream->counted_ns = plant->now_ns;
}

static unsigned place_of(const Stream *stream, uint64_t position)
{
    return position % stream->what.size / stream->what.request_bytes % READS_MAX;
}

uint64_t oldest_read_ns(const Stream *stream)
{
    uint64_t bytes = stream->what.request_bytes, oldest_ns = 0;

    for (uint64_t position = stream->had; position < stream->issued; position += bytes) {
        unsigned place = place_of(stream, position);

        if (!stream->back[place]
            && (!oldest_ns || stream->asked_ns[place] < oldest_ns)) {
            oldest_ns = stream->asked_ns[place];
        }
    }
    return oldest_ns;
}

void sim_reads(Plant *plant, int index, SimReads *reads)
{
    Stream *stream = &plant->streams[index];
    uint64_t oldest_ns = oldest_read_ns(stream);

    count_until_now(plant, stream);
    *reads = stream->reads;
    reads->oldest_ns = oldest_ns ? plant->now_ns - oldest_ns : 0;
}

static void read_ahead(Plant *plant, Stream *stream)
{
    const SimStream *what = &stream->what;

    while (stream->outstanding < what->depth
           && stream->issued + what->request_bytes
                  <= stream->sent + (uint64_t)(what->depth + 1) * what->request_bytes) {
        Item *item = new_item(plant);

        item->stream = stream;
        item->vm = what->vm;
        item->tag = what->tag;
        item->bytes = what->request_bytes;
        item->position = what->base + stream->issued % what->size;
        count_until_now(plant, stream);
        stream->asked_ns[place_of(stream, stream->issued)] = plant->now_ns;
        stream->reads.asked[stream->outstanding]++;
        stream->issued += what->request_bytes;
        stream->outstanding++;
        submit(plant, item);
    }
    reads_changed(plant, stream);
}

static void send_next(Plant *plant, Stream *stream);

/* A read is back; only bytes without a gap before them can be sent. */
void stream_read(Plant *plant, Item *item)
{
    Stream *stream = item->stream;
    uint32_t bytes = stream->what.request_bytes;

    count_until_now(plant, stream);
    stream->outstanding--;
    stream->reads.bytes += bytes;
    stream->back[place_of(stream, item->position - stream->what.base)] = true;
    while (stream->back[place_of(stream, stream->had)]) {
        stream->back[place_of(stream, stream->had)] = false;
        stream->had += bytes;
    }
    free_item(plant, item);
    read_ahead(plant, stream);
    send_next(plant, stream);
}

/* Sending */

static void play(Plant *plant, Stream *stream, uint64_t position, uint32_t bytes)
{
    uint64_t due = due_ns(plant, stream, position);

    stream->received_bytes += bytes;
    stream->arrived = position + bytes;
    if (plant->now_ns > due) {
        mark(stream, due, plant->now_ns);
        stream->slip_ns += plant->now_ns - due;
        stream->stall_ns += plant->now_ns - due;
        stream->stalls++;
    }
}

/*
 * A connection of TCP would have its confirmation on the way back: RFC 6298, section 2. Until
 * then nobody knows; readers add the way back to the time.
 */
static void note_round_trip(Plant *plant, Stream *stream, uint64_t sent_ns)
{
    SimRoundTrip *known = &stream->round_trip;
    uint64_t took_ns = plant->now_ns + plant->delay_ns - sent_ns;

    known->smoothed_ns = known->least_ns ? (7 * known->smoothed_ns + took_ns) / 8 : took_ns;
    if (!known->least_ns || took_ns < known->least_ns) {
        known->least_ns = took_ns;
    }
}

void sim_round_trip(const Plant *plant, int index, SimRoundTrip *found)
{
    *found = plant->streams[index].round_trip;
}

void stream_arrived(Plant *plant, Item *item)
{
    note_round_trip(plant, item->stream, item->given_ns);
    play(plant, item->stream, item->position, item->bytes);
    free_item(plant, item);
}

void stream_lost(Plant *plant, Item *item)
{
    Stream *stream = item->stream;
    uint64_t due = due_ns(plant, stream, item->position);

    mark(stream, due, due);
    stream->lost++;
    if (stream->arrived < item->position + item->bytes) {
        stream->arrived = item->position + item->bytes;
    }
    free_item(plant, item);
}

static void send_frame(Plant *plant, void *about, uint64_t number)
{
    Stream *stream = about;
    uint32_t bytes = stream->what.frame_bytes;
    uint64_t position = stream->sent;

    (void)number;
    stream->sending = false;
    stream->sent += bytes;
    stream->paced_ns =
        after_ns(plant, bytes * 1e9 / (CATCH_UP * stream->what.bytes_per_second));
    if (stream->what.sends) {
        Item *item = new_item(plant);

        item->stream = stream;
        item->vm = stream->what.vm;
        item->tag = stream->what.tag;
        item->resource = 2;
        item->bytes = bytes;
        item->position = position;
        submit(plant, item);
    } else {
        play(plant, stream, position, bytes);
    }
    if (stream->what.reads) {
        read_ahead(plant, stream);
    }
    send_next(plant, stream);
}

static void send_next(Plant *plant, Stream *stream)
{
    uint64_t at_ns = leaves_ns(stream, stream->sent);

    if (stream->sending
        || (stream->what.reads && stream->sent + stream->what.frame_bytes > stream->had)) {
        return;
    }
    stream->sending = true;
    at(plant, at_ns > stream->paced_ns ? at_ns : stream->paced_ns, send_frame, stream, 0);
}

void stream_begin(Plant *plant, Stream *stream)
{
    stream->began_ns = plant->now_ns;
    if (stream->what.reads) {
        /* The first reads take their time. */
        stream->began_ns += stream->what.buffer_ns / 2;
        read_ahead(plant, stream);
    }
    send_next(plant, stream);
}

/* Results */

/* A picture that stands still now is imperfect since its next byte was due. */
void stream_settle(Plant *plant, Stream *stream)
{
    uint64_t due;

    if (!stream->began_ns) {
        return;
    }
    due = due_ns(plant, stream, stream->arrived);
    if (plant->now_ns > due) {
        mark(stream, due, plant->now_ns);
    }
}

void sim_quality(Plant *plant, int index, SimQuality *quality)
{
    Stream *stream = &plant->streams[index];
    uint64_t due = due_ns(plant, stream, stream->arrived);
    uint64_t still_ns = stream->began_ns && plant->now_ns > due ? plant->now_ns - due : 0;

    *quality = (SimQuality){ stream->received_bytes, stream->lost,
                             stream->stalls + (still_ns > 0), stream->stall_ns + still_ns,
                             stream->slip_ns };
}

int sim_halves(Plant *plant, int index, uint8_t *bad, int room)
{
    Stream *stream = &plant->streams[index];
    int halves = (int)(plant->now_ns / HALF_NS);

    stream_settle(plant, stream);
    if (halves > room) {
        halves = room;
    }
    if (halves > HALVES_MAX) {
        halves = HALVES_MAX;
    }
    for (int half = 0; half < halves; half++) {
        bad[half] = stream->bad[half];
    }
    return halves;
}
