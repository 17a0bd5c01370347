/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice classifier: reads the tag out of what a guest wrote. Pure functions
 * of their arguments, which are the caller's own copy of guest memory, never
 * guest memory itself; every value is possible and none is trusted. The
 * encoding is in docs/specs/tags.md.
 */
#ifndef SLUICE_CLASSIFY_H
#define SLUICE_CLASSIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLUICE_TAG_MAX          15
#define SLUICE_TAG_DEFAULT      0
#define SLUICE_DSCP_MAX         63

/* As much of a frame as sluice_dscp_of_frame() ever looks at. */
#define SLUICE_FRAME_HEAD_BYTES 64

/* The tag in the ioprio field (host byte order) of a virtio-blk request. */
uint8_t sluice_tag_of_ioprio(uint32_t ioprio);

/*
 * The DSCP (0 to SLUICE_DSCP_MAX) of an Ethernet II frame with up to two VLAN
 * tags that carries IPv4 or IPv6. Returns false and leaves *dscp alone for
 * anything else, and for a frame cut off before the field.
 */
bool sluice_dscp_of_frame(const uint8_t *frame, size_t length, uint8_t *dscp);

/* The tag that a DSCP of the local-use pool carries; else the default tag. */
uint8_t sluice_tag_of_dscp(uint8_t dscp);

#endif
