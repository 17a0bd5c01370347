/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice port map: the class of a frame by its local port (docs/specs/channel.md). The map
 * is memory of the guest, which may change it at any time; a look-up is one load of one
 * byte. Pure functions, no clock, no allocation.
 */
#ifndef SLUICE_PORTMAP_H
#define SLUICE_PORTMAP_H

#include "sluice/frame.h"

/* First TCP, then UDP; a byte for each port. */
#define SLUICE_PORT_MAP_BYTES   (2 * 65536)
#define SLUICE_PORT_NO_TAG      UINT8_MAX
#define SLUICE_FRAGMENTS        64

/* First fragments that went in one direction, of which later ones have no ports. */
typedef struct SluiceFragments {
    uint64_t packets[SLUICE_FRAGMENTS];     /* see packet_of() */
    uint8_t tags[SLUICE_FRAGMENTS];
    unsigned count;             /* of those that are remembered */
    unsigned next;              /* the oldest, when all are in use */
} SluiceFragments;              /* begins zeroed */

/*
 * The tag for a frame, or SLUICE_PORT_NO_TAG. The local port is the source of a frame that
 * is `outbound`, else the destination. `flow` is sluice_frame_flow() of the frame.
 */
uint8_t sluice_port_map_tag(const uint8_t *map, SluiceFragments *fragments,
                            const SluiceFrame *frame, uint32_t flow,
                            bool outbound);

#endif
