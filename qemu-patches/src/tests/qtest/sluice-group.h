/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A group's page for the qtests, written by the words of
 * docs/specs/group-page.md as the controller writes it, and not by the code
 * that reads it.
 */
#ifndef TESTS_SLUICE_GROUP_H
#define TESTS_SLUICE_GROUP_H

#include "sluice-members.h"

#define PAGE_LIMIT      128
#define GROUP_BURST     4096                    /* bytes: one request */
#define RATE            1000000                 /* bytes per second */

G_GNUC_UNUSED
static uint64_t check_word(const uint64_t *words)
{
    uint64_t check = 0;

    for (unsigned i = 0; i < 6; i++) {
        check = (check ^ words[i]) * 0x9e3779b97f4a7c15ULL;
        check ^= check >> 32;
    }
    return check;
}

G_GNUC_UNUSED
static void fill_limit(char *page, uint64_t sequence, uint64_t rate,
                       uint64_t base_ns, uint64_t base_units)
{
    uint64_t words[7] = { sequence, 0, rate, GROUP_BURST, base_ns,
                          base_units };

    words[6] = check_word(words);
    memcpy(page + PAGE_LIMIT, words, sizeof(words));
}

G_GNUC_UNUSED
static void fill_page(char *page)
{
    fill_identity(page, "SLUICEGP", "disks");
    fill_limit(page, 2, RATE, 0, 0);
}

/* In place, under the eyes of those that have it open. */
G_GNUC_UNUSED
static void rewrite_limit(const char *path, uint64_t rate, uint64_t base_ns,
                          uint64_t base_units)
{
    char page[PAGE_BYTES];
    int fd = open(path, O_RDWR);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(pread(fd, page, PAGE_BYTES, 0), ==, PAGE_BYTES);
    fill_limit(page, ldq_he_p(page + PAGE_LIMIT) + 2, rate, base_ns,
               base_units);
    g_assert_cmpint(pwrite(fd, page + PAGE_LIMIT, 56, PAGE_LIMIT), ==, 56);
    close(fd);
}

G_GNUC_UNUSED
static char *new_group(void)
{
    char page[PAGE_BYTES], *path;
    int fd = g_file_open_tmp("sluice-group.XXXXXX", &path, NULL);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    fill_page(page);
    write_file(path, page, PAGE_BYTES, 0660);
    return path;
}

G_GNUC_UNUSED
static void free_group(char *path)
{
    unlink(path);
    g_free(path);
}

#endif
