/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice classifier.
 *
 * Disk. The ioprio field is what Linux calls an I/O priority: class in bits
 * 13-15, hint in bits 3-12, level in bits 0-2. A tag is level and hint of the
 * real-time class, because only a privileged guest process can set that one.
 *
 * Network. The frame is Ethernet II: two addresses, then a type; a VLAN tag is
 * a type of its own, two bytes of tag and the next type. The DSCP is the upper
 * six bits of the second byte of an IPv4 header, and of bits 4-11 of an IPv6
 * header. The version nibble must agree with the type. Nothing behind these
 * two bytes matters, so no length, option or checksum is looked at: a guest
 * can put any value there anyway.
 */
#include "sluice/classify.h"

#define IOPRIO_CLASS_SHIFT      13
#define IOPRIO_CLASS_MASK       7
#define IOPRIO_CLASS_REALTIME   1
#define IOPRIO_HINT_SHIFT       3
#define IOPRIO_HINT_MASK        0x3ff
#define IOPRIO_HINT_LAST        1
#define IOPRIO_LEVEL_MASK       7
#define IOPRIO_BITS             16

#define ETHER_TYPE_OFFSET       12
#define ETHER_TYPE_BYTES        2
#define ETHER_TYPE_IPV4         0x0800
#define ETHER_TYPE_IPV6         0x86dd
#define ETHER_TYPE_8021Q        0x8100
#define ETHER_TYPE_8021AD       0x88a8
#define VLAN_TAG_BYTES          4
#define VLAN_TAGS_MAX           2

#define IP_HEAD_BYTES           2       /* version to DSCP, either version */
#define DSCP_LOCAL_MASK         3
#define DSCP_LOCAL_SHIFT        2

uint8_t sluice_tag_of_ioprio(uint32_t ioprio)
{
    uint32_t level = ioprio & IOPRIO_LEVEL_MASK;
    uint32_t hint = (ioprio >> IOPRIO_HINT_SHIFT) & IOPRIO_HINT_MASK;

    if (ioprio >> IOPRIO_BITS
        || ((ioprio >> IOPRIO_CLASS_SHIFT) & IOPRIO_CLASS_MASK)
           != IOPRIO_CLASS_REALTIME
        || hint > IOPRIO_HINT_LAST) {
        return SLUICE_TAG_DEFAULT;
    }
    return hint << IOPRIO_HINT_SHIFT | level;
}

static uint16_t type_at(const uint8_t *frame, size_t offset)
{
    return (uint16_t)(frame[offset] << 8 | frame[offset + 1]);
}

static bool is_vlan(uint16_t type)
{
    return type == ETHER_TYPE_8021Q || type == ETHER_TYPE_8021AD;
}

/* Where the type behind all VLAN tags is, or 0 if the frame ends before. */
static size_t type_offset(const uint8_t *frame, size_t length)
{
    size_t offset = ETHER_TYPE_OFFSET;

    for (int tags = 0; length >= offset + ETHER_TYPE_BYTES; tags++) {
        if (tags == VLAN_TAGS_MAX || !is_vlan(type_at(frame, offset))) {
            return offset;
        }
        offset += VLAN_TAG_BYTES;
    }
    return 0;
}

bool sluice_dscp_of_frame(const uint8_t *frame, size_t length, uint8_t *dscp)
{
    size_t offset = type_offset(frame, length);
    const uint8_t *ip;
    uint16_t type;

    if (!offset || length < offset + ETHER_TYPE_BYTES + IP_HEAD_BYTES) {
        return false;
    }
    type = type_at(frame, offset);
    ip = frame + offset + ETHER_TYPE_BYTES;
    if (type == ETHER_TYPE_IPV4 && ip[0] >> 4 == 4) {
        *dscp = ip[1] >> 2;
        return true;
    }
    if (type == ETHER_TYPE_IPV6 && ip[0] >> 4 == 6) {
        *dscp = (ip[0] & 0x0f) << 2 | ip[1] >> 6;
        return true;
    }
    return false;
}

uint8_t sluice_tag_of_dscp(uint8_t dscp)
{
    if (dscp > SLUICE_DSCP_MAX || (dscp & DSCP_LOCAL_MASK) != DSCP_LOCAL_MASK) {
        return SLUICE_TAG_DEFAULT;
    }
    return dscp >> DSCP_LOCAL_SHIFT;
}
