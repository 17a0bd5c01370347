/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of a decision, inline for the data path. The essay is in engine.c. */
#ifndef SLUICE_ENGINE_INLINE_H
#define SLUICE_ENGINE_INLINE_H

#include "engine-internal.h"

static inline bool class_limits_conform(const SluiceClass *class,
                                        uint64_t now_ns)
{
    return bucket_conforms(&class->bytes, now_ns)
           && bucket_conforms(&class->operations, now_ns);
}

static inline int64_t later_due_ns(int64_t a_ns, int64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* From when on it conforms. */
static inline int64_t class_due_ns(const SluiceClass *class)
{
    int64_t due_ns = later_due_ns(class->bytes.due_ns,
                                  class->operations.due_ns);

    if (UNLIKELY(class->special & SPECIAL_PEAK)) {
        due_ns = later_due_ns(due_ns, special_due_ns(class));
    }
    return due_ns;
}

static inline bool ceiling_conforms(const SluiceEngine *engine, uint64_t now_ns)
{
    return bucket_conforms(&engine->ceiling_bytes, now_ns)
           && bucket_conforms(&engine->ceiling_operations, now_ns);
}

static inline void charge_class(SluiceClass *class, uint32_t charged,
                                uint64_t now_ns)
{
    bucket_charge(&class->bytes, charged, now_ns);
    bucket_charge_one(&class->operations, now_ns);
}

static inline void charge_ceiling(SluiceEngine *engine, uint32_t charged,
                                  uint64_t now_ns)
{
    bucket_charge(&engine->ceiling_bytes, charged, now_ns);
    bucket_charge_one(&engine->ceiling_operations, now_ns);
}

static inline void count(SluiceClass *class, uint32_t bytes)
{
    class->stats.requests++;
    class->stats.bytes += bytes;
}

static inline bool reservation_is_due(const SluiceEngine *engine,
                                      const SluiceClass *class,
                                      uint64_t now_ns)
{
    return has_reservation(class)
           && class->reservation.due_ns
              <= (int64_t)reservations_now(engine, now_ns);
}

static inline void queue_append(SluiceClass *class, SluiceNode *node)
{
    node->next = NULL;
    if (class->newest) {
        class->newest->next = node;
    } else {
        class->oldest = node;
    }
    class->newest = node;
}

static inline SluiceNode *take_oldest(SluiceClass *class, uint64_t now_ns)
{
    SluiceNode *node = class->oldest, *next = node->next;

    class->oldest = next;
    if (!next) {
        class->newest = NULL;
        class->special &= ~SPECIAL_HOLDS;
    }
    class->stats.backlog_requests--;
    class->stats.backlog_bytes -= node->bytes;
    class->stats.held_requests++;
    class->stats.held_ns += now_ns - node->held_since_ns;
    return node;
}

#endif
