/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the qtests of a shaper's move: a class in debt, and the move. */
#ifndef TESTS_SLUICE_STATE_H
#define TESTS_SLUICE_STATE_H

#include "sluice-disk.h"

/* A read of 4096 bytes leaves a debt of 4095. */
#define OWED        "'bytes-per-second': 1000000, 'burst-bytes': 1"

/* Sets the class bulk, tag 2, with that limit of reads. */
#define set_bulk(disk, limit)                                               \
    qmp_ok((disk)->qts, "{'execute': 'shaper-set-class', 'arguments': "     \
           "{'id': 'sluice0', 'class': 'bulk', 'tag': 2, 'limits': "        \
           "[{'resource': 'blk-read', " limit "}]}}")

/* Reads once by a tag, which passes. */
G_GNUC_UNUSED
static void read_once(Disk *disk, unsigned tag)
{
    Request request = send_request(disk, VIRTIO_BLK_T_IN, tag, 0, 1);

    wait_for(status_of(disk, request) == VIRTIO_BLK_S_OK);
}

/* A machine and the one that it moves to. */
typedef struct Move {
    Disk *source;
    Disk target;
    char *uri;
} Move;

/* `more` is on the command lines of both. */
G_GNUC_UNUSED
static void move_init(Move *move, const char *more)
{
    move->source = disk_new("", more);
    move->uri = boot_target(&move->target, move->source, "", more);
}

G_GNUC_UNUSED
static void move_go(Move *move)
{
    migrate(move->source->qs, move->target.qs, move->uri);
    /*
     * That waits until all of a stopped source is sent. Until it is loaded as well,
     * a `cont` is forgotten: the target takes over that the source was stopped.
     */
    wait_for(migration_has_status(move->target.qts, "completed"));
}

G_GNUC_UNUSED
static void move_end(Move *move)
{
    free_migrated(move->source, &move->target, move->uri);
}

#endif
