// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The background: readers and writers that ask anew as soon as they are served, paced ones,
 * and senders.
 *
 * A TCP sender has a window that doubles until the first loss and is then CUBIC's (RFC 9438):
 * 0.7 of it remains at a loss, once a round trip. Frames that the shaper holds are within the
 * window, as they are in a guest. A UDP sender sends at its rate whatever becomes of it.
 * A load with bursts is on and off in turn, each for half to one and a half of its mean time.
 */
#include "plant.h"

#include <math.h>

#define SEGMENT_BYTES 1448.0
#define CUBIC_C 0.4
#define CUBIC_LEFT 0.7
#define SECTOR_BYTES 4096
#define FIRST_WINDOW_FRAMES 4
#define LEAST_WINDOW_FRAMES 2
#define CUT_AGAIN_NS (20 * MS)

static bool is_sender(const Load *load)
{
    return load->what.kind == SIM_LOAD_TCP || load->what.kind == SIM_LOAD_UDP;
}

static uint64_t next_position(Plant *plant, Load *load)
{
    const SimLoad *what = &load->what;
    uint64_t position;

    if (what->kind == SIM_LOAD_RANDOM_READ) {
        uint64_t sectors = (what->size - what->request_bytes) / SECTOR_BYTES;

        return what->base + (uint64_t)(chance(plant) * sectors) * SECTOR_BYTES;
    }
    if (load->position + what->request_bytes > what->size) {
        load->position = 0;
    }
    position = what->base + load->position;
    load->position += what->request_bytes;
    return position;
}

static void ask(Plant *plant, Load *load)
{
    Item *item = new_item(plant);

    item->load = load;
    item->vm = load->what.vm;
    item->tag = load->what.tag;
    item->bytes = load->what.request_bytes;
    if (is_sender(load)) {
        item->resource = 2;
        load->flying_bytes += item->bytes;
    } else {
        item->resource = load->what.kind == SIM_LOAD_SEQUENTIAL_WRITE;
        item->position = next_position(plant, load);
        load->outstanding++;
    }
    submit(plant, item);
}

static bool may_ask(const Load *load)
{
    const SimLoad *what = &load->what;

    if (!load->active || !load->on) {
        return false;
    }
    switch (what->kind) {
    case SIM_LOAD_TCP:
        return load->flying_bytes + what->request_bytes
               <= fmin(load->window_bytes, what->window_bytes);
    case SIM_LOAD_UDP:
        /* The socket's buffer. */
        return load->flying_bytes + what->request_bytes <= what->window_bytes;
    default:
        return load->outstanding < what->depth;
    }
}

static bool is_paced(const Load *load)
{
    return load->what.kind == SIM_LOAD_PACED_READ || load->what.kind == SIM_LOAD_UDP;
}

static void go_on(Plant *plant, Load *load)
{
    while (!is_paced(load) && may_ask(load)) {
        ask(plant, load);
    }
}

static void pace(Plant *plant, void *about, uint64_t number)
{
    Load *load = about;

    /* Another pace has begun since. */
    if (number != load->next_ns || !load->active) {
        return;
    }
    if (may_ask(load)) {
        ask(plant, load);
    }
    load->next_ns = after_ns(plant,
                             load->what.request_bytes * 1e9 / load->what.bytes_per_second);
    at(plant, load->next_ns, pace, load, load->next_ns);
}

static void turn(Plant *plant, void *about, uint64_t number)
{
    Load *load = about;

    (void)number;
    load->on = !load->on;
    if (load->on && load->what.kind == SIM_LOAD_TCP) {
        /* A new connection. */
        load->window_bytes = FIRST_WINDOW_FRAMES * load->what.request_bytes;
        load->threshold_bytes = INFINITY;
    }
    go_on(plant, load);
    at(plant,
       after_ns(plant, (load->on ? load->what.on_ns : load->what.off_ns)
                           * (0.5 + chance(plant))),
       turn, load, 0);
}

void load_begin(Plant *plant, Load *load)
{
    bool is_first = !load->window_bytes;

    load->active = true;
    if (is_first) {
        load->window_bytes = FIRST_WINDOW_FRAMES * load->what.request_bytes;
        load->threshold_bytes = INFINITY;
        load->on = true;
        if (load->what.on_ns) {
            load->on = false;
            at(plant, after_ns(plant, load->what.off_ns * chance(plant)), turn, load, 0);
        }
    }
    if (is_paced(load)) {
        load->next_ns = plant->now_ns;
        pace(plant, load, load->next_ns);
    }
    go_on(plant, load);
}

static void ask_again(Plant *plant, void *about, uint64_t number)
{
    (void)number;
    go_on(plant, about);
}

static void grow(Plant *plant, Load *load, uint32_t bytes)
{
    double most, k, t;

    if (load->window_bytes < load->threshold_bytes) {
        load->window_bytes += bytes;
    } else {
        most = load->before_cut_bytes / SEGMENT_BYTES;
        k = cbrt(most * (1 - CUBIC_LEFT) / CUBIC_C);
        t = (plant->now_ns - load->cut_ns) / 1e9 - k;
        /* No more than slow start gave. */
        load->window_bytes = fmax(load->window_bytes,
                                  fmin((CUBIC_C * t * t * t + most) * SEGMENT_BYTES,
                                       load->window_bytes + bytes));
    }
    load->window_bytes = fmin(load->window_bytes, load->what.window_bytes);
}

void load_served(Plant *plant, Item *item)
{
    Load *load = item->load;

    load->served_bytes += item->bytes;
    if (is_sender(load)) {
        load->flying_bytes -= item->bytes;
        grow(plant, load, item->bytes);
    } else {
        load->outstanding--;
    }
    free_item(plant, item);
    if (load->what.think_ns) {
        at(plant, after_ns(plant, load->what.think_ns * 2 * chance(plant)), ask_again, load,
           0);
    } else {
        go_on(plant, load);
    }
}

void load_lost(Plant *plant, Item *item)
{
    Load *load = item->load;

    load->flying_bytes -= item->bytes;
    if (plant->now_ns - load->cut_ns > 2 * plant->delay_ns + CUT_AGAIN_NS) {
        load->before_cut_bytes = load->window_bytes;
        load->window_bytes = fmax(CUBIC_LEFT * load->window_bytes,
                                  LEAST_WINDOW_FRAMES * (double)item->bytes);
        load->threshold_bytes = load->window_bytes;
        load->cut_ns = plant->now_ns;
    }
    free_item(plant, item);
    go_on(plant, load);
}
