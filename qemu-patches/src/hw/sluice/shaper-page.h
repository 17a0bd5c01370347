/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writer of the counters page: a file of fixed layout that other processes
 * read while QEMU runs (docs/specs/counters-page.md: the structures below are that table,
 * and their sizes are checked at build time).
 *
 * Requests write nothing here: shaper_show() copies the engines' counters some times a
 * second, class by class, and shaper-page.c writes those that have changed to the file.
 */
#ifndef HW_SLUICE_SHAPER_PAGE_H
#define HW_SLUICE_SHAPER_PAGE_H

#include "qemu/bswap.h"
#include "sluice/engine.h"

#define SHAPER_PAGE_TAGS            16
#define SHAPER_PAGE_RESOURCES       4
#define SHAPER_PAGE_CEILING_SLOT    (SHAPER_PAGE_TAGS * SHAPER_PAGE_RESOURCES)
#define SHAPER_PAGE_SLOTS           (SHAPER_PAGE_CEILING_SLOT \
                                     + SHAPER_PAGE_RESOURCES)
#define SHAPER_PAGE_HISTOGRAM       12
#define SHAPER_PAGE_DEPTHS          8
#define SHAPER_PAGE_ID_BYTES        64
#define SHAPER_PAGE_NAME_BYTES      32
#define SHAPER_PAGE_DROPS           5           /* reasons */
#define SHAPER_CACHE_LINE_BYTES     64

typedef struct ShaperPage ShaperPage;

typedef struct ShaperPageHeader {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slot_count;
    uint64_t created_ns;
    uint64_t generation;
    uint64_t heartbeat_ns;
    uint32_t pid;
    uint32_t more_bytes;
    char id[SHAPER_PAGE_ID_BYTES];
    uint64_t more_offset;
} ShaperPageHeader;

typedef struct ShaperPageSlot {
    uint32_t seq;
    uint8_t used;
    uint8_t tag;
    uint8_t resource;
    uint8_t priority;
    char name[SHAPER_PAGE_NAME_BYTES];
    uint64_t requests;
    uint64_t bytes;
    uint64_t held_requests;
    uint64_t held_ns;
    uint64_t dropped_requests;
    uint64_t dropped_bytes;
    uint64_t backlog_requests;
    uint64_t backlog_bytes;
    uint64_t limit_bytes_per_second;
    uint64_t limit_operations_per_second;
    uint64_t burst_bytes;
    uint64_t burst_operations;
    uint64_t completed_requests;
    uint64_t service_ns;
    uint64_t in_flight;
    uint64_t held_histogram[SHAPER_PAGE_HISTOGRAM];
} ShaperPageSlot;

/* Of a class that is a stream. */
typedef struct ShaperPageStream {
    uint64_t busy_ns;           /* integral of the requests in flight over time */
    uint64_t outstanding_ns;    /* time with any in flight */
    uint64_t oldest_ns;         /* when the device got the oldest of them; 0: none */
    uint64_t depth[SHAPER_PAGE_DEPTHS]; /* requests that found so many others there */
} ShaperPageStream;

typedef struct ShaperPageGate {
    uint64_t target_ns;         /* 0: there is none */
    uint64_t window_bytes;
    uint64_t in_flight_bytes;
    uint64_t held_times;
    uint64_t held_ns;
} ShaperPageGate;

/* Fields that version 1 had no room for; guarded by the seq of the slot. */
typedef struct ShaperPageMore {
    uint64_t drops[SHAPER_PAGE_DROPS];
    uint64_t marked_requests;
    uint64_t buffered_requests;
    uint64_t buffered_bytes;
    uint64_t buffer_requests_max;
    uint64_t buffer_bytes_max;
    int64_t tokens_bytes;
    int64_t tokens_operations;
    uint64_t tokens_ns;
    uint64_t untagged_requests;
    uint64_t untagged_of_requests;
    uint64_t reserved[1];
    ShaperPageStream stream;
    ShaperPageGate gate;        /* of the default class's slot */
} ShaperPageMore;

/* The end of the file: which writing of it the rest belongs to. */
typedef struct ShaperPageTail {
    uint64_t heartbeat_ns;
    uint64_t reserved[7];
} ShaperPageTail;

typedef struct ShaperPageFile {
    ShaperPageHeader header;
    ShaperPageSlot slots[SHAPER_PAGE_SLOTS];
    ShaperPageMore more[SHAPER_PAGE_SLOTS];
    ShaperPageTail tail;
} ShaperPageFile;

QEMU_BUILD_BUG_ON(sizeof(ShaperPageHeader) != 128);
QEMU_BUILD_BUG_ON(sizeof(ShaperPageSlot) != 256);
QEMU_BUILD_BUG_ON(sizeof(ShaperPageMore) != 256);
QEMU_BUILD_BUG_ON(sizeof(ShaperPageTail) != 64);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageSlot, held_histogram) != 160);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageMore, tokens_bytes) != 80);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageMore, untagged_requests) != 104);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageMore, stream) != 128);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageMore, gate) != 216);

/* The counters beside the engine's. Those that every request of a disk changes come
 * first: one cache line. */
typedef struct ShaperPageCounters {
    uint64_t in_flight;
    uint64_t completed_requests;
    uint64_t service_ns;
    uint64_t untagged_requests;                 /* among those admitted */
    uint64_t dropped_requests;
    uint64_t dropped_bytes;
    uint64_t held_histogram[SHAPER_PAGE_HISTOGRAM];
    uint64_t drops[SHAPER_PAGE_DROPS];          /* dropped_requests by reason */
    uint64_t marked_requests;
    uint64_t buffered_requests;
    uint64_t buffered_bytes;
    uint64_t buffer_requests_max;
    uint64_t buffer_bytes_max;
} QEMU_ALIGNED(SHAPER_CACHE_LINE_BYTES) ShaperPageCounters;

/* Creates the file, replacing one that is there. NULL and an error if not. */
ShaperPage *shaper_page_new(const char *path, const char *id, Error **errp);
/* Removes the file, unless another took its name. */
void shaper_page_free(ShaperPage *page);
void shaper_page_unlink(ShaperPage *page);
/* Of a class, or of the ceiling of a resource. */
void shaper_page_set_config(ShaperPage *page, unsigned slot,
                            bool used, const char *name, uint8_t priority,
                            const SluiceLimit *limit);
/* Of a class that is used. */
void shaper_page_set_counters(ShaperPage *page, unsigned slot,
                              const ShaperPageCounters *counters,
                              const SluiceClassStats *stats,
                              const SluiceTokens *tokens);
/* Of a class that is a stream, or was one; and of the gate. */
void shaper_page_set_stream(ShaperPage *page, unsigned slot,
                            const ShaperPageStream *stream);
void shaper_page_set_gate(ShaperPage *page, unsigned slot,
                          const ShaperPageGate *gate);
/* Of a ceiling, which counts nothing else. */
void shaper_page_set_totals(ShaperPage *page, unsigned slot,
                            uint64_t requests, uint64_t bytes);
/*
 * Writes the slots to the file. True if a slot has changed since the last time.
 * It never fails for good: _error() says why the file does not show the counters
 * now, or is NULL, and _failures() how many times it could not be written. BQL.
 */
bool shaper_page_write(ShaperPage *page, uint64_t generation, uint64_t now_ns);
const char *shaper_page_error(const ShaperPage *page);
uint64_t shaper_page_failures(const ShaperPage *page);
/* Which bucket of the histogram a wait belongs to. */
unsigned shaper_page_histogram_bucket(uint64_t held_ns);

#endif
