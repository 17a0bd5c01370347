/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mapped files that other processes may shorten. An access beyond the file's end is
 * then answered with SIGBUS, which ends QEMU; a guarded mapping becomes memory of this
 * process instead, and the access is made again.
 */
#ifndef HW_SLUICE_SHAPER_GUARD_H
#define HW_SLUICE_SHAPER_GUARD_H

typedef struct ShaperGuard ShaperGuard;

/* Guards `bytes` of whole pages at `memory`. BQL, main thread. */
ShaperGuard *shaper_guard_new(void *memory, size_t bytes);
/* Before the mapping goes, and after the last access. BQL. */
void shaper_guard_free(ShaperGuard *guard);
/* The file was shortened: the mapping is private since, and was zeroed. */
bool shaper_guard_is_lost(const ShaperGuard *guard);
/* Takes SIGBUS again if another part of QEMU has taken it since. BQL, main thread. */
void shaper_guard_arm(void);

#endif
