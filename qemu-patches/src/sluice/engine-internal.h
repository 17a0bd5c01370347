/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine from inside, shared by engine.c (data path), engine-held.c (held
 * requests), engine-config.c (life cycle and configuration), share.c (weights)
 * and special.c (what only some classes have).
 */
#ifndef SLUICE_ENGINE_INTERNAL_H
#define SLUICE_ENGINE_INTERNAL_H

#include <assert.h>

#include "sluice/engine.h"
#include "bucket-inline.h"
#include "engine-group.h"
#include "hot.h"
#include "key-tree.h"
#include "wheel.h"

#define NO_CLASS            UINT32_MAX
#define SLOT_BITS           22
#define CLASSES_MAX         (1u << SLOT_BITS)
#define DEFAULT_PRIORITY    5
/* So much later than due may reserved service come and still all come; longer
 * than any window's period, or nobody would ever be found late for it. */
#define RESERVATIONS_LATE_MAX_NS    1000000000ULL
/* Beside the priorities' bits: there is a group, so no short way. */
#define GROUP_BIT           (1u << 31)

typedef enum ClassPlace {
    PLACE_IDLE,                 /* holds nothing, or is in hand */
    PLACE_DUE,                  /* in the wheel: waits for its own buckets */
    PLACE_READY,                /* in the share: waits for the ceiling */
} ClassPlace;

/* What keeps a class from the short way; bits. */
enum {
    SPECIAL_HOLDS = 16,         /* holds requests */
    SPECIAL_UNMANAGED = 1,
    SPECIAL_PEAK = 2,
    SPECIAL_DYNAMIC = 4,
    SPECIAL_WINDOW = 8,
    SPECIAL_LEAKY = 32,
};

/* Where share.c has a class that competes. */
enum {
    TURN_EARLY = 1,             /* among those that have had enough */
    TURN_STALE = 2,             /* by a key that is less than it should be */
};

typedef struct SluiceSpecial SluiceSpecial;

/*
 * Four cache lines. Where there are many classes, each line costs a decision
 * more than what is done with it: the first three have all that holding and
 * releasing need, the second and third all that passing needs, the last is for
 * configuration. It begins as a WheelRecord.
 */
typedef struct SluiceClass {
    SluiceNode *oldest;         /* goes next */
    SluiceNode *newest;
    uint64_t virtual_time;      /* what it has had, per weight (share.c) */
    uint64_t virtual_unit;      /* 2^-32 of it per byte */
    uint32_t slot:SLOT_BITS;    /* in the trees of its priority; while it competes */
    uint32_t weight:32 - SLOT_BITS;
    uint32_t first_charge;      /* bytes that its first request is charged; while
                                 * it competes */
    SluiceClassStats stats;     /* from requests on, on the second line */

    SluiceBucket bytes;
    uint8_t place;              /* ClassPlace */
    uint8_t special;            /* SPECIAL_ bits */
    uint8_t priority;
    uint8_t turn;               /* TURN_ bits, of share.c; while it competes */
    uint32_t charge_min_bytes;

    SluiceBucket operations;
    Turns reservation;          /* due: the next reserved service */

    SluiceSpecial *extra;       /* NULL unless it has been needed */
    uint64_t reservation_rate;  /* bytes per second; 0: none */
    double bytes_per_ns;        /* of its buckets, for gauges; 0: unlimited */
    double operations_per_ns;
    uint32_t serial;            /* of its buckets, for receipts */
} __attribute__((aligned(CACHE_LINE_BYTES))) SluiceClass;

/* The classes of one priority that compete (share.c). */
typedef struct ShareLevel {
    SluiceU128 sum;             /* of weight * virtual time */
    uint64_t weight;            /* sum; 0: nobody competes */
    uint64_t virtual_time;      /* as it was when the last one left */
    KeyTree eligible;           /* by virtual deadline */
    KeyTree early;              /* by virtual time: had enough */
    uint32_t *classes;          /* by slot in both trees */
    uint32_t slots;             /* how many are in use, or free to be used again */
    uint32_t free_count;
    uint32_t *free;             /* the free ones; the last is used next */
} ShareLevel;

typedef struct Share {
    uint32_t sequence;
    ShareLevel levels[SLUICE_PRIORITIES];
} Share;

/* What passing needs is on the first two cache lines, to due.first_ns. */
struct SluiceEngine {
    SluiceClass *classes;
    uint32_t class_count;
    uint32_t ready_priorities;  /* bit p: somebody of priority p is READY;
                                 * also GROUP_BIT */
    uint64_t now_ns;            /* newest time seen */
    SluiceBucket ceiling_bytes;
    bool ceiling_limited;
    bool draining;              /* an unmanaged class may hold requests */
    SluiceBucket ceiling_operations;
    uint32_t ceiling_serial;    /* of its buckets, for receipts */
    Wheel due;
    SluiceGroupMember *group;   /* NULL: none above the ceiling */
    Share share;
    uint32_t *reserved_classes; /* by slot, which is the class's index */
    KeyTree reserved;           /* READY classes, by their reservation's due */
    uint64_t reservations_lost_ns;
    uint64_t longest_window_ns; /* period of any class */
    uint32_t group_serial;
} __attribute__((aligned(CACHE_LINE_BYTES)));

_Static_assert(offsetof(SluiceClass, oldest) == offsetof(WheelRecord, first)
               && offsetof(SluiceClass, newest) == offsetof(WheelRecord, last),
               "a class begins as a WheelRecord");
_Static_assert(offsetof(SluiceEngine, ceiling_operations) == CACHE_LINE_BYTES
               && offsetof(SluiceEngine, due.first_ns) < 2 * CACHE_LINE_BYTES,
               "a request that passes needs two lines of the engine");
_Static_assert(offsetof(SluiceClass, stats.requests) == CACHE_LINE_BYTES
               && offsetof(SluiceClass, operations) == 2 * CACHE_LINE_BYTES
               && offsetof(SluiceClass, extra) == 3 * CACHE_LINE_BYTES
               && sizeof(SluiceClass) == 4 * CACHE_LINE_BYTES
               && sizeof(SluiceClass) == sizeof(WheelRecord),
               "a release needs three lines of a class, which has four");
_Static_assert(SLUICE_WEIGHT_MAX < 1 << (32 - SLOT_BITS)
               && CLASSES_MAX <= KEY_TREE_SLOTS_MAX, "weights and slots fit");
_Static_assert(sizeof(SluiceNode) <= FETCHED_REQUEST_BYTES,
               "all of a request is fetched");

static inline uint64_t later_ns(uint64_t a_ns, uint64_t b_ns)
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

static inline uint32_t ready_mask(const SluiceEngine *engine)
{
    return engine->ready_priorities & ~GROUP_BIT;
}

static inline uint64_t reservations_late_max_ns(const SluiceEngine *engine)
{
    return RESERVATIONS_LATE_MAX_NS + engine->longest_window_ns;
}

/*
 * Reservations have a clock of their own. It stands still while the longest
 * due of them waits longer than it may: what all of them together could not
 * get is then lost to all alike, and is not made up for later.
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

/* engine.c */
bool class_conforms(const SluiceClass *class, uint64_t now_ns);
/* Puts a class that holds requests and is IDLE where it belongs now. */
void engine_place(SluiceEngine *engine, uint32_t class_index, uint64_t now_ns);
void engine_unplace(SluiceEngine *engine, uint32_t class_index);
void engine_promote_due(SluiceEngine *engine, uint64_t now_ns);
/* The reservations' clock, which stands still for what is lost by now, too. */
uint64_t engine_reservations_now(SluiceEngine *engine, uint64_t now_ns);

/* engine-held.c */
void engine_queue_remove(SluiceClass *class, SluiceNode *node);
/* A class that became unmanaged while it held requests, or NO_CLASS. */
uint32_t engine_find_draining(SluiceEngine *engine);
/* The next of its requests, or NULL. */
SluiceNode *engine_drain(SluiceEngine *engine, uint64_t now_ns);

/* special.c: leaky buckets, flows, windows. `extra` must exist for all but the first. */
struct SluiceSpecial *special_new(void);
bool special_conforms(const SluiceClass *class, uint64_t now_ns);
int64_t special_due_ns(const SluiceClass *class);
void special_charge(SluiceClass *class, uint32_t bytes, uint64_t now_ns);
/* The class begins to wait: its idleness until now is not made up for, but a little. */
void special_begin_waiting(SluiceClass *class, uint64_t now_ns);
/* A request that was held goes on, perhaps later than it was due. */
void special_charge_held(SluiceClass *class, uint32_t bytes, uint64_t now_ns);
void special_configure(SluiceClass *class, const SluiceClassConfig *config,
                       uint64_t now_ns);
/* The reservation that a configuration amounts to, in bytes per second. */
uint64_t special_reservation(const SluiceClassConfig *config);
void special_flow_passed(SluiceClass *class, uint32_t flow, uint32_t bytes,
                         uint64_t now_ns);
void special_flow_insert(SluiceClass *class, SluiceNode *node,
                         uint64_t now_ns);
/* `before` is in front of it, NULL if it is the first. */
void special_flow_removed(SluiceClass *class, const SluiceNode *node,
                          SluiceNode *before);
SluiceWindowStats special_window_stats(const SluiceClass *class);
/* The period of its window; 0: none. */
uint64_t special_window_period_ns(const SluiceClass *class);

/* What the window of a class says about the request it would serve now. */
typedef enum WindowVerdict {
    WINDOW_SERVE,
    WINDOW_DROP,                /* late, and may be dropped */
    WINDOW_FORFEIT,             /* late: it loses its turn, not its place */
} WindowVerdict;
/* now_ns is that of the reservations. */
WindowVerdict special_window_judge(SluiceClass *class, SluiceNode *node,
                                   uint64_t now_ns);
/* A request has been served that was not late. */
void special_window_served(SluiceClass *class);

/* share.c: proportional shares of what the ceiling lets through. */
bool share_init(Share *share, SluiceClass *classes, uint32_t count);
void share_destroy(Share *share);
/* Of a class that does not compete. */
void share_set_weight(SluiceClass *class, uint32_t weight);
/* Likewise, and its priority changes: what it had was another competition's. */
void share_forget(SluiceClass *class);
/* Another request is its first, or is charged otherwise, though it was not served. */
void share_first_changed(SluiceEngine *engine, uint32_t class_index);
/* The class has a held request and may send: it competes. */
void share_join(SluiceEngine *engine, uint32_t class_index);
/* Its first request is served. Then either _return() or _leave(), before the share
 * is asked again: what it knows of the class is out of date. */
void share_account(SluiceEngine *engine, uint32_t class_index);
/* `turned`: the due time of its reservation is another. */
void share_return(SluiceEngine *engine, uint32_t class_index, bool turned);
void share_leave(SluiceEngine *engine, uint32_t class_index);
/* The class of a priority whose turn it is; somebody must compete there. */
uint32_t share_choose(SluiceEngine *engine, unsigned priority);
/* What its own limit kept from a class nobody owes it: for one that goes on after that,
 * or comes to compete. */
void share_forgo_turns(SluiceEngine *engine, SluiceClass *class);
/* Reserved turns that came due before that of the reservations' clock come due then. */
void share_forgo_before(SluiceEngine *engine, int64_t first_ns);
/* Asks for the memory of those whose turn it will be soon, now that this class, which
 * competed, was served: by its reservation, if it was its reserved turn. */
void share_fetch(SluiceEngine *engine, uint32_t class_index,
                 bool reserved_turn);
/* Any class that competes, or NO_CLASS. */
uint32_t share_any(const SluiceEngine *engine);

#endif
