/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper's data path: four engines, one per resource, and their requests.
 * The object itself is in shaper-object.c, its configuration in shaper-config.c,
 * its clients in shaper-client.c, the gate of the disks in shaper-gate.c, the room and the
 * losses of queues in shaper-queue.c, timers and the telling of clients in shaper-timer.c.
 *
 * Life of a request. shaper_submit() asks the engine under the resource's
 * lock. A request that passes is admitted at once. One that is held waits in
 * the engine until its time has come and somebody looks: each submission and
 * each completion does, before it judges (a card before it takes up the next frame, so
 * that none overtakes another), and for a resource that is quiet there is a
 * timer, set to the engine's next event. Then everything that may go on moves
 * to its client's ready list; and, with the lock released, each client is told once,
 * and takes its requests in a thread of its own choice. So no request is held for
 * others that may go on, however late the timer is.
 *
 * Charged, and not gone on. A stop, a reset or an unplug finds requests released that
 * their device has not taken yet. After a stop such a request goes on without another
 * charge if it is unchanged: the guest may have made another of it meanwhile, and its
 * class may be another. If it goes nowhere, or is judged anew, the class that was
 * charged gets the charge back. The receipt says which class that was. For a migration
 * the sum of these charges is kept (sluice/paid.h).
 *
 * Locks. The BQL guards the configuration and the clients' existence. A
 * resource's lock guards its engine, its counters
 * and its part of every client; it is held for the time of a decision and
 * never while calling a client or setting a timer. No two resource locks are held
 * together, except by shaper-client.c, which takes them in order. The lock of the timer
 * is taken alone. Disks are told in any thread, cards under the BQL, under which all
 * is done with frames; a client that goes, or needs quiet, waits for those who are
 * telling it: shaper_client_quiesce().
 *
 * Time. CLOCK_MONOTONIC; under qtest the virtual clock, which the test steps.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "shaper-internal.h"
#include "trace.h"

/* Accounting */

static void account_in_flight(ShaperEngine *e, ShaperRequest *request,
                              uint64_t now_ns)
{
    request->admitted_ns = now_ns;
    if (shaper_is_disk(e->resource)) {
        e->counters[request->node.class_index].in_flight++;
    }
    if (unlikely(e->streams & (1u << request->node.class_index))) {
        shaper_gate_watch(e, request, now_ns);
    }
}

/*
 * The receipt is taken at once: the configuration may change meanwhile. It is wanted of
 * requests that are charged anew when they are done, or may still be withdrawn.
 */
static void take_receipt(ShaperEngine *e, ShaperRequest *request,
                         uint32_t bytes)
{
    unsigned tag = request->node.class_index;

    request->receipt = sluice_engine_receipt(e->engine, tag, bytes);
    request->by_device = request->receipt.charged
                         && (e->device_charged & (1u << tag));
}

static void account_admission(ShaperEngine *e, ShaperRequest *request,
                              uint32_t bytes, uint64_t now_ns)
{
    request->by_device = false;
    if (unlikely(e->device_charged)) {
        take_receipt(e, request, bytes);
    }
    e->counters[request->node.class_index].untagged_requests += request->untagged;
    e->total_requests++;
    e->total_bytes += bytes;
    account_in_flight(e, request, now_ns);
}

/* Charged, and not gone on */

/* Caller holds the lock. A stop found it released. */
static void paid_stop(ShaperEngine *e, ShaperRequest *request)
{
    const SluiceReceipt *receipt = &request->receipt;

    request->paid = true;
    request->counted = receipt->charged;
    if (request->counted) {
        SluiceReceipt now = sluice_engine_receipt(e->engine,
                                                  receipt->class_index, 0);

        sluice_paid_add(&e->paid[receipt->class_index], receipt->class_serial,
                        receipt->bytes, now.class_serial);
        sluice_paid_add(&e->paid_ceiling, receipt->ceiling_serial,
                        receipt->bytes, now.ceiling_serial);
    }
}

/* Caller holds the lock. It is submitted again, and goes on without another charge. */
static void paid_goes_on(ShaperEngine *e, ShaperRequest *request)
{
    const SluiceReceipt *receipt = &request->receipt;

    request->paid = false;
    if (request->counted) {
        request->counted = false;
        sluice_paid_remove(&e->paid[receipt->class_index],
                           receipt->class_serial, receipt->bytes);
        sluice_paid_remove(&e->paid_ceiling, receipt->ceiling_serial,
                           receipt->bytes);
    }
}

/* Caller holds the lock. Gives its charge back; if it comes again it is judged anew. */
static void refund(ShaperEngine *e, ShaperRequest *request, uint64_t now_ns)
{
    paid_goes_on(e, request);
    trace_shaper_refund(request, shaper_resource_name(e->resource),
                        request->receipt.class_index, request->receipt.bytes);
    sluice_engine_refund(e->engine, &request->receipt, now_ns);
    shaper_engine_note_event(e);
}

/* Caller holds the lock. A refund, if it is larger than at its charge, or if the charge
 * was not to that tag. */
static void paid_check(ShaperEngine *e, ShaperRequest *request, unsigned tag,
                       uint32_t bytes, uint64_t now_ns)
{
    if (bytes > request->node.bytes
        || !sluice_engine_has_charged(e->engine, &request->receipt, tag)) {
        refund(e, request, now_ns);
    }
}

/* Without the lock. A refund, if another resource was charged for it. */
static void paid_check_resource(ShaperRequest *request, ShaperResource resource,
                                uint64_t now_ns)
{
    if (request->resource != resource) {
        ShaperEngine *e = shaper_engine_of(request);

        WITH_SLUICE_LOCK(&e->lock) {
            refund(e, request, now_ns);
        }
        shaper_engine_set_timer(e);
    }
}

void shaper_forget(ShaperRequest *request)
{
    if (request->paid) {
        ShaperEngine *e = shaper_engine_of(request);

        WITH_SLUICE_LOCK(&e->lock) {
            refund(e, request, shaper_now_ns());
        }
        shaper_engine_set_timer(e);
    }
}

/* Release */

/* Caller holds the lock. */
static void make_ready(ShaperEngine *e, ShaperRequest *request)
{
    ShaperClient *client = request->client;

    if (request->state == SHAPER_REQUEST_HELD) {
        QTAILQ_REMOVE(&client->held[e->resource], request, entry);
    }
    request->state = SHAPER_REQUEST_READY;
    QTAILQ_INSERT_TAIL(&client->ready[e->resource], request, entry);
    shaper_engine_announce(e, client);
}

/* Caller holds the lock. Takes a request out of the engine if it is held. */
static void cancel(ShaperEngine *e, ShaperRequest *request)
{
    if (request->state == SHAPER_REQUEST_HELD) {
        QTAILQ_REMOVE(&request->client->held[e->resource], request, entry);
        sluice_engine_withdraw(e->engine, &request->node, shaper_now_ns());
        request->state = SHAPER_REQUEST_IDLE;
        shaper_engine_note_event(e);
    }
}

/* Caller holds the lock. A held request is to be dropped by its client. */
static void condemn(ShaperEngine *e, ShaperRequest *request,
                    ShaperDropReason reason)
{
    unsigned tag = request->node.class_index;

    sluice_engine_withdraw(e->engine, &request->node, shaper_now_ns());
    request->signal = SHAPER_SIGNAL_DROP;
    make_ready(e, request);
    shaper_count_drop(e, tag, request->node.bytes, reason);
}

static uint64_t waited_ns(const SluiceNode *node, uint64_t now_ns)
{
    return node && now_ns > node->held_since_ns ? now_ns - node->held_since_ns : 0;
}

/* Caller holds the lock. A frame goes on, and those that CoDel drops go behind it. */
static void leave_queue(ShaperEngine *e, ShaperRequest *request,
                        uint64_t held_ns, uint64_t now_ns)
{
    unsigned tag = request->node.class_index;
    ShaperRequest *behind;

    while ((behind = shaper_queue_leave(e, request, held_ns, now_ns))) {
        condemn(e, behind, SHAPER_DROP_CODEL);
        held_ns = waited_ns(sluice_engine_first_held(e->engine, tag), now_ns);
    }
}

void shaper_engine_release_due(ShaperEngine *e, uint64_t now_ns)
{
    SluiceNode *node;

    while ((node = sluice_engine_release(e->engine, now_ns))) {
        ShaperRequest *request = container_of(node, ShaperRequest, node);
        unsigned tag = node->class_index;
        uint64_t held_ns = waited_ns(node, now_ns);

        if (node->late == SLUICE_LATE_DROP) {
            request->signal = SHAPER_SIGNAL_DROP;
            make_ready(e, request);
            shaper_count_drop(e, tag, node->bytes, SHAPER_DROP_WINDOW);
            continue;
        }
        e->counters[tag].held_histogram[shaper_page_histogram_bucket(held_ns)]++;
        account_admission(e, request, node->bytes, now_ns);
        take_receipt(e, request, node->bytes);
        make_ready(e, request);
        leave_queue(e, request, held_ns, now_ns);
        trace_shaper_release(request, shaper_resource_name(e->resource), tag,
                             node->bytes, held_ns);
    }
    shaper_engine_note_event(e);
}

/* Caller holds the lock. Must it settle, after the lock? */
static bool take_unsettled(ShaperEngine *e)
{
    bool unsettled = e->unsettled;

    e->unsettled = false;
    return unsettled;
}

/* Caller holds the lock. */
static inline void release_if_due(ShaperEngine *e, uint64_t now_ns)
{
    if (unlikely(e->event_ns <= now_ns)) {
        shaper_engine_release_due(e, now_ns);
    }
}

void shaper_note_payer(ShaperRequest *request)
{
    ShaperEngine *e = shaper_engine_of(request);
    SLUICE_LOCK_GUARD(&e->lock);

    take_receipt(e, request, request->node.bytes);
    request->paid = true;
}

/* Submission */

static void admit(ShaperRequest *request, unsigned tag, uint32_t bytes)
{
    request->node.class_index = tag;
    request->node.bytes = bytes;
    request->state = SHAPER_REQUEST_ADMITTED;
}

/* Caller holds the lock. */
static ShaperVerdict decide(ShaperEngine *e, ShaperRequest *request,
                            unsigned tag, uint32_t bytes, uint64_t now_ns)
{
    if (unlikely(request->paid)) {
        paid_goes_on(e, request);
        admit(request, tag, bytes);
        sluice_engine_enter(e->engine, tag, &request->node, bytes, now_ns);
        account_in_flight(e, request, now_ns);
        return SHAPER_PASS;
    }
    if (e->pool) {
        shaper_queue_enter(e, request, tag, bytes, now_ns);
    }
    if (sluice_engine_submit(e->engine, tag, &request->node, bytes, now_ns)
        == SLUICE_PASS) {
        admit(request, tag, bytes);
        account_admission(e, request, bytes, now_ns);
        return SHAPER_PASS;
    }
    request->state = SHAPER_REQUEST_HELD;
    QTAILQ_INSERT_TAIL(&request->client->held[e->resource], request, entry);
    shaper_engine_note_event(e);
    return SHAPER_HOLD;
}

void shaper_engine_bequeath(ShaperEngine *e, unsigned tag, unsigned heir_tag,
                            uint64_t now_ns)
{
    SluiceNode *node;

    trace_shaper_bequeath(shaper_resource_name(e->resource), tag, heir_tag,
                          sluice_engine_stats(e->engine, tag)->backlog_requests);
    while ((node = sluice_engine_first_held(e->engine, tag))) {
        ShaperRequest *request = container_of(node, ShaperRequest, node);
        uint32_t bytes = node->bytes;

        sluice_engine_withdraw(e->engine, node, now_ns);
        QTAILQ_REMOVE(&request->client->held[e->resource], request, entry);
        if (decide(e, request, heir_tag, bytes, now_ns) == SHAPER_PASS) {
            take_receipt(e, request, bytes);
            make_ready(e, request);
        }
    }
}

/* Caller holds the lock. */
static unsigned tag_of(const ShaperEngine *e, const ShaperClient *client,
                       ShaperRequest *request, unsigned tag)
{
    if (client->class_tag >= 0) {
        tag = client->class_tag;
        request->untagged = false;
    }
    if (tag < SHAPER_CLASSES && (e->granted_tags & (1u << tag))) {
        return tag;
    }
    request->untagged = true;
    return SLUICE_TAG_DEFAULT;
}

/* Caller holds the lock. */
static ShaperVerdict judge(ShaperEngine *e, ShaperRequest *request,
                           unsigned tag, uint32_t bytes, uint32_t buffer_bytes,
                           uint64_t now_ns)
{
    ShaperDropReason reason;
    ShaperVerdict verdict = SHAPER_DROP;

    if (unlikely(request->paid)) {
        paid_check(e, request, tag, bytes, now_ns);
    }
    if (!e->pool || shaper_queue_admits(e, request, tag, buffer_bytes, now_ns,
                                        &reason)) {
        verdict = decide(e, request, tag, bytes, now_ns);
    } else {
        shaper_count_drop(e, tag, bytes, reason);
    }
    return verdict;
}

/* With constants for `as_ready`. */
static inline __attribute__((always_inline)) ShaperVerdict
submit(ShaperClient *client, ShaperRequest *request, ShaperResource resource,
       unsigned tag, uint32_t bytes, uint32_t buffer_bytes, uint64_t now_ns,
       bool as_ready)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    ShaperVerdict verdict;
    bool unsettled;

    assert(request->state == SHAPER_REQUEST_IDLE);
    if (unlikely(request->paid)) {
        paid_check_resource(request, resource, now_ns);
    }
    request->client = client;
    request->resource = resource;
    WITH_SLUICE_LOCK(&e->lock) {
        if (client->paused) {
            return SHAPER_PAUSED;
        }
        if (shaper_is_disk(resource)) {
            release_if_due(e, now_ns);
        }
        tag = tag_of(e, client, request, tag);
        verdict = judge(e, request, tag, bytes, buffer_bytes, now_ns);
        if (as_ready && verdict == SHAPER_PASS) {
            take_receipt(e, request, bytes);
            make_ready(e, request);
        }
        unsettled = take_unsettled(e);
    }
    if (unlikely(unsettled || verdict == SHAPER_HOLD)) {
        shaper_engine_settle_submission(e, client, unsettled);
    }
    trace_shaper_submit(request, shaper_resource_name(resource), tag, bytes,
                        verdict);
    return verdict;
}

ShaperVerdict shaper_submit(ShaperClient *client, ShaperRequest *request,
                            ShaperResource resource, unsigned tag,
                            uint32_t bytes, uint32_t buffer_bytes,
                            uint64_t now_ns)
{
    return submit(client, request, resource, tag, bytes, buffer_bytes, now_ns,
                  false);
}

ShaperVerdict shaper_submit_as_ready(ShaperClient *client,
                                     ShaperRequest *request,
                                     ShaperResource resource, unsigned tag,
                                     uint32_t bytes, uint64_t now_ns)
{
    return submit(client, request, resource, tag, bytes, 0, now_ns, true);
}

void shaper_client_release(ShaperClient *client, ShaperResource resource)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    bool unsettled;

    if (likely(qatomic_read(&e->event_ns) == SLUICE_NEVER)) {
        return;
    }
    WITH_SLUICE_LOCK(&e->lock) {
        release_if_due(e, shaper_request_now_ns());
        unsettled = take_unsettled(e);
    }
    if (unsettled) {
        shaper_engine_settle_submission(e, client, true);
    }
}

ShaperRequest *shaper_client_take(ShaperClient *client, ShaperResource resource)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    SLUICE_LOCK_GUARD(&e->lock);
    ShaperRequest *request = QTAILQ_FIRST(&client->ready[resource]);

    if (request) {
        QTAILQ_REMOVE(&client->ready[resource], request, entry);
        request->state = SHAPER_REQUEST_ADMITTED;
        /* The disk gets it now; in a drained section that is long after. */
        if (shaper_is_disk(resource)) {
            request->admitted_ns = shaper_now_ns();
            shaper_gate_taken(e, request);
        }
    }
    return request;
}

bool shaper_client_has_ready(ShaperClient *client, ShaperResource resource)
{
    SLUICE_LOCK_GUARD(&client->shaper->engines[resource].lock);

    return !QTAILQ_EMPTY(&client->ready[resource]);
}

static bool is_of_client(const SluiceNode *node, const void *client)
{
    return container_of(node, ShaperRequest, node)->client == client;
}

/* Caller holds the lock. All at once, since a class may hold thousands of other queues',
 * among which one by one would be looked for. */
static void withdraw_held(ShaperEngine *e, ShaperClient *client)
{
    ShaperRequestList *held = &client->held[e->resource];
    ShaperRequest *request;

    if (QTAILQ_EMPTY(held)) {
        return;
    }
    sluice_engine_withdraw_if(e->engine, is_of_client, client, shaper_now_ns());
    while ((request = QTAILQ_FIRST(held))) {
        QTAILQ_REMOVE(held, request, entry);
        QTAILQ_INSERT_TAIL(&client->withdrawn[e->resource], request, entry);
        request->state = SHAPER_REQUEST_IDLE;
    }
    shaper_engine_note_event(e);
}

/* Caller holds the lock. */
static ShaperRequest *withdraw_one(ShaperEngine *e, ShaperClient *client)
{
    ShaperRequest *request = QTAILQ_FIRST(&client->ready[e->resource]);

    if (request) {
        QTAILQ_REMOVE(&client->ready[e->resource], request, entry);
        /* The condemned are dropped, and were not charged. */
        if (request->signal != SHAPER_SIGNAL_DROP) {
            paid_stop(e, request);
        }
        if (shaper_is_disk(e->resource)) {
            e->counters[request->node.class_index].in_flight--;
        }
        if (request->node.gated || request->watched) {
            shaper_gate_undone(e, request, shaper_now_ns());
        }
    } else {
        withdraw_held(e, client);
        request = QTAILQ_FIRST(&client->withdrawn[e->resource]);
        if (!request) {
            return NULL;
        }
        QTAILQ_REMOVE(&client->withdrawn[e->resource], request, entry);
    }
    trace_shaper_withdraw(request, shaper_resource_name(e->resource),
                          request->node.class_index, request->node.bytes);
    request->state = SHAPER_REQUEST_IDLE;
    return request;
}

ShaperRequest *shaper_client_withdraw(ShaperClient *client,
                                      ShaperResource resource)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    ShaperRequest *request;

    WITH_SLUICE_LOCK(&e->lock) {
        request = withdraw_one(e, client);
    }
    shaper_engine_set_timer(e);
    return request;
}

/* Drops and marks */

void shaper_drop(ShaperRequest *request, ShaperDropReason reason)
{
    ShaperEngine *e = shaper_engine_of(request);
    unsigned tag = request->node.class_index;

    WITH_SLUICE_LOCK(&e->lock) {
        cancel(e, request);
        if (request->paid) {
            refund(e, request, shaper_now_ns());
        }
        shaper_count_drop(e, tag, request->node.bytes, reason);
    }
    shaper_engine_set_timer(e);
    shaper_buffer_give(request);
}

void shaper_count_mark(const ShaperRequest *request)
{
    ShaperEngine *e = shaper_engine_of(request);
    unsigned tag = request->node.class_index;
    SLUICE_LOCK_GUARD(&e->lock);

    e->counters[tag].marked_requests++;
    trace_shaper_mark(shaper_resource_name(e->resource), tag,
                      request->node.bytes);
}

/* Completion */

/*
 * Caller holds the lock. Charges the work of the device instead of the bytes that the
 * request named, see cost.c.
 */
static void correct_charge(ShaperEngine *e, const ShaperRequest *request,
                           uint64_t service_ns, uint64_t now_ns)
{
    ShaperCosts *costs = request->client->costs;
    uint64_t *completed_ns = &costs->completed_ns[e->resource];
    uint64_t turn_ns = now_ns > *completed_ns ? now_ns - *completed_ns : 0;
    SluiceCostKind kind = sluice_cost_observe(&costs->models[e->resource],
                                              request->node.bytes, service_ns,
                                              turn_ns);
    int64_t correction = 0;

    *completed_ns = now_ns;
    if (request->by_device) {
        correction = sluice_cost_correction(kind, request->receipt.bytes);
    }
    if (correction) {
        trace_shaper_correct(request, shaper_resource_name(e->resource),
                             request->receipt.class_index, correction);
        sluice_engine_correct(e->engine, &request->receipt, correction, now_ns);
        shaper_engine_note_event(e);
    }
}

void shaper_complete(ShaperRequest *request, bool is_typical)
{
    ShaperEngine *e = shaper_engine_of(request);
    uint64_t now_ns = shaper_request_now_ns();
    unsigned tag = request->node.class_index;
    ShaperPageCounters *counters = &e->counters[tag];
    uint64_t service_ns = now_ns > request->admitted_ns
                          ? now_ns - request->admitted_ns : 0;
    bool unsettled;

    assert(request->state == SHAPER_REQUEST_ADMITTED);
    request->state = SHAPER_REQUEST_IDLE;
    WITH_SLUICE_LOCK(&e->lock) {
        counters->in_flight--;
        counters->completed_requests++;
        counters->service_ns += service_ns;
        if (unlikely(e->device_charged) && request->client->costs
            && is_typical) {
            correct_charge(e, request, service_ns, now_ns);
        }
        if (unlikely(request->node.gated || request->watched)) {
            shaper_gate_done(e, request, service_ns, now_ns);
        }
        release_if_due(e, now_ns);
        unsettled = take_unsettled(e);
    }
    if (unlikely(unsettled)) {
        shaper_engine_settle(e);
    }
    trace_shaper_complete(request, shaper_resource_name(e->resource), tag,
                          service_ns);
}
