/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper as a QOM object: -object shaper,id=…,page=…. It exists as long as
 * a device refers to it; object_del is refused until then, and during a migration. The
 * page is removed when the object goes or QEMU exits.
 */
#include "qemu/osdep.h"
#include "hw/vmstate-if.h"
#include "migration/misc.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "qom/object_interfaces.h"
#include "shaper-internal.h"
#include "system/system.h"

/* Each wakes the main loop, of every VM of the host: as often as the controller looks,
 * while there is anything to see. */
#define HEARTBEAT_NS                (250 * SCALE_MS)
#define BUSY_HEARTBEAT_NS           (100 * SCALE_MS)

/* Life cycle */

static void heartbeat_cb(void *opaque)
{
    Shaper *shaper = opaque;
    bool changed = shaper_show(shaper);

    timer_mod(shaper->heartbeat,
              qemu_clock_get_ns(QEMU_CLOCK_REALTIME)
              + (changed ? BUSY_HEARTBEAT_NS : HEARTBEAT_NS));
}

static void shaper_exit_cb(Notifier *notifier, void *data)
{
    Shaper *shaper = container_of(notifier, Shaper, exit_notifier);

    timer_del(shaper->heartbeat);
    shaper_page_unlink(shaper->page);
}

static void shaper_complete_object(UserCreatable *uc, Error **errp)
{
    Shaper *shaper = SHAPER(uc);
    ShaperClassConfig class = { .q_class = (char *)SHAPER_DEFAULT_CLASS,
                                .tag = SLUICE_TAG_DEFAULT };

    if (shaper->page_path) {
        shaper->page = shaper_page_new(shaper->page_path, shaper_id(shaper),
                                       errp);
        if (!shaper->page) {
            return;
        }
        shaper->exit_notifier.notify = shaper_exit_cb;
        qemu_add_exit_notifier(&shaper->exit_notifier);
    }
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        shaper_engine_init(e, shaper, i);
        if (!e->engine || (!shaper_is_disk(i) && !e->pool)) {
            error_setg(errp, "shaper '%s': not enough memory",
                       shaper_id(shaper));
            return;
        }
    }
    shaper_apply_ceiling(shaper, NULL);
    shaper_apply_class(shaper, shaper_complete_class(shaper->classes, &class,
                                                     &error_abort));
    if (!shaper_state_register(shaper, errp)) {
        return;
    }
    if (shaper->page) {
        shaper->heartbeat = timer_new_ns(QEMU_CLOCK_REALTIME, heartbeat_cb,
                                         shaper);
        heartbeat_cb(shaper);
    }
}

/* A migration walks along its list of sections without the BQL. */
static bool shaper_can_be_deleted(UserCreatable *uc)
{
    Shaper *shaper = SHAPER(uc);

    return QLIST_EMPTY(&shaper->clients) && !shaper->channel.device
           && !migration_is_running();
}

static void shaper_finalize(Object *obj)
{
    Shaper *shaper = SHAPER(obj);

    assert(QLIST_EMPTY(&shaper->clients));
    shaper_groups_leave(shaper);
    shaper_gate_page_join(shaper, NULL, &error_abort);
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        shaper_engine_destroy(&shaper->engines[i]);
    }
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        qapi_free_ShaperClassConfig(shaper->classes[tag]);
    }
    qapi_free_ShaperLimitList(shaper->ceiling);
    qapi_free_ShaperGate(shaper->gate);
    if (shaper->page) {
        timer_free(shaper->heartbeat);
        qemu_remove_exit_notifier(&shaper->exit_notifier);
        shaper_page_free(shaper->page);
    }
    g_free(shaper->page_path);
}

/* Another may have the id from here on, while a device that goes still refers to this one. */
static void shaper_unparent(Object *obj)
{
    shaper_state_unregister(SHAPER(obj));
}

static char *shaper_get_page(Object *obj, Error **errp)
{
    return g_strdup(SHAPER(obj)->page_path);
}

static void shaper_set_page(Object *obj, const char *value, Error **errp)
{
    Shaper *shaper = SHAPER(obj);

    if (shaper->engines[0].engine) {
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

/* Tells the sections of several shapers apart. */
static char *shaper_get_vmstate_id(VMStateIf *obj)
{
    return g_strdup(shaper_id(SHAPER(obj)));
}

static void shaper_class_init(ObjectClass *oc, void *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(oc);

    oc->unparent = shaper_unparent;
    VMSTATE_IF_CLASS(oc)->get_id = shaper_get_vmstate_id;
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
        .instance_align = __alignof__(Shaper),
        .instance_init = shaper_instance_init,
        .instance_finalize = shaper_finalize,
        .class_init = shaper_class_init,
        .interfaces = (InterfaceInfo[]) {
            { TYPE_USER_CREATABLE },
            { TYPE_VMSTATE_IF },
            { }
        },
    },
};

DEFINE_TYPES(shaper_types)
