/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-net: the calls of hw/net/virtio-net.c, for a device with a
 * shaper only (n->sluice is set), except sluice_net_check(). BQL held.
 */
#ifndef HW_SLUICE_NET_H
#define HW_SLUICE_NET_H

#include "hw/qdev-properties.h"
#include "hw/sluice/shaper.h"
#include "migration/vmstate.h"
#include "net/net.h"

struct VirtIONet;
struct VirtQueue;
typedef struct SluiceNet SluiceNet;

/* False, with an error, if something would carry frames past the shaper. */
bool sluice_net_check(struct VirtIONet *n, Error **errp);
void sluice_net_realize(struct VirtIONet *n);
/* After the queues have been deleted. */
void sluice_net_unrealize(struct VirtIONet *n);

/*
 * In place of virtqueue_pop(): the next element whose frame may be sent now,
 * or NULL when the ring is empty or all frames in it are held.
 */
void *sluice_net_tx_pop(struct VirtIONet *n, struct VirtQueue *vq);
/*
 * An element that _tx_pop() returned has been sent, or dropped. True: it has
 * no descriptors any more, and only its memory is to be freed.
 */
bool sluice_net_tx_sent(struct VirtIONet *n, void *elem);
/* Link down: gives held elements back to the guest unsent. */
void sluice_net_tx_drop(struct VirtIONet *n, struct VirtQueue *vq);
/*
 * Around a purge of the frames that wait for the network: else its completion would have
 * the next frame wait there. _reset() opens too.
 */
void sluice_net_tx_close(struct VirtIONet *n, unsigned pair);
void sluice_net_tx_open(struct VirtIONet *n, unsigned pair);
/* Reset of a transmit queue: forgets held elements. */
void sluice_net_tx_reset(struct VirtIONet *n, unsigned pair);
/* Reset of a queue pair. */
void sluice_net_reset(struct VirtIONet *n, unsigned pair);

/* A frame from the network, before the guest sees it. */
ssize_t sluice_net_receive(struct VirtIONet *n, NetClientState *nc,
                           const uint8_t *buf, size_t size);
/* The guest has new buffers, or is ready again. */
void sluice_net_rx_deliver(struct VirtIONet *n, unsigned pair);
/* In virtio-net.c: hands a frame to the guest; 0 when it has no buffers. */
ssize_t virtio_net_receive_admitted(NetClientState *nc, const uint8_t *buf,
                                    size_t size);

/* Of a field of type ShaperDscp; may be set on a card in use. */
extern const PropertyInfo sluice_net_prop_dscp;
#define DEFINE_PROP_SLUICE_DSCP(name, state, field)                         \
    DEFINE_PROP_SIGNED(name, state, field, SHAPER_DSCP_AUTO,                \
                       sluice_net_prop_dscp, ShaperDscp)

extern const VMStateDescription vmstate_sluice_net;

#endif
