/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of a queue's reset while the network takes no frames: a frame waits
 * there, and more are in the ring.
 */
#include "qemu/osdep.h"
#include "standard-headers/linux/virtio_pci.h"
#include "sluice-frames.h"

#define BATCH           5
#define BULK            DSCP_OF_TAG(2)

static void reset_queue(Net *net, unsigned queue)
{
    QVirtioPCIDevice *pci = net->pci;

    qpci_io_writew(pci->pdev, pci->bar,
                   pci->common_cfg_offset + VIRTIO_PCI_COMMON_Q_SELECT, queue);
    qpci_io_writew(pci->pdev, pci->bar,
                   pci->common_cfg_offset + VIRTIO_PCI_COMMON_Q_RESET, 1);
}

/*
 * The network is full, so the ring is not read. The reset ends the frame that
 * waits for the network, upon which the device reads on: frames that it finds there
 * must not stay behind in the shaper.
 */
static void test_queue_reset(void)
{
    Net *net = net_new("");

    limit_class(net, "bulk", 2, "net-tx");
    block_network(net, BULK);
    guest_send_many(net, BULK, 1, BATCH);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    reset_queue(net, TX_QUEUE);
    g_assert_cmpint(backlog(net, "bulk", "net-tx"), ==, 0);
    g_assert_cmpint(admitted(net, "bulk", "net-tx"), ==, 1);
    net_free(net);
}

/* Nor may it wait for the network itself, where a reset expects nothing more. */
static void test_queue_reset_unlimited(void)
{
    Net *net = net_new("");
    int64_t before;

    block_network(net, DSCP_NONE);
    before = admitted(net, "default", "net-tx");
    guest_send_many(net, DSCP_NONE, 1, BATCH);
    reset_queue(net, TX_QUEUE);
    g_assert_cmpint(admitted(net, "default", "net-tx"), ==, before);
    net_free(net);
}

/* The queue that is not reset goes on, without the frame that waited. */
static void test_receive_queue_reset(void)
{
    Net *net = net_new("");
    uint8_t number;

    block_network(net, DSCP_NONE);
    guest_send_many(net, DSCP_NONE, 1, BATCH);
    reset_queue(net, RX_QUEUE);
    do {
        number = next_sent(net);
    } while (number == 0);
    g_assert_cmpint(number, ==, 1);
    for (unsigned n = 2; n <= BATCH; n++) {
        check_sent(net, n);
    }
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/reset/held", test_queue_reset);
    qtest_add_func("/sluice/net/reset/unlimited", test_queue_reset_unlimited);
    qtest_add_func("/sluice/net/reset/receive-queue", test_receive_queue_reset);
    return g_test_run();
}
