/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Takes held requests out of an engine, so that it can be freed. */
#ifndef SLUICE_TESTS_EVICT_H
#define SLUICE_TESTS_EVICT_H

#include "sluice/engine-internal.h"

/* Any held request, uncharged, in order within a class; NULL when none is left. */
static inline SluiceNode *evict(SluiceEngine *engine)
{
    SluiceNode *node = NULL;

    for (uint32_t i = 0; !node && i < engine->class_count; i++) {
        node = sluice_engine_first_held(engine, i);
    }
    if (node) {
        sluice_engine_withdraw(engine, node, 0);
    }
    return node;
}

#endif
