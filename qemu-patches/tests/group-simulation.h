/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host in virtual time: clients with a queue and a timer each, which share a
 * group as the engines of as many QEMUs do. A client asks for its first
 * request when it comes, and else when its timer fires; the timer is late by a
 * random time, as timers are. Nothing here knows how the group decides.
 *
 * Kinds of clients: one keeps `depth` requests outstanding, each finished
 * `latency_ns` after it was let go, in on and off times if it has them; or its
 * requests come at a rate of their own, held or not.
 */
#ifndef SLUICE_TESTS_GROUP_SIMULATION_H
#define SLUICE_TESTS_GROUP_SIMULATION_H

#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "sluice/engine.h"
#include "group-writer.h"

#define CLIENTS_MAX     24
#define QUEUE_MAX       64
#define SECOND_NS       1000000000ULL
#define SAMPLE_NS       (SECOND_NS / 10)
#define SAMPLES_MAX     400

typedef struct Client {
    SluiceGroupMember member;
    bool alive;
    uint32_t weight;
    uint32_t size_min, size_max;
    unsigned depth;             /* 0: requests come at intervals */
    uint64_t latency_ns;
    uint64_t interval_ns;
    uint64_t on_ns, off_ns;     /* 0: always on */
    uint64_t late_max_ns;

    uint32_t queue[QUEUE_MAX];  /* sizes, oldest first */
    unsigned queued;
    uint64_t arrivals_ns[QUEUE_MAX];    /* when the outstanding come back */
    unsigned arrivals;
    uint64_t timer_ns;          /* SLUICE_NEVER: none */
    uint64_t waiting_since_ns;  /* SLUICE_NEVER: nothing is queued */
    uint64_t wakes;
    uint64_t requests;
    uint64_t bytes;
    uint64_t held_max_ns;
    uint64_t head_since_ns;
    uint64_t samples[SAMPLES_MAX];      /* bytes, every SAMPLE_NS */
    bool waited[SAMPLES_MAX];           /* without a break since the last */
} Client;

typedef struct Simulation {
    Random random;
    SluiceGroupPage *page;
    SluiceGroupLimit limit;
    uint64_t start_ns;
    uint64_t now_ns;
    Client clients[CLIENTS_MAX];
    unsigned count;
    uint64_t ticks;             /* keepalives so far */
    unsigned samples;           /* as far as there is room */
    uint32_t largest;           /* request so far */
    uint64_t passed;            /* units */
    __int128 floor;             /* least of passed - rate * t, in 10^-9 units */
    __int128 excess_max;        /* most above that: burst + one request */
    uint64_t idle_max_ns;       /* bucket full while a client waited */
} Simulation;

static inline uint64_t simulation_units(const Simulation *s, uint32_t bytes)
{
    return s->limit.unit == SLUICE_GROUP_OPERATIONS ? 1 : bytes;
}

/* The limit, judged from outside: the most that any window has passed above
 * rate * t, of all windows that end here. */
static inline void simulation_account(Simulation *s, uint64_t units)
{
    __int128 budget = (__int128)s->limit.rate * (s->now_ns - s->start_ns);
    __int128 before = (__int128)s->passed * SECOND_NS - budget;

    if (before < s->floor) {
        s->floor = before;
    }
    s->passed += units;
    if (before + (__int128)units * SECOND_NS - s->floor > s->excess_max) {
        s->excess_max = before + (__int128)units * SECOND_NS - s->floor;
    }
    if (units > s->largest) {
        s->largest = units;
    }
}

static inline bool client_is_on(const Client *c, uint64_t now_ns)
{
    return !c->off_ns || now_ns % (c->on_ns + c->off_ns) < c->on_ns;
}

static inline uint64_t client_on_ns(const Client *c, uint64_t now_ns)
{
    uint64_t period_ns = c->on_ns + c->off_ns;

    return client_is_on(c, now_ns) ? now_ns
                                   : now_ns + period_ns - now_ns % period_ns;
}

static inline void client_arm(Simulation *s, Client *c)
{
    c->timer_ns = sluice_group_next_ns(&c->member, s->now_ns);
    if (c->late_max_ns) {
        c->timer_ns += random_below(&s->random, c->late_max_ns);
    }
}

/* One request goes on: its place comes back later, if the client has places */
static inline void client_passed(Simulation *s, Client *c, uint32_t bytes)
{
    simulation_account(s, simulation_units(s, bytes));
    c->requests++;
    c->bytes += bytes;
    if (c->depth) {
        uint64_t latency_ns = c->latency_ns
                              ? random_below(&s->random, 2 * c->latency_ns) : 0;

        c->arrivals_ns[c->arrivals++] = s->now_ns + latency_ns;
    }
}

/* How long the bucket had been full although this client waited. */
static inline void client_measure_idle(Simulation *s, Client *c)
{
    int64_t full = (int64_t)(group_units(&c->member, s->now_ns)
                             - s->page->tat_units);
    uint64_t full_ns, waited_ns = s->now_ns - c->waiting_since_ns;

    if (full <= 0) {
        return;
    }
    full_ns = (uint64_t)((__int128)full * SECOND_NS / s->limit.rate);
    full_ns = full_ns < waited_ns ? full_ns : waited_ns;
    if (full_ns > s->idle_max_ns) {
        s->idle_max_ns = full_ns;
    }
}

static inline void client_fire(Simulation *s, Client *c)
{
    c->wakes++;
    c->timer_ns = SLUICE_NEVER;
    client_measure_idle(s, c);
    while (c->queued
           && sluice_group_admit(&c->member, c->queue[0], s->now_ns)) {
        uint32_t bytes = c->queue[0];

        memmove(c->queue, c->queue + 1, --c->queued * sizeof(*c->queue));
        if (s->now_ns - c->head_since_ns > c->held_max_ns) {
            c->held_max_ns = s->now_ns - c->head_since_ns;
        }
        c->head_since_ns = s->now_ns;
        client_passed(s, c, bytes);
    }
    if (c->queued) {
        client_arm(s, c);
    } else {
        sluice_group_idle(&c->member);
        c->waiting_since_ns = SLUICE_NEVER;
    }
}

static inline void client_submit(Simulation *s, Client *c)
{
    uint32_t bytes = c->size_min + random_below(&s->random,
                                                c->size_max - c->size_min + 1);

    if (c->queued == 0) {
        if (sluice_group_admit(&c->member, bytes, s->now_ns)) {
            client_passed(s, c, bytes);
            return;
        }
        c->waiting_since_ns = c->head_since_ns = s->now_ns;
    }
    if (c->queued < QUEUE_MAX) {
        c->queue[c->queued++] = bytes;
    }
    if (c->queued == 1) {
        client_arm(s, c);
    }
}

static inline uint64_t client_next_arrival(const Client *c, unsigned *which)
{
    uint64_t first_ns = SLUICE_NEVER;

    for (unsigned i = 0; i < c->arrivals; i++) {
        if (c->arrivals_ns[i] < first_ns) {
            first_ns = c->arrivals_ns[i];
            *which = i;
        }
    }
    return first_ns;
}

static inline void client_arrive(Simulation *s, Client *c, unsigned which)
{
    if (!client_is_on(c, s->now_ns)) {
        c->arrivals_ns[which] = client_on_ns(c, s->now_ns);
        return;
    }
    if (c->depth) {
        c->arrivals_ns[which] = c->arrivals_ns[--c->arrivals];
    } else {
        c->arrivals_ns[which] = s->now_ns + 1
                                + random_below(&s->random, 2 * c->interval_ns);
    }
    client_submit(s, c);
}

static inline bool client_join(Simulation *s, Client *c)
{
    unsigned index = c - s->clients;

    c->alive = true;
    c->timer_ns = c->waiting_since_ns = SLUICE_NEVER;
    c->queued = 0;
    c->arrivals = c->depth ? c->depth : 1;
    for (unsigned i = 0; i < c->arrivals; i++) {
        c->arrivals_ns[i] = s->now_ns + random_below(&s->random, 1000000);
    }
    return sluice_group_join(&c->member, s->page, sizeof(*s->page),
                             (random_next(&s->random) << 32) | (index + 1),
                             "client", c->weight, s->now_ns)
           == SLUICE_GROUP_OK;
}

static inline void simulation_sample(Simulation *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        Client *c = &s->clients[i];

        if (s->samples < SAMPLES_MAX) {
            c->samples[s->samples] = c->bytes;
            c->waited[s->samples] = c->alive
                && c->waiting_since_ns <= s->now_ns - SAMPLE_NS;
        }
        if (c->alive) {
            sluice_group_keepalive(&c->member, s->now_ns);
        }
    }
    s->samples += s->samples < SAMPLES_MAX;
    s->ticks++;
}

/* Runs until `end_ns`; samples and keepalives at every SAMPLE_NS. */
static inline void simulation_run(Simulation *s, uint64_t end_ns)
{
    while (s->now_ns < end_ns) {
        uint64_t sample_ns = s->start_ns + s->ticks * SAMPLE_NS;
        uint64_t next_ns = sample_ns < end_ns ? sample_ns : end_ns;
        Client *next = NULL;
        unsigned which = 0, found = 0;
        bool timer = false;

        for (unsigned i = 0; i < s->count; i++) {
            Client *c = &s->clients[i];
            uint64_t arrival_ns;

            if (!c->alive) {
                continue;
            }
            arrival_ns = client_next_arrival(c, &found);
            if (arrival_ns < next_ns) {
                next_ns = arrival_ns;
                next = c;
                which = found;
                timer = false;
            }
            if (c->timer_ns < next_ns) {
                next_ns = c->timer_ns;
                next = c;
                timer = true;
            }
        }
        s->now_ns = next_ns > s->now_ns ? next_ns : s->now_ns;
        if (timer) {
            client_fire(s, next);
        } else if (next) {
            client_arrive(s, next, which);
        } else if (next_ns == sample_ns) {
            simulation_sample(s);
        }
    }
}

static inline bool simulation_start(Simulation *s, uint64_t start_ns)
{
    s->start_ns = s->now_ns = start_ns;
    s->page = aligned_alloc(128, sizeof(*s->page));
    return s->page && group_page_init(s->page, "test", &s->limit,
                                             start_ns);
}

#endif
