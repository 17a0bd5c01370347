/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper object, for device backends.
 *
 * A device (or one queue of it) is a ShaperClient. It embeds a ShaperRequest
 * in each of its own requests and asks shaper_submit() before it goes on with
 * one. A request that is held comes back through the client's ready function
 * and shaper_client_take().
 *
 * Threads. Clients come and go, and configuration changes, in the main thread
 * under the BQL. shaper_submit(), shaper_client_take() and shaper_complete()
 * may be called from any thread; each takes the lock of one resource for the
 * time of the decision only.
 */
#ifndef HW_SLUICE_SHAPER_H
#define HW_SLUICE_SHAPER_H

#include "hw/qdev-core.h"
#include "qapi/qapi-types-sluice.h"
#include "qemu/queue.h"
#include "qemu/timer.h"
#include "qom/object.h"
#include "sluice/cost.h"
#include "sluice/engine.h"
#include "sluice/pool.h"
#include "system/qtest.h"

#define TYPE_SHAPER "shaper"
OBJECT_DECLARE_SIMPLE_TYPE(Shaper, SHAPER)

typedef struct ShaperClient ShaperClient;

/* Where a request is. */
typedef enum ShaperRequestState {
    SHAPER_REQUEST_IDLE,        /* not known to the shaper */
    SHAPER_REQUEST_HELD,        /* in the engine, and in client->held */
    SHAPER_REQUEST_READY,       /* admitted, in client->ready */
    SHAPER_REQUEST_ADMITTED,    /* the device goes on with it */
} ShaperRequestState;

/* The fate of a frame that waited, when it is taken or passes. */
typedef enum ShaperSignal {
    SHAPER_SIGNAL_NONE,
    SHAPER_SIGNAL_MARK,         /* it goes on, with the mark of congestion */
    SHAPER_SIGNAL_DROP,         /* it goes nowhere; counted, and not charged */
} ShaperSignal;

/* Why a frame was dropped. */
typedef enum ShaperDropReason {
    SHAPER_DROP_BACKLOG,        /* its class's queue is full */
    SHAPER_DROP_CODEL,          /* its class's queue stands too long */
    SHAPER_DROP_CONNECTION,     /* one new connection too many */
    SHAPER_DROP_WINDOW,         /* too late, and its class may lose some */
    SHAPER_DROP_RESET,          /* the queue it waited in has gone */
    SHAPER_DROP__MAX,
} ShaperDropReason;

/* The fields used of a request that passes come first: it is cold when it comes and when
 * it is done, and each cache line more is a wait for memory. */
typedef struct ShaperRequest {
    ShaperClient *client;
    uint64_t admitted_ns;
    uint8_t resource;           /* ShaperResource */
    uint8_t state;              /* ShaperRequestState */
    uint8_t signal;             /* ShaperSignal */
    uint8_t pooled_tag;         /* of the class in whose room it is kept, with pooled */
    bool paid;                  /* charged, and went nowhere yet */
    bool counted;               /* so, and found by a stop: in the sums of its engine */
    bool by_device;             /* charged for the work of the device */
    /* Frames: the caller's, between _init() and shaper_submit() */
    bool ecn_capable : 1;
    bool opens_connection : 1;
    bool untagged : 1;          /* any request: nothing in it has chosen its class */
    bool watched : 1;           /* of a stream, and in flight: see in_flight_entry */
    SluicePooled pooled;        /* see shaper_buffer_take() */
    SluiceNode node;
    QTAILQ_ENTRY(ShaperRequest) entry;
    SluiceReceipt receipt;      /* while it is ready, paid or by_device */
    QTAILQ_ENTRY(ShaperRequest) in_flight_entry;        /* while it is watched */
} ShaperRequest;

typedef QTAILQ_HEAD(, ShaperRequest) ShaperRequestList;

/* The costs of a disk's requests, whichever queue they come by. Each under the lock of
 * its resource; begins zeroed, and with sluice_cost_init(). */
typedef struct ShaperCosts {
    SluiceCostModel models[SHAPER_RESOURCE__MAX];
    uint64_t completed_ns[SHAPER_RESOURCE__MAX];        /* the last one */
} ShaperCosts;

struct ShaperClient {
    Shaper *shaper;
    /* Written under the locks of all resources, read under any. */
    bool paused;
    int class_tag;              /* of class_name; -1: there is no such class */
    /* The caller's, after _init(): learnt from the time that requests of its disk take,
     * or NULL. */
    ShaperCosts *costs;
    DeviceState *device;
    void (*ready_fn)(ShaperClient *client);     /* no lock; of a card: BQL */
    /* Each under the lock of its resource. */
    ShaperRequestList held[SHAPER_RESOURCE__MAX];
    ShaperRequestList ready[SHAPER_RESOURCE__MAX];
    ShaperRequestList withdrawn[SHAPER_RESOURCE__MAX];  /* to be given back */
    bool announced[SHAPER_RESOURCE__MAX];       /* ready_fn is to be called */
    QTAILQ_ENTRY(ShaperClient) announced_entry[SHAPER_RESOURCE__MAX];
    unsigned being_told;        /* atomic: ready_fn is being called, so often */
    AioContext *context;        /* atomic: the I/O thread where it submits, or NULL */
    char *class_name;           /* the class of all its requests, or NULL; BQL */
    QLIST_ENTRY(ShaperClient) next;             /* BQL */
};

typedef enum ShaperVerdict {
    SHAPER_PASS,        /* admitted: go on now */
    SHAPER_HOLD,        /* comes back through ready_fn */
    SHAPER_DROP,        /* its class has no room left; counted */
    SHAPER_PAUSED,      /* the client is paused; neither held nor charged */
} ShaperVerdict;

void shaper_client_init(ShaperClient *client, Shaper *shaper,
                        DeviceState *device,
                        void (*ready_fn)(ShaperClient *client));
/* The client must have no request held or ready. */
void shaper_client_destroy(ShaperClient *client);
/* BQL. Nobody is calling ready_fn any more, and it is not called before another request
 * is made ready. */
void shaper_client_quiesce(ShaperClient *client);
/* While paused, nothing is held: shaper_submit() answers SHAPER_PAUSED. */
void shaper_client_set_paused(ShaperClient *client, bool paused);

/*
 * From now on all requests of the client belong to the class of that name, as
 * long as there is one, whichever tag they carry. NULL: to that of their tag.
 */
void shaper_client_set_class(ShaperClient *client, const char *name);

/* Before another submission. The mark that a frame is to carry stays with it. */
static inline void shaper_request_again(ShaperRequest *request)
{
    request->state = SHAPER_REQUEST_IDLE;
    request->ecn_capable = false;
    request->opens_connection = false;
}

/* A request that has nothing in a buffer, of the only flow unless told. */
static inline void shaper_request_init(ShaperRequest *request)
{
    request->pooled = (SluicePooled){ 0 };
    request->signal = SHAPER_SIGNAL_NONE;
    request->paid = false;
    request->counted = false;
    request->watched = false;
    request->node.gated = false;
    request->node.reader = 0;
    request->node.flow = 0;
    shaper_request_again(request);
}

/* The shaper's clock, which outside of tests is that of the block layer's accounts. Of a
 * request: the accelerator, which decides on the clock, is known by then. */
static inline uint64_t shaper_request_now_ns(void)
{
    return unlikely(qtest_enabled()) ? qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL)
                                     : get_clock();
}

/*
 * Decides on a request. An unknown tag is the default class, and then the request is counted
 * as untagged, as it is if its caller has said so. A frame that,
 * if it is held, takes `buffer_bytes` (not 0) of its class's buffer is dropped
 * when there is no room for it. `now_ns` is of the shaper's clock.
 */
ShaperVerdict shaper_submit(ShaperClient *client, ShaperRequest *request,
                            ShaperResource resource, unsigned tag,
                            uint32_t bytes, uint32_t buffer_bytes,
                            uint64_t now_ns);
/* As shaper_submit(), but a request that passes is ready as if it had been held: any
 * thread may take it, whether it is announced or not. */
ShaperVerdict shaper_submit_as_ready(ShaperClient *client,
                                     ShaperRequest *request,
                                     ShaperResource resource, unsigned tag,
                                     uint32_t bytes, uint64_t now_ns);
/* Makes requests ready that are due. Frames of a queue keep their order: a card does so
 * before it takes those that are ready and submits the next, and shaper_submit() of a
 * frame makes none ready. */
void shaper_client_release(ShaperClient *client, ShaperResource resource);
/* The next request that was held and may go on, or NULL. */
ShaperRequest *shaper_client_take(ShaperClient *client,
                                  ShaperResource resource);
bool shaper_client_has_ready(ShaperClient *client, ShaperResource resource);
/* As shaper_client_take(), for a frame. All work with frames is done under the BQL: one
 * sees without the lock that there is none, which is the case of each that passes. */
static inline ShaperRequest *shaper_client_take_frame(ShaperClient *client,
                                                      ShaperResource resource)
{
    return QTAILQ_EMPTY(&client->ready[resource])
           ? NULL : shaper_client_take(client, resource);
}
/* The oldest request that is ready or held; NULL if there is none. Ask until there is
 * none: the first that was held takes all that are out of the engine. One that was
 * ready is charged: when it is submitted again it passes, unless it belongs to
 * another class by then. */
ShaperRequest *shaper_client_withdraw(ShaperClient *client,
                                      ShaperResource resource);
/* A frame that has passed just now has to wait: if it is dropped after all, its charge is
 * given back. BQL since it passed. */
void shaper_note_payer(ShaperRequest *request);
/* A request that was withdrawn will not be submitted again: its charge is given back. */
void shaper_forget(ShaperRequest *request);
/* The device below has finished an admitted disk request. `is_typical`: the time that it
 * took tells something of the cost of reads or writes. */
void shaper_complete(ShaperRequest *request, bool is_typical);

/*
 * Buffers: memory of the host for frames that wait, of a size that each class
 * is granted. A request that was submitted once may be given room for its
 * frame; false if no memory is left. BQL, as for all of them.
 */
bool shaper_buffer_take(ShaperRequest *request, size_t bytes);
/* As shaper_buffer_take(), for a frame that arrives with a migration. Its client and
 * resource are set; it was not submitted yet, and counts as of the default class. */
bool shaper_buffer_load(ShaperRequest *request, size_t bytes);
void shaper_buffer_give(ShaperRequest *request);
/* The pieces that it lies in; returns how many. */
unsigned shaper_buffer_pieces(const ShaperRequest *request,
                              struct iovec pieces[SLUICE_POOL_PIECES_MAX]);
/* The first piece, where a frame has its headers. */
uint8_t *shaper_buffer_head(const ShaperRequest *request, size_t *bytes);
/* Takes a request out of the shaper if it is held, counts it as dropped and
 * gives its buffer back. */
void shaper_drop(ShaperRequest *request, ShaperDropReason reason);
/* Counts a frame as marked. */
void shaper_count_mark(const ShaperRequest *request);

/* A guest has told a shaped queue that there is something: its deferred calls are taken, if
 * there are any. Any thread; never waits. */
void shaper_channel_kick(Shaper *shaper);

/* BQL only. */
/*
 * The property shaper-queues, "CLASS:CLASS:…": for each queue the class that
 * it belongs to, or nothing. May be NULL. False, with an error, if it is not
 * that, names more than `count` queues, or there is no shaper.
 */
bool shaper_check_queues(const Shaper *shaper, const char *text, unsigned count,
                         Error **errp);
/* Gives a client the class of its queue, if the property names one. */
void shaper_client_set_queue(ShaperClient *client, const char *text,
                             unsigned index);
/* How many classes there are. */
unsigned shaper_class_count(const Shaper *shaper);
/* The tag of the class that a DSCP selects; false if it selects none. */
bool shaper_tag_of_dscp(const Shaper *shaper, uint8_t dscp, unsigned *tag);
/* The port map that is in force, or NULL: it stays until the BQL is released, but the guest
 * may write it, and end it, meanwhile. */
const uint8_t *shaper_port_map(const Shaper *shaper);
/* Whether a class has the tag. BQL. */
bool shaper_has_tag(const Shaper *shaper, unsigned tag);
/* The tag of a class, or the default tag if there is none of that name. */
unsigned shaper_tag_of_class(const Shaper *shaper, const char *name);
uint64_t shaper_generation(const Shaper *shaper);
/* The shaper's object id, for messages. */
const char *shaper_id(const Shaper *shaper);

#endif
