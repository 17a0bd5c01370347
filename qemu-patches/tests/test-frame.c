/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The frame parser: each header in turn, then hostile input, then marking. */
#include <string.h>

#include "sluice/frame.h"
#include "random.h"
#include "tap.h"

#define ADDRESSES       0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2
#define IPV4_ADDRESSES  10, 0, 0, 1, 10, 0, 0, 2
#define IPV6_ADDRESS    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
#define IPV4            0x08, 0x00
#define IPV6            0x86, 0xdd
#define ETHER_BYTES     14
#define TCP_PORTS       0xc0, 0x01, 0x00, 0x50         /* 49153 to 80 */
/* Ports, sequence, acknowledgement, offset, flags, window, checksum, urgent */
#define TCP(flags)      TCP_PORTS, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, \
                        0x10, 0, 0, 0, 0, 0
#define IPV4_HEADER(tos, fragment_high, fragment_low, protocol) \
    0x45, tos, 0, 40, 0, 1, fragment_high, fragment_low, 64, protocol, 0, 0, \
    IPV4_ADDRESSES
#define IPV6_HEADER(next) \
    0x60, 0, 0, 0, 0, 20, next, 64, IPV6_ADDRESS, IPV6_ADDRESS
#define SYN     SLUICE_TCP_SYN
#define ACK     SLUICE_TCP_ACK

/*
 * The bytes lie in an allocation of exactly that length, so that a sanitizer
 * sees the first read beyond it.
 */
static SluiceFrame parse(const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    SluiceFrame frame;

    memcpy(copy, bytes, length);
    memset(&frame, 0xa5, sizeof(frame));
    sluice_frame_parse(copy, length, &frame);
    free(copy);
    return frame;
}

#define PARSE(...) \
    parse((const uint8_t[]){ __VA_ARGS__ }, \
          sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void check_tcp(SluiceFrame frame, unsigned flags)
{
    check_equal(frame.transport, SLUICE_TRANSPORT_TCP);
    check(frame.has_ports && frame.has_tcp_flags);
    check_equal(frame.source_port, 0xc001);
    check_equal(frame.destination_port, 80);
    check_equal(frame.tcp_flags, flags);
    check_equal(frame.opens_connection, (flags & (SYN | ACK)) == SYN);
}

static void test_ipv4(void)
{
    SluiceFrame frame = PARSE(ADDRESSES, IPV4,
                              IPV4_HEADER(46 << 2 | 1, 0x40, 0, 6), TCP(SYN));

    check_equal(frame.kind, SLUICE_FRAME_IPV4);
    check_equal(frame.ip_offset, ETHER_BYTES);
    check_equal(frame.dscp, 46);
    check_equal(frame.ecn, SLUICE_ECN_ECT_1);
    check(!frame.fragment);
    check_tcp(frame, SYN);
}

static void test_ipv4_options(void)
{
    uint8_t bytes[ETHER_BYTES + 60 + 20] = { ADDRESSES, IPV4,
                                             IPV4_HEADER(0, 0, 0, 6) };
    static const uint8_t tcp[] = { TCP(SYN) };

    bytes[ETHER_BYTES] = 0x4f;
    memcpy(bytes + ETHER_BYTES + 60, tcp, sizeof(tcp));
    check_tcp(parse(bytes, sizeof(bytes)), SYN);
    bytes[ETHER_BYTES] = 0x44;          /* shorter than a header can be */
    check_equal(parse(bytes, sizeof(bytes)).transport,
                SLUICE_TRANSPORT_HIDDEN);
    bytes[ETHER_BYTES] = 0x65;          /* the type says version 4 */
    check_equal(parse(bytes, sizeof(bytes)).kind, SLUICE_FRAME_OTHER);
}

static void test_ipv6(void)
{
    SluiceFrame frame = PARSE(ADDRESSES, IPV6, 0x6b, 0xa0, 0, 0, 0, 20, 6, 64,
                              IPV6_ADDRESS, IPV6_ADDRESS, TCP(ACK));

    check_equal(frame.kind, SLUICE_FRAME_IPV6);
    check_equal(frame.dscp, 0xba >> 2);
    check_equal(frame.ecn, SLUICE_ECN_ECT_0);
    check_tcp(frame, ACK);
    frame = PARSE(ADDRESSES, IPV6, 0x45, 0xfc);
    check_equal(frame.kind, SLUICE_FRAME_OTHER);
}

static void test_ipv6_extensions(void)
{
    SluiceFrame frame;

    /* Hop-by-hop of 8 bytes, routing of 16, AH of 12, destination of 8. */
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(0),
                  43, 0, 1, 4, 0, 0, 0, 0,
                  51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                  60, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1,
                  6, 0, 1, 4, 0, 0, 0, 0, TCP(SYN));
    check_tcp(frame, SYN);
    check(!frame.fragment);
    /* No next header, and an unknown one. */
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(59));
    check_equal(frame.transport, SLUICE_TRANSPORT_OTHER);
    check(!frame.opens_connection);
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(58), 128, 0, 0, 0);
    check_equal(frame.transport, SLUICE_TRANSPORT_OTHER);
}

/* Nine destination headers in front of TCP, then eight. */
static void test_ipv6_long_chain(void)
{
    uint8_t bytes[ETHER_BYTES + 40 + 9 * 8 + 20] = { ADDRESSES, IPV6,
                                                     IPV6_HEADER(60) };
    static const uint8_t tcp[] = { TCP(ACK) };
    SluiceFrame frame;

    for (unsigned i = 0; i < 9; i++) {
        bytes[ETHER_BYTES + 40 + i * 8] = i < 8 ? 60 : 6;
    }
    memcpy(bytes + ETHER_BYTES + 40 + 9 * 8, tcp, sizeof(tcp));
    frame = parse(bytes, sizeof(bytes));
    check_equal(frame.transport, SLUICE_TRANSPORT_HIDDEN);
    check(frame.opens_connection);
    bytes[ETHER_BYTES + 40 + 7 * 8] = 6;
    memcpy(bytes + ETHER_BYTES + 40 + 8 * 8, tcp, sizeof(tcp));
    check_tcp(parse(bytes, sizeof(bytes) - 8), ACK);
}

static void test_ipv4_fragments(void)
{
    /* The first, whole TCP header; one behind it; one on top of its flags. */
    SluiceFrame frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0x20, 0, 6),
                              TCP(SYN));

    check(frame.fragment);
    check_tcp(frame, SYN);
    frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0x20, 100, 6), TCP(SYN));
    check(frame.fragment && !frame.has_ports && !frame.opens_connection);
    frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 1, 6), TCP(ACK));
    check(frame.fragment && !frame.has_tcp_flags && frame.opens_connection);
    frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 1, 17), TCP_PORTS);
    check(frame.fragment && !frame.opens_connection);
    /* The first, too short to tell its kind. */
    frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0x20, 0, 6), TCP_PORTS, 0, 0,
                  0, 1);
    check(frame.has_ports && !frame.has_tcp_flags && frame.opens_connection);
}

static void test_ipv6_fragments(void)
{
    SluiceFrame frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44),
                              6, 0, 0, 1, 0, 0, 0, 9, TCP(SYN));

    check(frame.fragment);
    check_tcp(frame, SYN);
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44), 6, 0, 0, 8 | 1, 0, 0, 0, 9,
                  TCP(ACK));
    check(frame.fragment && frame.opens_connection && !frame.has_ports);
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44), 6, 0, 1, 0, 0, 0, 0, 9,
                  TCP(SYN));
    check(frame.fragment && !frame.opens_connection);
    /* An atomic fragment is the whole packet (RFC 6946). */
    frame = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44), 6, 0, 0, 0, 0, 0, 0, 9,
                  TCP(SYN));
    check(!frame.fragment);
    check_tcp(frame, SYN);
}

/* All parts of a packet have one identification, whichever headers the first one has. */
static void test_identification(void)
{
    SluiceFrame first = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0x20, 0, 17),
                              TCP_PORTS);
    SluiceFrame later = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 9, 17));

    check(!first.later_fragment && later.later_fragment);
    check_equal(later.identification, first.identification);
    later = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 9, 6));
    check(later.identification != first.identification);
    first = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0x20, 0, 51),
                  17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TCP_PORTS);
    later = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 9, 51));
    check(first.has_ports && later.later_fragment);
    check_equal(later.identification, first.identification);
    first = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44), 60, 0, 0, 1, 1, 2, 3, 9,
                  17, 0, 0, 0, 0, 0, 0, 0, TCP_PORTS);
    later = PARSE(ADDRESSES, IPV6, IPV6_HEADER(44), 60, 0, 0, 9, 1, 2, 3, 9);
    check(first.has_ports && !first.later_fragment && later.later_fragment);
    check_equal(first.identification, 0x01020309);
    check_equal(later.identification, first.identification);
}

static void test_udp(void)
{
    SluiceFrame frame = PARSE(ADDRESSES, IPV4, IPV4_HEADER(0, 0, 0, 17),
                              TCP_PORTS, 0, 8, 0, 0);

    check_equal(frame.transport, SLUICE_TRANSPORT_UDP);
    check_equal(frame.destination_port, 80);
    check(!frame.has_tcp_flags && !frame.opens_connection);
}

static void test_vlan_tags(void)
{
    SluiceFrame frame;

    frame = PARSE(ADDRESSES, 0x81, 0x00, 0x00, 0x05, IPV4, 0x45, 23 << 2);
    check_equal(frame.dscp, 23);
    check_equal(frame.ip_offset, ETHER_BYTES + 4);
    frame = PARSE(ADDRESSES, 0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6, IPV6, 0x60,
                  0xc0);
    check_equal(frame.dscp, 3);
    check_equal(frame.ip_offset, ETHER_BYTES + 8);
    frame = PARSE(ADDRESSES, 0x91, 0x00, 0, 5, 0x81, 0x00, 0, 6, IPV4,
                  IPV4_HEADER(0, 0, 0, 6), TCP(SYN));
    check_tcp(frame, SYN);
    frame = PARSE(ADDRESSES, 0x81, 0x00, 0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0,
                  3, IPV4, 0x45, 23 << 2);
    check_equal(frame.kind, SLUICE_FRAME_OTHER);
}

static void test_other_frames(void)
{
    SluiceFrame frame = PARSE(ADDRESSES, 0x08, 0x06, 0x00, 0x01);

    check_equal(frame.kind, SLUICE_FRAME_OTHER);
    check(!frame.opens_connection);
    frame = PARSE(ADDRESSES, 0x00, 0x26, 0x45, 0xfc);   /* 802.3 */
    check_equal(frame.kind, SLUICE_FRAME_OTHER);
}

static const uint8_t whole[] = {
    ADDRESSES, 0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 1, IPV6, 0x6f, 0xc0, 0, 0, 0,
    28, 60, 64, IPV6_ADDRESS, IPV6_ADDRESS, 6, 0, 1, 4, 0, 0, 0, 0, TCP(SYN)
};

static void test_frames_cut_off_anywhere(void)
{
    size_t ip = 22, tcp = ip + 40 + 8;

    for (size_t length = 0; length <= sizeof(whole); length++) {
        SluiceFrame frame = parse(whole, length);
        bool known = length >= ip + 2;

        check_equal(frame.kind, known ? SLUICE_FRAME_IPV6 : SLUICE_FRAME_OTHER);
        check_equal(frame.dscp, known ? 63 : 0);
        check_equal(frame.has_ports, length >= tcp + 4);
        check_equal(frame.has_tcp_flags, length >= tcp + 14);
        /* Hidden flags count. */
        check_equal(frame.opens_connection, known);
    }
}

static void test_no_bytes(void)
{
    SluiceFrame frame;

    sluice_frame_parse(NULL, 0, &frame);
    check_equal(frame.kind, SLUICE_FRAME_OTHER);
    check(!sluice_frame_mark_ce(NULL, 0, &frame));
}

/* Random bytes behind likely types: in range, repeatable, and short enough. */
static void test_random_bytes(void)
{
    static const uint8_t types[][2] = {
        { IPV4 }, { IPV6 }, { 0x81, 0x00 }, { 0x88, 0xa8 },
    };
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t frames = tap_setting("SLUICE_TEST_TRACES", 300) * 2000;
    Random random = random_seeded(seed);
    uint64_t kinds[3] = { 0 }, tcp = 0;

    printf("# seed %" PRIu64 ", %" PRIu64 " frames\n", seed, frames);
    for (uint64_t i = 0; i < frames; i++) {
        uint8_t bytes[SLUICE_FRAME_HEAD_BYTES];
        size_t length = random_below(&random, sizeof(bytes) + 1);
        SluiceFrame frame;

        for (unsigned b = 0; b < sizeof(bytes); b++) {
            bytes[b] = random_next(&random) >> 56;
        }
        for (unsigned at = 12; at <= 20; at += 4) {
            if (random_chance(&random, 80)) {
                memcpy(&bytes[at], types[random_below(&random, 4)], 2);
            }
        }
        if (random_chance(&random, 80)) {
            bytes[14] = (bytes[12] == 0x08 ? 0x40 : 0x60) | (bytes[14] & 15);
            bytes[bytes[12] == 0x08 ? 23 : 20] = 6;
        }
        frame = parse(bytes, length);
        kinds[frame.kind]++;
        tcp += frame.has_tcp_flags;
        if (!check(frame.dscp <= SLUICE_DSCP_MAX) || !check(frame.ecn <= 3)
            || !check(frame.ip_offset + 2u <= length
                      || frame.kind == SLUICE_FRAME_OTHER)
            || !check(!frame.has_tcp_flags || frame.has_ports)) {
            return;
        }
    }
    check(kinds[1] > frames / 100 && kinds[2] > frames / 100);
    check(tcp > frames / 100);
}

/* Marking */

static uint16_t ipv4_checksum(const uint8_t *header, size_t bytes)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < bytes; i += 2) {
        sum += header[i] << 8 | header[i + 1];
    }
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return ~sum;
}

static bool mark(uint8_t *bytes, size_t length)
{
    SluiceFrame frame = parse(bytes, length);

    return sluice_frame_mark_ce(bytes, length, &frame);
}

static void test_mark_ipv4(void)
{
    Random random = random_seeded(tap_setting("SLUICE_TEST_SEED", 1));

    for (unsigned i = 0; i < 100000; i++) {
        uint8_t bytes[] = { ADDRESSES, IPV4, IPV4_HEADER(0, 0, 0, 17) };
        uint8_t *ip = bytes + ETHER_BYTES;
        uint16_t checksum;

        for (unsigned b = 1; b < 20; b++) {
            ip[b] = random_next(&random) >> 56;
        }
        ip[1] = ip[1] >> 2 << 2 | (1 + random_below(&random, 3));
        ip[10] = ip[11] = 0;
        checksum = ipv4_checksum(ip, 20);
        ip[10] = checksum >> 8;
        ip[11] = checksum & 0xff;
        if (!check(mark(bytes, sizeof(bytes)))
            || !check_equal(ip[1] & 3, SLUICE_ECN_CE)
            || !check_equal(ipv4_checksum(ip, 20), 0)
            || !check(mark(bytes, sizeof(bytes)))) {
            return;
        }
    }
}

static void test_mark_ipv6(void)
{
    uint8_t bytes[] = { ADDRESSES, IPV6, 0x6b, 0xaf };

    check(mark(bytes, sizeof(bytes)));
    check_equal(bytes[14], 0x6b);
    check_equal(bytes[15], 0xbf);       /* the flow label is untouched */
}

static void test_mark_refused(void)
{
    uint8_t plain[] = { ADDRESSES, IPV4, IPV4_HEADER(46 << 2, 0, 0, 17) };
    uint8_t cut[] = { ADDRESSES, IPV4, 0x45, 2, 0, 0, 0, 0 };
    uint8_t arp[] = { ADDRESSES, 0x08, 0x06, 0x45, 2, 0, 0, 0, 0 };

    check(!mark(plain, sizeof(plain)));
    check_equal(plain[15], 46 << 2);
    check(!mark(cut, sizeof(cut)));
    check_equal(cut[15], 2);
    check(!mark(arp, sizeof(arp)));
}

static void test_flow(void)
{
    static const uint8_t tcp[] = { ADDRESSES, IPV4, IPV4_HEADER(0, 0, 0, 6),
                                   TCP(SYN) };
    uint8_t other[sizeof(tcp)];
    SluiceFrame frame = parse(tcp, sizeof(tcp));
    uint32_t flow = sluice_frame_flow(tcp, sizeof(tcp), &frame);

    /* Bytes behind the ports do not matter, ports and addresses do. */
    memcpy(other, tcp, sizeof(tcp));
    other[sizeof(tcp) - 1] ^= 1;
    check_equal(sluice_frame_flow(other, sizeof(other), &frame), flow);
    for (unsigned i = 0; i < 12; i++) {
        memcpy(other, tcp, sizeof(tcp));
        other[ETHER_BYTES + 12 + i] ^= 1;
        frame = parse(other, sizeof(other));
        check(sluice_frame_flow(other, sizeof(other), &frame) != flow);
    }
    /* All parts of a packet are one flow, though one only has the ports. */
    memcpy(other, tcp, sizeof(tcp));
    other[ETHER_BYTES + 6] = 0x20;
    frame = parse(other, sizeof(other));
    flow = sluice_frame_flow(other, sizeof(other), &frame);
    other[ETHER_BYTES + 6] = 0x01;
    frame = parse(other, sizeof(other));
    check_equal(sluice_frame_flow(other, sizeof(other), &frame), flow);
    /* Cut off before its addresses, it has none. */
    check_equal(sluice_frame_flow(tcp, ETHER_BYTES + 19, &frame), 0);
}

static const TapTest tests[] = {
    { "frame/flow", test_flow },
    { "frame/IPv4", test_ipv4 },
    { "frame/IPv4 options", test_ipv4_options },
    { "frame/IPv6", test_ipv6 },
    { "frame/IPv6 extension headers", test_ipv6_extensions },
    { "frame/IPv6 with too many extension headers", test_ipv6_long_chain },
    { "frame/IPv4 fragments", test_ipv4_fragments },
    { "frame/IPv6 fragments", test_ipv6_fragments },
    { "frame/identification", test_identification },
    { "frame/UDP", test_udp },
    { "frame/VLAN tags", test_vlan_tags },
    { "frame/other frames", test_other_frames },
    { "frame/frames cut off anywhere", test_frames_cut_off_anywhere },
    { "frame/no bytes", test_no_bytes },
    { "frame/property: random bytes", test_random_bytes },
    { "frame/property: an IPv4 mark keeps the checksum right",
      test_mark_ipv4 },
    { "frame/an IPv6 mark", test_mark_ipv6 },
    { "frame/marks refused", test_mark_refused },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
