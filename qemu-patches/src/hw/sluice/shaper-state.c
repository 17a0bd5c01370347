/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shaper in the migration stream: its classes, its ceiling, and the tokens in their
 * buckets, but for charges that the target makes again. A section per shaper, by its
 * object id, sent only if it is not as new: one without limits migrates to a QEMU that
 * has no such section.
 *
 * Format. A length and a JSON text, the QAPI type ShaperState. So the state goes
 * through the checks that shaper-set-class and shaper-set-ceiling go through. It is
 * checked as a whole, beside no other class, before anything changes.
 *
 * Order. Sections are loaded as they were registered: shapers before the devices that
 * refer to them, which go on with held requests only when the machine starts.
 *
 * On the target. A shaper that is as new takes all of it over. A shaper that was
 * configured on this host keeps its configuration; of classes of the same name, and of
 * the ceiling, the tokens come: the lesser of both holds, so a migration forgives no debt
 * and gives no burst. A machine that runs already and loads a snapshot keeps limits and
 * debts as they are today: they are the host's word, not the guest's past.
 *
 * Charges. Devices send their requests without saying which of them were charged, in a
 * format that is QEMU's; the target judges them all. So a charge does not travel: the
 * tokens are sent as if the requests that have not gone on had not been charged yet. A
 * bucket has room for no more than its burst: tokens beyond are lost, and none is given.
 * The source keeps the charge, as it may have to go on itself.
 *
 * Not here: groups, which are a host's; counters; the state beside the buckets of a
 * limit, namely a peak's spacing, turns of reservations and shares, flows and new
 * connections. All of that begins anew.
 */
#include "qemu/osdep.h"
#include "hw/vmstate-if.h"
#include "migration/qemu-file-types.h"
#include "migration/vmstate.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-sluice.h"
#include "qapi/qobject-input-visitor.h"
#include "qapi/qobject-output-visitor.h"
#include "qemu/error-report.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "qobject/qobject.h"
#include "shaper-internal.h"
#include "system/runstate.h"
#include "trace.h"

/* More than twice the need of 16 classes with everything set. Small, since text takes up
 * to a thousand times its memory while it is read. */
#define STATE_BYTES_MAX     (128 * KiB)

/* Sending */

/* Of a class, or of the ceiling if the tag is none. */
static SluiceTokens tokens_of(ShaperEngine *e, unsigned tag)
{
    bool ceiling = tag == SHAPER_NO_TAG;
    SLUICE_LOCK_GUARD(&e->lock);
    SluiceReceipt now = sluice_engine_receipt(
        e->engine, ceiling ? SLUICE_TAG_DEFAULT : tag, 0);
    SluiceTokens tokens;

    if (ceiling) {
        tokens = sluice_engine_ceiling_tokens(e->engine, shaper_now_ns());
        sluice_paid_give(&e->paid_ceiling, now.ceiling_serial, &tokens);
    } else {
        tokens = sluice_engine_tokens(e->engine, tag, shaper_now_ns());
        sluice_paid_give(&e->paid[tag], now.class_serial, &tokens);
    }
    return tokens;
}

static ShaperTokensList *tokens_info(Shaper *shaper, unsigned tag)
{
    ShaperTokensList *list = NULL;

    for (int i = SHAPER_RESOURCE__MAX - 1; i >= 0; i--) {
        SluiceTokens tokens = tokens_of(&shaper->engines[i], tag);
        ShaperTokens *info;

        if (tokens.bytes == SLUICE_TOKENS_UNLIMITED
            && tokens.operations == SLUICE_TOKENS_UNLIMITED) {
            continue;
        }
        info = g_new0(ShaperTokens, 1);
        info->resource = i;
        info->has_bytes = tokens.bytes != SLUICE_TOKENS_UNLIMITED;
        info->bytes = tokens.bytes;
        info->has_operations = tokens.operations != SLUICE_TOKENS_UNLIMITED;
        info->operations = tokens.operations;
        QAPI_LIST_PREPEND(list, info);
    }
    return list;
}

static ShaperClassState *class_state(Shaper *shaper, unsigned tag)
{
    ShaperClassState *state = g_new0(ShaperClassState, 1);

    QAPI_CLONE_MEMBERS(ShaperClassConfig, qapi_ShaperClassState_base(state),
                       shaper->classes[tag]);
    state->tokens = tokens_info(shaper, tag);
    return state;
}

static ShaperState *shaper_state(Shaper *shaper)
{
    ShaperState *state = g_new0(ShaperState, 1);

    state->version = SHAPER_STATE_VERSION;
    for (int tag = SHAPER_CLASSES - 1; tag >= 0; tag--) {
        if (shaper->classes[tag]) {
            QAPI_LIST_PREPEND(state->classes, class_state(shaper, tag));
        }
    }
    state->ceiling = QAPI_CLONE(ShaperLimitList, shaper->ceiling);
    state->ceiling_tokens = tokens_info(shaper, SHAPER_NO_TAG);
    return state;
}

/* With no class but the default one, which is unlimited. */
static bool is_as_new(const Shaper *shaper)
{
    const ShaperClassConfig *class = shaper->classes[SLUICE_TAG_DEFAULT];

    return shaper->class_count == 1 && !shaper->ceiling
           && class->priority == SHAPER_DEFAULT_PRIORITY
           && class->weight == SLUICE_WEIGHT_DEFAULT && !class->unmanaged
           && !class->dscp && !class->limits && !class->scheduling
           && !class->queues;
}

static GString *state_text(Shaper *shaper)
{
    ShaperState *state = shaper_state(shaper);
    QObject *object = NULL;
    Visitor *v = qobject_output_visitor_new(&object);
    GString *text;

    visit_type_ShaperState(v, NULL, &state, &error_abort);
    visit_complete(v, &object);
    visit_free(v);
    qapi_free_ShaperState(state);
    text = qobject_to_json(object);
    qobject_unref(object);
    return text;
}

/* Arriving */

static ShaperState *parse_text(const char *text, size_t bytes, Error **errp)
{
    ShaperState *state = NULL;
    QObject *object;
    QDict *dict;
    int64_t version;

    if (strlen(text) != bytes) {
        error_setg(errp, "its text has a zero byte at %zu", strlen(text));
        return NULL;
    }
    object = qobject_from_json(text, errp);
    if (!object) {
        return NULL;
    }
    dict = qobject_to(QDict, object);
    version = dict ? qdict_get_try_int(dict, "version", 0) : 0;
    if (version != SHAPER_STATE_VERSION) {
        error_setg(errp, "version %" PRId64 " is not %d; use the same release "
                   "of QEMU on both hosts", version, SHAPER_STATE_VERSION);
    } else {
        Visitor *v = qobject_input_visitor_new(object);

        visit_type_ShaperState(v, NULL, &state, errp);
        visit_free(v);
    }
    qobject_unref(object);
    return state;
}

static bool check_tokens(const ShaperTokensList *list, Error **errp)
{
    unsigned seen = 0;

    for (; list; list = list->next) {
        const ShaperTokens *in = list->value;

        if (!shaper_check_once("tokens", in->resource, &seen, errp)
            || (in->has_bytes
                && !shaper_check_range("tokens: bytes", in->bytes,
                                       -SLUICE_TOKENS_OWED_MAX,
                                       SLUICE_TOKENS_OWED_MAX, errp))
            || (in->has_operations
                && !shaper_check_range("tokens: operations", in->operations,
                                       -SLUICE_TOKENS_OWED_MAX,
                                       SLUICE_TOKENS_OWED_MAX, errp))) {
            return false;
        }
    }
    return true;
}

static bool complete_class(const ShaperClassState *in,
                           ShaperClassConfig *classes[SHAPER_CLASSES],
                           Error **errp)
{
    g_autoptr(ShaperClassConfig) class = shaper_complete_class(
        classes, qapi_ShaperClassState_base(in), errp);

    if (!class) {
        return false;
    }
    if (shaper_find_class(classes, in->q_class) >= 0) {
        error_setg(errp, "class '%s' is given twice; give it once", in->q_class);
        return false;
    }
    classes[in->tag] = g_steal_pointer(&class);
    return check_tokens(in->tokens, errp);
}

/* All of it, before anything is applied; `classes` by tag. */
static bool complete_state(ShaperState *state,
                           ShaperClassConfig *classes[SHAPER_CLASSES],
                           Error **errp)
{
    ERRP_GUARD();

    for (const ShaperClassStateList *c = state->classes; c; c = c->next) {
        if (!complete_class(c->value, classes, errp)) {
            error_prepend(errp, "class '%.*s': ", SHAPER_CLASS_NAME_MAX,
                          c->value->q_class);
            return false;
        }
    }
    if (!shaper_complete_limits(&state->ceiling, errp)
        || !check_tokens(state->ceiling_tokens, errp)) {
        error_prepend(errp, "ceiling: ");
        return false;
    }
    return true;
}

static void lower_tokens(Shaper *shaper, unsigned tag,
                         const ShaperTokensList *list)
{
    uint64_t now_ns = shaper_now_ns();

    for (; list; list = list->next) {
        const ShaperTokens *in = list->value;
        ShaperEngine *e = &shaper->engines[in->resource];
        SluiceTokens tokens = {
            .bytes = in->has_bytes ? in->bytes : SLUICE_TOKENS_UNLIMITED,
            .operations = in->has_operations ? in->operations
                                             : SLUICE_TOKENS_UNLIMITED,
        };

        WITH_SLUICE_LOCK(&e->lock) {
            if (tag == SHAPER_NO_TAG) {
                sluice_engine_lower_ceiling_tokens(e->engine, &tokens, now_ns);
            } else {
                sluice_engine_lower_tokens(e->engine, tag, &tokens, now_ns);
            }
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_settle(e);
    }
}

static void apply(Shaper *shaper, const ShaperState *state,
                  ShaperClassConfig *classes[SHAPER_CLASSES])
{
    bool as_new = is_as_new(shaper);

    for (const ShaperClassStateList *c = state->classes; c; c = c->next) {
        const ShaperClassState *in = c->value;
        int here;

        if (as_new) {
            shaper_apply_class(shaper, g_steal_pointer(&classes[in->tag]));
        }
        here = shaper_find_class(shaper->classes, in->q_class);
        if (here >= 0) {
            lower_tokens(shaper, here, in->tokens);
        }
    }
    if (as_new) {
        shaper_apply_ceiling(shaper, QAPI_CLONE(ShaperLimitList,
                                                state->ceiling));
    }
    lower_tokens(shaper, SHAPER_NO_TAG, state->ceiling_tokens);
    trace_shaper_arrive(shaper_id(shaper), as_new);
}

/* Takes over a text, whole or not at all. */
static bool arrive(Shaper *shaper, const char *text, size_t bytes, Error **errp)
{
    g_autoptr(ShaperState) state = parse_text(text, bytes, errp);
    ShaperClassConfig *classes[SHAPER_CLASSES] = { };
    bool ok = state && complete_state(state, classes, errp);

    if (ok) {
        apply(shaper, state, classes);
    }
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        qapi_free_ShaperClassConfig(classes[tag]);
    }
    return ok;
}

/* The section */

static bool state_needed(void *opaque)
{
    return !is_as_new(opaque);
}

static int state_put(QEMUFile *f, void *pv, size_t size,
                     const VMStateField *field, JSONWriter *vmdesc)
{
    g_autoptr(GString) text = state_text(pv);

    if (text->len > STATE_BYTES_MAX) {
        error_report("shaper '%s': a state of %zu bytes is more than %u, which "
                     "no target takes; remove a class", shaper_id(pv),
                     text->len, (unsigned)STATE_BYTES_MAX);
        return -EINVAL;
    }
    qemu_put_be32(f, text->len);
    qemu_put_buffer(f, (const uint8_t *)text->str, text->len);
    return 0;
}

static int state_get(QEMUFile *f, void *pv, size_t size,
                     const VMStateField *field)
{
    Shaper *shaper = pv;
    uint32_t bytes = qemu_get_be32(f);
    g_autofree char *text = NULL;
    Error *err = NULL;

    if (bytes > STATE_BYTES_MAX) {
        error_report("shaper '%s': a state of %" PRIu32 " bytes arrives, more "
                     "than %u; use the same release of QEMU on both hosts",
                     shaper_id(shaper), bytes, (unsigned)STATE_BYTES_MAX);
        return -EINVAL;
    }
    text = g_malloc0(bytes + 1);
    if (qemu_get_buffer(f, (uint8_t *)text, bytes) != bytes) {
        return -EINVAL;                 /* the stream has its own error */
    }
    if (runstate_check(RUN_STATE_INMIGRATE)
        && !arrive(shaper, text, bytes, &err)) {
        error_prepend(&err, "shaper '%s': the state that arrives is damaged: ",
                      shaper_id(shaper));
        error_append_hint(&err, "Migrate again, or set that anew on the source "
                          "first.\n");
        error_report_err(err);
        return -EINVAL;
    }
    return 0;
}

static const VMStateDescription vmstate_shaper = {
    .name = "shaper",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = state_needed,
    .fields = (const VMStateField[]) {
        {
            .name = "classes and ceiling",
            .info = &(const VMStateInfo) {
                .name = "shaper classes and ceiling",
                .get = state_get,
                .put = state_put,
            },
            .flags = VMS_SINGLE,
            .size = sizeof(Shaper),
        },
        VMSTATE_END_OF_LIST()
    },
};

bool shaper_state_register(Shaper *shaper, Error **errp)
{
    return vmstate_register_with_alias_id(VMSTATE_IF(shaper),
                                          VMSTATE_INSTANCE_ID_ANY,
                                          &vmstate_shaper, shaper, -1, 0,
                                          errp) == 0;
}

void shaper_state_unregister(Shaper *shaper)
{
    vmstate_unregister(VMSTATE_IF(shaper), &vmstate_shaper, shaper);
}
