/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The host's end of the channel, which is a part of the shaper: shaper-channel*.c. The PCI
 * device (channel.c) lends it the memory and the interrupt, from its realization to its end.
 */
#ifndef HW_SLUICE_SHAPER_CHANNEL_H
#define HW_SLUICE_SHAPER_CHANNEL_H

#include "exec/memory.h"
#include "migration/vmstate.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "sluice/channel.h"
#include "sluice/lock.h"

#define SHAPER_CHANNEL_PENDING      64
#define SHAPER_CHANNEL_RECORDS      (SLUICE_CHANNEL_STREAMS \
                                     + SLUICE_CHANNEL_SERVERS)

typedef struct Shaper Shaper;

/* The configuration of a class, for those who do not have the BQL. */
typedef struct ShaperChannelClass {
    char name[SLUICE_CHANNEL_CLASS_NAME_BYTES];         /* NUL-padded */
    uint8_t priority;
    SluiceLimit limits[SLUICE_CHANNEL_RESOURCES];
} ShaperChannelClass;

/*
 * It lives as long as its shaper, so that any thread may come at any time; the memory is
 * there while `guest` is not NULL, and goes by RCU.
 */
typedef struct ShaperChannel {
    SluiceLock lock;            /* guards everything here; taken before an engine's */
    SluiceChannelGuest *guest;  /* atomic; NULL: there is no device */
    SluiceChannelHost *host;
    MemoryRegion *guest_memory;
    MemoryRegion *host_memory;
    QEMUBH *interrupt_bh;       /* sets the interrupt's level */
    QEMUTimer *timer;           /* looks, while there is a driver */
    DeviceState *device;        /* BQL */
    bool running;               /* the machine is; else the memory is not written */

    /* Registers: atomic, written under the lock */
    uint32_t driver;
    uint32_t port_map;
    uint32_t interrupt;
    uint32_t events;
    uint32_t calls_max;
    uint64_t epoch;

    SluiceBucket bucket;        /* of fast calls */
    uint64_t calls;             /* counters, of the life of the device */
    uint64_t calls_refused;
    uint64_t deferred;
    uint64_t deferred_failed;   /* of another status than ok */
    SluiceRing ring;
    uint64_t busy_until_ns;     /* the timer looks more often */
    uint64_t show_ns;           /* when the class entries are to be written */

    SluiceEvents upcalls;
    SluiceChannelEvent pending[SHAPER_CHANNEL_PENDING]; /* while it stands */
    uint32_t pending_count;
    uint32_t pending_lost;      /* found no room there */

    ShaperChannelClass classes[SLUICE_CHANNEL_TAGS];
    uint32_t granted;           /* bit t: tag t has a class */
    uint32_t class_seq;
    bool is_shown;              /* by one of the calls that are carried out together */
    SluiceChannelStream streams[SLUICE_CHANNEL_STREAMS];
    SluiceChannelServer servers[SLUICE_CHANNEL_SERVERS];
    /* The sequence of each record as of the last look; UINT64_MAX: not looked at */
    uint64_t record_seen[SHAPER_CHANNEL_RECORDS];
    uint64_t records_refused;
} ShaperChannel;

/* Memory and methods that the device lends. */
typedef struct ShaperChannelDevice {
    DeviceState *device;
    MemoryRegion *guest_memory;
    MemoryRegion *host_memory;
    uint32_t calls_max;
    QEMUBH *interrupt_bh;
} ShaperChannelDevice;

extern const VMStateDescription vmstate_shaper_channel;

/* For the device. BQL. False, with an error, if the shaper has a channel. */
bool shaper_channel_attach(Shaper *shaper, const ShaperChannelDevice *lent,
                           Error **errp);
void shaper_channel_detach(Shaper *shaper);
void shaper_channel_reset(Shaper *shaper);
void shaper_channel_set_running(Shaper *shaper, bool running);
ShaperChannel *shaper_channel_of(Shaper *shaper);
/* Registers: any thread. */
uint32_t shaper_channel_read(Shaper *shaper, unsigned offset);
void shaper_channel_write(Shaper *shaper, unsigned offset, uint32_t value);
/* The level of the interrupt. */
bool shaper_channel_interrupts(Shaper *shaper);

/* For the shaper. BQL, without the locks. */
/* The classes may be others. */
void shaper_channel_configure(Shaper *shaper);
/* With the look for limited classes: backlogs. */
void shaper_channel_look(Shaper *shaper);
/* An event, if the guest has asked for it. */
void shaper_channel_event(Shaper *shaper, unsigned kind, unsigned tag,
                          unsigned resource, uint64_t datum);
/* The streams that the guest reports: how many there are, by record number. Any thread. */
unsigned shaper_channel_streams(
    Shaper *shaper, SluiceChannelStream streams[SLUICE_CHANNEL_STREAMS]);
unsigned shaper_channel_servers(
    Shaper *shaper, SluiceChannelServer servers[SLUICE_CHANNEL_SERVERS]);

/* Between the files of the channel. The caller holds the lock, and there is a device. */
/* Tells a migration what the host has written. */
void shaper_channel_wrote_host(ShaperChannel *channel, const void *at,
                               size_t bytes);
void shaper_channel_write_header(ShaperChannel *channel);
void shaper_channel_set_port_map(Shaper *shaper, bool on);
/* shaper-channel-calls.c */
void shaper_channel_write_services(ShaperChannel *channel);
void shaper_channel_call(Shaper *shaper, unsigned slot);
/* The calls that wait begin anew, for another driver or none. */
void shaper_channel_forget_calls(ShaperChannel *channel);
void shaper_channel_set_timer(ShaperChannel *channel, uint64_t now_ns);
void shaper_channel_timer_cb(void *shaper);
/* shaper-channel-show.c */
void shaper_channel_show(Shaper *shaper, uint64_t now_ns);
void shaper_channel_flush_events(ShaperChannel *channel);
SluiceCallStatus shaper_channel_read_stream(ShaperChannel *channel, unsigned i,
                                            bool anyway);
SluiceCallStatus shaper_channel_read_server(ShaperChannel *channel, unsigned i,
                                            bool anyway);
/* Makes an event with the word, of a tag that is granted. The machine runs. */
void shaper_channel_echo(ShaperChannel *channel, unsigned tag, uint64_t word);
/* Until its sequence is another, or the grants are, it is not read again. */
void shaper_channel_remove_stream(ShaperChannel *channel, unsigned i);
void shaper_channel_remove_server(ShaperChannel *channel, unsigned i);
void shaper_channel_forget_records(ShaperChannel *channel);

#endif
