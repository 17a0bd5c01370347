/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice frame parser: the fields of an Ethernet frame's headers that a shaper needs.
 * Pure functions of their arguments, which are the caller's own copy of the bytes;
 * every value and every length is possible.
 */
#ifndef SLUICE_FRAME_H
#define SLUICE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLUICE_DSCP_MAX         63

/*
 * As much of a frame as is worth copying for sluice_frame_parse(): two VLAN
 * tags, the longest IPv4 header, or IPv6 with 180 bytes of extensions, and TCP.
 */
#define SLUICE_FRAME_HEAD_BYTES 256

typedef enum SluiceFrameKind {
    SLUICE_FRAME_OTHER,         /* nothing below is known */
    SLUICE_FRAME_IPV4,
    SLUICE_FRAME_IPV6,
} SluiceFrameKind;

/* RFC 3168 section 5 */
typedef enum SluiceEcn {
    SLUICE_ECN_NOT_ECT = 0,
    SLUICE_ECN_ECT_1 = 1,
    SLUICE_ECN_ECT_0 = 2,
    SLUICE_ECN_CE = 3,
} SluiceEcn;

/* The header behind IP, as far as it is known. */
typedef enum SluiceTransport {
    SLUICE_TRANSPORT_OTHER,     /* neither TCP nor UDP */
    SLUICE_TRANSPORT_HIDDEN,    /* cut off, malformed or behind too much */
    SLUICE_TRANSPORT_TCP,
    SLUICE_TRANSPORT_UDP,
} SluiceTransport;

#define SLUICE_TCP_FIN  0x01
#define SLUICE_TCP_SYN  0x02
#define SLUICE_TCP_RST  0x04
#define SLUICE_TCP_ACK  0x10

typedef struct SluiceFrame {
    uint32_t identification;    /* of the packet, with fragment; IPv4: and its protocol */
    uint16_t ip_offset;         /* of the IP header */
    uint16_t source_port;       /* with has_ports */
    uint16_t destination_port;
    uint8_t kind;               /* SluiceFrameKind */
    uint8_t transport;          /* SluiceTransport */
    uint8_t dscp;               /* 0..SLUICE_DSCP_MAX */
    uint8_t ecn;                /* SluiceEcn */
    uint8_t tcp_flags;          /* with has_tcp_flags */
    bool fragment;              /* one of several parts of a packet */
    bool later_fragment;        /* and not the first of them */
    bool has_ports;
    bool has_tcp_flags;
    bool opens_connection;      /* may: see frame.c */
} SluiceFrame;

/* Reads `length` bytes, the frame or its beginning. Constant bound on work. */
void sluice_frame_parse(const uint8_t *bytes, size_t length,
                        SluiceFrame *frame);

/*
 * A number that frames of one flow share: of the same addresses and ports, or
 * of the same addresses where ports are not known or not of every part.
 */
uint32_t sluice_frame_flow(const uint8_t *bytes, size_t length,
                           const SluiceFrame *frame);

/*
 * Marks a frame, parsed from the same bytes, as having met congestion (CE).
 * Returns false and changes nothing if its sender does not understand the
 * mark or its header is cut off. A frame that is marked already stays so.
 */
bool sluice_frame_mark_ce(uint8_t *bytes, size_t length,
                          const SluiceFrame *frame);

#endif
