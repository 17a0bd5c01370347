/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the counters page, docs/specs/counters-page.md: its gauges agree with
 * query-shapers, also after a change of another class; and after any damage to its file
 * QEMU goes on and the page comes back. The counts are tested in sluice-blk-test.c.
 */
#include "qemu/osdep.h"
#include <sys/mount.h>
#include "qemu/bswap.h"
#include "sluice-disk.h"

#define RESOURCES       4
#define CEILING_SLOT    64
#define ROOM_FRAMES     64
#define ROOM_BYTES      72
#define TOKENS_BYTES    80
#define TOKENS_OPERATIONS 88
#define TOKENS_NS       96
#define UNTAGGED        104
#define UNTAGGED_OF     112
#define UNLIMITED       INT64_MAX
#define READS           "'resource': 'blk-read'"

static const char *const resources[RESOURCES] = {
    "blk-read", "blk-write", "net-tx", "net-rx",
};

/* Of each class, the room of its queues. */
static void check_rooms(Disk *disk, QDict *shaper, const char *page)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(shaper, "classes"), entry) {
        QDict *info = qobject_to(QDict, qlist_entry_obj(entry));

        for (unsigned r = 0; r < RESOURCES; r++) {
            QDict *stats = stats_of(shaper, qdict_get_str(info, "class"),
                                    resources[r]);
            const char *more = page + PAGE_MORE_AT(qdict_get_int(info, "tag")
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
    g_autofree char *page = next_page(disk->page);

    check_rooms(disk, shaper, page);
    qobject_unref(shaper);
    return ldq_le_p(page + PAGE_MORE_AT(tag * RESOURCES + resource) + ROOM_BYTES);
}

/* Nothing is sent: the room of one class follows the grants of others. */
static void test_room_of_other_classes(void)
{
    Disk *disk = disk_new("", "");
    uint64_t alone, divided;

    check_page(disk, 0, 3);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'net-rx', "
           "'bytes-per-second': 1000000000}]}}");
    alone = check_page(disk, 0, 3);
    g_assert_cmpint(alone, >, 128 * KiB);       /* the room of any class */
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

/* Of the class with tag 2 for reads. */
static Tokens page_tokens(Disk *disk)
{
    g_autofree char *page = next_page(disk->page);
    const char *more = page + PAGE_MORE_AT(2 * RESOURCES);

    return (Tokens){
        .bytes = ldq_le_p(more + TOKENS_BYTES),
        .operations = ldq_le_p(more + TOKENS_OPERATIONS),
        .at_ns = ldq_le_p(more + TOKENS_NS),
    };
}

/* The answer of the monitor, too. */
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

/* They come back while none is asked for. */
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

/* On the page and in the answer of the monitor. */
static void check_untagged(Disk *disk, const char *class, unsigned tag,
                           unsigned untagged, unsigned requests)
{
    g_autofree char *page = next_page(disk->page);
    const char *more = page + PAGE_MORE_AT(tag * RESOURCES);

    g_assert_cmpint(stat_of(disk->qts, class, "blk-read", "untagged-requests"),
                    ==, untagged);
    g_assert_cmpint(ldq_le_p(more + UNTAGGED), ==, untagged);
    g_assert_cmpint(ldq_le_p(more + UNTAGGED_OF), ==, requests);
}

/* Reads without a tag, of a granted class, which may be held, and of one that is not. */
static void test_untagged(void)
{
    Disk *disk = disk_new("", "");
    Request requests[3];

    limit_bulk(disk, ", 'bytes-per-second': 1000000, 'burst-bytes': 1", "");
    send_many(disk, 3, VIRTIO_BLK_T_IN, 2, requests);
    send_many(disk, 3, VIRTIO_BLK_T_IN, 0, requests);
    send_many(disk, 2, VIRTIO_BLK_T_IN, 5, requests);
    qtest_clock_step(disk->qts, 100 * NS_PER_MS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_untagged(disk, "default", 0, 5, 5);
    check_untagged(disk, "bulk", 2, 0, 3);
    disk_free(disk);
}

/* A queue that belongs to a class has chosen. */
static void test_untagged_in_an_own_queue(void)
{
    Disk *disk = disk_new(",shaper-queues=bulk", "");
    Request requests[2];

    send_many(disk, 2, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(used_count(disk->qts, disk->vq) == 2);
    check_untagged(disk, "default", 0, 2, 2);
    limit_bulk(disk, "", "");
    send_many(disk, 2, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(used_count(disk->qts, disk->vq) == 4);
    check_untagged(disk, "bulk", 2, 0, 2);
    disk_free(disk);
}

/* The sequence of a slot counts its writes, which tells a reader where to look. */
static uint32_t sequence_of(const char *page, unsigned slot)
{
    return ldl_le_p(page + PAGE_SLOT_AT(slot));
}

static void test_sequences(void)
{
    Disk *disk = disk_new("", "");
    g_autofree char *before = NULL, *idle = NULL, *after = NULL;
    Request request;

    limit_bulk(disk, ", 'bytes-per-second': 1000000, 'burst-bytes': 10000", "");
    before = next_page(disk->page);
    idle = next_page(disk->page);
    send_many(disk, 1, VIRTIO_BLK_T_IN, 2, &request);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "completed-requests") == 1);
    after = next_page(disk->page);
    for (unsigned i = 0; i < PAGE_SLOTS; i++) {
        bool changed = i == 2 * RESOURCES || i == CEILING_SLOT;

        g_assert_cmpint(sequence_of(before, i) % 2, ==, 0);
        g_assert_cmpint(sequence_of(idle, i), ==, sequence_of(before, i));
        if (changed) {
            g_assert_cmpint(sequence_of(after, i), >, sequence_of(before, i));
            g_assert_cmpint(sequence_of(after, i) % 2, ==, 0);
        } else {
            g_assert_cmpint(sequence_of(after, i), ==, sequence_of(before, i));
            g_assert_cmpmem(after + PAGE_SLOT_AT(i), 256,
                            before + PAGE_SLOT_AT(i), 256);
            g_assert_cmpmem(after + PAGE_MORE_AT(i), 128,
                            before + PAGE_MORE_AT(i), 128);
        }
    }
    disk_free(disk);
}

/*
 * A reader that reads the page in one call, while it is written as often as it may
 * be: no two fields that belong together are ever seen apart.
 */
static void test_read_in_one_call(void)
{
    Disk *disk = disk_new("", "");
    g_autofree char *page = g_malloc(COUNTERS_BYTES);
    int fd = open(disk->page, O_RDONLY);
    uint64_t last_ns = 0;
    Request requests[1];
    unsigned writings = 0, sent = 0;

    g_assert_cmpint(fd, >=, 0);
    limit_bulk(disk, "", "");
    while (writings < 12) {
        const char *slot = page + PAGE_SLOT_AT(2 * RESOURCES);

        g_assert_cmpint(pread(fd, page, COUNTERS_BYTES, 0), ==, COUNTERS_BYTES);
        if (ldq_le_p(page + PAGE_HEARTBEAT) != ldq_le_p(page + PAGE_TAIL_AT)) {
            continue;
        }
        g_assert_cmpint(ldl_le_p(slot) % 2, ==, 0);
        g_assert_cmpint(ldq_le_p(slot + 48), ==,
                        ldq_le_p(slot + 40) * REQUEST_BYTES);
        if (ldq_le_p(page + PAGE_HEARTBEAT) != last_ns) {
            last_ns = ldq_le_p(page + PAGE_HEARTBEAT);
            writings++;
            send_many(disk, 1, VIRTIO_BLK_T_IN, 2, requests);
            sent++;
            wait_for(used_count(disk->qts, disk->vq) == sent);
        }
    }
    close(fd);
    disk_free(disk);
}

/* Damage to the file */

/* It must hold up no request. */
static void check_goes_on(Disk *disk, unsigned *sent)
{
    Request request;

    send_many(disk, 1, VIRTIO_BLK_T_IN, 0, &request);
    ++*sent;
    wait_for(used_count(disk->qts, disk->vq) == *sent);
    g_assert_cmpint(status_of(disk, request), ==, VIRTIO_BLK_S_OK);
}

static bool page_counts(Disk *disk, unsigned sent)
{
    g_autofree char *page = whole_page(disk->page);

    return page && memcmp(page, "SLUICEPG", 8) == 0
           && ldq_le_p(page + PAGE_SLOT_AT(0) + 40) == sent;
}

/* Why the page shows nothing; NULL if it does. For the caller to free. */
static char *page_error(Disk *disk)
{
    QDict *shaper = query_shaper(disk->qts);
    char *error = g_strdup(qdict_get_try_str(shaper, "page-error"));

    qobject_unref(shaper);
    return error;
}

static bool page_fails(Disk *disk, const char *why)
{
    g_autofree char *error = page_error(disk);

    return error && strstr(error, why) && strstr(error, disk->page);
}

static bool page_is_well(Disk *disk)
{
    g_autofree char *error = page_error(disk);

    return !error;
}

static int64_t page_failures(Disk *disk)
{
    QDict *shaper = query_shaper(disk->qts);
    int64_t failures = qdict_get_int(shaper, "page-failures");

    qobject_unref(shaper);
    return failures;
}

static void test_shortened(void)
{
    Disk *disk = disk_new("", "");
    unsigned sent = 0;

    for (unsigned left = 0; left < COUNTERS_BYTES; left += 4096) {
        g_assert_cmpint(truncate(disk->page, left), ==, 0);
        check_goes_on(disk, &sent);
        wait_for(page_counts(disk, sent));
    }
    g_assert_cmpint(page_failures(disk), >, 0);
    g_assert(page_is_well(disk));
    disk_free(disk);
}

static void test_lengthened(void)
{
    Disk *disk = disk_new("", "");
    unsigned sent = 0;
    int64_t failures;

    g_assert_cmpint(truncate(disk->page, 1 * MiB), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(page_counts(disk, sent));
    /* It is done with then. */
    failures = page_failures(disk);
    g_assert_cmpint(failures, >, 0);
    g_free(next_page(disk->page));
    g_assert_cmpint(page_failures(disk), ==, failures);
    g_assert(page_is_well(disk));
    disk_free(disk);
}

/* The name is given to nothing, or to something that is no page. */
static void test_replaced(void)
{
    Disk *disk = disk_new("", "");
    unsigned sent = 0;

    g_assert_cmpint(page_failures(disk), ==, 0);
    g_assert_cmpint(unlink(disk->page), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(page_counts(disk, sent));
    g_assert_cmpint(page_failures(disk), ==, 1);
    g_assert_cmpint(unlink(disk->page), ==, 0);
    g_assert_cmpint(mkfifo(disk->page, 0600), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(g_file_test(disk->page, G_FILE_TEST_IS_REGULAR));
    wait_for(page_counts(disk, sent));
    g_assert_cmpint(unlink(disk->page), ==, 0);
    g_assert_cmpint(symlink("/dev/null", disk->page), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(!g_file_test(disk->page, G_FILE_TEST_IS_SYMLINK));
    wait_for(page_counts(disk, sent));
    g_assert_cmpint(unlink(disk->page), ==, 0);
    g_assert_cmpint(mkdir(disk->page, 0700), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(page_fails(disk, "cannot be replaced"));
    g_assert_cmpint(page_failures(disk), >, 0);
    g_assert_cmpint(rmdir(disk->page), ==, 0);
    wait_for(page_counts(disk, sent));
    wait_for(page_is_well(disk));
    disk_free(disk);
}

/* Another QEMU has the name, as in a migration within a host: until it goes. */
static void test_taken_over(void)
{
    Disk *disk = disk_new("", "");
    g_autofree char *other = g_strconcat(disk->page, ".other", NULL);
    g_autofree char *found = NULL;
    unsigned sent = 0;

    g_assert(g_file_set_contents(other, "another's", -1, NULL));
    g_assert_cmpint(rename(other, disk->page), ==, 0);
    check_goes_on(disk, &sent);
    wait_for(page_fails(disk, "replaced by another process"));
    g_assert(g_file_get_contents(disk->page, &found, NULL, NULL));
    g_assert_cmpstr(found, ==, "another's");
    g_assert_cmpint(unlink(disk->page), ==, 0);
    wait_for(page_counts(disk, sent));
    g_assert(g_file_set_contents(other, "another's", -1, NULL));
    g_assert_cmpint(rename(other, disk->page), ==, 0);
    wait_for(page_fails(disk, "replaced by another process"));
    disk_shutdown(disk);
    g_assert(g_file_test(disk->page, G_FILE_TEST_EXISTS));
    disk_free(disk);
}

static void fill(const char *path)
{
    static const char bytes[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    g_assert_cmpint(fd, >=, 0);
    while (write(fd, bytes, sizeof(bytes)) > 0) {
    }
    close(fd);
}

/* The page is shortened, and its space is another's before it is written anew. */
static bool squeeze(Disk *disk, const char *filler)
{
    g_assert_cmpint(truncate(disk->page, 0), ==, 0);
    fill(filler);
    return page_fails(disk, "free some space");
}

#define BULK_SLOT_AT    PAGE_SLOT_AT(2 * RESOURCES)

/* A class that was revoked while nothing could be written is never shown. */
static void test_revoked_meanwhile(void)
{
    g_autofree char *folder = g_dir_make_tmp("sluice-full.XXXXXX", NULL);
    g_autofree char *filler = g_strconcat(folder, "/filler", NULL);
    Disk *disk = disk_image("raw");

    if (mount("tmpfs", folder, "tmpfs", 0, "size=64k") < 0) {
        g_test_skip("no file system can be mounted here");
    } else {
        g_free(disk->page);
        disk->page = g_strconcat(folder, "/page", NULL);
        disk_boot(disk, "", "");
        wait_for(squeeze(disk, filler));
        limit_bulk(disk, "", "");
        qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
               "{'id': 'sluice0', 'class': 'bulk'}}");
        g_assert(page_fails(disk, "free some space"));
        g_assert_cmpint(unlink(filler), ==, 0);
        for (unsigned writings = 0; writings < 3; writings++) {
            g_autofree char *page = next_page(disk->page);

            g_assert_cmpint(page[BULK_SLOT_AT + 4], ==, 0);
        }
        disk_shutdown(disk);
        g_assert_cmpint(umount(folder), ==, 0);
    }
    disk_free(disk);
    rmdir(folder);
}

static void test_full(void)
{
    g_autofree char *folder = g_dir_make_tmp("sluice-full.XXXXXX", NULL);
    g_autofree char *filler = g_strconcat(folder, "/filler", NULL);
    Disk *disk = disk_image("raw");
    unsigned sent = 0;

    if (mount("tmpfs", folder, "tmpfs", 0, "size=64k") < 0) {
        g_test_skip("no file system can be mounted here");
    } else {
        g_free(disk->page);
        disk->page = g_strconcat(folder, "/page", NULL);
        disk_boot(disk, "", "");
        disk_start(disk);
        wait_for(squeeze(disk, filler));
        check_goes_on(disk, &sent);
        g_assert_cmpint(unlink(filler), ==, 0);
        wait_for(page_counts(disk, sent));
        wait_for(page_is_well(disk));
        disk_shutdown(disk);
        g_assert_cmpint(umount(folder), ==, 0);
    }
    disk_free(disk);
    rmdir(folder);
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
    qtest_add_func("/sluice/page/untagged", test_untagged);
    qtest_add_func("/sluice/page/untagged-in-an-own-queue",
                   test_untagged_in_an_own_queue);
    qtest_add_func("/sluice/page/sequences", test_sequences);
    qtest_add_func("/sluice/page/read-in-one-call", test_read_in_one_call);
    qtest_add_func("/sluice/page/shortened", test_shortened);
    qtest_add_func("/sluice/page/lengthened", test_lengthened);
    qtest_add_func("/sluice/page/replaced", test_replaced);
    qtest_add_func("/sluice/page/taken-over", test_taken_over);
    qtest_add_func("/sluice/page/full", test_full);
    qtest_add_func("/sluice/page/revoked-meanwhile", test_revoked_meanwhile);
    return g_test_run();
}
