/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of one shaper used by several threads: two disks with four queues each
 * and two I/O threads that share the queues, while the main thread changes
 * classes, releases, stops and starts the machine, and reads the counters.
 * Every request is answered exactly once, and the counters add up.
 *
 * Built with the thread sanitizer this is the test of the locks. SLUICE_CYCLES
 * says how many rounds (2).
 */
#include "qemu/osdep.h"
#include "sluice-disk.h"

#define DISKS           2
#define QUEUES          4
#define BATCH           12                      /* per queue and round */
#define LAST_TAG        3
#define STEP_NS         (5 * NS_PER_MS)

typedef struct Queue {
    Disk disk;                  /* of which only qs, dev and vq are used */
    Request requests[BATCH];
    uint16_t used;
} Queue;

typedef struct Machine {
    QOSState *qs;
    QTestState *qts;
    QVirtioPCIDevice *pci[DISKS];
    Queue queues[DISKS][QUEUES];
    GRand *rand;
    char *image;
    uint64_t sent;
} Machine;

static void start_disk(Machine *m, unsigned index)
{
    uint64_t features;
    QVirtioDevice *dev;

    qmp_ok(m->qts, "{'execute': 'device_add', 'arguments': {"
           "'driver': 'virtio-blk-pci', 'drive': %s, 'addr': %s, "
           "'shaper': 'sluice0', 'num-queues': %d, 'iothread-vq-mapping': "
           "[{'iothread': 'io0'}, {'iothread': 'io1'}]}}",
           index ? "d1" : "d0", index ? "5" : "4", QUEUES);
    m->pci[index] = start_device(m->qs, SLOT + index);
    dev = &m->pci[index]->vdev;
    features = qvirtio_get_features(dev);
    qvirtio_set_features(dev, features
                         & ~(QVIRTIO_F_BAD_FEATURE
                             | 1u << VIRTIO_RING_F_INDIRECT_DESC
                             | 1u << VIRTIO_RING_F_EVENT_IDX));
    for (unsigned q = 0; q < QUEUES; q++) {
        Disk *disk = &m->queues[index][q].disk;

        disk->qs = m->qs;
        disk->qts = m->qts;
        disk->dev = dev;
        disk->vq = qvirtqueue_setup(dev, &m->qs->alloc, q);
    }
    qvirtio_set_driver_ok(dev);
}

static Machine *machine_new(void)
{
    Machine *m = g_new0(Machine, 1);
    int fd = g_file_open_tmp("sluice.XXXXXX", &m->image, NULL);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, IMAGE_BYTES), ==, 0);
    close(fd);
    m->qs = qtest_pc_boot("-object shaper,id=sluice0 "
                          "-object iothread,id=io0 -object iothread,id=io1 "
                          "-blockdev driver=raw,node-name=d0,"
                          "file.driver=file,file.filename=%s "
                          "-blockdev driver=null-co,node-name=d1,size=%d,"
                          "read-zeroes=on", m->image, IMAGE_BYTES);
    m->qts = m->qs->qts;
    m->rand = g_rand_new_with_seed(7);
    for (unsigned i = 0; i < DISKS; i++) {
        start_disk(m, i);
    }
    return m;
}

static void machine_free(Machine *m)
{
    for (unsigned i = 0; i < DISKS; i++) {
        for (unsigned q = 0; q < QUEUES; q++) {
            qvirtqueue_cleanup(m->pci[i]->vdev.bus, m->queues[i][q].disk.vq,
                               &m->qs->alloc);
        }
        qvirtio_pci_device_disable(m->pci[i]);
        qos_object_destroy((QOSGraphObject *)m->pci[i]);
    }
    g_rand_free(m->rand);
    qtest_shutdown(m->qs);
    unlink(m->image);
    g_free(m->image);
    g_free(m);
}

/* One thing that the main thread does, while the I/O threads go on. */
static void disturb(Machine *m)
{
    int tag = g_rand_int_range(m->rand, 1, LAST_TAG + 1);
    g_autofree char *name = g_strdup_printf("class-%d", tag);

    switch (g_rand_int_range(m->rand, 0, 8)) {
    case 0:
        qmp_ok(m->qts, "{'execute': 'stop'}");
        qmp_ok(m->qts, "{'execute': 'cont'}");
        break;
    case 1:
        qobject_unref(query_shaper(m->qts));
        break;
    case 2:
        qmp_ok(m->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
               "{'id': 'sluice0', 'limits': [{'resource': 'blk-read', "
               "'bytes-per-second': %d, 'burst-bytes': 4096}]}}",
               g_rand_int_range(m->rand, 1000000, 100000000));
        break;
    case 3:
        qmp_ok(m->qts, "{'execute': 'block_resize', 'arguments': "
               "{'node-name': 'd0', 'size': %d}}", IMAGE_BYTES);
        break;
    case 4:
    case 5:
        qtest_clock_step(m->qts, STEP_NS);
        break;
    default:
        qmp_ok(m->qts, "{'execute': 'shaper-set-class', 'arguments': {'id': "
               "'sluice0', 'class': %s, 'tag': %d, 'priority': %d, 'limits': ["
               "{'resource': 'blk-read', 'bytes-per-second': %d, "
               "'burst-bytes': 4096}, {'resource': 'blk-write', "
               "'operations-per-second': %d}]}}", name, tag,
               g_rand_int_range(m->rand, 0, 10),
               g_rand_int_range(m->rand, 1000000, 100000000),
               g_rand_int_range(m->rand, 100, 100000));
    }
}

static void send_round(Machine *m)
{
    for (unsigned n = 0; n < BATCH; n++) {
        for (unsigned i = 0; i < DISKS * QUEUES; i++) {
            Queue *queue = &m->queues[i / QUEUES][i % QUEUES];

            queue->requests[n] = send_request(&queue->disk,
                g_rand_boolean(m->rand) ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT,
                g_rand_int_range(m->rand, 0, LAST_TAG + 1),
                g_rand_int_range(m->rand, 0, 1000) * 8, n);
            m->sent++;
        }
        disturb(m);
    }
}

static bool all_answered(Machine *m)
{
    qtest_clock_step(m->qts, STEP_NS);
    for (unsigned i = 0; i < DISKS * QUEUES; i++) {
        Queue *queue = &m->queues[i / QUEUES][i % QUEUES];

        if ((uint16_t)(used_count(m->qts, queue->disk.vq) - queue->used)
            != BATCH) {
            return false;
        }
    }
    return true;
}

static void check_round(Machine *m)
{
    for (unsigned i = 0; i < DISKS * QUEUES; i++) {
        Queue *queue = &m->queues[i / QUEUES][i % QUEUES];

        check_first_done(&queue->disk, queue->requests, BATCH, BATCH);
        queue->used += BATCH;
        qvirtqueue_reset_pool(queue->disk.vq);
        for (unsigned n = 0; n < BATCH; n++) {
            guest_free(&m->qs->alloc, queue->requests[n].data - 16);
        }
    }
}

/* The sum of a counter over all classes, reads and writes. */
static uint64_t sum_of(QDict *shaper, const char *field)
{
    uint64_t sum = 0;
    const QListEntry *c, *s;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(shaper, "classes"), c) {
        QDict *class = qobject_to(QDict, qlist_entry_obj(c));

        QLIST_FOREACH_ENTRY(qdict_get_qlist(class, "stats"), s) {
            sum += qdict_get_int(qobject_to(QDict, qlist_entry_obj(s)), field);
        }
    }
    return sum;
}

static bool all_accounted(Machine *m)
{
    QDict *shaper = query_shaper(m->qts);
    bool accounted = sum_of(shaper, "completed-requests") == m->sent
                     && sum_of(shaper, "in-flight") == 0
                     && sum_of(shaper, "backlog-requests") == 0;

    qobject_unref(shaper);
    return accounted;
}

static void test_shared_shaper(void)
{
    Machine *m = machine_new();

    for (unsigned i = 0; i < 10 * cycles(); i++) {
        send_round(m);
        wait_for(all_answered(m));
        check_round(m);
        wait_for(all_accounted(m));
    }
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/iothread/shared-shaper", test_shared_shaper);
    return g_test_run();
}
