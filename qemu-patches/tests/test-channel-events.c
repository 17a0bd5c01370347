/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events: subscriptions, the ring, the pattern, and the first that interrupts. */
#include <stdlib.h>
#include <string.h>

#include "sluice/channel.h"
#include "tap.h"

#define LIMITED_KIND    (1u << SLUICE_EVENT_LIMITED)
#define EVERY_KIND      0x3e

static SluiceChannelGuest *guest;
static SluiceChannelHost *host;
static SluiceEvents events;

static void begin(void)
{
    free(guest);
    free(host);
    guest = calloc(1, sizeof(*guest));
    host = calloc(1, sizeof(*host));
    memset(&events, 0, sizeof(events));
}

static bool make(unsigned tag, unsigned resource, uint64_t datum)
{
    SluiceChannelEvent event = { .time_ns = 7, .kind = SLUICE_EVENT_LIMITED,
                                 .tag = tag, .resource = resource,
                                 .datum = datum };

    return sluice_events_make(&events, guest, host, &event);
}

static void test_subscribe(void)
{
    begin();
    check(!sluice_events_wanted(&events, SLUICE_EVENT_LIMITED, 2));
    check(sluice_events_subscribe(&events, 2, LIMITED_KIND, 3, 0));
    check(sluice_events_wanted(&events, SLUICE_EVENT_LIMITED, 2));
    check(!sluice_events_wanted(&events, SLUICE_EVENT_UNLIMITED, 2));
    check(!sluice_events_wanted(&events, SLUICE_EVENT_LIMITED, 3));
    check(sluice_events_subscribe(&events, 2, 0, 0, 0));
    check(!sluice_events_wanted(&events, SLUICE_EVENT_LIMITED, 2));
    check(sluice_events_subscribe(&events, 2, EVERY_KIND, 0, UINT64_MAX));
    /* What is out of range changes nothing. */
    check(!sluice_events_subscribe(&events, 2, 1, 0, 0));
    check(!sluice_events_subscribe(&events, 2, 0x40, 0, 0));
    check(!sluice_events_subscribe(&events, 2, 1ULL << 40 | LIMITED_KIND, 0, 0));
    check(!sluice_events_subscribe(&events, 2, LIMITED_KIND, 4, 0));
    check(!sluice_events_subscribe(&events, 2, LIMITED_KIND, 1ULL << 32, 0));
    check_equal(events.subscriptions[2].kinds, EVERY_KIND);
}

/* Only the first of a priority interrupts, until the guest has taken the pattern. */
static void test_interrupt(void)
{
    begin();
    sluice_events_subscribe(&events, 2, LIMITED_KIND, 1, 0);
    sluice_events_subscribe(&events, 15, LIMITED_KIND, 0, 0);
    check(make(2, 3, 5));
    check(!make(2, 3, 6));
    check(!make(2, 0, 7));
    check(make(15, 3, 8));
    check_equal(SLUICE_LE64(guest->pattern[1]), 1ULL << 11 | 1ULL << 8);
    check_equal(SLUICE_LE64(guest->pattern[0]), 1ULL << 63);
    guest->pattern[1] = 0;
    check(make(2, 0, 9));
    check_equal(SLUICE_LE64(host->header.event_head), 5);
}

static void test_entries(void)
{
    begin();
    sluice_events_subscribe(&events, 2, LIMITED_KIND, 1, 0);
    for (unsigned i = 1; i <= SLUICE_CHANNEL_EVENTS + 3; i++) {
        make(2, 1, i * 10);
    }
    for (uint64_t number = 4; number <= SLUICE_CHANNEL_EVENTS + 3; number++) {
        const SluiceChannelEvent *entry =
            &host->events[sluice_event_slot(number)];

        check_equal(SLUICE_LE64(entry->number), number);
        check_equal(SLUICE_LE64(entry->time_ns), 7);
        check_equal(SLUICE_LE64(entry->datum), number * 10);
        check_equal(entry->kind, SLUICE_EVENT_LIMITED);
        check_equal(entry->tag, 2);
        check_equal(entry->resource, 1);
        check_equal(entry->priority, 1);
    }
}

/* Told once when it rises, and again after it has been below. */
static void test_backlog(void)
{
    begin();
    sluice_events_subscribe(&events, 2, 1u << SLUICE_EVENT_BACKLOG, 0, 1000);
    check(!sluice_events_rises(&events, 2, 1, 1000));
    check(sluice_events_rises(&events, 2, 1, 1001));
    check(!sluice_events_rises(&events, 2, 1, 5000));
    check(sluice_events_rises(&events, 2, 3, 5000));
    check(!sluice_events_rises(&events, 2, 1, 10));
    check(sluice_events_rises(&events, 2, 1, 1001));
    check(!sluice_events_rises(&events, 2, 3, 5000));
}

int main(void)
{
    static const TapTest tests[] = {
        { "events: subscriptions", test_subscribe },
        { "events: the first interrupts", test_interrupt },
        { "events: entries", test_entries },
        { "events: a backlog that rises", test_backlog },
    };
    int status = tap_run(tests, sizeof(tests) / sizeof(tests[0]));

    free(guest);
    free(host);
    return status;
}
