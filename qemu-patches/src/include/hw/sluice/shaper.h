/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper object: what device backends need of it.
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
#include "qom/object.h"
#include "sluice/engine.h"

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

typedef struct ShaperRequest {
    SluiceNode node;
    ShaperClient *client;
    QTAILQ_ENTRY(ShaperRequest) entry;
    uint64_t admitted_ns;
    uint8_t resource;           /* ShaperResource */
    uint8_t state;              /* ShaperRequestState */
} ShaperRequest;

typedef QTAILQ_HEAD(, ShaperRequest) ShaperRequestList;

struct ShaperClient {
    Shaper *shaper;
    DeviceState *device;
    void (*ready_fn)(ShaperClient *client);     /* main thread, BQL, no lock */
    /* Each under the lock of its resource. */
    ShaperRequestList held[SHAPER_RESOURCE__MAX];
    ShaperRequestList ready[SHAPER_RESOURCE__MAX];
    bool announced[SHAPER_RESOURCE__MAX];       /* ready_fn is to be called */
    /* Written under the locks of all resources, read under any. */
    bool paused;
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
/* While paused, nothing is held: shaper_submit() answers SHAPER_PAUSED. */
void shaper_client_set_paused(ShaperClient *client, bool paused);

static inline void shaper_request_init(ShaperRequest *request)
{
    request->state = SHAPER_REQUEST_IDLE;
}

/*
 * Decides on a request. An unknown tag is the default class. With `bounded`
 * a request that would exceed its class's backlog limit is dropped.
 */
ShaperVerdict shaper_submit(ShaperClient *client, ShaperRequest *request,
                            ShaperResource resource, unsigned tag,
                            uint32_t bytes, bool bounded);
/* The next request that was held and may go on, or NULL. */
ShaperRequest *shaper_client_take(ShaperClient *client,
                                  ShaperResource resource);
bool shaper_client_has_ready(ShaperClient *client, ShaperResource resource);
/* The oldest request that is ready or held, uncharged if held; NULL if none. */
ShaperRequest *shaper_client_withdraw(ShaperClient *client,
                                      ShaperResource resource);
/* The device below has finished an admitted disk request. */
void shaper_complete(ShaperRequest *request);

/* BQL only. */
/* The tag of the class that a DSCP selects; false if it selects none. */
bool shaper_tag_of_dscp(const Shaper *shaper, uint8_t dscp, unsigned *tag);
/* The tag of a class, or the default tag if there is none of that name. */
unsigned shaper_tag_of_class(const Shaper *shaper, const char *name);
uint64_t shaper_generation(const Shaper *shaper);
/* The shaper's object id, for messages. */
const char *shaper_id(const Shaper *shaper);

#endif
