/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice port map.
 *
 * Entry. 0x80 + tag; other values are no entry. Whether the tag has a class is the caller's
 * to know.
 *
 * Fragments. The first part of a packet has the ports, later parts have only addresses,
 * identification and, over IPv4, protocol (RFC 791 section 3.2, RFC 8200 section 4.5). The
 * last SLUICE_FRAGMENTS first parts are remembered with their class. A packet is known by a
 * number of 64 bits: a hash of its addresses and the identification, both from the parser. The
 * newest of a number counts, so an identification that is used again is no trap.
 */
#include "sluice/portmap.h"

#define ENTRY_SET       0x80
#define ENTRY_TAG_MASK  0x0f
#define ENTRY_MASK      0xf0

static uint8_t tag_of_port(const uint8_t *map, const SluiceFrame *frame,
                           bool outbound)
{
    unsigned udp = frame->transport == SLUICE_TRANSPORT_UDP;
    unsigned port = outbound ? frame->source_port : frame->destination_port;
    /* Read once: the guest may be writing it. */
    uint8_t entry = __atomic_load_n(map + udp * 65536 + port, __ATOMIC_RELAXED);

    return (entry & ENTRY_MASK) == ENTRY_SET ? entry & ENTRY_TAG_MASK
                                             : SLUICE_PORT_NO_TAG;
}

static uint64_t packet_of(const SluiceFrame *frame, uint32_t flow)
{
    return (uint64_t)flow << 32 | frame->identification;
}

static void remember(SluiceFragments *fragments, uint64_t packet, uint8_t tag)
{
    fragments->packets[fragments->next] = packet;
    fragments->tags[fragments->next] = tag;
    fragments->next = (fragments->next + 1) % SLUICE_FRAGMENTS;
    fragments->count += fragments->count < SLUICE_FRAGMENTS;
}

static uint8_t recall(const SluiceFragments *fragments, uint64_t packet)
{
    for (unsigned age = 1; age <= fragments->count; age++) {
        unsigned i = (fragments->next - age) % SLUICE_FRAGMENTS;

        if (fragments->packets[i] == packet) {
            return fragments->tags[i];
        }
    }
    return SLUICE_PORT_NO_TAG;
}

uint8_t sluice_port_map_tag(const uint8_t *map, SluiceFragments *fragments,
                            const SluiceFrame *frame, uint32_t flow,
                            bool outbound)
{
    uint8_t tag = frame->has_ports ? tag_of_port(map, frame, outbound)
                                   : SLUICE_PORT_NO_TAG;

    if (frame->later_fragment) {
        return recall(fragments, packet_of(frame, flow));
    }
    if (frame->fragment && frame->has_ports) {
        remember(fragments, packet_of(frame, flow), tag);
    }
    return tag;
}
