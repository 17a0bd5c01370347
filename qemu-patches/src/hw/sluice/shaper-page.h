/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writer of the counters page: a file of fixed layout that other processes
 * read while QEMU runs (docs/specs/counters-page.md). Every slot has one writer
 * at a time; the caller holds the lock that guards it.
 */
#ifndef HW_SLUICE_SHAPER_PAGE_H
#define HW_SLUICE_SHAPER_PAGE_H

#include "sluice/engine.h"

#define SHAPER_PAGE_TAGS            16
#define SHAPER_PAGE_RESOURCES       4
#define SHAPER_PAGE_CEILING_SLOT    (SHAPER_PAGE_TAGS * SHAPER_PAGE_RESOURCES)
#define SHAPER_PAGE_SLOTS           (SHAPER_PAGE_CEILING_SLOT \
                                     + SHAPER_PAGE_RESOURCES)
#define SHAPER_PAGE_HISTOGRAM       12
#define SHAPER_PAGE_NAME_BYTES      32
#define SHAPER_PAGE_DROPS           5           /* reasons */
#define SHAPER_CACHE_LINE_BYTES     64

typedef struct ShaperPage ShaperPage;
typedef struct ShaperPageFile ShaperPageFile;   /* as it lies in memory */

/* The configuration in a slot, in host byte order. */
typedef struct ShaperPageConfig {
    bool used;
    uint8_t priority;
    const char *name;
    SluiceLimit limit;
} ShaperPageConfig;

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
                            const ShaperPageConfig *config);
void shaper_page_set_counters(ShaperPage *page, unsigned slot,
                              const ShaperPageCounters *counters,
                              const SluiceClassStats *stats,
                              const SluiceTokens *tokens);
/* Which bucket of the histogram a wait belongs to. */
unsigned shaper_page_histogram_bucket(uint64_t held_ns);

#endif
