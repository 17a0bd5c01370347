/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of a device's gate: disks of two QEMUs that share a window of 64 KiB, which is 16
 * requests; also when one of them is killed, or the page is lost.
 *
 * Below each shaper is a throttle, which lets one request pass in a second of the
 * virtual clock. The clocks of two QEMUs are stepped in turn.
 */
#include "qemu/osdep.h"
#include "sluice-gate.h"
#include "sluice-members.h"

#define COUNT           40
#define STEP_NS         (2 * NS_PER_MS)
#define SECOND_NS       (1000 * NS_PER_MS)
#define KEEPALIVE_NS    (100 * NS_PER_MS)
#define REAP_NS         (5 * SECOND_NS)
#define RUN_NS          (151 * NS_PER_MS)

/* The page */

static void write_page(const char *path, const char *magic, size_t length, mode_t mode)
{
    char page[PAGE_BYTES];

    fill_identity(page, magic, "sda");
    write_file(path, page, length, mode);
}

static char *new_page(void)
{
    char *path;
    int fd = g_file_open_tmp("sluice-gate.XXXXXX", &path, NULL);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    write_page(path, "SLUICEGT", PAGE_BYTES, 0660);
    return path;
}

static void free_page(char *path)
{
    unlink(path);
    g_free(path);
}

/* Members */

static void open_page(QTestState *qts, const char *id, const char *path)
{
    qmp_ok(qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper-gate', 'id': %s, 'path': %s}}", id, path);
}

/* No shrinking of the window, which is the least already. */
static void join(QTestState *qts, const char *id)
{
    qmp_ok(qts, "{'execute': 'shaper-set-gate', 'arguments': {'id': 'sluice0', "
           "'target-ns': 1000, 'streams': ['movie'], 'gate': %s}}", id);
}

static Disk *member(const char *path)
{
    Disk *disk = slow_disk(false);

    qtest_clock_step(disk->qts, SECOND_NS);
    open_page(disk->qts, "sda", path);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-gate', 'arguments': {'id': "
           "'sluice0', 'target-ns': 1000, 'streams': ['movie'], 'gate': 'sda', "
           "'window-percent': 1}}");
    return disk;
}

/* The first gate that the QEMU has opened, for the caller to unref. */
static QDict *shown(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-gates'}");
    QList *gates = qdict_get_qlist(response, "return");
    QDict *gate = qobject_to(QDict, qlist_peek(gates));

    qobject_ref(gate);
    qobject_unref(response);
    return gate;
}

static int64_t in_flight(Disk *disk)
{
    QDict *gate = shown(disk->qts);
    int64_t bytes = qdict_get_int(gate, "in-flight-bytes");

    qobject_unref(gate);
    return bytes;
}

static unsigned member_count(Disk *disk)
{
    QDict *gate = shown(disk->qts);
    unsigned count = qlist_size(qdict_get_qlist(gate, "members"));

    qobject_unref(gate);
    return count;
}

static bool is_lost(Disk *disk)
{
    QDict *gate = shown(disk->qts);
    bool lost = qdict_get_bool(gate, "lost");

    qobject_unref(gate);
    return lost;
}

static bool is_pausing(Disk *disk)
{
    QDict *shaper = query_shaper(disk->qts);
    QList *resources = qdict_get_qlist(qdict_get_qdict(shaper, "gate"), "resources");
    bool pausing = qdict_get_bool(qobject_to(QDict, qlist_peek(resources)), "pausing");

    qobject_unref(shaper);
    return pausing;
}

#define waiting(disk)   backlog(disk, "bulk", "blk-read")

static void step_both(Disk *a, Disk *b, int64_t ns)
{
    step_in_turn(a, b, STEP_NS, ns);
}

/* One member has the window full, and the other waits with all that it has. */
static void fill(Disk *full, Disk *waits, Request first[COUNT], Request then[COUNT])
{
    send_many(full, COUNT, VIRTIO_BLK_T_IN, 2, first);
    wait_for(gate_of(full, "in-flight-bytes") == 64 * KiB
             && waiting(full) + used_count(full->qts, full->vq) == COUNT - WINDOW);
    send_many(waits, COUNT, VIRTIO_BLK_T_IN, 2, then);
    wait_for(waiting(waits) == COUNT);
    g_assert_cmpint(in_flight(waits), ==, 64 * KiB);
}

/* Tests */

static void test_two_share_a_window(void)
{
    char *path = new_page();
    Disk *disks[2] = { member(path), member(path) };
    Request requests[2][COUNT];
    unsigned seconds = 0;

    g_assert_cmpint(member_count(disks[0]), ==, 4);
    fill(disks[0], disks[1], requests[0], requests[1]);
    for (; used_count(disks[0]->qts, disks[0]->vq) < COUNT
           || used_count(disks[1]->qts, disks[1]->vq) < COUNT; seconds++) {
        g_assert_cmpint(seconds, <, 3 * COUNT);
        step_both(disks[0], disks[1], SECOND_NS);
        /* A read that a throttle at rest let go at once may have widened it. */
        g_assert_cmpint(in_flight(disks[0]), <=, 80 * KiB + REQUEST_BYTES);
        /* The one that came later has its part before the first is done. */
        if (seconds == WINDOW) {
            g_assert_cmpint(used_count(disks[1]->qts, disks[1]->vq), >=, 4);
            g_assert_cmpint(used_count(disks[0]->qts, disks[0]->vq), <, COUNT);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        check_first_done(disks[i], requests[i], COUNT, COUNT);
        wait_for(gate_of(disks[i], "in-flight-bytes") == 0);
        disk_free(disks[i]);
    }
    free_page(path);
}

static int64_t most_weight(Disk *disk)
{
    QDict *gate = shown(disk->qts);
    const QListEntry *entry;
    int64_t most = 0;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(gate, "members"), entry) {
        int64_t weight = qdict_get_int(qobject_to(QDict, qlist_entry_obj(entry)),
                                       "weight");

        most = MAX(most, weight);
    }
    qobject_unref(gate);
    return most;
}

/* Of the sixteen requests the VM with three times the weight comes to have twelve, and ten of
 * them before it has none left to wait. Equal parts would be eight of each. */
static void test_weights(void)
{
    char *path = new_page();
    Disk *light = member(path), *heavy = member(path);
    Request requests[2][COUNT];

    qmp_ok(heavy->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'weight': 300}}");
    fill(light, heavy, requests[0], requests[1]);
    step_both(light, heavy, KEEPALIVE_NS);
    g_assert_cmpint(most_weight(light), ==, 300);
    while (gate_of(heavy, "in-flight-bytes") < 10 * REQUEST_BYTES
           || gate_of(light, "in-flight-bytes") > 6 * REQUEST_BYTES) {
        g_assert_cmpint(waiting(heavy), >, 0);
        step_both(light, heavy, SECOND_NS / 2);
    }
    step_both(light, heavy, 3 * COUNT * SECOND_NS);
    disk_free(light);
    disk_free(heavy);
    free_page(path);
}

static void read_at(Disk *disk, unsigned request)
{
    send_request(disk, VIRTIO_BLK_T_IN, 2, request * REQUEST_BYTES / SECTOR_BYTES, 0);
}

/* On a device with an arm a request that goes on where another ended waits for its turn,
 * though there is room; and another reader's then waits for it. */
static void test_runs(void)
{
    char *path = new_page(), page[PAGE_BYTES];
    Disk *disk;

    fill_identity(page, "SLUICEGT", "sda");
    stq_he_p(page + 96, 1);
    write_file(path, page, PAGE_BYTES, 0660);
    disk = member(path);
    /* Of no known reader, and so of one run. */
    read_at(disk, 0);
    read_at(disk, 100);
    read_at(disk, 1);
    wait_for(waiting(disk) == 1);
    read_at(disk, 101);
    wait_for(waiting(disk) == 2);
    qtest_clock_step(disk->qts, RUN_NS);
    wait_for(waiting(disk) == 1);
    read_at(disk, 2);
    read_at(disk, 102);
    wait_for(waiting(disk) == 2);
    qtest_clock_step(disk->qts, RUN_NS);
    wait_for(waiting(disk) == 0);
    disk_free(disk);
    free_page(path);
}

static void test_killed(void)
{
    char *path = new_page();
    Disk *survivor = member(path), *victim;
    Wrapper wrapper = wrap_qemu();
    QDict *gate;
    Request requests[2][COUNT];

    victim = member(path);
    unwrap_qemu(&wrapper);
    fill(victim, survivor, requests[0], requests[1]);
    gate = shown(survivor->qts);
    kill_other(survivor->qts, qdict_get_qlist(gate, "members"), victim);
    qobject_unref(gate);
    g_assert_cmpint(in_flight(survivor), ==, 64 * KiB);
    for (int64_t ns = 0; ns < REAP_NS + SECOND_NS; ns += KEEPALIVE_NS) {
        qtest_clock_step(survivor->qts, KEEPALIVE_NS);
    }
    /* The dead one's bytes are its own now. */
    g_assert_cmpint(member_count(survivor), ==, 2);
    wait_for(waiting(survivor) <= COUNT - WINDOW);
    for (unsigned i = 0; i < COUNT; i++) {
        qtest_clock_step(survivor->qts, SECOND_NS);
    }
    wait_for(used_count(survivor->qts, survivor->vq) == COUNT);
    disk_free(survivor);
    free_killed(victim, &wrapper);
    free_page(path);
}

/* A stream's read that is old holds the background of both. */
static void test_age(void)
{
    char *path = new_page();
    Disk *stream = member(path), *other = member(path);
    Request requests[3];

    /* The throttle lets the first go at once, and each other a second later. */
    send_many(stream, 2, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(stream->qts, stream->vq) == 1
             && gate_of(stream, "in-flight-bytes") == REQUEST_BYTES);
    send_request(stream, VIRTIO_BLK_T_IN, 1, 0, 0);
    wait_for(stat_of(stream->qts, "movie", "blk-read", "in-flight") == 1);
    step_both(stream, other, 10 * NS_PER_MS);
    send_request(other, VIRTIO_BLK_T_IN, 2, 0, 0);
    send_request(stream, VIRTIO_BLK_T_IN, 2, 0, 0);
    wait_for(waiting(other) == 1 && waiting(stream) == 1);
    g_assert(is_pausing(other));
    g_assert(is_pausing(stream));
    step_both(stream, other, 500 * NS_PER_MS);
    g_assert_cmpint(waiting(other), ==, 1);
    g_assert_cmpint(waiting(stream), ==, 1);
    /* It is done: the background goes on. */
    qtest_clock_step(stream->qts, 2 * SECOND_NS);
    wait_for(stat_of(stream->qts, "movie", "blk-read", "in-flight") == 0);
    wait_for(waiting(stream) == 0);
    qtest_clock_step(other->qts, 5 * NS_PER_MS);
    wait_for(waiting(other) == 0);
    g_assert(!is_pausing(other));
    disk_free(stream);
    disk_free(other);
    free_page(path);
}

/* Without a page a VM's own streams pause its background as well. */
static void test_age_alone(void)
{
    Disk *disk = slow_disk(false);
    Request requests[2];

    qtest_clock_step(disk->qts, SECOND_NS);
    send_many(disk, 2, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(used_count(disk->qts, disk->vq) == 1
             && gate_of(disk, "in-flight-bytes") == REQUEST_BYTES);
    send_request(disk, VIRTIO_BLK_T_IN, 1, 0, 0);
    wait_for(stat_of(disk->qts, "movie", "blk-read", "in-flight") == 1);
    qtest_clock_step(disk->qts, 10 * NS_PER_MS);
    send_request(disk, VIRTIO_BLK_T_IN, 2, 0, 0);
    send_request(disk, VIRTIO_BLK_T_OUT, 2, 0, 0);
    wait_for(waiting(disk) == 1 && backlog(disk, "bulk", "blk-write") == 1);
    g_assert(is_pausing(disk));
    /* Nothing is in flight for writes: one goes after a pause. */
    qtest_clock_step(disk->qts, 190 * NS_PER_MS);
    g_assert_cmpint(backlog(disk, "bulk", "blk-write"), ==, 1);
    qtest_clock_step(disk->qts, 20 * NS_PER_MS);
    wait_for(backlog(disk, "bulk", "blk-write") == 0);
    g_assert_cmpint(waiting(disk), ==, 1);
    for (unsigned i = 0; i < 4; i++) {
        qtest_clock_step(disk->qts, SECOND_NS);
    }
    wait_for(waiting(disk) == 0);
    disk_free(disk);
}

static void test_lost(void)
{
    char *path = new_page(), *another = new_page();
    Disk *disks[2] = { member(path), member(path) };
    Request requests[2][COUNT];

    fill(disks[0], disks[1], requests[0], requests[1]);
    g_assert(!is_lost(disks[0]));
    g_assert_cmpint(truncate(path, 0), ==, 0);
    step_both(disks[0], disks[1], KEEPALIVE_NS);
    /* The other has a window of its own, as wide as that of all was. */
    wait_for(waiting(disks[1]) <= COUNT - WINDOW);
    for (unsigned i = 0; i < 2; i++) {
        g_assert(is_lost(disks[i]));
        g_assert_cmpint(member_count(disks[i]), ==, 0);
        open_page(disks[i]->qts, "again", another);
        join(disks[i]->qts, "again");
        qmp_ok(disks[i]->qts, "{'execute': 'object-del', 'arguments': {'id': 'sda'}}");
    }
    g_assert_cmpint(member_count(disks[0]), ==, 4);
    g_assert_cmpint(in_flight(disks[0]), ==, gate_of(disks[0], "in-flight-bytes")
                                             + gate_of(disks[1], "in-flight-bytes"));
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        step_both(disks[0], disks[1], SECOND_NS);
    }
    for (unsigned i = 0; i < 2; i++) {
        wait_for(used_count(disks[i]->qts, disks[i]->vq) == COUNT);
        disk_free(disks[i]);
    }
    free_page(path);
    free_page(another);
}

static void test_leaving(void)
{
    char *path = new_page();
    Disk *disk = member(path);

    g_assert_cmpint(member_count(disk), ==, 2);
    qmp_refused(disk->qts, "{'execute': 'object-del', 'arguments': {'id': 'sda'}}",
                "sda", "in use");
    set_gate(disk);
    g_assert_cmpint(member_count(disk), ==, 0);
    join(disk->qts, "sda");
    g_assert_cmpint(member_count(disk), ==, 2);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-gate', 'arguments': {'id': 'sluice0'}}");
    g_assert_cmpint(member_count(disk), ==, 0);
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': {'id': 'sda'}}");
    disk_free(disk);
    free_page(path);
}

static void check_path_refused(QTestState *qts, const char *path, const char *why)
{
    const char *words[] = { path, why, NULL };

    check_refused(qts, qtest_qmp(qts, "{'execute': 'object-add', 'arguments': "
                                 "{'qom-type': 'shaper-gate', 'id': 'g', "
                                 "'path': %s}}", path), words);
}

static void test_refusals(void)
{
    char *path = new_page();
    Disk *disk = slow_disk(false);
    QTestState *qts = disk->qts;

    check_path_refused(qts, "/nowhere/x.gate", "open");
    write_page(path, "SLUICEGP", PAGE_BYTES, 0660);
    check_path_refused(qts, path, "no gate page");
    write_page(path, "SLUICEGT", PAGE_BYTES - 1, 0660);
    check_path_refused(qts, path, "16895");
    write_page(path, "SLUICEGT", PAGE_BYTES, 0666);
    check_path_refused(qts, path, "0666");
#define SET "{'execute': 'shaper-set-gate', 'arguments': {'id': 'sluice0', "
    qmp_refused(qts, SET "'target-ns': 1000, 'gate': 'sdz'}}", "sdz",
                "query-shaper-gates");
    qmp_refused(qts, SET "'gate': 'sdz'}}", "gate", "target-ns");
    g_assert_cmpint(gate_of(disk, "window-bytes"), ==, 64 * KiB);
    disk_free(disk);
    free_page(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/gate-page/two-share-a-window", test_two_share_a_window);
    qtest_add_func("/sluice/gate-page/weights", test_weights);
    qtest_add_func("/sluice/gate-page/runs", test_runs);
    qtest_add_func("/sluice/gate-page/killed", test_killed);
    qtest_add_func("/sluice/gate-page/age", test_age);
    qtest_add_func("/sluice/gate-page/age-alone", test_age_alone);
    qtest_add_func("/sluice/gate-page/lost", test_lost);
    qtest_add_func("/sluice/gate-page/leaving", test_leaving);
    qtest_add_func("/sluice/gate-page/refusals", test_refusals);
    return g_test_run();
}
