/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The classifier: the table of docs/specs/tags.md, then hostile input. */
#include <string.h>

#include "sluice/classify.h"
#include "random.h"
#include "tap.h"

#define ADDRESSES   0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2
#define UNTOUCHED   0xa5

static void check_dscp(const uint8_t *frame, size_t length, unsigned expected)
{
    uint8_t dscp = UNTOUCHED;

    check(sluice_dscp_of_frame(frame, length, &dscp));
    check_equal(dscp, expected);
}

static void check_refused(const uint8_t *frame, size_t length)
{
    uint8_t dscp = UNTOUCHED;

    check(!sluice_dscp_of_frame(frame, length, &dscp));
    check_equal(dscp, UNTOUCHED);
}

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

static void test_ipv4(void)
{
    uint8_t frame[] = { ADDRESSES, 0x08, 0x00, 0x45, 46 << 2 | 1 };

    check_dscp(frame, sizeof(frame), 46);
    frame[14] = 0x4f;           /* options do not matter */
    check_dscp(frame, sizeof(frame), 46);
    frame[14] = 0x65;           /* another version does */
    check_refused(frame, sizeof(frame));
}

static void test_ipv6(void)
{
    uint8_t frame[] = { ADDRESSES, 0x86, 0xdd, 0x6b, 0x9f };

    check_dscp(frame, sizeof(frame), 0xb9 >> 2);
    frame[14] = 0x4b;
    check_refused(frame, sizeof(frame));
}

static void test_vlan_tags(void)
{
    static const uint8_t one[] = {
        ADDRESSES, 0x81, 0x00, 0x00, 0x05, 0x08, 0x00, 0x45, 23 << 2,
    };
    static const uint8_t two[] = {
        ADDRESSES, 0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x06,
        0x86, 0xdd, 0x60, 0xc0,
    };
    static const uint8_t three[] = {
        ADDRESSES, 0x81, 0x00, 0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3,
        0x08, 0x00, 0x45, 23 << 2,
    };

    check_dscp(one, sizeof(one), 23);
    check_dscp(two, sizeof(two), 3);
    check_refused(three, sizeof(three));
}

static void test_other_frames(void)
{
    static const uint8_t arp[] = { ADDRESSES, 0x08, 0x06, 0x00, 0x01 };
    static const uint8_t llc[] = { ADDRESSES, 0x00, 0x26, 0x45, 0xfc };

    check_refused(arp, sizeof(arp));
    check_refused(llc, sizeof(llc));
}

/*
 * The bytes lie at the end of an allocation of exactly that length, so that a
 * sanitizer sees the first read beyond it.
 */
static bool classify_copy(const uint8_t *bytes, size_t length, uint8_t *dscp)
{
    uint8_t *copy = malloc(length ? length : 1);
    bool found;

    memcpy(copy, bytes, length);
    found = sluice_dscp_of_frame(copy, length, dscp);
    free(copy);
    return found;
}

static void test_frames_cut_off_anywhere(void)
{
    static const uint8_t frames[][24] = {
        { ADDRESSES, 0x08, 0x00, 0x45, 0xfc },
        { ADDRESSES, 0x81, 0x00, 0, 1, 0x08, 0x00, 0x45, 0xfc },
        { ADDRESSES, 0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 1, 0x86, 0xdd, 0x6f,
          0xc0 },
    };
    static const size_t needed[] = { 16, 20, 24 };

    for (unsigned i = 0; i < 3; i++) {
        for (size_t length = 0; length <= needed[i]; length++) {
            uint8_t dscp = UNTOUCHED;

            check_equal(classify_copy(frames[i], length, &dscp),
                        length == needed[i]);
            check_equal(dscp, length == needed[i] ? 63 : UNTOUCHED);
        }
    }
}

/* Random bytes behind likely types: in range, repeatable, and short enough. */
static void test_random_bytes(void)
{
    static const uint8_t types[][2] = {
        { 0x08, 0x00 }, { 0x86, 0xdd }, { 0x81, 0x00 }, { 0x88, 0xa8 },
    };
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t frames = tap_setting("SLUICE_TEST_TRACES", 300) * 2000;
    Random random = random_seeded(seed);
    uint64_t found = 0;

    printf("# seed %" PRIu64 ", %" PRIu64 " frames\n", seed, frames);
    for (uint64_t i = 0; i < frames; i++) {
        uint8_t bytes[SLUICE_FRAME_HEAD_BYTES];
        size_t length = random_below(&random, sizeof(bytes) + 1);
        uint8_t dscp = UNTOUCHED;

        for (unsigned b = 0; b < sizeof(bytes); b++) {
            bytes[b] = random_next(&random) >> 56;
        }
        for (unsigned at = 12; at <= 20; at += 4) {
            if (random_chance(&random, 80)) {
                memcpy(&bytes[at], types[random_below(&random, 4)], 2);
            }
        }
        if (classify_copy(bytes, length, &dscp)) {
            found++;
            if (!check(dscp <= SLUICE_DSCP_MAX) || !check(length >= 16)
                || !check(sluice_tag_of_dscp(dscp) <= SLUICE_TAG_MAX)) {
                return;
            }
        } else if (!check(dscp == UNTOUCHED)) {
            return;
        }
        check(sluice_tag_of_ioprio(random_next(&random)) <= SLUICE_TAG_MAX);
    }
    check(found > frames / 100);
}

static const TapTest tests[] = {
    { "classify/ioprio tags", test_ioprio_tags },
    { "classify/ioprio of untagged requests",
      test_ioprio_of_untagged_requests },
    { "classify/every ioprio", test_every_ioprio },
    { "classify/DSCP tags", test_dscp_tags },
    { "classify/IPv4", test_ipv4 },
    { "classify/IPv6", test_ipv6 },
    { "classify/VLAN tags", test_vlan_tags },
    { "classify/other frames", test_other_frames },
    { "classify/frames cut off anywhere", test_frames_cut_off_anywhere },
    { "classify/property: random bytes", test_random_bytes },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
