// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Five disks.
 *
 * Sliced: the project's model of a rotating disk below a scheduler of slices
 * (tests/testbed/rotdisk), unchanged.
 *
 * Queued: that drive's arm with up to 32 requests in the drive, of which it serves the one
 * that it reaches first. A request that has waited for AGE_NS goes next, as in
 * real drives. Requests for which the drive has no room wait in order of arrival.
 *
 * SSD: channels that each serve one request after another, and a bus that all share. Writes
 * make the device tidy up now and then, which stops all channels for some milliseconds.
 *
 * Cloud: a volume of the provider's rate. Each request goes when those before it are paid for;
 * credit pays for a higher rate until it is used up, and comes back at the base rate.
 *
 * Network: a server whose rate wanders, for others use it as well, and which stands still
 * for a moment each few seconds.
 *
 * The last three know at a request's arrival when it will be done. A step in speed
 * counts from the next request on.
 */
#include "plant.h"

#include <math.h>

#define AGE_NS (150 * MS)
#define OVERHEAD_NS (200 * US)
#define READ_AHEAD_BYTES (2 * MIB)
#define TIDY_EACH_BYTES (256 * MIB)
#define WANDER_NS (50 * MS)
#define STALL_EACH_S 8.0
#define STALL_LEAST_NS (20.0 * MS)
#define STALL_MORE_NS (60.0 * MS)

uint64_t after_ns(const Plant *plant, double ns)
{
    return plant->now_ns + (uint64_t)(ns < 1 ? 1 : ns);
}

static void done(Plant *plant, void *about, uint64_t number)
{
    (void)number;
    disk_done(plant, about);
}

/* Sliced */

static void poll_sliced(Plant *plant);

static void sliced_event(Plant *plant, void *about, uint64_t number)
{
    (void)about;
    /* Of several that were set, the latest counts. */
    if (number == plant->disk.polls) {
        poll_sliced(plant);
    }
}

static void poll_sliced(Plant *plant)
{
    Disk *disk = &plant->disk;
    struct rotdisk_request *request;
    uint64_t until_ns;

    while ((request = rotdisk_complete(&disk->rot, plant->now_ns))) {
        disk_done(plant, (Item *)((char *)request - offsetof(Item, rot)));
    }
    if (rotdisk_decide(&disk->rot, plant->now_ns, &until_ns) != ROTDISK_EMPTY) {
        at(plant, until_ns, sliced_event, NULL, ++disk->polls);
    }
}

static void submit_sliced(Plant *plant, Item *item)
{
    item->rot.start = item->position;
    item->rot.bytes = item->bytes;
    item->rot.arrived_ns = plant->now_ns;
    rotdisk_submit(&plant->disk.rot, &item->rot);
    /* Not at once: a completion may be on its way through here. */
    at(plant, plant->now_ns, sliced_event, NULL, ++plant->disk.polls);
}

/* Queued */

static double positioning_ns(const Plant *plant, const Item *item)
{
    const Disk *disk = &plant->disk;
    const struct rotdisk_params *p = &disk->rot.params;
    double bps = (double)p->media_bps, seek_ns, angle, track;

    if (item->position == disk->head_byte
        && plant->now_ns - disk->head_free_ns < READ_AHEAD_BYTES * 1e9 / bps) {
        return 0;
    }
    seek_ns = OVERHEAD_NS + rotdisk_seek_ns(p, item->position > disk->head_byte
                                                   ? item->position - disk->head_byte
                                                   : disk->head_byte - item->position);
    angle = fmod(plant->now_ns + seek_ns, p->revolution_ns);
    track = fmod(item->position * 1e9 / bps, p->revolution_ns);
    return seek_ns + (track >= angle ? track - angle : track + p->revolution_ns - angle);
}

static void serve_queued(Plant *plant);

static void queued_event(Plant *plant, void *about, uint64_t number)
{
    Disk *disk = &plant->disk;
    Item *item = about;

    (void)number;
    disk->serving = NULL;
    disk->head_byte = item->position + item->bytes;
    disk->head_free_ns = plant->now_ns;
    /* The drive goes on before the guest can answer. */
    serve_queued(plant);
    disk_done(plant, item);
}

static void serve_queued(Plant *plant)
{
    Disk *disk = &plant->disk;
    int best = -1, oldest = -1;
    double shortest_ns = 0;
    Item *item;

    while (disk->used < DRIVE_SLOTS && (item = list_take(&disk->waiting))) {
        disk->slots[disk->used++] = item;
    }
    if (disk->serving || !disk->used) {
        return;
    }
    for (int i = 0; i < disk->used; i++) {
        double ns = positioning_ns(plant, disk->slots[i]);

        if (best < 0 || ns < shortest_ns) {
            best = i;
            shortest_ns = ns;
        }
        if (oldest < 0 || disk->slots[i]->given_ns < disk->slots[oldest]->given_ns) {
            oldest = i;
        }
    }
    if (plant->now_ns - disk->slots[oldest]->given_ns > AGE_NS) {
        best = oldest;
        shortest_ns = positioning_ns(plant, disk->slots[oldest]);
    }
    item = disk->slots[best];
    disk->slots[best] = disk->slots[--disk->used];
    disk->serving = item;
    at(plant, after_ns(plant, shortest_ns + item->bytes * 1e9 / disk->rot.params.media_bps),
       queued_event, item, 0);
}

/* SSD */

static double ssd_ns(Plant *plant, const Item *item)
{
    Disk *disk = &plant->disk;
    double now = plant->now_ns, bps = disk->bytes_per_second * disk->speed;
    double read_ns, bus_ns;
    int first = 0;

    for (int i = 1; i < disk->channels; i++) {
        if (disk->channel_free_ns[i] < disk->channel_free_ns[first]) {
            first = i;
        }
    }
    if (item->resource == 1
        && chance(plant) < (double)item->bytes / TIDY_EACH_BYTES) {
        double until = now + (1 + 4 * chance(plant)) * MS;

        for (int i = 0; i < disk->channels; i++) {
            disk->channel_free_ns[i] = fmax(disk->channel_free_ns[i], until);
        }
    }
    /* A large request is spread over the channels, so it waits for the bus. */
    read_ns = fmax(now, disk->channel_free_ns[first])
              + disk->latency_ns / disk->speed * scatter(plant, disk->noise);
    bus_ns = fmax(read_ns, disk->free_ns + item->bytes * 1e9 / bps);
    disk->free_ns = fmax(now, disk->free_ns) + item->bytes * 1e9 / bps;
    disk->channel_free_ns[first] = (uint64_t)read_ns;
    return bus_ns - now;
}

/* Cloud */

static double cloud_ns(Plant *plant, const Item *item)
{
    Disk *disk = &plant->disk;
    double now = plant->now_ns, base = disk->base_bytes_per_second * disk->speed;
    double burst = disk->bytes_per_second * disk->speed, began_ns, bps, takes_ns;

    disk->credit_left_bytes = fmin(
        disk->credit_bytes,
        disk->credit_left_bytes + base * (now - disk->credit_at_ns) / 1e9);
    disk->credit_at_ns = now;
    bps = disk->credit_left_bytes > 0 ? burst : base;
    disk->credit_left_bytes -= item->bytes;
    if (disk->credit_left_bytes < -(double)MIB) {
        disk->credit_left_bytes = -(double)MIB;
    }
    began_ns = fmax(now, disk->free_ns);
    takes_ns = fmax(item->bytes * 1e9 / bps,
                    1e9 / (disk->requests_per_second * disk->speed));
    disk->free_ns = began_ns + takes_ns;
    return began_ns + takes_ns - now + disk->latency_ns * scatter(plant, disk->noise);
}

/* Network */

static double network_ns(Plant *plant, const Item *item)
{
    Disk *disk = &plant->disk;
    double now = plant->now_ns, bps;

    while (disk->noise_until_ns < now) {
        disk->noise_now = 0.9 * disk->noise_now
                          + 0.44 * log(scatter(plant, disk->noise));
        disk->noise_until_ns += WANDER_NS;
        if (chance(plant) < WANDER_NS / 1e9 / STALL_EACH_S) {
            disk->stall_until_ns = disk->noise_until_ns + STALL_LEAST_NS
                                   + STALL_MORE_NS * chance(plant);
        }
    }
    bps = disk->bytes_per_second * disk->speed * exp(fmin(0.0, disk->noise_now));
    disk->free_ns = fmax(fmax(now, disk->free_ns), disk->stall_until_ns)
                    + item->bytes * 1e9 / bps;
    return disk->free_ns - now + disk->latency_ns * scatter(plant, 2 * disk->noise);
}

/* All of them */

void disk_submit(Plant *plant, Item *item)
{
    Disk *disk = &plant->disk;

    disk->in_device++;
    switch (disk->kind) {
    case SIM_DISK_SLICED:
        submit_sliced(plant, item);
        break;
    case SIM_DISK_QUEUED:
        list_add(&disk->waiting, item);
        serve_queued(plant);
        break;
    case SIM_DISK_SSD:
        at(plant, after_ns(plant, ssd_ns(plant, item)), done, item, 0);
        break;
    case SIM_DISK_CLOUD:
        at(plant, after_ns(plant, cloud_ns(plant, item)), done, item, 0);
        break;
    default:
        at(plant, after_ns(plant, network_ns(plant, item)), done, item, 0);
    }
}

void sim_set_disk(Plant *plant, const SimDisk *what)
{
    Disk *disk = &plant->disk;
    struct rotdisk_params params = rotdisk_defaults();

    disk->kind = what->kind;
    /* As the controller says of a device with an arm; before VMs are added. */
    plant->gate_page.flags = what->kind == SIM_DISK_SLICED || what->kind == SIM_DISK_QUEUED
                             ? SLUICE_GATE_RUNS : 0;
    disk->bytes_per_second = what->bytes_per_second;
    disk->latency_ns = what->latency_ns;
    disk->noise = what->noise;
    disk->requests_per_second = what->requests_per_second;
    disk->base_bytes_per_second = what->base_bytes_per_second;
    disk->credit_bytes = disk->credit_left_bytes = what->credit_bytes;
    disk->channels = what->channels;
    params.media_bps = disk->media_bps = (uint64_t)what->bytes_per_second;
    if (what->revolution_ns) {
        params.revolution_ns = what->revolution_ns;
    }
    params.interface_bps = 3 * params.media_bps;
    rotdisk_init(&disk->rot, &params);
    disk->head_byte = disk->rot.head_byte;
}

void sim_step_disk(Plant *plant, double speed)
{
    plant->disk.speed = speed;
    plant->disk.rot.params.media_bps = (uint64_t)(plant->disk.media_bps * speed);
}
