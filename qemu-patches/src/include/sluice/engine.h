/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice engine: decides when a request of one resource of one VM may go on.
 *
 * One SluiceEngine schedules one resource (say, disk reads) of one VM. Every
 * class has a byte bucket, an operation bucket, a strict priority and a FIFO
 * of held requests; above the classes stand the VM's ceiling buckets.
 *
 * The library is pure: it reads no clock (time is an argument), allocates
 * nothing after initialisation, takes no lock (the caller serialises the
 * calls on one engine) and includes nothing of QEMU.
 *
 * Units: times are nanoseconds of any monotonic clock (never going back;
 * a `now_ns` older than the engine has seen is treated as the newest seen),
 * sizes are bytes, rates are bytes or operations per second.
 *
 * Sources: token bucket with debt, SCS section 2.2; strict priorities in
 * constant time, TAP section 5.1; one-word bucket, the virtual scheduling
 * form of the generic cell rate algorithm (ITU-T I.371).
 */
#ifndef SLUICE_ENGINE_H
#define SLUICE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLUICE_PRIORITY_MAX     9                       /* 0 is served first */
#define SLUICE_PRIORITIES       (SLUICE_PRIORITY_MAX + 1)
#define SLUICE_RATE_MAX         1000000000000ULL        /* per second */
#define SLUICE_BURST_MAX        (1ULL << 40)            /* bytes or operations */
#define SLUICE_CLOCK_MAX_NS     (1ULL << 62)            /* now_ns stays below */
#define SLUICE_NEVER            UINT64_MAX              /* no event is due */

/* What becomes of a request. */
typedef enum SluiceVerdict {
    SLUICE_PASS,        /* charged; goes on now */
    SLUICE_HOLD,        /* queued in its class; comes back from _release() */
} SluiceVerdict;

/*
 * One request, embedded in the caller's own request. The engine owns the
 * fields between a HOLD and the node's return from _release() or _withdraw().
 */
typedef struct SluiceNode SluiceNode;
struct SluiceNode {
    SluiceNode *next;
    SluiceNode *prev;
    uint64_t held_since_ns;
    uint32_t bytes;
    uint32_t class_index;
};

/* A limit as the operator states it; a rate of 0 means unlimited. */
typedef struct SluiceLimit {
    uint64_t bytes_per_second;
    uint64_t burst_bytes;
    uint64_t operations_per_second;
    uint64_t burst_operations;
} SluiceLimit;

typedef struct SluiceClassConfig {
    SluiceLimit limit;
    uint8_t priority;           /* 0..SLUICE_PRIORITY_MAX */
} SluiceClassConfig;

/*
 * A token bucket in one word: the theoretical arrival time. A request may go
 * on while any token is left (TAT - now < tolerance, or the bucket is full);
 * what it takes beyond that is debt which delays the next. The second word
 * holds the fraction of a nanosecond, so that no rounding adds up.
 *
 * A zeroed bucket is valid input for _configure() only.
 */
typedef struct SluiceBucket {
    uint64_t tat_ns;            /* theoretical arrival time */
    uint64_t tat_fraction;      /* and 2^-64 ns */
    uint64_t tolerance_ns;      /* the burst, as time at the rate; never 0 */
    uint64_t unit_ns;           /* time one unit takes at the rate */
    uint64_t unit_fraction;     /* and 2^-64 ns, rounded up */
    uint64_t rate;              /* units per second; 0: unlimited */
} SluiceBucket;

/* Monotonic counters and gauges of a class, for the counters page. */
typedef struct SluiceClassStats {
    uint64_t requests;          /* admitted: passed or released */
    uint64_t bytes;
    uint64_t held_requests;     /* of these, how many had been held */
    uint64_t held_ns;           /* and for how long, together */
    uint64_t backlog_requests;  /* held now */
    uint64_t backlog_bytes;
} SluiceClassStats;

typedef struct SluiceEngine SluiceEngine;

/* Lifecycle. `classes` is fixed for the life of the engine; all start
 * unlimited at priority 5. Returns NULL when memory is short. */
SluiceEngine *sluice_engine_new(uint32_t classes);
void sluice_engine_free(SluiceEngine *engine);          /* must hold nothing */

/* Configuration. Each returns false and changes nothing when a value is out
 * of range. A change applies to held requests at once: the tokens or the debt
 * a class has are carried over in units (bytes, operations), not in time. */
bool sluice_engine_set_class(SluiceEngine *engine, uint32_t class_index,
                             const SluiceClassConfig *config, uint64_t now_ns);
bool sluice_engine_set_ceiling(SluiceEngine *engine, const SluiceLimit *limit,
                               uint64_t now_ns);

/* The engine's membership in a group above its ceiling, or NULL; it stays the
 * caller's, who joins before and leaves after. Ask for the next event again. */
struct SluiceGroupMember;
void sluice_engine_set_group(SluiceEngine *engine,
                             struct SluiceGroupMember *group);

/* Data path. */
SluiceVerdict sluice_engine_submit(SluiceEngine *engine, uint32_t class_index,
                                   SluiceNode *node, uint32_t bytes,
                                   uint64_t now_ns);
/* The next held request that may go on at now_ns, or NULL. Best priority
 * first; between equal priorities in the order of eligibility; FIFO within a
 * class. */
SluiceNode *sluice_engine_release(SluiceEngine *engine, uint64_t now_ns);
/* When the next release can succeed: an absolute time, not before the newest
 * seen, or SLUICE_NEVER when nothing is held. Ask again after each call that
 * holds, releases, withdraws or configures. */
uint64_t sluice_engine_next_event_ns(SluiceEngine *engine);
/* The request of a class that has been held longest, still held, or NULL. */
SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index);
/* Takes a held request back without charging it (reset, unplug, stop). */
void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node);
/* Any held request regardless of limits, uncharged, oldest first; NULL when
 * none is left (deletion of a shaper). Looks at every class. */
SluiceNode *sluice_engine_evict(SluiceEngine *engine);

const SluiceClassStats *sluice_engine_stats(const SluiceEngine *engine,
                                            uint32_t class_index);

/*
 * The bucket by itself, for tests, benchmarks and shared groups. _configure()
 * carries tokens or debt over in units; a bucket that was unlimited (or
 * zeroed) starts full. Values out of range are the caller's mistake.
 */
void sluice_bucket_configure(SluiceBucket *bucket, uint64_t rate,
                             uint64_t burst, uint64_t now_ns);
bool sluice_bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns);
uint64_t sluice_bucket_eligible_ns(const SluiceBucket *bucket);
void sluice_bucket_charge(SluiceBucket *bucket, uint64_t units, uint64_t now_ns);

#endif
