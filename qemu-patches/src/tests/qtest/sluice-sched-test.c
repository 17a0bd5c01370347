/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of how classes are scheduled beside their limit: policies, weights,
 * reservations, minimum charge, unmanaged classes, and refusals.
 * Requests are of 4096 bytes, 4.096 ms at 1 MB/s. Later charges for seeks are tested in
 * sluice-receipt-test.c.
 */
#include "qemu/osdep.h"
#include "sluice-disk.h"

#define SET(arguments) "{'execute': 'shaper-set-class', 'arguments': " \
                       "{'id': 'sluice0', " arguments "}}"
#define BULK    "'class': 'bulk', 'tag': 2"
#define OTHER   "'class': 'other', 'tag': 3"
#define READS   "'resource': 'blk-read'"

static void set_ceiling_1mbps(Disk *disk)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{" READS ", 'bytes-per-second': "
           "1000000, 'burst-bytes': 1}]}}");
}

static void check_admitted(Disk *disk, unsigned count)
{
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, count);
}

static void test_leaky_bucket(void)
{
    Disk *disk = disk_new("", "");
    Request requests[6];

    qmp_ok(disk->qts, SET(BULK ", 'limits': [{" READS ", 'bytes-per-second': "
                          "1000000, 'burst-bytes': 1000000}], 'scheduling': "
                          "[{" READS ", 'policy': 'leaky-bucket'}]"));
    send_many(disk, 6, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 5);
    for (unsigned n = 1; n < 6; n++) {
        qtest_clock_step(disk->qts, REQUEST_NS - 1);
        check_admitted(disk, n);
        qtest_clock_step(disk->qts, 1);
        check_admitted(disk, n + 1);
    }
    wait_for(used_count(disk->qts, disk->vq) == 6);
    disk_free(disk);
}

static void test_token_leaky(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    /* A burst of four requests at four times the rate. */
    qmp_ok(disk->qts, SET(BULK ", 'limits': [{" READS ", 'bytes-per-second': "
                          "1000000, 'burst-bytes': 16384}], 'scheduling': [{"
                          READS ", 'policy': 'token-leaky', "
                          "'peak-bytes-per-second': 4000000}]"));
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    for (unsigned n = 1; n < 6; n++) {
        qtest_clock_step(disk->qts, REQUEST_NS / 4 - 1);
        check_admitted(disk, n);
        qtest_clock_step(disk->qts, 1);
        check_admitted(disk, n + 1);
    }
    /* The burst is gone, and so are the tokens of meanwhile: now at the rate. */
    qtest_clock_step(disk->qts, REQUEST_NS / 4);
    check_admitted(disk, 6);
    qtest_clock_step(disk->qts, REQUEST_NS / 2 + 1);
    check_admitted(disk, 7);
    qtest_clock_step(disk->qts, 4 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    disk_free(disk);
}

static void test_weights(void)
{
    Disk *disk = disk_new("", "");
    Request bulk[24], other[24];

    qmp_ok(disk->qts, SET(BULK ", 'weight': 300"));
    qmp_ok(disk->qts, SET(OTHER));
    set_ceiling_1mbps(disk);
    send_many(disk, 24, VIRTIO_BLK_T_IN, 2, bulk);
    wait_for(backlog(disk, "bulk", "blk-read") == 23);
    send_many(disk, 24, VIRTIO_BLK_T_IN, 3, other);
    wait_for(backlog(disk, "other", "blk-read") == 24);
    /* Twenty more: three of four are of the class with three times the weight. */
    qtest_clock_step(disk->qts, 20 * REQUEST_NS + 1);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read")
                    + admitted(disk, "other", "blk-read"), ==, 21);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), >=, 15);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), <=, 17);
    qtest_clock_step(disk->qts, 30 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 48);
    disk_free(disk);
}

static void test_reservation(void)
{
    Disk *disk = disk_new("", "");
    Request bulk[24], other[24];

    /* The worst priority, but a quarter is its own. */
    qmp_ok(disk->qts, SET(BULK ", 'priority': 9, 'scheduling': [{" READS
                          ", 'reservation-bytes-per-second': 250000}]"));
    qmp_ok(disk->qts, SET(OTHER ", 'priority': 0"));
    set_ceiling_1mbps(disk);
    send_many(disk, 24, VIRTIO_BLK_T_IN, 3, other);
    wait_for(backlog(disk, "other", "blk-read") == 23);
    send_many(disk, 24, VIRTIO_BLK_T_IN, 2, bulk);
    wait_for(backlog(disk, "bulk", "blk-read") == 24);
    qtest_clock_step(disk->qts, 20 * REQUEST_NS + 1);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), >=, 5);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), <=, 6);
    qtest_clock_step(disk->qts, 30 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 48);
    disk_free(disk);
}

static void test_minimum_charge(void)
{
    Disk *disk = disk_new("", "");
    Request requests[3];

    qmp_ok(disk->qts, SET(BULK ", 'limits': [{" READS ", " LIMIT_1MBPS "}], "
                          "'scheduling': [{" READS
                          ", 'minimum-charge-bytes': 40960}]"));
    send_many(disk, 3, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 2);
    /* Ten times its size, less the burst of one. */
    qtest_clock_step(disk->qts, 9 * REQUEST_NS);
    check_admitted(disk, 1);
    qtest_clock_step(disk->qts, 1);
    check_admitted(disk, 2);
    qtest_clock_step(disk->qts, 10 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "bytes"), ==,
                    3 * REQUEST_BYTES);
    disk_free(disk);
}

/* Charge for the work of the device */

#define READS_PER_SECOND    600
#define READ_NS             (1000 * NS_PER_MS / READS_PER_SECOND + 1)
#define FREE_READS          (READS_PER_SECOND / 10 + 1)     /* the throttle's */
#define MERGED              8

static uint32_t add_read(Disk *disk, uint64_t memory, unsigned n)
{
    uint64_t header = memory + n * (16 + REQUEST_BYTES + 1);
    QTestState *qts = disk->qts;
    uint32_t head;

    qtest_writel(qts, header, VIRTIO_BLK_T_IN);
    qtest_writel(qts, header + 4, ioprio_of_tag(2));
    qtest_writeq(qts, header + 8, n * REQUEST_BYTES / SECTOR_BYTES);
    head = qvirtqueue_add(qts, disk->vq, header, 16, false, true);
    qvirtqueue_add(qts, disk->vq, header + 16, REQUEST_BYTES, true, true);
    qvirtqueue_add(qts, disk->vq, header + 16 + REQUEST_BYTES, 1, true, false);
    return head;
}

/* Neighbours in one look at the ring, which the device merges into one. */
static void read_merged(Disk *disk, uint64_t memory, bool slow)
{
    uint16_t before = used_count(disk->qts, disk->vq);

    qvirtqueue_reset_pool(disk->vq);
    for (unsigned n = 0; n < MERGED; n++) {
        uint32_t head = add_read(disk, memory, n);
        uint16_t index = qtest_readw(disk->qts, disk->vq->avail + 2);

        if (n == MERGED - 1) {
            qvirtqueue_kick(disk->qts, disk->dev, disk->vq, head);
        } else {
            qtest_writew(disk->qts, disk->vq->avail + 4
                                    + 2 * (index % disk->vq->size), head);
            qtest_writew(disk->qts, disk->vq->avail + 2, index + 1);
        }
    }
    if (slow) {
        wait_for(stat_of(disk->qts, "bulk", "blk-read", "in-flight")
                 == MERGED);
        qtest_clock_step(disk->qts, READ_NS);
    }
    wait_for((uint16_t)(used_count(disk->qts, disk->vq) - before) == MERGED);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "in-flight") == 0);
}

/*
 * Of requests that are merged all but the first come back at the same time as
 * the one before. The disk has read them all the same, and they cost it.
 */
static void test_merged_reads_are_no_hits(void)
{
    Disk *disk = disk_new("", "");
    uint64_t memory = guest_alloc(&disk->qs->alloc,
                                  MERGED * (16 + REQUEST_BYTES + 1));
    Request request;

    qmp_ok(disk->qts, SET(BULK ", 'scheduling': [{" READS
                          ", 'charge': 'device'}]"));
    qmp_ok(disk->qts, "{'execute': 'block_set_io_throttle', 'arguments': "
           "{'id': '/machine/peripheral/disk0/virtio-backend', 'bps': 0, "
           "'bps_rd': 0, 'bps_wr': 0, 'iops': %u, 'iops_rd': 0, "
           "'iops_wr': 0}}", READS_PER_SECOND);
    for (unsigned i = 0; i < FREE_READS + 128; i++) {
        read_merged(disk, memory, i >= FREE_READS);
    }
    /* Tokens for seven and a byte: the eighth passes, and owes the rest. */
    qmp_ok(disk->qts, SET(BULK ", 'limits': [{" READS ", 'bytes-per-second': "
                          "1, 'burst-bytes': %u}], 'scheduling': [{" READS
                          ", 'charge': 'device'}]"),
           (MERGED - 1) * REQUEST_BYTES + 1);
    read_merged(disk, memory, true);
    request = send_request(disk, VIRTIO_BLK_T_IN, 2, 0, 0);
    wait_for(backlog(disk, "bulk", "blk-read") == 1);
    qtest_clock_step(disk->qts, 1000 * NS_PER_MS);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 1);
    g_assert_cmpint(status_of(disk, request), ==, PENDING);
    disk_free(disk);
}

/* All requests of a disk are one flow, and none overtakes within a flow. */
static void test_dynamic_keeps_the_order_of_a_disk(void)
{
    Disk *disk = disk_new("", "");
    Request requests[24];

    /* So that the memory of requests has been used before. */
    send_many(disk, 24, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 24);
    qmp_ok(disk->qts, SET(BULK ", 'limits': [{" READS ", " LIMIT_1MBPS "}], "
                          "'scheduling': [{" READS
                          ", 'dynamic': 'latency'}]"));
    send_many(disk, 24, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 23);
    for (unsigned n = 1; n <= 24; n++) {
        wait_for(used_count(disk->qts, disk->vq) == 24 + n);
        check_first_done(disk, requests, n, 24);
        qtest_clock_step(disk->qts, REQUEST_NS);
    }
    disk_free(disk);
}

static void test_unmanaged(void)
{
    Disk *disk = disk_new("", "");
    Request requests[8];

    qmp_ok(disk->qts, SET(BULK));
    set_ceiling_1mbps(disk);
    send_many(disk, 6, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 5);
    /* Its held requests go at once, and new ones pass. */
    qmp_ok(disk->qts, SET(BULK ", 'unmanaged': true"));
    wait_for(used_count(disk->qts, disk->vq) == 6);
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 14);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, 14);
    disk_free(disk);
}

static void test_query(void)
{
    Disk *disk = disk_new("", "");
    QDict *shaper;
    QList *classes;
    g_autoptr(GString) text = NULL;

    qmp_ok(disk->qts, SET(BULK ", 'weight': 7, 'scheduling': [{" READS
                          ", 'charge': 'device', 'window': "
                          "{'period-ns': 1000000, 'bytes': 4096, "
                          "'may-miss': 1, 'of': 4}}]"));
    shaper = query_shaper(disk->qts);
    classes = qdict_get_qlist(shaper, "classes");
    text = qobject_to_json(QOBJECT(classes));
    g_assert(strstr(text->str, "\"weight\": 100"));
    g_assert(strstr(text->str, "\"weight\": 7"));
    g_assert(strstr(text->str, "\"charge\": \"device\""));
    g_assert(strstr(text->str, "\"period-ns\": 1000000"));
    g_assert(strstr(text->str, "\"may-miss\": 1"));
    g_assert(strstr(text->str, "\"minimum-charge-bytes\": 4096"));
    qobject_unref(shaper);
    disk_free(disk);
}

/* Each refusal names the field, the value and the range or the remedy. */
static void check_refusals(QTestState *qts)
{
#define SCHED(text) SET("'class': 'a', 'tag': 1, 'limits': [{" READS \
                        ", 'bytes-per-second': 1000}], 'scheduling': " \
                        "[{" READS ", " text "}]")
#define WINDOW(text) SCHED("'window': {" text "}")
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'weight': 0"), "weight 0",
                "1 to 1000");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'weight': 1001"),
                "weight 1001", "1 to 1000");
    qmp_refused(qts, SCHED("'reservation-bytes-per-second': 1001"),
                "reservation-bytes-per-second 1001", "1 to 1000");
    qmp_refused(qts, SCHED("'reservation-bytes-per-second': 0"),
                "reservation-bytes-per-second 0", "1 to 1000");
    qmp_refused(qts, SCHED("'peak-bytes-per-second': 2000"),
                "peak-bytes-per-second 2000", "token-leaky");
    qmp_refused(qts, SCHED("'policy': 'token-leaky'"),
                "peak-bytes-per-second", "blk-read");
    qmp_refused(qts, SCHED("'policy': 'token-leaky', "
                           "'peak-bytes-per-second': 999"),
                "peak-bytes-per-second 999", "1000 to 1000000000000");
    qmp_refused(qts, SCHED("'minimum-charge-bytes': 1048577"),
                "minimum-charge-bytes 1048577", "0 to 1048576");
    qmp_refused(qts, SCHED("'minimum-charge-bytes': -1"),
                "minimum-charge-bytes -1", "0 to 1048576");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'scheduling': [{'resource': "
                         "'net-tx', 'charge': 'device'}]"),
                "charge 'device'", "net-tx", "blk-read");
    qmp_refused(qts, WINDOW("'period-ns': 999, 'bytes': 1"), "period-ns 999",
                "1000 to 3600000000000");
    qmp_refused(qts, WINDOW("'period-ns': 1000000000, 'bytes': 0"), "bytes 0",
                "1 to 4294967295");
    qmp_refused(qts, WINDOW("'period-ns': 1000000000, 'bytes': 1001"),
                "1001", "1 to 1000");
    qmp_refused(qts, WINDOW("'period-ns': 1000000000, 'bytes': 1, "
                            "'may-miss': 2, 'of': 2"), "may-miss 2", "0 to 1");
    qmp_refused(qts, WINDOW("'period-ns': 1000000000, 'bytes': 1, "
                            "'of': 1001"), "of 1001", "1 to 1000");
    qmp_refused(qts, SCHED("'reservation-bytes-per-second': 5, 'window': "
                           "{'period-ns': 1000000000, 'bytes': 1}"),
                "reservation-bytes-per-second 5", "window");
    qmp_refused(qts, SET("'class': 'a', 'tag': 1, 'scheduling': ["
                         "{" READS "}, {" READS "}]"), "'blk-read'", "twice");
    qmp_refused(qts, SCHED("'policy': 'random'"), "random");
#undef WINDOW
#undef SCHED
}

static void test_refused_input(void)
{
    Disk *disk = disk_new("", "");
    QDict *before, *after;
    g_autoptr(GString) before_text = NULL;
    g_autoptr(GString) after_text = NULL;

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
    qtest_add_func("/sluice/sched/leaky-bucket", test_leaky_bucket);
    qtest_add_func("/sluice/sched/token-leaky", test_token_leaky);
    qtest_add_func("/sluice/sched/weights", test_weights);
    qtest_add_func("/sluice/sched/reservation", test_reservation);
    qtest_add_func("/sluice/sched/minimum-charge", test_minimum_charge);
    qtest_add_func("/sluice/sched/merged-reads",
                   test_merged_reads_are_no_hits);
    qtest_add_func("/sluice/sched/dynamic",
                   test_dynamic_keeps_the_order_of_a_disk);
    qtest_add_func("/sluice/sched/unmanaged", test_unmanaged);
    qtest_add_func("/sluice/sched/query", test_query);
    qtest_add_func("/sluice/sched/refused-input", test_refused_input);
    return g_test_run();
}
