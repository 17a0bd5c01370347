// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The counters page of a VM (docs/specs/counters-page.md), as QEMU writes it.
 *
 * Figures that no decision uses (histograms, tokens, most of the second table) are zeros. The
 * gate of a VM holds reads and writes here; the page shows it as that of reads.
 */
#include "plant.h"

#include <string.h>

#define HEADER_BYTES 128
#define SLOT_BYTES 256
#define PAGE_RESOURCES 4
#define READS 0
#define STREAM_OFFSET 128
#define GATE_OFFSET 216
#define DEPTHS 8

static void put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof(value));
}

static void put64(uint8_t *to, uint64_t value)
{
    memcpy(to, &value, sizeof(value));
}

static void write_header(Plant *plant, Vm *vm)
{
    uint8_t *page = vm->page;
    uint64_t more = HEADER_BYTES + SIM_SLOTS * SLOT_BYTES;

    memcpy(page, "SLUICEPG", 8);
    put32(page + 8, 1);
    put32(page + 12, HEADER_BYTES);
    put32(page + 16, SLOT_BYTES);
    put32(page + 20, SIM_SLOTS);
    put64(page + 24, 1);
    put64(page + 40, plant->now_ns);
    put32(page + 52, SIM_MORE_BYTES);
    memcpy(page + 56, "sluice0", 7);
    put64(page + 120, more);
    put64(page + more + SIM_SLOTS * SIM_MORE_BYTES, plant->now_ns);
}

static uint8_t *beside(Vm *vm, int tag, int resource)
{
    return vm->page + HEADER_BYTES + SIM_SLOTS * SLOT_BYTES
           + (tag * PAGE_RESOURCES + resource) * SIM_MORE_BYTES;
}

static void write_gate(Plant *plant, Vm *vm, int resource)
{
    const SluiceGate *gate = sluice_engine_gate(vm->engine[resource]);
    uint8_t *at = beside(vm, 0, resource) + GATE_OFFSET;

    put64(at, gate->target_ns);
    put64(at + 8, gate->target_ns ? gate->window_bytes : 0);
    put64(at + 16, gate->in_flight_bytes);
    put64(at + 24, gate->held_times);
    put64(at + 32, sluice_gate_held_ns(gate, plant->now_ns));
}

static void write_stream(Plant *plant, int index)
{
    const SimStream *what = &plant->streams[index].what;
    uint8_t *at = beside(&plant->vms[what->vm], what->tag, READS) + STREAM_OFFSET;
    SimReads reads;

    sim_reads(plant, index, &reads);
    put64(at, reads.busy_ns);
    put64(at + 8, reads.outstanding_ns);
    put64(at + 16, reads.oldest_ns ? plant->now_ns - reads.oldest_ns : 0);
    for (int i = DEPTHS; i < READS_MAX; i++) {
        reads.asked[DEPTHS - 1] += reads.asked[i];
    }
    for (int i = 0; i < DEPTHS; i++) {
        put64(at + 24 + 8 * i, reads.asked[i]);
    }
}

static void write_slot(Vm *vm, int tag, int resource)
{
    uint8_t *at = vm->page + HEADER_BYTES + (tag * PAGE_RESOURCES + resource) * SLOT_BYTES;
    const SluiceClassStats *stats = sluice_engine_stats(vm->engine[resource], tag);
    const Slot *slot = &vm->slot[tag][resource];
    uint8_t was[SLOT_BYTES];
    uint32_t sequence;

    memcpy(was, at, SLOT_BYTES);
    memcpy(&sequence, at, sizeof(sequence));
    at[4] = 1;
    at[5] = tag;
    at[6] = resource;
    at[7] = 5;
    memcpy(at + 8, vm->name[tag], 32);
    put64(at + 40, stats->requests);
    put64(at + 48, stats->bytes);
    put64(at + 56, stats->held_requests);
    put64(at + 64, stats->held_ns);
    put64(at + 88, stats->backlog_requests);
    put64(at + 96, stats->backlog_bytes);
    put64(at + 104, slot->limit_bytes_per_second);
    if (resource != 2) {
        put64(at + 136, slot->completed);
        put64(at + 144, slot->service_ns);
        put64(at + 152, slot->in_flight);
    }
    if (memcmp(was, at, SLOT_BYTES)) {
        put32(at, sequence + 2);
    }
}

void sim_write_page(Plant *plant, int index)
{
    Vm *vm = &plant->vms[index];

    write_header(plant, vm);
    for (int tag = 0; tag < SLUICE_CLASSES_MAX; tag++) {
        for (int resource = 0; vm->used[tag] && resource < SIM_RESOURCES; resource++) {
            write_slot(vm, tag, resource);
        }
    }
    for (int resource = 0; resource < DISK_RESOURCES; resource++) {
        write_gate(plant, vm, resource);
    }
    for (int i = 0; i < plant->stream_count; i++) {
        if (plant->streams[i].what.vm == index) {
            write_stream(plant, i);
        }
    }
}

const uint8_t *sim_page(const Plant *plant, int vm)
{
    return plant->vms[vm].page;
}
