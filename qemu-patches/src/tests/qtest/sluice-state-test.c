/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of a shaper's move to another QEMU: its classes and its ceiling, and the tokens
 * in their buckets. The target is not configured, unless a test says so. The
 * clock stands still on both sides, so that tokens are the same to the last one.
 */
#include "qemu/osdep.h"
#include "sluice-state.h"

#define FULL_LIMIT(resource)                                                \
    "{'resource': '" resource "', 'bytes-per-second': 1000000000000, "      \
    "'burst-bytes': 1099511627776, 'operations-per-second': 1000000000000, "\
    "'burst-operations': 1099511627776}"
#define FULL_DISK(resource)                                                 \
    "{'resource': '" resource "', 'policy': 'token-leaky', "                \
    "'peak-bytes-per-second': 1000000000000, 'charge': 'device', "          \
    "'minimum-charge-bytes': 1048576, 'dynamic': 'throughput', 'window': "  \
    "{'period-ns': 3600000000000, 'bytes': 4294967295, 'may-miss': 998, "   \
    "'of': 999}}"
#define FULL_QUEUE(resource, more)                                          \
    "{'resource': '" resource "', 'limit-bytes': 67108864, "                \
    "'limit-packets': 262144, 'aqm': 'codel', 'ecn': true" more "}"
#define FULL_CONNECTIONS                                                    \
    ", 'connections-per-second': 1000000000000, "                           \
    "'burst-connections': 1099511627776"

/* The answer of query-shapers about one; the caller unrefs it. */
static QDict *shaper_of(QTestState *qts, const char *id)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shapers'}");
    const QListEntry *entry;
    QDict *found = NULL;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(response, "return"), entry) {
        QDict *shaper = qobject_to(QDict, qlist_entry_obj(entry));

        if (!strcmp(qdict_get_str(shaper, "id"), id)) {
            found = qobject_ref(shaper);
        }
    }
    qobject_unref(response);
    g_assert(found);
    return found;
}

/* Its classes and ceiling, without the counters, as a text. */
static char *config_of(QTestState *qts, const char *id)
{
    QDict *shaper = shaper_of(qts, id);
    const QListEntry *entry;
    GString *classes, *ceiling;
    char *text;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(shaper, "classes"), entry) {
        qdict_del(qobject_to(QDict, qlist_entry_obj(entry)), "stats");
    }
    classes = qobject_to_json(qdict_get(shaper, "classes"));
    ceiling = qobject_to_json(qdict_get(shaper, "ceiling"));
    text = g_strconcat(classes->str, " under ", ceiling->str, NULL);
    g_string_free(classes, true);
    g_string_free(ceiling, true);
    qobject_unref(shaper);
    return text;
}

static void check_same_config(Move *move, const char *id)
{
    g_autofree char *there = config_of(move->source->qts, id);
    g_autofree char *here = config_of(move->target.qts, id);

    g_assert_cmpstr(here, ==, there);
}

#define tokens(disk, class, field) \
    stat_of((disk)->qts, class, "blk-read", "tokens-" field)

/* Classes, ceiling, and their debts. */
static void test_arrives(void)
{
    Request request;
    Move move;

    move_init(&move, "");
    set_bulk(move.source, OWED ", 'operations-per-second': 10, "
             "'burst-operations': 7");
    qmp_ok(move.source->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'web', 'tag': 3, 'priority': 2, "
           "'weight': 300, 'unmanaged': true, 'dscp': [10, 46]}}");
    qmp_ok(move.source->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'blk-read', "
           "'bytes-per-second': 2000000, 'burst-bytes': 1}]}}");
    read_once(move.source, 2);
    g_assert_cmpint(tokens(move.source, "bulk", "bytes"), ==, -4095);
    request = send_request(move.source, VIRTIO_BLK_T_IN, 0, 0, 1);
    wait_for(backlog(move.source, "default", "blk-read") == 1);
    move_go(&move);
    check_same_config(&move, "sluice0");
    g_assert_cmpint(tokens(&move.target, "bulk", "bytes"), ==, -4095);
    g_assert_cmpint(tokens(&move.target, "bulk", "operations"), ==, 6);
    /* The ceiling owes as much, at twice the rate. */
    wait_for(backlog(&move.target, "default", "blk-read") == 1);
    qtest_clock_step(move.target.qts, 4095 * 500);
    g_assert_cmpint(backlog(&move.target, "default", "blk-read"), ==, 1);
    qtest_clock_step(move.target.qts, 500);
    wait_for(status_of(&move.target, request) == VIRTIO_BLK_S_OK);
    move_end(&move);
}

/* As many classes as there are, with everything that can be set. */
static void test_full(void)
{
    Move move;

    move_init(&move, "");
    for (int tag = 0; tag < 16; tag++) {
        g_autofree char *name = tag
            ? g_strdup_printf("a-name-of-the-greatest-length-%x", tag)
            : g_strdup("default");

        qmp_ok(move.source->qts, "{'execute': 'shaper-set-class', "
               "'arguments': {'id': 'sluice0', 'class': %s, 'tag': %d, "
               "'priority': 9, 'weight': 1000, 'dscp': [%d], "
               "'limits': [" FULL_LIMIT("blk-read") ", "
               FULL_LIMIT("blk-write") ", " FULL_LIMIT("net-tx") ", "
               FULL_LIMIT("net-rx") "], 'scheduling': ["
               FULL_DISK("blk-read") ", " FULL_DISK("blk-write") ", "
               "{'resource': 'net-tx', 'policy': 'leaky-bucket', "
               "'reservation-bytes-per-second': 1000000000000}], "
               "'queues': [" FULL_QUEUE("net-tx", "") ", "
               FULL_QUEUE("net-rx", FULL_CONNECTIONS) "]}}", name, tag,
               2 * tag);
    }
    move_go(&move);
    check_same_config(&move, "sluice0");
    move_end(&move);
}

/* Its configuration stays, and its buckets get no more than they have. */
static void test_configured(void)
{
    Move move;
    g_autofree char *before = NULL, *after = NULL;

    move_init(&move, "");
    set_bulk(move.source, OWED);
    limit_class(move.source, "lump", 3, "blk-read");
    limit_class(move.source, "only-there", 4, "blk-read");
    read_once(move.source, 2);
    set_bulk(&move.target, "'bytes-per-second': 3000000, 'burst-bytes': 9000, "
             "'operations-per-second': 10, 'burst-operations': 7");
    qmp_ok(move.target.qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'lump', 'tag': 5, 'limits': "
           "[{'resource': 'blk-read', " OWED "}]}}");
    before = config_of(move.target.qts, "sluice0");
    move_go(&move);
    after = config_of(move.target.qts, "sluice0");
    g_assert_cmpstr(after, ==, before);
    g_assert_cmpint(tokens(&move.target, "bulk", "bytes"), ==, -4095);
    g_assert_cmpint(tokens(&move.target, "bulk", "operations"), ==, 7);
    g_assert_cmpint(tokens(move.source, "lump", "bytes"), ==, 4096);
    g_assert_cmpint(tokens(&move.target, "lump", "bytes"), ==, 1);
    move_end(&move);
}

/* Each gets its own; a shaper that is gone sends nothing. */
static void test_two_shapers(void)
{
    Move move;

    move_init(&move, "-object shaper,id=sluice1");
    set_bulk(move.source, OWED);
    qmp_ok(move.source->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice1', 'limits': [{'resource': 'net-tx', "
           "'bytes-per-second': 7}]}}");
    qmp_ok(move.source->qts, "{'execute': 'object-add', 'arguments': "
           "{'qom-type': 'shaper', 'id': 'gone'}}");
    qmp_ok(move.source->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'gone', 'class': 'bulk', 'tag': 2}}");
    qmp_ok(move.source->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'gone'}}");
    move_go(&move);
    check_same_config(&move, "sluice0");
    check_same_config(&move, "sluice1");
    move_end(&move);
}

/* A shaper that was configured, and is as new again, is not missed. */
static void test_without_shaper(void)
{
    Move move;
    g_autofree char *options = NULL;

    move_init(&move, "");
    set_bulk(move.source, OWED);
    qmp_ok(move.source->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    qtest_shutdown(move.target.qs);
    move.target.qs = qtest_pc_boot("-blockdev driver=raw,node-name=d0,"
                                   "file.driver=file,file.filename=%s,"
                                   "file.locking=off -incoming %s "
                                   "-device virtio-blk-pci,id=disk0,drive=d0,"
                                   "addr=%d", move.target.image, move.uri,
                                   SLOT);
    move.target.qts = move.target.qs->qts;
    move_go(&move);
    move_end(&move);
}

static void snapshot(Disk *disk, const char *verb)
{
    g_autofree char *command = g_strconcat("snapshot-", verb, NULL);

    qmp_ok(disk->qts, "{'execute': %s, 'arguments': {'job-id': 'job', "
           "'tag': 's', 'vmstate': 'd0', 'devices': ['d0']}}", command);
    wait_for(({
        QDict *jobs = qtest_qmp(disk->qts, "{'execute': 'query-jobs'}");
        QObject *job = qlist_peek(qdict_get_qlist(jobs, "return"));
        const char *status = qdict_get_str(qobject_to(QDict, job), "status");
        bool concluded = !strcmp(status, "concluded");

        g_assert(!qdict_haskey(qobject_to(QDict, job), "error"));
        qobject_unref(jobs);
        concluded;
    }));
    qmp_ok(disk->qts, "{'execute': 'job-dismiss', 'arguments': "
           "{'id': 'job'}}");
}

/* The machine goes back; its limits, and its debt, are today's. */
static void test_snapshot(void)
{
    Disk *disk = disk_new_format("qcow2", "", "");
    g_autofree char *before = NULL, *after = NULL;

    disk_start(disk);
    limit_class(disk, "bulk", 2, "blk-read");
    limit_class(disk, "then", 3, "blk-read");
    snapshot(disk, "save");
    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'then'}}");
    set_bulk(disk, OWED);
    read_once(disk, 2);
    before = config_of(disk->qts, "sluice0");
    g_assert_cmpint(tokens(disk, "bulk", "bytes"), ==, -4095);
    snapshot(disk, "load");
    after = config_of(disk->qts, "sluice0");
    g_assert_cmpstr(after, ==, before);
    g_assert_cmpint(tokens(disk, "bulk", "bytes"), ==, -4095);
    disk_free(disk);
}

/* A migration that goes on has a shaper in its list, which it may not lose. */
static void test_deletion_waits(void)
{
    Disk *disk = disk_new("", "-object shaper,id=spare");

    qmp_ok(disk->qts, "{'execute': 'migrate-set-parameters', 'arguments': "
           "{'max-bandwidth': 1000}}");
    qmp_ok(disk->qts, "{'execute': 'migrate', 'arguments': "
           "{'uri': 'exec:cat >/dev/null'}}");
    qmp_refused(disk->qts, "{'execute': 'object-del', 'arguments': "
                "{'id': 'spare'}}", "spare", "in use");
    qmp_ok(disk->qts, "{'execute': 'migrate_cancel'}");
    wait_for(migration_has_status(disk->qts, "cancelled"));
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'spare'}}");
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/state/arrives", test_arrives);
    qtest_add_func("/sluice/state/full", test_full);
    qtest_add_func("/sluice/state/configured", test_configured);
    qtest_add_func("/sluice/state/two-shapers", test_two_shapers);
    qtest_add_func("/sluice/state/deletion-waits", test_deletion_waits);
    qtest_add_func("/sluice/state/without-shaper", test_without_shaper);
    qtest_add_func("/sluice/state/snapshot", test_snapshot);
    return g_test_run();
}
