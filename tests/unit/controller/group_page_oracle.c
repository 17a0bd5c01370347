/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What QEMU's side makes of group pages, for test_group_page.py. On standard
 * input: "init UNIT RATE BURST NOW" makes the page anew, "configure UNIT RATE
 * BURST NOW" changes its limit, "load PATH" takes one from a file, "clock NOW"
 * joins it. On standard output, for each: the header in hexadecimal, a status,
 * or what the group's clock shows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../../qemu-patches/tests/group-writer.h"

static _Alignas(128) SluiceGroupPage page;

static void print_header(void)
{
    const unsigned char *bytes = (const unsigned char *)&page;

    for (unsigned i = 0; i < SLUICE_GROUP_HEADER_BYTES; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}

static void set_limit(bool init)
{
    SluiceGroupLimit limit;
    uint64_t now_ns;
    unsigned unit;

    if (scanf("%u %" SCNu64 " %" SCNu64 " %" SCNu64, &unit, &limit.rate,
              &limit.burst, &now_ns) != 4) {
        return;
    }
    limit.unit = unit;
    if (init ? group_page_init(&page, "disks", &limit, now_ns)
             : group_configure(&page, &limit, now_ns)) {
        print_header();
    } else {
        printf("refused\n");
    }
}

static void load(void)
{
    char path[4096];
    size_t bytes = 0;
    FILE *file;

    if (scanf("%4095s", path) == 1 && (file = fopen(path, "rb"))) {
        bytes = fread((void *)&page, 1, sizeof(page), file);
        fclose(file);
    }
    printf("%d\n", sluice_group_page_check(&page, bytes));
}

static void show_clock(void)
{
    SluiceGroupMember member;
    uint64_t now_ns;

    if (scanf("%" SCNu64, &now_ns) == 1
        && sluice_group_join(&member, &page, sizeof(page), 4711, "vm1 blk-read",
                             300, now_ns) == SLUICE_GROUP_OK) {
        printf("%" PRIu64 "\n", group_units(&member, now_ns));
        sluice_group_leave(&member);
    } else {
        printf("refused\n");
    }
}

int main(void)
{
    char command[16];

    while (scanf("%15s", command) == 1) {
        if (!strcmp(command, "init") || !strcmp(command, "configure")) {
            set_limit(!strcmp(command, "init"));
        } else if (!strcmp(command, "load")) {
            load();
        } else if (!strcmp(command, "clock")) {
            show_clock();
        }
        fflush(stdout);
    }
    return 0;
}
