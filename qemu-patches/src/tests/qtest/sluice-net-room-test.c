/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QTest of the host's memory for a held frame. */
#include "qemu/osdep.h"
#include "sluice-frames.h"

#define BULK            DSCP_OF_TAG(2)

static uint64_t resident_bytes(Net *net)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/statm",
                                            qtest_pid(net->qts));
    g_autofree char *text = NULL;
    unsigned long total, resident;

    g_assert(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_cmpint(sscanf(text, "%lu %lu", &total, &resident), ==, 2);
    return (uint64_t)resident * getpagesize();
}

/* A frame of as many pieces as it has bytes: one table serves for all. */
static uint64_t make_shredded_frame(Net *net)
{
    uint64_t frame = guest_alloc(&net->qs->alloc, BUFFER_BYTES);
    uint64_t table = guest_alloc(&net->qs->alloc, 16 * BUFFER_BYTES);
    uint8_t bytes[FRAME_BYTES];

    make_ip_frame(bytes, BULK, 0, 0, 0);
    qtest_memset(net->qts, frame, 0, HEADER_BYTES);
    qtest_memwrite(net->qts, frame + HEADER_BYTES, bytes, sizeof(bytes));
    for (unsigned i = 0; i < BUFFER_BYTES; i++) {
        bool last = i == BUFFER_BYTES - 1;

        qtest_writeq(net->qts, table + 16 * i, frame + i);
        qtest_writel(net->qts, table + 16 * i + 8, 1);
        qtest_writel(net->qts, table + 16 * i + 12,
                     last ? 0 : VRING_DESC_F_NEXT | (i + 1) << 16);
    }
    return table;
}

/* A buffer takes its bytes, however many pieces the guest makes of them. */
static void test_shredded_frames(void)
{
    const unsigned count = 4096;
    Net *net = net_new("");
    uint64_t table, before;
    Ring ring;

    set_bulk(net, "net-tx", ", 'limit-bytes': 16777216");
    ring_init(&ring, net);
    table = make_shredded_frame(net);
    before = resident_bytes(net);
    for (unsigned i = 0; i < 1 + count; i++) {
        ring_offer(&ring, ring_take(&ring), table, 16 * BUFFER_BYTES,
                   VRING_DESC_F_INDIRECT);
    }
    wait_for(buffered(net, "bulk", "net-tx") == count);
    g_assert_cmpint(resident_bytes(net) - before, <, 2 * count * BUFFER_BYTES);
    net_free(net);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/room/shredded-frames", test_shredded_frames);
    return g_test_run();
}
