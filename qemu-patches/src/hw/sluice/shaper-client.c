/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The clients of a shaper: one for each queue of a device. They come, go, pause
 * and change their class under the BQL; the fields that the data path reads are
 * written under the locks of all resources. Their requests are in shaper.c. The
 * property shaper-queues gives each queue its class.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "shaper-internal.h"
#include "trace.h"

void shaper_client_init(ShaperClient *client, Shaper *shaper,
                        DeviceState *device,
                        void (*ready_fn)(ShaperClient *client))
{
    memset(client, 0, sizeof(*client));
    client->shaper = shaper;
    client->device = device;
    client->ready_fn = ready_fn;
    client->class_tag = -1;
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        QTAILQ_INIT(&client->held[i]);
        QTAILQ_INIT(&client->ready[i]);
        QTAILQ_INIT(&client->withdrawn[i]);
    }
    object_ref(OBJECT(shaper));
    if (QLIST_EMPTY(&shaper->clients)) {
        shaper_watch_start(shaper);
    }
    QLIST_INSERT_HEAD(&shaper->clients, client, next);
    trace_shaper_client(shaper_id(shaper), client, "init");
}

void shaper_client_destroy(ShaperClient *client)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        assert(QTAILQ_EMPTY(&client->held[i]));
        assert(QTAILQ_EMPTY(&client->ready[i]));
        assert(QTAILQ_EMPTY(&client->withdrawn[i]));
    }
    shaper_client_quiesce(client);
    trace_shaper_client(shaper_id(client->shaper), client, "destroy");
    QLIST_REMOVE(client, next);
    shaper_client_leave_thread(client);
    if (QLIST_EMPTY(&client->shaper->clients)) {
        shaper_watch_stop(client->shaper);
    }
    g_free(client->class_name);
    object_unref(OBJECT(client->shaper));
}

static void lock_all(Shaper *shaper)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        sluice_lock(&shaper->engines[i].lock);
    }
}

static void unlock_all(Shaper *shaper)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        sluice_unlock(&shaper->engines[i].lock);
    }
}

void shaper_client_set_paused(ShaperClient *client, bool paused)
{
    Shaper *shaper = client->shaper;

    lock_all(shaper);
    client->paused = paused;
    trace_shaper_client(shaper_id(shaper), client,
                        paused ? "paused" : "resumed");
    unlock_all(shaper);
}

static void resolve_class(ShaperClient *client)
{
    client->class_tag = shaper_find_class(client->shaper->classes,
                                          client->class_name);
}

void shaper_clients_resolve(Shaper *shaper)
{
    ShaperClient *client;

    lock_all(shaper);
    QLIST_FOREACH(client, &shaper->clients, next) {
        resolve_class(client);
    }
    unlock_all(shaper);
}

void shaper_client_set_class(ShaperClient *client, const char *name)
{
    lock_all(client->shaper);
    g_free(client->class_name);
    client->class_name = g_strdup(name);
    resolve_class(client);
    unlock_all(client->shaper);
}

/* The property shaper-queues */

bool shaper_check_queues(const Shaper *shaper, const char *text, unsigned count,
                         Error **errp)
{
    g_auto(GStrv) names = NULL;

    if (!text) {
        return true;
    }
    if (!shaper) {
        error_setg(errp, "shaper-queues '%s' needs a shaper; give the device "
                   "shaper= too", text);
        return false;
    }
    names = g_strsplit(text, ":", -1);
    if (g_strv_length(names) > count) {
        error_setg(errp, "shaper-queues '%s' names classes for %u queues, but "
                   "the device has %u; name fewer, or give it more queues",
                   text, g_strv_length(names), count);
        return false;
    }
    for (char **name = names; *name; name++) {
        if (**name && !shaper_check_class_name(*name, errp)) {
            error_prepend(errp, "shaper-queues '%s': ", text);
            return false;
        }
    }
    return true;
}

void shaper_client_set_queue(ShaperClient *client, const char *text,
                             unsigned index)
{
    g_auto(GStrv) names = g_strsplit(text ? text : "", ":", -1);

    if (index < g_strv_length(names) && *names[index]) {
        shaper_client_set_class(client, names[index]);
    }
}
