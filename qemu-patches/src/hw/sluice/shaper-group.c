/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Groups: -object shaper-group,id=…,path=… opens a group page, and
 * shaper-set-group makes a resource of a shaper a member of it.
 *
 * The page belongs to the controller, which creates it and sets the limit. A
 * shaper-group exists as long as a shaper is a member: object-del is refused
 * until then. A member handle lies beside its engine and is used under the
 * engine's lock, like the engine itself; everything else here is under the BQL.
 *
 * A timer shows the other members that this one lives. It also notices a new
 * limit, or tokens that others gave back, while requests wait by the earlier state:
 * requests that pass see it at once.
 *
 * Another process that may write the file may shorten it. This process is then left with
 * an empty page of its own (shaper-guard.c), which members bear like any other damage:
 * they go on under the limit as they read it last, alone.
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
#include "trace.h"

#define TYPE_SHAPER_GROUP       "shaper-group"
OBJECT_DECLARE_SIMPLE_TYPE(ShaperGroup, SHAPER_GROUP)

struct ShaperGroup {
    Object parent_obj;

    char *path;
    ShaperShared shared;        /* the file */
    SluiceGroupPage *page;      /* NULL until complete */
    unsigned members;           /* in this process */
};

static const char *group_id(const ShaperGroup *group)
{
    return object_get_canonical_path_component(OBJECT(group));
}

/* The page */

static const char *status_text(SluiceGroupStatus status)
{
    switch (status) {
    case SLUICE_GROUP_TOO_SHORT:
        return "it is too short; let the controller create it";
    case SLUICE_GROUP_NO_MAGIC:
        return "it is no group page; let the controller create it";
    case SLUICE_GROUP_OTHER_VERSION:
        return "it has another version or other sizes than this QEMU knows; "
               "use a controller and a QEMU of one release";
    case SLUICE_GROUP_NO_LIMIT:
        return "its limit is damaged; let the controller set it again";
    case SLUICE_GROUP_FULL:
        return "all of its slots belong to live members; make another group";
    case SLUICE_GROUP_OK:
        break;
    }
    return "no error";
}

static bool refuse_status(const ShaperGroup *group, SluiceGroupStatus status,
                          Error **errp)
{
    if (status == SLUICE_GROUP_OK) {
        return false;
    }
    if (shaper_shared_is_lost(&group->shared)) {
        error_setg(errp, "group '%s' cannot be used, path '%s': another "
                   "process has shortened it; open the page that the "
                   "controller makes anew", group_id(group), group->path);
        return true;
    }
    error_setg(errp, "group '%s' cannot be used, path '%s': %s",
               group_id(group), group->path, status_text(status));
    return true;
}

static void shaper_group_complete(UserCreatable *uc, Error **errp)
{
    ShaperGroup *group = SHAPER_GROUP(uc);
    ShaperShared *shared = &group->shared;

    if (!shaper_shared_open(shared, group->path, sluice_group_page_bytes(), "group",
                            errp)) {
        return;
    }
    if (refuse_status(group, sluice_group_page_check(shared->memory, shared->bytes),
                      errp)) {
        shaper_shared_close(shared);
        return;
    }
    group->page = shared->memory;
}

/* Membership */

static void tell_loss(ShaperGroup *group)
{
    if (shaper_shared_is_newly_lost(&group->shared)) {
        warn_report("group '%s': another process has shortened '%s'; its limit "
                    "holds for this VM alone until the controller gives it "
                    "another page", group_id(group), group->path);
    }
}

static void keepalive_cb(void *opaque)
{
    Shaper *shaper = opaque;
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];
        bool changed = false;

        if (!e->group) {
            continue;
        }
        WITH_SLUICE_LOCK(&e->lock) {
            changed = sluice_group_keepalive(&e->member, now_ns);
            if (changed) {
                shaper_engine_release_due(e, now_ns);
            }
        }
        tell_loss(e->group);
        if (changed) {
            shaper_engine_settle(e);
        }
    }
    timer_mod_ns(shaper->group_timer, now_ns + SLUICE_GROUP_KEEPALIVE_NS / 2);
}

static void start_or_stop_keepalive(Shaper *shaper)
{
    bool member = false;

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        member |= shaper->engines[i].group != NULL;
    }
    if (member && !shaper->group_timer) {
        shaper->group_timer = shaper_timer_new(qemu_get_aio_context(),
                                               keepalive_cb, shaper);
        keepalive_cb(shaper);
    } else if (!member && shaper->group_timer) {
        timer_free(shaper->group_timer);
        shaper->group_timer = NULL;
    }
}

/* Replaces the membership of an engine; `group` is NULL for none. */
static void change_group(ShaperEngine *e, ShaperGroup *group,
                         const SluiceGroupMember *member)
{
    ShaperGroup *old = e->group;

    WITH_SLUICE_LOCK(&e->lock) {
        sluice_engine_set_group(e->engine, NULL);
        if (old) {
            sluice_group_leave(&e->member);
        }
        e->group = group;
        if (group) {
            e->member = *member;
            sluice_engine_set_group(e->engine, &e->member);
        }
        shaper_engine_release_due(e, shaper_now_ns());
    }
    shaper_engine_settle(e);
    if (group) {
        group->members++;
        object_ref(OBJECT(group));
    }
    if (old) {
        old->members--;
        object_unref(OBJECT(old));
    }
    start_or_stop_keepalive(e->shaper);
}

static void leave_group(ShaperEngine *e)
{
    if (e->group) {
        change_group(e, NULL, NULL);
    }
}

static bool join_group(ShaperEngine *e, ShaperGroup *group, uint32_t weight,
                       Error **errp)
{
    uint64_t owner = (uint64_t)g_random_int() << 32 | (uint32_t)getpid();
    g_autofree char *label = g_strdup_printf(
        "%s %s %s", qemu_get_vm_name() ?: "-", shaper_id(e->shaper),
        ShaperResource_str(e->resource));
    SluiceGroupMember member;

    if (e->group == group) {
        SLUICE_LOCK_GUARD(&e->lock);

        sluice_group_set_weight(&e->member, weight);
        return true;
    }
    shaper_guard_arm();
    if (refuse_status(group, sluice_group_join(
                                 &member, group->page,
                                 sluice_group_page_bytes(), owner, label,
                                 weight, shaper_now_ns()), errp)) {
        return false;
    }
    change_group(e, group, &member);
    return true;
}

void shaper_groups_leave(Shaper *shaper)
{
    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        leave_group(&shaper->engines[i]);
    }
}

/* Commands */

void qmp_shaper_set_group(const char *id, ShaperResource resource,
                          const char *group, bool has_weight, int64_t weight,
                          Error **errp)
{
    Shaper *shaper = shaper_find(id, errp);
    ShaperEngine *e;
    Object *found;

    if (!shaper) {
        return;
    }
    e = &shaper->engines[resource];
    if (!group && has_weight) {
        error_setg(errp, "weight %" PRId64 " has no group; give group too",
                   weight);
        return;
    }
    if (!has_weight) {
        weight = SLUICE_GROUP_WEIGHT_DEFAULT;
    }
    if (weight < 1 || weight > SLUICE_GROUP_WEIGHT_MAX) {
        error_setg(errp, "weight %" PRId64 " is out of range; use 1 to %d",
                   weight, SLUICE_GROUP_WEIGHT_MAX);
        return;
    }
    if (!group) {
        leave_group(e);
        trace_shaper_set_group(id, ShaperResource_str(resource), "", 0);
        return;
    }
    found = shaper_find_object("group", group, TYPE_SHAPER_GROUP,
                               "query-shaper-groups", errp);
    if (found && join_group(e, SHAPER_GROUP(found), weight, errp)) {
        trace_shaper_set_group(id, ShaperResource_str(resource), group,
                               weight);
    }
}

ShaperMembershipList *shaper_groups_info(Shaper *shaper)
{
    ShaperMembershipList *list = NULL;

    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        ShaperEngine *e = &shaper->engines[i];
        ShaperMembership *info;

        if (e->group) {
            info = g_new0(ShaperMembership, 1);
            info->resource = i;
            info->group = g_strdup(group_id(e->group));
            info->weight = e->member.weight;
            QAPI_LIST_PREPEND(list, info);
        }
    }
    return list;
}

static ShaperGroupMemberList *members_info(const ShaperGroup *group)
{
    ShaperGroupMemberList *list = NULL;

    for (int i = SLUICE_GROUP_SLOTS - 1; i >= 0; i--) {
        SluiceGroupMemberInfo from;
        ShaperGroupMember *info;

        if (!sluice_group_member_info(group->page, i, shaper_now_ns(),
                                      &from)) {
            continue;
        }
        info = g_new0(ShaperGroupMember, 1);
        info->pid = from.pid;
        /* Another process wrote it; the monitor speaks UTF-8 only. */
        info->label = g_utf8_make_valid(from.label, -1);
        info->weight = from.weight;
        info->waiting = from.waiting;
        info->requests = from.requests;
        info->units = from.units;
        QAPI_LIST_PREPEND(list, info);
    }
    return list;
}

static int group_info(Object *obj, void *opaque)
{
    ShaperGroupInfoList **list = opaque;
    ShaperGroup *group =
        (ShaperGroup *)object_dynamic_cast(obj, TYPE_SHAPER_GROUP);
    SluiceGroupLimit limit = { 0 };
    ShaperGroupInfo *info;

    if (!group) {
        return 0;
    }
    sluice_group_limit(group->page, shaper_now_ns(), &limit);
    info = g_new0(ShaperGroupInfo, 1);
    info->id = g_strdup(group_id(group));
    info->path = g_strdup(group->path);
    info->unit = limit.unit == SLUICE_GROUP_BYTES
                 ? SHAPER_GROUP_UNIT_BYTES : SHAPER_GROUP_UNIT_OPERATIONS;
    info->rate = limit.rate;
    info->burst = limit.burst;
    info->members = members_info(group);
    info->lost = shaper_shared_is_lost(&group->shared);
    QAPI_LIST_PREPEND(*list, info);
    return 0;
}

ShaperGroupInfoList *qmp_query_shaper_groups(Error **errp)
{
    ShaperGroupInfoList *list = NULL;

    object_child_foreach(object_get_objects_root(), group_info, &list);
    return list;
}

/* Object */

static bool shaper_group_can_be_deleted(UserCreatable *uc)
{
    return SHAPER_GROUP(uc)->members == 0;
}

static void shaper_group_finalize(Object *obj)
{
    ShaperGroup *group = SHAPER_GROUP(obj);

    assert(group->members == 0);
    shaper_shared_close(&group->shared);
    g_free(group->path);
}

static char *shaper_group_get_path(Object *obj, Error **errp)
{
    return g_strdup(SHAPER_GROUP(obj)->path);
}

static void shaper_group_set_path(Object *obj, const char *value, Error **errp)
{
    ShaperGroup *group = SHAPER_GROUP(obj);

    if (group->page) {
        error_setg(errp, "path cannot be changed to '%s' while the group "
                   "exists; set it in -object", value);
        return;
    }
    g_free(group->path);
    group->path = g_strdup(value);
}

static void shaper_group_class_init(ObjectClass *oc, void *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(oc);

    ucc->complete = shaper_group_complete;
    ucc->can_be_deleted = shaper_group_can_be_deleted;
    object_class_property_add_str(oc, "path", shaper_group_get_path,
                                  shaper_group_set_path);
    object_class_property_set_description(oc, "path",
        "File name of the group page");
}

static const TypeInfo shaper_group_types[] = {
    {
        .name = TYPE_SHAPER_GROUP,
        .parent = TYPE_OBJECT,
        .instance_size = sizeof(ShaperGroup),
        .instance_finalize = shaper_group_finalize,
        .class_init = shaper_group_class_init,
        .interfaces = (InterfaceInfo[]) {
            { TYPE_USER_CREATABLE },
            { }
        },
    },
};

DEFINE_TYPES(shaper_group_types)
