/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of groups: disks of several QEMUs under one limit, by weight, also when one of
 * them stops, moves, leaves or is killed.
 *
 * The limit is 1 MB/s with a burst of one request, so that a request of 4096
 * bytes takes 4.096 ms.
 *
 * The virtual clocks of two QEMUs are stepped in turn, STEP_NS at a time: one
 * sees the other up to so much late, as if its timers were late.
 */
#include "qemu/osdep.h"
#include "sluice-group.h"

#define STEP_NS         NS_PER_MS
#define MANY            80                      /* a ring has 85 */
#define GRACE_NS        (25 * NS_PER_MS)
#define RECHECK_NS      (20 * NS_PER_MS)
#define REAP_NS         (5000 * NS_PER_MS)
#define KEEPALIVE_NS    (100 * NS_PER_MS)

/* Members */

static void open_group(QTestState *qts, const char *path)
{
    qmp_ok(qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper-group', 'id': 'disks', 'path': %s}}", path);
}

static void join_as(QTestState *qts, const char *resource, unsigned weight)
{
    qmp_ok(qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': %s, 'group': 'disks', "
           "'weight': %u}}", resource, weight);
}

static void join(QTestState *qts, unsigned weight)
{
    join_as(qts, "blk-read", weight);
}

static void leave(QTestState *qts)
{
    qmp_ok(qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': 'blk-read'}}");
}

static Disk *disk_of_group(const char *path, unsigned weight,
                           const char *options, const char *more)
{
    Disk *disk = disk_new(options, more);

    open_group(disk->qts, path);
    join(disk->qts, weight);
    return disk;
}

/* The members of the first group, for the caller to unref. */
static QList *members(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-groups'}");
    QList *groups = qdict_get_qlist(response, "return");
    QList *list = qdict_get_qlist(qobject_to(QDict, qlist_peek(groups)),
                                  "members");

    qobject_ref(list);
    qobject_unref(response);
    return list;
}

/* The rate that the page of the first group shows. */
static int64_t shown_rate(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-groups'}");
    QList *groups = qdict_get_qlist(response, "return");
    int64_t rate = qdict_get_int(qobject_to(QDict, qlist_peek(groups)),
                                 "rate");

    qobject_unref(response);
    return rate;
}

static unsigned member_count(QTestState *qts)
{
    QList *list = members(qts);
    unsigned count = qlist_size(list);

    qobject_unref(list);
    return count;
}

static bool first_member_waits(QTestState *qts)
{
    QList *list = members(qts);
    bool waits = qdict_get_bool(qobject_to(QDict, qlist_peek(list)), "waiting");

    qobject_unref(list);
    return waits;
}

#define passed(disk)    admitted(disk, "default", "blk-read")
#define waiting(disk)   backlog(disk, "default", "blk-read")

static void step_both(Disk *a, Disk *b, int64_t ns)
{
    step_in_turn(a, b, STEP_NS, ns);
}

/* Tests */

static void check_limit(const char *options, const char *more)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, options, more);
    Request requests[16];

    send_many(disk, 16, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(waiting(disk) == 15);
    /* The bucket is empty; a byte of token is there after a microsecond. */
    qtest_clock_step(disk->qts, 999);
    g_assert_cmpint(passed(disk), ==, 1);
    qtest_clock_step(disk->qts, 1);
    /* An I/O thread has a timer of its own, for which stepping does not wait. */
    wait_for(passed(disk) == 2);
    for (unsigned n = 3; n <= 16; n++) {
        qtest_clock_step(disk->qts, REQUEST_NS - 1);
        g_assert_cmpint(passed(disk), ==, n - 1);
        qtest_clock_step(disk->qts, 1);
        wait_for(passed(disk) == n);
    }
    wait_for(used_count(disk->qts, disk->vq) == 16);
    check_first_done(disk, requests, 16, 16);
    g_assert(!first_member_waits(disk->qts));
    disk_free(disk);
    free_group(path);
}

static void test_limit(void)
{
    check_limit("", "");
}

static void test_limit_iothread(void)
{
    check_limit(",iothread=io0", "-object iothread,id=io0");
}

/* Reads and writes of one disk under one limit: a group of the two. */
static void test_both_directions(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request reads[8], writes[8];
    int64_t read, written;

    join_as(disk->qts, "blk-write", 100);
    g_assert_cmpint(member_count(disk->qts), ==, 2);
    send_many(disk, 8, VIRTIO_BLK_T_IN, 0, reads);
    wait_for(waiting(disk) == 7);
    send_many(disk, 8, VIRTIO_BLK_T_OUT, 0, writes);
    wait_for(backlog(disk, "default", "blk-write") == 8);
    qtest_clock_step(disk->qts, 1000);
    for (unsigned n = 2; n <= 16; n++) {
        read = passed(disk);
        written = admitted(disk, "default", "blk-write");
        g_assert_cmpint(read + written, ==, n);
        /* Neither gets ahead of the other by more than the first request. */
        g_assert_cmpint(ABS(read - written), <=, 1);
        qtest_clock_step(disk->qts, REQUEST_NS);
    }
    wait_for(used_count(disk->qts, disk->vq) == 16);
    check_first_done(disk, reads, 8, 8);
    check_first_done(disk, writes, 8, 8);
    disk_free(disk);
    free_group(path);
}

/* The disks of two QEMUs, both of which want more than they get. */
static void start_two(const char *path, Disk *disks[2],
                      Request requests[2][MANY])
{
    for (unsigned i = 0; i < 2; i++) {
        disks[i] = disk_of_group(path, i ? 300 : 100, "", "");
    }
    for (unsigned i = 0; i < 2; i++) {
        send_many(disks[i], MANY, VIRTIO_BLK_T_IN, 0, requests[i]);
        wait_for(waiting(disks[i]) + passed(disks[i]) == MANY);
    }
    /* One has passed; a request that comes to an empty bucket waits. */
    g_assert_cmpint(waiting(disks[0]) + waiting(disks[1]), ==, 2 * MANY - 1);
    g_assert_cmpint(member_count(disks[0]->qts), ==, 2);
    g_assert_cmpint(member_count(disks[1]->qts), ==, 2);
}

static void test_two_vms(void)
{
    char *path = new_group();
    Disk *disks[2];
    Request requests[2][MANY];
    int64_t a, b, late = DIV_ROUND_UP(STEP_NS, REQUEST_NS);

    start_two(path, disks, requests);
    step_both(disks[0], disks[1], 300 * NS_PER_MS);
    a = passed(disks[0]);
    b = passed(disks[1]);
    /* 73 requests in 300 ms, one at the start; late timers may cost one. */
    g_assert_cmpint(a + b, <=, 300 * NS_PER_MS / REQUEST_NS + 2);
    g_assert_cmpint(a + b, >=, 300 * NS_PER_MS / REQUEST_NS * 3 / 4);
    /* One request of each, over its weight, and the lateness. */
    g_assert_cmpint(ABS(3 * a - b), <=, (1 + late) * (1 + 3));
    /* Then the first alone, to its end. */
    while (passed(disks[0]) < MANY || passed(disks[1]) < MANY) {
        step_both(disks[0], disks[1], STEP_NS);
    }
    for (unsigned i = 0; i < 2; i++) {
        wait_for(used_count(disks[i]->qts, disks[i]->vq) == MANY);
        check_first_done(disks[i], requests[i], MANY, MANY);
        disk_free(disks[i]);
    }
    free_group(path);
}

static void test_killed(void)
{
    char *path = new_group();
    Disk *survivor = disk_of_group(path, 1, "", ""), *victim;
    Wrapper wrapper = wrap_qemu();
    QList *list;
    Request requests[MANY];
    int64_t before, stated_ns = GRACE_NS + RECHECK_NS + 2 * REQUEST_NS;

    victim = disk_of_group(path, 10000, "", "");
    unwrap_qemu(&wrapper);
    send_many(victim, MANY, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(waiting(victim) == MANY - 1);
    send_many(survivor, MANY, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(waiting(survivor) == MANY);
    step_both(survivor, victim, 100 * NS_PER_MS);
    before = passed(survivor);
    g_assert_cmpint(before, <=, 2);
    g_assert_cmpint(passed(victim), >=, 15);
    /* In the middle of its turns. */
    list = members(survivor->qts);
    kill_other(survivor->qts, list, victim);
    qobject_unref(list);
    for (int64_t ns = 0; ns < stated_ns + 20 * REQUEST_NS; ns += STEP_NS) {
        qtest_clock_step(survivor->qts, STEP_NS);
    }
    g_assert_cmpint(passed(survivor), >=, before + 20);
    /* Its slot is another's after a while: one keepalive looks at one slot. */
    g_assert_cmpint(member_count(survivor->qts), ==, 2);
    for (int64_t ns = 0; ns < REAP_NS; ns += KEEPALIVE_NS) {
        qtest_clock_step(survivor->qts, KEEPALIVE_NS);
    }
    g_assert_cmpint(member_count(survivor->qts), ==, 1);
    wait_for(used_count(survivor->qts, survivor->vq) == MANY);
    check_first_done(survivor, requests, MANY, MANY);
    disk_free(survivor);
    free_killed(victim, &wrapper);
    free_group(path);
}

/* Eight reads, of which the group lets one pass. */
static void hold_by_group(Disk *disk, Request requests[8])
{
    send_many(disk, 8, VIRTIO_BLK_T_IN, 0, requests);
    wait_for(waiting(disk) == 7);
    wait_for(used_count(disk->qts, disk->vq) == 1);
}

static void test_leave(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8];

    hold_by_group(disk, requests);
    qmp_refused(disk->qts, "{'execute': 'object-del', 'arguments': "
                "{'id': 'disks'}}", "disks", "in use");
    leave(disk->qts);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_first_done(disk, requests, 8, 8);
    g_assert_cmpint(member_count(disk->qts), ==, 0);
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'disks'}}");
    disk_free(disk);
    free_group(path);
}

/* The group may go before the shaper, by way of it. */
static void test_unplug(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8];

    hold_by_group(disk, requests);
    qpci_unplug_acpi_device_test(disk->qts, "disk0", SLOT);
    g_assert(!first_member_waits(disk->qts));
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'sluice0'}}");
    g_assert_cmpint(member_count(disk->qts), ==, 0);
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'disks'}}");
    disk_free(disk);
    free_group(path);
}

static void test_stop_cont(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8];

    hold_by_group(disk, requests);
    g_assert(first_member_waits(disk->qts));
    qmp_ok(disk->qts, "{'execute': 'stop'}");
    /* A VM that is stopped waits for nothing, and is not waited for. */
    g_assert(!first_member_waits(disk->qts));
    g_assert_cmpint(waiting(disk), ==, 0);
    qmp_ok(disk->qts, "{'execute': 'cont'}");
    wait_for(waiting(disk) == 7);
    g_assert(first_member_waits(disk->qts));
    qtest_clock_step(disk->qts, 8 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_first_done(disk, requests, 8, 8);
    disk_free(disk);
    free_group(path);
}

static void test_reset(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8], again;

    hold_by_group(disk, requests);
    qvirtqueue_cleanup(disk->dev->bus, disk->vq, &disk->qs->alloc);
    qvirtio_start_device(disk->dev);
    g_assert(!first_member_waits(disk->qts));
    setup_queue(disk);
    again = send_request(disk, VIRTIO_BLK_T_IN, 0, 0, 0);
    wait_for(waiting(disk) == 1);
    qtest_clock_step(disk->qts, REQUEST_NS);
    wait_for(status_of(disk, again) == VIRTIO_BLK_S_OK);
    disk_free(disk);
    free_group(path);
}

/* Held by a limit that would take days; then the controller raises it. */
static void test_limit_raised(void)
{
    char *path = new_group();
    Disk *disk;
    Request requests[8];

    rewrite_limit(path, 1, 0, 0);
    disk = disk_of_group(path, 100, "", "");
    hold_by_group(disk, requests);
    qtest_clock_step(disk->qts, 1000 * NS_PER_MS);
    g_assert_cmpint(waiting(disk), <=, 7);
    g_assert_cmpint(waiting(disk), >=, 6);
    rewrite_limit(path, RATE, 1000 * NS_PER_MS, 1);
    /* Noticed by the next keepalive; the debt is one request at most. */
    qtest_clock_step(disk->qts, KEEPALIVE_NS + 8 * REQUEST_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_first_done(disk, requests, 8, 8);
    disk_free(disk);
    free_group(path);
}

/*
 * Another member has written that the group's clock starts in an hour: those
 * that are members go on by the clock that they had, none becomes a member, and
 * once the limit is repaired it is the same as before.
 */
static void test_clock_ahead(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8];

    hold_by_group(disk, requests);
    rewrite_limit(path, RATE, 3600 * 1000 * NS_PER_MS, 0);
    g_assert_cmpint(shown_rate(disk->qts), ==, 0);
    qmp_refused(disk->qts, "{'execute': 'shaper-set-group', 'arguments': "
                "{'id': 'sluice0', 'resource': 'blk-write', 'group': 'disks'}}",
                "group 'disks'", "limit is damaged");
    qtest_clock_step(disk->qts, 1000);
    for (unsigned n = 2; n < 6; n++) {
        g_assert_cmpint(passed(disk), ==, n);
        qtest_clock_step(disk->qts, REQUEST_NS - 1);
        g_assert_cmpint(passed(disk), ==, n);
        qtest_clock_step(disk->qts, 1);
    }
    rewrite_limit(path, RATE, 0, 0);
    g_assert_cmpint(shown_rate(disk->qts), ==, RATE);
    qtest_clock_step(disk->qts, 2 * REQUEST_NS - 1);
    g_assert_cmpint(passed(disk), ==, 7);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(passed(disk), ==, 8);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_first_done(disk, requests, 8, 8);
    disk_free(disk);
    free_group(path);
}

/* Class, then ceiling, then group: each one makes it slower. */
static void test_hierarchy(void)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, "", "");
    Request requests[8];

    qmp_ok(disk->qts, "{'execute': 'shaper-set-ceiling', 'arguments': "
           "{'id': 'sluice0', 'limits': [{'resource': 'blk-read', "
           "'bytes-per-second': 500000, 'burst-bytes': 4096}]}}");
    limit_class(disk, "bulk", 2, "blk-read");
    send_many(disk, 8, VIRTIO_BLK_T_IN, 2, requests);
    wait_for(backlog(disk, "bulk", "blk-read") == 7);
    /* The ceiling is slowest: 8.192 ms for each but the first two. */
    qtest_clock_step(disk->qts, 6 * 2 * REQUEST_NS);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, 7);
    qtest_clock_step(disk->qts, 1);
    g_assert_cmpint(admitted(disk, "bulk", "blk-read"), ==, 8);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    disk_free(disk);
    free_group(path);
}

/* Both ends are members; held requests go on under the group there. */
static void test_migrate(void)
{
    char *group = new_group();
    Disk *source = disk_of_group(group, 100, "", "");
    Disk target;
    char *uri;
    Request requests[8];

    hold_by_group(source, requests);
    uri = boot_target(&target, source, "", "");
    open_group(target.qts, group);
    join(target.qts, 100);
    migrate(source->qs, target.qs, uri);
    wait_for(stat_of(target.qts, "default", "blk-read", "backlog-requests")
             > 0);
    /* The source is waited for no more. */
    g_assert(!first_member_waits(target.qts));
    qtest_clock_step(target.qts, 8 * REQUEST_NS);
    for (unsigned i = 0; i < 8; i++) {
        wait_for(qtest_readb(target.qts, requests[i].status)
                 == VIRTIO_BLK_S_OK);
    }
    g_assert_cmpint(used_count(target.qts, source->vq), ==, 8);
    free_migrated(source, &target, uri);
    free_group(group);
}

static bool is_lost(QTestState *qts)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-groups'}");
    QList *groups = qdict_get_qlist(response, "return");
    bool lost = qdict_get_bool(qobject_to(QDict, qlist_peek(groups)), "lost");

    qobject_unref(response);
    return lost;
}

/* The controller makes the page anew, and gives it to those that had the other. */
static void join_anew(Disk *disk, const char *path)
{
    char page[PAGE_BYTES];

    g_assert_cmpint(unlink(path), ==, 0);
    fill_page(page);
    write_file(path, page, PAGE_BYTES, 0660);
    qmp_ok(disk->qts, "{'execute': 'object-add', 'arguments': {'qom-type': "
           "'shaper-group', 'id': 'anew', 'path': %s}}", path);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
           "'sluice0', 'resource': 'blk-read', 'group': 'anew'}}");
    qmp_ok(disk->qts, "{'execute': 'object-del', 'arguments': "
           "{'id': 'disks'}}");
    g_assert_cmpint(member_count(disk->qts), ==, 1);
    g_assert(!is_lost(disk->qts));
}

/* Shortened to so many bytes before anything is held, or while it is. */
static void check_shortened(const char *options, const char *more, off_t left,
                            bool held)
{
    char *path = new_group();
    Disk *disk = disk_of_group(path, 100, options, more);
    Request requests[8];

    g_assert(!is_lost(disk->qts));
    if (!held) {
        g_assert_cmpint(truncate(path, left), ==, 0);
    }
    hold_by_group(disk, requests);
    if (held) {
        g_assert_cmpint(truncate(path, left), ==, 0);
    }
    qtest_clock_step(disk->qts, 1000);
    /* The limit holds all the same, with another burst at most. */
    for (unsigned n = 2; n <= 7; n++) {
        qtest_clock_step(disk->qts, REQUEST_NS);
        wait_for(passed(disk) >= n);
        g_assert_cmpint(passed(disk), <=, n + 2);
    }
    qtest_clock_step(disk->qts, KEEPALIVE_NS);
    wait_for(used_count(disk->qts, disk->vq) == 8);
    check_first_done(disk, requests, 8, 8);
    g_assert(is_lost(disk->qts));
    qmp_refused(disk->qts, "{'execute': 'shaper-set-group', 'arguments': "
                "{'id': 'sluice0', 'resource': 'blk-write', 'group': 'disks'}}",
                "group 'disks'", "has shortened it");
    join_anew(disk, path);
    disk_free(disk);
    free_group(path);
}

static void test_shortened(void)
{
    check_shortened("", "", 0, true);
    check_shortened("", "", 0, false);
    check_shortened("", "", 4096, true);
}

static void test_shortened_iothread(void)
{
    check_shortened(",iothread=io0", "-object iothread,id=io0", 0, true);
    check_shortened(",iothread=io0", "-object iothread,id=io0", 0, false);
}

/* Others that wait for the same group do not wait for a member that has lost it. */
static void test_shortened_many(void)
{
    char *path = new_group();
    Disk *disks[2];
    Request requests[2][MANY];

    start_two(path, disks, requests);
    g_assert_cmpint(truncate(path, 0), ==, 0);
    while (passed(disks[0]) < MANY || passed(disks[1]) < MANY) {
        step_both(disks[0], disks[1], STEP_NS);
    }
    for (unsigned i = 0; i < 2; i++) {
        wait_for(used_count(disks[i]->qts, disks[i]->vq) == MANY);
        check_first_done(disks[i], requests[i], MANY, MANY);
        g_assert(is_lost(disks[i]->qts));
        disk_free(disks[i]);
    }
    free_group(path);
}

/* Each refusal names the field, the value and the remedy. */
#define PAGE_REFUSED(qts, path, ...)                                        \
    check_refused(qts, qtest_qmp(qts, "{'execute': 'object-add', "          \
                                 "'arguments': {'qom-type': 'shaper-group',"\
                                 " 'id': 'bad', 'path': %s}}", path),       \
                  (const char *[]) { path, __VA_ARGS__, NULL })

static void check_pages_refused(QTestState *qts, const char *path)
{
    char page[PAGE_BYTES];

    fill_page(page);
    PAGE_REFUSED(qts, "/nonexistent/x.group", "No such file");
    PAGE_REFUSED(qts, "/dev/zero", "not a file", "controller");
    write_file(path, page, PAGE_BYTES - 1, 0660);
    PAGE_REFUSED(qts, path, "16895 bytes", "16896");
    write_file(path, page, PAGE_BYTES, 0662);
    PAGE_REFUSED(qts, path, "0662", "use 0660");
    page[0] = 'X';
    write_file(path, page, PAGE_BYTES, 0660);
    PAGE_REFUSED(qts, path, "no group page", "controller");
    fill_page(page);
    page[8] = 2;
    write_file(path, page, PAGE_BYTES, 0660);
    PAGE_REFUSED(qts, path, "another version", "one release");
    fill_page(page);
    page[PAGE_LIMIT + 16]++;
    write_file(path, page, PAGE_BYTES, 0660);
    PAGE_REFUSED(qts, path, "limit is damaged", "controller");
    if (geteuid() == 0) {
        fill_page(page);
        write_file(path, page, PAGE_BYTES, 0660);
        g_assert_cmpint(chown(path, 12345, 0), ==, 0);
        PAGE_REFUSED(qts, path, "user 12345", "root");
        g_assert_cmpint(chown(path, 0, 0), ==, 0);
    }
}

static void check_commands_refused(QTestState *qts)
{
#define SET(arguments) "{'execute': 'shaper-set-group', 'arguments': " \
                       "{'id': 'sluice0', 'resource': 'blk-read'" arguments "}}"
    qmp_refused(qts, SET(", 'group': 'disks', 'weight': 0"), "weight 0",
                "1 to 10000");
    qmp_refused(qts, SET(", 'group': 'disks', 'weight': 10001"),
                "weight 10001", "1 to 10000");
    qmp_refused(qts, SET(", 'weight': 5"), "weight 5", "group");
    qmp_refused(qts, SET(", 'group': 'sluice0'"), "group 'sluice0'",
                "query-shaper-groups");
    qmp_refused(qts, SET(", 'group': 'nobody'"), "group 'nobody'",
                "query-shaper-groups");
    qmp_refused(qts, "{'execute': 'shaper-set-group', 'arguments': {'id': "
                "'disks', 'resource': 'net-tx', 'group': 'disks'}}",
                "id 'disks'", "query-shapers");
    qmp_refused(qts, "{'execute': 'qom-set', 'arguments': {'path': "
                "'/objects/disks', 'property': 'path', 'value': '/x'}}",
                "path", "/x");
#undef SET
}

static void test_refused_input(void)
{
    char *path = new_group(), *bad = new_group();
    Disk *disk = disk_of_group(path, 55, "", "");
    QDict *before = query_shaper(disk->qts), *after;
    g_autoptr(GString) before_text = qobject_to_json(QOBJECT(before));
    g_autoptr(GString) after_text = NULL;

    check_pages_refused(disk->qts, bad);
    check_commands_refused(disk->qts);
    after = query_shaper(disk->qts);
    after_text = qobject_to_json(QOBJECT(after));
    g_assert_cmpstr(before_text->str, ==, after_text->str);
    g_assert(strstr(after_text->str, "\"group\": \"disks\""));
    g_assert(strstr(after_text->str, "\"weight\": 55"));
    qobject_unref(before);
    qobject_unref(after);
    disk_free(disk);
    free_group(bad);
    free_group(path);
}

/* The trace tells changes, not refusals. */
static void test_trace(void)
{
    char *path = new_group(), *log = new_group();
    g_autofree char *more = g_strdup_printf("-trace shaper_set_group -D %s",
                                            log);
    g_autofree char *text = NULL;
    Disk *disk = disk_new("", more);

    open_group(disk->qts, path);
    rewrite_limit(path, 0, 0, 0);
    qmp_refused(disk->qts, "{'execute': 'shaper-set-group', 'arguments': "
                "{'id': 'sluice0', 'resource': 'blk-read', 'group': 'disks', "
                "'weight': 77}}", "group 'disks'", "limit is damaged");
    rewrite_limit(path, RATE, 0, 0);
    join(disk->qts, 55);
    disk_free(disk);
    g_assert(g_file_get_contents(log, &text, NULL, NULL));
    g_assert(strstr(text, "group 'disks' weight 55"));
    g_assert(!strstr(text, "weight 77"));
    free_group(log);
    free_group(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/group/limit", test_limit);
    qtest_add_func("/sluice/group/limit/iothread", test_limit_iothread);
    qtest_add_func("/sluice/group/both-directions", test_both_directions);
    qtest_add_func("/sluice/group/two-vms", test_two_vms);
    qtest_add_func("/sluice/group/killed", test_killed);
    qtest_add_func("/sluice/group/leave", test_leave);
    qtest_add_func("/sluice/group/unplug", test_unplug);
    qtest_add_func("/sluice/group/stop-cont", test_stop_cont);
    qtest_add_func("/sluice/group/reset", test_reset);
    qtest_add_func("/sluice/group/limit-raised", test_limit_raised);
    qtest_add_func("/sluice/group/clock-ahead", test_clock_ahead);
    qtest_add_func("/sluice/group/hierarchy", test_hierarchy);
    qtest_add_func("/sluice/group/migrate", test_migrate);
    qtest_add_func("/sluice/group/shortened", test_shortened);
    qtest_add_func("/sluice/group/shortened/iothread", test_shortened_iothread);
    qtest_add_func("/sluice/group/shortened/two-vms", test_shortened_many);
    qtest_add_func("/sluice/group/refused-input", test_refused_input);
    qtest_add_func("/sluice/group/trace", test_trace);
    return g_test_run();
}
