/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of receive side scaling by QEMU: a frame that comes by one queue of the
 * backend waits for the buffers of another queue. Only a tap has several; it is
 * in a network of its own.
 */
#include "qemu/osdep.h"
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include "sluice-frames.h"

#define TAP             "sluicetap0"
#define PAIRS           2
#define CONTROL_QUEUE   (2 * PAIRS)
#define TARGET_QUEUE    2               /* of the second pair, receives */
#define FRAMES          64
#define RX_BUFFERS      128             /* the host sends there too */
/* With the hash of the frame, which only QEMU itself can write. */
#define HASH_HEADER_BYTES   sizeof(struct virtio_net_hdr_v1_hash)
#define SOURCE_OFFSET   (14 + 12)       /* of IPv4 */

static bool may_make_taps(void)
{
    return access("/dev/net/tun", R_OK | W_OK) == 0
           && unshare(CLONE_NEWNET) == 0;
}

/* The host's end of the tap, up. */
static int open_tap(void)
{
    struct ifreq request = { .ifr_name = TAP };
    struct sockaddr_ll address = { .sll_family = AF_PACKET };
    int fd = socket(AF_PACKET, SOCK_RAW, 0);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ioctl(fd, SIOCGIFFLAGS, &request), ==, 0);
    request.ifr_flags |= IFF_UP;
    g_assert_cmpint(ioctl(fd, SIOCSIFFLAGS, &request), ==, 0);
    g_assert_cmpint(ioctl(fd, SIOCGIFINDEX, &request), ==, 0);
    address.sll_ifindex = request.ifr_ifindex;
    g_assert_cmpint(bind(fd, (struct sockaddr *)&address, sizeof(address)),
                    ==, 0);
    return fd;
}

/* From as many addresses: the kernel spreads them over the tap's queues. */
static void send_flows(int tap)
{
    uint8_t frame[FRAME_BYTES];

    for (unsigned i = 0; i < FRAMES; i++) {
        make_ip_frame(frame, DSCP_NONE, 0, 0, 1 + i);
        frame[SOURCE_OFFSET] = 10;
        frame[SOURCE_OFFSET + 3] = 1 + i;
        g_assert_cmpint(send(tap, frame, sizeof(frame), 0), ==, sizeof(frame));
    }
}

/* The driver's command: both pairs, and every frame to the second. */
static void steer_to_second(Net *net, QVirtQueue *control)
{
    uint8_t command[] = {
        VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG,
        0, 0, 0, 0,             /* no type of frame has a hash */
        0, 0,                   /* a table of one entry */
        1, 0,                   /* the queue of frames without a hash */
        1, 0,                   /* the entry */
        PAIRS, 0,
        1, 0,                   /* a key of one byte */
    };
    uint64_t address = guest_alloc(&net->qs->alloc, sizeof(command) + 1);
    uint64_t status = address + sizeof(command);
    uint32_t head;

    qtest_memwrite(net->qts, address, command, sizeof(command));
    qtest_writeb(net->qts, status, VIRTIO_NET_ERR);
    head = qvirtqueue_add(net->qts, control, address, 2, false, true);
    qvirtqueue_add(net->qts, control, address + 2, sizeof(command) - 2, false,
                   true);
    qvirtqueue_add(net->qts, control, status, 1, true, false);
    qvirtqueue_kick(net->qts, net->dev, control, head);
    wait_for(qtest_readb(net->qts, status) == VIRTIO_NET_OK);
}

static void steer_start(Net *net, QVirtQueue *queues[CONTROL_QUEUE + 1])
{
    net->qs = qtest_pc_boot("-object shaper,id=sluice0 -netdev tap,id=hs0,"
                            "ifname=" TAP ",script=no,downscript=no,vhost=off,"
                            "queues=%d -device virtio-net-pci,id=net0,"
                            "netdev=hs0,addr=%d,mq=on,rss=on,hash=on,"
                            "shaper=sluice0", PAIRS, SLOT);
    net->qts = net->qs->qts;
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    qvirtio_set_features(net->dev, qvirtio_get_features(net->dev)
                                   & ~(QVIRTIO_F_BAD_FEATURE
                                       | 1ull << VIRTIO_RING_F_EVENT_IDX));
    for (unsigned i = 0; i <= CONTROL_QUEUE; i++) {
        queues[i] = qvirtqueue_setup(net->dev, &net->qs->alloc, i);
    }
    qvirtio_set_driver_ok(net->dev);
    steer_to_second(net, queues[CONTROL_QUEUE]);
}

static bool is_there(Net *net, const uint64_t *buffers, unsigned count,
                     uint8_t number)
{
    for (unsigned i = 0; i < count; i++) {
        if (qtest_readb(net->qts, buffers[i] + HASH_HEADER_BYTES
                                  + NUMBER_OFFSET) == number) {
            return true;
        }
    }
    return false;
}

/* Each pair has a frame that waits for one and the same ring. */
static void test_steered_frames_wait(void)
{
    Net net = { 0 };
    QVirtQueue *queues[CONTROL_QUEUE + 1], *target;
    uint64_t buffers[RX_BUFFERS];
    int tap;

    if (!may_make_taps()) {
        g_test_skip("no right to make a tap in a network of its own");
        return;
    }
    steer_start(&net, queues);
    target = queues[TARGET_QUEUE];
    tap = open_tap();
    send_flows(tap);
    wait_for(admitted(&net, "default", "net-rx") == PAIRS);
    for (unsigned i = 0; i < RX_BUFFERS; i++) {
        uint32_t bytes = HASH_HEADER_BYTES + FRAME_BYTES;

        buffers[i] = guest_alloc(&net.qs->alloc, bytes);
        qtest_memset(net.qts, buffers[i], 0, bytes);
        qvirtqueue_kick(net.qts, net.dev, target,
                        qvirtqueue_add(net.qts, target, buffers[i], bytes, true,
                                       false));
    }
    wait_for(used_count(net.qts, target) >= FRAMES);
    for (unsigned n = 1; n <= FRAMES; n++) {
        wait_for(is_there(&net, buffers, RX_BUFFERS, n));
    }
    close(tap);
    for (unsigned i = 0; i <= CONTROL_QUEUE; i++) {
        qvirtqueue_cleanup(net.dev->bus, queues[i], &net.qs->alloc);
    }
    qvirtio_pci_device_disable(net.pci);
    qos_object_destroy((QOSGraphObject *)net.pci);
    qtest_shutdown(net.qs);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/steer/frames-wait", test_steered_frames_wait);
    return g_test_run();
}
