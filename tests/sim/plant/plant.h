/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host in simulated time, request by request: one disk, one uplink, VMs with the real
 * engine in front of both, streams with their players, and background load.
 *
 * plant.c has the event loop and the way of a request; disk.c, link.c and load.c say how
 * each part behaves, and page.c writes the pages that sluiced reads. `api.h` has the calls of Python.
 *
 * Units: nanoseconds of simulated time, bytes, bytes per second.
 */
#ifndef SIM_PLANT_H
#define SIM_PLANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"
#include "rotdisk/model.h"
#include "sluice/engine.h"
#include "sluice/gate.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define KIB 1024ull
#define MIB (1024ull * 1024)

#define VMS_MAX 8
#define STREAMS_MAX 8
#define LOADS_MAX 128
#define CHANNELS_MAX 32
#define DRIVE_SLOTS 32
#define STREAM_TAG 1            /* of all streams (scenario.py) */
#define DISK_RESOURCES 2        /* reads and writes; the uplink has no gate */
#define READS_MAX 16
#define HALVES_MAX 1024

typedef struct Plant Plant;
typedef struct Load Load;
typedef struct Stream Stream;

/* A disk request or a frame. */
typedef struct Item Item;
struct Item {
    SluiceNode node;            /* first: the engine hands it back */
    struct rotdisk_request rot;
    Item *next;
    Load *load;                 /* one of the two is its owner */
    Stream *stream;
    uint64_t position;          /* on the disk, or within the stream */
    uint64_t given_ns;          /* when the device got it */
    uint32_t bytes;
    uint8_t vm, tag, resource;
};

typedef struct List {
    Item *head, *tail;
} List;

typedef void (*Action)(Plant *plant, void *about, uint64_t number);

typedef struct Event {
    uint64_t at_ns;
    uint64_t order;             /* events of one moment keep the order of their making */
    Action action;
    void *about;
    uint64_t number;
} Event;

typedef struct Disk {
    int kind;                   /* SimDiskKind */
    double speed;               /* the factor of the last step in capacity */
    double bytes_per_second, latency_ns, noise;
    double requests_per_second, base_bytes_per_second, credit_bytes, credit_left_bytes;
    int channels;
    uint64_t channel_free_ns[CHANNELS_MAX];
    double free_ns, noise_now, noise_until_ns, stall_until_ns, credit_at_ns;
    struct rotdisk_model rot;
    uint64_t media_bps, polls;
    /* A drive with a queue of its own. */
    Item *slots[DRIVE_SLOTS];
    int used;
    List waiting;
    Item *serving;
    uint64_t head_byte, head_free_ns;
    /* Counted for reports and for the tests. */
    uint64_t served_bytes, in_device;
} Disk;

/* A byte queue in front of a rate. */
typedef struct Queue {
    double bytes_per_second, ceiling_bytes_per_second;
    uint64_t limit_bytes, backlog_bytes, served_bytes, dropped;
    bool streams_first;
    uint64_t first_bytes;       /* of the backlog, those of streams that go first */
    List stream, others;
    Item *serving;
    void (*passed)(Plant *plant, Item *item);
} Queue;

struct Load {
    SimLoad what;
    int index;
    bool active;                /* between its start, and its end */
    bool on;                    /* within a burst */
    uint32_t outstanding;
    uint64_t position, served_bytes, next_ns;
    /* TCP. */
    double window_bytes, threshold_bytes, before_cut_bytes;
    uint64_t flying_bytes, cut_ns;
};

struct Stream {
    SimStream what;
    int index;
    uint64_t began_ns, slip_ns;
    uint64_t issued, had, sent, arrived;
    uint64_t paced_ns;
    uint32_t outstanding;
    bool sending, back[READS_MAX];
    uint64_t received_bytes, lost, stall_ns, stalls;
    SimRoundTrip round_trip;
    /* For the gate's outer loop: integrals until `counted_ns`, and when each read began. */
    SimReads reads;
    uint64_t counted_ns, asked_ns[READS_MAX];
    uint8_t bad[HALVES_MAX];
};

typedef struct Slot {
    uint64_t completed, service_ns, in_flight, dropped;
    uint64_t limit_bytes_per_second;
} Slot;

typedef struct Vm {
    SluiceEngine *engine[SIM_RESOURCES];
    uint64_t event_ns[SIM_RESOURCES];
    char name[SLUICE_CLASSES_MAX][32];
    bool used[SLUICE_CLASSES_MAX];
    Slot slot[SLUICE_CLASSES_MAX][SIM_RESOURCES];
    SluiceGateMember member[DISK_RESOURCES];
    uint8_t page[SIM_PAGE_BYTES];
} Vm;

struct Plant {
    uint64_t now_ns, random, order;
    Event *events;
    size_t event_count, event_room;
    Item *free_items;
    void *blocks;
    Disk disk;
    Queue uplink, beyond;
    uint64_t delay_ns;
    bool has_beyond;
    Vm vms[VMS_MAX];
    int vm_count;
    SluiceGatePage gate_page;   /* of the disk */
    Stream streams[STREAMS_MAX];
    int stream_count;
    Load loads[LOADS_MAX];
    int load_count;
    uint64_t made;
};

/* plant.c */
void at(Plant *plant, uint64_t at_ns, Action action, void *about, uint64_t number);
Item *new_item(Plant *plant);
void free_item(Plant *plant, Item *item);
void list_add(List *list, Item *item);
Item *list_take(List *list);
double chance(Plant *plant);            /* from 0 to below 1 */
double scatter(Plant *plant, double sigma);     /* log-normal, its median is 1 */
/* To the engine, and on to its device as soon as that lets it. */
void submit(Plant *plant, Item *item);

/* disk.c: an item that is done comes back by disk_done() of plant.c. */
void disk_submit(Plant *plant, Item *item);
void disk_done(Plant *plant, Item *item);
/* Later than now by at least that. */
uint64_t after_ns(const Plant *plant, double ns);

/* link.c */
void link_submit(Plant *plant, Item *item);

/* load.c */
void load_begin(Plant *plant, Load *load);
void load_served(Plant *plant, Item *item);
void load_lost(Plant *plant, Item *item);

/* stream.c */
void stream_begin(Plant *plant, Stream *stream);
void stream_read(Plant *plant, Item *item);
/* When the oldest of its reads under way began; 0: there is none. */
uint64_t oldest_read_ns(const Stream *stream);
/* A read of it has begun, or is back. */
void reads_changed(Plant *plant, const Stream *stream);
void stream_arrived(Plant *plant, Item *item);
void stream_lost(Plant *plant, Item *item);
void stream_settle(Plant *plant, Stream *stream);

#endif
