/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-net. Frames are classified by the DSCP of their IP header
 * and charged by their length without the virtio header; a segmentation
 * offload frame is charged as the one large frame it is.
 *
 * Transmit. A held frame keeps its descriptors, so nothing is lost and the
 * guest's sender waits. The queue is read on to its end all the same, so that
 * a class that may send is not stuck behind one that may not. What limits this
 * is the ring: when held frames fill all of it, other classes wait too.
 *
 * Receive. A held frame is copied to a queue of its class in the host, which
 * holds 1/20 second at the class's limit and at least 128 KiB; what exceeds
 * that is dropped and counted, before it costs the guest anything. When the
 * guest has no buffers for an admitted frame, that frame waits in first place
 * and the network backend is told to wait, as without a shaper.
 *
 * Stop. Held transmit elements move to a list of the queue. Migration saves
 * it; on resume, on either host, its elements are judged anew, before what is
 * in the ring. Held received frames stay; a migration loses them, as the
 * network may.
 */
#include "qemu/osdep.h"
#include "hw/qdev-properties.h"
#include "hw/sluice/net.h"
#include "hw/virtio/virtio-bus.h"
#include "hw/virtio/virtio-net.h"
#include "migration/qemu-file-types.h"
#include "net/vhost_net.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/iov.h"
#include "sluice/classify.h"
#include "system/runstate.h"
#include "trace.h"

typedef struct SluiceNetTx {
    VirtQueueElement elem;      /* first: the device frees it as an element */
    ShaperRequest request;
    QSIMPLEQ_ENTRY(SluiceNetTx) next;
} SluiceNetTx;

typedef struct SluiceNetRx {
    ShaperRequest request;
    size_t size;
    uint8_t *data;
} SluiceNetRx;

typedef struct SluiceNetPair {
    ShaperClient client;
    SluiceNet *net;
    unsigned index;
    QSIMPLEQ_HEAD(, SluiceNetTx) stopped;   /* to be judged before the ring */
    SluiceNetRx *waiting;       /* admitted, but the guest has no buffers */
    SluiceNetRx *spare;         /* for the next frame; has no data */
} SluiceNetPair;

struct SluiceNet {
    VirtIONet *n;
    VMChangeStateEntry *change;
    unsigned default_tag;       /* of shaper-class, as of: */
    uint64_t default_generation;
    unsigned count;
    SluiceNetPair pairs[];
};

static SluiceNetTx *tx_of(ShaperRequest *request)
{
    return request ? container_of(request, SluiceNetTx, request) : NULL;
}

static SluiceNetRx *rx_of(ShaperRequest *request)
{
    return request ? container_of(request, SluiceNetRx, request) : NULL;
}

/* Classification */

static unsigned default_tag(SluiceNet *net)
{
    VirtIONet *n = net->n;
    uint64_t generation = shaper_generation(n->shaper);

    if (net->default_generation != generation) {
        net->default_generation = generation;
        net->default_tag = n->shaper_class
                           ? shaper_tag_of_class(n->shaper, n->shaper_class)
                           : SLUICE_TAG_DEFAULT;
    }
    return net->default_tag;
}

static unsigned classify(SluiceNet *net, const uint8_t *frame, size_t length)
{
    SluiceFrame parsed;
    unsigned tag;

    sluice_frame_parse(frame, length, &parsed);
    if (parsed.kind != SLUICE_FRAME_OTHER
        && shaper_tag_of_dscp(net->n->shaper, parsed.dscp, &tag)) {
        return tag;
    }
    return default_tag(net);
}

/* Transmit */

static ShaperVerdict tx_submit(SluiceNetPair *pair, SluiceNetTx *tx)
{
    VirtIONet *n = pair->net->n;
    size_t size = iov_size(tx->elem.out_sg, tx->elem.out_num);
    uint8_t head[SLUICE_FRAME_HEAD_BYTES];
    size_t head_bytes = iov_to_buf(tx->elem.out_sg, tx->elem.out_num,
                                   n->guest_hdr_len, head, sizeof(head));

    size = size > n->guest_hdr_len ? size - n->guest_hdr_len : 0;
    shaper_request_init(&tx->request);
    return shaper_submit(&pair->client, &tx->request, SHAPER_RESOURCE_NET_TX,
                         classify(pair->net, head, head_bytes),
                         MIN(size, UINT32_MAX), false);
}

static SluiceNetTx *tx_next(SluiceNetPair *pair, VirtQueue *vq)
{
    SluiceNetTx *tx = QSIMPLEQ_FIRST(&pair->stopped);

    if (tx) {
        QSIMPLEQ_REMOVE_HEAD(&pair->stopped, next);
        return tx;
    }
    return virtqueue_pop(vq, sizeof(SluiceNetTx));
}

void *sluice_net_tx_pop(VirtIONet *n, VirtQueue *vq)
{
    SluiceNetPair *pair = &n->sluice->pairs[virtio_get_queue_index(vq) / 2];

    /* Else a late completion would hold frames that migration misses. */
    if (!VIRTIO_DEVICE(n)->vm_running) {
        return NULL;
    }
    for (;;) {
        SluiceNetTx *tx = tx_of(shaper_client_take(&pair->client,
                                                   SHAPER_RESOURCE_NET_TX));

        if (tx) {
            return tx;
        }
        tx = tx_next(pair, vq);
        if (!tx || tx_submit(pair, tx) == SHAPER_PASS) {
            return tx;
        }
    }
}

/* Takes every element out of the shaper, into the queue's list, oldest first */
static void tx_withdraw(SluiceNetPair *pair)
{
    QSIMPLEQ_HEAD(, SluiceNetTx) newer = QSIMPLEQ_HEAD_INITIALIZER(newer);
    SluiceNetTx *tx;

    QSIMPLEQ_CONCAT(&newer, &pair->stopped);
    while ((tx = tx_of(shaper_client_withdraw(&pair->client,
                                              SHAPER_RESOURCE_NET_TX)))) {
        QSIMPLEQ_INSERT_TAIL(&pair->stopped, tx, next);
    }
    QSIMPLEQ_CONCAT(&pair->stopped, &newer);
}

static SluiceNetTx *tx_take_stopped(SluiceNetPair *pair)
{
    SluiceNetTx *tx = QSIMPLEQ_FIRST(&pair->stopped);

    if (tx) {
        QSIMPLEQ_REMOVE_HEAD(&pair->stopped, next);
    }
    return tx;
}

void sluice_net_tx_drop(VirtIONet *n, VirtQueue *vq)
{
    SluiceNetPair *pair = &n->sluice->pairs[virtio_get_queue_index(vq) / 2];
    unsigned frames = 0;
    SluiceNetTx *tx;

    tx_withdraw(pair);
    while ((tx = tx_take_stopped(pair))) {
        virtqueue_push(vq, &tx->elem, 0);
        g_free(tx);
        frames++;
    }
    if (frames) {
        trace_sluice_net_tx_drop(n, pair->index, frames);
        virtio_notify(VIRTIO_DEVICE(n), vq);
    }
}

void sluice_net_tx_reset(VirtIONet *n, unsigned index)
{
    SluiceNetPair *pair = &n->sluice->pairs[index];
    SluiceNetTx *tx;

    tx_withdraw(pair);
    while ((tx = tx_take_stopped(pair))) {
        virtqueue_detach_element(n->vqs[index].tx_vq, &tx->elem, 0);
        g_free(tx);
    }
}

/* Receive */

static void rx_free(SluiceNetRx *rx)
{
    if (rx) {
        g_free(rx->data);
        g_free(rx);
    }
}

/* False if the frame must wait; else it is the guest's, or nobody's. */
static bool rx_hand_over(SluiceNetPair *pair, SluiceNetRx *rx)
{
    VirtIONet *n = pair->net->n;
    NetClientState *nc = qemu_get_subqueue(n->nic, pair->index);

    if (!nc->link_down
        && (!VIRTIO_DEVICE(n)->vm_running
            || virtio_net_receive_admitted(nc, rx->data, rx->size) == 0)) {
        return false;
    }
    rx_free(rx);
    return true;
}

/* Hands over what is admitted; false if some has to wait for the guest. */
static bool rx_flush(SluiceNetPair *pair)
{
    for (;;) {
        SluiceNetRx *rx = pair->waiting;

        pair->waiting = NULL;
        if (!rx) {
            rx = rx_of(shaper_client_take(&pair->client,
                                          SHAPER_RESOURCE_NET_RX));
        }
        if (!rx) {
            return true;
        }
        if (!rx_hand_over(pair, rx)) {
            trace_sluice_net_rx_wait(pair->net->n, pair->index);
            pair->waiting = rx;
            return false;
        }
    }
}

static void rx_keep(SluiceNetPair *pair, SluiceNetRx *rx, const uint8_t *buf,
                    size_t size)
{
    rx->data = g_memdup2(buf, size);
    rx->size = size;
    pair->spare = NULL;
}

ssize_t sluice_net_receive(VirtIONet *n, NetClientState *nc, const uint8_t *buf,
                           size_t size)
{
    SluiceNetPair *pair = &n->sluice->pairs[nc->queue_index];
    size_t offset = MIN(n->host_hdr_len, size);
    SluiceNetRx *rx;
    ssize_t ret;

    if (!rx_flush(pair)) {
        return 0;
    }
    if (!pair->spare) {
        pair->spare = g_new0(SluiceNetRx, 1);
    }
    rx = pair->spare;
    shaper_request_init(&rx->request);
    switch (shaper_submit(&pair->client, &rx->request, SHAPER_RESOURCE_NET_RX,
                          classify(pair->net, buf + offset, size - offset),
                          MIN(size - offset, UINT32_MAX), true)) {
    case SHAPER_PASS:
        ret = virtio_net_receive_admitted(nc, buf, size);
        if (ret != 0) {
            return ret;
        }
        rx_keep(pair, rx, buf, size);
        pair->waiting = rx;
        return size;
    case SHAPER_HOLD:
        rx_keep(pair, rx, buf, size);
        return size;
    default:
        return size;
    }
}

void sluice_net_rx_deliver(VirtIONet *n, unsigned index)
{
    if (rx_flush(&n->sluice->pairs[index])) {
        qemu_flush_queued_packets(qemu_get_subqueue(n->nic, index));
    }
}

void sluice_net_reset(VirtIONet *n, unsigned index)
{
    SluiceNetPair *pair = &n->sluice->pairs[index];
    SluiceNetRx *rx;

    sluice_net_tx_reset(n, index);
    while ((rx = rx_of(shaper_client_withdraw(&pair->client,
                                              SHAPER_RESOURCE_NET_RX)))) {
        rx_free(rx);
    }
    rx_free(pair->waiting);
    pair->waiting = NULL;
}

/* Release and resume */

static void kick_tx(SluiceNetPair *pair)
{
    virtio_queue_notify(VIRTIO_DEVICE(pair->net->n), pair->index * 2 + 1);
}

static void pair_ready(ShaperClient *client)
{
    SluiceNetPair *pair = container_of(client, SluiceNetPair, client);

    if (shaper_client_has_ready(client, SHAPER_RESOURCE_NET_TX)) {
        kick_tx(pair);
    }
    if (shaper_client_has_ready(client, SHAPER_RESOURCE_NET_RX)) {
        sluice_net_rx_deliver(pair->net->n, pair->index);
    }
}

static void vm_state_changed(void *opaque, bool running, RunState state)
{
    SluiceNet *net = opaque;
    unsigned active = net->n->multiqueue ? net->count : 1;

    for (unsigned i = 0; i < active; i++) {
        if (running) {
            kick_tx(&net->pairs[i]);
        } else {
            tx_withdraw(&net->pairs[i]);
        }
    }
}

/* Migration */

static bool stopped_needed(void *opaque)
{
    VirtIONet *n = opaque;

    for (unsigned i = 0; n->sluice && i < n->sluice->count; i++) {
        if (!QSIMPLEQ_EMPTY(&n->sluice->pairs[i].stopped)) {
            return true;
        }
    }
    return false;
}

static int stopped_put(QEMUFile *f, void *pv, size_t size,
                       const VMStateField *field, JSONWriter *vmdesc)
{
    VirtIONet *n = pv;

    qemu_put_be32(f, n->sluice->count);
    for (unsigned i = 0; i < n->sluice->count; i++) {
        SluiceNetTx *tx;

        QSIMPLEQ_FOREACH(tx, &n->sluice->pairs[i].stopped, next) {
            qemu_put_byte(f, 1);
            qemu_put_virtqueue_element(VIRTIO_DEVICE(n), f, &tx->elem);
        }
        qemu_put_byte(f, 0);
    }
    return 0;
}

static int stopped_get(QEMUFile *f, void *pv, size_t size,
                       const VMStateField *field)
{
    VirtIONet *n = pv;
    uint32_t count = qemu_get_be32(f);

    if (!n->sluice || count != n->sluice->count) {
        error_report("virtio-net: frames held for %u queue pairs arrive, but "
                     "the device has %s with %u; configure it as on the source",
                     count, n->sluice ? "a shaper" : "no shaper",
                     n->max_queue_pairs);
        return -EINVAL;
    }
    for (unsigned i = 0; i < count; i++) {
        for (unsigned frames = 0; qemu_get_byte(f); frames++) {
            SluiceNetTx *tx;

            if (frames == VIRTQUEUE_MAX_SIZE) {
                error_report("virtio-net: more than %d held frames arrive for "
                             "queue pair %u", VIRTQUEUE_MAX_SIZE, i);
                return -EINVAL;
            }
            tx = qemu_get_virtqueue_element(VIRTIO_DEVICE(n), f,
                                            sizeof(SluiceNetTx));
            QSIMPLEQ_INSERT_TAIL(&n->sluice->pairs[i].stopped, tx, next);
        }
    }
    return 0;
}

const VMStateDescription vmstate_sluice_net = {
    .name = "virtio-net-device/sluice",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = stopped_needed,
    .fields = (const VMStateField[]) {
        {
            .name = "held transmit frames",
            .info = &(const VMStateInfo) {
                .name = "virtio-net held transmit frames",
                .get = stopped_get,
                .put = stopped_put,
            },
            .flags = VMS_SINGLE,
            .size = sizeof(VirtIONet),
        },
        VMSTATE_END_OF_LIST()
    },
};

/* Life cycle */

bool sluice_net_check(VirtIONet *n, Error **errp)
{
    DeviceState *proxy = DEVICE(qdev_get_parent_bus(DEVICE(n))->parent);

    if (!n->shaper) {
        if (n->shaper_class) {
            error_setg(errp, "shaper-class '%s' needs a shaper; give the "
                       "device shaper= too", n->shaper_class);
            return false;
        }
        return true;
    }
    for (int i = 0; i < n->nic_conf.peers.queues; i++) {
        NetClientState *peer = n->nic_conf.peers.ncs[i];

        if (peer->info->type == NET_CLIENT_DRIVER_VHOST_USER
            || peer->info->type == NET_CLIENT_DRIVER_VHOST_VDPA
            || get_vhost_net(peer)) {
            g_autofree char *name = qdev_get_human_name(proxy);

            error_setg(errp, "device '%s': shaper '%s' cannot shape netdev "
                       "'%s', whose vhost backend bypasses QEMU; use a tap "
                       "with vhost=off (libvirt: <driver name='qemu'/>)",
                       name, shaper_id(n->shaper), peer->name);
            return false;
        }
    }
    return true;
}

void sluice_net_realize(VirtIONet *n)
{
    SluiceNet *net = g_malloc0(sizeof(SluiceNet)
                               + n->max_queue_pairs * sizeof(SluiceNetPair));

    net->n = n;
    net->count = n->max_queue_pairs;
    net->default_generation = UINT64_MAX;
    for (unsigned i = 0; i < net->count; i++) {
        SluiceNetPair *pair = &net->pairs[i];

        pair->net = net;
        pair->index = i;
        QSIMPLEQ_INIT(&pair->stopped);
        shaper_client_init(&pair->client, n->shaper, DEVICE(n), pair_ready);
    }
    n->sluice = net;
    net->change = qdev_add_vm_change_state_handler(DEVICE(n), vm_state_changed,
                                                   net);
}

void sluice_net_unrealize(VirtIONet *n)
{
    SluiceNet *net = n->sluice;

    qemu_del_vm_change_state_handler(net->change);
    for (unsigned i = 0; i < net->count; i++) {
        shaper_client_destroy(&net->pairs[i].client);
        rx_free(net->pairs[i].spare);
    }
    g_free(net);
    n->sluice = NULL;
}
