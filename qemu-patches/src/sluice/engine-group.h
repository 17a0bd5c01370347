/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the engine asks of the group above its ceiling, if it has one: the last
 * question before a request goes on, and when to ask again.
 *
 * The engine waits for the group only while nothing else is missing; it is not
 * waiting while its classes wait for their own buckets or for the ceiling.
 */
#ifndef SLUICE_ENGINE_GROUP_H
#define SLUICE_ENGINE_GROUP_H

#include "sluice/group.h"

/* Charges the request to the group, or says no. */
static inline bool engine_group_admits(SluiceGroupMember *group,
                                       uint32_t bytes, uint64_t now_ns)
{
    return !group || sluice_group_admit(group, bytes, now_ns);
}

static inline void engine_group_correct(SluiceGroupMember *group,
                                        int64_t bytes, uint64_t now_ns)
{
    if (group) {
        sluice_group_correct(group, bytes, now_ns);
    }
}

static inline void engine_group_refund(SluiceGroupMember *group,
                                       uint32_t bytes, uint64_t now_ns)
{
    if (group) {
        sluice_group_refund(group, bytes, now_ns);
    }
}

/* `event_ns`: when something may go on as far as the engine itself knows. */
static inline uint64_t engine_group_event_ns(SluiceGroupMember *group,
                                             uint64_t event_ns,
                                             uint64_t now_ns)
{
    if (!group) {
        return event_ns;
    }
    if (event_ns > now_ns) {
        sluice_group_idle(group);
        return event_ns;
    }
    return sluice_group_next_ns(group, now_ns);
}

#endif
