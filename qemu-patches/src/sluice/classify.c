/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice classifier.
 *
 * Disk. The ioprio field is an I/O priority of Linux: class in bits
 * 13-15, hint in bits 3-12, level in bits 0-2. A tag is level and hint of the
 * real-time class, because only a privileged guest process can set that one.
 *
 * Network. A tag is a DSCP of the pool that ends in 11.
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

uint8_t sluice_tag_of_dscp(uint8_t dscp)
{
    if (dscp > SLUICE_DSCP_MAX || (dscp & DSCP_LOCAL_MASK) != DSCP_LOCAL_MASK) {
        return SLUICE_TAG_DEFAULT;
    }
    return dscp >> DSCP_LOCAL_SHIFT;
}
