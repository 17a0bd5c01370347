/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writer of the counters page: a file of fixed layout that other processes
 * read while QEMU runs (docs/specs/counters-page.md: the structures below are that table,
 * and their sizes are checked at build time).
 *
 * The engines count in memory of this process, under the lock that guards a slot; the
 * writes of each request are inline, and go to as few cache lines as possible.
 * shaper-page.c takes copies of the slots, and writes them to the file.
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
    uint64_t reserved[3];
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
QEMU_BUILD_BUG_ON(sizeof(ShaperPageMore) != 128);
QEMU_BUILD_BUG_ON(sizeof(ShaperPageTail) != 64);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageSlot, held_histogram) != 160);
QEMU_BUILD_BUG_ON(offsetof(ShaperPageMore, tokens_bytes) != 80);

/* The counters beside the engine's. Those that every request of a disk changes come
 * first: one cache line. */
typedef struct ShaperPageCounters {
    uint64_t in_flight;
    uint64_t completed_requests;
    uint64_t service_ns;
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
/* The memory that the engines count in while the page exists; NULL without a page. */
ShaperPageFile *shaper_page_file(ShaperPage *page);

/* Caller holds the lock of the slot: a copy of it, for _write(). */
void shaper_page_take(ShaperPage *page, unsigned slot);
/*
 * Writes the copies taken to the file. True if a slot has changed since the last time.
 * It never fails for good: _error() says why the file does not show the counters
 * now, or is NULL, and _failures() how many times it could not be written. BQL.
 */
bool shaper_page_write(ShaperPage *page, uint64_t now_ns);
const char *shaper_page_error(const ShaperPage *page);
uint64_t shaper_page_failures(const ShaperPage *page);
void shaper_page_set_generation(ShaperPage *page, uint64_t generation);
void shaper_page_set_config(ShaperPage *page, unsigned slot,
                            bool used, const char *name, uint8_t priority,
                            const SluiceLimit *limit);
void shaper_page_set_counters(ShaperPage *page, unsigned slot,
                              const ShaperPageCounters *counters,
                              const SluiceClassStats *stats,
                              const SluiceTokens *tokens);
/* Which bucket of the histogram a wait belongs to. */
unsigned shaper_page_histogram_bucket(uint64_t held_ns);

static inline void shaper_page_set_tokens(ShaperPageMore *more,
                                          const SluiceTokens *tokens)
{
    more->tokens_bytes = cpu_to_le64(tokens->bytes);
    more->tokens_operations = cpu_to_le64(tokens->operations);
    more->tokens_ns = cpu_to_le64(tokens->at_ns);
}

/* A request has passed. `tokens` is NULL where nothing is limited: they stay so. */
static inline void shaper_page_set_passed(ShaperPageFile *file, unsigned slot,
                                          const SluiceClassStats *stats,
                                          uint64_t in_flight,
                                          const SluiceTokens *tokens)
{
    ShaperPageSlot *s = &file->slots[slot];

    s->requests = cpu_to_le64(stats->requests);
    s->bytes = cpu_to_le64(stats->bytes);
    s->in_flight = cpu_to_le64(in_flight);
    if (tokens) {
        shaper_page_set_tokens(&file->more[slot], tokens);
    }
}

/* A disk is done with one. */
static inline void shaper_page_set_done(ShaperPageFile *file, unsigned slot,
                                        const ShaperPageCounters *counters)
{
    ShaperPageSlot *s = &file->slots[slot];

    s->completed_requests = cpu_to_le64(counters->completed_requests);
    s->service_ns = cpu_to_le64(counters->service_ns);
    s->in_flight = cpu_to_le64(counters->in_flight);
}

/* Of the ceiling's slot, which has nothing else. */
static inline void shaper_page_set_totals(ShaperPageFile *file, unsigned slot,
                                          uint64_t requests, uint64_t bytes)
{
    ShaperPageSlot *s = &file->slots[slot];

    s->requests = cpu_to_le64(requests);
    s->bytes = cpu_to_le64(bytes);
}

#endif
