/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Held transmit frames on their way to another host: for each queue pair a
 * list of records, each behind a byte for its kind. A frame in the ring
 * travels as its element, one in a buffer as its bytes, virtio header included.
 * Oldest first, so that the order of a class survives where its frames are in
 * both places. The subsection is sent only if there is a frame.
 *
 * Version 1 had no frames in buffers.
 */
#include "qemu/osdep.h"
#include "migration/qemu-file-types.h"
#include "net-internal.h"
#include "qemu/error-report.h"
#include "qemu/iov.h"

#define RECORD_END          0
#define RECORD_ELEMENT      1
#define RECORD_FRAME        2
/* More than any source can hold: a stream with more is damaged. */
#define RECORDS_MAX         (VIRTQUEUE_MAX_SIZE + SLUICE_POOL_CHUNKS_MAX)

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

static void put_frame(QEMUFile *f, SluiceNetPair *pair, const SluiceNetTx *tx)
{
    unsigned count = shaper_buffer_pieces(&tx->request, pair->tx_pieces);

    qemu_put_byte(f, RECORD_FRAME);
    qemu_put_be32(f, tx->request.pooled.bytes);
    for (unsigned i = 0; i < count; i++) {
        qemu_put_buffer(f, pair->tx_pieces[i].iov_base,
                        pair->tx_pieces[i].iov_len);
    }
}

static int stopped_put(QEMUFile *f, void *pv, size_t size,
                       const VMStateField *field, JSONWriter *vmdesc)
{
    VirtIONet *n = pv;

    qemu_put_be32(f, n->sluice->count);
    for (unsigned i = 0; i < n->sluice->count; i++) {
        SluiceNetPair *pair = &n->sluice->pairs[i];
        SluiceNetTx *tx;

        QSIMPLEQ_FOREACH(tx, &pair->stopped, next) {
            if (tx->request.pooled.bytes) {
                put_frame(f, pair, tx);
            } else {
                qemu_put_byte(f, RECORD_ELEMENT);
                qemu_put_virtqueue_element(VIRTIO_DEVICE(n), f, &tx->elem);
            }
        }
        qemu_put_byte(f, RECORD_END);
    }
    return 0;
}

static SluiceNetTx *get_element(QEMUFile *f, SluiceNetPair *pair)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(pair->net->n);
    SluiceNetTx *tx = qemu_get_virtqueue_element(vdev, f, sizeof(SluiceNetTx));

    if (!virtio_host_has_feature(vdev, VIRTIO_F_RING_PACKED)) {
        tx->elem.ndescs = 1;            /* which does not travel */
    }
    shaper_request_init(&tx->request);
    tx->resumed = true;
    return tx;
}

static SluiceNetTx *get_frame(QEMUFile *f, SluiceNetPair *pair)
{
    uint32_t bytes = qemu_get_be32(f);
    SluiceNetTx *tx = sluice_net_tx_load(pair, bytes);

    if (!tx) {
        error_report("virtio-net: a held frame of %" PRIu32 " bytes arrives for "
                     "queue pair %u, but it is too large or memory is short; "
                     "give the shaper the classes that it has on the source",
                     bytes, pair->index);
        return NULL;
    }
    for (unsigned i = 0; i < tx->elem.out_num; i++) {
        size_t piece_bytes = tx->elem.out_sg[i].iov_len;

        if (qemu_get_buffer(f, tx->elem.out_sg[i].iov_base, piece_bytes)
            != piece_bytes) {
            shaper_buffer_give(&tx->request);
            g_free(tx);
            return NULL;                /* the stream has its own error */
        }
    }
    return tx;
}

static int get_pair(QEMUFile *f, SluiceNetPair *pair)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(pair->net->n);
    bool has_queue = virtio_queue_get_num(vdev, pair->index * 2 + 1);

    for (unsigned records = 0; records < RECORDS_MAX; records++) {
        int kind = qemu_get_byte(f);
        SluiceNetTx *tx;

        if (kind == RECORD_END) {
            return 0;
        }
        if (!has_queue) {
            error_report("virtio-net: held frames of queue pair %u arrive, but "
                         "the guest has not got that; migrate again",
                         pair->index);
            return -EINVAL;
        }
        if (kind != RECORD_ELEMENT && kind != RECORD_FRAME) {
            error_report("virtio-net: held frames of queue pair %u arrive with "
                         "a record of kind %d; migrate from a QEMU that is not "
                         "newer than this", pair->index, kind);
            return -EINVAL;
        }
        tx = kind == RECORD_ELEMENT ? get_element(f, pair) : get_frame(f, pair);
        if (!tx) {
            return -EINVAL;
        }
        QSIMPLEQ_INSERT_TAIL(&pair->stopped, tx, next);
    }
    error_report("virtio-net: more than %u held frames arrive for queue pair "
                 "%u", (unsigned)RECORDS_MAX, pair->index);
    return -EINVAL;
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
        int ret = get_pair(f, &n->sluice->pairs[i]);

        if (ret < 0) {
            return ret;
        }
    }
    return 0;
}

const VMStateDescription vmstate_sluice_net = {
    .name = "virtio-net-device/sluice",
    .version_id = 2,
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
