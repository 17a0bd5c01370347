/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of drivers of network cards that are hard on the shaper: they change the virtio
 * header while frames are held, send frames that no network takes, and refuse frames
 * that are not for them.
 */
#include "qemu/osdep.h"
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include "sluice-frames.h"

#define BULK        DSCP_OF_TAG(2)
#define IN_RING     40
#define BUFFERED    20
#define LEGACY      ",disable-modern=on"
#define TAP         "sluicetap0"
/* The largest frame that QEMU's network layer takes: NET_BUFSIZE. */
#define FRAME_MAX   (4096 + 65536)
#define PIECE       4096

/* The virtio header: 10 bytes, or 12 with the number of merged buffers. */
#define SHORT_HEADER    0
#define LONG_HEADER     (1ull << VIRTIO_NET_F_MRG_RXBUF)

/*
 * Negotiates as a driver of the time before VIRTIO_F_VERSION_1, which never says
 * that its features are final: it can write them at any time.
 */
static void legacy_features(Net *net, uint64_t header)
{
    uint64_t features = qvirtio_get_features(net->dev);

    features &= ~(QVIRTIO_F_BAD_FEATURE
                  | (1ull << VIRTIO_RING_F_EVENT_IDX)
                  | (1ull << VIRTIO_NET_F_MRG_RXBUF));
    qvirtio_set_features(net->dev, features | header);
}

static void legacy_start(Net *net, uint64_t header)
{
    net->pci = start_device(net->qs, SLOT);
    net->dev = &net->pci->vdev;
    legacy_features(net, header);
    for (unsigned i = 0; i < ARRAY_SIZE(net->queues); i++) {
        net->queues[i] = qvirtqueue_setup(net->dev, &net->qs->alloc, i);
    }
    qvirtio_set_driver_ok(net->dev);
}

static void check_length_sent(Net *net, uint32_t bytes)
{
    uint8_t frame[FRAME_MAX];

    g_assert_cmpint(next_frame(net, frame, sizeof(frame)), ==, bytes);
}

/* Another class comes: frames that wait from then on are kept in a buffer. */
static void share_ring(Net *net)
{
    limit_class(net, "other", 1, "blk-read");
}

/*
 * Of frames with a header of `header` the first is sent, IN_RING wait in the ring, from
 * when it was not shared, and BUFFERED, which have two bytes behind the header, in the
 * buffer.
 */
static Net *hold_frames(Ring *ring, uint64_t header)
{
    static const uint8_t zeros[FRAME_BYTES];
    /* ring_send() puts 12 bytes before its bytes. */
    unsigned more = header == LONG_HEADER ? 0 : 2;
    Net *net = g_new0(Net, 1);

    net_boot(net, LEGACY, "");
    legacy_start(net, header);
    limit_class(net, "default", 0, "net-tx");
    ring_init(ring, net);
    for (unsigned i = 0; i < 1 + IN_RING; i++) {
        ring_send(ring, zeros, FRAME_BYTES - more);
    }
    check_length_sent(net, FRAME_BYTES);
    wait_for(ring_taken(ring) == IN_RING);
    share_ring(net);
    for (unsigned i = 0; i < BUFFERED; i++) {
        ring_send(ring, zeros, 2 - more);
    }
    wait_for(buffered(net, "default", "net-tx") == BUFFERED);
    wait_for(ring_taken(ring) == IN_RING);
    return net;
}

/* A frame sent now has a header of 12 bytes, or of 10 and two more. */
static void check_still_sends(Ring *ring, uint64_t header)
{
    static const uint8_t zeros[FRAME_BYTES];
    Net *net = ring->net;

    wait_for(ring_taken(ring) == 0);
    g_assert_cmpint(buffered(net, "default", "net-tx"), ==, 0);
    qtest_clock_step(net->qts, FRAME_NS);
    ring_send(ring, zeros, FRAME_BYTES);
    check_length_sent(net, FRAME_BYTES + (header == LONG_HEADER ? 0 : 2));
    wait_for(ring_taken(ring) == 0);
    check_nothing_sent(net);
}

static void check_header_changes(uint64_t from, uint64_t to)
{
    Ring ring;
    Net *net = hold_frames(&ring, from);

    legacy_features(net, to);
    qtest_clock_step(net->qts, (IN_RING + BUFFERED) * FRAME_NS);
    wait_for(drops_of(net, "default", "net-tx", "reset") == IN_RING + BUFFERED);
    check_nothing_sent(net);
    check_still_sends(&ring, to);
    net_free(net);
}

static void test_header_grows(void)
{
    check_header_changes(SHORT_HEADER, LONG_HEADER);
}

static void test_header_shrinks(void)
{
    check_header_changes(LONG_HEADER, SHORT_HEADER);
}

/* After a stop all are judged anew, by the header that there is then. */
static void test_header_grows_stop(void)
{
    Ring ring;
    Net *net = hold_frames(&ring, SHORT_HEADER);

    legacy_features(net, LONG_HEADER);
    qmp_ok(net->qts, "{'execute': 'stop'}");
    qmp_ok(net->qts, "{'execute': 'cont'}");
    qtest_clock_step(net->qts, (IN_RING + BUFFERED) * FRAME_NS);
    for (unsigned i = 0; i < IN_RING; i++) {
        check_length_sent(net, FRAME_BYTES - 2);
    }
    /* Those in the buffer are nothing but a header now. */
    check_still_sends(&ring, LONG_HEADER);
    net_free(net);
}

/* A header, and `pieces` times the same memory. */
static void send_pieces(Net *net, unsigned pieces, uint32_t piece_bytes,
                        unsigned more)
{
    QVirtQueue *vq = net->queues[TX_QUEUE];
    uint64_t address = guest_alloc(&net->qs->alloc, HEADER_BYTES + piece_bytes);
    uint32_t head;

    qtest_memset(net->qts, address, 0, HEADER_BYTES);
    head = qvirtqueue_add(net->qts, vq, address, HEADER_BYTES, false, true);
    for (unsigned i = 1; i < pieces; i++) {
        qvirtqueue_add(net->qts, vq, address + HEADER_BYTES, piece_bytes, false,
                       true);
    }
    qvirtqueue_add(net->qts, vq, address + HEADER_BYTES, piece_bytes + more,
                   false, false);
    qvirtqueue_kick(net->qts, net->dev, vq, head);
}

/* A frame that no network takes is dropped at once, and costs its class nothing. */
static void test_too_large(void)
{
    Net *net = net_new("");
    QVirtQueue *vq = net->queues[TX_QUEUE];

    limit_class(net, "default", 0, "net-tx");
    send_pieces(net, 64, 4 * 1024 * 1024, 0);
    send_pieces(net, FRAME_MAX / PIECE, PIECE, 1);
    wait_for(used_count(net->qts, vq) == 2);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 0);
    guest_send_many(net, DSCP_NONE, 1, 2);
    check_sent(net, 1);
    wait_for(backlog(net, "default", "net-tx") == 1);
    /* Nor does it wait for those that do. */
    send_pieces(net, FRAME_MAX / PIECE, PIECE, 1);
    wait_for(used_count(net->qts, vq) == 4);
    qtest_clock_step(net->qts, FRAME_NS);
    check_sent(net, 2);
    check_nothing_sent(net);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, 2);
    g_assert_cmpint(stat_of(net->qts, "default", "net-tx", "bytes"), ==,
                    2 * FRAME_BYTES);
    net_free(net);
}

/* One byte less is sent, and paid for. */
static void test_largest(void)
{
    Net *net = net_new("");

    limit_class(net, "default", 0, "net-tx");
    send_pieces(net, FRAME_MAX / PIECE, PIECE, 0);
    check_length_sent(net, FRAME_MAX);
    g_assert_cmpint(stat_of(net->qts, "default", "net-tx", "bytes"), ==,
                    FRAME_MAX);
    guest_send(net, DSCP_NONE, 1);
    wait_for(backlog(net, "default", "net-tx") == 1);
    qtest_clock_step(net->qts, FRAME_MAX / FRAME_BYTES * FRAME_NS);
    check_sent(net, 1);
    net_free(net);
}

/* The driver's command: from now on only frames for this card. */
static void leave_promiscuous(Net *net)
{
    QVirtQueue *vq = net->queues[2];
    uint64_t command = guest_alloc(&net->qs->alloc, 4);
    uint32_t head;

    qtest_writeb(net->qts, command, VIRTIO_NET_CTRL_RX);
    qtest_writeb(net->qts, command + 1, VIRTIO_NET_CTRL_RX_PROMISC);
    qtest_writeb(net->qts, command + 2, 0);
    qtest_writeb(net->qts, command + 3, VIRTIO_NET_ERR);
    head = qvirtqueue_add(net->qts, vq, command, 3, false, true);
    qvirtqueue_add(net->qts, vq, command + 3, 1, true, false);
    qvirtqueue_kick(net->qts, net->dev, vq, head);
    wait_for(qtest_readb(net->qts, command + 3) == VIRTIO_NET_OK);
}

/* To a neighbour on the bridge, or to a group that the card has not joined. */
static void send_to_others(Net *net, bool multicast)
{
    uint8_t frame[FRAME_BYTES];

    make_frame(frame, DSCP_NONE, 99);
    memset(frame, 0, 6);
    frame[0] = multicast ? 0x01 : 0x02;
    frame[5] = 0x77;
    network_send_bytes(net, frame, sizeof(frame));
}

/* A frame that the card's own filter discards is not charged, held or buffered. */
static void test_filter(void)
{
    Net *net = net_new("");
    uint64_t buffers[4];

    leave_promiscuous(net);
    limit_class(net, "default", 0, "net-rx");
    post_buffers(net, buffers, 4);
    for (unsigned i = 0; i < 3; i++) {
        send_to_others(net, i % 2);
    }
    network_send(net, DSCP_NONE, 1);
    wait_for(received(net) == 1);
    g_assert_cmpint(number_in(net, buffers[0]), ==, 1);
    g_assert_cmpint(admitted(net, "default", "net-rx"), ==, 1);
    network_send(net, DSCP_NONE, 2);
    wait_for(backlog(net, "default", "net-rx") == 1);
    send_to_others(net, false);
    network_send(net, DSCP_NONE, 3);
    wait_for(backlog(net, "default", "net-rx") == 2);
    g_assert_cmpint(buffered(net, "default", "net-rx"), ==, 2);
    qtest_clock_step(net->qts, 2 * FRAME_NS);
    wait_for(received(net) == 3);
    g_assert_cmpint(number_in(net, buffers[1]), ==, 2);
    g_assert_cmpint(number_in(net, buffers[2]), ==, 3);
    g_assert_cmpint(stat_of(net->qts, "default", "net-rx", "bytes"), ==,
                    3 * FRAME_BYTES);
    net_free(net);
}

/* A frame from a tap has the header of its driver; in a network of its own. */

static bool may_make_taps(void)
{
    return access("/dev/net/tun", R_OK | W_OK) == 0
           && unshare(CLONE_NEWNET) == 0;
}

/* The host's end of the tap, up. */
static void open_tap(Net *net)
{
    struct ifreq request = { .ifr_name = TAP };
    struct sockaddr_ll address = { .sll_family = AF_PACKET };

    net->socket = socket(AF_PACKET, SOCK_RAW, 0);
    g_assert_cmpint(net->socket, >=, 0);
    g_assert_cmpint(ioctl(net->socket, SIOCGIFFLAGS, &request), ==, 0);
    request.ifr_flags |= IFF_UP;
    g_assert_cmpint(ioctl(net->socket, SIOCSIFFLAGS, &request), ==, 0);
    g_assert_cmpint(ioctl(net->socket, SIOCGIFINDEX, &request), ==, 0);
    address.sll_ifindex = request.ifr_ifindex;
    g_assert_cmpint(bind(net->socket, (struct sockaddr *)&address,
                         sizeof(address)), ==, 0);
}

static void tap_send_many(Net *net, unsigned dscp, uint8_t first,
                          unsigned count)
{
    uint8_t frame[FRAME_BYTES];

    for (unsigned i = 0; i < count; i++) {
        make_frame(frame, dscp, first + i);
        g_assert_cmpint(send(net->socket, frame, sizeof(frame), 0), ==,
                        sizeof(frame));
    }
}

/* The host itself sends there too: frames that say that the tap is up. */
static bool has_received(Net *net, const uint64_t *buffers, uint8_t number)
{
    for (unsigned i = 0; i < received(net); i++) {
        if (number_in(net, buffers[i]) == number) {
            return true;
        }
    }
    return false;
}

/* Received frames that wait with the old header are not taken for others. */
static void test_header_grows_receive(void)
{
    Net *net = g_new0(Net, 1);
    uint64_t buffers[64];

    if (!may_make_taps()) {
        g_test_skip("no right to make a tap in a network of its own");
        g_free(net);
        return;
    }
    net->qs = qtest_pc_boot("-object shaper,id=sluice0 -netdev tap,id=hs0,"
                            "ifname=" TAP ",script=no,downscript=no,vhost=off "
                            "-device virtio-net-pci,id=net0,netdev=hs0,"
                            "addr=%d,shaper=sluice0,shaper-dscp=both" LEGACY, SLOT);
    net->qts = net->qs->qts;
    legacy_start(net, SHORT_HEADER);
    open_tap(net);
    post_buffers(net, buffers, 64);
    set_bulk(net, "net-rx", "");
    tap_send_many(net, BULK, 1, 5);
    wait_for(backlog(net, "bulk", "net-rx") == 4);
    legacy_features(net, LONG_HEADER);
    qtest_clock_step(net->qts, 10 * FRAME_NS);
    wait_for(drops_of(net, "bulk", "net-rx", "reset") == 4);
    g_assert_cmpint(buffered(net, "bulk", "net-rx"), ==, 0);
    /* A frame that comes with the new header is taken as it is. */
    tap_send_many(net, BULK, 0xa9, 1);
    wait_for(admitted(net, "bulk", "net-rx") == 6);
    wait_for(has_received(net, buffers, 0xa9));
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/driver/header-grows", test_header_grows);
    qtest_add_func("/sluice/net/driver/header-shrinks", test_header_shrinks);
    qtest_add_func("/sluice/net/driver/header-grows-stop",
                   test_header_grows_stop);
    qtest_add_func("/sluice/net/driver/too-large", test_too_large);
    qtest_add_func("/sluice/net/driver/largest", test_largest);
    qtest_add_func("/sluice/net/driver/filter", test_filter);
    /* Last: from here on the program is in another network. */
    qtest_add_func("/sluice/net/driver/header-grows-receive",
                   test_header_grows_receive);
    return g_test_run();
}
