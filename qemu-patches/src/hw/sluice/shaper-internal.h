/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The shaper object from inside: shared by the shaper*.c files. */
#ifndef HW_SLUICE_SHAPER_INTERNAL_H
#define HW_SLUICE_SHAPER_INTERNAL_H

#include "hw/sluice/shaper.h"
#include "qemu/notify.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "shaper-page.h"
#include "sluice/classify.h"

#define SHAPER_CLASSES              SHAPER_PAGE_TAGS
#define SHAPER_DEFAULT_CLASS        "default"
#define SHAPER_DEFAULT_PRIORITY     5
#define SHAPER_CLASS_NAME_MAX       (SHAPER_PAGE_NAME_BYTES - 1)

/* What the monitor knows of one class and resource; see shaper-watch.c. */
typedef struct ShaperWatch {
    uint64_t waits;             /* holds and drops, as of the last look */
    uint8_t looks;              /* in a row that say otherwise than `limited` */
    bool limited;
    bool told;                  /* what the last event said */
} ShaperWatch;

/* One resource: an engine and what is counted beside it. */
typedef struct ShaperEngine {
    Shaper *shaper;
    ShaperResource resource;
    QemuMutex lock;             /* guards everything below, and page slots */
    SluiceEngine *engine;
    QEMUTimer *timer;           /* NULL until something is held */
    uint64_t armed_ns;          /* what the timer is set to */
    uint16_t granted_tags;      /* bit t: tag t has a class */
    uint64_t backlog_bytes_max[SHAPER_CLASSES];
    ShaperPageCounters counters[SHAPER_CLASSES];
    ShaperWatch watch[SHAPER_CLASSES];
    uint64_t total_requests;    /* of all classes: the ceiling's slot */
    uint64_t total_bytes;
} ShaperEngine;

/* One class; guarded by the BQL. */
typedef struct ShaperClass {
    bool used;
    char name[SHAPER_PAGE_NAME_BYTES];
    uint8_t priority;
    uint64_t dscp;              /* bit d: DSCP d selects the class */
    SluiceLimit limits[SHAPER_RESOURCE__MAX];
} ShaperClass;

struct Shaper {
    Object parent_obj;

    char *page_path;
    ShaperPage *page;           /* NULL without a counters page */
    Notifier exit_notifier;
    QEMUTimer *heartbeat;
    QEMUTimer *watch_timer;     /* NULL without clients */
    unsigned watch_turn;
    uint64_t generation;
    ShaperEngine engines[SHAPER_RESOURCE__MAX];
    ShaperClass classes[SHAPER_CLASSES];        /* by tag */
    SluiceLimit ceiling[SHAPER_RESOURCE__MAX];
    QLIST_HEAD(, ShaperClient) clients;
};

/* Data path, for what changes the configuration. */
/* 0 before the accelerator, which decides on the clock, is known. */
uint64_t shaper_now_ns(void);
/* A timer of the same clock, for the main loop; not before the accelerator. */
QEMUTimer *shaper_timer_new(QEMUTimerCB *cb, void *opaque);
/* Caller holds the lock of `e`. Lets go what is due and sets the timer. */
void shaper_engine_release_due(ShaperEngine *e, uint64_t now_ns);
/* Caller holds the lock. Judges the held requests of a class as another's. */
void shaper_engine_bequeath(ShaperEngine *e, unsigned tag, unsigned heir_tag,
                            uint64_t now_ns);
/* Caller holds the lock. Shows the counters of a class on the page. */
void shaper_engine_publish(ShaperEngine *e, unsigned tag);
/*
 * BQL, without the lock: tells the clients that have ready requests. What they
 * do may come back to submit.
 */
void shaper_engine_announce(ShaperEngine *e);

/* Watching for classes that are limited. BQL. */
void shaper_watch_start(Shaper *shaper);
void shaper_watch_stop(Shaper *shaper);
/* Before a class goes: it is limited no more. */
void shaper_watch_forget(Shaper *shaper, unsigned tag);

/* Configuration, already validated. BQL. */
void shaper_apply_class(Shaper *shaper, unsigned tag, const ShaperClass *class);
void shaper_apply_removal(Shaper *shaper, unsigned tag, unsigned heir_tag);
void shaper_apply_ceiling(Shaper *shaper,
                          const SluiceLimit limits[SHAPER_RESOURCE__MAX]);

#endif
