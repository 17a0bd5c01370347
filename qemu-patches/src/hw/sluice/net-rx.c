/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping of the frames that a guest receives. A frame is judged before the guest sees it
 * and before any memory of the guest is touched. A frame that is held is copied to
 * the buffer of its class in the host; without room there it is dropped and counted,
 * before it costs the guest anything.
 *
 * When the guest has no buffers for an admitted frame, that frame waits in
 * first place and the network backend is told to wait, as without a shaper.
 *
 * With receive side scaling in QEMU the buffers are another pair's, whose ring
 * tells of new ones that pair alone, and only until some are found there. So
 * all frames that wait are tried again when any ring has buffers, and when one
 * of them, or another frame, has taken some.
 *
 * A held frame keeps the length of the virtio header that it came with. When the
 * driver changes that of the backend meanwhile, by way of its features, the frame
 * cannot be told from its header any more, and is dropped.
 *
 * Held frames stay over a stop. A migration loses them, as the network may,
 * and counts them.
 */
#include "qemu/osdep.h"
#include "net-internal.h"
#include "qemu/iov.h"
#include "qemu/main-loop.h"
#include "trace.h"

static SluiceNetRx *rx_of(ShaperRequest *request)
{
    return request ? container_of(request, SluiceNetRx, request) : NULL;
}

/* Descriptors of frames are kept for the next; as many as ever waited. */
static SluiceNetRx *rx_new(SluiceNetPair *pair)
{
    SluiceNetRx *rx = QSIMPLEQ_FIRST(&pair->spare);

    if (rx) {
        QSIMPLEQ_REMOVE_HEAD(&pair->spare, next);
    } else {
        rx = g_new0(SluiceNetRx, 1);
    }
    shaper_request_init(&rx->request);
    rx->header_bytes = pair->net->n->host_hdr_len;
    return rx;
}

static void rx_free(SluiceNetPair *pair, SluiceNetRx *rx)
{
    shaper_buffer_give(&rx->request);
    QSIMPLEQ_INSERT_HEAD(&pair->spare, rx, next);
}

static void rx_discard(SluiceNetPair *pair, SluiceNetRx *rx,
                       ShaperDropReason reason)
{
    shaper_drop(&rx->request, reason);
    rx_free(pair, rx);
}

/* The frame in one piece: where it lies, or a copy. */
static const uint8_t *rx_data(SluiceNetPair *pair, SluiceNetRx *rx)
{
    struct iovec *pieces = pair->net->rx_pieces;
    unsigned count = shaper_buffer_pieces(&rx->request, pieces);

    if (count == 1) {
        return pieces[0].iov_base;
    }
    iov_to_buf(pieces, count, 0, pair->net->scratch, rx->request.pooled.bytes);
    return pair->net->scratch;
}

/* Another frame may wait for buffers of the pair whose buffers it had. */
static void rx_handed_over(SluiceNetPair *pair, SluiceNetRx *rx)
{
    VirtIONet *n = pair->net->n;

    rx_free(pair, rx);
    if (pair->net->waiting_pairs && n->rss_data.enabled
        && n->rss_data.enabled_software_rss) {
        qemu_bh_schedule(pair->net->retry);
    }
}

static void rx_set_waiting(SluiceNetPair *pair, SluiceNetRx *rx)
{
    pair->net->waiting_pairs += (rx != NULL) - (pair->waiting != NULL);
    pair->waiting = rx;
}

/* False if the frame must wait; else it is the guest's, or dropped. */
static bool rx_hand_over(SluiceNetPair *pair, SluiceNetRx *rx)
{
    VirtIONet *n = pair->net->n;
    NetClientState *nc = qemu_get_subqueue(n->nic, pair->index);
    ssize_t taken = -1;

    if (!VIRTIO_DEVICE(n)->vm_running && !nc->link_down) {
        return false;
    }
    if (!nc->link_down && rx->header_bytes == n->host_hdr_len) {
        taken = virtio_net_receive_admitted(nc, rx_data(pair, rx),
                                            rx->request.pooled.bytes);
    }
    if (taken > 0) {
        rx_handed_over(pair, rx);
    } else if (taken < 0) {
        /* Nothing to wait for: its driver has gone, or wants another header. */
        rx_discard(pair, rx, SHAPER_DROP_RESET);
    }
    return taken != 0;
}

/* The next frame that may go on, marked if it is to be; the condemned go. */
static SluiceNetRx *rx_take(SluiceNetPair *pair)
{
    SluiceNetRx *rx;

    while ((rx = rx_of(shaper_client_take_frame(&pair->client,
                                                SHAPER_RESOURCE_NET_RX)))) {
        if (rx->request.signal != SHAPER_SIGNAL_DROP) {
            if (rx->request.signal == SHAPER_SIGNAL_MARK) {
                sluice_net_mark(&rx->request, rx->header_bytes);
            }
            rx->request.paid = true;    /* until it is the guest's */
            return rx;
        }
        rx_free(pair, rx);
    }
    return NULL;
}

/* Hands over admitted frames; false if one has to wait for the guest. */
static bool rx_flush(SluiceNetPair *pair)
{
    for (;;) {
        SluiceNetRx *rx = pair->waiting;

        rx_set_waiting(pair, NULL);
        if (!rx) {
            rx = rx_take(pair);
        }
        if (!rx) {
            return true;
        }
        if (!rx_hand_over(pair, rx)) {
            trace_sluice_net_rx_wait(pair->net->n, pair->index);
            rx_set_waiting(pair, rx);
            return false;
        }
    }
}

/* Copies the frame to a buffer; false if it had to be dropped. */
static bool rx_keep(SluiceNetPair *pair, SluiceNetRx *rx, const uint8_t *buf,
                    size_t size)
{
    unsigned count;

    if (!shaper_buffer_take(&rx->request, size)) {
        rx_discard(pair, rx, SHAPER_DROP_BACKLOG);
        return false;
    }
    count = shaper_buffer_pieces(&rx->request, pair->net->rx_pieces);
    iov_from_buf(pair->net->rx_pieces, count, 0, buf, size);
    return true;
}

static ssize_t rx_pass(SluiceNetPair *pair, SluiceNetRx *rx, const uint8_t *buf,
                       size_t size)
{
    NetClientState *nc = qemu_get_subqueue(pair->net->n->nic, pair->index);
    ssize_t ret = virtio_net_receive_admitted(nc, buf, size);

    if (ret > 0) {
        rx_handed_over(pair, rx);
        return ret;
    }
    shaper_note_payer(&rx->request);
    if (ret < 0) {
        rx_discard(pair, rx, SHAPER_DROP_RESET);
        return ret;
    }
    /* It is charged: the backend must not bring it again. */
    if (rx_keep(pair, rx, buf, size)) {
        rx_set_waiting(pair, rx);
    }
    return size;
}

ssize_t sluice_net_receive(VirtIONet *n, NetClientState *nc, const uint8_t *buf,
                           size_t size)
{
    SluiceNetPair *pair = &n->sluice->pairs[nc->queue_index];
    size_t offset = MIN(n->host_hdr_len, size);
    SluiceNetRx *rx;
    unsigned tag;

    shaper_client_release(&pair->client, SHAPER_RESOURCE_NET_RX);
    if (!rx_flush(pair)) {
        return 0;
    }
    rx = rx_new(pair);
    tag = sluice_net_classify(pair->net, SHAPER_RESOURCE_NET_RX, buf + offset,
                              size - offset, &rx->request);
    switch (shaper_submit(&pair->client, &rx->request, SHAPER_RESOURCE_NET_RX,
                          tag, MIN(size - offset, UINT32_MAX),
                          MIN(size, UINT32_MAX),
                          shaper_request_now_ns())) {
    case SHAPER_PASS:
        return rx_pass(pair, rx, buf, size);
    case SHAPER_HOLD:
        rx_keep(pair, rx, buf, size);
        return size;
    default:
        rx_free(pair, rx);
        return size;
    }
}

static void rx_deliver(SluiceNetPair *pair)
{
    if (rx_flush(pair)) {
        qemu_flush_queued_packets(qemu_get_subqueue(pair->net->n->nic,
                                                    pair->index));
    }
}

void sluice_net_rx_deliver(VirtIONet *n, unsigned index)
{
    SluiceNet *net = n->sluice;
    SluiceNetPair *pair = &net->pairs[index];

    rx_deliver(pair);
    if (net->waiting_pairs > (pair->waiting != NULL)) {
        qemu_bh_schedule(net->retry);
    }
}

/* Ends when no more of them finds buffers: each that does schedules it anew. */
void sluice_net_rx_retry(void *opaque)
{
    SluiceNet *net = opaque;

    for (unsigned i = 0; i < net->count; i++) {
        if (net->pairs[i].waiting) {
            rx_deliver(&net->pairs[i]);
        }
    }
}

void sluice_net_rx_drop(SluiceNetPair *pair)
{
    unsigned frames = 0;
    SluiceNetRx *rx;

    for (; (rx = rx_of(shaper_client_withdraw(&pair->client,
                                              SHAPER_RESOURCE_NET_RX)));
         frames++) {
        if (rx->request.signal == SHAPER_SIGNAL_DROP) {
            rx_free(pair, rx);          /* counted already */
        } else {
            rx_discard(pair, rx, SHAPER_DROP_RESET);
        }
    }
    if (pair->waiting) {
        rx_discard(pair, pair->waiting, SHAPER_DROP_RESET);
        rx_set_waiting(pair, NULL);
        frames++;
    }
    if (frames) {
        trace_sluice_net_rx_drop(pair->net->n, pair->index, frames);
    }
}

void sluice_net_rx_init(SluiceNetPair *pair)
{
    QSIMPLEQ_INIT(&pair->spare);
}

void sluice_net_rx_destroy(SluiceNetPair *pair)
{
    SluiceNetRx *rx, *after;

    QSIMPLEQ_FOREACH_SAFE(rx, &pair->spare, next, after) {
        g_free(rx);
    }
}
