/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the output of a shaper: the events of classes that are limited, "info
 * shaper", and trace events.
 *
 * The shaper looks at its classes every 250 ms of the virtual clock, which
 * starts at 0: look n is at n * 250 ms. Requests are of 4096 bytes and their
 * class may do 10 kB/s with a burst of one, so that one of them takes 409.6 ms
 * and of eight the last leaves 6 * 409.6 = 2457.6 ms after they came.
 */
#include "qemu/osdep.h"
#include "sluice-disk.h"

#define LOOK_NS         (250 * NS_PER_MS)
#define ACPI_EJECT_PORT 0xae08
#define EVENTS_PER_LOOK 2
#define SLOW            "'bytes-per-second': 10000, 'burst-bytes': 4096"

typedef struct Seen {
    unsigned started;
    unsigned stopped;
    unsigned foreign;           /* not of class bulk's reads */
} Seen;

static bool count_event(QTestState *qts, const char *name, QDict *event,
                        void *opaque)
{
    Seen *seen = opaque;
    QDict *data;

    if (strcmp(name, "SHAPER_CLASS_LIMITED")) {
        return false;
    }
    data = qdict_get_qdict(event, "data");
    g_assert_cmpstr(qdict_get_str(data, "id"), ==, "sluice0");
    *(qdict_get_bool(data, "limited") ? &seen->started : &seen->stopped) += 1;
    if (strcmp(qdict_get_str(data, "class"), "bulk")
        || strcmp(qdict_get_str(data, "resource"), "blk-read")
        || qdict_get_int(data, "tag") != 2) {
        seen->foreign++;
    }
    return true;
}

static void slow_class(Disk *disk, const char *class, unsigned tag)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': %s, 'tag': %u, 'limits': "
           "[{'resource': 'blk-read', " SLOW "}]}}", class, tag);
}

static void step_to(Disk *disk, int64_t *now_ns, int64_t then_ns)
{
    qtest_clock_step(disk->qts, then_ns - *now_ns);
    *now_ns = then_ns;
    /* Events that were sent meanwhile come before the answer. */
    qmp_ok(disk->qts, "{'execute': 'query-name'}");
}

static void test_event(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];
    Seen seen = { 0 };
    int64_t now_ns = 0;

    qtest_qmp_set_event_callback(disk->qts, count_event, &seen);
    slow_class(disk, "bulk", 2);
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    step_to(disk, &now_ns, 4 * LOOK_NS - 1);
    g_assert_cmpint(seen.started, ==, 0);
    g_assert(!flag_of(disk->qts, "bulk", "blk-read", "limited"));
    step_to(disk, &now_ns, 4 * LOOK_NS);
    g_assert_cmpint(seen.started, ==, 1);
    g_assert(flag_of(disk->qts, "bulk", "blk-read", "limited"));
    /* The last leaves before look 10, which still finds that; 8 quiet ones. */
    step_to(disk, &now_ns, 18 * LOOK_NS - 1);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    g_assert_cmpint(seen.stopped, ==, 0);
    step_to(disk, &now_ns, 18 * LOOK_NS);
    g_assert_cmpint(seen.stopped, ==, 1);
    g_assert(!flag_of(disk->qts, "bulk", "blk-read", "limited"));
    step_to(disk, &now_ns, 100 * LOOK_NS);
    g_assert_cmpint(seen.started, ==, 1);
    g_assert_cmpint(seen.stopped, ==, 1);
    g_assert_cmpint(seen.foreign, ==, 0);
    disk_free(disk);
}

/* Held in three looks of four, however long: no news. */
static void test_event_hysteresis(void)
{
    Disk *disk = disk_new("", "");
    Seen seen = { 0 };
    int64_t now_ns = 0;

    qtest_qmp_set_event_callback(disk->qts, count_event, &seen);
    limit_class(disk, "bulk", 2, "blk-read");
    for (unsigned i = 0; i < 40; i++) {
        if (i % 4) {
            Request pair[2];

            send_many(disk, 2, VIRTIO_BLK_T_IN, 2, pair);
            wait_for(backlog(disk, "bulk", "blk-read") == 1);
        }
        step_to(disk, &now_ns, (i + 1) * LOOK_NS);
        wait_for(backlog(disk, "bulk", "blk-read") == 0);
    }
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "held-requests"),
                    ==, 30);
    g_assert_cmpint(seen.started + seen.stopped, ==, 0);
    disk_free(disk);
}

/* All classes at once: the events are spread, and none is lost. */
static void test_event_rate(void)
{
    enum { CLASSES = 15 };
    Disk *disk = disk_new("", "");
    Seen seen = { 0 };
    int64_t now_ns = 0;
    Request requests[3];

    qtest_qmp_set_event_callback(disk->qts, count_event, &seen);
    for (unsigned tag = 1; tag <= CLASSES; tag++) {
        g_autofree char *name = g_strdup_printf("class-%u", tag);

        qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
               "{'id': 'sluice0', 'class': %s, 'tag': %u, 'limits': "
               "[{'resource': 'blk-read', 'bytes-per-second': 100, "
               "'burst-bytes': 1}]}}", name, tag);
        send_many(disk, 3, VIRTIO_BLK_T_IN, tag, requests);
        wait_for(backlog(disk, name, "blk-read") == 2);
    }
    for (unsigned look = 1; look <= 20; look++) {
        unsigned due = look < 4 ? 0 : (look - 3) * EVENTS_PER_LOOK;

        step_to(disk, &now_ns, look * LOOK_NS);
        g_assert_cmpint(seen.started, ==, MIN(due, CLASSES));
    }
    g_assert_cmpint(seen.stopped, ==, 0);
    disk_free(disk);
}

/* One whose class bulk is limited since the fourth look. */
static Disk *limited_disk(Seen *seen, int64_t *now_ns)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    qtest_qmp_set_event_callback(disk->qts, count_event, seen);
    slow_class(disk, "bulk", 2);
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    step_to(disk, now_ns, 4 * LOOK_NS);
    g_assert_cmpint(seen->started, ==, 1);
    return disk;
}

static void test_event_removal(void)
{
    Seen seen = { 0 };
    int64_t now_ns = 0;
    Disk *disk = limited_disk(&seen, &now_ns);

    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    g_assert_cmpint(seen.stopped, ==, 1);
    g_assert_cmpint(seen.foreign, ==, 0);
    disk_free(disk);
}

/* The only disk goes: the class of its held requests is limited no more. */
static void test_event_unplug(void)
{
    Seen seen = { 0 };
    int64_t now_ns = 0;
    Disk *disk = limited_disk(&seen, &now_ns);

    qtest_qmp_device_del_send(disk->qts, "disk0");
    qtest_outl(disk->qts, ACPI_EJECT_PORT, 1 << SLOT);
    step_to(disk, &now_ns, 4 * LOOK_NS + 1);
    g_assert_cmpint(seen.stopped, ==, 1);
    g_assert(!flag_of(disk->qts, "bulk", "blk-read", "limited"));
    disk_free(disk);
}

static void check_says(const char *text, const char *const *words)
{
    for (; *words; words++) {
        if (!strstr(text, *words)) {
            g_error("'%s' does not say '%s'", text, *words);
        }
    }
}

static void test_info(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];
    g_autofree char *text = NULL;
    int64_t now_ns = 0;

    slow_class(disk, "bulk", 2);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'net-tx', "
           "'operations-per-second': 7000}]}}");
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    step_to(disk, &now_ns, 4 * LOOK_NS);
    wait_for(used_count(disk->qts, disk->vq) == 4);
    text = qtest_hmp(disk->qts, "info shaper");
    /* Waits of 0, 409.6 and 819.2 ms, each a nanosecond more; the next goes
     * 228.8 ms from now, when 2288 bytes have been made up for. */
    check_says(text, (const char *const []) {
        "sluice0: page ", disk->page, "device /machine/",
        "ceiling net-tx, limit 7000 operations/s (burst 350)",
        "class default: tag 0, priority 5", "class bulk: tag 2, priority 5",
        "blk-read: 4 requests, 16384 bytes, limit 10000 B/s (burst 4096), "
        "tokens -2288 B, held 3 (mean 409600 us), waiting 4 (16384 bytes)",
        "limited", NULL });
    disk_free(disk);
}

static void test_info_none(void)
{
    QTestState *qts = qtest_init("");
    g_autofree char *text = qtest_hmp(qts, "info shaper");

    g_assert(strstr(text, "no shaper"));
    qtest_quit(qts);
}

/* One of each decision leaves its mark. */
static void test_trace(void)
{
    g_autofree char *log = NULL;
    g_autofree char *text = NULL;
    g_autofree char *options = NULL;
    int fd = g_file_open_tmp("sluice-trace.XXXXXX", &log, NULL);
    Request requests[8];
    Disk *disk;

    close(fd);
    options = g_strdup_printf("-trace shaper_* -D %s", log);
    disk = disk_new("", options);
    hold_seven(disk, requests);
    qtest_clock_step(disk->qts, 1);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "completed-requests") == 2);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': []}}");
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    wait_for(backlog(disk, "bulk", "blk-read") == 6);
    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
    wait_for(used_count(disk->qts, disk->vq) == 8);
    disk_free(disk);
    g_assert(g_file_get_contents(log, &text, NULL, NULL));
    check_says(text, (const char *const []) {
        "verdict 0", "verdict 1", "shaper_release", "shaper_withdraw",
        "shaper_complete", "shaper_arm", "shaper_set_class", "shaper_bequeath",
        "shaper_remove_class", "shaper_set_ceiling", " init", " paused",
        " resumed", NULL });
    unlink(log);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/event/limited", test_event);
    qtest_add_func("/sluice/event/hysteresis", test_event_hysteresis);
    qtest_add_func("/sluice/event/rate", test_event_rate);
    qtest_add_func("/sluice/event/removal", test_event_removal);
    qtest_add_func("/sluice/event/unplug", test_event_unplug);
    qtest_add_func("/sluice/info/text", test_info);
    qtest_add_func("/sluice/info/no-shaper", test_info_none);
    qtest_add_func("/sluice/trace/decisions", test_trace);
    return g_test_run();
}
