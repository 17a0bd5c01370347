/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine from inside, shared by engine.c (data path), engine-config.c (life
 * cycle and configuration), engine-correct.c (charges made good), engine-gate.c (what is
 * in flight), eevdf.c (weights), and the files of what only some classes have: leaky.c,
 * flows.c, window.c. The gate is gate.c.
 */
#ifndef SLUICE_ENGINE_INTERNAL_H
#define SLUICE_ENGINE_INTERNAL_H

#include <assert.h>

#include "sluice/engine.h"
#include "sluice/gate.h"
#include "sluice/group.h"
#include "bucket-inline.h"
#include "hot.h"

#define NO_CLASS            UINT32_MAX
#define DEFAULT_PRIORITY    5
/* By so much may reserved service be late and still all be made up for; longer than
 * any window's period, or no request would ever be found late for it. */
#define RESERVATIONS_LATE_MAX_NS    1000000000ULL
/* Beside the priorities' bits: there is a group, or a gate, so no short way. */
#define GROUP_BIT           (1u << 31)
#define GATE_BIT            (1u << 30)
#define PRIORITY_BITS       ((1u << SLUICE_PRIORITIES) - 1)

typedef enum ClassPlace {
    PLACE_IDLE,                 /* holds nothing, or is in hand */
    PLACE_DUE,                  /* can't send: waits for its own buckets */
    PLACE_READY,                /* can send: competes for the ceiling */
} ClassPlace;

/* Reasons to leave the short way; bits. */
enum {
    SPECIAL_HOLDS = 16,         /* holds requests */
    SPECIAL_UNMANAGED = 1,
    SPECIAL_PEAK = 2,
    SPECIAL_DYNAMIC = 4,
    SPECIAL_WINDOW = 8,
    SPECIAL_LEAKY = 32,
};

#define FLOW_SLOTS          128

typedef struct Flow {
    uint64_t bytes;
    uint64_t seen_ns;
    uint32_t hash;
    uint32_t held;
    uint8_t level;              /* of its newest held request */
} Flow;

/* Memory of a class with a peak, ranks of flows or a window. */
typedef struct SluiceSpecial {
    SluiceBucket peak;
    SluiceWindow window;
    uint16_t window_seen;
    uint16_t window_missed;
    SluiceWindowStats window_stats;
    SluiceNode *last[SLUICE_FLOW_LEVELS];
    Flow flows[FLOW_SLOTS];
    uint8_t dynamic;
} SluiceSpecial;

/* A request that passes needs the second and third cache line. */
typedef struct SluiceClass {
    SluiceNode *oldest;         /* goes next */
    SluiceNode *newest;
    uint64_t virtual_time;      /* service had, in bytes per weight (eevdf.c) */
    uint64_t deadline;          /* virtual, of the first request; while it is READY */
    uint64_t virtual_unit;      /* 2^-32 of virtual time per byte */
    SluiceClassStats stats;     /* from requests on, on the second line */

    SluiceBucket bytes;
    uint8_t place;              /* ClassPlace */
    uint8_t special;            /* SPECIAL_ bits */
    uint8_t priority;
    uint32_t charge_min_bytes;

    SluiceBucket operations;
    Turns reservation;          /* due: the next reserved service */

    SluiceSpecial *extra;       /* NULL unless it has been needed */
    uint64_t reservation_rate;  /* bytes per second; 0: none */
    double bytes_per_ns;        /* of its buckets, for gauges; 0: unlimited */
    double operations_per_ns;
    uint32_t serial;            /* of its buckets, for receipts */
    uint32_t weight;
    uint64_t noted;             /* when the deadline was, in a running number */
} __attribute__((aligned(CACHE_LINE_BYTES))) SluiceClass;

/* The READY classes of one priority (eevdf.c). */
typedef struct EevdfLevel {
    SluiceU128 sum;             /* of weight * virtual time */
    uint64_t weight;            /* sum; 0: the level is empty */
    uint64_t virtual_time;      /* at which the last class left */
    uint16_t classes;           /* a bit each */
} EevdfLevel;

#define RUN_READERS         64
#define RUN_NEWCOMERS       16      /* places of those that have not gone on yet */

/* A sequential reader, or what may become one. */
typedef struct RunReader {
    uint64_t next;              /* where its last request ends */
    uint64_t used;              /* in a running number */
    uint8_t class_index;
    bool goes_on;               /* a request began where the last had ended */
} RunReader;

/* Whose turn at the disk it is (engine-runs.c), with a gate that has runs. */
typedef struct Runs {
    RunReader readers[RUN_READERS];
    uint64_t uses;
    uint8_t reader;             /* of the run that is on, or was last */
    uint8_t class_index;
    uint64_t began_ns;
    uint64_t bytes;             /* that it has had */
    bool by_reservation;        /* it began by that right */
} Runs;

/* A request that passes needs the first two cache lines. */
struct SluiceEngine {
    SluiceClass *classes;
    uint32_t class_count;
    uint32_t ready_priorities;  /* bit p: a class of priority p is READY;
                                 * also GROUP_BIT, GATE_BIT */
    uint64_t now_ns;            /* newest time seen */
    uint64_t due_first_ns;      /* the earliest of due_ns, or UINT64_MAX */
    SluiceBucket ceiling_bytes; /* on both lines */
    SluiceBucket ceiling_operations;
    uint16_t due;               /* DUE classes, a bit each */
    uint16_t due_first;         /* the class due at due_first_ns */
    uint16_t reserved;          /* READY classes with a reservation, a bit each */
    bool ceiling_limited;
    bool draining;              /* an unmanaged class may hold requests */
    uint16_t gated;             /* classes behind the gate, a bit each; 0: no gate */
    uint16_t went;              /* of which a request went through it lately, a bit each */
    uint16_t went_before;
    uint32_t ceiling_serial;    /* of its buckets, for receipts */
    uint32_t group_serial;
    SluiceGroupMember *group;   /* NULL: none above the ceiling */
    uint64_t reservations_lost_ns;
    uint64_t longest_window_ns; /* period of any class */
    uint64_t deadlines_noted;
    uint64_t went_since_ns;
    uint64_t due_ns[SLUICE_CLASSES_MAX];    /* of DUE classes */
    EevdfLevel levels[SLUICE_PRIORITIES];
    SluiceGate gate;
    Runs runs;
} __attribute__((aligned(CACHE_LINE_BYTES)));

_Static_assert(offsetof(SluiceEngine, due) <= 2 * CACHE_LINE_BYTES,
               "a request that passes needs two lines of the engine");
_Static_assert(offsetof(SluiceClass, stats.requests) == CACHE_LINE_BYTES
               && offsetof(SluiceClass, operations) == 2 * CACHE_LINE_BYTES
               && offsetof(SluiceClass, extra) == 3 * CACHE_LINE_BYTES
               && sizeof(SluiceClass) == 4 * CACHE_LINE_BYTES,
               "a request that passes needs two lines of a class");
_Static_assert(SLUICE_CLASSES_MAX <= 16, "a class has a bit in a mask of 16");

/* The classes of a mask, one after the other. */
#define for_each_class(index, mask) \
    for (uint32_t left_ = (mask), index = 0; \
         left_ && (index = __builtin_ctz(left_), true); \
         left_ &= left_ - 1)

static inline uint64_t later_ns(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static inline int64_t later_due_ns(int64_t a_ns, int64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static inline uint64_t advance_clock(SluiceEngine *engine, uint64_t now_ns)
{
    engine->now_ns = later_ns(engine->now_ns, now_ns);
    return engine->now_ns;
}

static inline SluiceClass *class_at(const SluiceEngine *engine,
                                    uint32_t class_index)
{
    assert(class_index < engine->class_count);
    return &engine->classes[class_index];
}

static inline uint32_t charged_bytes(const SluiceClass *class, uint32_t bytes)
{
    return bytes > class->charge_min_bytes ? bytes : class->charge_min_bytes;
}

/* The class's own limits. */

static inline bool class_limits_conform(const SluiceClass *class,
                                        uint64_t now_ns)
{
    return bucket_conforms(&class->bytes, now_ns)
           && bucket_conforms(&class->operations, now_ns);
}

/* From when on it conforms. */
static inline int64_t class_due_ns(const SluiceClass *class)
{
    int64_t due_ns = later_due_ns(class->bytes.due_ns,
                                  class->operations.due_ns);

    if (UNLIKELY(class->special & SPECIAL_PEAK)) {
        due_ns = later_due_ns(due_ns, class->extra->peak.due_ns);
    }
    return due_ns;
}

static inline bool class_conforms(const SluiceClass *class, uint64_t now_ns)
{
    return class_limits_conform(class, now_ns)
           && (LIKELY(!(class->special & SPECIAL_PEAK))
               || bucket_conforms(&class->extra->peak, now_ns));
}

static inline void charge_class(SluiceClass *class, uint32_t charged,
                                uint64_t now_ns)
{
    bucket_charge(&class->bytes, charged, now_ns);
    bucket_charge_one(&class->operations, now_ns);
}

/* The ceiling */

static inline bool ceiling_conforms(const SluiceEngine *engine, uint64_t now_ns)
{
    return bucket_conforms(&engine->ceiling_bytes, now_ns)
           && bucket_conforms(&engine->ceiling_operations, now_ns);
}

/* From when on it conforms, and not before event_ns. */
static inline uint64_t ceiling_event_ns(const SluiceEngine *engine,
                                        uint64_t event_ns)
{
    int64_t due_ns = later_due_ns(engine->ceiling_bytes.due_ns,
                                  engine->ceiling_operations.due_ns);

    return due_ns > 0 ? later_ns(event_ns, due_ns) : event_ns;
}

/* Reservations and windows */

static inline uint32_t ready_mask(const SluiceEngine *engine)
{
    return engine->ready_priorities & PRIORITY_BITS;
}

static inline uint64_t reservations_late_max_ns(const SluiceEngine *engine)
{
    return RESERVATIONS_LATE_MAX_NS + engine->longest_window_ns;
}

/*
 * Reservations have a clock of their own. It stands still while the longest
 * due of them waits longer than it may: service that all of them together could
 * not get is then lost to all alike, and is not made up for later.
 */
static inline uint64_t reservations_now(const SluiceEngine *engine,
                                        uint64_t now_ns)
{
    return now_ns - engine->reservations_lost_ns;
}

static inline bool has_reservation(const SluiceClass *class)
{
    return (class->reservation.unit_ns | class->reservation.unit_fraction) > 0;
}

static inline bool reservation_is_due(const SluiceEngine *engine,
                                      const SluiceClass *class,
                                      uint64_t now_ns)
{
    return has_reservation(class)
           && class->reservation.due_ns
              <= (int64_t)reservations_now(engine, now_ns);
}

/* 0: none. */
static inline uint64_t window_period_ns(const SluiceClass *class)
{
    return class->special & SPECIAL_WINDOW ? class->extra->window.period_ns : 0;
}

/* The gate */

/* engine-runs.c: as below, at length. */
uint16_t engine_barred(SluiceEngine *engine, uint64_t now_ns);
/* When the gate may let one of a class go that holds requests, or of any other (NO_CLASS)
 * than that whose run is on. */
uint64_t engine_gate_opens_ns(SluiceEngine *engine, uint32_t class_index,
                              uint64_t now_ns);
/* As engine_barred(), but for a request that comes: it may go on with the run that is on. */
uint16_t engine_barred_beside(SluiceEngine *engine, uint32_t class_index,
                              uint64_t position, uint64_t now_ns);
/* Finds out whose request that is. */
void engine_note_reader(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                        uint32_t bytes);
/* Of a class whose run is on, the run's next request to the front. */
void engine_run_to_front(SluiceEngine *engine, uint32_t class_index);
/* By so much a class that comes to compete may be behind the average, which is that: its
 * requests may all have been with the disk. */
uint64_t engine_run_credit(const SluiceEngine *engine, uint32_t class_index,
                           uint64_t average);
/* A request goes: a run goes on, or begins. */
void engine_run(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                uint32_t bytes, uint64_t now_ns);

static inline bool has_runs(const SluiceEngine *engine, uint32_t class_index)
{
    return UNLIKELY(engine->gate.has_runs) && engine->gated & (1u << class_index);
}

static inline void note_reader(SluiceEngine *engine, uint32_t class_index, SluiceNode *node,
                               uint32_t bytes)
{
    if (has_runs(engine, class_index)) {
        engine_note_reader(engine, class_index, node, bytes);
    }
}

/* A class whose run is on is not idle though all that it asked for is with the device. */
static inline bool is_in_run(const SluiceEngine *engine, uint32_t class_index)
{
    return UNLIKELY(engine->gate.run_until_ns) && engine->runs.class_index == class_index
           && sluice_gate_is_running(&engine->gate, engine->now_ns);
}

/* All of that run is charged to its reservation, or it would have as much again at once. */
static inline bool is_in_reserved_run(const SluiceEngine *engine, uint32_t class_index)
{
    return is_in_run(engine, class_index) && engine->runs.by_reservation;
}

static inline bool is_gated(const SluiceEngine *engine, uint32_t class_index)
{
    return engine->gated & (1u << class_index);
}

static inline bool gate_may_bar(const SluiceEngine *engine)
{
    return engine->gated && sluice_gate_may_hold(&engine->gate);
}

/* The classes that the gate holds now, a bit each. */
static inline uint16_t barred(SluiceEngine *engine, uint64_t now_ns)
{
    if (LIKELY(!gate_may_bar(engine))) {
        return 0;
    }
    if (UNLIKELY(engine->gate.has_runs)) {
        return engine_barred(engine, now_ns);
    }
    return sluice_gate_look(&engine->gate, now_ns) > now_ns ? engine->gated : 0;
}

/* The READY classes of these priorities that may go. */
static inline uint16_t open_classes(SluiceEngine *engine, uint32_t priorities,
                                    uint64_t now_ns)
{
    uint16_t classes = 0;

    for_each_class(priority, ready_mask(engine) & priorities) {
        classes |= engine->levels[priority].classes;
    }
    return classes & ~barred(engine, now_ns);
}

static inline void pass_gate(SluiceEngine *engine, uint32_t class_index,
                             SluiceNode *node, uint32_t bytes, uint64_t now_ns)
{
    uint16_t went = engine->gated & (1u << class_index);

    if (UNLIKELY(went)) {
        engine->went |= went;
        node->gated = true;
        node->bytes = bytes;
        if (UNLIKELY(engine->gate.has_runs)) {
            engine_run(engine, class_index, node, bytes, now_ns);
        }
        sluice_gate_enter(&engine->gate, bytes, now_ns);
    }
}

/* engine-gate.c */

/* Requests that waited may have gone otherwise than through the gate. */
void engine_gate_left(SluiceEngine *engine, uint64_t now_ns);

/* engine.c */

/* Puts a class that holds requests and is IDLE where it belongs now. */
void engine_place(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns);
void engine_unplace(SluiceEngine *engine, uint32_t class_index);
void engine_promote_due(SluiceEngine *engine, uint64_t now_ns);
/* The reservations' clock, which stands still for service lost by now, too. */
uint64_t engine_reservations_now(SluiceEngine *engine, uint64_t now_ns);

/* eevdf.c: proportional shares of the ceiling, among READY classes of one priority */

/* Of a class that is not READY. */
void eevdf_set_weight(SluiceClass *class, uint32_t weight);
/* Another request is its first, or is charged otherwise, though none was served. */
void eevdf_first_changed(SluiceEngine *engine, SluiceClass *class);
/* The class holds a request and may send. */
void eevdf_join(SluiceEngine *engine, uint32_t class_index);
/* Its first request is served. Then either _return() or _leave(), before a class is
 * chosen again. */
void eevdf_account(SluiceEngine *engine, SluiceClass *class);
void eevdf_return(SluiceEngine *engine, SluiceClass *class);
/* It has had so many units otherwise than by requests that were accounted for. */
void eevdf_charge(SluiceEngine *engine, SluiceClass *class, uint64_t units);
void eevdf_leave(SluiceEngine *engine, uint32_t class_index);
/* The class of a priority that goes first; one must be READY there. */
uint32_t eevdf_choose(const SluiceEngine *engine, unsigned priority);
/* Of these, a bit each, one of which must be READY there; the others cannot go. */
uint32_t eevdf_choose_among(const SluiceEngine *engine, unsigned priority,
                            uint16_t classes);

/* leaky.c: also of a class that is not leaky, which is charged as others are */

void leaky_charge(SluiceClass *class, uint32_t bytes, uint64_t now_ns);
/* A request that was held goes on, perhaps later than it was due. */
void leaky_charge_held(SluiceClass *class, uint32_t bytes, uint64_t now_ns);
/* The class begins to wait: its idleness until now is not made up for, but a little. */
void leaky_begin_waiting(SluiceClass *class, uint64_t now_ns);

/* flows.c: ranks of the flows of a dynamic class */

void flow_passed(SluiceClass *class, uint32_t flow, uint32_t bytes,
                 uint64_t now_ns);
void flow_insert(SluiceClass *class, SluiceNode *node, uint64_t now_ns);
/* `before` is in front of it, NULL if it is the first. */
void flow_removed(SluiceClass *class, const SluiceNode *node,
                  SluiceNode *before);
/* Of a class that has `extra`. */
void flows_configure(SluiceClass *class, uint8_t dynamic);

/* window.c: a window constraint */

/* About the request that the class would serve now. */
typedef enum WindowVerdict {
    WINDOW_SERVE,
    WINDOW_DROP,                /* late, and may be dropped */
    WINDOW_FORFEIT,             /* late: it loses its turn, not its place */
} WindowVerdict;

/* now_ns is that of the reservations. */
WindowVerdict window_judge(SluiceClass *class, SluiceNode *node,
                           uint64_t now_ns);
/* A request has been served that was not late. */
void window_served(SluiceClass *class);
/* Of a class that has `extra`. */
void window_configure(SluiceClass *class, const SluiceWindow *window);
/* The reservation that a window amounts to, in bytes per second. */
uint64_t window_reservation(const SluiceWindow *window);

#endif
