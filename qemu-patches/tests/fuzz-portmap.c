/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzzer of the port map (docs/specs/channel.md). Frames are built of headers of every
 * form around a local port: the class that each must find is known from how it was built,
 * and, of a packet in parts, from the list of first parts so far. Between the frames the map
 * changes. The bytes decide all of this. Seeds are in fuzz-portmap-seeds/.
 */
#include <stdlib.h>
#include <string.h>

#include "sluice/portmap.h"
#include "random.h"

#define FRAME_BYTES_MAX     512
#define VLAN_TAGS_READ      2       /* as many as the parser looks behind */
#define EXTENSIONS_BUILT    3       /* before a fragment header, and after it */

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_FRAGMENT   44
#define PROTOCOL_AH         51
#define PROTOCOL_DESTINATION 60

typedef enum Part { WHOLE, FIRST, LATER, PARTS } Part;

/* What tells the parts of one packet from those of another. */
typedef struct Packet {
    bool ipv6;
    uint8_t addresses;
    uint8_t protocol;       /* over IPv4: that of the IP header */
    uint32_t identification;
    uint8_t tag;            /* of the first part */
} Packet;

typedef struct Built {
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t length;
    size_t cut;             /* so much of it is there */
    bool read;              /* behind few enough tags */
    Part part;
    uint8_t transport;      /* the protocol behind all headers */
    uint16_t source;
    uint16_t destination;
    Packet packet;
} Built;

typedef struct Link {
    Random random;
    uint8_t *map;
    SluiceFragments fragments[2];
    Packet packets[2][SLUICE_FRAGMENTS];
    unsigned counts[2];     /* of first parts; the newest are in packets */
} Link;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Building */

static uint16_t any_port(Random *random)
{
    static const uint16_t ports[] = { 0, 1, 80, 5001, 49153, UINT16_MAX };

    return ports[random_below(random, sizeof(ports) / sizeof(ports[0]))];
}

static void put(Built *built, unsigned byte)
{
    built->bytes[built->length++] = byte;
}

static void put_word(Built *built, unsigned word)
{
    put(built, word >> 8 & 0xff);
    put(built, word & 0xff);
}

/* An extension header; the returned place is where the next one's protocol belongs. */
static size_t put_extension(Built *built, unsigned protocol, unsigned units)
{
    size_t next = built->length;
    size_t bytes = protocol == PROTOCOL_AH ? (units + 2) * 4 : (units + 1) * 8;

    put(built, 0);
    put(built, units);
    built->length += bytes - 2;
    return next;
}

/* Some extensions, whose first protocol belongs at `next`; the last one's place. */
static size_t put_extensions(Built *built, Random *random, size_t next,
                             bool behind)
{
    unsigned count = random_below(random, EXTENSIONS_BUILT + 1);

    for (unsigned i = 0; i < count; i++) {
        unsigned protocol = behind && random_below(random, 2)
                            ? PROTOCOL_AH
                            : i || behind ? PROTOCOL_DESTINATION
                                          : PROTOCOL_HOP_BY_HOP;

        built->bytes[next] = protocol;
        next = put_extension(built, protocol, random_below(random, 4));
    }
    return next;
}

static void put_ipv4(Built *built, Random *random)
{
    unsigned options = random_below(random, 11);
    size_t next = built->length + 9;

    put(built, 0x45 + options);
    put(built, 0);
    put_word(built, 0);
    put_word(built, built->packet.identification);
    put_word(built, built->part == FIRST ? 0x2000
                    : built->part == LATER ? 1 + random_below(random, 99) : 0);
    built->length += 8;
    put_word(built, 0x0a00);
    put_word(built, built->packet.addresses);
    built->length += 4 * options;
    if (random_below(random, 4) == 1) {
        built->bytes[next] = PROTOCOL_AH;
        built->packet.protocol = PROTOCOL_AH;
        if (built->part == LATER) {
            return;
        }
        next = put_extension(built, PROTOCOL_AH, random_below(random, 4));
    } else {
        built->packet.protocol = built->transport;
    }
    built->bytes[next] = built->transport;
}

static void put_ipv6(Built *built, Random *random)
{
    size_t next = built->length + 6;

    put(built, 0x60);
    built->length += 22;
    put(built, built->packet.addresses);
    built->length += 16;
    next = put_extensions(built, random, next, false);
    if (built->part != WHOLE) {
        built->bytes[next] = PROTOCOL_FRAGMENT;
        next = built->length;
        put_word(built, 0);
        put_word(built, built->part == FIRST ? 1
                        : (1 + random_below(random, 99)) << 3);
        put_word(built, built->packet.identification >> 16);
        put_word(built, built->packet.identification & 0xffff);
    }
    if (built->part == LATER) {
        /* It repeats the protocol of the first part's next header, which it has not. */
        built->bytes[next] = random_below(random, 2) ? PROTOCOL_DESTINATION
                                                     : built->transport;
        return;
    }
    next = put_extensions(built, random, next, true);
    built->bytes[next] = built->transport;
}

/* The headers of a frame whose kind is known, and how much of it is there. */
static void finish(Built *built, Random *random, unsigned tags)
{
    for (unsigned i = 0; i < tags; i++) {
        put_word(built, 0x8100);
        put_word(built, 5);
    }
    put_word(built, built->packet.ipv6 ? 0x86dd : 0x0800);
    if (built->packet.ipv6) {
        put_ipv6(built, random);
    } else {
        put_ipv4(built, random);
    }
    built->source = any_port(random);
    built->destination = any_port(random);
    if (built->part != LATER) {
        put_word(built, built->source);
        put_word(built, built->destination);
    }
    built->cut = random_below(random, 8) == 1
                 ? random_below(random, built->length) : built->length;
}

static void build(Built *built, Random *random)
{
    static const uint8_t transports[] = { 6, 17, 1 };
    unsigned tags = random_below(random, VLAN_TAGS_READ + 2);

    *built = (Built){ .length = 12, .read = tags <= VLAN_TAGS_READ };
    built->part = random_below(random, PARTS);
    built->transport = transports[random_below(random, sizeof(transports))];
    built->packet.ipv6 = random_below(random, 2);
    built->packet.addresses = random_below(random, 3);
    built->packet.identification = random_below(random, 5);
    finish(built, random, tags);
}

/* What must be found */

static uint8_t tag_of_entry(uint8_t entry)
{
    return entry >= 0x80 && entry <= 0x8f ? entry - 0x80 : SLUICE_PORT_NO_TAG;
}

static bool is_same(const Packet *one, const Packet *other)
{
    return one->ipv6 == other->ipv6 && one->addresses == other->addresses
           && one->protocol == other->protocol
           && one->identification == other->identification;
}

static uint8_t recalled(const Link *link, const Packet *packet, bool outbound)
{
    unsigned count = link->counts[outbound];

    for (unsigned age = 1; age <= SLUICE_FRAGMENTS && age <= count; age++) {
        const Packet *first = &link->packets[outbound][(count - age)
                                                       % SLUICE_FRAGMENTS];

        if (is_same(first, packet)) {
            return first->tag;
        }
    }
    return SLUICE_PORT_NO_TAG;
}

static uint8_t expected(Link *link, const Built *built, bool outbound)
{
    unsigned port = outbound ? built->source : built->destination;
    Packet packet = built->packet;

    if (!built->read) {
        return SLUICE_PORT_NO_TAG;
    }
    if (built->part == LATER) {
        return recalled(link, &packet, outbound);
    }
    if (built->transport != 6 && built->transport != 17) {
        return SLUICE_PORT_NO_TAG;
    }
    packet.tag = tag_of_entry(link->map[(built->transport == 17) << 16 | port]);
    if (built->part == FIRST) {
        unsigned i = link->counts[outbound]++ % SLUICE_FRAGMENTS;

        link->packets[outbound][i] = packet;
    }
    return packet.tag;
}

/* The frame goes, and its tag is that of `expected()` if all of its headers are there. */
static void send(Link *link, const Built *built, bool outbound)
{
    /* Of exactly that length, so that a read beyond it is seen. */
    uint8_t *bytes = malloc(built->cut ? built->cut : 1);
    SluiceFrame frame;
    uint8_t tag;

    memcpy(bytes, built->bytes, built->cut);
    sluice_frame_parse(bytes, built->cut, &frame);
    tag = sluice_port_map_tag(link->map, &link->fragments[outbound], &frame,
                              sluice_frame_flow(bytes, built->cut, &frame),
                              outbound);
    free(bytes);
    require(tag == SLUICE_PORT_NO_TAG || tag < 16);
    if (built->cut == built->length) {
        require(tag == expected(link, built, outbound));
    }
}

/* First parts of other packets, which push out older ones. */
static void send_others(Link *link, bool outbound)
{
    unsigned others = random_below(&link->random, SLUICE_FRAGMENTS + 2);

    for (unsigned i = 0; i < others; i++) {
        Random zeros = { .bytes = (const uint8_t *)"", .left = 0 };
        Built built = { .part = FIRST, .read = true, .transport = 17, .length = 12 };

        built.packet.identification = 1000 + i;
        finish(&built, &zeros, 0);
        send(link, &built, outbound);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Link *link = calloc(1, sizeof(Link));

    link->random = (Random){ .bytes = data, .left = size };
    link->map = calloc(1, SLUICE_PORT_MAP_BYTES);
    while (!random_is_spent(&link->random)) {
        unsigned what = random_below(&link->random, 8);
        bool outbound = what & 1;

        if (what < 2) {
            uint8_t entry = random_bytes(&link->random, 1);
            bool udp = random_below(&link->random, 2);

            link->map[udp << 16 | any_port(&link->random)] = entry;
        } else if (what == 2) {
            send_others(link, random_below(&link->random, 2));
        } else {
            Built built;

            build(&built, &link->random);
            send(link, &built, outbound);
        }
    }
    free(link->map);
    free(link);
    return 0;
}
