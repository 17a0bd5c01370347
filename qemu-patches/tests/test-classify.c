/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The classifier: the table of docs/specs/tags.md, every value of it. */
#include "sluice/classify.h"
#include "tap.h"

static void test_ioprio_tags(void)
{
    /* Real-time is 1 << 13; the hint begins at bit 3. */
    for (uint32_t tag = 0; tag <= SLUICE_TAG_MAX; tag++) {
        check_equal(sluice_tag_of_ioprio(0x2000 | (tag >> 3) << 3 | (tag & 7)),
                    tag);
    }
}

static void test_ioprio_of_untagged_requests(void)
{
    /* As Linux guests send them: unset, best effort 2 and 6, idle. */
    static const uint32_t untagged[] = {
        0, 0x4004, 0x4002, 0x4006, 0x6000, 0x2000,
    };

    for (unsigned i = 0; i < sizeof(untagged) / sizeof(untagged[0]); i++) {
        check_equal(sluice_tag_of_ioprio(untagged[i]), SLUICE_TAG_DEFAULT);
    }
}

static void test_every_ioprio(void)
{
    for (uint32_t ioprio = 0; ioprio <= 0x3ffff; ioprio++) {
        bool tagged = ioprio >= 0x2000 && ioprio <= 0x200f;

        if (!check_equal(sluice_tag_of_ioprio(ioprio),
                         tagged ? ioprio & 0xf : 0)) {
            return;
        }
    }
    for (unsigned bit = 16; bit < 32; bit++) {
        check_equal(sluice_tag_of_ioprio(1u << bit | 0x2005), 0);
    }
}

static void test_dscp_tags(void)
{
    for (unsigned dscp = 0; dscp < 256; dscp++) {
        bool local = dscp <= SLUICE_DSCP_MAX && (dscp & 3) == 3;

        check_equal(sluice_tag_of_dscp(dscp), local ? dscp >> 2 : 0);
    }
    for (unsigned tag = 1; tag <= SLUICE_TAG_MAX; tag++) {
        check_equal(sluice_tag_of_dscp(tag << 2 | 3), tag);
    }
}

static const TapTest tests[] = {
    { "classify/ioprio tags", test_ioprio_tags },
    { "classify/ioprio of untagged requests",
      test_ioprio_of_untagged_requests },
    { "classify/every ioprio", test_every_ioprio },
    { "classify/DSCP tags", test_dscp_tags },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
