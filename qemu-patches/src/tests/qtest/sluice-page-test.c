/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the gauges on the counters page, docs/specs/counters-page.md: they
 * say what query-shapers says, also after what another class was told. What
 * is counted is tested in sluice-blk-test.c.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "sluice-disk.h"

#define HEADER          128
#define SLOT_COUNT      68
#define RESOURCES       4
#define SLOT_AT(i)      (HEADER + (i) * 256)
#define MORE_AT(i)      (SLOT_AT(SLOT_COUNT) + (i) * 128)
#define ROOM_FRAMES     64
#define ROOM_BYTES      72
#define TOKENS_BYTES    80
#define TOKENS_OPERATIONS 88
#define TOKENS_NS       96
#define UNLIMITED       INT64_MAX
#define READS           "'resource': 'blk-read'"

static const char *const resources[RESOURCES] = {
    "blk-read", "blk-write", "net-tx", "net-rx",
};

static char *read_page(const char *path)
{
    char *page;
    gsize length;

    g_assert(g_file_get_contents(path, &page, &length, NULL));
    g_assert_cmpint(length, ==, MORE_AT(SLOT_COUNT));
    return page;
}

/* Of each class, the room of its queues. */
static void check_rooms(Disk *disk, QDict *shaper, const char *page)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(shaper, "classes"), entry) {
        QDict *info = qobject_to(QDict, qlist_entry_obj(entry));

        for (unsigned r = 0; r < RESOURCES; r++) {
            QDict *stats = stats_of(shaper, qdict_get_str(info, "class"),
                                    resources[r]);
            const char *more = page + MORE_AT(qdict_get_int(info, "tag")
                                              * RESOURCES + r);

            g_assert_cmpint(ldq_le_p(more + ROOM_FRAMES), ==,
                            qdict_get_int(stats, "buffer-requests-max"));
            g_assert_cmpint(ldq_le_p(more + ROOM_BYTES), ==,
                            qdict_get_int(stats, "buffer-bytes-max"));
        }
    }
}

static uint64_t check_page(Disk *disk, unsigned tag, unsigned resource)
{
    QDict *shaper = query_shaper(disk->qts);
    g_autofree char *page = read_page(disk->page);

    check_rooms(disk, shaper, page);
    qobject_unref(shaper);
    return ldq_le_p(page + MORE_AT(tag * RESOURCES + resource) + ROOM_BYTES);
}

/* Nothing is sent: the room of one class follows what others are granted. */
static void test_room_of_other_classes(void)
{
    Disk *disk = disk_new("", "");
    uint64_t alone, divided;

    check_page(disk, 0, 3);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'net-rx', "
           "'bytes-per-second': 1000000000}]}}");
    alone = check_page(disk, 0, 3);
    g_assert_cmpint(alone, >, 128 * KiB);       /* what any class has */
    for (unsigned tag = 1; tag < 16; tag++) {
        g_autofree char *name = g_strdup_printf("c%u", tag);

        qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
               "{'id': 'sluice0', 'class': %s, 'tag': %u}}", name, tag);
    }
    divided = check_page(disk, 0, 3);
    g_assert_cmpint(divided, <, alone);
    for (unsigned tag = 1; tag < 16; tag++) {
        g_autofree char *name = g_strdup_printf("c%u", tag);

        qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
               "{'id': 'sluice0', 'class': %s}}", name);
    }
    g_assert_cmpint(check_page(disk, 0, 3), ==, alone);
    disk_free(disk);
}

/* A shaper that was made without a page gets none, and does not say so. */
static void test_no_late_page(void)
{
    Disk *disk = disk_new("", "");

    qmp_ok(disk->qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper', 'id': 'bare'}}");
    qmp_refused(disk->qts, "{'execute': 'qom-set', 'arguments': {'path': "
                "'/objects/bare', 'property': 'page', 'value': '/x'}}",
                "page", "/x");
    disk_free(disk);
}

typedef struct Tokens {
    int64_t bytes, operations, at_ns;
} Tokens;

/* Of the class with tag 2 for reads, when nobody was writing them. */
static Tokens page_tokens(Disk *disk)
{
    const unsigned slot = 2 * RESOURCES;

    for (;;) {
        g_autofree char *before = read_page(disk->page);
        g_autofree char *page = read_page(disk->page);
        g_autofree char *after = read_page(disk->page);
        uint32_t sequence = ldl_le_p(page + SLOT_AT(slot));
        const char *more = page + MORE_AT(slot);

        if (sequence % 2 == 0 && sequence == ldl_le_p(before + SLOT_AT(slot))
            && sequence == ldl_le_p(after + SLOT_AT(slot))) {
            return (Tokens){
                .bytes = ldq_le_p(more + TOKENS_BYTES),
                .operations = ldq_le_p(more + TOKENS_OPERATIONS),
                .at_ns = ldq_le_p(more + TOKENS_NS),
            };
        }
    }
}

/* What the monitor says, too. */
static void check_tokens(Disk *disk, int64_t bytes, int64_t operations)
{
    QDict *shaper = query_shaper(disk->qts);
    QDict *stats = stats_of(shaper, "bulk", "blk-read");

    g_assert_cmpint(qdict_get_try_int(stats, "tokens-bytes", UNLIMITED), ==,
                    bytes);
    g_assert_cmpint(qdict_get_try_int(stats, "tokens-operations", UNLIMITED),
                    ==, operations);
    qobject_unref(shaper);
    g_assert_cmpint(page_tokens(disk).bytes, ==, bytes);
    g_assert_cmpint(page_tokens(disk).operations, ==, operations);
}

#define limit_bulk(disk, limits, more)                                      \
    qmp_ok((disk)->qts, "{'execute': 'shaper-set-class', 'arguments': "     \
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': [{"      \
           READS limits "}]" more "}}")

/* 1 MB/s, so that a byte is a microsecond; each read takes 4096. */
static void test_tokens(void)
{
    Disk *disk = disk_new("", "");
    Request requests[3];

    qtest_clock_step(disk->qts, 1);
    limit_bulk(disk, "", "");
    check_tokens(disk, UNLIMITED, UNLIMITED);
    limit_bulk(disk, ", 'bytes-per-second': 1000000, 'burst-bytes': 10000", "");
    check_tokens(disk, 10000, UNLIMITED);
    send_many(disk, 3, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    check_tokens(disk, 10000 - 3 * REQUEST_BYTES, UNLIMITED);
    limit_bulk(disk, ", 'bytes-per-second': 1000000, 'burst-bytes': 10000, "
               "'operations-per-second': 10, 'burst-operations': 4", "");
    check_tokens(disk, 10000 - 3 * REQUEST_BYTES, 4);
    limit_bulk(disk, ", 'operations-per-second': 10, 'burst-operations': 4",
               "");
    send_many(disk, 1, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 4);
    check_tokens(disk, UNLIMITED, 3);
    /* It is charged to nothing. */
    limit_bulk(disk, ", 'operations-per-second': 10", ", 'unmanaged': true");
    check_tokens(disk, UNLIMITED, UNLIMITED);
    disk_free(disk);
}

/* They come back while nobody asks for any. */
static void test_tokens_of_an_idle_class(void)
{
    Disk *disk = disk_new("", "");
    g_autofree char *text = NULL;
    Request requests[3];
    int64_t spent_ns;

    limit_bulk(disk, ", 'bytes-per-second': 1000000, 'burst-bytes': 10000", "");
    qtest_clock_step(disk->qts, 1);
    send_many(disk, 3, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    spent_ns = page_tokens(disk).at_ns;
    text = qtest_hmp(disk->qts, "info shaper");
    g_assert(strstr(text, "(burst 10000), tokens -2288 B"));
    qtest_clock_step(disk->qts, 5 * NS_PER_MS);
    wait_for(page_tokens(disk).at_ns == spent_ns + 5 * NS_PER_MS);
    check_tokens(disk, 10000 - 3 * REQUEST_BYTES + 5000, UNLIMITED);
    qtest_clock_step(disk->qts, 100 * NS_PER_MS);
    wait_for(page_tokens(disk).at_ns == spent_ns + 105 * NS_PER_MS);
    check_tokens(disk, 10000, UNLIMITED);
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/page/room-of-other-classes",
                   test_room_of_other_classes);
    qtest_add_func("/sluice/page/no-late-page", test_no_late_page);
    qtest_add_func("/sluice/page/tokens", test_tokens);
    qtest_add_func("/sluice/page/tokens-of-an-idle-class",
                   test_tokens_of_an_idle_class);
    return g_test_run();
}
