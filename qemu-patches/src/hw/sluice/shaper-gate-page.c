/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate of a device: -object shaper-gate,id=…,path=… opens its page, and
 * shaper-set-gate makes the gates of a shaper members of it (sluice/gate-page.h).
 *
 * As with groups (shaper-group.c): the page belongs to the controller; the object lasts
 * as long as a shaper is a member; a member handle lies beside its engine and is used
 * under the engine's lock, everything else here under the BQL. A timer shows the other
 * members that this one lives.
 *
 * Another process that may write the file may shorten it. This process is then left with an
 * empty page of its own (shaper-guard.c): its gates have no slot there, so each goes on with
 * the window as it was, alone.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-sluice.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qom/object_interfaces.h"
#include "shaper-internal.h"
#include "shaper-shared.h"
#include "system/system.h"

#define TYPE_SHAPER_GATE        "shaper-gate"
OBJECT_DECLARE_SIMPLE_TYPE(ShaperGatePage, SHAPER_GATE)

struct ShaperGatePage {
    Object parent_obj;

    char *path;
    ShaperShared shared;        /* the file */
    unsigned members;           /* gates of this process */
};

const char *shaper_gate_page_id(const ShaperGatePage *page)
{
    return object_get_canonical_path_component(OBJECT(page));
}

/* The page */

static const char *status_text(SluiceGateStatus status)
{
    switch (status) {
    case SLUICE_GATE_TOO_SHORT:
        return "it is too short; let the controller create it";
    case SLUICE_GATE_NO_MAGIC:
        return "it is no gate page; let the controller create it";
    case SLUICE_GATE_OTHER_VERSION:
        return "it has another version or other sizes than this QEMU knows; "
               "use a controller and a QEMU of one release";
    case SLUICE_GATE_FULL:
        return "all of its slots belong to live members; let some VMs go without "
               "the device's gate";
    case SLUICE_GATE_OK:
        break;
    }
    return "no error";
}

static bool refuse_status(const ShaperGatePage *page, SluiceGateStatus status,
                          Error **errp)
{
    if (status == SLUICE_GATE_OK) {
        return false;
    }
    error_setg(errp, "gate '%s' cannot be used, path '%s': %s",
               shaper_gate_page_id(page), page->path,
               shaper_shared_is_lost(&page->shared)
               ? "another process has shortened it; open the page that the "
                 "controller makes anew"
               : status_text(status));
    return true;
}

static void shaper_gate_complete(UserCreatable *uc, Error **errp)
{
    ShaperGatePage *page = SHAPER_GATE(uc);
    ShaperShared *shared = &page->shared;

    if (shaper_shared_open(shared, page->path, sluice_gate_page_bytes(), "gate",
                           errp)
        && refuse_status(page, sluice_gate_page_check(shared->memory, shared->bytes),
                         errp)) {
        shaper_shared_close(shared);
    }
}

/* Membership */

static void keepalive_cb(void *opaque)
{
    Shaper *shaper = opaque;
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        if (!e->gate_page) {
            continue;
        }
        WITH_SLUICE_LOCK(&e->lock) {
            sluice_engine_keep_gate(e->engine, now_ns);
        }
        if (shaper_shared_is_newly_lost(&e->gate_page->shared)) {
            warn_report("gate '%s': another process has shortened '%s'; this VM's "
                        "window is its own until the controller gives it another "
                        "page", shaper_gate_page_id(e->gate_page),
                        e->gate_page->path);
        }
    }
    timer_mod_ns(shaper->gate_timer, now_ns + SLUICE_GATE_KEEPALIVE_NS / 2);
}

static void start_or_stop_keepalive(Shaper *shaper, bool member)
{
    if (member && !shaper->gate_timer) {
        shaper->gate_timer = shaper_timer_new(qemu_get_aio_context(), keepalive_cb,
                                              shaper);
        keepalive_cb(shaper);
    } else if (!member && shaper->gate_timer) {
        timer_free(shaper->gate_timer);
        shaper->gate_timer = NULL;
    }
}

/* Replaces the membership of an engine; `page` is NULL for none. */
static void change_page(ShaperEngine *e, ShaperGatePage *page,
                        const SluiceGateMember *member)
{
    ShaperGatePage *old = e->gate_page;
    uint64_t now_ns = shaper_now_ns();

    WITH_SLUICE_LOCK(&e->lock) {
        sluice_engine_set_gate_member(e->engine, NULL, now_ns);
        if (old) {
            sluice_gate_quit(&e->gate_member);
        }
        e->gate_page = page;
        if (page) {
            e->gate_member = *member;
            sluice_engine_set_gate_member(e->engine, &e->gate_member, now_ns);
        }
        shaper_engine_release_due(e, now_ns);
    }
    shaper_engine_settle(e);
    if (page) {
        page->members++;
        object_ref(OBJECT(page));
    }
    if (old) {
        old->members--;
        object_unref(OBJECT(old));
    }
}

static bool join(ShaperEngine *e, ShaperGatePage *page, SluiceGateMember *member,
                 Error **errp)
{
    uint64_t owner = (uint64_t)g_random_int() << 32 | (uint32_t)getpid();
    g_autofree char *label = g_strdup_printf(
        "%s %s %s", qemu_get_vm_name() ?: "-", shaper_id(e->shaper),
        ShaperResource_str(e->resource));

    return !refuse_status(page, sluice_gate_join(member, page->shared.memory,
                                                 page->shared.bytes, owner, label,
                                                 shaper_now_ns()), errp);
}

static void leave_page(Shaper *shaper)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        if (shaper->engines[i].gate_page) {
            change_page(&shaper->engines[i], NULL, NULL);
        }
    }
}

bool shaper_gate_page_join(Shaper *shaper, ShaperGatePage *page, Error **errp)
{
    ShaperEngine *reads = &shaper->engines[SHAPER_RESOURCE_BLK_READ];
    ShaperEngine *writes = &shaper->engines[SHAPER_RESOURCE_BLK_WRITE];
    SluiceGateMember reader, writer;

    if (reads->gate_page == page) {
        return true;
    }
    if (page) {
        shaper_guard_arm();
        if (!join(reads, page, &reader, errp)) {
            return false;
        }
        if (!join(writes, page, &writer, errp)) {
            sluice_gate_quit(&reader);
            return false;
        }
    }
    leave_page(shaper);
    if (page) {
        change_page(reads, page, &reader);
        change_page(writes, page, &writer);
    }
    start_or_stop_keepalive(shaper, page != NULL);
    return true;
}

ShaperGatePage *shaper_gate_page_find(const char *id, Error **errp)
{
    Object *found = shaper_find_object("gate", id, TYPE_SHAPER_GATE,
                                       "query-shaper-gates", errp);

    return found ? SHAPER_GATE(found) : NULL;
}

/* Showing */

static ShaperGateMemberList *members_info(const SluiceGatePage *page, uint64_t now_ns)
{
    ShaperGateMemberList *list = NULL;

    for (int i = SLUICE_GATE_SLOTS - 1; i >= 0; i--) {
        SluiceGateMemberInfo from;
        ShaperGateMember *info;

        if (!sluice_gate_member_info(page, i, now_ns, &from)) {
            continue;
        }
        info = g_new0(ShaperGateMember, 1);
        info->pid = from.pid;
        /* Another process wrote it; the monitor speaks UTF-8 only. */
        info->label = g_utf8_make_valid(from.label, -1);
        info->in_flight_bytes = from.in_flight_bytes;
        info->weight = from.weight;
        info->waiting = from.waiting;
        QAPI_LIST_PREPEND(list, info);
    }
    return list;
}

static int page_info(Object *obj, void *opaque)
{
    ShaperGatePageInfoList **list = opaque;
    ShaperGatePage *page =
        (ShaperGatePage *)object_dynamic_cast(obj, TYPE_SHAPER_GATE);
    uint64_t now_ns = shaper_now_ns();
    ShaperGatePageInfo *info;

    if (!page) {
        return 0;
    }
    info = g_new0(ShaperGatePageInfo, 1);
    info->id = g_strdup(shaper_gate_page_id(page));
    info->path = g_strdup(page->path);
    info->members = members_info(page->shared.memory, now_ns);
    info->lost = shaper_shared_is_lost(&page->shared);
    info->window_bytes = sluice_gate_page_window(page->shared.memory);
    info->in_flight_bytes = sluice_gate_page_in_flight(page->shared.memory, now_ns);
    QAPI_LIST_PREPEND(*list, info);
    return 0;
}

ShaperGatePageInfoList *qmp_query_shaper_gates(Error **errp)
{
    ShaperGatePageInfoList *list = NULL;

    object_child_foreach(object_get_objects_root(), page_info, &list);
    return list;
}

/* Object */

static bool shaper_gate_can_be_deleted(UserCreatable *uc)
{
    return SHAPER_GATE(uc)->members == 0;
}

static void shaper_gate_finalize(Object *obj)
{
    ShaperGatePage *page = SHAPER_GATE(obj);

    assert(page->members == 0);
    shaper_shared_close(&page->shared);
    g_free(page->path);
}

static char *shaper_gate_get_path(Object *obj, Error **errp)
{
    return g_strdup(SHAPER_GATE(obj)->path);
}

static void shaper_gate_set_path(Object *obj, const char *value, Error **errp)
{
    ShaperGatePage *page = SHAPER_GATE(obj);

    if (page->shared.memory) {
        error_setg(errp, "path cannot be changed to '%s' while the gate "
                   "exists; set it in -object", value);
        return;
    }
    g_free(page->path);
    page->path = g_strdup(value);
}

static void shaper_gate_class_init(ObjectClass *oc, void *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(oc);

    ucc->complete = shaper_gate_complete;
    ucc->can_be_deleted = shaper_gate_can_be_deleted;
    object_class_property_add_str(oc, "path", shaper_gate_get_path,
                                  shaper_gate_set_path);
    object_class_property_set_description(oc, "path",
        "File name of the gate page");
}

static const TypeInfo shaper_gate_types[] = {
    {
        .name = TYPE_SHAPER_GATE,
        .parent = TYPE_OBJECT,
        .instance_size = sizeof(ShaperGatePage),
        .instance_finalize = shaper_gate_finalize,
        .class_init = shaper_gate_class_init,
        .interfaces = (InterfaceInfo[]) {
            { TYPE_USER_CREATABLE },
            { }
        },
    },
};

DEFINE_TYPES(shaper_gate_types)
