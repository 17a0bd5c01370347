/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the qtests of what a shaper takes along: a class that owes. */
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

#endif
