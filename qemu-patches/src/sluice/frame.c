/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice frame parser.
 *
 * Model. The frame is Ethernet II: two addresses, then a type; a VLAN tag is a
 * type of its own, two bytes of tag and the next type. IPv4 (RFC 791) has
 * options that its header length covers; IPv6 (RFC 8200) has a chain of
 * extension headers. Behind them are TCP or UDP, whose ports come first.
 *
 * Trust. A guest, or any host on the network, chooses every byte. No length
 * field is believed beyond the bytes at hand, and no checksum is looked at.
 * The version nibble must agree with the type. DSCP and ECN are in the first
 * two bytes of either IP header and known as soon as these are there, with anything
 * behind.
 *
 * New connections. A TCP segment with SYN and without ACK asks for one. A frame that
 * hides its flags must not get past a limit of new connections, so a frame
 * counts as opening one if it is the beginning of an IP packet whose transport
 * header cannot be found, or TCP whose flags are cut off, or the fragment at
 * offset 8, which can write over the flags of the one before it (RFC 1858,
 * RFC 3128).
 *
 * Work. At most two VLAN tags and EXTENSIONS_MAX extension headers are passed
 * over, each in constant time.
 *
 * Marking. Congestion experienced is both bits of the ECN field (RFC 3168
 * section 5). The IPv4 checksum is updated from the changed word alone
 * (RFC 1624, equation 3), so a wrong checksum stays wrong; IPv6 has none, and
 * the field is part of no transport checksum.
 */
#include "sluice/frame.h"

#define ETHER_TYPE_OFFSET       12
#define ETHER_TYPE_BYTES        2
#define ETHER_TYPE_IPV4         0x0800
#define ETHER_TYPE_IPV6         0x86dd
#define ETHER_TYPE_8021Q        0x8100
#define ETHER_TYPE_8021AD       0x88a8
#define ETHER_TYPE_QINQ         0x9100  /* before 802.1ad */
#define VLAN_TAG_BYTES          4
#define VLAN_TAGS_MAX           2

#define IP_HEAD_BYTES           2       /* version to ECN, either version */
#define ECN_MASK                3

#define IPV4_HEADER_BYTES_MIN   20
#define IPV4_IDENTIFICATION_OFFSET 4
#define IPV4_FRAGMENT_OFFSET    6
#define IPV4_PROTOCOL_OFFSET    9
#define IPV4_CHECKSUM_OFFSET    10
#define IPV4_MORE_FRAGMENTS     0x2000
#define IPV4_FRAGMENT_MASK      0x1fff

#define IPV4_ADDRESSES_OFFSET   12
#define IPV4_ADDRESSES_BYTES    8

#define IPV6_HEADER_BYTES       40
#define IPV6_ADDRESSES_OFFSET   8
#define IPV6_ADDRESSES_BYTES    32
#define IPV6_NEXT_OFFSET        6
#define IPV6_ECN_SHIFT          4
#define IPV6_FRAGMENT_BYTES     8
#define IPV6_MORE_FRAGMENTS     1
#define IPV6_FRAGMENT_SHIFT     3
#define EXTENSION_HEAD_BYTES    2       /* next header, length */
#define EXTENSIONS_MAX          8

#define PROTOCOL_HOP_BY_HOP     0
#define PROTOCOL_TCP            6
#define PROTOCOL_UDP            17
#define PROTOCOL_ROUTING        43
#define PROTOCOL_FRAGMENT       44
#define PROTOCOL_AH             51
#define PROTOCOL_DESTINATION    60
#define PROTOCOL_MOBILITY       135
#define PROTOCOL_HIP            139
#define PROTOCOL_SHIM6          140

#define PORTS_BYTES             4
#define TCP_FLAGS_OFFSET        13
/* In units of 8 bytes: a fragment there begins in the middle of a TCP header */
#define FRAGMENT_ON_TCP_FLAGS   1

typedef struct Cursor {
    const uint8_t *bytes;
    size_t length;
    size_t offset;
    uint8_t protocol;           /* of the header at the offset */
    uint16_t fragment_offset;   /* in units of 8 bytes */
} Cursor;

static uint16_t word_at(const uint8_t *bytes, size_t offset)
{
    return (uint16_t)(bytes[offset] << 8 | bytes[offset + 1]);
}

static bool has(const Cursor *at, size_t bytes)
{
    return at->offset <= at->length && at->length - at->offset >= bytes;
}

/* Link layer */

static bool is_vlan(uint16_t type)
{
    return type == ETHER_TYPE_8021Q || type == ETHER_TYPE_8021AD
           || type == ETHER_TYPE_QINQ;
}

/* Moves past the type behind all VLAN tags; 0 if the frame ends before. */
static uint16_t skip_link_header(Cursor *at)
{
    uint16_t type;

    at->offset = ETHER_TYPE_OFFSET;
    for (int tags = 0; has(at, ETHER_TYPE_BYTES); tags++) {
        type = word_at(at->bytes, at->offset);
        if (tags == VLAN_TAGS_MAX || !is_vlan(type)) {
            at->offset += ETHER_TYPE_BYTES;
            return type;
        }
        at->offset += VLAN_TAG_BYTES;
    }
    return 0;
}

/* Network layer. Each leaves the cursor at the transport header, or fails. */

static bool is_extension(uint8_t protocol)
{
    switch (protocol) {
    case PROTOCOL_HOP_BY_HOP:
    case PROTOCOL_ROUTING:
    case PROTOCOL_FRAGMENT:
    case PROTOCOL_AH:
    case PROTOCOL_DESTINATION:
    case PROTOCOL_MOBILITY:
    case PROTOCOL_HIP:
    case PROTOCOL_SHIM6:
        return true;
    default:
        return false;
    }
}

/* The extension header at the cursor, which is not a fragment header. */
static size_t extension_bytes(const Cursor *at)
{
    size_t units = at->bytes[at->offset + 1];

    return at->protocol == PROTOCOL_AH ? (units + 2) * 4 : (units + 1) * 8;
}

static bool skip_fragment_header(Cursor *at, SluiceFrame *frame)
{
    uint16_t word;

    if (!has(at, IPV6_FRAGMENT_BYTES)) {
        return false;
    }
    word = word_at(at->bytes, at->offset + 2);
    frame->fragment |= word >> IPV6_FRAGMENT_SHIFT || word & IPV6_MORE_FRAGMENTS;
    frame->identification = (uint32_t)word_at(at->bytes, at->offset + 4) << 16
                            | word_at(at->bytes, at->offset + 6);
    at->fragment_offset = word >> IPV6_FRAGMENT_SHIFT;
    frame->later_fragment = at->fragment_offset;
    at->protocol = at->bytes[at->offset];
    at->offset += IPV6_FRAGMENT_BYTES;
    return true;
}

static bool skip_extensions(Cursor *at, SluiceFrame *frame)
{
    for (int i = 0; is_extension(at->protocol) && !at->fragment_offset; i++) {
        size_t bytes;

        if (i == EXTENSIONS_MAX || !has(at, EXTENSION_HEAD_BYTES)) {
            return false;
        }
        if (at->protocol == PROTOCOL_FRAGMENT) {
            if (!skip_fragment_header(at, frame)) {
                return false;
            }
            continue;
        }
        bytes = extension_bytes(at);
        at->protocol = at->bytes[at->offset];
        at->offset += bytes;
    }
    return true;
}

static bool skip_ipv6(Cursor *at, SluiceFrame *frame)
{
    if (!has(at, IPV6_HEADER_BYTES)) {
        return false;
    }
    at->protocol = at->bytes[at->offset + IPV6_NEXT_OFFSET];
    at->offset += IPV6_HEADER_BYTES;
    return skip_extensions(at, frame);
}

static bool skip_ipv4(Cursor *at, SluiceFrame *frame)
{
    const uint8_t *header = at->bytes + at->offset;
    size_t header_bytes = (header[0] & 0x0f) * 4;
    uint16_t fragment;

    if (header_bytes < IPV4_HEADER_BYTES_MIN || !has(at, header_bytes)) {
        return false;
    }
    fragment = word_at(header, IPV4_FRAGMENT_OFFSET);
    at->fragment_offset = fragment & IPV4_FRAGMENT_MASK;
    frame->later_fragment = at->fragment_offset;
    frame->fragment = at->fragment_offset || fragment & IPV4_MORE_FRAGMENTS;
    /* Each protocol has identifications of its own. */
    frame->identification = (uint32_t)header[IPV4_PROTOCOL_OFFSET] << 16
                            | word_at(header, IPV4_IDENTIFICATION_OFFSET);
    at->protocol = header[IPV4_PROTOCOL_OFFSET];
    at->offset += header_bytes;
    return at->protocol != PROTOCOL_AH || skip_extensions(at, frame);
}

/* Transport layer */

static void read_transport(const Cursor *at, SluiceFrame *frame)
{
    bool tcp = at->protocol == PROTOCOL_TCP;

    if (!tcp && at->protocol != PROTOCOL_UDP) {
        frame->transport = SLUICE_TRANSPORT_OTHER;
        return;
    }
    frame->transport = tcp ? SLUICE_TRANSPORT_TCP : SLUICE_TRANSPORT_UDP;
    if (at->fragment_offset) {
        frame->opens_connection = tcp
                                  && at->fragment_offset
                                     == FRAGMENT_ON_TCP_FLAGS;
        return;
    }
    if (has(at, PORTS_BYTES)) {
        frame->has_ports = true;
        frame->source_port = word_at(at->bytes, at->offset);
        frame->destination_port = word_at(at->bytes, at->offset + 2);
    }
    if (tcp && has(at, TCP_FLAGS_OFFSET + 1)) {
        frame->has_tcp_flags = true;
        frame->tcp_flags = at->bytes[at->offset + TCP_FLAGS_OFFSET];
    }
    frame->opens_connection = tcp && (!frame->has_tcp_flags
        || (frame->tcp_flags & (SLUICE_TCP_SYN | SLUICE_TCP_ACK))
           == SLUICE_TCP_SYN);
}

void sluice_frame_parse(const uint8_t *bytes, size_t length, SluiceFrame *frame)
{
    Cursor at = { .bytes = bytes, .length = length };
    uint16_t type = skip_link_header(&at);
    const uint8_t *ip;
    bool found;

    *frame = (SluiceFrame){ .kind = SLUICE_FRAME_OTHER };
    if (!has(&at, IP_HEAD_BYTES)) {
        return;
    }
    ip = bytes + at.offset;
    if (type == ETHER_TYPE_IPV4 && ip[0] >> 4 == 4) {
        frame->kind = SLUICE_FRAME_IPV4;
        frame->dscp = ip[1] >> 2;
        frame->ecn = ip[1] & ECN_MASK;
    } else if (type == ETHER_TYPE_IPV6 && ip[0] >> 4 == 6) {
        frame->kind = SLUICE_FRAME_IPV6;
        frame->dscp = (ip[0] & 0x0f) << 2 | ip[1] >> 6;
        frame->ecn = ip[1] >> IPV6_ECN_SHIFT & ECN_MASK;
    } else {
        return;
    }
    frame->ip_offset = at.offset;
    found = frame->kind == SLUICE_FRAME_IPV4 ? skip_ipv4(&at, frame)
                                             : skip_ipv6(&at, frame);
    if (found) {
        read_transport(&at, frame);
    } else {
        frame->transport = SLUICE_TRANSPORT_HIDDEN;
        frame->opens_connection = true;
    }
}

/* Flows */

static uint32_t mixed(uint32_t hash, uint32_t word)
{
    hash = (hash ^ word) * 0x9e3779b1;
    return hash ^ hash >> 15;
}

uint32_t sluice_frame_flow(const uint8_t *bytes, size_t length,
                           const SluiceFrame *frame)
{
    bool ipv4 = frame->kind == SLUICE_FRAME_IPV4;
    size_t begin = frame->ip_offset + (ipv4 ? IPV4_ADDRESSES_OFFSET
                                            : IPV6_ADDRESSES_OFFSET);
    size_t end = begin + (ipv4 ? IPV4_ADDRESSES_BYTES : IPV6_ADDRESSES_BYTES);
    uint32_t hash = 0;

    if (frame->kind == SLUICE_FRAME_OTHER || length < end) {
        return 0;
    }
    for (size_t i = begin; i < end; i += 2) {
        hash = mixed(hash, word_at(bytes, i));
    }
    /* Of a packet in parts only the first has ports. */
    if (frame->has_ports && !frame->fragment) {
        hash = mixed(hash, (uint32_t)frame->source_port << 16
                           | frame->destination_port);
    }
    return hash;
}

/* Marking */

/* The checksum after the word that it covers has changed. */
static uint16_t updated_checksum(uint16_t checksum, uint16_t from, uint16_t to)
{
    uint32_t sum = (uint16_t)~checksum + (uint32_t)(uint16_t)~from + to;

    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

bool sluice_frame_mark_ce(uint8_t *bytes, size_t length,
                          const SluiceFrame *frame)
{
    size_t needed = frame->kind == SLUICE_FRAME_IPV4 ? IPV4_HEADER_BYTES_MIN
                                                     : IP_HEAD_BYTES;
    uint16_t old, checksum;
    uint8_t *ip;

    if (frame->kind == SLUICE_FRAME_OTHER || frame->ecn == SLUICE_ECN_NOT_ECT
        || length < frame->ip_offset + needed) {
        return false;
    }
    ip = bytes + frame->ip_offset;
    if (frame->kind == SLUICE_FRAME_IPV6) {
        ip[1] |= SLUICE_ECN_CE << IPV6_ECN_SHIFT;
        return true;
    }
    old = word_at(ip, 0);
    ip[1] |= SLUICE_ECN_CE;
    checksum = updated_checksum(word_at(ip, IPV4_CHECKSUM_OFFSET), old,
                                word_at(ip, 0));
    ip[IPV4_CHECKSUM_OFFSET] = checksum >> 8;
    ip[IPV4_CHECKSUM_OFFSET + 1] = checksum & 0xff;
    return true;
}
