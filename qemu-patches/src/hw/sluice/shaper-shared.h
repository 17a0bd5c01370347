/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A file that several processes of the host map: a group's page, or a gate's. The
 * controller makes it. BQL.
 */
#ifndef HW_SLUICE_SHAPER_SHARED_H
#define HW_SLUICE_SHAPER_SHARED_H

#include "shaper-guard.h"

typedef struct ShaperShared {
    void *memory;               /* NULL: not open */
    size_t bytes;
    ShaperGuard *guard;
    bool loss_told;
} ShaperShared;

/* Maps the file, which has `bytes` bytes; `what` is "group" or "gate". */
bool shaper_shared_open(ShaperShared *shared, const char *path, size_t bytes,
                        const char *what, Error **errp);
void shaper_shared_close(ShaperShared *shared);
/* Has another process shortened it? Then this one has an empty page of its own. */
bool shaper_shared_is_lost(const ShaperShared *shared);
/* Whether it is lost; true only the first time that it is asked. */
bool shaper_shared_is_newly_lost(ShaperShared *shared);

#endif
