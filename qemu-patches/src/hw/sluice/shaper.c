/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper object: four engines, one per resource, and their clients.
 *
 * Life of a request. shaper_submit() asks the engine under the resource's
 * lock. A request that passes is admitted at once. One that is held waits in
 * the engine; the resource's timer is set to the engine's next event, and when
 * it fires, everything that may go on moves to its client's ready list. Then,
 * with the lock released, each client is told once, and takes its requests in
 * a thread of its own choice.
 *
 * Locks. The BQL guards the configuration, the clients' existence and the
 * timers' callbacks. A resource's lock guards its engine, counters, page slots
 * and its part of every client; it is held for the time of a decision and
 * never while calling a client. No two resource locks are held together,
 * except in shaper_client_set_paused(), which takes them in order.
 *
 * Time. CLOCK_MONOTONIC; under qtest the virtual clock, which the test steps.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "qom/object_interfaces.h"
#include "shaper-internal.h"
#include "system/qtest.h"
#include "system/system.h"
#include "trace.h"

#define HEARTBEAT_NS                (50 * SCALE_MS)
/* A class may queue inbound frames worth this time, and at least this much. */
#define BACKLOG_TIME_DIVISOR        20      /* 1/20 s */
#define BACKLOG_BYTES_MIN           (128 * KiB)

/* Time */

static QEMUClockType clock_type(void)
{
    return qtest_enabled() ? QEMU_CLOCK_VIRTUAL : QEMU_CLOCK_REALTIME;
}

static uint64_t clock_now_ns(void)
{
    /* -object comes before the accelerator, which decides on the clock. */
    return phase_check(PHASE_ACCEL_CREATED) ? qemu_clock_get_ns(clock_type())
                                            : 0;
}

/* Accounting */

static bool is_disk(ShaperResource resource)
{
    return resource == SHAPER_RESOURCE_BLK_READ
           || resource == SHAPER_RESOURCE_BLK_WRITE;
}

static void publish_counters(ShaperEngine *e, unsigned tag)
{
    const SluiceClassStats *stats = sluice_engine_stats(e->engine, tag);
    ShaperPageCounters *counters = &e->counters[tag];

    if (!e->shaper->page) {
        return;
    }
    counters->requests = stats->requests;
    counters->bytes = stats->bytes;
    counters->held_requests = stats->held_requests;
    counters->held_ns = stats->held_ns;
    counters->backlog_requests = stats->backlog_requests;
    counters->backlog_bytes = stats->backlog_bytes;
    shaper_page_set_counters(e->shaper->page,
                             tag * SHAPER_RESOURCE__MAX + e->resource,
                             counters);
}

static void publish_totals(ShaperEngine *e)
{
    ShaperPageCounters counters = {
        .requests = e->total_requests,
        .bytes = e->total_bytes,
    };

    if (e->shaper->page) {
        shaper_page_set_counters(e->shaper->page,
                                 SHAPER_PAGE_CEILING_SLOT + e->resource,
                                 &counters);
    }
}

static void account_admission(ShaperEngine *e, ShaperRequest *request,
                              uint32_t bytes, uint64_t now_ns)
{
    request->admitted_ns = now_ns;
    e->total_requests++;
    e->total_bytes += bytes;
    if (is_disk(e->resource)) {
        e->counters[request->node.class_index].in_flight++;
    }
}

/* Release */

static void release_timer_cb(void *opaque);

/* Caller holds the lock. */
static void arm_timer(ShaperEngine *e)
{
    uint64_t next_ns = sluice_engine_next_event_ns(e->engine);

    if (next_ns == e->armed_ns) {
        return;
    }
    e->armed_ns = next_ns;
    if (!e->timer) {
        e->timer = timer_new_ns(clock_type(), release_timer_cb, e);
    }
    if (next_ns == SLUICE_NEVER) {
        timer_del(e->timer);
    } else {
        timer_mod_ns(e->timer, MIN(next_ns, INT64_MAX));
    }
}

/* Caller holds the lock. */
static void make_ready(ShaperEngine *e, ShaperRequest *request)
{
    ShaperClient *client = request->client;

    if (request->state == SHAPER_REQUEST_HELD) {
        QTAILQ_REMOVE(&client->held[e->resource], request, entry);
    }
    request->state = SHAPER_REQUEST_READY;
    QTAILQ_INSERT_TAIL(&client->ready[e->resource], request, entry);
    client->announced[e->resource] = true;
}

/* Caller holds the lock. */
static void release_due(ShaperEngine *e, uint64_t now_ns)
{
    SluiceNode *node;

    while ((node = sluice_engine_release(e->engine, now_ns))) {
        ShaperRequest *request = container_of(node, ShaperRequest, node);
        unsigned tag = node->class_index;
        uint64_t held_ns = now_ns > node->held_since_ns
                           ? now_ns - node->held_since_ns : 0;

        e->counters[tag].held_histogram[shaper_page_histogram_bucket(held_ns)]++;
        account_admission(e, request, node->bytes, now_ns);
        make_ready(e, request);
        publish_counters(e, tag);
        trace_shaper_release(request, ShaperResource_str(e->resource), tag,
                             node->bytes, held_ns);
    }
    publish_totals(e);
    arm_timer(e);
}

/* BQL, without the lock: what a client does may come back to submit. */
static void announce_ready(ShaperEngine *e)
{
    ShaperClient *client;

    QLIST_FOREACH(client, &e->shaper->clients, next) {
        bool announced;

        WITH_QEMU_LOCK_GUARD(&e->lock) {
            announced = client->announced[e->resource];
            client->announced[e->resource] = false;
        }
        if (announced) {
            client->ready_fn(client);
        }
    }
}

static void release_timer_cb(void *opaque)
{
    ShaperEngine *e = opaque;

    WITH_QEMU_LOCK_GUARD(&e->lock) {
        e->armed_ns = SLUICE_NEVER;
        release_due(e, clock_now_ns());
    }
    announce_ready(e);
}

static void heartbeat_cb(void *opaque)
{
    Shaper *shaper = opaque;

    shaper_page_heartbeat(shaper->page, get_clock());
    timer_mod(shaper->heartbeat,
              qemu_clock_get_ns(QEMU_CLOCK_REALTIME) + HEARTBEAT_NS);
}

/* Clients */

void shaper_client_init(ShaperClient *client, Shaper *shaper,
                        DeviceState *device,
                        void (*ready_fn)(ShaperClient *client))
{
    memset(client, 0, sizeof(*client));
    client->shaper = shaper;
    client->device = device;
    client->ready_fn = ready_fn;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        QTAILQ_INIT(&client->held[i]);
        QTAILQ_INIT(&client->ready[i]);
    }
    object_ref(OBJECT(shaper));
    QLIST_INSERT_HEAD(&shaper->clients, client, next);
}

void shaper_client_destroy(ShaperClient *client)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        assert(QTAILQ_EMPTY(&client->held[i]));
        assert(QTAILQ_EMPTY(&client->ready[i]));
    }
    QLIST_REMOVE(client, next);
    object_unref(OBJECT(client->shaper));
}

void shaper_client_set_paused(ShaperClient *client, bool paused)
{
    Shaper *shaper = client->shaper;

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        qemu_mutex_lock(&shaper->engines[i].lock);
    }
    client->paused = paused;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        qemu_mutex_unlock(&shaper->engines[i].lock);
    }
}

/* Caller holds the lock. */
static bool backlog_has_room(ShaperEngine *e, unsigned tag, uint32_t bytes)
{
    uint64_t backlog = sluice_engine_stats(e->engine, tag)->backlog_bytes;

    /* A single frame always fits; a class without backlog is not full. */
    return backlog == 0 || backlog + bytes <= e->backlog_bytes_max[tag];
}

/* Caller holds the lock. */
static ShaperVerdict decide(ShaperEngine *e, ShaperRequest *request,
                            unsigned tag, uint32_t bytes, uint64_t now_ns)
{
    if (sluice_engine_submit(e->engine, tag, &request->node, bytes, now_ns)
        == SLUICE_PASS) {
        request->node.class_index = tag;
        request->node.bytes = bytes;
        request->state = SHAPER_REQUEST_ADMITTED;
        account_admission(e, request, bytes, now_ns);
        publish_totals(e);
        return SHAPER_PASS;
    }
    request->state = SHAPER_REQUEST_HELD;
    QTAILQ_INSERT_TAIL(&request->client->held[e->resource], request, entry);
    arm_timer(e);
    return SHAPER_HOLD;
}

ShaperVerdict shaper_submit(ShaperClient *client, ShaperRequest *request,
                            ShaperResource resource, unsigned tag,
                            uint32_t bytes, bool bounded)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    uint64_t now_ns = clock_now_ns();
    ShaperVerdict verdict;

    assert(request->state == SHAPER_REQUEST_IDLE);
    request->client = client;
    request->resource = resource;
    WITH_QEMU_LOCK_GUARD(&e->lock) {
        if (client->paused) {
            return SHAPER_PAUSED;
        }
        if (tag >= SHAPER_CLASSES || !(e->granted_tags & (1u << tag))) {
            tag = SLUICE_TAG_DEFAULT;
        }
        if (bounded && !backlog_has_room(e, tag, bytes)) {
            e->counters[tag].dropped_requests++;
            e->counters[tag].dropped_bytes += bytes;
            verdict = SHAPER_DROP;
        } else {
            verdict = decide(e, request, tag, bytes, now_ns);
        }
        publish_counters(e, tag);
    }
    trace_shaper_submit(request, ShaperResource_str(resource), tag, bytes,
                        verdict);
    return verdict;
}

ShaperRequest *shaper_client_take(ShaperClient *client, ShaperResource resource)
{
    QEMU_LOCK_GUARD(&client->shaper->engines[resource].lock);
    ShaperRequest *request = QTAILQ_FIRST(&client->ready[resource]);

    if (request) {
        QTAILQ_REMOVE(&client->ready[resource], request, entry);
        request->state = SHAPER_REQUEST_ADMITTED;
    }
    return request;
}

bool shaper_client_has_ready(ShaperClient *client, ShaperResource resource)
{
    QEMU_LOCK_GUARD(&client->shaper->engines[resource].lock);

    return !QTAILQ_EMPTY(&client->ready[resource]);
}

ShaperRequest *shaper_client_withdraw(ShaperClient *client,
                                      ShaperResource resource)
{
    ShaperEngine *e = &client->shaper->engines[resource];
    QEMU_LOCK_GUARD(&e->lock);
    ShaperRequest *request = QTAILQ_FIRST(&client->ready[resource]);

    if (request) {
        QTAILQ_REMOVE(&client->ready[resource], request, entry);
        if (is_disk(resource)) {
            e->counters[request->node.class_index].in_flight--;
        }
    } else {
        request = QTAILQ_FIRST(&client->held[resource]);
        if (!request) {
            return NULL;
        }
        QTAILQ_REMOVE(&client->held[resource], request, entry);
        sluice_engine_withdraw(e->engine, &request->node);
        arm_timer(e);
    }
    trace_shaper_withdraw(request, ShaperResource_str(resource),
                          request->node.class_index, request->node.bytes);
    publish_counters(e, request->node.class_index);
    request->state = SHAPER_REQUEST_IDLE;
    return request;
}

void shaper_complete(ShaperRequest *request)
{
    ShaperEngine *e = &request->client->shaper->engines[request->resource];
    uint64_t now_ns = clock_now_ns();
    ShaperPageCounters *counters = &e->counters[request->node.class_index];

    assert(request->state == SHAPER_REQUEST_ADMITTED);
    request->state = SHAPER_REQUEST_IDLE;
    WITH_QEMU_LOCK_GUARD(&e->lock) {
        counters->in_flight--;
        counters->completed_requests++;
        if (now_ns > request->admitted_ns) {
            counters->service_ns += now_ns - request->admitted_ns;
        }
        publish_counters(e, request->node.class_index);
    }
}

/* Look-ups */

bool shaper_tag_of_dscp(const Shaper *shaper, uint8_t dscp, unsigned *tag)
{
    unsigned own_tag = sluice_tag_of_dscp(dscp);

    for (unsigned i = 0; i < SHAPER_CLASSES; i++) {
        if (shaper->classes[i].used
            && (shaper->classes[i].dscp & (1ULL << dscp))) {
            *tag = i;
            return true;
        }
    }
    *tag = own_tag;
    return own_tag != SLUICE_TAG_DEFAULT && shaper->classes[own_tag].used;
}

unsigned shaper_tag_of_class(const Shaper *shaper, const char *name)
{
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (shaper->classes[tag].used
            && !strcmp(shaper->classes[tag].name, name)) {
            return tag;
        }
    }
    return SLUICE_TAG_DEFAULT;
}

uint64_t shaper_generation(const Shaper *shaper)
{
    return shaper->generation;
}

const char *shaper_id(const Shaper *shaper)
{
    return object_get_canonical_path_component(OBJECT(shaper));
}

/* Configuration */

static void shaper_changed(Shaper *shaper)
{
    shaper->generation++;
    if (shaper->page) {
        shaper_page_set_generation(shaper->page, shaper->generation);
    }
}

static uint64_t lower_rate(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : MIN(a, b);
}

/* Caller holds the lock. */
static void set_backlog_max(ShaperEngine *e, unsigned tag)
{
    Shaper *shaper = e->shaper;
    uint64_t rate = lower_rate(
        shaper->classes[tag].limits[e->resource].bytes_per_second,
        shaper->ceiling[e->resource].bytes_per_second);

    e->backlog_bytes_max[tag] = MAX(rate / BACKLOG_TIME_DIVISOR,
                                    BACKLOG_BYTES_MIN);
}

/* Caller holds the lock. */
static void publish_class(ShaperEngine *e, unsigned tag)
{
    const ShaperClass *class = &e->shaper->classes[tag];
    ShaperPageConfig config = {
        .used = class->used,
        .priority = class->priority,
        .name = class->name,
        .limit = class->limits[e->resource],
    };

    if (e->shaper->page) {
        shaper_page_set_config(e->shaper->page,
                               tag * SHAPER_RESOURCE__MAX + e->resource,
                               &config);
    }
}

/* Caller holds the lock. */
static void configure_class(ShaperEngine *e, unsigned tag, uint64_t now_ns)
{
    const ShaperClass *class = &e->shaper->classes[tag];
    SluiceClassConfig config = {
        .limit = class->limits[e->resource],
        .priority = class->priority,
    };
    bool ok = sluice_engine_set_class(e->engine, tag, &config, now_ns);

    assert(ok);
    if (class->used) {
        e->granted_tags |= 1u << tag;
    } else {
        e->granted_tags &= ~(1u << tag);
    }
    set_backlog_max(e, tag);
    publish_class(e, tag);
}

void shaper_apply_class(Shaper *shaper, unsigned tag, const ShaperClass *class)
{
    uint64_t now_ns = clock_now_ns();

    trace_shaper_set_class(shaper_id(shaper), class->name, tag,
                           class->priority);
    shaper->classes[tag] = *class;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_QEMU_LOCK_GUARD(&e->lock) {
            configure_class(e, tag, now_ns);
            release_due(e, now_ns);
        }
        announce_ready(e);
    }
    shaper_changed(shaper);
}

/* Caller holds the lock. */
static void bequeath_held(ShaperEngine *e, unsigned tag, unsigned heir_tag,
                          uint64_t now_ns)
{
    SluiceNode *node;

    while ((node = sluice_engine_first_held(e->engine, tag))) {
        ShaperRequest *request = container_of(node, ShaperRequest, node);
        uint32_t bytes = node->bytes;

        sluice_engine_withdraw(e->engine, node);
        QTAILQ_REMOVE(&request->client->held[e->resource], request, entry);
        if (decide(e, request, heir_tag, bytes, now_ns) == SHAPER_PASS) {
            make_ready(e, request);
        }
    }
    publish_counters(e, tag);
    publish_counters(e, heir_tag);
}

void shaper_apply_removal(Shaper *shaper, unsigned tag, unsigned heir_tag)
{
    uint64_t now_ns = clock_now_ns();

    trace_shaper_remove_class(shaper_id(shaper), shaper->classes[tag].name,
                              tag);
    shaper->classes[tag] = (ShaperClass){ .used = false };
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_QEMU_LOCK_GUARD(&e->lock) {
            bequeath_held(e, tag, heir_tag, now_ns);
            configure_class(e, tag, now_ns);
            release_due(e, now_ns);
        }
        announce_ready(e);
    }
    shaper_changed(shaper);
}

void shaper_apply_ceiling(Shaper *shaper,
                          const SluiceLimit limits[SHAPER_RESOURCE__MAX])
{
    uint64_t now_ns = clock_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];
        ShaperPageConfig config = { .used = true, .name = "ceiling",
                                    .limit = limits[i] };

        shaper->ceiling[i] = limits[i];
        WITH_QEMU_LOCK_GUARD(&e->lock) {
            bool ok = sluice_engine_set_ceiling(e->engine, &limits[i], now_ns);

            assert(ok);
            for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
                set_backlog_max(e, tag);
            }
            if (shaper->page) {
                shaper_page_set_config(shaper->page,
                                       SHAPER_PAGE_CEILING_SLOT + i, &config);
            }
            release_due(e, now_ns);
        }
        announce_ready(e);
    }
    trace_shaper_set_ceiling(shaper_id(shaper));
    shaper_changed(shaper);
}

/* Object */

static void shaper_exit_cb(Notifier *notifier, void *data)
{
    Shaper *shaper = container_of(notifier, Shaper, exit_notifier);

    shaper_page_unlink(shaper->page);
}

static void shaper_complete_object(UserCreatable *uc, Error **errp)
{
    Shaper *shaper = SHAPER(uc);
    static const SluiceLimit unlimited[SHAPER_RESOURCE__MAX];
    ShaperClass class = { .used = true, .name = SHAPER_DEFAULT_CLASS,
                          .priority = SHAPER_DEFAULT_PRIORITY };

    if (shaper->page_path) {
        shaper->page = shaper_page_new(shaper->page_path, shaper_id(shaper),
                                       errp);
        if (!shaper->page) {
            return;
        }
        shaper->exit_notifier.notify = shaper_exit_cb;
        qemu_add_exit_notifier(&shaper->exit_notifier);
        shaper->heartbeat = timer_new_ns(QEMU_CLOCK_REALTIME, heartbeat_cb,
                                         shaper);
        heartbeat_cb(shaper);
    }
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        e->shaper = shaper;
        e->resource = i;
        e->armed_ns = SLUICE_NEVER;
        qemu_mutex_init(&e->lock);
        e->engine = sluice_engine_new(SHAPER_CLASSES);
        if (!e->engine) {
            error_setg(errp, "shaper '%s': not enough memory",
                       shaper_id(shaper));
            return;
        }
    }
    shaper_apply_ceiling(shaper, unlimited);
    shaper_apply_class(shaper, SLUICE_TAG_DEFAULT, &class);
}

static bool shaper_can_be_deleted(UserCreatable *uc)
{
    return QLIST_EMPTY(&SHAPER(uc)->clients);
}

static void shaper_finalize(Object *obj)
{
    Shaper *shaper = SHAPER(obj);

    assert(QLIST_EMPTY(&shaper->clients));
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        timer_free(e->timer);
        if (e->engine) {
            sluice_engine_free(e->engine);
        }
        if (e->shaper) {
            qemu_mutex_destroy(&e->lock);
        }
    }
    if (shaper->page) {
        timer_free(shaper->heartbeat);
        qemu_remove_exit_notifier(&shaper->exit_notifier);
        shaper_page_free(shaper->page);
    }
    g_free(shaper->page_path);
}

static char *shaper_get_page(Object *obj, Error **errp)
{
    return g_strdup(SHAPER(obj)->page_path);
}

static void shaper_set_page(Object *obj, const char *value, Error **errp)
{
    Shaper *shaper = SHAPER(obj);

    if (shaper->page) {
        error_setg(errp, "page cannot be changed to '%s' while the shaper "
                   "exists; set it in -object", value);
        return;
    }
    g_free(shaper->page_path);
    shaper->page_path = g_strdup(value);
}

static void shaper_instance_init(Object *obj)
{
    QLIST_INIT(&SHAPER(obj)->clients);
}

static void shaper_class_init(ObjectClass *oc, void *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(oc);

    ucc->complete = shaper_complete_object;
    ucc->can_be_deleted = shaper_can_be_deleted;
    object_class_property_add_str(oc, "page", shaper_get_page,
                                  shaper_set_page);
    object_class_property_set_description(oc, "page",
        "File name of the counters page");
}

static const TypeInfo shaper_types[] = {
    {
        .name = TYPE_SHAPER,
        .parent = TYPE_OBJECT,
        .instance_size = sizeof(Shaper),
        .instance_init = shaper_instance_init,
        .instance_finalize = shaper_finalize,
        .class_init = shaper_class_init,
        .interfaces = (InterfaceInfo[]) {
            { TYPE_USER_CREATABLE },
            { }
        },
    },
};

DEFINE_TYPES(shaper_types)
