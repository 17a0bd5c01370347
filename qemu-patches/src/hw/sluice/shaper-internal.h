/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The shaper object from inside: shared by the shaper*.c files. */
#ifndef HW_SLUICE_SHAPER_INTERNAL_H
#define HW_SLUICE_SHAPER_INTERNAL_H

#include "block/aio.h"
#include "hw/sluice/shaper.h"
#include "qemu/notify.h"
#include "qemu/timer.h"
#include "shaper-channel.h"
#include "shaper-page.h"
#include "sluice/classify.h"
#include "sluice/codel.h"
#include "sluice/gate.h"
#include "sluice/group.h"
#include "sluice/lock.h"
#include "sluice/paid.h"
#include "sluice/reserve.h"

#define SHAPER_CLASSES              SHAPER_PAGE_TAGS
#define SHAPER_DEFAULT_CLASS        "default"
#define SHAPER_DEFAULT_PRIORITY     5
#define SHAPER_NO_TAG               UINT8_MAX
#define SHAPER_STATE_VERSION        1
#define SHAPER_CLASS_NAME_MAX       (SHAPER_PAGE_NAME_BYTES - 1)

/* The state of the events of one class and resource; see shaper-watch.c. */
typedef struct ShaperWatch {
    uint64_t waits;             /* holds and drops, as of the last look */
    uint8_t looks;              /* in a row that say otherwise than `limited` */
    bool limited;
    bool told;                  /* as in the last event */
} ShaperWatch;

/* For trace events on the path of every request: a load, which is left out while
 * tracing is off. ShaperResource_str() is a call that is made all the same. */
static inline const char *shaper_resource_name(ShaperResource resource)
{
    return ShaperResource_lookup.array[resource];
}

/* The queue of one class and resource; see shaper-queue.c. */
typedef struct ShaperQueueState {
    SluiceQueueRoom room;
    uint64_t buffered_bytes;
    uint32_t buffered_frames;
    uint32_t largest_bytes;     /* of any frame seen */
    bool codel_on;
    bool ecn;
    uint64_t bytes_per_second;  /* the rate it drains at; 0: not known */
    SluiceCodel codel;
    SluiceBucket connections;
} ShaperQueueState;

/* The page of a device's gate; see shaper-gate-page.c. */
typedef struct ShaperGatePage ShaperGatePage;

/* A class that the gate takes for a stream, while it does; see shaper-gate.c. */
typedef struct ShaperGateStream {
    ShaperRequestList in_flight;        /* in the order in which the device got them */
    uint64_t count;                     /* of these */
    uint64_t moved_ns;                  /* when the sums were as they are */
    ShaperPageStream sums;
} ShaperGateStream;

/*
 * One resource: an engine and the counters beside it. A request that passes needs the
 * first cache line, and one of its class's counters: beside a guest the caches have
 * room for little, and each line is a wait for memory.
 */
typedef struct ShaperEngine {
    SluiceLock lock;            /* guards everything here */
    uint16_t granted_tags;      /* bit t: tag t has a class */
    uint16_t device_charged;    /* bit t: tag t is charged for the device */
    uint16_t streams;           /* bit t: tag t is a stream; 0 without a gate */
    uint8_t resource;           /* ShaperResource */
    bool unsettled;             /* shaper_engine_settle() is to be called */
    SluiceEngine *engine;
    SluicePool *pool;           /* the buffers of all queues; frames only */
    uint64_t total_requests;    /* of all classes: the ceiling's slot */
    uint64_t total_bytes;
    uint64_t event_ns;          /* atomic: the engine's next event */

    Shaper *shaper;
    QTAILQ_HEAD(, ShaperClient) announced;      /* to be told that some are ready */
    QEMUBH *settle_bh;          /* frames only: settles in the main loop */
    SluiceLock timer_lock;      /* guards: */
    QEMUTimer *timer;           /* NULL until something is held */
    AioContext *timer_context;  /* where it is, or will be */
    uint64_t timer_ns;          /* to when it is set */
    ShaperPageCounters counters[SHAPER_CLASSES];
    ShaperQueueState queues[SHAPER_CLASSES];
    ShaperWatch watch[SHAPER_CLASSES];
    ShaperGateStream stream[SHAPER_CLASSES];
    SluicePaid paid[SHAPER_CLASSES];    /* charged requests found by stops */
    SluicePaid paid_ceiling;
    struct ShaperGroup *group;  /* written under the BQL too; NULL: none */
    SluiceGroupMember member;   /* the engine's, if there is a group */
    uint64_t oldest_ns;         /* when the oldest read of a stream began; 0: none */
    ShaperGatePage *gate_page;  /* written under the BQL too; NULL: none */
    SluiceGateMember gate_member;       /* the gate's, if there is a page */
} QEMU_ALIGNED(SHAPER_CACHE_LINE_BYTES) ShaperEngine;

QEMU_BUILD_BUG_ON(offsetof(ShaperEngine, shaper) > SHAPER_CACHE_LINE_BYTES);

struct Shaper {
    Object parent_obj;

    char *page_path;
    ShaperPage *page;           /* NULL without a counters page */
    Notifier exit_notifier;
    QEMUTimer *heartbeat;
    QEMUTimer *watch_timer;     /* NULL without clients */
    unsigned watch_turn;
    QEMUTimer *group_timer;     /* NULL while member of no group */
    QEMUTimer *gate_timer;      /* NULL while its gates share no page */
    uint64_t generation;
    ShaperEngine engines[SHAPER_RESOURCE__MAX];
    /* Complete (shaper-check.c), by tag; NULL: none. BQL, as the ceiling. */
    ShaperClassConfig *classes[SHAPER_CLASSES];
    ShaperLimitList *ceiling;
    ShaperGate *gate;           /* NULL: there is none */
    unsigned class_count;
    uint8_t tag_of_dscp[SLUICE_DSCP_MAX + 1];   /* or SHAPER_NO_TAG */
    const uint8_t *port_map;    /* atomic; NULL: none is in force */
    ShaperChannel channel;
    QLIST_HEAD(, ShaperClient) clients;
};

/* The ground: shaper-base.c. */
static inline bool shaper_is_disk(ShaperResource resource)
{
    return resource == SHAPER_RESOURCE_BLK_READ
           || resource == SHAPER_RESOURCE_BLK_WRITE;
}
static inline ShaperEngine *shaper_engine_of(const ShaperRequest *request)
{
    return &request->client->shaper->engines[request->resource];
}
/* Of the counters page. */
static inline unsigned shaper_slot_of(const ShaperEngine *e, unsigned tag)
{
    return tag * SHAPER_RESOURCE__MAX + e->resource;
}
/* 0 before the accelerator, which decides on the clock, is known. */
uint64_t shaper_now_ns(void);
/* A timer of the same clock; not before the accelerator. */
QEMUTimer *shaper_timer_new(AioContext *context, QEMUTimerCB *cb, void *opaque);
/* The object of an id, which is of that type, or an error; `query` lists them. */
Object *shaper_find_object(const char *field, const char *id, const char *type,
                           const char *query, Error **errp);
Shaper *shaper_find(const char *id, Error **errp);
/* The tag of a class, or -1 if there is none of that name, or no name. BQL. */
int shaper_find_class(ShaperClassConfig *const classes[SHAPER_CLASSES],
                      const char *name);
/* An empty one if the tag has none. BQL. */
const ShaperClassConfig *shaper_class_of(const Shaper *shaper, unsigned tag);
/* The entry of a resource in a list of limits, schedulings or queues; NULL: none. */
#define SHAPER_OF_RESOURCE(list, wanted)                                    \
    ({                                                                      \
        typeof(list) rest_ = (list);                                        \
                                                                            \
        while (rest_ && rest_->value->resource != (wanted)) {               \
            rest_ = rest_->next;                                            \
        }                                                                   \
        rest_ ? rest_->value : NULL;                                        \
    })
/* As above, of complete lists; the default where there is no entry. */
SluiceLimit shaper_limit_of(const ShaperLimitList *list,
                            ShaperResource resource);
const ShaperScheduling *shaper_scheduling_of(const ShaperSchedulingList *list,
                                             ShaperResource resource);
const ShaperQueue *shaper_queue_of(const ShaperQueueList *list,
                                   ShaperResource resource);
/* Bit d: DSCP d. */
uint64_t shaper_dscp_values(const intList *list);
bool shaper_check_range(const char *field, int64_t value, int64_t min,
                        int64_t max, Error **errp);
/* False if it is in `seen`, to which it is added. */
bool shaper_check_once(const char *field, ShaperResource resource,
                       unsigned *seen, Error **errp);
bool shaper_check_class_name(const char *name, Error **errp);
/* BQL, without the locks: writes the counters page, which there is. True if a class
 * shows something else than the last time. */
bool shaper_show(Shaper *shaper);

/* Data path, for changes of the configuration. */
/* Caller holds the lock of `e`, and settles after it. Lets go requests that are due. */
void shaper_engine_release_due(ShaperEngine *e, uint64_t now_ns);
/* Caller holds the lock. Judges the held requests of a class as another's. */
void shaper_engine_bequeath(ShaperEngine *e, unsigned tag, unsigned heir_tag,
                            uint64_t now_ns);

/* When an engine is looked at, and who is told: shaper-timer.c. */
void shaper_engine_init(ShaperEngine *e, Shaper *shaper,
                        ShaperResource resource);
void shaper_engine_destroy(ShaperEngine *e);
/* Caller holds the lock. The engine's next event may be another. */
void shaper_engine_note_event(ShaperEngine *e);
/* Caller holds the lock. The client will be told that it has ready requests. */
void shaper_engine_announce(ShaperEngine *e, ShaperClient *client);
/* Without the lock. To the next event as it is now, a later one than the caller's maybe. */
void shaper_engine_set_timer(ShaperEngine *e);
/*
 * Without the lock: sets the timer to the next event, and tells the clients that have
 * ready requests, whose answer may come back to submit. Of frames: BQL.
 */
void shaper_engine_settle(ShaperEngine *e);
/* After a submission of the client that was held, be the next event another or not, or
 * that is to settle: a card is not told while it is sending or receiving. */
void shaper_engine_settle_submission(ShaperEngine *e, ShaperClient *client,
                                     bool unsettled);
/* BQL. The client has left the shaper's list: timers leave its I/O thread for that of
 * another client, or for the main loop. */
void shaper_client_leave_thread(ShaperClient *client);

/* Queues of frames. The caller holds the lock. */
/* Divides the buffers anew among the classes as configured. */
void shaper_queues_reserve(ShaperEngine *e);
void shaper_queue_configure(ShaperEngine *e, unsigned tag, uint64_t now_ns);
/* May it come in? If not, why. */
bool shaper_queue_admits(ShaperEngine *e, const ShaperRequest *request,
                         unsigned tag, uint32_t buffer_bytes, uint64_t now_ns,
                         ShaperDropReason *reason);
/* It has come in. */
void shaper_queue_enter(ShaperEngine *e, ShaperRequest *request, unsigned tag,
                        uint32_t bytes, uint64_t now_ns);
/* It leaves after its time. Returns the frame behind it that is to be dropped for that,
 * after which it is asked again, with the wait of the next; or NULL. Marks either of them
 * by ->signal. */
ShaperRequest *shaper_queue_leave(ShaperEngine *e, ShaperRequest *request,
                                  uint64_t waited_ns, uint64_t now_ns);
void shaper_count_drop(ShaperEngine *e, unsigned tag, uint32_t bytes,
                       ShaperDropReason reason);

/* A class as QMP, or a migration, gives it: checked as a whole beside the classes that
 * there are, and completed; or NULL and an error. */
ShaperClassConfig *shaper_complete_class(
    ShaperClassConfig *const classes[SHAPER_CLASSES],
    const ShaperClassConfig *in, Error **errp);
/* Checks and completes limits. */
bool shaper_complete_limits(ShaperLimitList **list, Error **errp);

/* Gives each client of its own class the tag that the class has now. BQL. */
void shaper_clients_resolve(Shaper *shaper);

/* The map that the guest writes, of SLUICE_CHANNEL_PORT_MAP_BYTES, is in force; NULL: none.
 * Any thread, while the memory cannot go. */
void shaper_set_port_map(Shaper *shaper, const uint8_t *map);

/* The shaper in the migration stream. BQL. */
bool shaper_state_register(Shaper *shaper, Error **errp);
void shaper_state_unregister(Shaper *shaper);

/* Watching for classes that are limited. BQL. */
void shaper_watch_start(Shaper *shaper);
void shaper_watch_stop(Shaper *shaper);
/* Before a class goes: it is limited no more. */
void shaper_watch_forget(Shaper *shaper, unsigned tag);

/* Membership in groups. BQL. */
void shaper_groups_leave(Shaper *shaper);
ShaperMembershipList *shaper_groups_info(Shaper *shaper);

/* The gate of the disks: shaper-gate.c. The caller holds the lock. */
void shaper_gate_init(ShaperEngine *e);
/* A request of a stream has been given to the device. */
void shaper_gate_watch(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns);
/* The device gets it only now. */
void shaper_gate_taken(ShaperEngine *e, ShaperRequest *request);
/* A request that is gated or watched is done, or has not gone to the device. */
void shaper_gate_done(ShaperEngine *e, ShaperRequest *request,
                      uint64_t service_ns, uint64_t now_ns);
void shaper_gate_undone(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns);
/* Shows a class as a stream on the page, and beside the default class the gate itself. */
void shaper_gate_show(ShaperEngine *e, unsigned tag, uint64_t now_ns);
/* Without the lock: after a change of the classes, whose names it knows. BQL. */
void shaper_gate_resolve(Shaper *shaper);
ShaperGateInfo *shaper_gate_info(Shaper *shaper);

/* The gate of the device: shaper-gate-page.c. BQL. */
ShaperGatePage *shaper_gate_page_find(const char *id, Error **errp);
const char *shaper_gate_page_id(const ShaperGatePage *page);
/* Both gates of the shaper become members, or none; NULL: of none any more. */
bool shaper_gate_page_join(Shaper *shaper, ShaperGatePage *page, Error **errp);

/* Configuration, complete, which is the shaper's from now on. BQL. */
void shaper_apply_class(Shaper *shaper, ShaperClassConfig *class);
void shaper_apply_removal(Shaper *shaper, unsigned tag, unsigned heir_tag);
void shaper_apply_ceiling(Shaper *shaper, ShaperLimitList *limits);

#endif
