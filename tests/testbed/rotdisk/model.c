// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A rotating disk, and the scheduler of the host it belongs to.
 *
 * The drive. One head, one platter whose bytes lie one after another on
 * tracks of media_bps × revolution_ns bytes. A request that does not start
 * where the last one ended costs a seek, which grows with the square root of
 * the distance (the arm accelerates half of the way and brakes the other
 * half), and then the rotation until the first byte comes under the head. The
 * rotation is not drawn at random: the platter's angle follows from the time.
 * A request that starts where the last one ended costs neither, even if it
 * comes late: the drive goes on reading into its buffer, and what is there
 * leaves it at the speed of the interface. When the buffer is full the head
 * waits for one more turn to come round to where it stopped. Only one segment
 * is buffered, and it is lost when the head moves.
 *
 * The scheduler. Like Linux' anticipatory and CFQ schedulers it knows
 * sequential readers (here: by a request that starts where an earlier one
 * ended), and serves them in turn, each for a slice of time. If the reader
 * whose slice it is has no request waiting, the scheduler keeps the head where
 * it is for a short while, because a reader that gets its block mostly asks
 * for the next one at once: idling for a millisecond is cheaper than two
 * seeks. As in CFQ it does so only for readers whose smoothed think time is
 * below that window, so a paced reader never blocks the disk.
 *
 * What follows from it, and what the papers saw (SCS, section 5.5.1): twelve
 * greedy readers get nearly the drive's own rate together, because each uses
 * its slice to the full; and anybody else waits for up to twelve slices for
 * every single read, above one second.
 *
 * Time may be passed late: if the caller asks at 5 ms about a drive that was
 * free since 4 ms while a request was waiting since 3 ms, the request started
 * at 4 ms. So the wake-up delays of a busy machine do not slow the disk down.
 *
 * Not modelled: zones (all images lie in one), write caching, reordering in
 * the drive (NCQ), bad sectors, and spin-down.
 */
#include "model.h"

#include <math.h>
#include <string.h>

#define MS 1000000ull
#define US 1000ull
#define MB 1000000ull
#define MIB (1ull << 20)
#define NS_PER_S 1000000000.0

/* A request this far ahead of a stream is still the stream's own: the guest
 * may submit the parts of one read-ahead out of order. */
#define STREAM_GAP_BYTES (4 * MIB)

struct rotdisk_params rotdisk_defaults(void)
{
    return (struct rotdisk_params) {
        .revolution_ns = 8333333,
        .media_bps = 50 * MB,
        .interface_bps = 150 * MB,
        .capacity_bytes = 80000 * MB,
        .seek_track_ns = 1 * MS,
        .seek_average_ns = 8500 * US,
        .buffer_bytes = 2 * MIB,
        .overhead_ns = 200 * US,
        .slice_ns = 100 * MS,
        .idle_ns = 8 * MS,
    };
}

size_t rotdisk_constants(const struct rotdisk_params *p, struct rotdisk_constant *table)
{
    const struct rotdisk_constant rows[] = {
        { "revolution_ns", p->revolution_ns, "7200 turns a minute" },
        { "media_bps", p->media_bps,
          "a desktop drive of the papers' years; twelve readers got 45.2 MB/s from theirs" },
        { "interface_bps", p->interface_bps, "SATA, first generation" },
        { "capacity_bytes", p->capacity_bytes, "one platter of such a drive" },
        { "seek_track_ns", p->seek_track_ns, "data sheets: 0.8 to 1.2 ms" },
        { "seek_average_ns", p->seek_average_ns, "data sheets: 8.5 to 9 ms, a third of a stroke" },
        { "buffer_bytes", p->buffer_bytes, "an 8 MiB cache in four segments" },
        { "overhead_ns", p->overhead_ns, "command processing in the drive" },
        { "slice_ns", p->slice_ns, "slice_sync of the CFQ scheduler" },
        { "idle_ns", p->idle_ns, "slice_idle of the CFQ scheduler" },
    };
    memcpy(table, rows, sizeof(rows));
    return sizeof(rows) / sizeof(rows[0]);
}

static uint64_t *field_of(struct rotdisk_params *p, const char *name)
{
    const struct { const char *name; uint64_t *field; } fields[] = {
        { "revolution_ns", &p->revolution_ns },
        { "media_bps", &p->media_bps },
        { "interface_bps", &p->interface_bps },
        { "capacity_bytes", &p->capacity_bytes },
        { "seek_track_ns", &p->seek_track_ns },
        { "seek_average_ns", &p->seek_average_ns },
        { "buffer_bytes", &p->buffer_bytes },
        { "overhead_ns", &p->overhead_ns },
        { "slice_ns", &p->slice_ns },
        { "idle_ns", &p->idle_ns },
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return fields[i].field;
        }
    }
    return NULL;
}

bool rotdisk_set(struct rotdisk_params *params, const char *name, uint64_t value)
{
    uint64_t *field = field_of(params, name);

    if (!field || value == 0) {
        return false;
    }
    *field = value;
    return true;
}

/* The drive */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t transfer_ns(uint64_t bytes, uint64_t bps)
{
    return (uint64_t)((double)bytes * NS_PER_S / (double)bps + 0.5);
}

uint64_t rotdisk_seek_ns(const struct rotdisk_params *p, uint64_t distance)
{
    const double average = sqrt(1.0 / 3.0);
    double slope;

    if (distance == 0) {
        return 0;
    }
    slope = ((double)p->seek_average_ns - (double)p->seek_track_ns) / average;
    if (slope < 0) {
        slope = 0;
    }
    return p->seek_track_ns +
           (uint64_t)(slope * sqrt((double)distance / (double)p->capacity_bytes));
}

/* Time at now_ns until byte comes under the head. */
static uint64_t rotation_ns(const struct rotdisk_params *p, uint64_t byte, uint64_t now_ns)
{
    uint64_t track = transfer_ns(byte, p->media_bps) % p->revolution_ns;
    uint64_t angle = now_ns % p->revolution_ns;

    return track >= angle ? track - angle : track + p->revolution_ns - angle;
}

/* A request that starts where the head stopped reading at free_ns. */
static uint64_t serve_contiguous(const struct rotdisk_model *m, uint64_t bytes, uint64_t start_ns)
{
    const struct rotdisk_params *p = &m->params;
    uint64_t full_ns = m->free_ns + transfer_ns(p->buffer_bytes, p->media_bps);
    uint64_t from_media_ns, from_buffer_ns;

    from_buffer_ns = start_ns + p->overhead_ns + transfer_ns(bytes, p->interface_bps);
    if (start_ns < full_ns) {
        from_media_ns = m->free_ns + transfer_ns(bytes, p->media_bps);
    } else if (bytes <= p->buffer_bytes) {
        from_media_ns = 0;
    } else {
        uint64_t stopped = m->head_byte + p->buffer_bytes;
        from_media_ns = start_ns + rotation_ns(p, stopped, start_ns) +
                        transfer_ns(bytes - p->buffer_bytes, p->media_bps);
    }
    return later(from_media_ns, from_buffer_ns);
}

static void serve(struct rotdisk_model *m, struct rotdisk_request *r, uint64_t start_ns)
{
    const struct rotdisk_params *p = &m->params;

    r->started_ns = start_ns;
    if (r->start == m->head_byte) {
        r->seeked = false;
        r->positioning_ns = 0;
        r->done_ns = serve_contiguous(m, r->bytes, start_ns);
    } else {
        uint64_t distance = r->start > m->head_byte ? r->start - m->head_byte
                                                    : m->head_byte - r->start;
        uint64_t seek = p->overhead_ns + rotdisk_seek_ns(p, distance);

        r->seeked = true;
        r->positioning_ns = seek + rotation_ns(p, r->start, start_ns + seek);
        r->done_ns = start_ns + r->positioning_ns + transfer_ns(r->bytes, p->media_bps);
    }
    m->current = r;
    m->head_byte = r->start + r->bytes;
}

/* The scheduler */

void rotdisk_init(struct rotdisk_model *m, const struct rotdisk_params *params)
{
    memset(m, 0, sizeof(*m));
    m->params = *params;
    m->active = -1;
    m->head_byte = params->capacity_bytes / 2;
}

/* The stream that the request continues, else the one unused for longest
 * (there are more streams than requests the callers can have waiting). */
static int stream_of(struct rotdisk_model *m, const struct rotdisk_request *r)
{
    int best = -1, oldest = -1;

    for (int i = 0; i < ROTDISK_STREAMS; i++) {
        struct rotdisk_stream *s = &m->streams[i];

        if (s->used && r->start >= s->expected &&
            r->start - s->expected <= STREAM_GAP_BYTES &&
            (best < 0 || s->expected > m->streams[best].expected)) {
            best = i;
        }
        if (!s->head && (oldest < 0 || s->last_used_ns < m->streams[oldest].last_used_ns)) {
            oldest = i;
        }
    }
    if (best >= 0) {
        return best;
    }
    if (oldest < 0) {
        return (int)(r->start / STREAM_GAP_BYTES % ROTDISK_STREAMS);
    }
    memset(&m->streams[oldest], 0, sizeof(m->streams[oldest]));
    if (m->active == oldest) {
        m->active = -1;
    }
    return oldest;
}

/* CFQ's smoothing: an eighth of each new sample, and none above twice the
 * window, so that one pause is soon forgotten. */
static void learn_think_time(struct rotdisk_stream *s, uint64_t arrived_ns, uint64_t idle_ns)
{
    uint64_t sample = arrived_ns > s->last_done_ns ? arrived_ns - s->last_done_ns : 0;

    if (sample > 2 * idle_ns) {
        sample = 2 * idle_ns;
    }
    s->think_ns = (s->think_ns * 7 + sample) / 8;
}

void rotdisk_submit(struct rotdisk_model *m, struct rotdisk_request *r)
{
    struct rotdisk_stream *s = &m->streams[stream_of(m, r)];

    if (!s->head) {
        s->tail = &s->head;
        s->turn = m->turns++;
        if (s->used && s->last_done_ns) {
            learn_think_time(s, r->arrived_ns, m->params.idle_ns);
        }
    }
    r->next = NULL;
    *s->tail = r;
    s->tail = &r->next;
    s->used = true;
    s->last_used_ns = r->arrived_ns;
    if (r->start + r->bytes > s->expected) {
        s->expected = r->start + r->bytes;
    }
    m->pending++;
}

/* The stream that has waited for its turn longest, or -1. */
static int next_in_turn(const struct rotdisk_model *m)
{
    int first = -1;

    for (int i = 0; i < ROTDISK_STREAMS; i++) {
        const struct rotdisk_stream *s = &m->streams[i];

        if (s->head && (first < 0 || s->turn < m->streams[first].turn)) {
            first = i;
        }
    }
    return first;
}

static void start_first_of(struct rotdisk_model *m, int index, uint64_t start_ns)
{
    struct rotdisk_stream *s = &m->streams[index];
    struct rotdisk_request *r = s->head;

    s->head = r->next;
    m->pending--;
    serve(m, r, start_ns);
    s->last_done_ns = r->done_ns;
}

/* Gives the slice to the stream whose turn it is; what is left of the old
 * owner's backlog goes to the end of the round. */
static bool pass_the_slice(struct rotdisk_model *m, uint64_t at_ns)
{
    int next;

    if (m->active >= 0 && m->streams[m->active].head) {
        m->streams[m->active].turn = m->turns++;
    }
    next = next_in_turn(m);
    m->active = next;
    if (next < 0) {
        return false;
    }
    at_ns = later(at_ns, m->streams[next].head->arrived_ns);
    m->slice_end_ns = at_ns + m->params.slice_ns;
    start_first_of(m, next, at_ns);
    return true;
}

/* Until when the head is kept where it is for the owner of the slice. */
static uint64_t keep_until_ns(const struct rotdisk_model *m)
{
    const struct rotdisk_stream *s = &m->streams[m->active];

    if (s->think_ns > m->params.idle_ns) {
        return m->free_ns;
    }
    return m->free_ns + m->params.idle_ns;
}

enum rotdisk_decision rotdisk_decide(struct rotdisk_model *m, uint64_t now_ns, uint64_t *until_ns)
{
    uint64_t pass_at_ns = m->free_ns;

    if (!m->current && m->active >= 0 && m->free_ns < m->slice_end_ns) {
        struct rotdisk_stream *s = &m->streams[m->active];
        uint64_t keep_ns = keep_until_ns(m);

        if (s->head && s->head->arrived_ns <= keep_ns) {
            start_first_of(m, m->active, later(m->free_ns, s->head->arrived_ns));
        } else if (m->pending && now_ns < keep_ns) {
            *until_ns = keep_ns;
            return ROTDISK_IDLING;
        }
        pass_at_ns = keep_ns;
    }
    if (!m->current && (!m->pending || !pass_the_slice(m, pass_at_ns))) {
        return ROTDISK_EMPTY;
    }
    *until_ns = m->current->done_ns;
    return ROTDISK_BUSY;
}

struct rotdisk_request *rotdisk_complete(struct rotdisk_model *m, uint64_t now_ns)
{
    struct rotdisk_request *r = m->current;

    if (!r || now_ns < r->done_ns) {
        return NULL;
    }
    m->current = NULL;
    m->free_ns = r->done_ns;
    return r;
}
