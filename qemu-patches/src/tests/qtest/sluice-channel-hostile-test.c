/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of a guest that writes garbage into the channel: registers, rings, slots and
 * records, by itself and by a disk in an I/O thread, which writes there while the main
 * thread reads: memory changes during calls, and registers are written without the BQL.
 * The operator changes classes meanwhile. Afterwards channel and disk work as ever.
 */
#include "qemu/osdep.h"
#include "sluice-channel.h"
#include "sluice-disk.h"

#define ROUNDS          400
#define SEED            20261128
#define GARBAGE_BYTES   (1 * MiB)
#define SECTORS         (GARBAGE_BYTES / SECTOR_BYTES)
#define REGISTERS       12              /* four of which are none */
#define REQUESTS_MAX    ROUNDS

typedef struct Hostile {
    Disk *disk;
    Channel channel;
    GRand *rand;
    Request requests[REQUESTS_MAX];
    unsigned sent;
} Hostile;

static uint32_t below(Hostile *hostile, uint32_t limit)
{
    return g_rand_int_range(hostile->rand, 0, limit);
}

/* Small numbers go further than random ones. */
static uint32_t word(Hostile *hostile)
{
    switch (below(hostile, 4)) {
    case 0:
        return g_rand_int(hostile->rand);
    case 1:
        return below(hostile, SLUICE_CHANNEL_SLOTS + 1);
    default:
        return below(hostile, 3);
    }
}

static void fill_image(Hostile *hostile)
{
    g_autofree uint32_t *garbage = g_malloc(GARBAGE_BYTES);
    int fd = open(hostile->disk->image, O_WRONLY);

    for (unsigned i = 0; i < GARBAGE_BYTES / sizeof(*garbage); i++) {
        garbage[i] = cpu_to_le32(word(hostile));
    }
    g_assert_cmpint(pwrite(fd, garbage, GARBAGE_BYTES, 0), ==, GARBAGE_BYTES);
    close(fd);
}

/* A read of some sector: its first `bytes` go to the address, the others to RAM. */
static void read_to(Hostile *hostile, uint64_t address, unsigned bytes)
{
    Disk *disk = hostile->disk;
    uint64_t header = guest_alloc(&disk->qs->alloc, 16 + SECTOR_BYTES + 1);
    Request request = { .data = header + 16,
                        .status = header + 16 + SECTOR_BYTES };
    uint32_t head;

    qtest_writel(disk->qts, header, VIRTIO_BLK_T_IN);
    qtest_writel(disk->qts, header + 4, ioprio_of_tag(below(hostile, 4)));
    qtest_writeq(disk->qts, header + 8, below(hostile, SECTORS));
    qtest_writeb(disk->qts, request.status, PENDING);
    head = qvirtqueue_add(disk->qts, disk->vq, header, 16, false, true);
    qvirtqueue_add(disk->qts, disk->vq, address, bytes, true, true);
    if (bytes < SECTOR_BYTES) {
        qvirtqueue_add(disk->qts, disk->vq, request.data, SECTOR_BYTES - bytes,
                       true, true);
    }
    qvirtqueue_add(disk->qts, disk->vq, request.status, 1, true, false);
    qvirtqueue_kick(disk->qts, disk->dev, disk->vq, head);
    hostile->requests[hostile->sent++] = request;
}

static void write_somewhere(Hostile *hostile)
{
    static const unsigned parts[] = {
        offsetof(SluiceChannelGuest, ring_head),
        offsetof(SluiceChannelGuest, pattern),
        offsetof(SluiceChannelGuest, calls),
        offsetof(SluiceChannelGuest, ring),
        offsetof(SluiceChannelGuest, streams),
        offsetof(SluiceChannelGuest, servers),
    };
    unsigned offset = parts[below(hostile, ARRAY_SIZE(parts))];

    qpci_io_writel(hostile->channel.pci, hostile->channel.guest,
                   offset + below(hostile, 64) * 4, word(hostile));
}

static void change_classes(Hostile *hostile)
{
    if (below(hostile, 2)) {
        limit_class(hostile->disk, "bulk", 2, "blk-write");
    } else {
        qobject_unref(qtest_qmp(hostile->disk->qts,
                                "{'execute': 'shaper-remove-class', "
                                "'arguments': {'id': 'sluice0', "
                                "'class': 'bulk'}}"));
    }
}

static void do_something(Hostile *hostile)
{
    Channel *channel = &hostile->channel;
    unsigned offset = below(hostile, REGISTERS) * 4;

    switch (below(hostile, 8)) {
    case 0:
    case 1:
        set_register(channel, offset, word(hostile));
        break;
    case 2:
        get_register(channel, offset);
        break;
    case 3:
        write_somewhere(hostile);
        break;
    case 4:
    case 5:
        read_to(hostile, channel->guest.addr
                + below(hostile, SLUICE_CHANNEL_GUEST_BYTES / 8 / SECTOR_BYTES)
                  * SECTOR_BYTES, SECTOR_BYTES);
        break;
    case 6:
        read_to(hostile, channel->registers.addr + offset, 4);
        break;
    default:
        change_classes(hostile);
        qtest_clock_step(channel->qts, below(hostile, 100) * NS_PER_MS);
    }
}

static void check_still_right(Hostile *hostile)
{
    Channel *channel = &hostile->channel;
    SluiceChannelCall ping = make_call(SLUICE_SERVICE_CHANNEL,
                                       SLUICE_CHANNEL_PING, 4711, 0);
    uint64_t value;

    for (unsigned i = 0; i < hostile->sent; i++) {
        wait_for(status_of(hostile->disk, hostile->requests[i])
                 == VIRTIO_BLK_S_OK);
    }
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 0);
    set_register(channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    qtest_clock_step(channel->qts, 1000 * NS_PER_MS);
    g_assert_cmpuint(fast_call(channel, ping, &value), ==, SLUICE_CALL_OK);
    g_assert_cmpuint(value, ==, 4711);
    g_assert_cmpint(channel_number(channel->qts, "driver"), ==, 1);
    g_assert_cmpint(channel_number(channel->qts, "calls"), >, 1);
}

/* A disk in an I/O thread makes the call of slot 0, without the BQL: its image is zeroes. */
static void test_call_by_iothread(void)
{
    Hostile hostile = { .rand = g_rand_new_with_seed(SEED) };

    hostile.disk = disk_new(",iothread=io0", CHANNEL " -object iothread,id=io0");
    channel_find(&hostile.channel, hostile.disk->qs);
    set_register(&hostile.channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    read_to(&hostile, hostile.channel.registers.addr + SLUICE_CHANNEL_REG_CALL,
            sizeof(uint32_t));
    wait_for(status_of(hostile.disk, hostile.requests[0]) == VIRTIO_BLK_S_OK);
    g_assert_cmpint(channel_number(hostile.disk->qts, "calls"), ==, 1);
    channel_free(&hostile.channel);
    disk_free(hostile.disk);
    g_rand_free(hostile.rand);
}

static void hostile_guest(const char *options)
{
    Hostile *hostile = g_new0(Hostile, 1);

    hostile->rand = g_rand_new_with_seed(SEED);
    hostile->disk = disk_image("raw");
    fill_image(hostile);
    disk_boot(hostile->disk, options, CHANNEL " -object iothread,id=io0");
    disk_start(hostile->disk);
    channel_find(&hostile->channel, hostile->disk->qs);
    set_register(&hostile->channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        do_something(hostile);
    }
    check_still_right(hostile);
    channel_free(&hostile->channel);
    disk_free(hostile->disk);
    g_rand_free(hostile->rand);
    g_free(hostile);
}

static void test_main_loop(void)
{
    hostile_guest("");
}

static void test_iothread(void)
{
    hostile_guest(",iothread=io0");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("sluice/channel-hostile/call-by-iothread",
                   test_call_by_iothread);
    qtest_add_func("sluice/channel-hostile/main-loop", test_main_loop);
    qtest_add_func("sluice/channel-hostile/iothread", test_iothread);
    return g_test_run();
}
