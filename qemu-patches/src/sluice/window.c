/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Window constraint (DWCS: West and Schwan, ICMCS 1999; ECalls section 5). Per
 * period a number of bytes is to be served: a reservation of that rate. Its
 * due time says when service of the next request may begin, one period later
 * the request is late. Of each window of `of` requests `may_miss` may be late.
 * Then the request is dropped, or, where nothing may be dropped, it gives up its
 * reserved turn and waits for a turn that its weight and priority earn. Either
 * way the classes whose windows are used up get the time: the rule that the
 * tightest window goes first. When the window is used up, a late request is
 * served like any reserved one and counted as a violation. Demand is feasible
 * if the sum of bytes / period * (1 - may_miss / of) is below the ceiling.
 */
#include "engine-internal.h"

#define NANOSECONDS_PER_SECOND  1000000000ULL

static void count_request(SluiceSpecial *extra, bool missed)
{
    extra->window_missed += missed;
    if (++extra->window_seen >= extra->window.of) {
        extra->window_seen = 0;
        extra->window_missed = 0;
    }
}

WindowVerdict window_judge(SluiceClass *class, SluiceNode *node,
                           uint64_t now_ns)
{
    SluiceSpecial *extra = class->extra;
    int64_t late_ns = class->reservation.due_ns
                      + (int64_t)extra->window.period_ns;

    if ((int64_t)now_ns <= late_ns || node->late) {
        return WINDOW_SERVE;
    }
    if (extra->window_missed >= extra->window.may_miss) {
        extra->window_stats.violations++;
        count_request(extra, false);
        node->late = SLUICE_LATE;
        return WINDOW_SERVE;
    }
    extra->window_stats.late_requests++;
    count_request(extra, true);
    if (extra->window.may_drop) {
        node->late = SLUICE_LATE_DROP;
        return WINDOW_DROP;
    }
    node->late = SLUICE_LATE;
    return WINDOW_FORFEIT;
}

void window_served(SluiceClass *class)
{
    count_request(class->extra, false);
}

static bool same_window(const SluiceWindow *a, const SluiceWindow *b)
{
    return a->period_ns == b->period_ns && a->bytes == b->bytes
           && a->may_miss == b->may_miss && a->of == b->of;
}

void window_configure(SluiceClass *class, const SluiceWindow *window)
{
    SluiceSpecial *extra = class->extra;

    if (!same_window(&extra->window, window)) {
        extra->window_seen = 0;
        extra->window_missed = 0;
    }
    extra->window = *window;
}

uint64_t window_reservation(const SluiceWindow *window)
{
    return (window->bytes * NANOSECONDS_PER_SECOND + window->period_ns - 1)
           / window->period_ns;
}
