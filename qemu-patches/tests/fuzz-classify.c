/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the classifier. Any ioprio and any DSCP encode a tag
 * (docs/specs/tags.md), or none; and a frame that is built around a DSCP, with anything
 * else in it, belongs to that DSCP's tag as far as it is not cut off before. The bytes
 * are the two values, the shape of the link header, and then the frame's own. Seeds are
 * in fuzz-classify-seeds/.
 */
#include <stdlib.h>
#include <string.h>

#include "sluice/classify.h"
#include "random.h"

#define FRAME_BYTES_MAX     512
#define ETHER_TYPE_OFFSET   12
#define VLAN_TAGS_READ      2       /* as many as the parser looks behind */

typedef struct Built {
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t length;
    size_t ip_offset;
    uint8_t dscp;
    bool is_ip;             /* of a kind, and behind few enough tags */
} Built;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* The real-time class, the hint from bit 3 on, and the level. */
static uint32_t ioprio_of_tag(uint32_t tag)
{
    return 1 << 13 | (tag >> 3) << 3 | (tag & 7);
}

static void check_ioprio(uint32_t ioprio)
{
    uint8_t tag = sluice_tag_of_ioprio(ioprio);
    uint32_t own = ioprio_of_tag(ioprio & SLUICE_TAG_MAX);

    require(tag <= SLUICE_TAG_MAX);
    require(tag == 0 || ioprio == ioprio_of_tag(tag));
    require(sluice_tag_of_ioprio(own) == (ioprio & SLUICE_TAG_MAX));
}

static void check_dscp(uint8_t dscp)
{
    uint8_t tag = sluice_tag_of_dscp(dscp);

    require(tag <= SLUICE_TAG_MAX);
    require(tag == 0 || dscp == (tag << 2 | 3));
    tag = dscp & SLUICE_TAG_MAX;
    require(sluice_tag_of_dscp(tag << 2 | 3) == tag);
}

static void put_word(Built *built, size_t at, uint16_t word)
{
    built->bytes[at] = word >> 8;
    built->bytes[at + 1] = word & 0xff;
}

/* The bytes that are left, with link header, version and DSCP written in. */
static void build(Built *built, Random *random)
{
    static const uint16_t vlan_types[] = { 0x8100, 0x88a8, 0x9100 };
    unsigned tags = random_below(random, VLAN_TAGS_READ + 2);
    unsigned vlan_type = random_below(random, 3);
    bool ipv6 = random_below(random, 2);
    size_t at = ETHER_TYPE_OFFSET;
    uint8_t *ip;

    memset(built->bytes, 0, sizeof(built->bytes));
    built->dscp = random_below(random, SLUICE_DSCP_MAX + 1);
    built->length = random_below(random, FRAME_BYTES_MAX + 1);
    for (size_t i = 0; i < FRAME_BYTES_MAX; i++) {
        built->bytes[i] = random_bytes(random, 1);
    }
    for (unsigned i = 0; i < tags; i++, at += 4) {
        put_word(built, at, vlan_types[(vlan_type + i) % 3]);
    }
    put_word(built, at, ipv6 ? 0x86dd : 0x0800);
    built->ip_offset = at + 2;
    built->is_ip = tags <= VLAN_TAGS_READ;
    ip = built->bytes + built->ip_offset;
    if (ipv6) {
        ip[0] = 0x60 | built->dscp >> 2;
        ip[1] = (built->dscp & 3) << 6 | (ip[1] & 0x3f);
    } else {
        ip[0] = 0x40 | (ip[0] & 0x0f);
        ip[1] = built->dscp << 2 | (ip[1] & 3);
    }
}

static void check_frame(const Built *built)
{
    /* Of exactly that length, so that a read beyond it is seen. */
    uint8_t *bytes = malloc(built->length ? built->length : 1);
    bool known = built->is_ip && built->length >= built->ip_offset + 2;
    SluiceFrame frame;

    memcpy(bytes, built->bytes, built->length);
    sluice_frame_parse(bytes, built->length, &frame);
    require((frame.kind != SLUICE_FRAME_OTHER) == known);
    require(frame.dscp == (known ? built->dscp : 0));
    require(sluice_tag_of_dscp(frame.dscp)
            == (known && built->dscp % 4 == 3 ? built->dscp / 4 : 0));
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Random random = { .bytes = data, .left = size };
    Built built;

    check_ioprio(random_bytes(&random, 4));
    check_dscp(random_bytes(&random, 1));
    build(&built, &random);
    check_frame(&built);
    return 0;
}
