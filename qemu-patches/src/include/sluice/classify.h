/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice classifier: the tag in bytes that a guest wrote; frame.h finds the DSCP of
 * a frame. Pure functions of their arguments, which are the caller's own copy
 * of guest memory, never guest memory itself; every value is possible and none
 * is trusted. The encoding is in docs/specs/tags.md.
 */
#ifndef SLUICE_CLASSIFY_H
#define SLUICE_CLASSIFY_H

#include <stdint.h>

#include "sluice/frame.h"

#define SLUICE_TAG_MAX          15
#define SLUICE_TAG_DEFAULT      0

/* The tag in the ioprio field (host byte order) of a virtio-blk request. */
uint8_t sluice_tag_of_ioprio(uint32_t ioprio);

/* The tag that a DSCP of the local-use pool carries; else the default tag. */
uint8_t sluice_tag_of_dscp(uint8_t dscp);

#endif
