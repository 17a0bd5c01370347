/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When an engine is looked at again, and by whom those are told whose requests it
 * released: its timer, and the list of its clients that have ready requests.
 *
 * Both are for after the engine's lock. Setting a timer may wake another thread, which is
 * a system call; and a client that is told may submit at once. What is to be done is
 * noted under the lock, and done by the thread that had it: shaper_engine_settle().
 *
 * The timer is in the main loop until a disk's request is held in an I/O thread. From
 * then on it is in that thread, where no monitor command or hung file system makes it
 * late, as long as there is a disk of that thread.
 */
#include "qemu/osdep.h"
#include "block/aio-wait.h"
#include "qemu/main-loop.h"
#include "shaper-internal.h"
#include "trace.h"

/* Timer */

void shaper_engine_note_event(ShaperEngine *e)
{
    uint64_t next_ns = sluice_engine_next_event_ns(e->engine);

    if (next_ns != e->event_ns) {
        qatomic_set(&e->event_ns, next_ns);
        e->unsettled = true;
        trace_shaper_arm(shaper_resource_name(e->resource), next_ns);
    }
}

static void timer_cb(void *opaque)
{
    ShaperEngine *e = opaque;

    WITH_SLUICE_LOCK(&e->timer_lock) {
        e->timer_ns = SLUICE_NEVER;
    }
    WITH_SLUICE_LOCK(&e->lock) {
        shaper_engine_release_due(e, shaper_now_ns());
    }
    shaper_engine_settle(e);
}

void shaper_engine_set_timer(ShaperEngine *e)
{
    SLUICE_LOCK_GUARD(&e->timer_lock);
    uint64_t event_ns = qatomic_read(&e->event_ns);

    if (event_ns == e->timer_ns) {
        return;
    }
    e->timer_ns = event_ns;
    if (!e->timer) {
        e->timer = shaper_timer_new(e->timer_context, timer_cb, e);
    }
    if (event_ns == SLUICE_NEVER) {
        timer_del(e->timer);
    } else {
        timer_mod_ns(e->timer, MIN(event_ns, INT64_MAX));
    }
}

/* Caller holds the lock of the timer, which is set anew after it. */
static void move_timer(ShaperEngine *e, AioContext *context)
{
    timer_free(e->timer);
    e->timer = NULL;
    e->timer_ns = SLUICE_NEVER;
    qatomic_set(&e->timer_context, context);
}

/* True: the timer has come into this thread, and is to be set. */
static bool enter_thread(ShaperEngine *e, ShaperClient *client)
{
    AioContext *context = qemu_get_current_aio_context();

    if (!context || context == qemu_get_aio_context()) {
        return false;
    }
    qatomic_set(&client->context, context);
    if (likely(qatomic_read(&e->timer_context) != qemu_get_aio_context())) {
        return false;
    }
    WITH_SLUICE_LOCK(&e->timer_lock) {
        /* Another I/O thread may have been first: its callback may be running. */
        if (e->timer_context != qemu_get_aio_context()) {
            return false;
        }
        move_timer(e, context);
    }
    return true;
}

static void nothing_bh(void *opaque)
{
}

static void leave_thread(ShaperEngine *e, AioContext *from, AioContext *to)
{
    bool moves;

    WITH_SLUICE_LOCK(&e->timer_lock) {
        moves = e->timer_context == from;
        if (moves) {
            move_timer(e, to);
        }
    }
    if (moves) {
        /* Its callback may be running there. */
        aio_wait_bh_oneshot(from, nothing_bh, NULL);
        shaper_engine_settle(e);
    }
}

void shaper_client_leave_thread(ShaperClient *client)
{
    AioContext *from = qatomic_read(&client->context);
    AioContext *to = qemu_get_aio_context();
    ShaperClient *other;

    QLIST_FOREACH(other, &client->shaper->clients, next) {
        AioContext *context = qatomic_read(&other->context);

        if (context && to != from) {
            to = context;
        }
    }
    for (unsigned i = 0; from && from != to && i < SHAPER_RESOURCE__MAX; i++) {
        leave_thread(&client->shaper->engines[i], from, to);
    }
}

/* Clients that have ready requests */

void shaper_engine_announce(ShaperEngine *e, ShaperClient *client)
{
    if (!client->announced[e->resource]) {
        client->announced[e->resource] = true;
        QTAILQ_INSERT_TAIL(&e->announced, client, announced_entry[e->resource]);
        e->unsettled = true;
    }
}

/* Caller holds the lock. */
static void unannounce(ShaperEngine *e, ShaperClient *client)
{
    if (client->announced[e->resource]) {
        client->announced[e->resource] = false;
        QTAILQ_REMOVE(&e->announced, client, announced_entry[e->resource]);
    }
}

/* Caller holds the lock. */
static ShaperClient *take_announced(ShaperEngine *e)
{
    ShaperClient *client = QTAILQ_FIRST(&e->announced);

    if (client) {
        unannounce(e, client);
        qatomic_inc(&client->being_told);
    }
    return client;
}

void shaper_client_quiesce(ShaperClient *client)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &client->shaper->engines[i];
        SLUICE_LOCK_GUARD(&e->lock);

        unannounce(e, client);
    }
    while (qatomic_load_acquire(&client->being_told)) {
        sched_yield();
    }
}

void shaper_engine_settle(ShaperEngine *e)
{
    ShaperClient *client = NULL;

    shaper_engine_set_timer(e);
    do {
        WITH_SLUICE_LOCK(&e->lock) {
            client = take_announced(e);
        }
        if (client) {
            client->ready_fn(client);
            /* From here on it may go. */
            qatomic_dec(&client->being_told);
        }
    } while (client);
}

static void settle_bh(void *opaque)
{
    shaper_engine_settle(opaque);
}

void shaper_engine_settle_submission(ShaperEngine *e, ShaperClient *client,
                                     bool unsettled)
{
    if (!e->settle_bh) {
        if (enter_thread(e, client) || unsettled) {
            shaper_engine_settle(e);
        }
    } else if (unsettled) {
        shaper_engine_set_timer(e);
        qemu_bh_schedule(e->settle_bh);
    }
}

/* Life cycle */

void shaper_engine_init(ShaperEngine *e, Shaper *shaper,
                        ShaperResource resource)
{
    e->shaper = shaper;
    e->resource = resource;
    e->event_ns = e->timer_ns = SLUICE_NEVER;
    e->timer_context = qemu_get_aio_context();
    QTAILQ_INIT(&e->announced);
    e->engine = sluice_engine_new(SHAPER_CLASSES);
    shaper_gate_init(e);
    if (!shaper_is_disk(resource)) {
        e->pool = sluice_pool_new();
        e->settle_bh = qemu_bh_new(settle_bh, e);
    }
}

void shaper_engine_destroy(ShaperEngine *e)
{
    timer_free(e->timer);
    if (e->settle_bh) {
        qemu_bh_delete(e->settle_bh);
    }
    sluice_pool_free(e->pool);
    sluice_engine_free(e->engine);
}
