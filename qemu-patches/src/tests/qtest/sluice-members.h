/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pages that several QEMUs map, and their members, for the qtests: a page is written by the
 * words of its spec in docs/specs, and not by the code that reads it.
 */
#ifndef TESTS_SLUICE_MEMBERS_H
#define TESTS_SLUICE_MEMBERS_H

#include "qemu/bswap.h"
#include "sluice-disk.h"

#define PAGE_BYTES      16896

/* All else on the page is 0. */
G_GNUC_UNUSED
static void fill_identity(char *page, const char *magic, const char *name)
{
    memset(page, 0, PAGE_BYTES);
    memcpy(page, magic, 8);
    stl_he_p(page + 8, 1);
    stl_he_p(page + 12, 512);
    stl_he_p(page + 16, 128);
    stl_he_p(page + 20, 128);
    strcpy(page + 32, name);
}

G_GNUC_UNUSED
static void write_file(const char *path, const char *bytes, size_t length,
                       mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(write(fd, bytes, length), ==, length);
    g_assert_cmpint(fchmod(fd, mode), ==, 0);
    close(fd);
}

/* The clocks of two QEMUs in turn: one sees the other up to step_ns late. */
G_GNUC_UNUSED
static void step_in_turn(Disk *a, Disk *b, int64_t step_ns, int64_t ns)
{
    for (; ns > 0; ns -= step_ns) {
        qtest_clock_step(a->qts, step_ns);
        qtest_clock_step(b->qts, step_ns);
    }
}

/* QEMUs that begin between wrap and unwrap may die without failing the test: a shell is its
 * child, and ends well even if QEMU does not. */
typedef struct Wrapper {
    char *folder;
    char *script;
    char *qemu;                 /* as it was */
} Wrapper;

G_GNUC_UNUSED
static Wrapper wrap_qemu(void)
{
    Wrapper wrapper = {
        .folder = g_dir_make_tmp("sluice-members.XXXXXX", NULL),
        .qemu = g_strdup(getenv("QTEST_QEMU_BINARY")),
    };
    g_autofree char *text = g_strdup_printf("#!/bin/sh\n%s \"$@\"\nexit 0\n",
                                            wrapper.qemu);

    g_assert(wrapper.folder);
    wrapper.script = g_build_filename(wrapper.folder, "qemu-system-x86_64", NULL);
    write_file(wrapper.script, text, strlen(text), 0755);
    setenv("QTEST_QEMU_BINARY", wrapper.script, 1);
    return wrapper;
}

G_GNUC_UNUSED
static void unwrap_qemu(const Wrapper *wrapper)
{
    setenv("QTEST_QEMU_BINARY", wrapper->qemu, 1);
}

/* The member of another process than this, which is wrapped, is killed. */
G_GNUC_UNUSED
static void kill_other(QTestState *qts, const QList *members, Disk *victim)
{
    const QListEntry *entry;
    pid_t pid = 0;

    QLIST_FOREACH_ENTRY(members, entry) {
        int64_t found = qdict_get_int(qobject_to(QDict, qlist_entry_obj(entry)), "pid");

        pid = found != qtest_pid(qts) ? found : pid;
    }
    g_assert_cmpint(pid, >, 1);
    g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
    qtest_wait_qemu(victim->qts);
}

G_GNUC_UNUSED
static void free_killed(Disk *victim, Wrapper *wrapper)
{
    qtest_quit(victim->qts);
    unlink(victim->image);
    unlink(victim->page);
    unlink(wrapper->script);
    rmdir(wrapper->folder);
    g_free(wrapper->script);
    g_free(wrapper->folder);
    g_free(wrapper->qemu);
}

#endif
