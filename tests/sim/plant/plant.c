// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The event loop, and the way of a request: owner, engine of its VM and resource, device.
 *
 * The engine is the product's own (qemu-patches/src/sluice), one for each VM and resource. A
 * request that it holds comes back when the engine's next event is due, or when another
 * request of that engine is submitted or done, as in QEMU (decision 0033). Nothing is
 * random but the plant's own numbers, so a seed gives one run on each machine.
 */
#include "plant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_IN_A_BLOCK 1024

typedef struct Block {
    struct Block *next;
    Item items[ITEMS_IN_A_BLOCK];
} Block;

/* Chance */

static uint64_t next_random(Plant *plant)
{
    uint64_t z = (plant->random += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

double chance(Plant *plant)
{
    return (double)(next_random(plant) >> 11) / 9007199254740992.0;
}

double scatter(Plant *plant, double sigma)
{
    double radius;

    if (sigma <= 0) {
        return 1;
    }
    radius = sqrt(-2 * log(1 - chance(plant)));
    return exp(sigma * radius * cos(6.283185307179586 * chance(plant)));
}

/* Events: a binary heap */

static bool before(const Event *a, const Event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void at(Plant *plant, uint64_t at_ns, Action action, void *about, uint64_t number)
{
    Event event = { at_ns > plant->now_ns ? at_ns : plant->now_ns, plant->order++, action,
                    about, number };
    size_t i;

    if (plant->event_count == plant->event_room) {
        plant->event_room = plant->event_room ? 2 * plant->event_room : 1024;
        plant->events = realloc(plant->events, plant->event_room * sizeof(Event));
        if (!plant->events) {
            abort();
        }
    }
    for (i = plant->event_count++; i > 0 && before(&event, &plant->events[(i - 1) / 2]);
         i = (i - 1) / 2) {
        plant->events[i] = plant->events[(i - 1) / 2];
    }
    plant->events[i] = event;
}

static Event take_event(Plant *plant)
{
    Event first = plant->events[0], last = plant->events[--plant->event_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < plant->event_count) {
        if (child + 1 < plant->event_count
            && before(&plant->events[child + 1], &plant->events[child])) {
            child++;
        }
        if (!before(&plant->events[child], &last)) {
            break;
        }
        plant->events[i] = plant->events[child];
        i = child;
    }
    plant->events[i] = last;
    return first;
}

void sim_run(Plant *plant, uint64_t until_ns)
{
    while (plant->event_count && plant->events[0].at_ns <= until_ns) {
        Event event = take_event(plant);

        plant->now_ns = event.at_ns;
        plant->made++;
        event.action(plant, event.about, event.number);
    }
    plant->now_ns = until_ns;
}

/* Items */

Item *new_item(Plant *plant)
{
    Item *item;

    if (!plant->free_items) {
        Block *block = malloc(sizeof(*block));

        if (!block) {
            abort();
        }
        block->next = plant->blocks;
        plant->blocks = block;
        for (int i = 0; i < ITEMS_IN_A_BLOCK; i++) {
            block->items[i].next = plant->free_items;
            plant->free_items = &block->items[i];
        }
    }
    item = plant->free_items;
    plant->free_items = item->next;
    memset(item, 0, sizeof(*item));
    return item;
}

void free_item(Plant *plant, Item *item)
{
    item->next = plant->free_items;
    plant->free_items = item;
}

void list_add(List *list, Item *item)
{
    item->next = NULL;
    if (list->head) {
        list->tail->next = item;
    } else {
        list->head = item;
    }
    list->tail = item;
}

Item *list_take(List *list)
{
    Item *item = list->head;

    if (item) {
        list->head = item->next;
    }
    return item;
}

/* The way of a request */

static void to_device(Plant *plant, Item *item)
{
    Slot *slot = &plant->vms[item->vm].slot[item->tag][item->resource];

    item->given_ns = plant->now_ns;
    slot->in_flight++;
    if (item->resource == 2) {
        link_submit(plant, item);
    } else {
        disk_submit(plant, item);
    }
}

static void release_due(Plant *plant, int vm, int resource);

static void engine_event(Plant *plant, void *about, uint64_t number)
{
    Vm *vm = about;

    /* An earlier event has been set since. */
    if (vm->event_ns[number] == plant->now_ns) {
        vm->event_ns[number] = SLUICE_NEVER;
        release_due(plant, (int)(vm - plant->vms), (int)number);
    }
}

static void release_due(Plant *plant, int index, int resource)
{
    Vm *vm = &plant->vms[index];
    SluiceNode *node;
    uint64_t next_ns;

    while ((node = sluice_engine_release(vm->engine[resource], plant->now_ns))) {
        to_device(plant, (Item *)node);
    }
    next_ns = sluice_engine_next_event_ns(vm->engine[resource]);
    if (next_ns < vm->event_ns[resource]) {
        /* Not now again, where the engine's time and ours are apart by rounding. */
        vm->event_ns[resource] = next_ns > plant->now_ns ? next_ns : plant->now_ns + 1;
        at(plant, vm->event_ns[resource], engine_event, vm, resource);
    }
}

void reads_changed(Plant *plant, const Stream *stream)
{
    int vm = stream->what.vm;
    uint64_t oldest_ns = 0;

    for (int i = 0; i < plant->stream_count; i++) {
        if (plant->streams[i].what.vm == vm) {
            uint64_t began_ns = oldest_read_ns(&plant->streams[i]);

            if (began_ns && (!oldest_ns || began_ns < oldest_ns)) {
                oldest_ns = began_ns;
            }
        }
    }
    sluice_engine_tell_oldest(plant->vms[vm].engine[0], oldest_ns);
    sluice_engine_set_oldest(plant->vms[vm].engine[1], oldest_ns);
    for (int resource = 0; resource < DISK_RESOURCES; resource++) {
        release_due(plant, vm, resource);
    }
}

void submit(Plant *plant, Item *item)
{
    SluiceEngine *engine = plant->vms[item->vm].engine[item->resource];
    SluiceVerdict verdict;

    item->node.position = item->position;
    verdict = sluice_engine_submit(engine, item->tag, &item->node, item->bytes, plant->now_ns);
    if (verdict == SLUICE_PASS) {
        to_device(plant, item);
    } else {
        release_due(plant, item->vm, item->resource);
    }
}

void disk_done(Plant *plant, Item *item)
{
    int vm = item->vm, resource = item->resource;
    Slot *slot = &plant->vms[vm].slot[item->tag][resource];

    slot->in_flight--;
    slot->completed++;
    slot->service_ns += plant->now_ns - item->given_ns;
    plant->disk.served_bytes += item->bytes;
    plant->disk.in_device--;
    if (item->stream) {
        stream_read(plant, item);
    } else {
        sluice_engine_complete(plant->vms[vm].engine[resource], &item->node,
                               plant->now_ns - item->given_ns, plant->now_ns);
        load_served(plant, item);
    }
    release_due(plant, vm, resource);
}

/* Setting up, and stepping */

static void new_gate_page(SluiceGatePage *page)
{
    memcpy(page->magic, SLUICE_GATE_MAGIC, SLUICE_GROUP_MAGIC_BYTES);
    page->version = SLUICE_GATE_VERSION;
    page->header_bytes = SLUICE_GATE_HEADER_BYTES;
    page->slot_bytes = sizeof(SluiceGateSlot);
    page->slot_count = SLUICE_GATE_SLOTS;
}

Plant *sim_new(uint64_t seed)
{
    Plant *plant = calloc(1, sizeof(*plant));

    if (!plant) {
        abort();
    }
    plant->random = seed * 0x2545f4914f6cdd1dull + 1;
    plant->disk.speed = 1;
    new_gate_page(&plant->gate_page);
    return plant;
}

static bool any(const SluiceNode *node, const void *what)
{
    (void)node;
    (void)what;
    return true;
}

void sim_free(Plant *plant)
{
    for (int vm = 0; vm < plant->vm_count; vm++) {
        for (int resource = 0; resource < SIM_RESOURCES; resource++) {
            sluice_engine_withdraw_if(plant->vms[vm].engine[resource], any, NULL, 0);
            sluice_engine_free(plant->vms[vm].engine[resource]);
        }
    }
    for (Block *block = plant->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(plant->events);
    free(plant);
}

static void join_gate(Plant *plant, Vm *vm, int resource)
{
    SluiceGateMember *member = &vm->member[resource];
    uint64_t owner = (uint64_t)(vm - plant->vms) * DISK_RESOURCES + resource + 1;

    if (sluice_gate_join(member, &plant->gate_page, sizeof(plant->gate_page), owner, "vm",
                         plant->now_ns)) {
        abort();
    }
    sluice_engine_set_gate_member(vm->engine[resource], member, plant->now_ns);
}

int sim_add_vm(Plant *plant)
{
    Vm *vm = &plant->vms[plant->vm_count];

    if (plant->vm_count == VMS_MAX) {
        return -1;
    }
    for (int resource = 0; resource < SIM_RESOURCES; resource++) {
        vm->engine[resource] = sluice_engine_new(SLUICE_CLASSES_MAX);
        vm->event_ns[resource] = SLUICE_NEVER;
        if (!vm->engine[resource]) {
            abort();
        }
        if (resource < DISK_RESOURCES) {
            join_gate(plant, vm, resource);
        }
    }
    return plant->vm_count++;
}

void sim_name_class(Plant *plant, int vm, int tag, const char *name)
{
    strncpy(plant->vms[vm].name[tag], name, sizeof(plant->vms[vm].name[tag]) - 1);
    plant->vms[vm].used[tag] = true;
}

bool sim_limit(Plant *plant, int vm, int tag, int resource, double bytes_per_second,
               double burst_bytes)
{
    SluiceClassConfig config = {
        .limit = {
            .bytes_per_second = (uint64_t)bytes_per_second,
            .burst_bytes = (uint64_t)burst_bytes,
        },
        .priority = 5,
    };

    if (!sluice_engine_set_class(plant->vms[vm].engine[resource], tag, &config,
                                 plant->now_ns)) {
        return false;
    }
    plant->vms[vm].slot[tag][resource].limit_bytes_per_second =
        config.limit.bytes_per_second;
    release_due(plant, vm, resource);
    return true;
}

static void begin_stream(Plant *plant, void *about, uint64_t number)
{
    (void)number;
    stream_begin(plant, about);
}

static void begin_load(Plant *plant, void *about, uint64_t number)
{
    (void)number;
    load_begin(plant, about);
}

int sim_add_stream(Plant *plant, const SimStream *what)
{
    Stream *stream = &plant->streams[plant->stream_count];

    if (plant->stream_count == STREAMS_MAX || what->depth == 0
        || what->depth > READS_MAX / 2) {
        return -1;
    }
    stream->what = *what;
    stream->index = plant->stream_count;
    at(plant, what->start_ns, begin_stream, stream, 0);
    return plant->stream_count++;
}

int sim_add_load(Plant *plant, const SimLoad *what)
{
    Load *load = &plant->loads[plant->load_count];

    if (plant->load_count == LOADS_MAX) {
        return -1;
    }
    load->what = *what;
    load->index = plant->load_count;
    at(plant, what->start_ns, begin_load, load, 0);
    return plant->load_count++;
}

void sim_step_load(Plant *plant, int index, bool active)
{
    Load *load = &plant->loads[index];

    if (active && !load->active) {
        load_begin(plant, load);
    }
    load->active = active;
}

uint64_t sim_load_bytes(const Plant *plant, int load)
{
    return plant->loads[load].served_bytes;
}

void sim_set_gate(Plant *plant, int index, uint64_t target_ns, uint32_t shrink_parts)
{
    Vm *vm = &plant->vms[index];

    for (int resource = 0; resource < DISK_RESOURCES; resource++) {
        sluice_engine_keep_gate(vm->engine[resource], plant->now_ns);
        sluice_engine_set_gate(vm->engine[resource], 1u << STREAM_TAG, target_ns,
                               plant->now_ns);
        sluice_engine_shrink_gate(vm->engine[resource], shrink_parts);
        release_due(plant, index, resource);
    }
}

void sim_gate(const Plant *plant, int index, SimGate *gate)
{
    const Vm *vm = &plant->vms[index];

    *gate = (SimGate){ .window_bytes = sluice_gate_page_window(&plant->gate_page) };
    for (int resource = 0; resource < DISK_RESOURCES; resource++) {
        const SluiceGate *one = sluice_engine_gate(vm->engine[resource]);

        gate->in_flight_bytes += one->in_flight_bytes;
        gate->held += one->held_times;
    }
}

void sim_sums(const Plant *plant, SimSums *sums)
{
    *sums = (SimSums){ plant->event_count, plant->made, plant->disk.served_bytes,
                       plant->disk.in_device };
}
