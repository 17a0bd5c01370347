/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk with a shaper, driven by a qtest: one queue, requests of 4096 bytes,
 * each in memory of its own, so that a test sees which of them came back.
 */
#ifndef TESTS_SLUICE_DISK_H
#define TESTS_SLUICE_DISK_H

#include "qemu/units.h"
#include "standard-headers/linux/virtio_blk.h"
#include "standard-headers/linux/virtio_pci.h"
#include "qemu/bswap.h"
#include "sluice-test.h"

#define SLOT            4
#define SECTOR_BYTES    512
#define IMAGE_BYTES     (16 * 1024 * 1024)
#define REQUEST_BYTES   4096
#define REQUEST_NS      (4096 * 1000LL)         /* at 1 MB/s */
#define NO_QUEUE        1023                    /* no disk has that many */
#define PENDING         0xff                    /* not a virtio-blk status */
#define LIMIT_1MBPS     "'bytes-per-second': 1000000, 'burst-bytes': 4096"

typedef struct Disk {
    QOSState *qs;
    QTestState *qts;
    QVirtioPCIDevice *pci;
    QVirtioDevice *dev;
    QVirtQueue *vq;
    const char *format;
    char *image;
    char *page;
} Disk;

typedef struct Request {
    uint64_t data;
    uint64_t status;
} Request;

G_GNUC_UNUSED
static void setup_queue(Disk *disk)
{
    uint64_t features = qvirtio_get_features(disk->dev);

    features &= ~(QVIRTIO_F_BAD_FEATURE | (1u << VIRTIO_RING_F_INDIRECT_DESC)
                  | (1u << VIRTIO_RING_F_EVENT_IDX)
                  | (1u << VIRTIO_BLK_F_SCSI));
    qvirtio_set_features(disk->dev, features);
    disk->vq = qvirtqueue_setup(disk->dev, &disk->qs->alloc, 0);
    qvirtio_set_driver_ok(disk->dev);
}

G_GNUC_UNUSED
static void disk_boot(Disk *disk, const char *options, const char *more)
{
    disk->qs = qtest_pc_boot("-object shaper,id=sluice0,page=%s "
                             "-blockdev driver=%s,node-name=d0,"
                             "file.driver=file,file.filename=%s,"
                             "file.locking=off "
                             "%s -device virtio-blk-pci,id=disk0,drive=d0,"
                             "addr=%d,shaper=sluice0%s",
                             disk->page, disk->format, disk->image, more, SLOT,
                             options);
    disk->qts = disk->qs->qts;
}

G_GNUC_UNUSED
static void disk_start(Disk *disk)
{
    disk->pci = start_device(disk->qs, SLOT);
    disk->dev = &disk->pci->vdev;
    setup_queue(disk);
}

/* Forgets the device, which may be gone. */
G_GNUC_UNUSED
static void disk_stop(Disk *disk)
{
    if (disk->vq) {
        qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
        disk->vq = NULL;
    }
    if (disk->pci) {
        qvirtio_pci_device_disable(disk->pci);
        qos_object_destroy((QOSGraphObject *)disk->pci);
        disk->pci = NULL;
    }
}

/* An image of `format`, for a disk that is not yet there. */
G_GNUC_UNUSED
static Disk *disk_image(const char *format)
{
    Disk *disk = g_new0(Disk, 1);
    int fd = g_file_open_tmp("sluice.XXXXXX", &disk->image, NULL);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    g_assert(mkimg(disk->image, format, IMAGE_BYTES / MiB));
    disk->format = format;
    disk->page = g_strconcat(disk->image, ".page", NULL);
    return disk;
}

/* A disk with an image of `format`, whose device is not yet started. */
G_GNUC_UNUSED
static Disk *disk_new_format(const char *format, const char *options,
                             const char *more)
{
    Disk *disk = disk_image(format);

    disk_boot(disk, options, more);
    return disk;
}

G_GNUC_UNUSED
static Disk *disk_new(const char *options, const char *more)
{
    Disk *disk = disk_new_format("raw", options, more);

    disk_start(disk);
    return disk;
}

G_GNUC_UNUSED
static void disk_shutdown(Disk *disk)
{
    disk_stop(disk);
    qtest_shutdown(disk->qs);
    disk->qs = NULL;
}

G_GNUC_UNUSED
static void disk_free(Disk *disk)
{
    if (disk->qs) {
        disk_shutdown(disk);
    }
    unlink(disk->image);
    unlink(disk->page);
    g_free(disk->image);
    g_free(disk->page);
    g_free(disk);
}

/* The counters page, docs/specs/counters-page.md */

#define PAGE_HEADER     128
#define PAGE_SLOTS      68
#define PAGE_SLOT_AT(i) (PAGE_HEADER + (i) * 256)
#define PAGE_MORE_AT(i) (PAGE_SLOT_AT(PAGE_SLOTS) + (i) * 256)
#define PAGE_TAIL_AT    PAGE_MORE_AT(PAGE_SLOTS)
#define COUNTERS_BYTES  (PAGE_TAIL_AT + 64)
#define PAGE_HEARTBEAT  40

/* NULL if the page is not there, or is just being written; else for the caller to free. */
G_GNUC_UNUSED
static char *whole_page(const char *path)
{
    g_autofree char *page = NULL;
    gsize length;

    if (!g_file_get_contents(path, &page, &length, NULL)
        || length != COUNTERS_BYTES
        || ldq_le_p(page + PAGE_HEARTBEAT) != ldq_le_p(page + PAGE_TAIL_AT)) {
        return NULL;
    }
    return g_steal_pointer(&page);
}

/* The page with all that has happened until now. */
G_GNUC_UNUSED
static char *next_page(const char *path)
{
    uint64_t asked_ns = g_get_monotonic_time() * 1000;

    for (;; g_usleep(POLL_US)) {
        g_autofree char *page = whole_page(path);

        if (page && ldq_le_p(page + PAGE_HEARTBEAT) > asked_ns) {
            return g_steal_pointer(&page);
        }
    }
}

/* A QEMU that waits for the machine of `source`; returns the URI at which it waits. */
G_GNUC_UNUSED
static char *boot_target(Disk *target, const Disk *source, const char *options,
                         const char *more)
{
    char *uri = g_strdup_printf("unix:%s.sock", source->image);
    g_autofree char *words = g_strdup_printf("-incoming %s %s", uri, more);

    *target = (Disk){ .image = source->image, .format = source->format,
                      .page = g_strconcat(source->image, ".page2", NULL) };
    disk_boot(target, options, words);
    return uri;
}

/*
 * Both machines of a migration, of which the target has the rest. The guest's memory, with
 * its allocations, has moved along.
 */
G_GNUC_UNUSED
static void free_migrated(Disk *source, Disk *target, char *uri)
{
    qvirtqueue_cleanup(source->dev->bus, source->vq, &target->qs->alloc);
    source->vq = NULL;
    qtest_shutdown(target->qs);
    unlink(target->page);
    unlink(uri + strlen("unix:"));
    g_free(uri);
    g_free(target->page);
    disk_free(source);
}

/* The driver resets a queue, of a number that need not exist. */
G_GNUC_UNUSED
static void reset_queue(Disk *disk, uint16_t number)
{
    QVirtioPCIDevice *pci = disk->pci;
    uint64_t common = pci->common_cfg_offset;

    qpci_io_writew(pci->pdev, pci->bar, common + VIRTIO_PCI_COMMON_Q_SELECT,
                   number);
    qpci_io_writew(pci->pdev, pci->bar, common + VIRTIO_PCI_COMMON_Q_RESET, 1);
}

/* And makes a new ring for it. */
G_GNUC_UNUSED
static void renew_queue(Disk *disk)
{
    qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
    disk->vq = qvirtqueue_setup(disk->dev, &disk->qs->alloc, 0);
}

/* The ioprio of a tag: real-time class, level and hint. */
G_GNUC_UNUSED
static uint32_t ioprio_of_tag(unsigned tag)
{
    return tag ? 1u << 13 | (tag >> 3) << 3 | (tag & 7) : 0x4004;
}

G_GNUC_UNUSED
static Request send_request(Disk *disk, uint32_t type, unsigned tag,
                            uint64_t sector, uint8_t fill)
{
    QTestState *qts = disk->qts;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + REQUEST_BYTES + 1);
    Request request = { .data = header + 16,
                        .status = header + 16 + REQUEST_BYTES };
    uint32_t head;

    qtest_writel(qts, header, type);
    qtest_writel(qts, header + 4, ioprio_of_tag(tag));
    qtest_writeq(qts, header + 8, sector);
    qtest_memset(qts, request.data, fill, REQUEST_BYTES);
    qtest_writeb(qts, request.status, PENDING);
    head = qvirtqueue_add(qts, disk->vq, header, 16, false, true);
    qvirtqueue_add(qts, disk->vq, request.data, REQUEST_BYTES,
                   type == VIRTIO_BLK_T_IN, true);
    qvirtqueue_add(qts, disk->vq, request.status, 1, true, false);
    qvirtqueue_kick(qts, disk->dev, disk->vq, head);
    return request;
}

G_GNUC_UNUSED
static void send_many(Disk *disk, unsigned count, uint32_t type, unsigned tag,
                      Request *requests)
{
    for (unsigned i = 0; i < count; i++) {
        requests[i] = send_request(disk, type, tag,
                                   i * REQUEST_BYTES / SECTOR_BYTES, 0x10 + i);
    }
}

G_GNUC_UNUSED
static uint8_t status_of(Disk *disk, Request request)
{
    return qtest_readb(disk->qts, request.status);
}

/* Eight reads of class bulk, of which the first passes and seven are held. */
G_GNUC_UNUSED
static void hold_seven(Disk *disk, Request requests[8])
{
    limit_class(disk, "bulk", 2, "blk-read");
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    wait_for(used_count(disk->qts, disk->vq) == 1);
}

/* The first `done` have succeeded, the others wait. */
G_GNUC_UNUSED
static void check_first_done(Disk *disk, const Request *requests,
                             unsigned done, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        g_assert_cmpint(status_of(disk, requests[i]), ==,
                        i < done ? VIRTIO_BLK_S_OK : PENDING);
    }
}

#endif
