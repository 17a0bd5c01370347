/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of held disk requests while the machine or the device goes through its life,
 * many times over in one QEMU: a request is answered exactly once, or it went with its
 * queue, and nothing of it stays behind.
 *
 * SLUICE_CYCLES says how often (2). Under the address sanitizer lost memory
 * shows when QEMU exits, because it fails then.
 *
 * As in sluice-blk-test.c a request of class bulk costs 4.096 ms of the virtual
 * clock, and the first of a batch passes: between two cycles the clock goes on
 * far enough for that.
 */
#include "qemu/osdep.h"
#include "sluice-variants.h"

#define BATCH           8
#define LONG_NS         (100 * REQUEST_NS)
#define PIIX4_PM        QPCI_DEVFN(1, 3)
#define PM_BASE         0x600
#define SNAPSHOT(verb, options)                                             \
    "{'execute': 'snapshot-" verb "', 'arguments': {'job-id': 'job', "      \
    "'tag': 's', " options "'devices': ['d0']}}"
#define DEVICE_ADD(options)                                                 \
    "{'execute': 'device_add', 'arguments': {'driver': 'virtio-blk-pci', "  \
    "'id': 'disk0', 'drive': 'd0', 'addr': '" stringify(SLOT) "', "         \
    "'shaper': 'sluice0'" options "}}"

static Disk *start(const Variant *variant)
{
    return disk_new(variant->options, variant->more);
}

static void limit_bulk(Disk *disk)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': ["
           "{'resource': 'blk-read', " LIMIT_1MBPS "}, "
           "{'resource': 'blk-write', " LIMIT_1MBPS "}]}}");
}

/*
 * A batch of reads and writes of class bulk, of which the first read and the
 * first write pass and the others are held.
 */
static void hold_batch(Disk *disk, Request requests[BATCH])
{
    uint16_t before = used_count(disk->qts, disk->vq);

    /* The queue is idle: its descriptors may be used again. */
    qvirtqueue_reset_pool(disk->vq);
    limit_bulk(disk);
    qtest_clock_step(disk->qts, LONG_NS);
    for (unsigned i = 0; i < BATCH; i++) {
        requests[i] = send_request(disk, i % 2 ? VIRTIO_BLK_T_OUT
                                               : VIRTIO_BLK_T_IN, 2,
                                   (i / 2 + 8 * (i % 2)) * REQUEST_BYTES
                                   / SECTOR_BYTES, 0x10 + i);
    }
    wait_for(backlog(disk, "bulk", "blk-read") == BATCH / 2 - 1);
    wait_for(backlog(disk, "bulk", "blk-write") == BATCH / 2 - 1);
    wait_for((uint16_t)(used_count(disk->qts, disk->vq) - before) == 2);
}

/* Nothing is held, and nothing is with the disk. */
static void check_idle(Disk *disk)
{
    static const char *const names[] = { "blk-read", "blk-write" };

    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        g_assert_cmpint(backlog(disk, "bulk", names[i]), ==, 0);
        g_assert_cmpint(stat_of(disk->qts, "bulk", names[i], "in-flight"), ==,
                        0);
    }
}

/*
 * Lets the clock go on until the batch is answered, each exactly once. Step by
 * step, because an I/O thread may judge some of them anew only now.
 */
static void finish_batch(Disk *disk, const Request requests[BATCH],
                         uint16_t before)
{
    wait_for((qtest_clock_step(disk->qts, REQUEST_NS),
              (uint16_t)(used_count(disk->qts, disk->vq) - before) == BATCH));
    check_first_done(disk, requests, BATCH, BATCH);
    wait_for(stat_of(disk->qts, "bulk", "blk-read", "in-flight") == 0
             && stat_of(disk->qts, "bulk", "blk-write", "in-flight") == 0);
    check_idle(disk);
    qtest_clock_step(disk->qts, LONG_NS);
    g_assert_cmpint((uint16_t)(used_count(disk->qts, disk->vq) - before), ==,
                    BATCH);
}

/* Those that were held when their queue went are never answered. */
static void check_forgotten(Disk *disk, const Request requests[BATCH])
{
    check_idle(disk);
    qtest_clock_step(disk->qts, LONG_NS);
    for (unsigned i = 0; i < BATCH; i++) {
        g_assert_cmpint(status_of(disk, requests[i]), ==,
                        i < 2 ? VIRTIO_BLK_S_OK : PENDING);
    }
}

static void free_batch(Disk *disk, const Request requests[BATCH])
{
    for (unsigned i = 0; i < BATCH; i++) {
        guest_free(&disk->qs->alloc, requests[i].data - 16);
    }
}

static void test_device_reset(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(disk, requests);
        qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
        qvirtio_start_device(disk->dev);
        check_forgotten(disk, requests);
        free_batch(disk, requests);
        setup_queue(disk);
    }
    disk_free(disk);
}

/*
 * A queue's own reset, while requests are held, or kept by a stop, or just taken up
 * after it: they are gone with the ring, and the next ring is as good as new.
 */
static void check_queue_reset(const void *variant, bool stops, bool goes_on)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(disk, requests);
        if (stops) {
            qmp_ok(disk->qts, "{'execute': 'stop'}");
        }
        if (stops && goes_on) {
            qmp_ok(disk->qts, "{'execute': 'cont'}");
        }
        reset_queue(disk, 0);
        if (stops && !goes_on) {
            qmp_ok(disk->qts, "{'execute': 'cont'}");
        }
        check_forgotten(disk, requests);
        g_assert_cmpint(used_count(disk->qts, disk->vq), ==, 2);
        renew_queue(disk);
        free_batch(disk, requests);
        hold_batch(disk, requests);
        finish_batch(disk, requests, 0);
        free_batch(disk, requests);
        reset_queue(disk, 0);
        renew_queue(disk);
    }
    disk_free(disk);
}

static void test_queue_reset(const void *variant)
{
    check_queue_reset(variant, false, false);
}

static void test_queue_reset_stopped(const void *variant)
{
    check_queue_reset(variant, true, false);
}

static void test_queue_reset_going_on(const void *variant)
{
    check_queue_reset(variant, true, true);
}

static void test_system_reset(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(disk, requests);
        qmp_ok(disk->qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(disk->qts, "RESET");
        check_forgotten(disk, requests);
        free_batch(disk, requests);
        disk_stop(disk);
        disk_start(disk);
    }
    disk_free(disk);
}

static void test_stop_cont(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        /* Some are released at the very moment of the stop: charged once. */
        qtest_clock_step(disk->qts, 1 + i % 3 * REQUEST_NS);
        qmp_ok(disk->qts, "{'execute': 'stop'}");
        g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, 0);
        if (i % 2) {
            qmp_ok(disk->qts, "{'execute': 'cont'}");
            qmp_ok(disk->qts, "{'execute': 'stop'}");
        }
        qmp_ok(disk->qts, "{'execute': 'cont'}");
        finish_batch(disk, requests, before);
        g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==,
                        (i + 1) * BATCH / 2);
        g_assert_cmpint(admitted(disk, "bulk", "blk-write"), ==,
                        (i + 1) * BATCH / 2);
        free_batch(disk, requests);
    }
    disk_free(disk);
}

/* Reset while stopped: requests that wait for the restart go too. */
static void test_stop_reset(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(disk, requests);
        qmp_ok(disk->qts, "{'execute': 'stop'}");
        qmp_ok(disk->qts, "{'execute': 'system_reset'}");
        qtest_qmp_eventwait(disk->qts, "RESET");
        qmp_ok(disk->qts, "{'execute': 'cont'}");
        check_forgotten(disk, requests);
        free_batch(disk, requests);
        disk_stop(disk);
        disk_start(disk);
    }
    disk_free(disk);
}

/* The old device keeps its drive until its last user of memory is gone. */
static bool add_device(Disk *disk, const Variant *variant)
{
    QDict *response =
        strstr(variant->options, "iothread")
        ? qtest_qmp(disk->qts, DEVICE_ADD(", 'iothread': 'io0'"))
        : strstr(variant->options, "ioeventfd=off")
        ? qtest_qmp(disk->qts, DEVICE_ADD(", 'ioeventfd': false"))
        : qtest_qmp(disk->qts, DEVICE_ADD(""));
    bool added = qdict_haskey(response, "return");

    qobject_unref(response);
    return added;
}

static void test_unplug(const void *opaque)
{
    const Variant *variant = opaque;
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        hold_batch(disk, requests);
        qpci_unplug_acpi_device_test(disk->qts, "disk0", SLOT);
        check_forgotten(disk, requests);
        free_batch(disk, requests);
        disk_stop(disk);
        wait_for(add_device(disk, variant));
        disk_start(disk);
    }
    disk_free(disk);
}

/* Suspends to RAM, as a guest that did not quiesce would, and wakes up. */
static void test_suspend(const void *variant)
{
    Disk *disk = start(variant);
    QPCIDevice *pm;
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        pm = qpci_device_find(disk->qs->pcibus, PIIX4_PM);
        g_assert(pm);
        qpci_config_writel(pm, 0x40, PM_BASE | 1);
        qpci_config_writeb(pm, 0x80, 1);
        g_free(pm);
        hold_batch(disk, requests);
        /* Sleep type 1 is S3; bit 13 enters it. */
        qtest_outw(disk->qts, PM_BASE + 4, 1 << 13 | 1 << 10);
        qtest_qmp_eventwait(disk->qts, "SUSPEND");
        qmp_ok(disk->qts, "{'execute': 'system_wakeup'}");
        qtest_qmp_eventwait(disk->qts, "WAKEUP");
        check_forgotten(disk, requests);
        free_batch(disk, requests);
        disk_stop(disk);
        disk_start(disk);
    }
    disk_free(disk);
}

/* Whether the only job has ended; it must not have failed. */
static bool job_concluded(Disk *disk)
{
    QDict *response = qtest_qmp(disk->qts, "{'execute': 'query-jobs'}");
    QDict *job = qobject_to(QDict, qlist_peek(qdict_get_qlist(response,
                                                              "return")));
    bool concluded = !strcmp(qdict_get_str(job, "status"), "concluded");

    g_assert(!qdict_haskey(job, "error"));
    qobject_unref(response);
    return concluded;
}

static void snapshot_done(Disk *disk)
{
    wait_for(job_concluded(disk));
    qmp_ok(disk->qts, "{'execute': 'job-dismiss', 'arguments': "
           "{'id': 'job'}}");
}

/* The snapshot has the requests; a QEMU that loads it answers them. */
static void test_snapshot(const void *opaque)
{
    const Variant *variant = opaque;
    Disk *disk = disk_new_format("qcow2", variant->options, variant->more);
    Request requests[BATCH];

    disk_start(disk);
    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        qmp_ok(disk->qts, SNAPSHOT("save", "'vmstate': 'd0', "));
        snapshot_done(disk);
        finish_batch(disk, requests, before);
        qmp_ok(disk->qts, SNAPSHOT("load", "'vmstate': 'd0', "));
        snapshot_done(disk);
        /* The memory is that of then, and the requests are waiting again. */
        finish_batch(disk, requests, before);
        /* With others held meanwhile, which the load forgets. */
        hold_batch(disk, requests);
        qmp_ok(disk->qts, SNAPSHOT("load", "'vmstate': 'd0', "));
        snapshot_done(disk);
        finish_batch(disk, requests, before);
        qmp_ok(disk->qts, SNAPSHOT("delete", ""));
        snapshot_done(disk);
    }
    disk_free(disk);
}

/* Another QEMU takes up the state of then, and answers the held requests. */
static void check_background_state(Disk *disk, const Variant *variant,
                                   const char *uri,
                                   const Request requests[BATCH],
                                   uint16_t before)
{
    Disk target = { .image = disk->image, .format = disk->format,
                    .page = g_strconcat(disk->image, ".page2", NULL),
                    .vq = disk->vq };
    g_autofree char *more = g_strconcat("-incoming defer ", variant->more,
                                        NULL);

    disk_boot(&target, variant->options, more);
    qmp_ok(target.qts, "{'execute': 'migrate-incoming', 'arguments': "
           "{'uri': %s}}", uri);
    qtest_qmp_eventwait(target.qts, "RESUME");
    finish_batch(&target, requests, before);
    g_assert_cmpint(admitted(&target, "bulk", "blk-read"), ==, BATCH / 2 - 1);
    g_assert_cmpint(admitted(&target, "bulk", "blk-write"), ==, BATCH / 2 - 1);
    qtest_shutdown(target.qs);
    unlink(target.page);
    g_free(target.page);
}

/*
 * The machine stops for a moment in the migration's thread, and goes on while
 * its memory is written out: each page that the answers touch waits for that.
 */
static void test_background_snapshot(const void *opaque)
{
    const Variant *variant = opaque;
    Disk *disk = start(variant);
    g_autofree char *file = g_strconcat(disk->image, ".state", NULL);
    g_autofree char *uri = g_strconcat("file:", file, NULL);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles() && allow_background_snapshot(disk->qts); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        qmp_ok(disk->qts, "{'execute': 'migrate', 'arguments': "
               "{'uri': %s}}", uri);
        qtest_qmp_eventwait(disk->qts, "RESUME");
        finish_batch(disk, requests, before);
        wait_for(migration_completed(disk->qts));
        g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==,
                        (i + 1) * BATCH / 2);
        g_assert_cmpint(admitted(disk, "bulk", "blk-write"), ==,
                        (i + 1) * BATCH / 2);
        if (i < LOADED_MAX) {
            check_background_state(disk, variant, uri, requests, before);
        }
        free_batch(disk, requests);
    }
    unlink(file);
    disk_free(disk);
}

/* Sections in which the disk is drained, with requests held. */
static void test_drain(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        qmp_ok(disk->qts, "{'execute': 'block_resize', 'arguments': "
               "{'node-name': 'd0', 'size': %d}}",
               IMAGE_BYTES + (int)(i % 2) * REQUEST_BYTES);
        g_assert_cmpint(backlog(disk, "bulk", "blk-read"), ==, BATCH / 2 - 1);
        qtest_clock_step(disk->qts, REQUEST_NS);
        qmp_ok(disk->qts, "{'execute': 'blockdev-add', 'arguments': "
               "{'driver': 'null-co', 'node-name': 'target', 'size': %d, "
               "'read-zeroes': true}}", IMAGE_BYTES + (int)(i % 2) * REQUEST_BYTES);
        qmp_ok(disk->qts, "{'execute': 'blockdev-backup', 'arguments': "
               "{'device': 'd0', 'target': 'target', 'job-id': 'job', "
               "'sync': 'full'}}");
        finish_batch(disk, requests, before);
        qtest_qmp_eventwait(disk->qts, "BLOCK_JOB_COMPLETED");
        qmp_ok(disk->qts, "{'execute': 'blockdev-del', 'arguments': "
               "{'node-name': 'target'}}");
        free_batch(disk, requests);
    }
    disk_free(disk);
}

/* The clock jumps ahead: no more than is held, and no credit, comes of it. */
static void test_clock_jump(const void *variant)
{
    Disk *disk = start(variant);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        qmp_ok(disk->qts, "{'execute': 'stop'}");
        qmp_ok(disk->qts, "{'execute': 'cont'}");
        qtest_clock_step(disk->qts, 600 * 1000 * NS_PER_MS);
        finish_batch(disk, requests, before);
        free_batch(disk, requests);
    }
    disk_free(disk);
}

/* Classes change, come and go under load; every request is answered once. */
static void test_change_classes(const void *variant)
{
    Disk *disk = start(variant);
    g_autoptr(GRand) rand = g_rand_new_with_seed(1);
    Request requests[BATCH];

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);

        hold_batch(disk, requests);
        for (unsigned j = 0; j < 20; j++) {
            int tag = g_rand_int_range(rand, 1, 6);

            switch (g_rand_int_range(rand, 0, 5)) {
            case 0:
                qmp_ok(disk->qts, "{'execute': 'shaper-set-class', "
                       "'arguments': {'id': 'sluice0', 'class': 'bulk', "
                       "'tag': %d}}", tag);
                break;
            case 1:
                qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', "
                       "'arguments': {'id': 'sluice0', 'limits': [{"
                       "'resource': 'blk-read', 'bytes-per-second': %d}]}}",
                       1 << g_rand_int_range(rand, 0, 30));
                break;
            default:
                qmp_ok(disk->qts, "{'execute': 'shaper-set-class', "
                       "'arguments': {'id': 'sluice0', 'class': 'bulk', "
                       "'tag': %d, 'priority': %d, 'limits': [{'resource': "
                       "'blk-read', 'bytes-per-second': %d}, {'resource': "
                       "'blk-write', 'operations-per-second': %d}]}}", tag,
                       g_rand_int_range(rand, 0, 10),
                       1 << g_rand_int_range(rand, 0, 30),
                       g_rand_int_range(rand, 1, 1000));
            }
        }
        qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
               "{'id': 'sluice0', 'limits': []}}");
        qmp_ok(disk->qts, "{'execute': 'shaper-remove-class', 'arguments': "
               "{'id': 'sluice0', 'class': 'bulk'}}");
        wait_for((uint16_t)(used_count(disk->qts, disk->vq) - before) == BATCH);
        check_first_done(disk, requests, BATCH, BATCH);
        free_batch(disk, requests);
    }
    disk_free(disk);
}

static const VariantTest tests[] = {
    { "device-reset", test_device_reset },
    { "queue-reset", test_queue_reset },
    { "queue-reset-stopped", test_queue_reset_stopped },
    { "queue-reset-going-on", test_queue_reset_going_on },
    { "system-reset", test_system_reset },
    { "stop-cont", test_stop_cont },
    { "stop-reset", test_stop_reset },
    { "unplug-plug", test_unplug },
    { "suspend", test_suspend },
    { "snapshot", test_snapshot },
    { "background-snapshot", test_background_snapshot },
    { "drain", test_drain },
    { "clock-jump", test_clock_jump },
    { "change-classes", test_change_classes },
};

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_tests("/sluice/blk/lifecycle", tests, ARRAY_SIZE(tests));
    return g_test_run();
}
