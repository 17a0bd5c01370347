/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tokens in a class's buckets, of an engine with one class of interest. */
#ifndef SLUICE_TESTS_TOKENS_H
#define SLUICE_TESTS_TOKENS_H

#include "sluice/engine.h"
#include "tap.h"

#define SECOND_NS   1000000000ULL
#define START_NS    (5 * SECOND_NS)

static inline SluiceTokens tokens(const SluiceEngine *engine, uint64_t now_ns)
{
    return sluice_engine_tokens(engine, 0, now_ns);
}

static inline void limit(SluiceEngine *engine, const SluiceClassConfig *config,
                         uint64_t now_ns)
{
    check(sluice_engine_set_class(engine, 0, config, now_ns));
}

static inline SluiceVerdict submit(SluiceEngine *engine, uint32_t bytes,
                                   uint64_t now_ns)
{
    static SluiceNode node;

    return sluice_engine_submit(engine, 0, &node, bytes, now_ns);
}

#endif
