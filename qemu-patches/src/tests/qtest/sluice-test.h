/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared by the qtests of the shaper. Time is QEMU's virtual clock, which
 * stands still unless the test steps it: a request that must stay held stays
 * held however long the test takes. Events that must happen are waited for, because
 * QEMU's main loop runs beside the test, up to WAIT_US of real time.
 */
#ifndef TESTS_SLUICE_TEST_H
#define TESTS_SLUICE_TEST_H

#include "libqtest.h"
#include "libqos/libqos-pc.h"
#include "libqos/pci-pc.h"
#include "libqos/virtio-pci.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qjson.h"

#define WAIT_US     (30 * 1000 * 1000)
#define POLL_US     500
#define NS_PER_MS   1000000LL
/* How many background snapshots of a test are loaded: each starts a QEMU. */
#define LOADED_MAX  2

/* Waits until the expression holds; fails the test after WAIT_US. */
#define wait_for(condition) do {                                            \
        gint64 start_us_ = g_get_monotonic_time();                          \
        while (!(condition)) {                                              \
            if (g_get_monotonic_time() - start_us_ > WAIT_US) {             \
                g_error("%s:%d: waited in vain for %s", __FILE__, __LINE__, \
                        #condition);                                        \
            }                                                               \
            g_usleep(POLL_US);                                              \
        }                                                                   \
    } while (0)

/* How often a test of the life cycle goes through it. */
G_GNUC_UNUSED
static unsigned cycles(void)
{
    const char *text = getenv("SLUICE_CYCLES");

    return text ? atoi(text) : 2;
}

/* A QMP command that must succeed. */
#define qmp_ok(qts, ...) qtest_qmp_assert_success(qts, __VA_ARGS__)

/* A QMP command that must fail with a text that contains all of the words. */
G_GNUC_UNUSED
static void check_refused(QTestState *qts, QDict *response, const char **words)
{
    const char *text;

    g_assert(qdict_haskey(response, "error"));
    text = qdict_get_str(qdict_get_qdict(response, "error"), "desc");
    for (; *words; words++) {
        if (!strstr(text, *words)) {
            g_error("'%s' does not say '%s'", text, *words);
        }
    }
    qobject_unref(response);
}

#define qmp_refused(qts, command, ...)                                      \
    check_refused(qts, qtest_qmp(qts, command),                             \
                  (const char *[]) { __VA_ARGS__, NULL })

/* False, and the test is skipped, where the kernel cannot track writes. */
G_GNUC_UNUSED
static bool allow_background_snapshot(QTestState *qts)
{
    const char *words[] = { "not supported by host kernel", NULL };
    QDict *response = qtest_qmp(qts,
        "{'execute': 'migrate-set-capabilities', 'arguments': "
        "{'capabilities': [{'capability': 'background-snapshot', "
        "'state': true}]}}");

    if (qdict_haskey(response, "return")) {
        qobject_unref(response);
        return true;
    }
    check_refused(qts, response, words);
    g_test_skip("the host's kernel cannot track writes to memory");
    return false;
}

/* Until everybody is told of its end a migration can be yanked. */
G_GNUC_UNUSED
static bool migration_is_there(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-yank'}");
    const QListEntry *entry;
    bool found = false;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(response, "return"), entry) {
        QDict *instance = qobject_to(QDict, qlist_entry_obj(entry));

        found |= !strcmp(qdict_get_str(instance, "type"), "migration");
    }
    qobject_unref(response);
    return found;
}

G_GNUC_UNUSED
static bool migration_has_status(QTestState *qts, const char *status)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-migrate'}");
    QDict *info = qdict_get_qdict(response, "return");
    bool found = !strcmp(qdict_get_try_str(info, "status") ?: "", status);

    qobject_unref(response);
    return found;
}

/* Loads a file into a QEMU that waits for it, which must fail. */
G_GNUC_UNUSED
static void load_refused(QTestState *qts, const char *state)
{
    g_autofree char *uri = g_strconcat("file:", state, NULL);

    qmp_ok(qts, "{'execute': 'migrate-incoming', 'arguments': "
           "{'uri': %s, 'exit-on-error': false}}", uri);
    wait_for(migration_has_status(qts, "failed"));
}

/* Whether the migration is over; it must not have failed. */
G_GNUC_UNUSED
static bool migration_completed(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-migrate'}");
    const char *status = qdict_get_str(qdict_get_qdict(response, "return"),
                                       "status");
    bool completed = !strcmp(status, "completed");

    g_assert_cmpstr(status, !=, "failed");
    qobject_unref(response);
    return completed && !migration_is_there(qts);
}

/* The first shaper of query-shapers; the caller unrefs it. */
G_GNUC_UNUSED
static QDict *query_shaper(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shapers'}");
    QList *shapers = qdict_get_qlist(response, "return");
    QDict *shaper = qobject_to(QDict, qlist_peek(shapers));

    qobject_ref(shaper);
    qobject_unref(response);
    return shaper;
}

/*
 * The counters of a class and resource out of query_shaper()'s answer; they
 * live as long as that does.
 */
G_GNUC_UNUSED
static QDict *stats_of(QDict *shaper, const char *class, const char *resource)
{
    const QListEntry *c, *s;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(shaper, "classes"), c) {
        QDict *info = qobject_to(QDict, qlist_entry_obj(c));

        if (strcmp(qdict_get_str(info, "class"), class)) {
            continue;
        }
        QLIST_FOREACH_ENTRY(qdict_get_qlist(info, "stats"), s) {
            QDict *stats = qobject_to(QDict, qlist_entry_obj(s));

            if (!strcmp(qdict_get_str(stats, "resource"), resource)) {
                return stats;
            }
        }
    }
    g_error("class '%s' has no counters for '%s'", class, resource);
}

/* One number of query-shapers. */
G_GNUC_UNUSED
static int64_t stat_of(QTestState *qts, const char *class,
                       const char *resource, const char *field)
{
    QDict *shaper = query_shaper(qts);
    int64_t value = qdict_get_int(stats_of(shaper, class, resource), field);

    qobject_unref(shaper);
    return value;
}

/* One boolean of query-shapers. */
G_GNUC_UNUSED
static bool flag_of(QTestState *qts, const char *class, const char *resource,
                    const char *field)
{
    QDict *shaper = query_shaper(qts);
    bool value = qdict_get_bool(stats_of(shaper, class, resource), field);

    qobject_unref(shaper);
    return value;
}

/* Of a disk or a card, in its units. */
#define limit_class(device, class, tag, resource)                           \
    qmp_ok((device)->qts, "{'execute': 'shaper-set-class', 'arguments': "   \
           "{'id': 'sluice0', 'class': %s, 'tag': %u, 'limits': "           \
           "[{'resource': %s, " LIMIT_1MBPS "}]}}", class, tag, resource)
#define backlog(device, class, resource)                                    \
    stat_of((device)->qts, class, resource, "backlog-requests")
#define admitted(device, class, resource)                                   \
    stat_of((device)->qts, class, resource, "requests")

/* How many elements the device has given back. */
G_GNUC_UNUSED
static uint16_t used_count(QTestState *qts, QVirtQueue *vq)
{
    return qtest_readw(qts, vq->used + 2);
}

G_GNUC_UNUSED
static QVirtioPCIDevice *start_device(QOSState *qs, int slot)
{
    QPCIAddress address = { .devfn = QPCI_DEVFN(slot, 0) };
    QVirtioPCIDevice *device = virtio_pci_new(qs->pcibus, &address);

    g_assert(device);
    qvirtio_pci_device_enable(device);
    qvirtio_start_device(&device->vdev);
    return device;
}

#endif
