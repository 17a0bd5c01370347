/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A shaper that arrives with a migration (shaper-state.c): its text is checked as a
 * whole, by what checks QMP's commands and beside no other class, before any of it is
 * applied.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-sluice.h"
#include "qapi/qobject-input-visitor.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "shaper-internal.h"
#include "trace.h"

/* What arrives, when it is checked. */
typedef struct Arrival {
    ShaperClass classes[SHAPER_CLASSES];        /* by tag */
    SluiceTokens tokens[SHAPER_CLASSES][SHAPER_RESOURCE__MAX];
    SluiceLimit ceiling[SHAPER_RESOURCE__MAX];
    SluiceTokens ceiling_tokens[SHAPER_RESOURCE__MAX];
} Arrival;

/* What is said */

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

static bool parse_number(const char *field, bool has, int64_t value,
                         int64_t *out, Error **errp)
{
    *out = has ? value : SLUICE_TOKENS_UNLIMITED;
    return !has || shaper_check_range(field, value, -SLUICE_TOKENS_OWED_MAX,
                                      SLUICE_TOKENS_OWED_MAX, errp);
}

static bool parse_tokens(const ShaperTokensList *list,
                         SluiceTokens tokens[SHAPER_RESOURCE__MAX],
                         Error **errp)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        tokens[i] = (SluiceTokens){ .bytes = SLUICE_TOKENS_UNLIMITED,
                                    .operations = SLUICE_TOKENS_UNLIMITED };
    }
    for (; list; list = list->next) {
        const ShaperTokens *in = list->value;
        SluiceTokens *out = &tokens[in->resource];

        if (seen & (1u << in->resource)) {
            error_setg(errp, "tokens: resource '%s' is given twice; give it "
                       "once", ShaperResource_str(in->resource));
            return false;
        }
        seen |= 1u << in->resource;
        if (!parse_number("tokens: bytes", in->has_bytes, in->bytes,
                          &out->bytes, errp)
            || !parse_number("tokens: operations", in->has_operations,
                             in->operations, &out->operations, errp)) {
            return false;
        }
    }
    return true;
}

static bool parse_class(const ShaperClassState *in, Arrival *arrival,
                        Error **errp)
{
    ShaperClass class;

    if (!shaper_parse_class(arrival->classes, qapi_ShaperClassState_base(in),
                            &class, errp)) {
        return false;
    }
    if (shaper_tag_among(arrival->classes, class.name) >= 0) {
        error_setg(errp, "class '%s' is given twice; give it once", class.name);
        return false;
    }
    arrival->classes[in->tag] = class;
    return parse_tokens(in->tokens, arrival->tokens[in->tag], errp);
}

static bool parse_state(const ShaperState *state, Arrival *arrival,
                        Error **errp)
{
    ERRP_GUARD();

    for (const ShaperClassStateList *c = state->classes; c; c = c->next) {
        if (!parse_class(c->value, arrival, errp)) {
            error_prepend(errp, "class '%.*s': ", SHAPER_CLASS_NAME_MAX,
                          c->value->q_class);
            return false;
        }
    }
    if (!shaper_parse_limits(state->ceiling, arrival->ceiling, errp)
        || !parse_tokens(state->ceiling_tokens, arrival->ceiling_tokens,
                         errp)) {
        error_prepend(errp, "ceiling: ");
        return false;
    }
    return true;
}

/* What is done */

static void lower_tokens(Shaper *shaper, unsigned tag,
                         const SluiceTokens tokens[SHAPER_RESOURCE__MAX])
{
    uint64_t now_ns = shaper_now_ns();

    for (unsigned i = 0; i < SHAPER_RESOURCE__MAX; i++) {
        ShaperEngine *e = &shaper->engines[i];

        WITH_SLUICE_LOCK(&e->lock) {
            if (tag == SHAPER_NO_TAG) {
                sluice_engine_lower_ceiling_tokens(e->engine, &tokens[i],
                                                   now_ns);
            } else {
                sluice_engine_lower_tokens(e->engine, tag, &tokens[i], now_ns);
            }
            shaper_engine_release_due(e, now_ns);
        }
        shaper_engine_announce(e);
    }
}

static void apply_config(Shaper *shaper, const Arrival *arrival)
{
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        if (arrival->classes[tag].used) {
            shaper_apply_class(shaper, tag, &arrival->classes[tag]);
        }
    }
    shaper_apply_ceiling(shaper, arrival->ceiling);
}

static void apply(Shaper *shaper, const Arrival *arrival)
{
    bool as_new = shaper_is_as_new(shaper);

    if (as_new) {
        apply_config(shaper, arrival);
    }
    for (unsigned tag = 0; tag < SHAPER_CLASSES; tag++) {
        const ShaperClass *class = &arrival->classes[tag];
        int here = class->used ? shaper_find_class(shaper, class->name) : -1;

        if (here >= 0) {
            lower_tokens(shaper, here, arrival->tokens[tag]);
        }
    }
    lower_tokens(shaper, SHAPER_NO_TAG, arrival->ceiling_tokens);
    trace_shaper_arrive(shaper_id(shaper), as_new);
}

bool shaper_arrive(Shaper *shaper, const char *text, size_t bytes,
                   Error **errp)
{
    g_autoptr(ShaperState) state = parse_text(text, bytes, errp);
    g_autofree Arrival *arrival = g_new0(Arrival, 1);

    bool ok = state && parse_state(state, arrival, errp);

    if (ok) {
        apply(shaper, arrival);
    }
    return ok;
}
