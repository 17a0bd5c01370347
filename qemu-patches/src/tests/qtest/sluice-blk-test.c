/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of shaping in virtio-blk: rates, classes, and held requests when the VM
 * stops, the device goes, or a class is removed.
 *
 * Most tests limit a class to 1 MB/s with a burst of one request, so that a
 * request of 4096 bytes takes 4.096 ms of the virtual clock: of N requests
 * given at once the first passes, and the (n+1)th, n >= 1, may go on as soon
 * as the n-1 before it have been paid for, that is after (n-1) * 4.096 ms.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qobject/qnum.h"
#include "sluice-disk.h"

#define PAGE_SLOT(tag, resource) (128 + 256 * ((tag) * 4 + (resource)))

static void check_rate(const char *options, const char *more)
{
    Disk *disk = disk_new(options, more);
    Request requests[64];
    int64_t now_ns = 1;

    limit_class(disk, "bulk", 2, "blk-read");
    send_many(disk, 64, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 63);
    qtest_clock_step(disk->qts, now_ns);
    wait_for(admitted(disk, "bulk", "blk-read") == 2);
    /* n requests are paid for; the next is eligible a moment later. Each is waited for: an
     * I/O thread has a timer of its own, for which stepping the clock does not wait. */
    for (unsigned n = 1; n < 63; n++) {
        qtest_clock_step(disk->qts, n * REQUEST_NS - now_ns);
        now_ns = n * REQUEST_NS;
        g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, n + 1);
        qtest_clock_step(disk->qts, 1);
        now_ns++;
        wait_for(admitted(disk, "bulk", "blk-read") == n + 2);
        if (n % 7 == 0) {
            wait_for(used_count(disk->qts, disk->vq) == n + 2);
            check_first_done(disk, requests, n + 2, 64);
        }
    }
    wait_for(used_count(disk->qts, disk->vq) == 64);
    check_first_done(disk, requests, 64, 64);
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "held-requests"),
                    ==, 63);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "in-flight") == 0);
    disk_free(disk);
}

static void test_rate(void)
{
    check_rate("", "");
}

static void test_rate_iothread(void)
{
    check_rate(",iothread=io0", "-object iothread,id=io0");
}

static void test_rate_no_ioeventfd(void)
{
    check_rate(",ioeventfd=off", "");
}

static void test_operations(void)
{
    Disk *disk = disk_new("", "");
    Request requests[6];

    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'default', 'tag': 0, 'limits': "
           "[{'resource': 'blk-write', 'operations-per-second': 100, "
           "'burst-operations': 2}]}}");
    send_many(disk, 6, VIRTIO_BLK_T_OUT, 0, requests);
    /* The burst is two; a token is left until both are taken. */
    wait_for(backlog(disk, "default", "blk-write") == 4);
    wait_for(used_count(disk->qts, disk->vq) == 2);
    qtest_clock_step(disk->qts, 40 * NS_PER_MS);
    wait_for(used_count(disk->qts, disk->vq) == 6);
    disk_free(disk);
}

static void test_classes(void)
{
    Disk *disk = disk_new("", "");
    Request held[3], other, high, write;

    limit_class(disk, "bulk", 2, "blk-read");
    limit_class(disk, "backup", 10, "blk-read");
    send_many(disk, 3, VIRTIO_BLK_T_IN, 2, held);
    wait_for(backlog(disk, "bulk", "blk-read") == 2);
    /* The hint selects tags from 8 on. */
    send_many(disk, 3, VIRTIO_BLK_T_IN, 10, held);
    wait_for(backlog(disk, "backup", "blk-read") == 2);
    /* Neither the default class, nor a tag without class, nor a write waits. */
    other = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0);
    high = send_request(disk, VIRTIO_BLK_T_IN, 5, 0, 0);
    write = send_request(disk, VIRTIO_BLK_T_OUT, 2, 0, 0);
    wait_for(status_of(disk, other) == VIRTIO_BLK_S_OK);
    wait_for(status_of(disk, high) == VIRTIO_BLK_S_OK);
    wait_for(status_of(disk, write) == VIRTIO_BLK_S_OK);
    g_assert_cmpint(admitted(disk, "default", "blk-read"), ==, 2);
    g_assert_cmpint(admitted(disk, "bulk", "blk-write"), ==, 1);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 2);
    g_assert_cmpint(backlog(disk, "backup", "blk-read"), ==, 2);
    disk_free(disk);
}

static void test_ceiling(void)
{
    Disk *disk = disk_new("", "");
    Request first, second, urgent;

    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'video', 'tag': 1, 'priority': 0}}");
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'blk-read', "
           LIMIT_1MBPS "}]}}");
    first = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0);
    wait_for(status_of(disk, first) == VIRTIO_BLK_S_OK);
    second = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0);
    urgent = send_request(disk, VIRTIO_BLK_T_IN, 1, 0, 0);
    wait_for(backlog(disk, "video", "blk-read") == 1);
    /* The first released is the later one, of better priority. */
    qtest_clock_step(disk->qts, 1);
    wait_for(status_of(disk, urgent) == VIRTIO_BLK_S_OK);
    g_assert_cmpint(status_of(disk, second), ==, PENDING);
    qtest_clock_step(disk->qts, REQUEST_NS);
    wait_for(status_of(disk, second) == VIRTIO_BLK_S_OK);
    disk_free(disk);
}

static void check_stop_cont(const char *options, const char *more)
{
    Disk *disk = disk_new(options, more);
    Request requests[8];

    hold_seven(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    /* They are the device's now, which migration saves. */
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    qtest_clock_step(disk->qts, 100 * REQUEST_NS);
    g_assert_cmpint(used_count(disk->qts, disk->vq), ==, 1);
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    /* Judged anew: time has passed, so one more passes, and six are held. */
    wait_for(backlog(disk, "bulk", "blk-read") == 6);
    wait_for(used_count(disk->qts, disk->vq) == 2);
    check_first_done(disk, requests, 2, 8);
    for (unsigned n = 3; n <= 8; n++) {
        qtest_clock_step(disk->qts, REQUEST_NS);
        wait_for(used_count(disk->qts, disk->vq) == n);
    }
    check_first_done(disk, requests, 8, 8);
    disk_free(disk);
}

static void test_stop_cont(void)
{
    check_stop_cont("", "");
}

static void test_stop_cont_iothread(void)
{
    check_stop_cont(",iothread=io0", "-object iothread,id=io0");
}

static void test_data(void)
{
    Disk *disk = disk_new("", "");
    Request requests[4], check;
    uint8_t data[REQUEST_BYTES], expected[REQUEST_BYTES];

    limit_class(disk, "bulk", 2, "blk-write");
    send_many(disk, 4, VIRTIO_BLK_T_OUT, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-write") == 3);
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    wait_for(backlog(disk, "bulk", "blk-write") == 3);
    qtest_clock_step(disk->qts, 4 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 4);
    for (unsigned i = 0; i < 4; i++) {
        check = send_request(disk, VIRTIO_BLK_T_IN, 0,
                             i * REQUEST_BYTES / SECTOR_BYTES, 0);
        wait_for(status_of(disk, check) == VIRTIO_BLK_S_OK);
        qtest_memread(disk->qts, check.data, data, sizeof(data));
        memset(expected, 0x10 + i, sizeof(expected));
        g_assert_cmpmem(data, sizeof(data), expected, sizeof(expected));
    }
    disk_free(disk);
}

static void test_reset(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8], again;

    hold_seven(disk, requests);
    qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
    qvirtio_start_device(disk->dev);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "in-flight"), ==, 0);
    qtest_clock_step(disk->qts, 100 * REQUEST_NS);
    for (unsigned i = 1; i < 8; i++) {
        g_assert_cmpint(status_of(disk, requests[i]), ==, PENDING);
    }
    setup_queue(disk);
    again = send_request(disk, VIRTIO_BLK_T_IN, 2, 0, 0);
    wait_for(status_of(disk, again) == VIRTIO_BLK_S_OK);
    disk_free(disk);
}

/*
 * One step of the clock releases all of them, each at its time, and the disk gets
 * them at the end of it. That they waited for it is not the disk's time.
 */
static void test_service_begins_with_the_disk(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    hold_seven(disk, requests);
    qtest_clock_step(disk->qts, 100 * REQUEST_NS);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "completed-requests") == 8);
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "service-ns"), ==, 0);
    disk_free(disk);
}

static void check_unplug(const char *options, const char *more)
{
    Disk *disk = disk_new(options, more);
    Request requests[8];
    QDict *shaper;

    hold_seven(disk, requests);
    qmp_refused(disk->qts, "{'execute': 'object-del', 'arguments': "
                "{'id': 'sluice0'}}", "sluice0", "in use");
    qpci_unplug_acpi_device_test(disk->qts, "disk0", SLOT);
    shaper = query_shaper(disk->qts);
    g_assert(qlist_empty(qdict_get_qlist(shaper, "devices")));
    qobject_unref(shaper);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    qtest_clock_step(disk->qts, 100 * REQUEST_NS);
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'sluice0'}}");
    g_assert_cmpint(access(disk->page, F_OK), !=, 0);
    disk_free(disk);
}

static void test_unplug(void)
{
    check_unplug("", "");
}

static void test_unplug_iothread(void)
{
    check_unplug(",iothread=io0", "-object iothread,id=io0");
}

static void test_remove_class(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    hold_seven(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    wait_for(used_count(disk->qts, disk->vq) == 8);
    g_assert_cmpint(admitted(disk, "default", "blk-read"), ==, 7);
    disk_free(disk);
}

/* A queue that belongs to a class: all its requests do, of any tag. */
static void test_queue_class(void)
{
    Disk *disk = disk_new(",shaper-queues=bulk", "");
    Request requests[8];

    send_many(disk, 1, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(used_count(disk->qts, disk->vq) == 1);
    g_assert_cmpint(admitted(disk, "default", "blk-read"), ==, 1);
    limit_class(disk, "bulk", 2, "blk-read");
    send_many(disk, 4, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 3);
    qmp_ok(disk->qts, "{'execute': 'blockdev-add', 'arguments': "
           "{'driver': 'null-co', 'node-name': 'empty', 'size': 65536}}");
    qmp_refused(disk->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'virtio-blk-pci', 'drive': 'empty', "
                "'shaper': 'sluice0', 'num-queues': 1, "
                "'shaper-queues': ':video'}}",
                "shaper-queues ':video'", "2 queues", "the device has 1");
    qtest_clock_step(disk->qts, 10 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 5);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, 4);
    disk_free(disk);
}

static void test_change_tag(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    hold_seven(disk, requests);
    limit_class(disk, "bulk", 3, "blk-read");
    /* They move along: one passes the new bucket, six wait in it. */
    wait_for(backlog(disk, "bulk", "blk-read") == 6);
    qtest_clock_step(disk->qts, 6 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    disk_free(disk);
}

static void test_raise_limit(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    hold_seven(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2}}");
    wait_for(used_count(disk->qts, disk->vq) == 8);
    disk_free(disk);
}

static void test_rewritten_header(void)
{
    Disk *disk = disk_new("", "");
    Request requests[2], check;
    uint8_t data[REQUEST_BYTES] = { 0 }, zero[REQUEST_BYTES] = { 0 };

    limit_class(disk, "bulk", 2, "blk-read");
    send_many(disk, 2, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 1);
    /* A held read that its guest turns into a write is still a read. */
    qtest_writel(disk->qts, requests[1].data - 16, VIRTIO_BLK_T_OUT);
    qtest_memset(disk->qts, requests[1].data, 0xee, REQUEST_BYTES);
    qtest_clock_step(disk->qts, REQUEST_NS);
    wait_for(status_of(disk, requests[1]) == VIRTIO_BLK_S_OK);
    check = send_request(disk, VIRTIO_BLK_T_IN, 0,
                         REQUEST_BYTES / SECTOR_BYTES, 0x77);
    wait_for(status_of(disk, check) == VIRTIO_BLK_S_OK);
    qtest_memread(disk->qts, check.data, data, sizeof(data));
    g_assert_cmpmem(data, sizeof(data), zero, sizeof(zero));
    disk_free(disk);
}

/*
 * Migrates with seven requests held, which go on in their time: the class comes along.
 * With `limited` the target knows it already.
 */
static void check_migrate(const char *options, bool limited)
{
    Disk *source = disk_new(options, "");
    Disk target;
    char *uri;
    Request requests[8];

    hold_seven(source, requests);
    uri = boot_target(&target, source, options, "");
    if (limited) {
        limit_class(&target, "bulk", 2, "blk-read");
    }
    migrate(source->qs, target.qs, uri);
    target.vq = source->vq;
    wait_for(backlog(&target, "bulk", "blk-read") == 7);
    for (unsigned i = 1; i < 8; i++) {
        qtest_clock_step(target.qts, i == 1 ? 1 : REQUEST_NS);
        wait_for(status_of(&target, requests[i]) == VIRTIO_BLK_S_OK);
        /* In the order in which they came. */
        check_first_done(&target, requests, i + 1, 8);
    }
    wait_for(used_count(target.qts, target.vq) == 8);
    free_migrated(source, &target, uri);
}

static void test_migrate(void)
{
    check_migrate("", false);
}

static void test_migrate_limited(void)
{
    check_migrate("", true);
}

/* The order in which they are taken does not travel; they must not need it. */
static void test_migrate_in_order(void)
{
    check_migrate(",in_order=on", false);
}

/* The monitor shows the same histogram as the page. */
static void check_histogram(Disk *disk, const char *slot)
{
    QDict *shaper = query_shaper(disk->qts);
    QList *list = qdict_get_qlist(stats_of(shaper, "bulk", "blk-read"),
                                  "held-histogram");
    const QListEntry *entry;
    unsigned i = 0;

    QLIST_FOREACH_ENTRY(list, entry) {
        QNum *number = qobject_to(QNum, qlist_entry_obj(entry));

        g_assert_cmpint(qnum_get_uint(number), ==,
                        ldq_le_p(slot + 160 + 8 * i));
        i++;
    }
    g_assert_cmpint(i, ==, 12);
    qobject_unref(shaper);
}

static void test_page(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];
    g_autofree char *page = NULL;
    const char *slot;

    hold_seven(disk, requests);
    qtest_clock_step(disk->qts, 100 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "in-flight") == 0);
    page = next_page(disk->page);
    g_assert_cmpmem(page, 8, "SLUICEPG", 8);
    g_assert_cmpint(ldl_le_p(page + 8), ==, 1);
    g_assert_cmpint(ldl_le_p(page + 12), ==, 128);
    g_assert_cmpint(ldl_le_p(page + 16), ==, 256);
    g_assert_cmpint(ldl_le_p(page + 20), ==, 68);
    g_assert_cmpint(ldl_le_p(page + 48), ==, qtest_pid(disk->qts));
    g_assert_cmpint(ldl_le_p(page + 52), ==, 256);
    g_assert_cmpint(ldq_le_p(page + 120), ==, 128 + 68 * 256);
    g_assert_cmpstr(page + 56, ==, "sluice0");
    slot = page + PAGE_SLOT(2, 0);
    g_assert_cmpint(ldl_le_p(slot) % 2, ==, 0);
    g_assert_cmpint(slot[4], ==, 1);
    g_assert_cmpint(slot[5], ==, 2);
    g_assert_cmpint(slot[7], ==, 5);
    g_assert_cmpstr(slot + 8, ==, "bulk");
    g_assert_cmpint(ldq_le_p(slot + 40), ==, 8);
    g_assert_cmpint(ldq_le_p(slot + 48), ==, 8 * REQUEST_BYTES);
    g_assert_cmpint(ldq_le_p(slot + 56), ==, 7);
    /* Waits of 1 ns, then 1 to 6 requests' time more, each a nanosecond. */
    g_assert_cmpint(ldq_le_p(slot + 64), ==, 21 * REQUEST_NS + 7);
    g_assert_cmpint(ldq_le_p(slot + 104), ==, 1000000);
    g_assert_cmpint(ldq_le_p(slot + 120), ==, 4096);
    g_assert_cmpint(ldq_le_p(slot + 136), ==, 8);
    /* 1 ns; 4.1 to 16.384 ms are below 4^7 us; the rest below 4^8. */
    g_assert_cmpint(ldq_le_p(slot + 160), ==, 1);
    g_assert_cmpint(ldq_le_p(slot + 160 + 8 * 6), ==, 3);
    g_assert_cmpint(ldq_le_p(slot + 160 + 8 * 7), ==, 3);
    check_histogram(disk, slot);
    disk_free(disk);
}

static void test_heartbeat(void)
{
    Disk *disk = disk_new("", "");
    g_autofree char *before = NULL;
    g_autofree char *after = NULL;
    gsize length;

    g_assert(g_file_get_contents(disk->page, &before, &length, NULL));
    do {
        g_free(after);
        g_usleep(POLL_US);
        g_assert(g_file_get_contents(disk->page, &after, &length, NULL));
    } while (ldq_le_p(after + 40) == ldq_le_p(before + 40));
    g_assert_cmpuint(ldq_le_p(after + 40), >, ldq_le_p(before + 40));
    disk_free(disk);
}

/* Each refusal names the field, the value and the range or the remedy. */
static void check_refusals(QTestState *qts)
{
#define SET(arguments) "{'execute': 'shaper-set-class', 'arguments': " \
                       "{'id': 'sluice0', " arguments "}}"
#define LIMIT(limit) SET("'class': 'a', 'tag': 1, 'limits': " \
                         "[{'resource': 'blk-read', " limit "}]")
    qmp_refused(qts, SET("'class': 'a', 'tag': 16"), "tag 16", "0 to 15");
    qmp_refused(qts, SET("'class': 'a', 'tag': -1"), "tag -1", "0 to 15");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'priority': 10"),
                "priority 10", "0 to 9");
    qmp_refused(qts, SET("'class': 'A b', 'tag': 1"), "class 'A b'", "a-z");
    qmp_refused(qts, SET("'class': '', 'tag': 1"), "class ''", "1 to 31");
    qmp_refused(qts, SET("'class': 'a', 'tag': 0"), "tag 0", "'default'");
    qmp_refused(qts, SET("'class': 'default', 'tag': 1"), "tag 1", "'default'");
    qmp_refused(qts, SET("'class': 'a', 'tag': 2"), "tag 2", "'bulk'");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'dscp': [64]"), "dscp 64",
                "0 to 63");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'dscp': [46]"), "dscp 46",
                "'bulk'");
    /* 2 << 2 | 3: the DSCP of tag 2. */
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'dscp': [11]"), "dscp 11",
                "'bulk'");
    qmp_refused(qts, LIMIT("'bytes-per-second': 0"), "bytes-per-second 0",
                "1 to 1000000000000");
    qmp_refused(qts, LIMIT("'bytes-per-second': -5"), "bytes-per-second -5");
    qmp_refused(qts, LIMIT("'bytes-per-second': 1000000000001"),
                "1000000000001", "1 to 1000000000000");
    qmp_refused(qts, LIMIT("'bytes-per-second': 1, 'burst-bytes': 0"),
                "burst-bytes 0", "1 to 1099511627776");
    qmp_refused(qts, LIMIT("'burst-operations': 4"), "burst-operations 4",
                "operations-per-second");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'limits': ["
                         "{'resource': 'blk-read'}, {'resource': 'blk-read'}]"),
                "'blk-read'", "twice");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'limits': ["
                         "{'resource': 'tape'}]"), "tape");
    qmp_refused(qts, "{'execute': 'shaper-set-class', 'arguments': "
                "{'id': 'nobody', 'class': 'a', 'tag': 1}}", "nobody",
                "query-shapers");
    qmp_refused(qts, "{'execute': 'shaper-remove-class', 'arguments': "
                "{'id': 'sluice0', 'class': 'default'}}", "default", "limits");
    qmp_refused(qts, "{'execute': 'shaper-remove-class', 'arguments': "
                "{'id': 'sluice0', 'class': 'ghost'}}", "ghost",
                "query-shapers");
    qmp_refused(qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
                "{'id': 'sluice0', 'limits': [{'resource': 'net-rx', "
                "'bytes-per-second': 0}]}}", "bytes-per-second 0");
#undef LIMIT
#undef SET
}

static void test_refused_input(void)
{
    Disk *disk = disk_new("", "");
    QDict *before, *after;
    g_autoptr(GString) before_text = NULL;
    g_autoptr(GString) after_text = NULL;

    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'dscp': [46]}}");
    before = query_shaper(disk->qts);
    check_refusals(disk->qts);
    after = query_shaper(disk->qts);
    before_text = qobject_to_json(QOBJECT(before));
    after_text = qobject_to_json(QOBJECT(after));
    g_assert_cmpstr(before_text->str, ==, after_text->str);
    qobject_unref(before);
    qobject_unref(after);
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/blk/rate", test_rate);
    qtest_add_func("/sluice/blk/rate/iothread", test_rate_iothread);
    qtest_add_func("/sluice/blk/rate/no-ioeventfd", test_rate_no_ioeventfd);
    qtest_add_func("/sluice/blk/operations", test_operations);
    qtest_add_func("/sluice/blk/classes", test_classes);
    qtest_add_func("/sluice/blk/ceiling", test_ceiling);
    qtest_add_func("/sluice/blk/stop-cont", test_stop_cont);
    qtest_add_func("/sluice/blk/stop-cont/iothread", test_stop_cont_iothread);
    qtest_add_func("/sluice/blk/data", test_data);
    qtest_add_func("/sluice/blk/reset", test_reset);
    qtest_add_func("/sluice/blk/service-time", test_service_begins_with_the_disk);
    qtest_add_func("/sluice/blk/unplug", test_unplug);
    qtest_add_func("/sluice/blk/unplug/iothread", test_unplug_iothread);
    qtest_add_func("/sluice/blk/remove-class", test_remove_class);
    qtest_add_func("/sluice/blk/change-tag", test_change_tag);
    qtest_add_func("/sluice/blk/raise-limit", test_raise_limit);
    qtest_add_func("/sluice/blk/rewritten-header", test_rewritten_header);
    qtest_add_func("/sluice/blk/migrate", test_migrate);
    qtest_add_func("/sluice/blk/migrate/limited", test_migrate_limited);
    qtest_add_func("/sluice/blk/migrate/in-order", test_migrate_in_order);
    qtest_add_func("/sluice/blk/queue-class", test_queue_class);
    qtest_add_func("/sluice/page/content", test_page);
    qtest_add_func("/sluice/page/heartbeat", test_heartbeat);
    qtest_add_func("/sluice/qmp/refused-input", test_refused_input);
    return g_test_run();
}
