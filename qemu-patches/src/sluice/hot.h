/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Hints for the compiler on the path of every request. */
#ifndef SLUICE_HOT_H
#define SLUICE_HOT_H

#define CACHE_LINE_BYTES    64

#define UNLIKELY(x)         __builtin_expect(!!(x), 0)
#define LIKELY(x)           __builtin_expect(!!(x), 1)

/* QEMU's build clears registers on return, against information leaks. A
 * decision leaves no secret there: sizes and times. */
#if defined(__has_attribute)
#if __has_attribute(zero_call_used_regs)
#define SLUICE_HOT  __attribute__((zero_call_used_regs("skip")))
#endif
#endif
#ifndef SLUICE_HOT
#define SLUICE_HOT
#endif

#endif
