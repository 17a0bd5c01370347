/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The page of a group, as one writes it and others read it: layout, limit, and
 * contents. In the order of group.h.
 */
#include <string.h>

#include "group-fixture.h"

static void test_page_is_as_documented(void)
{
    check_equal(sluice_group_page_bytes(), 512 + 128 * 128);
    new_page(&one_megabyte);
    check(!memcmp(&page, "SLUICEGP", 8));
    check_equal(*(uint32_t *)((char *)&page + 8), 1);
    check_equal(*(uint32_t *)((char *)&page + 12), 512);
    check_equal(*(uint32_t *)((char *)&page + 16), 128);
    check_equal(*(uint32_t *)((char *)&page + 20), 128);
    check(!strcmp((char *)&page + 32, "test"));
    check_equal(*(uint64_t *)((char *)&page + 144), 1000000);
    check_equal(*(uint64_t *)((char *)&page + 152), 10000);
    check_equal(*(uint64_t *)((char *)&page + 160), START_NS);
    /* The value that the controller, in another language, must compute too. */
    check_equal(*(uint64_t *)((char *)&page + 176), 0x9a49d302722a3b85ULL);
}

static void test_page_refuses_values_out_of_range(void)
{
    static const SluiceGroupLimit bad[] = {
        { SLUICE_GROUP_UNITS, 1, 1 },
        { SLUICE_GROUP_BYTES, 0, 1 },
        { SLUICE_GROUP_BYTES, SLUICE_GROUP_RATE_MAX + 1, 1 },
        { SLUICE_GROUP_BYTES, 1, 0 },
        { SLUICE_GROUP_BYTES, 1, SLUICE_GROUP_BURST_MAX + 1 },
    };
    SluiceGroupPage before;
    char name[SLUICE_GROUP_NAME_BYTES + 1] = { 0 };

    new_page(&one_megabyte);
    memcpy((void *)&before, (void *)&page, sizeof(page));
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        check(!group_page_init(&page, "test", &bad[i], START_NS));
        check(!group_configure(&page, &bad[i], START_NS));
    }
    memset(name, 'x', SLUICE_GROUP_NAME_BYTES);
    check(!group_page_init(&page, name, &one_megabyte, START_NS));
    check(!group_configure(&page, &(SluiceGroupLimit){
        SLUICE_GROUP_OPERATIONS, 1, 1 }, START_NS));
    check(!memcmp((void *)&before, (void *)&page, sizeof(page)));
}

static void test_foreign_pages_are_refused(void)
{
    SluiceGroupMember member;

    new_page(&one_megabyte);
    check_equal(sluice_group_page_check(&page, sizeof(page) - 1),
                SLUICE_GROUP_TOO_SHORT);
    page.magic[7] = 'X';
    check_equal(sluice_group_page_check(&page, sizeof(page)),
                SLUICE_GROUP_NO_MAGIC);
    new_page(&one_megabyte);
    page.version = 2;
    check_equal(sluice_group_page_check(&page, sizeof(page)),
                SLUICE_GROUP_OTHER_VERSION);
    new_page(&one_megabyte);
    page.slot_count = 1 << 30;
    check_equal(sluice_group_join(&member, &page, sizeof(page), 1, "", 1, 0),
                SLUICE_GROUP_OTHER_VERSION);
    new_page(&one_megabyte);
    page.rate = 0;
    check_equal(sluice_group_join(&member, &page, sizeof(page), 1, "", 1, 0),
                SLUICE_GROUP_NO_LIMIT);
}

static void test_what_a_page_says(void)
{
    char label[100] = { 0 };
    SluiceGroupMemberInfo info;
    SluiceGroupLimit limit;
    SluiceGroupMember member;

    memset(label, 'x', sizeof(label) - 1);
    new_page(&one_megabyte);
    check(sluice_group_limit(&page, START_NS, &limit));
    check_equal(limit.unit, SLUICE_GROUP_BYTES);
    check_equal(limit.rate, 1000000);
    check_equal(limit.burst, 10000);
    check(!sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(sluice_group_join(&member, &page, sizeof(page),
                                  7ULL << 32 | 1234, label, 55, START_NS),
                SLUICE_GROUP_OK);
    drain(&member, START_NS);
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check_equal(info.pid, 1234);
    check_equal(info.weight, 55);
    check_equal(info.requests, 1);
    check_equal(info.units, 10001);
    check(!info.waiting);
    check_equal(strlen(info.label), SLUICE_GROUP_LABEL_BYTES - 1);
    sluice_group_next_ns(&member, START_NS);
    check(sluice_group_member_info(&page, 0, START_NS, &info));
    check(info.waiting);
    check(!sluice_group_member_info(&page, 0, START_NS + SLUICE_GROUP_REAP_NS,
                                    &info));
    page.rate = 0;
    check(!sluice_group_limit(&page, START_NS, &limit));
}

/* Every state that a writer can leave when it is killed. */
static void test_a_limit_half_written_is_not_used(void)
{
    SluiceGroupLimit fast = { .rate = 1000000000, .burst = 77777 };
    SluiceWord *words = &page.sequence;
    uint64_t before[7], after[7];

    new_page(&one_megabyte);
    for (unsigned i = 0; i < 7; i++) {
        before[i] = words[i];
    }
    check(group_configure(&page, &fast, START_NS + SECOND));
    for (unsigned i = 0; i < 7; i++) {
        after[i] = words[i];
    }
    for (unsigned written = 0; written < 8; written++) {
        SluiceGroupMember member;

        for (unsigned i = 0; i < 7; i++) {
            words[i] = before[i];
        }
        joins(&member, 1, 100, START_NS + SECOND);
        words[0] = before[0] + 1;
        for (unsigned i = 1; i < 7 && i <= written; i++) {
            words[i] = after[i];
        }
        if (written == 7) {
            words[0] = after[0];
        }
        check(sluice_group_admit(&member, 1, START_NS + SECOND));
        check_equal(member.clock.rate, written == 7 ? fast.rate : 1000000);
        sluice_group_leave(&member);
        /* The next writer makes it whole. */
        check(group_configure(&page, &fast, START_NS + SECOND));
        check_equal(sluice_group_page_check(&page, sizeof(page)),
                    SLUICE_GROUP_OK);
    }
}

static const TapTest tests[] = {
    { "group: page is as documented", test_page_is_as_documented },
    { "group: page refuses values out of range",
      test_page_refuses_values_out_of_range },
    { "group: foreign pages are refused", test_foreign_pages_are_refused },
    { "group: what a page says", test_what_a_page_says },
    { "group: a limit half written is not used",
      test_a_limit_half_written_is_not_used },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
