/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A network card with a shaper, driven by a qtest: one pair of queues, frames
 * of 1000 bytes with their number in byte 60. The network is a stream
 * socket, where each frame is preceded by its length.
 */
#ifndef TESTS_SLUICE_NIC_H
#define TESTS_SLUICE_NIC_H

#include <poll.h>
#include "qemu/bswap.h"
#include "qemu/iov.h"
#include "qemu/sockets.h"
#include "standard-headers/linux/virtio_net.h"
#include "sluice-test.h"

#define SLOT            4
#define HEADER_BYTES    sizeof(struct virtio_net_hdr_mrg_rxbuf)
#define FRAME_BYTES     1000
#define FRAME_NS        NS_PER_MS               /* at 1 MB/s */
#define BUFFER_BYTES    (HEADER_BYTES + FRAME_BYTES)
#define NUMBER_OFFSET   60
#define BUFFERS         1024    /* no ring has more frames under way */
#define RX_QUEUE        0
#define TX_QUEUE        1
#define LIMIT_1MBPS     "'bytes-per-second': 1000000, 'burst-bytes': 1000"
#define DSCP_NONE       0
#define DSCP_EF         46
#define DSCP_OF_TAG(t)  ((t) << 2 | 3)

typedef struct Net {
    QOSState *qs;
    QTestState *qts;
    QVirtioPCIDevice *pci;
    QVirtioDevice *dev;
    QVirtQueue *queues[3];
    uint64_t without;           /* features that are not negotiated */
    int socket;
    uint64_t buffers;           /* of frames that the guest sends, BUFFERS */
    unsigned sent;
} Net;

G_GNUC_UNUSED
static void net_boot(Net *net, const char *options, const char *more)
{
    int sockets[2];

    g_assert_cmpint(socketpair(PF_UNIX, SOCK_STREAM, 0, sockets), ==, 0);
    net->socket = sockets[0];
    net->qs = qtest_pc_boot("-object shaper,id=sluice0 "
                            "-netdev socket,fd=%d,id=hs0 %s "
                            "-device virtio-net-pci,id=net0,netdev=hs0,"
                            "addr=%d,shaper=sluice0,shaper-dscp=both%s",
                            sockets[1], more, SLOT, options);
    net->qts = net->qs->qts;
    close(sockets[1]);
}

G_GNUC_UNUSED
static void setup_queues(Net *net)
{
    uint64_t features = qvirtio_get_features(net->dev);

    features &= ~(QVIRTIO_F_BAD_FEATURE | net->without
                  | (1ull << VIRTIO_RING_F_EVENT_IDX));
    qvirtio_set_features(net->dev, features);
    for (unsigned i = 0; i < ARRAY_SIZE(net->queues); i++) {
        net->queues[i] = qvirtqueue_setup(net->dev, &net->qs->alloc, i);
    }
    qvirtio_set_driver_ok(net->dev);
}

G_GNUC_UNUSED
static void cleanup_queues(Net *net, QGuestAllocator *alloc)
{
    for (unsigned i = 0; i < ARRAY_SIZE(net->queues); i++) {
        qvirtqueue_cleanup(net->dev->bus, net->queues[i], alloc);
        net->queues[i] = NULL;
    }
}

G_GNUC_UNUSED
static Net *net_new(const char *options)
{
    Net *net = g_new0(Net, 1);

    net_boot(net, options, "");
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    setup_queues(net);
    return net;
}

/* As above, with a driver that has no indirect descriptors. */
G_GNUC_UNUSED
static Net *net_new_without_indirect(void)
{
    Net *net = net_new("");

    cleanup_queues(net, &net->qs->alloc);
    qvirtio_start_device(net->dev);
    net->without = 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    setup_queues(net);
    return net;
}

/* A QEMU that waits for the machine of another; returns the URI at which it waits. */
G_GNUC_UNUSED
static char *net_boot_target(Net *target, const char *options)
{
    char *uri = g_strdup_printf("unix:%s/sluice-net-%d.sock", g_get_tmp_dir(),
                                getpid());
    g_autofree char *incoming = g_strconcat("-incoming ", uri, NULL);

    *target = (Net){ 0 };
    net_boot(target, options, incoming);
    return uri;
}

G_GNUC_UNUSED
static void net_free(Net *net)
{
    if (net->queues[0]) {
        cleanup_queues(net, &net->qs->alloc);
    }
    qvirtio_pci_device_disable(net->pci);
    qos_object_destroy((QOSGraphObject *)net->pci);
    qtest_shutdown(net->qs);
    close(net->socket);
    g_free(net);
}

/*
 * Both machines of a migration, of which the target has the rest. The guest's memory, with
 * its allocations, has moved along.
 */
G_GNUC_UNUSED
static void net_free_migrated(Net *source, Net *target, char *uri)
{
    cleanup_queues(source, &target->qs->alloc);
    qtest_shutdown(target->qs);
    close(target->socket);
    unlink(uri + strlen("unix:"));
    g_free(uri);
    net_free(source);
}

G_GNUC_UNUSED
static void make_frame(uint8_t frame[FRAME_BYTES], unsigned dscp,
                       uint8_t number)
{
    memset(frame, 0, FRAME_BYTES);
    memset(frame, 0xff, 6);             /* to everybody */
    frame[6] = 0x02;                    /* from a local address */
    frame[12] = 0x08;                   /* IPv4 */
    frame[14] = 0x45;
    frame[15] = dscp << 2;
    frame[NUMBER_OFFSET] = number;
}

/* Guest to network */

G_GNUC_UNUSED
static void guest_send(Net *net, unsigned dscp, uint8_t number)
{
    QVirtQueue *vq = net->queues[TX_QUEUE];
    uint8_t frame[FRAME_BYTES];
    uint64_t address;

    if (!net->buffers) {
        net->buffers = guest_alloc(&net->qs->alloc, BUFFERS * BUFFER_BYTES);
    }
    address = net->buffers + net->sent++ % BUFFERS * BUFFER_BYTES;
    make_frame(frame, dscp, number);
    qtest_memset(net->qts, address, 0, HEADER_BYTES);
    qtest_memwrite(net->qts, address + HEADER_BYTES, frame, sizeof(frame));
    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, false,
                                   false));
}

G_GNUC_UNUSED
static void guest_send_many(Net *net, unsigned dscp, uint8_t first,
                            unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        guest_send(net, dscp, first + i);
    }
}

G_GNUC_UNUSED
static void receive_bytes(Net *net, void *data, size_t bytes)
{
    struct pollfd poll_fd = { .fd = net->socket, .events = POLLIN };

    for (size_t done = 0; done < bytes; ) {
        ssize_t got;

        g_assert_cmpint(poll(&poll_fd, 1, WAIT_US / 1000), ==, 1);
        got = recv(net->socket, (char *)data + done, bytes - done, 0);
        g_assert_cmpint(got, >, 0);
        done += got;
    }
}

/* The next frame on the network, of any kind; returns its length. */
G_GNUC_UNUSED
static uint32_t next_frame(Net *net, uint8_t *frame, size_t room)
{
    uint32_t length;

    receive_bytes(net, &length, sizeof(length));
    length = ntohl(length);
    g_assert_cmpint(length, <=, room);
    receive_bytes(net, frame, length);
    return length;
}

/* The number of the next frame, passing over QEMU's own announcements. */
G_GNUC_UNUSED
static uint8_t next_sent(Net *net)
{
    uint8_t frame[FRAME_BYTES];
    uint32_t length;

    do {
        length = next_frame(net, frame, sizeof(frame));
    } while (lduw_be_p(frame + 12) != 0x0800);
    g_assert_cmpint(length, ==, FRAME_BYTES);
    return frame[NUMBER_OFFSET];
}

G_GNUC_UNUSED
static void check_sent(Net *net, uint8_t number)
{
    g_assert_cmpint(next_sent(net), ==, number);
}

G_GNUC_UNUSED
static void check_nothing_sent(Net *net)
{
    char byte;

    g_assert_cmpint(recv(net->socket, &byte, 1, MSG_DONTWAIT), ==, -1);
    g_assert_cmpint(errno, ==, EAGAIN);
}

/* Of frames 0 to 4 of class bulk the first is sent, the others are held. */
G_GNUC_UNUSED
static void hold_four_tx(Net *net)
{
    limit_class(net, "bulk", 2, "net-tx");
    guest_send_many(net, DSCP_OF_TAG(2), 0, 5);
    wait_for(backlog(net, "bulk", "net-tx") == 4);
    check_sent(net, 0);
    check_nothing_sent(net);
}

/* Network to guest */

G_GNUC_UNUSED
static uint64_t post_buffer(Net *net)
{
    QVirtQueue *vq = net->queues[RX_QUEUE];
    uint64_t address = guest_alloc(&net->qs->alloc, BUFFER_BYTES);

    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, true,
                                   false));
    return address;
}

G_GNUC_UNUSED
static void post_buffers(Net *net, uint64_t *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        buffers[i] = post_buffer(net);
    }
}

G_GNUC_UNUSED
static void network_send_bytes(Net *net, const void *frame, uint32_t bytes)
{
    uint32_t length = htonl(bytes);
    struct iovec iov[] = {
        { .iov_base = &length, .iov_len = sizeof(length) },
        { .iov_base = (void *)frame, .iov_len = bytes },
    };

    g_assert_cmpint(iov_send(net->socket, iov, bytes ? 2 : 1, 0,
                             sizeof(length) + bytes), ==,
                    sizeof(length) + bytes);
}

G_GNUC_UNUSED
static void network_send(Net *net, unsigned dscp, uint8_t number)
{
    uint8_t frame[FRAME_BYTES];

    make_frame(frame, dscp, number);
    network_send_bytes(net, frame, sizeof(frame));
}

G_GNUC_UNUSED
static void network_send_many(Net *net, unsigned dscp, uint8_t first,
                              unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        network_send(net, dscp, first + i);
    }
}

G_GNUC_UNUSED
static uint8_t number_in(Net *net, uint64_t buffer)
{
    return qtest_readb(net->qts, buffer + HEADER_BYTES + NUMBER_OFFSET);
}

#define received(net) used_count((net)->qts, (net)->queues[RX_QUEUE])

/* Of frames 1 to 5 the guest has the first; the others are held. */
G_GNUC_UNUSED
static void hold_four_rx(Net *net, uint64_t buffers[8])
{
    limit_class(net, "bulk", 2, "net-rx");
    post_buffers(net, buffers, 8);
    network_send_many(net, DSCP_OF_TAG(2), 1, 5);
    wait_for(backlog(net, "bulk", "net-rx") == 4);
    wait_for(received(net) == 1);
}

#endif
