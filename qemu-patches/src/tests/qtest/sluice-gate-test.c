/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the gate of the disks: below the shaper is QEMU's own throttle, which lets one
 * request pass in a second of the virtual clock, so that the device is as slow as the test
 * wants. The least window, 64 KiB, is 16 requests.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "sluice-gate.h"

#define COUNT           24
#define DEFAULT_SLOT    0                       /* blk-read */
#define MOVIE_SLOT      4                       /* tag 1, blk-read */
#define BUSY_NS         128
#define OUTSTANDING_NS  136
#define OLDEST_NS       144
#define DEPTH           152
#define TARGET_NS       216
#define WINDOW_BYTES    224
#define IN_FLIGHT_BYTES 232
#define HELD_TIMES      240
#define HELD_NS         248

/* The window is full, and the others of so many wait. */
static bool is_full(Disk *disk, unsigned count)
{
    int64_t done = used_count(disk->qts, disk->vq);

    return gate_of(disk, "in-flight-bytes") == 64 * KiB
           && backlog(disk, "bulk", "blk-read") == count - done - WINDOW
           && used_count(disk->qts, disk->vq) == done;
}

static void fill(Disk *disk, Request requests[COUNT])
{
    send_many(disk, COUNT, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(is_full(disk, COUNT));
}

/* All are answered, in as many seconds as there are requests, or fewer. */
static void finish(Disk *disk, const Request *requests, unsigned count)
{
    unsigned done = used_count(disk->qts, disk->vq);

    for (; done < count; done++) {
        /* A read that a throttle at rest let go at once may have widened it once. */
        g_assert_cmpint(gate_of(disk, "in-flight-bytes"), <=, 80 * KiB);
        qtest_clock_step(disk->qts, 1000 * NS_PER_MS);
        wait_for(used_count(disk->qts, disk->vq) > done);
    }
    wait_for(gate_of(disk, "in-flight-bytes") <= 0);
    check_first_done(disk, requests, COUNT, COUNT);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
}

static void check_window(bool with_iothread)
{
    Disk *disk = slow_disk(with_iothread);
    Request requests[COUNT], movie;

    fill(disk, requests);
    movie = send_request(disk, VIRTIO_BLK_T_IN, 1, 0, 0);
    wait_for(admitted(disk, "movie", "blk-read") == 1);
    g_assert_cmpint(backlog(disk, "movie", "blk-read"), ==, 0);
    g_assert_cmpint(gate_of(disk, "in-flight-bytes"), ==, 64 * KiB);
    finish(disk, requests, COUNT + 1);
    g_assert_cmpint(status_of(disk, movie), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(gate_of(disk, "held-times"), >, 0);
    /* An I/O thread's throttle may let several go in a second. */
    g_assert_cmpint(gate_of(disk, "held-ns"), >, 0);
    disk_free(disk);
}

static void test_window(void)
{
    check_window(false);
}

static void test_window_iothread(void)
{
    check_window(true);
}

/* Reads of the stream wait in the device for what it has: exactly so long. */
static void test_page(void)
{
    Disk *disk = slow_disk(false);
    Request requests[COUNT];
    g_autofree char *before = NULL, *after = NULL;
    const char *movie, *gate;
    unsigned reads;

    fill(disk, requests);
    for (unsigned i = 0; i < 3; i++) {
        send_request(disk, VIRTIO_BLK_T_IN, 1, 0, 0);
    }
    wait_for(stat_of(disk->qts, "movie", "blk-read", "in-flight") == 3);
    qtest_clock_step(disk->qts, 500 * NS_PER_MS);
    before = next_page(disk->page);
    movie = before + PAGE_MORE_AT(MOVIE_SLOT);
    gate = before + PAGE_MORE_AT(DEFAULT_SLOT);
    g_assert_cmpint(ldq_le_p(movie + BUSY_NS), ==, 1500 * NS_PER_MS);
    g_assert_cmpint(ldq_le_p(movie + OUTSTANDING_NS), ==, 500 * NS_PER_MS);
    g_assert_cmpint(ldq_le_p(gate + TARGET_NS), ==, 1000);
    g_assert_cmpint(ldq_le_p(gate + WINDOW_BYTES), ==, 64 * KiB);
    g_assert_cmpint(ldq_le_p(gate + IN_FLIGHT_BYTES), ==, 64 * KiB);
    g_assert_cmpint(ldq_le_p(gate + HELD_TIMES), >, 0);
    g_assert_cmpint(ldq_le_p(gate + HELD_NS), ==, 500 * NS_PER_MS);
    for (reads = 0; reads < 3; reads++) {
        g_assert_cmpint(ldq_le_p(movie + DEPTH + 8 * reads), ==, 1);
    }
    finish(disk, requests, COUNT + 3);
    wait_for(stat_of(disk->qts, "movie", "blk-read", "in-flight") == 0);
    after = next_page(disk->page);
    movie = after + PAGE_MORE_AT(MOVIE_SLOT);
    g_assert_cmpint(ldq_le_p(movie + OLDEST_NS), ==, 0);
    g_assert_cmpint(ldq_le_p(movie + OUTSTANDING_NS), >, 500 * NS_PER_MS);
    g_assert_cmpint(ldq_le_p(movie + BUSY_NS), >,
                    ldq_le_p(movie + OUTSTANDING_NS));
    g_assert_cmpint(ldq_le_p(after + PAGE_MORE_AT(DEFAULT_SLOT)
                             + IN_FLIGHT_BYTES), ==, 0);
    disk_free(disk);
}

static void test_removed_gate_lets_all_go(void)
{
    Disk *disk = slow_disk(false);
    Request requests[COUNT];

    fill(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-gate', 'arguments': "
           "{'id': 'sluice0'}}");
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    g_assert_cmpint(gate_of(disk, "in-flight-bytes"), ==, -1);
    finish(disk, requests, COUNT);
    /* The next gate knows of none that is not there. */
    set_gate(disk);
    g_assert_cmpint(gate_of(disk, "in-flight-bytes"), ==, 0);
    disk_free(disk);
}

/* A drained disk is not throttled, but what it does then is counted. */
static void pay_debt(Disk *disk)
{
    qtest_clock_step(disk->qts, 2 * COUNT * 1000 * NS_PER_MS);
}

/* A drained disk is not throttled: the stop ends what is in flight. */
static void test_stop(void)
{
    Disk *disk = slow_disk(false);
    Request requests[COUNT];

    fill(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    g_assert_cmpint(gate_of(disk, "in-flight-bytes"), ==, 0);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    set_gate(disk);
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    pay_debt(disk);
    finish(disk, requests, COUNT);
    disk_free(disk);
}

static void test_reset(void)
{
    Disk *disk = slow_disk(false);
    Request requests[COUNT];

    fill(disk, requests);
    qvirtio_reset(disk->dev);
    g_assert_cmpint(gate_of(disk, "in-flight-bytes"), ==, 0);
    g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
    disk_stop(disk);
    disk_start(disk);
    set_gate(disk);
    pay_debt(disk);
    send_many(disk, COUNT, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") > 0);
    finish(disk, requests, COUNT);
    disk_free(disk);
}

/* A stream is one by its name: without the class its tag is the default class. */
static void test_removed_stream(void)
{
    Disk *disk = slow_disk(false);
    Request requests[COUNT];

    fill(disk, requests);
    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'movie'}}");
    send_request(disk, VIRTIO_BLK_T_IN, 1, 0, 0);
    wait_for(backlog(disk, "default", "blk-read") == 1);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'movie', 'tag': 3}}");
    send_request(disk, VIRTIO_BLK_T_IN, 3, 0, 0);
    wait_for(admitted(disk, "movie", "blk-read") == 1);
    g_assert_cmpint(backlog(disk, "default", "blk-read"), ==, 1);
    finish(disk, requests, COUNT + 2);
    disk_free(disk);
}

static void test_refusals(void)
{
    Disk *disk = slow_disk(false);
    QTestState *qts = disk->qts;

#define SET_GATE "{'execute': 'shaper-set-gate', 'arguments': {'id': 'sluice0', "
    qmp_refused(qts, SET_GATE "'target-ns': 999}}", "target-ns", "999", "1000");
    qmp_refused(qts, SET_GATE "'target-ns': 60000000001}}", "target-ns");
    qmp_refused(qts, SET_GATE "'target-ns': 5000, 'window-percent': 0}}",
                "window-percent", "100");
    qmp_refused(qts, SET_GATE "'target-ns': 5000, 'streams': ['movie', 'opera']}}",
                "opera", "query-shapers");
    qmp_refused(qts, SET_GATE "'target-ns': 5000, 'streams': ['bulk', 'bulk']}}",
                "bulk", "twice");
    qmp_refused(qts, SET_GATE "'streams': ['movie']}}", "streams", "target-ns");
    qmp_refused(qts, SET_GATE "'streams': []}}", "streams", "target-ns");
    qmp_refused(qts, SET_GATE "'window-percent': 100}}", "window-percent",
                "target-ns");
    qmp_refused(qts, "{'execute': 'shaper-set-gate', 'arguments': {'id': 'x', "
                "'target-ns': 5000}}", "x", "query-shapers");
    /* None of them has changed anything. */
    g_assert_cmpint(gate_of(disk, "window-bytes"), ==, 64 * KiB);
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/gate/window", test_window);
    qtest_add_func("/sluice/gate/window-iothread", test_window_iothread);
    qtest_add_func("/sluice/gate/page", test_page);
    qtest_add_func("/sluice/gate/removed-gate-lets-all-go",
                   test_removed_gate_lets_all_go);
    qtest_add_func("/sluice/gate/stop", test_stop);
    qtest_add_func("/sluice/gate/reset", test_reset);
    qtest_add_func("/sluice/gate/removed-stream", test_removed_stream);
    qtest_add_func("/sluice/gate/refusals", test_refusals);
    return g_test_run();
}
