/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping of the frames that a guest sends.
 *
 * Holding. A frame that has to wait must not be in the way of others. The classes of a
 * queue have its descriptors in common, and a driver that counts its frames on the way
 * (Linux's byte queue limits) soon calls a queue full of which a part never comes back.
 * So a frame that has to wait is copied, once, to the buffer of its class in the
 * host, and its descriptors go back to the guest. Beyond the buffer it is dropped and
 * counted. The queue is read on to its end all the same, so that a class that may send
 * is not stuck behind one that may not.
 *
 * Lossless. A queue that belongs to one class, or whose VM has just one, is not
 * shared: there a held frame keeps its descriptors, nothing is copied, nothing is lost,
 * and the guest's sender waits. VIRTIO_F_IN_ORDER is not offered: a held descriptor
 * would keep all behind it.
 *
 * Work. A guest that sends without end frames that are dropped at once must not keep
 * the main loop: after BUDGET elements that may not be sent the rest of the ring
 * waits for a bottom half.
 *
 * Header. A driver can change the length of the virtio header without a reset,
 * by way of its features. A frame that was judged by another length would be sent as
 * another frame now, so it is dropped when it may go.
 *
 * Marks. The guest's own memory is never written to: a frame that is to carry
 * the mark of congestion is moved to the buffer first, when it may be sent.
 *
 * Purge. The network layer purges frames that wait for the network before a queue is
 * reset or deleted, which completes them, upon which the device reads on in the
 * ring and the next frame waits. So nothing is read from then on, until the queue
 * is reset or opened again.
 *
 * Stop. Held frames, wherever they are kept, move to a list of the queue.
 * Migration saves it (net-state.c); on resume, on either host, its frames are
 * judged anew, before those in the ring; a frame that had been released and could not
 * be sent is charged once, here before the stop or there after it. Link down and reset
 * give or take the frames in the ring, and drop and count those in buffers.
 */
#include "qemu/osdep.h"
#include "block/aio.h"
#include "net-internal.h"
#include "qemu/iov.h"
#include "qemu/main-loop.h"
#include "trace.h"

#define BUDGET          256

static SluiceNetTx *tx_of(ShaperRequest *request)
{
    return request ? container_of(request, SluiceNetTx, request) : NULL;
}

static bool in_buffer(const SluiceNetTx *tx)
{
    return tx->request.pooled.bytes > 0;
}

static VirtQueue *queue_of(SluiceNetPair *pair)
{
    return pair->net->n->vqs[pair->index].tx_vq;
}

/* Descriptors */

/*
 * Would its descriptors, while it waits, be in the way of other classes? A frame that was
 * held in the ring before a stop may be again, also where the classes are others now:
 * there may be no buffer for all such frames.
 */
static bool must_leave_ring(SluiceNetPair *pair, const SluiceNetTx *tx)
{
    return !in_buffer(tx) && !tx->resumed && pair->client.class_tag < 0
           && shaper_class_count(pair->client.shaper) > 1;
}

static void return_descriptors(SluiceNetPair *pair, SluiceNetTx *tx)
{
    virtqueue_push(queue_of(pair), &tx->elem, 0);
    pair->notify = true;
}

static void notify_guest(SluiceNetPair *pair)
{
    if (pair->notify) {
        pair->notify = false;
        virtio_notify(VIRTIO_DEVICE(pair->net->n), queue_of(pair));
    }
}

/* Buffers */

/* Both sides have the same bytes in all; each piece is walked once. */
static void copy_to_pieces(const struct iovec *from, const struct iovec *to,
                           unsigned to_count)
{
    size_t from_offset = 0;

    for (unsigned i = 0; i < to_count; i++) {
        for (size_t done = 0; done < to[i].iov_len; ) {
            size_t bytes = MIN(to[i].iov_len - done,
                               from->iov_len - from_offset);

            memcpy((uint8_t *)to[i].iov_base + done,
                   (const uint8_t *)from->iov_base + from_offset, bytes);
            done += bytes;
            from_offset += bytes;
            if (from_offset == from->iov_len) {
                from_offset = 0;
                from++;
            }
        }
    }
}

/* Points the element at the frame in the buffer. */
static void show_pieces(SluiceNetPair *pair, SluiceNetTx *tx)
{
    tx->elem.out_sg = pair->tx_pieces;
    tx->elem.out_num = shaper_buffer_pieces(&tx->request, pair->tx_pieces);
    tx->elem.in_num = 0;
}

/* Of a frame in the ring; `to` is to wait for it, or is the same. */
static bool move_to_buffer(SluiceNetPair *pair, SluiceNetTx *tx,
                           SluiceNetTx *to)
{
    unsigned count;

    if (!shaper_buffer_take(&to->request, iov_size(tx->elem.out_sg,
                                                   tx->elem.out_num))) {
        return false;
    }
    count = shaper_buffer_pieces(&to->request, pair->tx_pieces);
    copy_to_pieces(tx->elem.out_sg, pair->tx_pieces, count);
    trace_sluice_net_tx_buffer(pair->net->n, pair->index,
                               to->request.node.class_index,
                               to->request.pooled.bytes);
    /* Last: a ring can lie where writing resets the device, and frees `to`. */
    return_descriptors(pair, tx);
    return true;
}

/* Drops a frame that is counted as dropped. */
static void dispose(SluiceNetPair *pair, SluiceNetTx *tx)
{
    if (in_buffer(tx)) {
        shaper_buffer_give(&tx->request);
    } else {
        return_descriptors(pair, tx);
    }
    g_free(tx);
}

/* Where the ring is being reset: nothing goes into it any more. */
static void dispose_detached(SluiceNetPair *pair, SluiceNetTx *tx)
{
    if (in_buffer(tx)) {
        shaper_buffer_give(&tx->request);
    } else {
        virtqueue_detach_element(queue_of(pair), &tx->elem, 0);
    }
    g_free(tx);
}

/* Drops a frame, and counts it. */
static void drop(SluiceNetPair *pair, SluiceNetTx *tx, ShaperDropReason reason)
{
    bool buffered = in_buffer(tx);

    shaper_drop(&tx->request, reason);
    if (!buffered) {
        return_descriptors(pair, tx);
    }
    g_free(tx);
}

/* Judging */

/*
 * Whether the device has anything to send of an element of that many bytes. It
 * finds fault with an element that is nothing but a header, and the network layer
 * drops frames that are too large. Neither may be charged: descriptors can name the same
 * memory over and over, and 4 GiB that are never sent would be paid for by all
 * of a group.
 */
static bool device_sends(const VirtIONet *n, size_t size)
{
    return size > n->guest_hdr_len
           && size - n->guest_hdr_len + n->host_hdr_len <= NET_BUFSIZE;
}

/*
 * Of a frame that is to wait in a buffer, only its bytes and its place in the shaper
 * stay. Its element has memory for all its pieces, which a guest may make a thousand.
 * Most frames do not wait: so it is made for one that did, and kept for the next.
 */
static SluiceNetTx *bare_of(SluiceNetPair *pair, const SluiceNetTx *tx)
{
    if (!pair->bare) {
        pair->bare = g_new0(SluiceNetTx, 1);
    }
    pair->bare->request = tx->request;
    pair->bare->header_bytes = tx->header_bytes;
    return pair->bare;
}

/*
 * An element that the device does not send is not shaped: its fault is the device's
 * affair. It is never put in a buffer, so one that is there came with a migration; it
 * goes no further. `bare` is set if it may wait in a buffer only.
 */
static ShaperVerdict submit(SluiceNetPair *pair, SluiceNetTx *tx,
                            SluiceNetTx **bare)
{
    VirtIONet *n = pair->net->n;
    size_t size, head_bytes;
    uint8_t head[SLUICE_FRAME_HEAD_BYTES];
    unsigned tag;

    if (in_buffer(tx)) {
        show_pieces(pair, tx);
    }
    size = iov_size(tx->elem.out_sg, tx->elem.out_num);
    if (!device_sends(n, size)) {
        return in_buffer(tx) ? SHAPER_DROP : SHAPER_PASS;
    }
    tx->header_bytes = n->guest_hdr_len;
    head_bytes = iov_to_buf(tx->elem.out_sg, tx->elem.out_num,
                            n->guest_hdr_len, head, sizeof(head));
    shaper_request_again(&tx->request);
    tag = sluice_net_classify(pair->net, SHAPER_RESOURCE_NET_TX, head, head_bytes,
                              &tx->request);
    tx->request.opens_connection = false;       /* counted where they come in */
    if (must_leave_ring(pair, tx)) {
        *bare = bare_of(pair, tx);
    }
    return shaper_submit(&pair->client, &(*bare ? *bare : tx)->request,
                         SHAPER_RESOURCE_NET_TX, tag, size - n->guest_hdr_len,
                         *bare ? size : 0, shaper_request_now_ns());
}

/* Before a frame is sent that is to carry the mark of congestion. */
static void write_mark(SluiceNetPair *pair, SluiceNetTx *tx)
{
    if (tx->request.signal == SHAPER_SIGNAL_MARK
        && (in_buffer(tx) || move_to_buffer(pair, tx, tx))) {
        sluice_net_mark(&tx->request, tx->header_bytes);
    }
}

/* The frame is held in its bare form, which has no descriptors. */
static void hold_in_buffer(SluiceNetPair *pair, SluiceNetTx *tx,
                           SluiceNetTx *bare)
{
    if (move_to_buffer(pair, tx, bare)) {
        pair->bare = NULL;
    } else {
        shaper_drop(&bare->request, SHAPER_DROP_BACKLOG);
        return_descriptors(pair, tx);
    }
    g_free(tx);
}

/* True: the frame may be sent. Else it is held, or gone. */
static bool judge(SluiceNetPair *pair, SluiceNetTx *tx)
{
    SluiceNetTx *bare = NULL;

    switch (submit(pair, tx, &bare)) {
    case SHAPER_PASS:
        if (bare) {
            tx->request = bare->request;
        }
        write_mark(pair, tx);
        return true;
    case SHAPER_HOLD:
        if (bare) {
            hold_in_buffer(pair, tx, bare);
        }
        return false;
    default:
        dispose(pair, tx);
        return false;
    }
}

/* The next that was held and may be sent; those that may not go. */
static SluiceNetTx *take_released(SluiceNetPair *pair)
{
    SluiceNetTx *tx;

    while ((tx = tx_of(shaper_client_take_frame(&pair->client,
                                                SHAPER_RESOURCE_NET_TX)))) {
        if (tx->request.signal == SHAPER_SIGNAL_DROP) {
            dispose(pair, tx);
        } else if (tx->header_bytes != pair->net->n->guest_hdr_len) {
            tx->request.paid = true;    /* and goes nowhere */
            drop(pair, tx, SHAPER_DROP_RESET);
        } else {
            write_mark(pair, tx);
            return tx;
        }
    }
    return NULL;
}

static SluiceNetTx *take_stopped(SluiceNetPair *pair)
{
    SluiceNetTx *tx = QSIMPLEQ_FIRST(&pair->stopped);

    if (tx) {
        QSIMPLEQ_REMOVE_HEAD(&pair->stopped, next);
        tx->resumed = true;
    }
    return tx;
}

static SluiceNetTx *take_new(SluiceNetPair *pair, VirtQueue *vq)
{
    SluiceNetTx *tx = take_stopped(pair);

    if (!tx) {
        tx = virtqueue_pop(vq, sizeof(SluiceNetTx));
        if (tx) {
            shaper_request_init(&tx->request);
            tx->resumed = false;
        }
    }
    return tx;
}

static SluiceNetTx *next_to_send(SluiceNetPair *pair, VirtQueue *vq)
{
    for (; pair->budget; pair->budget--) {
        SluiceNetTx *tx;

        shaper_client_release(&pair->client, SHAPER_RESOURCE_NET_TX);
        tx = take_released(pair);
        if (!tx) {
            tx = take_new(pair, vq);
            if (tx && !judge(pair, tx)) {
                continue;
            }
        }
        if (!tx) {
            pair->budget = BUDGET;
        }
        return tx;
    }
    pair->budget = BUDGET;
    qemu_bh_schedule(pair->again);
    return NULL;
}

void *sluice_net_tx_pop(VirtIONet *n, VirtQueue *vq)
{
    SluiceNetPair *pair = sluice_net_tx_pair(n, vq);
    SluiceNetTx *tx;

    /*
     * Else a late completion would hold frames that migration misses, or a frame that
     * waits for the network would be purged and the next one wait instead.
     */
    if (!VIRTIO_DEVICE(n)->vm_running || pair->closed) {
        return NULL;
    }
    shaper_channel_kick(n->shaper);
    tx = next_to_send(pair, vq);
    if (tx && in_buffer(tx)) {
        show_pieces(pair, tx);
    }
    notify_guest(pair);
    return tx;
}

bool sluice_net_tx_sent(VirtIONet *n, void *elem)
{
    SluiceNetTx *tx = elem;

    if (!in_buffer(tx)) {
        return false;
    }
    shaper_buffer_give(&tx->request);
    return true;
}

/* Stop, link down, reset */

/* Condemned frames are not kept, but disposed of. */
static void withdraw(SluiceNetPair *pair,
                     void (*dispose_fn)(SluiceNetPair *, SluiceNetTx *))
{
    QSIMPLEQ_HEAD(, SluiceNetTx) newer = QSIMPLEQ_HEAD_INITIALIZER(newer);
    SluiceNetTx *tx;

    QSIMPLEQ_CONCAT(&newer, &pair->stopped);
    while ((tx = tx_of(shaper_client_withdraw(&pair->client,
                                              SHAPER_RESOURCE_NET_TX)))) {
        if (tx->request.signal == SHAPER_SIGNAL_DROP) {
            dispose_fn(pair, tx);
        } else {
            QSIMPLEQ_INSERT_TAIL(&pair->stopped, tx, next);
        }
    }
    QSIMPLEQ_CONCAT(&pair->stopped, &newer);
}

void sluice_net_tx_withdraw(SluiceNetPair *pair)
{
    withdraw(pair, dispose);
    notify_guest(pair);
}

/* Drops and counts the frames in buffers, and disposes of the rest. Returns how many. */
static unsigned drop_stopped(SluiceNetPair *pair,
                             void (*dispose_fn)(SluiceNetPair *, SluiceNetTx *))
{
    unsigned frames = 0;
    SluiceNetTx *tx;

    while ((tx = take_stopped(pair))) {
        if (in_buffer(tx)) {
            shaper_drop(&tx->request, SHAPER_DROP_RESET);
            g_free(tx);
        } else {
            shaper_forget(&tx->request);
            dispose_fn(pair, tx);
        }
        frames++;
    }
    return frames;
}

void sluice_net_tx_drop(VirtIONet *n, VirtQueue *vq)
{
    SluiceNetPair *pair = sluice_net_tx_pair(n, vq);
    unsigned frames;

    sluice_net_tx_withdraw(pair);
    frames = drop_stopped(pair, dispose);
    if (frames) {
        trace_sluice_net_tx_drop(n, pair->index, frames);
    }
    notify_guest(pair);
}

void sluice_net_tx_close(VirtIONet *n, unsigned index)
{
    n->sluice->pairs[index].closed = true;
}

void sluice_net_tx_open(VirtIONet *n, unsigned index)
{
    SluiceNetPair *pair = &n->sluice->pairs[index];

    pair->closed = false;
    qemu_bh_schedule(pair->again);
}

void sluice_net_tx_reset(VirtIONet *n, unsigned index)
{
    SluiceNetPair *pair = &n->sluice->pairs[index];

    qemu_bh_cancel(pair->again);
    pair->closed = false;
    withdraw(pair, dispose_detached);
    drop_stopped(pair, dispose_detached);
}

/* Life cycle */

/* As if the guest had notified its queue. That would go by an eventfd, and come back in
 * the next turn of the main loop: where it only schedules a bottom half, so do we. */
void sluice_net_tx_kick(SluiceNetPair *pair)
{
    VirtIONet *n = pair->net->n;
    VirtIODevice *vdev = VIRTIO_DEVICE(n);
    VirtIONetQueue *q = &n->vqs[pair->index];
    unsigned index = pair->index * 2 + 1;

    if (q->tx_bh && vdev->vm_running && !vdev->broken
        && (n->status & VIRTIO_NET_S_LINK_UP)
        && virtio_queue_get_desc_addr(vdev, index)) {
        if (!q->tx_waiting) {
            q->tx_waiting = 1;
            virtio_queue_set_notification(q->tx_vq, 0);
            qemu_bh_schedule(q->tx_bh);
        }
    } else {
        virtio_queue_notify(vdev, index);
    }
}

static void read_on_bh(void *opaque)
{
    sluice_net_tx_kick(opaque);
}

SluiceNetTx *sluice_net_tx_load(SluiceNetPair *pair, size_t bytes)
{
    SluiceNetTx *tx = g_new0(SluiceNetTx, 1);

    tx->request.client = &pair->client;
    tx->request.resource = SHAPER_RESOURCE_NET_TX;
    if (!shaper_buffer_load(&tx->request, bytes)) {
        g_free(tx);
        return NULL;
    }
    show_pieces(pair, tx);
    return tx;
}

void sluice_net_tx_init(SluiceNetPair *pair)
{
    QSIMPLEQ_INIT(&pair->stopped);
    pair->budget = BUDGET;
    pair->again = virtio_bh_new_guarded(DEVICE(pair->net->n), read_on_bh, pair);
}

void sluice_net_tx_destroy(SluiceNetPair *pair)
{
    qemu_bh_delete(pair->again);
    g_free(pair->bare);
}
