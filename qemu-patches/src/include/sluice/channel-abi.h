/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The channel between guest and host: registers, memory and numbers of the device
 * `sluice-channel`, as docs/specs/channel.md has them. All integers are little-endian.
 * The guest may write its pages at any moment: each field is read once, and checked.
 */
#ifndef SLUICE_CHANNEL_ABI_H
#define SLUICE_CHANNEL_ABI_H

#include <stddef.h>
#include <stdint.h>

#define SLUICE_CHANNEL_VENDOR_ID        0x1af4
#define SLUICE_CHANNEL_DEVICE_ID        0x10fc
#define SLUICE_CHANNEL_SUBSYSTEM_ID     0x5c1c
#define SLUICE_CHANNEL_CLASS            0xff00  /* of no defined class */
#define SLUICE_CHANNEL_MAGIC            0x48434c53      /* "SLCH" */
#define SLUICE_CHANNEL_VERSION          1

/* BARs */
#define SLUICE_CHANNEL_BAR_REGISTERS    0
#define SLUICE_CHANNEL_BAR_GUEST        2
#define SLUICE_CHANNEL_BAR_HOST         4
#define SLUICE_CHANNEL_REGISTER_BYTES   4096
#define SLUICE_CHANNEL_GUEST_BYTES      262144
#define SLUICE_CHANNEL_HOST_BYTES       65536

/* Registers: 32 bits each */
enum {
    SLUICE_CHANNEL_REG_MAGIC = 0x00,
    SLUICE_CHANNEL_REG_VERSION = 0x04,
    SLUICE_CHANNEL_REG_DRIVER = 0x08,
    SLUICE_CHANNEL_REG_PORT_MAP = 0x0c,
    SLUICE_CHANNEL_REG_CALL = 0x10,
    SLUICE_CHANNEL_REG_INTERRUPT = 0x14,
    SLUICE_CHANNEL_REG_EVENTS = 0x18,
    SLUICE_CHANNEL_REG_CALLS_MAX = 0x1c,
};

#define SLUICE_CHANNEL_CALLS_DEFAULT    10000   /* a second */
#define SLUICE_CHANNEL_CALLS_MAX        1000000

/* Sizes */
#define SLUICE_CHANNEL_TAGS             16
#define SLUICE_CHANNEL_RESOURCES        4
#define SLUICE_CHANNEL_PRIORITIES       4
#define SLUICE_CHANNEL_SLOTS            64      /* of fast calls */
#define SLUICE_CHANNEL_RING             256     /* deferred calls */
#define SLUICE_CHANNEL_DELAYED          64      /* that wait at a time */
#define SLUICE_CHANNEL_DELAY_MAX_MS     60000
#define SLUICE_CHANNEL_KINDS            256     /* of deferred calls; 0: each counts */
#define SLUICE_CHANNEL_STREAMS          64
#define SLUICE_CHANNEL_SERVERS          64
#define SLUICE_CHANNEL_EVENTS           256
#define SLUICE_CHANNEL_SERVICES         16
#define SLUICE_CHANNEL_NAME_BYTES       24      /* of a service or stream, NUL-padded */
#define SLUICE_CHANNEL_CLASS_NAME_BYTES 32
#define SLUICE_CHANNEL_ARGUMENTS        6
#define SLUICE_CHANNEL_PORT_MAP_BYTES   131072
#define SLUICE_CHANNEL_PORT_MAP_ENTRY   0x80    /* + tag */

/* Services and their operations */
enum {
    SLUICE_SERVICE_CHANNEL = 1,
    SLUICE_SERVICE_CLASSES = 2,
    SLUICE_SERVICE_EVENTS = 3,
    SLUICE_SERVICE_STREAMS = 4,
    SLUICE_SERVICE_SERVERS = 5,
};

enum {
    SLUICE_CHANNEL_PING = 0,
    SLUICE_CHANNEL_FIND = 1,
    SLUICE_CLASSES_REFRESH = 0,
    SLUICE_EVENTS_SUBSCRIBE = 0,
    SLUICE_EVENTS_ECHO = 1,
    SLUICE_RECORD_UPDATE = 0,
    SLUICE_RECORD_REMOVE = 1,
};

/* Status of a call */
typedef enum SluiceCallStatus {
    SLUICE_CALL_OK,
    SLUICE_CALL_SLOW,           /* ask on the port */
    SLUICE_CALL_BUSY,           /* one call too many */
    SLUICE_CALL_UNKNOWN,        /* service or operation */
    SLUICE_CALL_DENIED,         /* a class that is not granted */
    SLUICE_CALL_BAD,            /* an argument */
} SluiceCallStatus;

/* Kinds of events */
enum {
    SLUICE_EVENT_LIMITED = 1,
    SLUICE_EVENT_UNLIMITED = 2,
    SLUICE_EVENT_LIMIT_CHANGED = 3,
    SLUICE_EVENT_BACKLOG = 4,
    SLUICE_EVENT_GRANTS = 5,
    SLUICE_EVENT_ECHO = 6,      /* of a call, not of a subscription */
    SLUICE_EVENT_KINDS,
};

/* The guest's pages: BAR 2 */

/* A call slot, or a deferred call. */
typedef struct SluiceChannelCall {
    uint32_t service;
    uint32_t operation;
    uint32_t key;               /* fast: sequence; deferred: kind */
    uint32_t delay_ms;          /* deferred */
    uint64_t arguments[SLUICE_CHANNEL_ARGUMENTS];
} SluiceChannelCall;

typedef struct SluiceChannelStream {
    uint32_t seq;               /* odd while it is written */
    uint8_t used;
    uint8_t tag;
    uint8_t source;             /* SluiceStreamSource */
    uint8_t reserved;
    uint32_t rate_millihertz;   /* desired frames per second, in 1/1000 */
    uint32_t late;
    uint64_t frames;
    uint64_t last_ns;           /* of the guest's CLOCK_MONOTONIC */
    uint32_t lost;
    uint32_t pace_kib_per_second;
    char name[SLUICE_CHANNEL_NAME_BYTES];
} SluiceChannelStream;

typedef enum SluiceStreamSource {
    SLUICE_STREAM_PROGRAM = 1,
    SLUICE_STREAM_VLC = 2,
    SLUICE_STREAM_FFMPEG = 3,
    SLUICE_STREAM_GSTREAMER = 4,
    SLUICE_STREAM_SOCKET = 5,
} SluiceStreamSource;

typedef struct SluiceChannelServer {
    uint32_t seq;               /* odd while it is written */
    uint8_t used;
    uint8_t tag;
    uint16_t port;
    uint32_t queued;            /* connections in the accept queue */
    uint32_t queue_max;         /* its length */
    uint32_t open;
    uint32_t open_max;          /* at which the server is full; 0: none */
    uint64_t reserved;
} SluiceChannelServer;

typedef struct SluiceChannelGuest {
    uint32_t ring_head;         /* deferred calls ever written */
    uint8_t reserved_head[60];
    uint64_t pattern[SLUICE_CHANNEL_PRIORITIES];        /* bit tag * 4 + resource */
    uint8_t reserved_pattern[0x1000 - 0x60];
    SluiceChannelCall calls[SLUICE_CHANNEL_SLOTS];
    SluiceChannelCall ring[SLUICE_CHANNEL_RING];
    SluiceChannelStream streams[SLUICE_CHANNEL_STREAMS];
    SluiceChannelServer servers[SLUICE_CHANNEL_SERVERS];
    uint8_t reserved_servers[0x20000 - 0x7800];
    uint8_t port_map[SLUICE_CHANNEL_PORT_MAP_BYTES];    /* TCP, then UDP */
} SluiceChannelGuest;

/* The host's pages: BAR 4 */

typedef struct SluiceChannelHeader {
    char magic[8];              /* SLUICE_CHANNEL_HEADER_MAGIC */
    uint32_t version;
    uint32_t ring_tail;         /* deferred calls taken */
    uint64_t epoch;
    uint64_t event_head;        /* events ever made */
    uint64_t heartbeat_ns;
    uint64_t calls;
    uint64_t calls_refused;
    uint64_t deferred;
    uint64_t deferred_refused;
    uint64_t deferred_replaced;
    uint32_t granted;           /* bit t: tag t has a class */
    uint32_t reserved;
} SluiceChannelHeader;

#define SLUICE_CHANNEL_HEADER_MAGIC     "SLUICECH"

typedef struct SluiceChannelService {
    char name[SLUICE_CHANNEL_NAME_BYTES];
    uint32_t number;            /* 0: none */
    uint32_t version;
} SluiceChannelService;

typedef struct SluiceChannelResult {
    uint32_t sequence;          /* written last */
    uint32_t status;
    uint64_t value;
} SluiceChannelResult;

typedef struct SluiceChannelEvent {
    uint64_t number;            /* from 1; 0 while it is written */
    uint64_t time_ns;
    uint8_t kind;
    uint8_t tag;
    uint8_t resource;
    uint8_t priority;
    uint32_t reserved;
    uint64_t datum;
} SluiceChannelEvent;

typedef struct SluiceChannelClass {
    uint32_t seq;               /* odd while it is written */
    uint8_t used;
    uint8_t priority;
    uint8_t limited;
    uint8_t reserved;
    uint64_t bytes_per_second;  /* 0: no limit */
    uint64_t operations_per_second;
    int64_t tokens_bytes;
    uint64_t tokens_ns;
    uint64_t backlog_bytes;
    uint64_t held_ns;
    uint64_t bytes;
} SluiceChannelClass;

#define SLUICE_CHANNEL_CLASSES  (SLUICE_CHANNEL_TAGS * SLUICE_CHANNEL_RESOURCES)

typedef struct SluiceChannelHost {
    SluiceChannelHeader header;
    uint8_t reserved_header[0x400 - sizeof(SluiceChannelHeader)];
    SluiceChannelService services[SLUICE_CHANNEL_SERVICES];
    uint8_t reserved_services[0x1000 - 0x600];
    SluiceChannelResult results[SLUICE_CHANNEL_SLOTS];
    uint8_t reserved_results[0x2000 - 0x1400];
    SluiceChannelEvent events[SLUICE_CHANNEL_EVENTS];
    char class_names[SLUICE_CHANNEL_TAGS][SLUICE_CHANNEL_CLASS_NAME_BYTES];
    uint8_t reserved_names[0x5000 - 0x4200];
    SluiceChannelClass classes[SLUICE_CHANNEL_CLASSES];
    uint8_t reserved_classes[0x10000 - 0x6000];
} SluiceChannelHost;

_Static_assert(sizeof(SluiceChannelCall) == 64, "as documented");
_Static_assert(sizeof(SluiceChannelStream) == 64, "as documented");
_Static_assert(offsetof(SluiceChannelStream, frames) == 16, "as documented");
_Static_assert(offsetof(SluiceChannelStream, name) == 40, "as documented");
_Static_assert(sizeof(SluiceChannelServer) == 32, "as documented");
_Static_assert(offsetof(SluiceChannelServer, open_max) == 20, "as documented");
_Static_assert(offsetof(SluiceChannelGuest, pattern) == 0x40, "as documented");
_Static_assert(offsetof(SluiceChannelGuest, calls) == 0x1000, "as documented");
_Static_assert(offsetof(SluiceChannelGuest, ring) == 0x2000, "as documented");
_Static_assert(offsetof(SluiceChannelGuest, streams) == 0x6000,
               "as documented");
_Static_assert(offsetof(SluiceChannelGuest, servers) == 0x7000,
               "as documented");
_Static_assert(offsetof(SluiceChannelGuest, port_map) == 0x20000,
               "as documented");
_Static_assert(sizeof(SluiceChannelGuest) == SLUICE_CHANNEL_GUEST_BYTES,
               "as documented");
_Static_assert(offsetof(SluiceChannelHeader, heartbeat_ns) == 32,
               "as documented");
_Static_assert(offsetof(SluiceChannelHeader, granted) == 80, "as documented");
_Static_assert(sizeof(SluiceChannelService) == 32, "as documented");
_Static_assert(sizeof(SluiceChannelResult) == 16, "as documented");
_Static_assert(sizeof(SluiceChannelEvent) == 32, "as documented");
_Static_assert(offsetof(SluiceChannelEvent, datum) == 24, "as documented");
_Static_assert(sizeof(SluiceChannelClass) == 64, "as documented");
_Static_assert(offsetof(SluiceChannelClass, tokens_bytes) == 24,
               "as documented");
_Static_assert(offsetof(SluiceChannelHost, services) == 0x400, "as documented");
_Static_assert(offsetof(SluiceChannelHost, results) == 0x1000, "as documented");
_Static_assert(offsetof(SluiceChannelHost, events) == 0x2000, "as documented");
_Static_assert(offsetof(SluiceChannelHost, class_names) == 0x4000,
               "as documented");
_Static_assert(offsetof(SluiceChannelHost, classes) == 0x5000, "as documented");
_Static_assert(sizeof(SluiceChannelHost) == SLUICE_CHANNEL_HOST_BYTES,
               "as documented");

#endif
