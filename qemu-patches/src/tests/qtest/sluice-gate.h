/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A slow disk behind the gate, for the qtests of the gate. */
#ifndef TESTS_SLUICE_GATE_H
#define TESTS_SLUICE_GATE_H

#include "sluice-disk.h"

#define WINDOW          (64 * KiB / REQUEST_BYTES)

/* One number of the gate for reads; -1: there is no gate. */
G_GNUC_UNUSED
static int64_t gate_of(Disk *disk, const char *field)
{
    QDict *shaper = query_shaper(disk->qts);
    int64_t value = -1;

    if (qdict_haskey(shaper, "gate")) {
        QList *resources = qdict_get_qlist(qdict_get_qdict(shaper, "gate"),
                                           "resources");
        QDict *reads = qobject_to(QDict, qlist_peek(resources));

        g_assert_cmpstr(qdict_get_str(reads, "resource"), ==, "blk-read");
        value = qdict_get_int(reads, field);
    }
    qobject_unref(shaper);
    return value;
}

/* The least window, and a target below each latency, so that it stays so. */
G_GNUC_UNUSED
static void set_gate(Disk *disk)
{
    qmp_ok(disk->qts, "{'execute': 'shaper-set-gate', 'arguments': {'id': "
           "'sluice0', 'target-ns': 1000, 'streams': ['movie'], "
           "'window-percent': 1}}");
    g_assert_cmpint(gate_of(disk, "window-bytes"), ==, 64 * KiB);
}

/* A slow disk, class movie a stream, class bulk behind the gate. A throttle that is there
 * when QEMU begins would live by the real clock. */
G_GNUC_UNUSED
static Disk *slow_disk(bool with_iothread)
{
    Disk *disk = disk_image("raw");

    disk->qs = qtest_pc_boot("-object shaper,id=sluice0,page=%s "
                             "-object iothread,id=io0", disk->page);
    disk->qts = disk->qs->qts;
    qmp_ok(disk->qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'throttle-group', 'id': 'slow', 'x-iops-total': 1}}");
    qmp_ok(disk->qts, "{'execute': 'blockdev-add', 'arguments': {'driver': "
           "'throttle', 'node-name': 'd0', 'throttle-group': 'slow', 'file': "
           "{'driver': 'raw', 'file': {'driver': 'file', 'filename': %s, "
           "'locking': 'off'}}}}", disk->image);
    if (with_iothread) {
        qtest_qmp_device_add(disk->qts, "virtio-blk-pci", "disk0",
                             "{'drive': 'd0', 'addr': %s, 'shaper': 'sluice0', "
                             "'iothread': 'io0'}", stringify(SLOT));
    } else {
        qtest_qmp_device_add(disk->qts, "virtio-blk-pci", "disk0",
                             "{'drive': 'd0', 'addr': %s, 'shaper': 'sluice0'}",
                             stringify(SLOT));
    }
    disk_start(disk);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'movie', 'tag': 1}}");
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2}}");
    set_gate(disk);
    return disk;
}

#endif
