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

static void past_gate(Plant *plant, Item *item)
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

static void open_gate(Plant *plant, Vm *vm);

static void look_again(Plant *plant, void *about, uint64_t number)
{
    Vm *vm = about;

    (void)number;
    if (vm->look_ns == plant->now_ns) {
        vm->look_ns = SLUICE_NEVER;
        open_gate(plant, vm);
    }
}

static void look_later(Plant *plant, Vm *vm)
{
    uint64_t due_ns = sluice_gate_due_ns(&vm->gate, plant->now_ns);

    if (due_ns > plant->now_ns && due_ns != vm->look_ns) {
        vm->look_ns = due_ns;
        at(plant, due_ns, look_again, vm, 0);
    }
}

void reads_changed(Plant *plant, const Stream *stream)
{
    Vm *vm = &plant->vms[stream->what.vm];
    uint64_t oldest_ns = 0;

    for (int i = 0; i < plant->stream_count; i++) {
        if (plant->streams[i].what.vm == stream->what.vm) {
            uint64_t began_ns = oldest_read_ns(&plant->streams[i]);

            if (began_ns && (!oldest_ns || began_ns < oldest_ns)) {
                oldest_ns = began_ns;
            }
        }
    }
    sluice_gate_tell_oldest(&vm->gate, oldest_ns);
    open_gate(plant, vm);
}

/* Held requests of all classes in turn, the first of each in order of arrival. */
static void open_gate(Plant *plant, Vm *vm)
{
    while (vm->gated_count) {
        while (!vm->gated[vm->turn % SLUICE_CLASSES_MAX].head) {
            vm->turn++;
        }
        List *list = &vm->gated[vm->turn % SLUICE_CLASSES_MAX];

        if (!sluice_gate_admit(&vm->gate, list->head->bytes, plant->now_ns)) {
            look_later(plant, vm);
            break;
        }
        vm->gated_count--;
        vm->turn++;
        past_gate(plant, list_take(list));
    }
}

static void to_device(Plant *plant, Item *item)
{
    Vm *vm = &plant->vms[item->vm];

    if (item->stream || item->resource == 2) {
        past_gate(plant, item);
        return;
    }
    /* Behind others, so that small ones do not pass by a large one for ever. */
    list_add(&vm->gated[item->tag], item);
    vm->gated_count++;
    vm->went |= 1u << item->tag;
    open_gate(plant, vm);
    vm->gate_held += vm->gated_count > 0;
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

void submit(Plant *plant, Item *item)
{
    SluiceEngine *engine = plant->vms[item->vm].engine[item->resource];
    SluiceVerdict verdict;

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
        sluice_gate_complete(&plant->vms[vm].gate, item->bytes,
                             plant->now_ns - item->given_ns, plant->now_ns);
        load_served(plant, item);
        open_gate(plant, &plant->vms[vm]);
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

static void join_gate(Plant *plant, Vm *vm)
{
    if (sluice_gate_join(&vm->member, &plant->gate_page, sizeof(plant->gate_page),
                         (uint64_t)(vm - plant->vms) + 1, "vm", plant->now_ns)) {
        abort();
    }
    sluice_gate_set_member(&vm->gate, &vm->member, plant->now_ns);
}

int sim_add_vm(Plant *plant)
{
    Vm *vm = &plant->vms[plant->vm_count];

    if (plant->vm_count == VMS_MAX) {
        return -1;
    }
    sluice_gate_init(&vm->gate);
    vm->look_ns = SLUICE_NEVER;
    join_gate(plant, vm);
    for (int resource = 0; resource < SIM_RESOURCES; resource++) {
        vm->engine[resource] = sluice_engine_new(SLUICE_CLASSES_MAX);
        vm->event_ns[resource] = SLUICE_NEVER;
        if (!vm->engine[resource]) {
            abort();
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

/* All classes have the default weight. */
static void tell_weight(Vm *vm)
{
    uint32_t active = vm->went;

    for (unsigned tag = 0; tag < SLUICE_CLASSES_MAX; tag++) {
        active |= (vm->gated[tag].head ? 1u : 0) << tag;
    }
    vm->went = 0;
    if (active) {
        sluice_gate_set_weight(&vm->gate, (uint64_t)__builtin_popcount(active)
                                          * SLUICE_GATE_WEIGHT_DEFAULT);
    }
}

void sim_set_gate(Plant *plant, int index, uint64_t target_ns, uint32_t shrink_parts)
{
    Vm *vm = &plant->vms[index];

    tell_weight(vm);
    sluice_gate_keepalive(&vm->member, plant->now_ns);
    sluice_gate_set_target(&vm->gate, target_ns, plant->now_ns);
    sluice_gate_shrink(&vm->gate, shrink_parts, plant->now_ns);
    open_gate(plant, vm);
}

void sim_gate(const Plant *plant, int index, SimGate *gate)
{
    const Vm *vm = &plant->vms[index];

    *gate = (SimGate){ vm->gate.window_bytes, vm->gate.in_flight_bytes, vm->gate_held };
}

void sim_sums(const Plant *plant, SimSums *sums)
{
    *sums = (SimSums){ plant->event_count, plant->made, plant->disk.served_bytes,
                       plant->disk.in_device };
}
