/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of one shaper used by several threads: two disks with four queues each
 * and two I/O threads that share the queues, while the main thread changes
 * classes, releases, stops and starts the machine, and reads the counters.
 * Every request is answered exactly once, and the counters add up.
 *
 * A shaper has more to share than its engines: the counters page, which each
 * thread writes and the test reads meanwhile; the page of a group, which reads
 * and writes are members of, so that two engines meet in it while the main
 * thread joins, leaves, and changes weight and limit; and the costs that each queue
 * learns of its disk, by which the charge of a finished request is corrected. Each is
 * tested by itself, because locks of one hide races of another, and then all.
 *
 * Built with the thread sanitizer this is the test of the locks. SLUICE_CYCLES
 * says how many rounds (2).
 */
#include "qemu/osdep.h"
#include "sluice-disk.h"
#include "sluice-group.h"

#define DISKS           2
#define QUEUES          4
#define BATCH           12                      /* per queue and round */
#define LAST_TAG        3
#define STEP_NS         (5 * NS_PER_MS)
/* A disk is known after 512 requests of a queue, looked at after each 256. */
#define LEARN_ROUNDS_MAX 300
/* Real time that a disk takes, for the virtual clock to be stepped within. */
#define SLOW_NS         1000000
/* The default class may read so much, and never does: its tokens tell the charges. */
#define PURSE_BYTES     (1LL << 32)
#define PURSE_RATE      4
#define GROUP_RATE_MIN  5000000
#define GROUP_RATE_MAX  50000000
#define GROUP_TAT       256                     /* offsets on a group's page */
#define HEADER          128                     /* and on a counters page */
#define SLOTS           64
#define SLOT_BYTES      256
#define COMPLETED       136
#define IN_FLIGHT       152

/* Features of the shaper beside classes with limits. */
typedef enum Extra {
    EXTRA_PAGE = 1,
    EXTRA_GROUP = 2,
    EXTRA_CHARGE = 4,           /* by the work of the device */
    EXTRA_ALL = EXTRA_PAGE | EXTRA_GROUP | EXTRA_CHARGE,
} Extra;

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
    char *page;                 /* NULL: none */
    char *group;                /* as above */
    Extra extra;
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

/* Groups */

/* Both directions are members: their engines have locks of their own. */
static void join_group(Machine *m)
{
    qmp_ok(m->qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': %s, 'group': 'disks', 'weight': %d}}",
           g_rand_boolean(m->rand) ? "blk-read" : "blk-write",
           g_rand_int_range(m->rand, 1, 1000));
}

static void leave_group(Machine *m)
{
    qmp_ok(m->qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': %s}}",
           g_rand_boolean(m->rand) ? "blk-read" : "blk-write");
}

/* From a full bucket on: the group's clock goes on from where the bucket is. */
static void change_group_limit(Machine *m)
{
    g_autofree char *page = NULL;

    g_assert(g_file_get_contents(m->group, &page, NULL, NULL));
    rewrite_limit(m->group, g_rand_int_range(m->rand, GROUP_RATE_MIN,
                                             GROUP_RATE_MAX),
                  qtest_clock_step(m->qts, 1), ldq_he_p(page + GROUP_TAT));
}

static void ask_groups(Machine *m)
{
    QDict *response = qtest_qmp(m->qts, "{'execute': 'query-shaper-groups'}");
    QList *groups = qdict_get_qlist(response, "return");
    QDict *group = qobject_to(QDict, qlist_peek(groups));

    g_assert_cmpint(qlist_size(groups), ==, 1);
    g_assert_cmpint(qlist_size(qdict_get_qlist(group, "members")), <=, 2);
    g_assert_cmpint(qdict_get_int(group, "rate"), >=, GROUP_RATE_MIN);
    qobject_unref(response);
}

static void disturb_group(Machine *m)
{
    switch (g_rand_int_range(m->rand, 0, 8)) {
    case 0:
        leave_group(m);
        break;
    case 1:
    case 2:
        change_group_limit(m);
        break;
    case 3:
        ask_groups(m);
        break;
    default:
        join_group(m);
    }
}

static void open_group(Machine *m)
{
    m->group = new_group();
    rewrite_limit(m->group, GROUP_RATE_MAX, 0, 0);
    qmp_ok(m->qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper-group', 'id': 'disks', 'path': %s}}", m->group);
    for (unsigned i = 0; i < 8; i++) {
        join_group(m);
    }
}

/* The counters page */

/* The sum of a counter over the slots of all classes; no disk is written now. */
static uint64_t page_sum(const char *page, unsigned offset)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < SLOTS; i++) {
        sum += ldq_le_p(page + HEADER + i * SLOT_BYTES + offset);
    }
    return sum;
}

static bool page_accounted(Machine *m)
{
    g_autofree char *page = NULL;

    g_assert(g_file_get_contents(m->page, &page, NULL, NULL));
    return page_sum(page, COMPLETED) == m->sent
           && page_sum(page, IN_FLIGHT) == 0;
}

/* The machine */

static void fill_purse(Machine *m)
{
    qmp_ok(m->qts, "{'execute': 'shaper-set-class', 'arguments': {'id': "
           "'sluice0', 'class': 'default', 'tag': 0, 'limits': [{'resource': "
           "'blk-read', 'bytes-per-second': %d, 'burst-bytes': %" PRId64 "}], "
           "'scheduling': [{'resource': 'blk-read', 'charge': 'device'}, "
           "{'resource': 'blk-write', 'charge': 'device'}]}}",
           PURSE_RATE, (int64_t)PURSE_BYTES);
}

static Machine *machine_new(Extra extra)
{
    Machine *m = g_new0(Machine, 1);
    int fd = g_file_open_tmp("sluice.XXXXXX", &m->image, NULL);
    g_autofree char *option = NULL;

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, IMAGE_BYTES), ==, 0);
    close(fd);
    if (extra & EXTRA_PAGE) {
        m->page = g_strconcat(m->image, ".page", NULL);
        option = g_strconcat(",page=", m->page, NULL);
    }
    m->extra = extra;
    m->qs = qtest_pc_boot("-object shaper,id=sluice0%s "
                          "-object iothread,id=io0 -object iothread,id=io1 "
                          "-blockdev driver=raw,node-name=d0,"
                          "file.driver=file,file.filename=%s "
                          "-blockdev driver=null-co,node-name=d1,size=%d,"
                          "read-zeroes=on,latency-ns=%d", option ?: "",
                          m->image, IMAGE_BYTES,
                          extra & EXTRA_CHARGE ? SLOW_NS : 0);
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
    g_free(m->page);
    if (m->group) {
        free_group(m->group);
    }
    g_free(m);
}

/* The arguments of all; `more` are further members. */
#define CHANGE_CLASS(more)                                                  \
    "{'execute': 'shaper-set-class', 'arguments': {'id': 'sluice0', "       \
    "'class': %s, 'tag': %d, 'priority': %d, 'limits': ["                   \
    "{'resource': 'blk-read', 'bytes-per-second': %d, "                     \
    "'burst-bytes': 4096}, {'resource': 'blk-write', "                      \
    "'operations-per-second': %d}]" more "}}"

static void change_class(Machine *m)
{
    int tag = g_rand_int_range(m->rand, 1, LAST_TAG + 1);
    g_autofree char *name = g_strdup_printf("class-%d", tag);
    int priority = g_rand_int_range(m->rand, 0, 10);
    int rate = g_rand_int_range(m->rand, 1000000, 100000000);
    int operations = g_rand_int_range(m->rand, 100, 100000);

    /* Now and then it is charged for the bytes that it asks for, as if of old. */
    if (m->extra & EXTRA_CHARGE && g_rand_int_range(m->rand, 0, 4)) {
        qmp_ok(m->qts, CHANGE_CLASS(", 'scheduling': [{'resource': "
               "'blk-read', 'charge': 'device'}, {'resource': 'blk-write', "
               "'charge': 'device'}]"), name, tag, priority, rate, operations);
    } else {
        qmp_ok(m->qts, CHANGE_CLASS(""), name, tag, priority, rate,
               operations);
    }
}

/* One thing that the main thread does, while the I/O threads go on. */
static void disturb(Machine *m)
{
    if (m->group && g_rand_int_range(m->rand, 0, 4) == 0) {
        disturb_group(m);
        return;
    }
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
        change_class(m);
    }
}

static void send_batch(Machine *m, unsigned n, bool learn)
{
    for (unsigned i = 0; i < DISKS * QUEUES; i++) {
        Queue *queue = &m->queues[i / QUEUES][i % QUEUES];
        bool read = learn || g_rand_boolean(m->rand);

        queue->requests[n] = send_request(&queue->disk,
            read ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT,
            learn ? 0 : g_rand_int_range(m->rand, 0, LAST_TAG + 1),
            g_rand_int_range(m->rand, 0, 1000) * 8, n);
        m->sent++;
    }
}

static void send_round(Machine *m)
{
    for (unsigned n = 0; n < BATCH; n++) {
        send_batch(m, n, false);
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

static void finish_round(Machine *m)
{
    wait_for(all_answered(m));
    check_round(m);
    wait_for(all_accounted(m));
    if (m->page) {
        wait_for(page_accounted(m));
    }
}

/* The charges of the default class for reads, beyond the bytes that it asked for; less
 * than nothing if more was taken for hits in a cache than for seeks. */
static int64_t extra_charge(Machine *m)
{
    int64_t asked = stat_of(m->qts, "default", "blk-read", "bytes");
    int64_t left = stat_of(m->qts, "default", "blk-read", "tokens-bytes");

    return PURSE_BYTES - left - asked;
}

/*
 * Most reads are answered at once by the virtual clock, and those that are on their
 * way when it is stepped take as long as the step: so the queues learn of kinds.
 * Which are which is luck, so it goes on until one was charged for as another.
 */
static void learn_costs(Machine *m)
{
    fill_purse(m);
    for (unsigned i = 0; i < LEARN_ROUNDS_MAX; i++) {
        for (unsigned n = 0; n < BATCH; n++) {
            send_batch(m, n, true);
        }
        finish_round(m);
        /* PURSE_RATE gives back next to nothing. */
        if (ABS(extra_charge(m)) >= REQUEST_BYTES) {
            g_test_message("learnt in %u rounds", i + 1);
            return;
        }
    }
    g_error("no charge was corrected in %u rounds", LEARN_ROUNDS_MAX);
}

static void test_shared_shaper(const void *data)
{
    Extra extra = GPOINTER_TO_UINT(data);
    Machine *m = machine_new(extra);

    if (extra & EXTRA_CHARGE) {
        learn_costs(m);
    }
    /* Later: by its limit all would be held until the clock is stepped. */
    if (extra & EXTRA_GROUP) {
        open_group(m);
    }
    for (unsigned i = 0; i < 10 * cycles(); i++) {
        send_round(m);
        finish_round(m);
    }
    if (extra & EXTRA_GROUP) {
        ask_groups(m);
    }
    machine_free(m);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *path;
        Extra extra;
    } tests[] = {
        { "/sluice/iothread/shared-shaper", 0 },
        { "/sluice/iothread/page", EXTRA_PAGE },
        { "/sluice/iothread/group", EXTRA_GROUP },
        { "/sluice/iothread/charge-device", EXTRA_CHARGE },
        { "/sluice/iothread/all", EXTRA_ALL },
    };

    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(tests); i++) {
        qtest_add_data_func(tests[i].path, GUINT_TO_POINTER(tests[i].extra),
                            test_shared_shaper);
    }
    return g_test_run();
}
