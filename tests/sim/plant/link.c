// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The uplink, and a bottleneck beyond the host.
 *
 * Each is a queue of bytes in front of a rate. A frame that finds no room is lost, and its
 * sender is told: a TCP one after its round trip, a stream's player when the frame was due.
 * The uplink may serve the streams' frames first, as a root `prio` does, whose bands have room
 * of their own; the queue beyond is a router's and knows no classes.
 */
#include "plant.h"

static void arrived(Plant *plant, void *about, uint64_t number)
{
    Item *item = about;

    (void)number;
    if (item->stream) {
        stream_arrived(plant, item);
    } else {
        load_served(plant, item);
    }
}

static void lost(Plant *plant, void *about, uint64_t number)
{
    Item *item = about;

    (void)number;
    if (item->stream) {
        stream_lost(plant, item);
    } else {
        load_lost(plant, item);
    }
}

static bool goes_first(const Queue *queue, const Item *item)
{
    return queue->streams_first && item->stream;
}

static void serve(Plant *plant, Queue *queue);

static void served(Plant *plant, void *about, uint64_t number)
{
    Queue *queue = about;
    Item *item = queue->serving;

    (void)number;
    queue->serving = NULL;
    queue->backlog_bytes -= item->bytes;
    queue->first_bytes -= goes_first(queue, item) ? item->bytes : 0;
    queue->served_bytes += item->bytes;
    serve(plant, queue);
    queue->passed(plant, item);
}

static void serve(Plant *plant, Queue *queue)
{
    if (queue->serving) {
        return;
    }
    queue->serving = list_take(&queue->stream);
    if (!queue->serving) {
        queue->serving = list_take(&queue->others);
    }
    if (queue->serving) {
        double ceiling = queue->ceiling_bytes_per_second;
        double rate = ceiling > 0 && ceiling < queue->bytes_per_second
                          ? ceiling : queue->bytes_per_second;

        at(plant, after_ns(plant, queue->serving->bytes * 1e9 / rate),
           served, queue, 0);
    }
}

static void enqueue(Plant *plant, Queue *queue, Item *item)
{
    bool first = goes_first(queue, item);
    uint64_t before = first ? queue->first_bytes : queue->backlog_bytes - queue->first_bytes;

    if (before + item->bytes > queue->limit_bytes) {
        queue->dropped++;
        /* Later than now: its sender may be in the middle of sending. */
        at(plant, plant->now_ns + 2 * plant->delay_ns + 1, lost, item, 0);
        return;
    }
    queue->backlog_bytes += item->bytes;
    queue->first_bytes += first ? item->bytes : 0;
    list_add(first ? &queue->stream : &queue->others, item);
    serve(plant, queue);
}

static void beyond_passed(Plant *plant, Item *item)
{
    at(plant, plant->now_ns + (item->stream ? 1 : 2) * plant->delay_ns, arrived, item, 0);
}

static void uplink_passed(Plant *plant, Item *item)
{
    if (plant->has_beyond) {
        enqueue(plant, &plant->beyond, item);
    } else {
        beyond_passed(plant, item);
    }
}

void link_submit(Plant *plant, Item *item)
{
    Vm *vm = &plant->vms[item->vm];

    /* The tap has it: for the page it is done. */
    vm->slot[item->tag][item->resource].in_flight--;
    enqueue(plant, &plant->uplink, item);
}

void sim_set_link(Plant *plant, const SimLink *what)
{
    plant->uplink.bytes_per_second = what->bytes_per_second;
    plant->uplink.limit_bytes = what->limit_bytes;
    plant->uplink.streams_first = what->streams_first;
    plant->uplink.passed = uplink_passed;
    plant->beyond.bytes_per_second = what->beyond_bytes_per_second;
    plant->beyond.limit_bytes = what->beyond_limit_bytes;
    plant->beyond.passed = beyond_passed;
    plant->has_beyond = what->beyond_bytes_per_second > 0;
    plant->delay_ns = what->delay_ns;
}

/* From the next frame on. */
void sim_step_link(Plant *plant, double bytes_per_second, double beyond_bytes_per_second)
{
    plant->uplink.bytes_per_second = bytes_per_second;
    plant->beyond.bytes_per_second = beyond_bytes_per_second;
}

/* From the next frame on. */
void sim_hold_uplink(Plant *plant, double bytes_per_second)
{
    plant->uplink.ceiling_bytes_per_second = bytes_per_second;
}

void sim_uplink(const Plant *plant, SimUplink *uplink)
{
    *uplink = (SimUplink){ plant->uplink.backlog_bytes, plant->uplink.dropped,
                           plant->uplink.served_bytes, plant->beyond.served_bytes,
                           plant->beyond.dropped };
}
