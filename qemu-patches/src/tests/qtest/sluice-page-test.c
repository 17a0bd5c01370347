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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/page/room-of-other-classes",
                   test_room_of_other_classes);
    return g_test_run();
}
