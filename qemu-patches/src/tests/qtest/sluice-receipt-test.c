/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of receipts on disks: the charge of a request before a stop, and its real
 * cost, are settled with the class, ceiling and group of then. Those that may have come
 * to their place have so few tokens here that a gift or a debt shows.
 *
 * Requests are of 4096 bytes, and limits of 4000 bytes per second with a burst
 * of one request: one passes, the next as soon as there is any token, and each
 * further one 1.024 s after the one before it.
 *
 * The stop. A released request goes on at the next turn of the main loop, so
 * the stop must come in the very turn that releases it. A watchdog does that:
 * its timer fires in the same step of the clock, and the VM is paused.
 *
 * The disk. A throttle below the shaper, on the virtual clock too, makes requests take
 * 100 ms; the cost model learns that these are seeks.
 */
#include "qemu/osdep.h"
#include "sluice-group.h"
#include "sluice-state.h"

#define SLOW_RATE       4000                    /* bytes per second */
#define SLOW            "'bytes-per-second': 4000, 'burst-bytes': 4096"
#define AMPLE           "'bytes-per-second': 1000000000"
#define READS           "'resource': 'blk-read'"
#define WRITES          "'resource': 'blk-write'"
#define SLOW_NS         (1024 * NS_PER_MS)      /* for one request */

#define WATCHDOG        "-device ib700 -action watchdog=pause"
#define WATCHDOG_PORT   0x443
#define WATCHDOG_2_S    14                      /* as its table has it */
#define STOP_NS         (2000 * NS_PER_MS)
#define COUNT           4

#define SEEKS_PER_SECOND 10
#define SEEK_NS         (1000 * NS_PER_MS / SEEKS_PER_SECOND)
#define SEEKS           32
#define HITS            512                     /* then the model has learnt */
#define READS_AT_ONCE   64

/* Configuration */

/* A class with these limits; `more` is further arguments. */
#define set_class(disk, class, tag, limits, more)                           \
    qmp_ok((disk)->qts, "{'execute': 'shaper-set-class', 'arguments': "     \
           "{'id': 'sluice0', 'class': '" class "', 'tag': %u, 'limits': [" \
           limits "]" more "}}", (unsigned)(tag))

#define BY_DEVICE   ", 'scheduling': [{" READS ", 'charge': 'device'}]"
#define SLOW_READS  "{" READS ", " SLOW "}"
#define SLOW_BOTH   SLOW_READS ", {" WRITES ", " SLOW "}"
#define AMPLE_READS "{" READS ", " AMPLE "}"

static void remove_bulk(Disk *disk)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk'}}");
}

static void set_ceiling(Disk *disk, bool limited)
{
    if (limited) {
        qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
               "{'id': 'sluice0', 'limits': [" SLOW_READS "]}}");
    } else {
        qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
               "{'id': 'sluice0', 'limits': []}}");
    }
}

/* Groups of SLOW_RATE, "first" and "second"; the disk joins the first. */
typedef struct Groups {
    char *first, *second;
} Groups;

static char *open_group(Disk *disk, const char *id)
{
    char *path = new_group();

    rewrite_limit(path, SLOW_RATE, 0, 0);
    qmp_ok(disk->qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper-group', 'id': %s, 'path': %s}}", id, path);
    return path;
}

static void join(Disk *disk, const char *id)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': 'blk-read', 'group': %s, 'weight': 100}}",
           id);
}

static Groups open_groups(Disk *disk)
{
    Groups groups = { open_group(disk, "first"), open_group(disk, "second") };

    join(disk, "first");
    return groups;
}

static void free_groups(Groups groups)
{
    free_group(groups.first);
    free_group(groups.second);
}

#define held(disk, class)   backlog(disk, class, "blk-read")
#define passed(disk, class) admitted(disk, class, "blk-read")

/* Refunds */

/*
 * A request that may be a read or a write of `out_bytes`: it has memory for either, so
 * its header alone decides.
 */
static Request send_either(Disk *disk, uint64_t sector, uint32_t out_bytes)
{
    QTestState *qts = disk->qts;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + 2 * REQUEST_BYTES + 1);
    Request request = { .data = header + 16,
                        .status = header + 16 + 2 * REQUEST_BYTES };
    uint32_t head;

    qtest_writel(qts, header, VIRTIO_BLK_T_IN);
    qtest_writel(qts, header + 4, ioprio_of_tag(2));
    qtest_writeq(qts, header + 8, sector);
    qtest_writeb(qts, request.status, PENDING);
    head = qvirtqueue_add(qts, disk->vq, header, 16, false, true);
    qvirtqueue_add(qts, disk->vq, request.data, out_bytes, false, true);
    qvirtqueue_add(qts, disk->vq, request.data + REQUEST_BYTES, REQUEST_BYTES,
                   true, true);
    qvirtqueue_add(qts, disk->vq, request.status, 1, true, false);
    qvirtqueue_kick(qts, disk->dev, disk->vq, head);
    return request;
}

/*
 * Four reads of class bulk, which some limit slows down. The first is answered,
 * two are released in the turn that stops the VM, and the last is still held.
 */
static void stop_with_two_of(Disk *disk, Request requests[COUNT],
                             uint32_t out_bytes)
{
    for (unsigned i = 0; i < COUNT; i++) {
        requests[i] = send_either(disk, i * REQUEST_BYTES / SECTOR_BYTES,
                                  out_bytes);
    }
    wait_for(held(disk, "bulk") == COUNT - 1);
    wait_for(used_count(disk->qts, disk->vq) == 1);
    qtest_outb(disk->qts, WATCHDOG_PORT, WATCHDOG_2_S);
    qtest_clock_step(disk->qts, STOP_NS);
    qtest_qmp_eventwait(disk->qts, "STOP");
    g_assert_cmpint(passed(disk, "bulk"), ==, COUNT - 1);
    g_assert_cmpint(held(disk, "bulk"), ==, 0);
    g_assert_cmpint(used_count(disk->qts, disk->vq), ==, 1);
}

static void stop_with_two_released(Disk *disk, Request requests[COUNT])
{
    stop_with_two_of(disk, requests, REQUEST_BYTES);
}

static void cont(Disk *disk)
{
    qmp_ok(disk->qts, "{'execute': 'cont'}");
}

/* The guest makes others of the two while the VM is stopped, which then goes on. */
static void make_of_two_released(Disk *disk, Request requests[COUNT],
                                 uint32_t type)
{
    stop_with_two_released(disk, requests);
    for (unsigned i = 1; i < 3; i++) {
        qtest_writel(disk->qts, requests[i].data - 16, type);
    }
    cont(disk);
}

/* One by one, SLOW_NS apart. */
static void finish_all(Disk *disk)
{
    wait_for((qtest_clock_step(disk->qts, SLOW_NS),
              used_count(disk->qts, disk->vq) == COUNT));
    disk_free(disk);
}

/* Charged requests go on, and no class is charged or refunded. */
static void test_refund_not_due(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    int64_t next_ns = 2 * SLOW_NS + 1 - STOP_NS;
    Request requests[COUNT];

    set_class(disk, "bulk", 2, SLOW_READS, "");
    stop_with_two_released(disk, requests);
    cont(disk);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    wait_for(held(disk, "bulk") == 1);
    qtest_clock_step(disk->qts, next_ns - 1);
    g_assert_cmpint(passed(disk, "bulk"), ==, 3);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(passed(disk, "bulk"), ==, 4);
    finish_all(disk);
}

/*
 * They belong to another class, which has one request's tokens. They are judged
 * anew, one after the other, and the second waits.
 */
static void check_judged_by(Disk *disk, const char *class, int64_t before)
{
    cont(disk);
    wait_for(held(disk, class) == 2);
    wait_for(used_count(disk->qts, disk->vq) == 2);
    g_assert_cmpint(passed(disk, class), ==, before + 1);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(passed(disk, class), ==, before + 2);
}

/* A stranger with the tag of the class that was charged gets nothing. */
static void test_refund_class_replaced(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, SLOW_READS, "");
    stop_with_two_released(disk, requests);
    remove_bulk(disk);
    set_class(disk, "other", 2, SLOW_READS, "");
    check_judged_by(disk, "other", passed(disk, "other"));
    finish_all(disk);
}

/* The class has another tag; theirs is free, so the default class's. */
static void test_refund_tag_changed(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, SLOW_READS, "");
    set_class(disk, "default", 0, SLOW_READS, "");
    stop_with_two_released(disk, requests);
    set_class(disk, "bulk", 3, SLOW_READS, "");
    check_judged_by(disk, "default", 0);
    finish_all(disk);
}

/*
 * The guest makes writes of them while the VM is stopped. The reads' tokens
 * come back, enough for the held one; writes are charged as writes.
 */
static void test_refund_other_resource(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, SLOW_BOTH, "");
    make_of_two_released(disk, requests, VIRTIO_BLK_T_OUT);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    g_assert_cmpint(passed(disk, "bulk"), ==, COUNT);
    g_assert_cmpint(held(disk, "bulk"), ==, 0);
    g_assert_cmpint(admitted(disk, "bulk", "blk-write"), ==, 1);
    g_assert_cmpint(backlog(disk, "bulk", "blk-write"), ==, 1);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(admitted(disk, "bulk", "blk-write"), ==, 2);
    finish_all(disk);
}

/* Only the last is held: the two got their tokens back and spent them again. */
static void check_refunded(Disk *disk)
{
    cont(disk);
    wait_for(used_count(disk->qts, disk->vq) == 3);
    wait_for(held(disk, "other") == 1);
}

/* Their class is another, which limits nothing: the ceiling above it does. */
static void replace_ample_class(Disk *disk)
{
    remove_bulk(disk);
    set_class(disk, "other", 2, AMPLE_READS, "");
}

static void check_refund_ceiling(bool replaced)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, AMPLE_READS, "");
    set_ceiling(disk, true);
    stop_with_two_released(disk, requests);
    replace_ample_class(disk);
    if (replaced) {
        set_ceiling(disk, false);
        set_ceiling(disk, true);
        check_judged_by(disk, "other", passed(disk, "other"));
    } else {
        check_refunded(disk);
    }
    finish_all(disk);
}

static void test_refund_same_ceiling(void)
{
    check_refund_ceiling(false);
}

static void test_refund_other_ceiling(void)
{
    check_refund_ceiling(true);
}

static void check_refund_group(bool changed)
{
    Disk *disk = disk_new("", WATCHDOG);
    Groups groups = open_groups(disk);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, AMPLE_READS, "");
    stop_with_two_released(disk, requests);
    replace_ample_class(disk);
    if (changed) {
        join(disk, "second");
        cont(disk);
        wait_for(held(disk, "other") == 2);
        wait_for(used_count(disk->qts, disk->vq) == 2);
    } else {
        check_refunded(disk);
    }
    finish_all(disk);
    free_groups(groups);
}

static void test_refund_same_group(void)
{
    check_refund_group(false);
}

static void test_refund_other_group(void)
{
    check_refund_group(true);
}

/*
 * They are never resumed: the guest is reset. Their class was charged for nothing, which
 * is as if but one request had gone.
 */
static void test_refund_reset(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];
    int64_t tokens;

    set_class(disk, "bulk", 2, SLOW_READS, "");
    stop_with_two_released(disk, requests);
    tokens = stat_of(disk->qts, "bulk", "blk-read", "tokens-bytes");
    qmp_ok(disk->qts, "{'execute': 'system_reset'}");
    qtest_qmp_eventwait(disk->qts, "RESET");
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "tokens-bytes"), ==,
                    MIN(tokens + 2 * REQUEST_BYTES, REQUEST_BYTES));
    disk_free(disk);
}

/*
 * The guest makes of the first a request that no device takes, which breaks the device:
 * the others are purged with it. Both were charged for nothing.
 */
static void test_refund_broken(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];
    int64_t tokens;

    set_class(disk, "bulk", 2, SLOW_READS, "");
    stop_with_two_of(disk, requests, SECTOR_BYTES / 64);
    tokens = stat_of(disk->qts, "bulk", "blk-read", "tokens-bytes");
    qtest_writel(disk->qts, requests[1].data - 16, VIRTIO_BLK_T_WRITE_ZEROES);
    cont(disk);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "tokens-bytes")
             == MIN(tokens + 2 * REQUEST_BYTES, REQUEST_BYTES));
    g_assert_cmpint(held(disk, "bulk"), ==, 0);
    g_assert_cmpint(stat_of(disk->qts, "bulk", "blk-read", "in-flight"), ==, 0);
    disk_free(disk);
}

/*
 * The guest makes flushes of them, which are not judged. Their tokens come back, enough
 * for the held one.
 */
static void test_refund_not_judged(void)
{
    Disk *disk = disk_new("", WATCHDOG);
    Request requests[COUNT];

    set_class(disk, "bulk", 2, SLOW_READS, "");
    make_of_two_released(disk, requests, VIRTIO_BLK_T_FLUSH);
    wait_for(used_count(disk->qts, disk->vq) == COUNT);
    g_assert_cmpint(passed(disk, "bulk"), ==, COUNT);
    disk_free(disk);
}

/*
 * Migration. The target charges anew requests that were charged and not done, from
 * buckets that are sent as if they had not been: so everything is charged once. Three
 * pass at first, two are released in the turn that stops the VM, and one is held, as
 * long as it would have been here.
 */
static void check_charged_once_by_target(Move *move)
{
    Disk *source = move->source, *target = &move->target;
    int64_t next_ns = 2 * SLOW_NS - STOP_NS;
    Request requests[6];

    send_many(source, 6, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(held(source, "bulk") == 3);
    wait_for(used_count(source->qts, source->vq) == 3);
    qtest_outb(source->qts, WATCHDOG_PORT, WATCHDOG_2_S);
    qtest_clock_step(source->qts, STOP_NS);
    qtest_qmp_eventwait(source->qts, "STOP");
    g_assert_cmpint(passed(source, "bulk"), ==, 5);
    g_assert_cmpint(used_count(source->qts, source->vq), ==, 3);
    move_go(move);
    target->vq = source->vq;
    cont(target);
    wait_for(used_count(target->qts, target->vq) == 5);
    wait_for(held(target, "bulk") == 1);
    qtest_clock_step(target->qts, next_ns - NS_PER_MS);
    g_assert_cmpint(held(target, "bulk"), ==, 1);
    qtest_clock_step(target->qts, 2 * NS_PER_MS);
    wait_for(used_count(target->qts, target->vq) == 6);
    move_end(move);
}

#define THREE_AT_ONCE "{" READS ", 'bytes-per-second': 4000, "              \
                      "'burst-bytes': 12288, 'operations-per-second': 10, " \
                      "'burst-operations': 100}"

static void test_migrate_class(void)
{
    Move move;

    move_init(&move, WATCHDOG);
    set_class(move.source, "bulk", 2, THREE_AT_ONCE, "");
    check_charged_once_by_target(&move);
}

static void test_migrate_ceiling(void)
{
    Move move;

    move_init(&move, WATCHDOG);
    set_class(move.source, "bulk", 2, AMPLE_READS, "");
    qmp_ok(move.source->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [" THREE_AT_ONCE "]}}");
    check_charged_once_by_target(&move);
}

/* Corrections */

static void throttle(Disk *disk, unsigned per_second)
{
    qmp_ok(disk->qts, "{'execute': 'block_set_io_throttle', 'arguments': "
           "{'id': '/machine/peripheral/disk0/virtio-backend', 'bps': 0, "
           "'bps_rd': 0, 'bps_wr': 0, 'iops': %u, 'iops_rd': 0, "
           "'iops_wr': 0}}", per_second);
}

/* Reads of class bulk while nothing else is on its way; the last are slow. */
static void read_some(Disk *disk, unsigned count, unsigned slow)
{
    Request requests[READS_AT_ONCE];
    uint16_t before = used_count(disk->qts, disk->vq);

    qvirtqueue_reset_pool(disk->vq);
    send_many(disk, count, VIRTIO_BLK_T_IN, 2, requests);
    for (unsigned n = count - slow;; n++) {
        wait_for((uint16_t)(used_count(disk->qts, disk->vq) - before) == n);
        if (n == count) {
            break;
        }
        qtest_clock_step(disk->qts, SEEK_NS);
    }
    for (unsigned i = 0; i < count; i++) {
        guest_free(&disk->qs->alloc, requests[i].data - 16);
    }
}

/*
 * A disk that knows its seeks, of which its next request is one. The throttle lets
 * two pass first. Class bulk is charged for seeks; its limits are to come.
 */
static Disk *disk_that_seeks(void)
{
    Disk *disk = disk_new(",request-merging=off", "");

    set_class(disk, "bulk", 2, "", BY_DEVICE);
    throttle(disk, SEEKS_PER_SECOND);
    read_some(disk, 2 + SEEKS, SEEKS);
    throttle(disk, 0);
    for (unsigned i = 0; i < HITS; i += READS_AT_ONCE) {
        read_some(disk, READS_AT_ONCE, 0);
    }
    throttle(disk, SEEKS_PER_SECOND);
    read_some(disk, 2, 0);
    qvirtqueue_reset_pool(disk->vq);
    return disk;
}

/* A read of class bulk, charged and on its way. */
static void start_seek(Disk *disk)
{
    int64_t before = passed(disk, "bulk");

    send_request(disk, VIRTIO_BLK_T_IN, 2, 0, 0);
    wait_for(passed(disk, "bulk") == before + 1);
    g_assert_cmpint(held(disk, "bulk"), ==, 0);
}

/* It is done, and found to be a seek. */
static void end_seek(Disk *disk)
{
    uint16_t before = used_count(disk->qts, disk->vq);

    qtest_clock_step(disk->qts, SEEK_NS);
    wait_for((uint16_t)(used_count(disk->qts, disk->vq) - before) == 1);
}

/* Whether one more read, which is of this class, has to wait. */
static bool must_wait(Disk *disk, const char *class)
{
    int64_t before = passed(disk, class);

    send_request(disk, VIRTIO_BLK_T_IN, 2, 0, 0);
    wait_for(passed(disk, class) + held(disk, class) == before + 1);
    return held(disk, class) == 1;
}

/* It had the tokens of one request, which are spent, and owes four more. */
static void test_correction_same_class(void)
{
    Disk *disk = disk_that_seeks();
    int64_t before;

    set_class(disk, "bulk", 2, SLOW_READS, BY_DEVICE);
    start_seek(disk);
    end_seek(disk);
    before = passed(disk, "bulk");
    g_assert(must_wait(disk, "bulk"));
    qtest_clock_step(disk->qts, 4 * SLOW_NS - SEEK_NS);
    g_assert_cmpint(passed(disk, "bulk"), ==, before);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(passed(disk, "bulk"), ==, before + 1);
    disk_free(disk);
}

/* A stranger with its tag has the tokens of one request, and owes nothing. */
static void test_correction_class_replaced(void)
{
    Disk *disk = disk_that_seeks();

    set_class(disk, "bulk", 2, SLOW_READS, BY_DEVICE);
    start_seek(disk);
    remove_bulk(disk);
    set_class(disk, "other", 2, SLOW_READS, BY_DEVICE);
    end_seek(disk);
    g_assert(!must_wait(disk, "other"));
    disk_free(disk);
}

static void check_correction_ceiling(bool replaced)
{
    Disk *disk = disk_that_seeks();

    set_ceiling(disk, true);
    start_seek(disk);
    if (replaced) {
        set_ceiling(disk, false);
        set_ceiling(disk, true);
    }
    end_seek(disk);
    g_assert(must_wait(disk, "bulk") == !replaced);
    disk_free(disk);
}

static void test_correction_same_ceiling(void)
{
    check_correction_ceiling(false);
}

static void test_correction_other_ceiling(void)
{
    check_correction_ceiling(true);
}

static void check_correction_group(bool changed)
{
    Disk *disk = disk_that_seeks();
    Groups groups = open_groups(disk);

    start_seek(disk);
    if (changed) {
        join(disk, "second");
    }
    end_seek(disk);
    g_assert(must_wait(disk, "bulk") == !changed);
    disk_free(disk);
    free_groups(groups);
}

static void test_correction_same_group(void)
{
    check_correction_group(false);
}

static void test_correction_other_group(void)
{
    check_correction_group(true);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/receipt/refund/not-due", test_refund_not_due);
    qtest_add_func("/sluice/receipt/refund/class-replaced",
                   test_refund_class_replaced);
    qtest_add_func("/sluice/receipt/refund/tag-changed",
                   test_refund_tag_changed);
    qtest_add_func("/sluice/receipt/refund/reset", test_refund_reset);
    qtest_add_func("/sluice/receipt/refund/broken", test_refund_broken);
    qtest_add_func("/sluice/receipt/refund/not-judged", test_refund_not_judged);
    qtest_add_func("/sluice/receipt/refund/other-resource",
                   test_refund_other_resource);
    qtest_add_func("/sluice/receipt/refund/same-ceiling",
                   test_refund_same_ceiling);
    qtest_add_func("/sluice/receipt/refund/other-ceiling",
                   test_refund_other_ceiling);
    qtest_add_func("/sluice/receipt/refund/same-group", test_refund_same_group);
    qtest_add_func("/sluice/receipt/refund/other-group",
                   test_refund_other_group);
    qtest_add_func("/sluice/receipt/migrate/class", test_migrate_class);
    qtest_add_func("/sluice/receipt/migrate/ceiling", test_migrate_ceiling);
    qtest_add_func("/sluice/receipt/correction/same-class",
                   test_correction_same_class);
    qtest_add_func("/sluice/receipt/correction/class-replaced",
                   test_correction_class_replaced);
    qtest_add_func("/sluice/receipt/correction/same-ceiling",
                   test_correction_same_ceiling);
    qtest_add_func("/sluice/receipt/correction/other-ceiling",
                   test_correction_other_ceiling);
    qtest_add_func("/sluice/receipt/correction/same-group",
                   test_correction_same_group);
    qtest_add_func("/sluice/receipt/correction/other-group",
                   test_correction_other_group);
    return g_test_run();
}
