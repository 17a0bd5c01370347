/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Leaky buckets and peak rates.
 *
 * Leaky bucket (TAP section 5.2): a bucket without burst. After one request the
 * next goes when the first is paid, however long the class was idle. But timers
 * are late, and a class would lose as much each time: a tenth of a millisecond
 * where one request is due each millisecond is a tenth of the rate. So while a
 * class waits, its schedule goes on, and is caught up with, at most by
 * SLUICE_LEAKY_LATE_MAX_NS: in any time t no more goes than rate * (t + that) and
 * a request. (In ITU-T I.371 this is the tolerance of the cell delay variation.)
 * Guests are late, too: with few requests outstanding, near the limit of the disk,
 * there is now and then a moment in which none waits. So a request that comes up to
 * SLUICE_LEAKY_IDLE_MAX_NS after it could have gone keeps the schedule as well; a
 * longer pause is idleness, and is worth no more than that.
 *
 * Peak rate (token bucket followed by a leaky bucket, TAP section 5.2). A
 * second bucket of bytes, a leaky one, at the peak rate: both must have a
 * token. So the burst of the first passes, but no faster than the peak.
 */
#include "engine-internal.h"

static void charge_buckets(SluiceClass *class, uint32_t bytes, uint64_t now_ns,
                           uint64_t leaky_now_ns)
{
    charge_class(class, bytes,
                 class->special & SPECIAL_LEAKY ? leaky_now_ns : now_ns);
    if (class->special & SPECIAL_PEAK) {
        bucket_charge(&class->extra->peak, bytes, leaky_now_ns);
    }
}

static uint64_t before_ns(uint64_t now_ns, uint64_t by_ns)
{
    return later_ns(now_ns, by_ns) - by_ns;
}

void leaky_charge(SluiceClass *class, uint32_t bytes, uint64_t now_ns)
{
    charge_buckets(class, bytes, now_ns,
                   before_ns(now_ns, SLUICE_LEAKY_IDLE_MAX_NS));
}

void leaky_charge_held(SluiceClass *class, uint32_t bytes, uint64_t now_ns)
{
    charge_buckets(class, bytes, now_ns,
                   before_ns(now_ns, SLUICE_LEAKY_LATE_MAX_NS));
}

static void forget_idleness(SluiceBucket *bucket, uint64_t now_ns)
{
    bucket->due_ns = bucket_start_ns(bucket, now_ns);
}

void leaky_begin_waiting(SluiceClass *class, uint64_t now_ns)
{
    now_ns = before_ns(now_ns, SLUICE_LEAKY_IDLE_MAX_NS);
    if (class->special & SPECIAL_LEAKY) {
        forget_idleness(&class->bytes, now_ns);
        forget_idleness(&class->operations, now_ns);
    }
    if (class->special & SPECIAL_PEAK) {
        forget_idleness(&class->extra->peak, now_ns);
    }
}
