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

#define SLUICE_CLASSES_MAX      16
#define SLUICE_PRIORITY_MAX     9                       /* 0 is served first */
#define SLUICE_PRIORITIES       (SLUICE_PRIORITY_MAX + 1)
#define SLUICE_WEIGHT_MAX       1000
#define SLUICE_WEIGHT_DEFAULT   100
#define SLUICE_FLOW_LEVELS      8
#define SLUICE_WINDOW_PERIOD_MAX_NS     3600000000000ULL
/* By so much may a leaky bucket's schedule be behind while its class waits: it is
 * caught up with. More than timers are late, less than passes for a burst. */
#define SLUICE_LEAKY_LATE_MAX_NS        20000000ULL
/* And by so much if no request waited: a guest that answers with the next request is as
 * late as it is busy. A longer pause is idleness, and is not made up for. */
#define SLUICE_LEAKY_IDLE_MAX_NS        5000000ULL
#define SLUICE_RATE_MAX         1000000000000ULL        /* per second */
#define SLUICE_BURST_MAX        (1ULL << 40)            /* bytes or operations */
#define SLUICE_CLOCK_MAX_NS     (1ULL << 62)            /* now_ns stays below */
#define SLUICE_NEVER            UINT64_MAX              /* no event is due */

/* The decision on a request. */
typedef enum SluiceVerdict {
    SLUICE_PASS,        /* charged; goes on now */
    SLUICE_HOLD,        /* queued in its class; comes back from _release() */
} SluiceVerdict;

/* How a request of a class with a window constraint fared. */
typedef enum SluiceLate {
    SLUICE_IN_TIME,
    SLUICE_LATE,        /* past its window; charged like any other */
    SLUICE_LATE_DROP,   /* past its window and uncharged: the caller drops it */
} SluiceLate;

/*
 * One request, embedded in the caller's own request. The engine owns the
 * fields between a HOLD and the node's return from _release() or _withdraw().
 * Half a cache line: where thousands are held, it pays a little to align it so.
 */
typedef struct SluiceNode SluiceNode;
struct SluiceNode {
    SluiceNode *next;
    uint64_t held_since_ns;
    uint32_t bytes;
    uint32_t class_index;
    /* The caller's, set before _submit() to a dynamic class: tells its flows
     * apart (a hash of addresses and ports, say). */
    uint32_t flow;
    uint8_t level;              /* place of its flow, 0 goes first */
    bool of_flow;               /* counted as held by its flow */
    uint8_t late;               /* SluiceLate */
    /* False when it is first submitted; then the engine's: it is counted by the gate. */
    bool gated;
    /* 0 when it is first submitted; then the engine's: whose it is, for runs. */
    uint8_t reader;
    uint64_t position;          /* the caller's: its first byte, for runs */
};

/* A limit as the operator states it; a rate of 0 means unlimited. */
typedef struct SluiceLimit {
    uint64_t bytes_per_second;
    uint64_t burst_bytes;
    uint64_t operations_per_second;
    uint64_t burst_operations;
} SluiceLimit;

/* How a class uses its limit (TAP section 5.2). */
typedef enum SluicePolicy {
    SLUICE_POLICY_TOKEN_BUCKET, /* the burst may pass at once */
    SLUICE_POLICY_LEAKY_BUCKET, /* constant rate: bursts count as 0 */
    SLUICE_POLICY_TOKEN_LEAKY,  /* the burst passes at no more than the peak */
} SluicePolicy;
#define SLUICE_POLICIES         (SLUICE_POLICY_TOKEN_LEAKY + 1)

/* In which order a class serves its flows (TAP section 5.2). */
typedef enum SluiceDynamic {
    SLUICE_DYNAMIC_NONE,        /* one FIFO */
    SLUICE_DYNAMIC_LATENCY,     /* flows that have had little go first */
    SLUICE_DYNAMIC_THROUGHPUT,  /* flows that have had much go first */
} SluiceDynamic;
#define SLUICE_DYNAMICS         (SLUICE_DYNAMIC_THROUGHPUT + 1)

/*
 * A window constraint (DWCS, in ECalls section 5): in each period `bytes` are
 * to be served, and of `of` requests at most `may_miss` may come later
 * than one period after they were due. These are counted `of` by `of`, as in DWCS: at
 * the border of two groups twice as many may follow one another. A period of 0 means none.
 */
typedef struct SluiceWindow {
    uint64_t period_ns;         /* up to SLUICE_WINDOW_PERIOD_MAX_NS */
    uint32_t bytes;             /* from 1 */
    uint16_t may_miss;          /* fewer than `of` */
    uint16_t of;                /* from 1 */
    bool may_drop;              /* late requests may be SLUICE_LATE_DROP */
} SluiceWindow;

/* Zeroed, it means: unlimited, served first, nothing else. */
typedef struct SluiceClassConfig {
    SluiceLimit limit;
    uint8_t priority;           /* 0..SLUICE_PRIORITY_MAX */
    uint8_t policy;             /* SluicePolicy */
    uint8_t dynamic;            /* SluiceDynamic */
    bool unmanaged;             /* never held, charged to nothing, counted */
    uint16_t weight;            /* 1..SLUICE_WEIGHT_MAX; 0: the default */
    uint32_t charge_min_bytes;  /* a request is charged at least this */
    uint64_t peak_bytes_per_second;     /* of SLUICE_POLICY_TOKEN_LEAKY */
    /* Guaranteed before any priority; not above the limit; 0: none. */
    uint64_t reservation_bytes_per_second;
    SluiceWindow window;        /* not together with a reservation */
} SluiceClassConfig;

/*
 * A token bucket in one word: the time from which on a token is left. Units that
 * a request takes beyond the last token are debt which delays the next. A second
 * word holds the fraction of a nanosecond, so that no rounding adds up.
 *
 * A zeroed bucket is unlimited. Packed, since two of them have to share cache
 * lines with fields that are wanted together with them.
 */
typedef struct SluiceBucket {
    int64_t due_ns;             /* a request may go from here on */
    uint64_t fraction;          /* of due_ns, in 2^-64 ns */
    uint64_t slack_ns;          /* the burst, as time at the rate, less 1 ns */
    uint64_t unit_fraction;     /* time one unit takes at the rate: 2^-64 ns, */
    uint32_t unit_ns;           /* and whole ones, rounded up; all 0: unlimited */
} __attribute__((packed, aligned(4))) SluiceBucket;

/*
 * Monotonic counters and gauges of a class, for the counters page. The first three are
 * on another cache line, which a request that passes does not need. Counting takes the
 * fewest instructions in this order, in which compilers see no neighbours that they
 * would add to together.
 */
typedef struct SluiceClassStats {
    uint64_t held_requests;     /* of those admitted, how many had been held */
    uint64_t held_ns;           /* waiting of the held ones, summed */
    uint64_t backlog_bytes;     /* held now */
    uint64_t requests;          /* admitted: passed or released */
    uint32_t backlog_requests;  /* held now */
    uint64_t bytes;             /* admitted */
} __attribute__((packed, aligned(4))) SluiceClassStats;

/* The tokens in the buckets of a class, exact to a token or to a nanosecond's worth
 * of the rate; negative: their debt. */
#define SLUICE_TOKENS_UNLIMITED INT64_MAX       /* there is no such limit */
#define SLUICE_TOKENS_OWED_MAX  (1LL << 62)     /* more counts as this */

typedef struct SluiceTokens {
    int64_t bytes;
    int64_t operations;
    uint64_t at_ns;
} SluiceTokens;

/* How a class with a window constraint fared. */
typedef struct SluiceWindowStats {
    uint64_t late_requests;     /* missed their window, as allowed */
    uint64_t violations;        /* missed it, though the window was used up */
} SluiceWindowStats;

/*
 * The charge of an admitted request, and its buckets. A class, a ceiling
 * or a group that was charged may be another by the time that its correction
 * comes: each has a serial, which changes when its buckets begin anew or end.
 */
typedef struct SluiceReceipt {
    uint32_t class_index;
    uint32_t bytes;
    uint32_t class_serial;
    uint32_t ceiling_serial;
    uint32_t group_serial;
    bool charged;               /* false: it was unmanaged, and cost nothing */
} SluiceReceipt;

typedef struct SluiceEngine SluiceEngine;

/* Lifecycle. `classes`, 1 to SLUICE_CLASSES_MAX, is fixed for the life of the engine;
 * all start unlimited at priority 5. Returns NULL when memory is short. */
SluiceEngine *sluice_engine_new(uint32_t classes);
void sluice_engine_free(SluiceEngine *engine);          /* must hold nothing */

/* Configuration. Each returns false and changes nothing when a value is out
 * of range (or memory is short: a dynamic class needs some). A change applies
 * to held requests at once: the tokens or the debt a class has are carried
 * over in units (bytes, operations), not in time. A class whose `dynamic`
 * changes keeps the old order until it holds nothing. */
bool sluice_engine_set_class(SluiceEngine *engine, uint32_t class_index,
                             const SluiceClassConfig *config, uint64_t now_ns);
bool sluice_engine_set_ceiling(SluiceEngine *engine, const SluiceLimit *limit,
                               uint64_t now_ns);

/* The engine's membership in a group above its ceiling, or NULL; it stays the
 * caller's, which joins before and leaves after. Ask for the next event again. */
struct SluiceGroupMember;
void sluice_engine_set_group(SluiceEngine *engine,
                             struct SluiceGroupMember *group);

/*
 * The gate below all (gate.h): the bytes of the background that are in flight are bounded,
 * so that its latency is target_ns, up to SLUICE_GATE_TARGET_MAX_NS; 0: there is no gate.
 * `streams` has a bit for each class that passes beside it. False if that is out of range.
 * A gate that was there keeps its window.
 */
struct SluiceGate;
struct SluiceGateMember;
bool sluice_engine_set_gate(SluiceEngine *engine, uint16_t streams,
                            uint64_t target_ns, uint64_t now_ns);
/* To that part of its window, in 1024ths. */
void sluice_engine_shrink_gate(SluiceEngine *engine, uint32_t parts);
/* The gate is a member of its device's, which has joined (gate-page.h), and whose calls the
 * caller serialises with the engine's; NULL: no more. */
void sluice_engine_set_gate_member(SluiceEngine *engine,
                                   struct SluiceGateMember *member,
                                   uint64_t now_ns);
/* Tells the other members that this one lives, and the weight of its classes that are
 * active; as often as sluice_gate_keepalive(), and only of a member. */
void sluice_engine_keep_gate(SluiceEngine *engine, uint64_t now_ns);
/* Since when the oldest read of the VM's streams is under way; 0: none. In any thread; and
 * serialised with the engine's calls, telling the other members too. */
void sluice_engine_set_oldest(SluiceEngine *engine, uint64_t oldest_ns);
void sluice_engine_tell_oldest(SluiceEngine *engine, uint64_t oldest_ns);
const struct SluiceGate *sluice_engine_gate(const SluiceEngine *engine);

/* Data path. */
SluiceVerdict sluice_engine_submit(SluiceEngine *engine, uint32_t class_index,
                                   SluiceNode *node, uint32_t bytes,
                                   uint64_t now_ns);
/* The next held request that may go on at now_ns, or NULL. Reservations that
 * are due first, then the best priority, between equal priorities by weight;
 * FIFO within a class (in a dynamic one, within a flow). */
SluiceNode *sluice_engine_release(SluiceEngine *engine, uint64_t now_ns);
/* When the next release can succeed: an absolute time, not before the newest
 * seen, or SLUICE_NEVER when nothing is held. Ask again after each call that
 * holds, releases, withdraws, corrects or configures. */
uint64_t sluice_engine_next_event_ns(SluiceEngine *engine);
/* The request of a class that goes next, still held, or NULL. */
SluiceNode *sluice_engine_first_held(const SluiceEngine *engine,
                                     uint32_t class_index);
/* The device has done an admitted request, latency_ns after it got it. Any request may be
 * told; one that is ->gated must be told, by this or _leave(). Others may go then. */
void sluice_engine_complete(SluiceEngine *engine, SluiceNode *node,
                            uint64_t latency_ns, uint64_t now_ns);
/* An admitted request does not go to the device after all, for now. */
void sluice_engine_leave(SluiceEngine *engine, SluiceNode *node, uint64_t now_ns);
/* It goes on without another decision: charged before, it is counted by the gate again. */
void sluice_engine_enter(SluiceEngine *engine, uint32_t class_index,
                         SluiceNode *node, uint32_t bytes, uint64_t now_ns);
/* Takes a held request back without charging it. It is looked for from the front of its
 * class, which may take as many steps as that holds. */
void sluice_engine_withdraw(SluiceEngine *engine, SluiceNode *node, uint64_t now_ns);
/* Withdraws all that match (reset, unplug, stop), in as many steps as are held. They
 * are the caller's again: the caller knows which they were. */
void sluice_engine_withdraw_if(SluiceEngine *engine,
                               bool (*matches)(const SluiceNode *node,
                                               const void *what),
                               const void *what, uint64_t now_ns);
/* Of the request that _submit() has just let pass, or _release() returned. */
SluiceReceipt sluice_engine_receipt(const SluiceEngine *engine,
                                    uint32_t class_index, uint32_t bytes);
/* Has the class at that index paid for it, with the buckets that it has now? */
bool sluice_engine_has_charged(const SluiceEngine *engine,
                               const SluiceReceipt *receipt,
                               uint32_t class_index);
/* The real cost of an admitted request, once known (cost.h): bytes charged in
 * addition, or given back if negative, to the class, the ceiling and the group
 * that were charged, as far as they are still there. */
void sluice_engine_correct(SluiceEngine *engine, const SluiceReceipt *receipt,
                           int64_t bytes, uint64_t now_ns);
/* An admitted request does not go on after all: its charge, bytes and operation,
 * goes back in the same way. Its turn, and a peak's spacing, do not. */
void sluice_engine_refund(SluiceEngine *engine, const SluiceReceipt *receipt,
                          uint64_t now_ns);

const SluiceClassStats *sluice_engine_stats(const SluiceEngine *engine,
                                            uint32_t class_index);
SluiceTokens sluice_engine_tokens(const SluiceEngine *engine,
                                  uint32_t class_index, uint64_t now_ns);
SluiceTokens sluice_engine_ceiling_tokens(const SluiceEngine *engine,
                                          uint64_t now_ns);
/*
 * Tokens in the buckets of a class, or the ceiling's, beyond `tokens` are taken from
 * them; they are never given any. Tokens may be any number: debt counts up to
 * SLUICE_TOKENS_OWED_MAX, and an unlimited bucket stays it. `at_ns` is not looked at:
 * they may be another engine's, of another clock.
 */
void sluice_engine_lower_tokens(SluiceEngine *engine, uint32_t class_index,
                                const SluiceTokens *tokens, uint64_t now_ns);
void sluice_engine_lower_ceiling_tokens(SluiceEngine *engine,
                                        const SluiceTokens *tokens,
                                        uint64_t now_ns);
SluiceWindowStats sluice_engine_window_stats(const SluiceEngine *engine,
                                             uint32_t class_index);

/*
 * The bucket by itself, for tests, benchmarks and shared groups. _configure()
 * carries tokens or debt over in units; a bucket that was unlimited (or
 * zeroed) starts full. Values out of range are the caller's mistake.
 */
void sluice_bucket_configure(SluiceBucket *bucket, uint64_t rate,
                             uint64_t burst, uint64_t now_ns);
/* Units per second, as configured; 0: unlimited. */
uint64_t sluice_bucket_rate(const SluiceBucket *bucket);
bool sluice_bucket_conforms(const SluiceBucket *bucket, uint64_t now_ns);
uint64_t sluice_bucket_eligible_ns(const SluiceBucket *bucket);
void sluice_bucket_charge(SluiceBucket *bucket, uint64_t units, uint64_t now_ns);
/* Puts units back, up to a full bucket. */
void sluice_bucket_credit(SluiceBucket *bucket, uint64_t units, uint64_t now_ns);

#endif
