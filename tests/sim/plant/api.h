/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The calls and records of the simulated host that Python uses (native.py). */
#ifndef SIM_API_H
#define SIM_API_H

#include <stdbool.h>
#include <stdint.h>

/* As in the counters page: reads, writes, frames that leave. */
#define SIM_RESOURCES 3
#define SIM_SLOTS 68
#define SIM_MORE_BYTES 256
#define SIM_PAGE_BYTES (128 + SIM_SLOTS * 256 + SIM_SLOTS * SIM_MORE_BYTES + 64)

enum SimDiskKind {
    SIM_DISK_SLICED,    /* one arm, and a scheduler that gives slices of 100 ms */
    SIM_DISK_QUEUED,    /* one arm, and a queue of 32 in the drive */
    SIM_DISK_SSD,
    SIM_DISK_CLOUD,     /* capped, with credit for bursts */
    SIM_DISK_NETWORK,   /* one server with others on it */
};

enum SimLoadKind {
    SIM_LOAD_SEQUENTIAL_READ,
    SIM_LOAD_RANDOM_READ,
    SIM_LOAD_SEQUENTIAL_WRITE,
    SIM_LOAD_PACED_READ,
    SIM_LOAD_TCP,
    SIM_LOAD_UDP,
};

typedef struct SimDisk {
    double bytes_per_second;    /* of the medium, the bus, the burst or the server */
    double latency_ns, noise;   /* of a request alone; sigma of its logarithm */
    double requests_per_second;
    double base_bytes_per_second, credit_bytes;
    uint64_t revolution_ns;
    int32_t kind, channels;
} SimDisk;

typedef struct SimLink {
    double bytes_per_second;
    double beyond_bytes_per_second;     /* 0: no bottleneck beyond the host */
    uint64_t limit_bytes, beyond_limit_bytes, delay_ns;
    int32_t streams_first;              /* the root prio of the design */
} SimLink;

typedef struct SimStream {
    double bytes_per_second;
    uint64_t buffer_ns, start_ns, base, size;
    uint32_t request_bytes, depth, frame_bytes;
    int32_t vm, tag, reads, sends;
} SimStream;

typedef struct SimLoad {
    double bytes_per_second;            /* of a paced one */
    uint64_t start_ns, think_ns, on_ns, off_ns, base, size;
    uint32_t request_bytes, depth, window_bytes;
    int32_t kind, vm, tag;
} SimLoad;

typedef struct SimUplink {
    uint64_t backlog_bytes, dropped, bytes, beyond_bytes, beyond_dropped;
} SimUplink;

typedef struct SimQuality {
    uint64_t received_bytes, lost, stalls, stall_ns, slip_ns;
} SimQuality;

/* The reads of a stream: sums since its beginning, but for the two gauges. */
typedef struct SimReads {
    uint64_t busy_ns;           /* requests in flight, integrated over time */
    uint64_t outstanding_ns;    /* time with any of them in flight */
    uint64_t bytes;             /* read */
    uint64_t oldest_ns;         /* age of the oldest in flight; 0: there is none */
    uint64_t asked[16];         /* by how many were in flight with the new one, less 1 */
} SimReads;

/* As TCP_INFO has them of a connection with the stream's frames; 0: none has come yet. */
typedef struct SimRoundTrip {
    uint64_t smoothed_ns, least_ns;
} SimRoundTrip;

typedef struct SimGate {
    uint64_t window_bytes, in_flight_bytes, held;
} SimGate;

typedef struct SimSums {
    uint64_t events, made, disk_bytes, disk_in_flight;
} SimSums;

struct Plant;

struct Plant *sim_new(uint64_t seed);
void sim_free(struct Plant *plant);
void sim_set_disk(struct Plant *plant, const SimDisk *disk);
void sim_set_link(struct Plant *plant, const SimLink *link);
/* Each returns the index of the new one, or -1 if there is no room. */
int sim_add_vm(struct Plant *plant);
int sim_add_stream(struct Plant *plant, const SimStream *stream);
int sim_add_load(struct Plant *plant, const SimLoad *load);
void sim_name_class(struct Plant *plant, int vm, int tag, const char *name);
/* A rate of 0 is none. False if the engine refuses it. */
bool sim_limit(struct Plant *plant, int vm, int tag, int resource, double bytes_per_second,
               double burst_bytes);
void sim_step_disk(struct Plant *plant, double speed);
void sim_step_link(struct Plant *plant, double bytes_per_second,
                   double beyond_bytes_per_second);
void sim_step_load(struct Plant *plant, int load, bool active);
void sim_run(struct Plant *plant, uint64_t until_ns);
/* QEMU's writing of all counters pages; and the page of a VM. */
void sim_write_page(struct Plant *plant, int vm);
const uint8_t *sim_page(const struct Plant *plant, int vm);
void sim_uplink(const struct Plant *plant, SimUplink *uplink);
uint64_t sim_load_bytes(const struct Plant *plant, int load);
void sim_quality(struct Plant *plant, int stream, SimQuality *quality);
/* Half-seconds since 0, of which 1 is imperfect; up to now. */
int sim_halves(struct Plant *plant, int stream, uint8_t *bad, int room);
void sim_round_trip(const struct Plant *plant, int stream, SimRoundTrip *found);
/* A ceiling below the uplink's own rate, as of an htb there; 0: none. */
void sim_hold_uplink(struct Plant *plant, double bytes_per_second);
void sim_reads(struct Plant *plant, int stream, SimReads *reads);
/* The gate of a VM's background on the disk (gate.h); a target of 0 opens it. */
void sim_set_gate(struct Plant *plant, int vm, uint64_t target_ns, uint32_t shrink_parts);
void sim_gate(const struct Plant *plant, int vm, SimGate *gate);
void sim_sums(const struct Plant *plant, SimSums *sums);

#endif
