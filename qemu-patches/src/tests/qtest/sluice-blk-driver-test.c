/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of drivers of disks that do otherwise than most. Requests in vain: those that the
 * device refuses, and those without payload, wait for nothing and cost nothing, however
 * much memory their descriptors name. And other cuts of a request into descriptors, from
 * which a held request is parsed twice.
 */
#include "qemu/osdep.h"
#include "sluice-disk.h"

#define END         (IMAGE_BYTES / SECTOR_BYTES)
#define PIECE       (4 * 1024 * 1024)

/* Its data is `pieces` times the same memory of `piece_bytes`. */
typedef struct Case {
    uint32_t type;
    uint64_t sector;
    unsigned pieces;
    uint32_t piece_bytes;
    uint8_t status;
} Case;

static const Case cases[] = {
    /* Beyond the end of the disk; partly, wholly, far, and by its size alone */
    { VIRTIO_BLK_T_IN, END - 1, 2, SECTOR_BYTES, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_OUT, END - 1, 2, SECTOR_BYTES, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_IN, END + 1, 1, SECTOR_BYTES, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_OUT, UINT64_MAX, 1, SECTOR_BYTES, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_IN, 0, 16, PIECE, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_OUT, 0, 16, PIECE, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_BARRIER, 0, 16, PIECE,
      VIRTIO_BLK_S_IOERR },
    /* Not whole sectors */
    { VIRTIO_BLK_T_IN, 0, 1, SECTOR_BYTES + 1, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_OUT, 0, 1, SECTOR_BYTES - 1, VIRTIO_BLK_S_IOERR },
    /* Types that this device does not know, or does not do */
    { VIRTIO_BLK_T_SCSI_CMD, 0, 16, PIECE, VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_SCSI_CMD | VIRTIO_BLK_T_OUT, 0, 16, PIECE,
      VIRTIO_BLK_S_IOERR },
    { VIRTIO_BLK_T_ZONE_APPEND, 0, 16, PIECE, VIRTIO_BLK_S_UNSUPP },
    { VIRTIO_BLK_T_DISCARD, 0, 16, PIECE, VIRTIO_BLK_S_UNSUPP },
    { VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, PIECE, VIRTIO_BLK_S_UNSUPP },
    { 0x1234, 0, 16, PIECE, VIRTIO_BLK_S_UNSUPP },
    /* Done, but without a payload */
    { VIRTIO_BLK_T_FLUSH, 0, 1, SECTOR_BYTES, VIRTIO_BLK_S_OK },
    { VIRTIO_BLK_T_GET_ID, 0, 1, SECTOR_BYTES, VIRTIO_BLK_S_OK },
};

/* Whether the device writes its data: by the type itself, or a read. */
static bool to_guest(uint32_t type)
{
    return !(type & VIRTIO_BLK_T_OUT);
}

static uint64_t send_case(Disk *disk, const Case *c, uint64_t memory)
{
    QTestState *qts = disk->qts;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + 1);
    uint32_t head;

    qtest_writel(qts, header, c->type);
    qtest_writel(qts, header + 4, ioprio_of_tag(0));
    qtest_writeq(qts, header + 8, c->sector);
    qtest_writeb(qts, header + 16, PENDING);
    head = qvirtqueue_add(qts, disk->vq, header, 16, false, true);
    for (unsigned i = 0; i < c->pieces; i++) {
        qvirtqueue_add(qts, disk->vq, memory, c->piece_bytes, to_guest(c->type),
                       true);
    }
    qvirtqueue_add(qts, disk->vq, header + 16, 1, true, false);
    qvirtqueue_kick(qts, disk->dev, disk->vq, head);
    return header + 16;
}

/* Each is answered at once, with the clock standing still. */
static void check_cases(Disk *disk, uint64_t memory)
{
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t status;

        /* A held request has been read: its descriptors may be used again. */
        qvirtqueue_reset_pool(disk->vq);
        status = send_case(disk, &cases[i], memory);
        wait_for(qtest_readb(disk->qts, status) != PENDING);
        if (qtest_readb(disk->qts, status) != cases[i].status) {
            g_error("case %u: the status is %u", i,
                    qtest_readb(disk->qts, status));
        }
    }
    qvirtqueue_reset_pool(disk->vq);
}

static void check_counted(Disk *disk, const char *resource, unsigned requests)
{
    wait_for(admitted(disk, "default", resource) == requests);
    g_assert_cmpint(stat_of(disk->qts, "default", resource, "bytes"), ==,
                    requests * REQUEST_BYTES);
}

/* Neither before a class is over its limit, nor then. */
static void test_refused(void)
{
    static const uint32_t types[] = { VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT };
    Disk *disk = disk_new("", "");
    uint64_t memory = guest_alloc(&disk->qs->alloc, PIECE);
    Request first, second[2];

    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'default', 'tag': 0, 'limits': ["
           "{'resource': 'blk-read', " LIMIT_1MBPS "}, "
           "{'resource': 'blk-write', " LIMIT_1MBPS "}]}}");
    check_cases(disk, memory);
    check_counted(disk, "blk-read", 0);
    check_counted(disk, "blk-write", 0);
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        first = send_request(disk, types[i], 0, 0, 0);
        wait_for(status_of(disk, first) == VIRTIO_BLK_S_OK);
        second[i] = send_request(disk, types[i], 0, 0, 0);
    }
    wait_for(backlog(disk, "default", "blk-read") == 1);
    wait_for(backlog(disk, "default", "blk-write") == 1);
    check_cases(disk, memory);
    check_counted(disk, "blk-read", 1);
    check_counted(disk, "blk-write", 1);
    qtest_clock_step(disk->qts, REQUEST_NS);
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        wait_for(status_of(disk, second[i]) == VIRTIO_BLK_S_OK);
    }
    check_counted(disk, "blk-read", 2);
    check_counted(disk, "blk-write", 2);
    disk_free(disk);
}

/* A disk that is read-only refuses writes; its reads are shaped. */
static void test_read_only(void)
{
    Disk *disk = disk_image("raw");
    Request read, write;

    disk->format = "raw,read-only=on";
    disk_boot(disk, "", "");
    disk_start(disk);
    limit_class(disk, "default", 0, "blk-write");
    for (unsigned i = 0; i < 3; i++) {
        write = send_request(disk, VIRTIO_BLK_T_OUT, 0, 0, 0x11);
        wait_for(status_of(disk, write) == VIRTIO_BLK_S_IOERR);
    }
    read = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0x22);
    wait_for(status_of(disk, read) == VIRTIO_BLK_S_OK);
    check_counted(disk, "blk-write", 0);
    check_counted(disk, "blk-read", 1);
    disk_free(disk);
}

/* As send_request(), with header and data, or data and status, in one descriptor. */
static Request send_joined(Disk *disk, uint32_t type, uint64_t sector,
                           uint8_t fill)
{
    QTestState *qts = disk->qts;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + REQUEST_BYTES + 1);
    Request request = { .data = header + 16,
                        .status = header + 16 + REQUEST_BYTES };
    uint32_t out_bytes = type == VIRTIO_BLK_T_OUT ? 16 + REQUEST_BYTES : 16;
    uint32_t head;

    qtest_writel(qts, header, type);
    qtest_writel(qts, header + 4, ioprio_of_tag(2));
    qtest_writeq(qts, header + 8, sector);
    qtest_memset(qts, request.data, fill, REQUEST_BYTES);
    qtest_writeb(qts, request.status, PENDING);
    head = qvirtqueue_add(qts, disk->vq, header, out_bytes, false, true);
    qvirtqueue_add(qts, disk->vq, header + out_bytes,
                   16 + REQUEST_BYTES + 1 - out_bytes, true, false);
    qvirtqueue_kick(qts, disk->dev, disk->vq, head);
    return request;
}

/* Three of a kind, of which two are held; the last over a stop, too. */
static void check_joined(Disk *disk, uint32_t type, uint8_t fill,
                         Request requests[3])
{
    const char *resource = type == VIRTIO_BLK_T_OUT ? "blk-write" : "blk-read";
    uint16_t before = used_count(disk->qts, disk->vq);

    for (unsigned i = 0; i < 3; i++) {
        requests[i] = send_joined(disk, type, i * (REQUEST_BYTES / SECTOR_BYTES),
                                  fill + i);
    }
    wait_for(backlog(disk, "bulk", resource) == 2);
    qtest_clock_step(disk->qts, 1);
    wait_for(status_of(disk, requests[1]) == VIRTIO_BLK_S_OK);
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    wait_for((qtest_clock_step(disk->qts, REQUEST_NS),
              used_count(disk->qts, disk->vq) == (uint16_t)(before + 3)));
    check_first_done(disk, requests, 3, 3);
}

static void test_joined(void)
{
    Disk *disk = disk_new("", "");
    uint8_t found[REQUEST_BYTES], wanted[REQUEST_BYTES];
    Request requests[3];

    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': "
           "[{'resource': 'blk-read', " LIMIT_1MBPS "}, "
           "{'resource': 'blk-write', " LIMIT_1MBPS "}]}}");
    check_joined(disk, VIRTIO_BLK_T_OUT, 0x21, requests);
    check_joined(disk, VIRTIO_BLK_T_IN, 0x77, requests);
    for (unsigned i = 0; i < 3; i++) {
        memset(wanted, 0x21 + i, sizeof(wanted));
        qtest_memread(disk->qts, requests[i].data, found, sizeof(found));
        g_assert_cmpmem(found, sizeof(found), wanted, sizeof(wanted));
    }
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/blk/driver/joined", test_joined);
    qtest_add_func("/sluice/blk/driver/refused", test_refused);
    qtest_add_func("/sluice/blk/driver/read-only", test_read_only);
    return g_test_run();
}
