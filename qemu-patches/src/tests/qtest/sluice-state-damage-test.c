/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of a saved shaper that is damaged: the load is refused, with a word about the
 * damage, and changes nothing. The file is that of a real QEMU, in which a text was
 * replaced by another of the same length.
 */
#include "qemu/osdep.h"
#include "sluice-state.h"

/* A text of the saved state, another of the same length, and the error then. */
static const struct {
    const char *from;
    const char *to;
    const char *words[3];
} damages[] = {
    { "\"version\": 1", "\"version\": 7", { "version 7", "same release" } },
    { "\"version\": 1", "\"version\":\0001", { "zero byte" } },
    { "\"version\": 1", "\"version\": x", { "JSON" } },
    { "\"version\": 1", "\"verslon\": 1", { "version 0" } },
    { "\"ceiling-tokens\"", "\"ceiling-t0kens\"", { "ceiling-t" } },
    { "\"tag\": 3", "\"tag\": 2", { "tag 2", "in use", "another tag" } },
    { "\"lump\"", "\"bulk\"", { "'bulk'", "twice" } },
    { "\"lump\"", "\"lu*p\"", { "'lu*p'", "a-z" } },
    { "\"blk-write\"", "\"blk-wrote\"", { "blk-wrote" } },
    { "2000000", "-200000", { "bytes-per-second -200000", "range" } },
    { "\"bytes\": -4095", "\"bytes\": -4.95", { "bytes" } },
};

/* Loads it into a QEMU that goes on without; returns the output of that QEMU. */
static char *said_of(const char *image, const char *state)
{
    g_autofree char *log = g_strconcat(image, ".log", NULL);
    g_autofree char *more = g_strdup_printf("-incoming defer 2>%s", log);
    Disk target = { .image = (char *)image, .format = "raw",
                    .page = g_strconcat(image, ".page2", NULL) };
    QDict *shaper;
    char *said;

    target.qs = qtest_pc_boot("-object shaper,id=sluice0,page=%s "
                              "-blockdev driver=raw,node-name=d0,"
                              "file.driver=file,file.filename=%s,"
                              "file.locking=off -device virtio-blk-pci,"
                              "id=disk0,drive=d0,addr=%d,shaper=sluice0 %s",
                              target.page, image, SLOT, more);
    target.qts = target.qs->qts;
    load_refused(target.qts, state);
    /* Nothing of it has been taken. */
    shaper = query_shaper(target.qts);
    g_assert_cmpint(qlist_size(qdict_get_qlist(shaper, "classes")), ==, 1);
    g_assert(qlist_empty(qdict_get_qlist(shaper, "ceiling")));
    qobject_unref(shaper);
    qtest_shutdown(target.qs);
    g_assert(g_file_get_contents(log, &said, NULL, NULL));
    unlink(log);
    unlink(target.page);
    g_free(target.page);
    return said;
}

static void check_damage(const char *image, const char *state, char *place,
                         const char *text, size_t length, char *bytes,
                         size_t count, const char *const words[3])
{
    g_autofree char *kept = g_memdup2(place, length);
    g_autofree char *said = NULL;

    memcpy(place, text, length);
    g_assert(g_file_set_contents(state, bytes, count, NULL));
    memcpy(place, kept, length);
    said = said_of(image, state);
    for (unsigned i = 0; i < 3 && words[i]; i++) {
        if (!strstr(said, words[i]) || !strstr(said, "sluice0")) {
            g_error("'%s' does not say '%s'", said, words[i]);
        }
    }
}

static void test_damaged(void)
{
    static const char *const too_long[3] = { "4294967295 bytes" };
    Disk *disk = disk_new("", "");
    g_autofree char *state = g_strconcat(disk->image, ".state", NULL);
    g_autofree char *uri = g_strconcat("file:", state, NULL);
    g_autofree char *bytes = NULL;
    char *text;
    size_t count;

    set_bulk(disk, OWED);
    qmp_ok(disk->qts, "{'execute': 'shaper-set-class', 'arguments': "
           "{'id': 'sluice0', 'class': 'lump', 'tag': 3, 'limits': [{"
           "'resource': 'blk-write', 'bytes-per-second': 2000000}]}}");
    read_once(disk, 2);
    qmp_ok(disk->qts, "{'execute': 'migrate', 'arguments': {'uri': %s}}", uri);
    wait_for(migration_completed(disk->qts));
    g_assert(g_file_get_contents(state, &bytes, &count, NULL));
    for (unsigned i = 0; i < ARRAY_SIZE(damages); i++) {
        size_t length = strlen(damages[i].from);

        text = memmem(bytes, count, damages[i].from, length);
        g_assert(text);
        check_damage(disk->image, state, text, damages[i].to, length, bytes,
                     count, damages[i].words);
    }
    text = memmem(bytes, count, "shaper", 6);
    text = memmem(text, bytes + count - text, "{\"", 2);
    check_damage(disk->image, state, text - 4, "\xff\xff\xff\xff", 4, bytes,
                 count, too_long);
    unlink(state);
    disk_free(disk);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/state/damaged", test_damaged);
    return g_test_run();
}
