/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of requests that name sectors and have no payload: write-zeroes, which is paid
 * for like a write of as many bytes and done in parts of 2 MiB, and discard, which is
 * paid for by the piece.
 *
 * Class bulk writes 1 MB/s with a burst of one page: the first part passes at once, and
 * each one later after the time of those before it.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "sluice-variants.h"

#define PART_BYTES      (2 * MiB)
#define PART_NS         (PART_BYTES * 1000LL)   /* at 1 MB/s */
#define PARTS           4
#define DISCARD_BYTES   (256 * KiB)             /* the most that is charged */
#define FILL            0xa5
#define LONG_NS         (100 * PART_NS)
#define UNMAP           VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP

static void fill_image(Disk *disk)
{
    g_autofree uint8_t *bytes = g_malloc(IMAGE_BYTES);

    memset(bytes, FILL, IMAGE_BYTES);
    g_assert(g_file_set_contents(disk->image, (char *)bytes, IMAGE_BYTES,
                                 NULL));
}

/* A disk full of FILL, with class bulk limited. */
static Disk *start(const Variant *variant)
{
    Disk *disk = disk_image("raw");

    fill_image(disk);
    disk_boot(disk, variant->options, variant->more);
    disk_start(disk);
    limit_class(disk, "bulk", 2, "blk-write");
    return disk;
}

static void write_range(Disk *disk, uint64_t address, uint64_t first_byte,
                        uint32_t bytes, uint32_t flags)
{
    qtest_writeq(disk->qts, address, first_byte / SECTOR_BYTES);
    qtest_writel(disk->qts, address + 8, bytes / SECTOR_BYTES);
    qtest_writel(disk->qts, address + 12, flags);
}

static Request send_range(Disk *disk, uint32_t type, unsigned tag,
                          uint64_t first_byte, uint32_t bytes, uint32_t flags)
{
    QTestState *qts = disk->qts;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + 16 + 1);
    Request request = { .data = header + 16, .status = header + 32 };
    uint32_t head;

    qtest_writel(qts, header, type);
    qtest_writel(qts, header + 4, ioprio_of_tag(tag));
    qtest_writeq(qts, header + 8, 0);
    write_range(disk, request.data, first_byte, bytes, flags);
    qtest_writeb(qts, request.status, PENDING);
    head = qvirtqueue_add(qts, disk->vq, header, 16, false, true);
    qvirtqueue_add(qts, disk->vq, request.data, 16, false, true);
    qvirtqueue_add(qts, disk->vq, request.status, 1, true, false);
    qvirtqueue_kick(qts, disk->dev, disk->vq, head);
    return request;
}

static Request zero_parts(Disk *disk, unsigned tag)
{
    return send_range(disk, VIRTIO_BLK_T_WRITE_ZEROES, tag, 0,
                      PARTS * PART_BYTES, 0);
}

/* The image is zero from one byte on, for so many, and FILL elsewhere. */
static void check_image(Disk *disk, size_t first, size_t zeroes)
{
    g_autofree char *bytes = NULL;
    gsize length;

    g_assert(g_file_get_contents(disk->image, &bytes, &length, NULL));
    g_assert_cmpint(length, ==, IMAGE_BYTES);
    for (size_t i = 0; i < length; i++) {
        bool zero = i >= first && i < first + zeroes;

        g_assert_cmphex((uint8_t)bytes[i], ==, zero ? 0 : FILL);
    }
}

#define written(disk, number) stat_of((disk)->qts, "bulk", "blk-write", number)

/* So many parts are done, and the next is held. */
static void wait_parts(Disk *disk, unsigned done)
{
    wait_for(written(disk, "requests") == done
             && written(disk, "in-flight") == 0
             && written(disk, "backlog-requests") == 1);
}

static void check_idle(Disk *disk)
{
    g_assert_cmpint(written(disk, "backlog-requests"), ==, 0);
    g_assert_cmpint(written(disk, "in-flight"), ==, 0);
}

static void test_parts(const void *variant)
{
    Disk *disk = start(variant);
    Request request = zero_parts(disk, 2);

    for (unsigned done = 1; done < PARTS; done++) {
        wait_parts(disk, done);
        g_assert_cmpint(written(disk, "backlog-bytes"), ==, PART_BYTES);
        check_image(disk, 0, done * PART_BYTES);
        g_assert_cmpint(status_of(disk, request), ==, PENDING);
        /* Not a nanosecond early; the first had the burst. */
        qtest_clock_step(disk->qts, PART_NS - (done == 1 ? REQUEST_NS : 1));
        g_assert_cmpint(written(disk, "requests"), ==, done);
        qtest_clock_step(disk->qts, 1);
    }
    wait_for(used_count(disk->qts, disk->vq) == 1);
    g_assert_cmpint(status_of(disk, request), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(written(disk, "bytes"), ==, PARTS * PART_BYTES);
    check_image(disk, 0, PARTS * PART_BYTES);
    check_idle(disk);
    disk_free(disk);
}

/* Sizes that are no multiple of a part, less than one, and nothing. */
static void test_odd_sizes(const void *variant)
{
    Disk *disk = start(variant);
    static const uint32_t sizes[] = { 0, SECTOR_BYTES, PART_BYTES,
                                      PART_BYTES + SECTOR_BYTES };
    uint64_t bytes = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        Request request = send_range(disk, VIRTIO_BLK_T_WRITE_ZEROES, 2,
                                     bytes, sizes[i], UNMAP);

        wait_for((qtest_clock_step(disk->qts, PART_NS),
                  used_count(disk->qts, disk->vq) == i + 1));
        g_assert_cmpint(status_of(disk, request), ==, VIRTIO_BLK_S_OK);
        bytes += sizes[i];
        g_assert_cmpint(written(disk, "bytes"), ==, bytes);
        check_image(disk, 0, bytes);
    }
    check_idle(disk);
    disk_free(disk);
}

/* Bytes of the image that are zero and take no room. */
static int64_t sparse_bytes(const char *image)
{
    const char *tool = getenv("QTEST_QEMU_IMG");
    g_autofree char *command = g_strdup_printf("%s map --output=json -f qcow2 "
                                               "%s", tool, image);
    g_autofree char *text = NULL;
    const QListEntry *entry;
    int64_t bytes = 0;
    QObject *extents;

    g_assert(g_spawn_command_line_sync(command, &text, NULL, NULL, NULL));
    extents = qobject_from_json(text, &error_abort);
    QLIST_FOREACH_ENTRY(qobject_to(QList, extents), entry) {
        QDict *extent = qobject_to(QDict, qlist_entry_obj(entry));

        if (qdict_get_bool(extent, "zero") && !qdict_get_bool(extent, "data")) {
            bytes += qdict_get_int(extent, "length");
        }
    }
    qobject_unref(extents);
    return bytes;
}

/* Parts end where clusters do: each that is zeroed as a whole is given back, as it
 * would be at once. The range begins and ends in the middle of one. */
static void test_clusters(const void *opaque)
{
    const Variant *variant = opaque;
    Disk *disk = disk_image("raw");
    g_autofree char *raw = disk->image;
    g_autofree char *command = NULL;
    Request request;

    fill_image(disk);
    disk->image = g_strconcat(raw, ".qcow2", NULL);
    disk->format = "qcow2";
    command = g_strdup_printf("%s convert -f raw -O qcow2 %s %s",
                              getenv("QTEST_QEMU_IMG"), raw, disk->image);
    g_assert(g_spawn_command_line_sync(command, NULL, NULL, NULL, NULL));
    unlink(raw);
    g_assert_cmpint(sparse_bytes(disk->image), ==, 0);
    disk_boot(disk, variant->options, variant->more);
    disk_start(disk);
    limit_class(disk, "bulk", 2, "blk-write");
    request = send_range(disk, VIRTIO_BLK_T_WRITE_ZEROES, 2, 96 * KiB,
                         2 * PART_BYTES, UNMAP);
    wait_for((qtest_clock_step(disk->qts, PART_NS),
              used_count(disk->qts, disk->vq) == 1));
    g_assert_cmpint(status_of(disk, request), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(written(disk, "requests"), ==, 3);
    disk_shutdown(disk);
    g_assert_cmpint(sparse_bytes(disk->image), ==, 2 * PART_BYTES - 64 * KiB);
    disk_free(disk);
}

/* Between its parts others of the class have their turns, and other classes theirs. */
static void test_turns(const void *variant)
{
    Disk *disk = start(variant);
    Request zeroes = zero_parts(disk, 2), write, other;

    wait_parts(disk, 1);
    write = send_request(disk, VIRTIO_BLK_T_OUT, 2, 8 * KiB, 1);
    other = send_request(disk, VIRTIO_BLK_T_OUT, 0, 8 * KiB, 1);
    wait_for(status_of(disk, other) == VIRTIO_BLK_S_OK);
    qtest_clock_step(disk->qts, PART_NS + 1);
    wait_for(written(disk, "requests") == 2);
    qtest_clock_step(disk->qts, PART_NS);
    wait_for(status_of(disk, write) == VIRTIO_BLK_S_OK);
    g_assert_cmpint(status_of(disk, zeroes), ==, PENDING);
    disk_free(disk);
}

static void test_discard(const void *variant)
{
    Disk *disk = start(variant);
    /* What the guest names, and what that costs. */
    static const uint32_t named[] = { 8 * MiB, DISCARD_BYTES + SECTOR_BYTES,
                                      64 * KiB, SECTOR_BYTES, 0, SECTOR_BYTES };
    static const uint32_t costs[] = { DISCARD_BYTES, DISCARD_BYTES, 64 * KiB,
                                      4 * KiB, 4 * KiB, 4 * KiB };
    Request requests[ARRAY_SIZE(named)];
    uint64_t bytes = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(named); i++) {
        requests[i] = send_range(disk, VIRTIO_BLK_T_DISCARD, 2, 0, named[i], 0);
        bytes += MIN(named[i], DISCARD_BYTES);
    }
    for (unsigned done = 1; done < ARRAY_SIZE(named); done++) {
        int64_t wait_ns = costs[done - 1] * 1000LL;

        wait_for(used_count(disk->qts, disk->vq) == done
                 && written(disk, "backlog-requests") == ARRAY_SIZE(named) - done);
        /* Not a nanosecond early; the first had the burst. */
        qtest_clock_step(disk->qts, wait_ns - (done == 1 ? REQUEST_NS : 1));
        g_assert_cmpint(used_count(disk->qts, disk->vq), ==, done);
        qtest_clock_step(disk->qts, 1);
    }
    wait_for(used_count(disk->qts, disk->vq) == ARRAY_SIZE(named));
    check_first_done(disk, requests, ARRAY_SIZE(named), ARRAY_SIZE(named));
    g_assert_cmpint(written(disk, "requests"), ==, ARRAY_SIZE(named));
    g_assert_cmpint(written(disk, "bytes"), ==, bytes);
    disk_free(disk);
}

/* A request that the device does not do costs nothing. */
static void test_refused(const void *variant)
{
    Disk *disk = start(variant);
    static const struct {
        uint32_t type;
        uint32_t bytes, flags;
        uint64_t first_byte;
        uint8_t status;
    } cases[] = {
        { VIRTIO_BLK_T_WRITE_ZEROES, PART_BYTES, 0, IMAGE_BYTES,
          VIRTIO_BLK_S_IOERR },
        { VIRTIO_BLK_T_WRITE_ZEROES, 0xfffffe00, 0, 0, VIRTIO_BLK_S_IOERR },
        { VIRTIO_BLK_T_WRITE_ZEROES, PART_BYTES, 2, 0, VIRTIO_BLK_S_UNSUPP },
        { VIRTIO_BLK_T_DISCARD, PART_BYTES, 0, IMAGE_BYTES,
          VIRTIO_BLK_S_IOERR },
        { VIRTIO_BLK_T_DISCARD, PART_BYTES, UNMAP, 0, VIRTIO_BLK_S_UNSUPP },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        Request request = send_range(disk, cases[i].type, 2,
                                     cases[i].first_byte, cases[i].bytes,
                                     cases[i].flags);

        wait_for(used_count(disk->qts, disk->vq) == i + 1);
        g_assert_cmpint(status_of(disk, request), ==, cases[i].status);
    }
    g_assert_cmpint(written(disk, "requests"), ==, 0);
    check_image(disk, 0, 0);
    disk_free(disk);
}

/* The guest rewrites its request while the first and a later part are held. */
static void test_rewritten_range(const void *variant)
{
    Disk *disk = start(variant);
    Request write = send_request(disk, VIRTIO_BLK_T_OUT, 2, 0, FILL);
    Request zeroes;

    wait_for(status_of(disk, write) == VIRTIO_BLK_S_OK);
    zeroes = send_range(disk, VIRTIO_BLK_T_WRITE_ZEROES, 2, 0, 2 * PART_BYTES,
                        0);
    wait_for(backlog(disk, "bulk", "blk-write") == 1);
    write_range(disk, zeroes.data, PART_BYTES, 8 * PART_BYTES, UNMAP);
    qtest_writel(disk->qts, zeroes.data - 16, VIRTIO_BLK_T_DISCARD);
    qtest_clock_step(disk->qts, 1);
    wait_parts(disk, 2);
    check_image(disk, 0, PART_BYTES);
    qtest_writel(disk->qts, zeroes.data - 16, VIRTIO_BLK_T_IN);
    qtest_clock_step(disk->qts, LONG_NS);
    wait_for(used_count(disk->qts, disk->vq) == 2);
    g_assert_cmpint(status_of(disk, zeroes), ==, VIRTIO_BLK_S_OK);
    check_image(disk, 0, 2 * PART_BYTES);
    g_assert_cmpint(written(disk, "bytes"), ==, REQUEST_BYTES + 2 * PART_BYTES);
    disk_free(disk);
}

/* A stop between two parts: it goes on with the next, and each is paid for once. */
static void test_stop_cont(const void *variant)
{
    Disk *disk = start(variant);

    for (unsigned i = 0; i < cycles(); i++) {
        uint16_t before = used_count(disk->qts, disk->vq);
        Request request;

        qvirtqueue_reset_pool(disk->vq);
        qtest_clock_step(disk->qts, LONG_NS);
        request = zero_parts(disk, 2);
        wait_parts(disk, i * PARTS + 1);
        qtest_clock_step(disk->qts, 1 + i % 3 * PART_NS);
        qmp_ok(disk->qts, "{'execute': 'stop'}");
        g_assert_cmpint(status_of(disk, request), ==, PENDING);
        check_idle(disk);
        qmp_ok(disk->qts, "{'execute': 'cont'}");
        wait_for((qtest_clock_step(disk->qts, PART_NS),
                  (uint16_t)(used_count(disk->qts, disk->vq) - before) == 1));
        g_assert_cmpint(status_of(disk, request), ==, VIRTIO_BLK_S_OK);
        g_assert_cmpint(written(disk, "bytes"), ==,
                        (i + 1LL) * PARTS * PART_BYTES);
        guest_free(&disk->qs->alloc, request.data - 16);
    }
    check_idle(disk);
    disk_free(disk);
}

static void reset_device(Disk *disk)
{
    qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
    qvirtio_start_device(disk->dev);
}

/* A reset between two parts: there is no other, and no answer. */
static void test_reset(const void *variant)
{
    Disk *disk = start(variant);

    for (unsigned i = 0; i < cycles(); i++) {
        uint64_t requests = written(disk, "requests");
        Request request;

        qtest_clock_step(disk->qts, LONG_NS);
        request = zero_parts(disk, 2);
        wait_parts(disk, requests + 1);
        reset_device(disk);
        check_idle(disk);
        qtest_clock_step(disk->qts, LONG_NS);
        g_assert_cmpint(status_of(disk, request), ==, PENDING);
        g_assert_cmpint(written(disk, "requests"), ==, requests + 1);
        guest_free(&disk->qs->alloc, request.data - 16);
        setup_queue(disk);
    }
    disk_free(disk);
}

/* A disk on which a part takes 200 ms, with class bulk unlimited. */
static Disk *start_slow(const Variant *variant)
{
    Disk *disk = disk_image("raw");
    g_autofree char *more = g_strconcat(
        "-blockdev driver=null-co,node-name=slow,size=16777216,"
        "latency-ns=200000000 ", variant->more, NULL);
    g_autofree char *options = g_strconcat(",drive=slow", variant->options,
                                           NULL);

    disk_boot(disk, options, more);
    disk_start(disk);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2}}");
    return disk;
}

/* A reset while the disk is at work on one: another may be ready when that is done, as
 * the ioeventfd stops before the reset. It is forgotten, or the guest is told that not
 * all is done. */
static void test_reset_in_flight(const void *variant)
{
    Disk *disk = start_slow(variant);

    for (unsigned i = 0; i < cycles(); i++) {
        uint64_t requests = written(disk, "requests");
        Request request = zero_parts(disk, 2);

        wait_for(written(disk, "requests") > requests);
        reset_device(disk);
        check_idle(disk);
        g_usleep(50 * 1000);
        g_assert_cmpint(written(disk, "requests"), <, requests + PARTS);
        check_idle(disk);
        g_assert_cmpint(status_of(disk, request), !=, VIRTIO_BLK_S_OK);
        guest_free(&disk->qs->alloc, request.data - 16);
        setup_queue(disk);
    }
    disk_free(disk);
}

/* A queue's own reset, upon which the queue is as good as new. */
static void test_queue_reset_in_flight(const void *variant)
{
    Disk *disk = start_slow(variant);
    Request request = zero_parts(disk, 2), read;

    wait_for(written(disk, "requests") > 0);
    reset_queue(disk, NO_QUEUE);
    reset_queue(disk, 0);
    g_assert_cmpint(written(disk, "in-flight"), ==, 0);
    g_assert_cmpint(written(disk, "requests"), <, PARTS);
    g_assert_cmpint(status_of(disk, request), !=, VIRTIO_BLK_S_OK);
    g_assert_cmpint(used_count(disk->qts, disk->vq), ==, 0);
    renew_queue(disk);
    read = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0);
    wait_for(status_of(disk, read) == VIRTIO_BLK_S_OK);
    g_assert_cmpint(used_count(disk->qts, disk->vq), ==, 1);
    disk_free(disk);
}

/* Drained sections come and go while parts are held and done. */
static void test_drain(const void *variant)
{
    Disk *disk = start(variant);
    Request request = zero_parts(disk, 2);

    for (unsigned done = 1; done < PARTS; done++) {
        wait_parts(disk, done);
        qtest_clock_step(disk->qts, PART_NS);
        qmp_ok(disk->qts, "{'execute': 'block_resize', 'arguments': "
               "{'node-name': 'd0', 'size': %d}}", IMAGE_BYTES);
        qtest_clock_step(disk->qts, 1);
    }
    wait_for(status_of(disk, request) == VIRTIO_BLK_S_OK);
    check_image(disk, 0, PARTS * PART_BYTES);
    check_idle(disk);
    disk_free(disk);
}

/* On the target it begins anew: the guest was not told that part of it is done. */
static void test_migrate(const void *opaque)
{
    const Variant *variant = opaque;
    Disk *source = start(variant);
    Disk target;
    Request request = zero_parts(source, 2);
    char *uri;

    wait_parts(source, 1);
    uri = boot_target(&target, source, variant->options, variant->more);
    limit_class(&target, "bulk", 2, "blk-write");
    migrate(source->qs, target.qs, uri);
    target.vq = source->vq;
    wait_for((qtest_clock_step(target.qts, PART_NS),
              used_count(target.qts, target.vq) == 1));
    g_assert_cmpint(status_of(&target, request), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(written(&target, "bytes"), ==, PARTS * PART_BYTES);
    check_image(source, 0, PARTS * PART_BYTES);
    free_migrated(source, &target, uri);
}

static const VariantTest tests[] = {
    { "parts", test_parts },
    { "odd-sizes", test_odd_sizes },
    { "clusters", test_clusters },
    { "turns", test_turns },
    { "discard", test_discard },
    { "refused", test_refused },
    { "rewritten-range", test_rewritten_range },
    { "stop-cont", test_stop_cont },
    { "reset", test_reset },
    { "reset-in-flight", test_reset_in_flight },
    { "queue-reset-in-flight", test_queue_reset_in_flight },
    { "drain", test_drain },
    { "migrate", test_migrate },
};

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_tests("/sluice/blk/range", tests, ARRAY_SIZE(tests));
    return g_test_run();
}
