/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The port map: each byte, both directions, fragments, and a second implementation. */
#include <string.h>

#include "sluice/classify.h"
#include "sluice/portmap.h"
#include "random.h"
#include "tap.h"

#define SET     0x80
#define HTTP    80
#define CLIENT  49153

static uint8_t map[SLUICE_PORT_MAP_BYTES];
static SluiceFragments fragments;

static void begin(void)
{
    memset(map, 0, sizeof(map));
    memset(&fragments, 0, sizeof(fragments));
}

/* From the client's port to that of a web server. */
static SluiceFrame frame_of(SluiceTransport transport)
{
    return (SluiceFrame){
        .kind = SLUICE_FRAME_IPV4,
        .transport = transport,
        .has_ports = true,
        .source_port = CLIENT,
        .destination_port = HTTP,
    };
}

static SluiceFrame part_of(uint32_t identification, bool first)
{
    SluiceFrame frame = frame_of(SLUICE_TRANSPORT_UDP);

    frame.fragment = true;
    frame.later_fragment = !first;
    frame.has_ports = first;
    frame.identification = identification;
    return frame;
}

static uint8_t tag_of(SluiceFrame frame, uint32_t flow, bool outbound)
{
    return sluice_port_map_tag(map, &fragments, &frame, flow, outbound);
}

static void test_every_entry(void)
{
    begin();
    for (unsigned entry = 0; entry < 256; entry++) {
        map[CLIENT] = entry;
        check_equal(tag_of(frame_of(SLUICE_TRANSPORT_TCP), 1, true),
                    entry >> 4 == 8 ? entry & 15 : SLUICE_PORT_NO_TAG);
    }
}

static void test_local_port(void)
{
    begin();
    map[CLIENT] = SET | 1;
    map[HTTP] = SET | 2;
    map[65536 + CLIENT] = SET | 3;
    map[65536 + HTTP] = SET | 4;
    check_equal(tag_of(frame_of(SLUICE_TRANSPORT_TCP), 1, true), 1);
    check_equal(tag_of(frame_of(SLUICE_TRANSPORT_TCP), 1, false), 2);
    check_equal(tag_of(frame_of(SLUICE_TRANSPORT_UDP), 1, true), 3);
    check_equal(tag_of(frame_of(SLUICE_TRANSPORT_UDP), 1, false), 4);
}

static void test_no_ports(void)
{
    SluiceFrame frame = frame_of(SLUICE_TRANSPORT_TCP);

    begin();
    memset(map, SET | 1, sizeof(map));
    frame.has_ports = false;
    for (unsigned transport = 0; transport <= SLUICE_TRANSPORT_UDP; transport++) {
        frame.transport = transport;
        check_equal(tag_of(frame, 1, true), SLUICE_PORT_NO_TAG);
    }
}

/* Later parts go with the first of their packet, as long as 64 others do not push it out. */
static void test_fragments(void)
{
    begin();
    map[65536 + CLIENT] = SET | 5;
    check_equal(tag_of(part_of(7, false), 1, true), SLUICE_PORT_NO_TAG);
    check_equal(tag_of(part_of(7, true), 1, true), 5);
    check_equal(tag_of(part_of(7, false), 1, true), 5);
    check_equal(tag_of(part_of(8, false), 1, true), SLUICE_PORT_NO_TAG);
    check_equal(tag_of(part_of(7, false), 2, true), SLUICE_PORT_NO_TAG);
    for (unsigned i = 0; i < SLUICE_FRAGMENTS - 1; i++) {
        tag_of(part_of(100 + i, true), 1, true);
    }
    check_equal(tag_of(part_of(7, false), 1, true), 5);
    tag_of(part_of(99, true), 1, true);
    check_equal(tag_of(part_of(7, false), 1, true), SLUICE_PORT_NO_TAG);
    /* An identification that is used again, by a port that has no entry any more. */
    check_equal(tag_of(part_of(99, false), 1, true), 5);
    map[65536 + CLIENT] = 0;
    tag_of(part_of(99, true), 1, true);
    check_equal(tag_of(part_of(99, false), 1, true), SLUICE_PORT_NO_TAG);
}

/* Of a first part without ports the packet is not known, whatever it repeats. */
static void test_first_part_without_ports(void)
{
    SluiceFrame icmp = part_of(7, true);

    begin();
    map[65536 + CLIENT] = SET | 2;
    check_equal(tag_of(icmp, 1, true), 2);
    icmp.transport = SLUICE_TRANSPORT_OTHER;
    icmp.has_ports = false;
    check_equal(tag_of(icmp, 1, true), SLUICE_PORT_NO_TAG);
}

/* What the parser tells of a part's protocol does not matter: behind extension headers it is
 * that of the first one. */
static void test_later_part_of_any_protocol(void)
{
    begin();
    map[65536 + CLIENT] = SET | 2;
    tag_of(part_of(7, true), 1, true);
    for (unsigned transport = 0; transport <= SLUICE_TRANSPORT_UDP; transport++) {
        SluiceFrame later = part_of(7, false);

        later.transport = transport;
        check_equal(tag_of(later, 1, true), 2);
    }
}

/* A second implementation: all packets ever, the newest first. */
typedef struct Packet {
    uint32_t flow;
    uint32_t identification;
    uint8_t tag;
} Packet;

static uint8_t plain_entry(const SluiceFrame *frame, bool outbound)
{
    unsigned base = frame->transport == SLUICE_TRANSPORT_UDP ? 65536 : 0;
    uint8_t entry = map[base + (outbound ? frame->source_port
                                         : frame->destination_port)];

    return entry >= 0x80 && entry < 0x90 ? entry - 0x80 : SLUICE_PORT_NO_TAG;
}

static uint8_t plain_recall(const Packet *packets, unsigned count,
                            const SluiceFrame *frame, uint32_t flow)
{
    for (unsigned i = count; i > 0 && count - i < SLUICE_FRAGMENTS; i--) {
        const Packet *packet = &packets[i - 1];

        if (packet->flow == flow
            && packet->identification == frame->identification) {
            return packet->tag;
        }
    }
    return SLUICE_PORT_NO_TAG;
}

static void test_against_a_second_implementation(void)
{
    static Packet packets[20000];
    Random random = random_seeded(1);
    unsigned count = 0;

    begin();
    for (unsigned i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
        SluiceTransport transport = random_below(&random, 4);
        SluiceFrame frame = frame_of(transport);
        bool ip = transport >= SLUICE_TRANSPORT_TCP;
        bool outbound = random_below(&random, 2);
        uint32_t flow = random_below(&random, 3);
        uint8_t expected;

        map[random_below(&random, 2) * 65536 + random_below(&random, 4)]
            = random_below(&random, 256);
        frame.source_port = random_below(&random, 4);
        frame.destination_port = random_below(&random, 4);
        frame.fragment = random_below(&random, 2);
        frame.later_fragment = frame.fragment && random_below(&random, 2);
        frame.has_ports = ip && !frame.later_fragment && random_below(&random, 2);
        frame.identification = random_below(&random, 100);
        expected = frame.later_fragment
                   ? plain_recall(packets, count, &frame, flow)
                   : frame.has_ports ? plain_entry(&frame, outbound)
                                     : SLUICE_PORT_NO_TAG;
        if (frame.has_ports && frame.fragment) {
            packets[count++] = (Packet){ flow, frame.identification, expected };
        }
        if (!check_equal(tag_of(frame, flow, outbound), expected)) {
            return;
        }
    }
}

static const TapTest tests[] = {
    { "portmap/every entry", test_every_entry },
    { "portmap/local port", test_local_port },
    { "portmap/no ports", test_no_ports },
    { "portmap/fragments", test_fragments },
    { "portmap/first part without ports", test_first_part_without_ports },
    { "portmap/later part of any protocol", test_later_part_of_any_protocol },
    { "portmap/against a second implementation",
      test_against_a_second_implementation },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
