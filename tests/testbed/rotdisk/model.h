/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The model of one rotating disk and of the host's I/O scheduler above it.
 * See model.c for how it works. Pure: no clock, no threads, no files; the
 * caller passes CLOCK_MONOTONIC (or any other) time in nanoseconds and never
 * goes back.
 */
#ifndef ROTDISK_MODEL_H
#define ROTDISK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROTDISK_STREAMS 128

/* One constant: what the table, the command line and the reports show. */
struct rotdisk_constant {
    const char *name;   /* with its unit */
    uint64_t value;
    const char *why;
};

struct rotdisk_params {
    /* the drive */
    uint64_t revolution_ns;
    uint64_t media_bps;          /* bytes per second under the head */
    uint64_t interface_bps;      /* bytes per second from the drive's buffer */
    uint64_t capacity_bytes;
    uint64_t seek_track_ns;      /* to the next track */
    uint64_t seek_average_ns;    /* over a third of the platter */
    uint64_t buffer_bytes;       /* the drive's own read-ahead */
    uint64_t overhead_ns;        /* command processing, each request */
    /* the host's scheduler */
    uint64_t slice_ns;           /* one stream is served for so long */
    uint64_t idle_ns;            /* and waited for so long */
};

struct rotdisk_request {
    uint64_t start;              /* byte on the platter */
    uint64_t bytes;
    uint64_t arrived_ns;
    /* results */
    uint64_t started_ns;
    uint64_t done_ns;
    uint64_t positioning_ns;     /* seek and rotation, part of the service */
    bool seeked;
    /* private */
    struct rotdisk_request *next;
};

struct rotdisk_stream {
    struct rotdisk_request *head, **tail;  /* pending, in order of arrival */
    uint64_t expected;           /* where its next request should start */
    uint64_t turn;               /* its place in the round: lower comes first */
    uint64_t last_done_ns;
    uint64_t last_used_ns;
    uint64_t think_ns;           /* smoothed time from completion to arrival */
    bool used;
};

struct rotdisk_model {
    struct rotdisk_params params;
    struct rotdisk_stream streams[ROTDISK_STREAMS];
    struct rotdisk_request *current;       /* under service */
    int active;                  /* stream that owns the slice, or -1 */
    uint64_t slice_end_ns;
    uint64_t free_ns;            /* the drive has been free since */
    uint64_t head_byte;          /* where the head stopped reading */
    uint64_t pending;
    uint64_t turns;
};

enum rotdisk_decision {
    ROTDISK_EMPTY,               /* nothing to do: wait for an arrival */
    ROTDISK_BUSY,                /* under service until *until_ns */
    ROTDISK_IDLING,              /* waits for the active stream until *until_ns */
};

struct rotdisk_params rotdisk_defaults(void);
/* Fills table (of at least 16) and returns the number of rows. */
size_t rotdisk_constants(const struct rotdisk_params *params,
                         struct rotdisk_constant *table);
/* Sets a constant by its name; false if there is none or the value is 0. */
bool rotdisk_set(struct rotdisk_params *params, const char *name, uint64_t value);

void rotdisk_init(struct rotdisk_model *model, const struct rotdisk_params *params);
/* start, bytes and arrived_ns must be set; the request must live until done. */
void rotdisk_submit(struct rotdisk_model *model, struct rotdisk_request *request);
/* What the drive does at now_ns; starts the next request if it may. */
enum rotdisk_decision rotdisk_decide(struct rotdisk_model *model, uint64_t now_ns,
                                     uint64_t *until_ns);
/* The request under service if it is done at now_ns (and takes it), else NULL. */
struct rotdisk_request *rotdisk_complete(struct rotdisk_model *model, uint64_t now_ns);
/* Seek over distance bytes, without rotation. */
uint64_t rotdisk_seek_ns(const struct rotdisk_params *params, uint64_t distance);

#endif
