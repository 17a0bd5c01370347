/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QTest of the channel's device: registers, memories, reset, unplug. */
#include "qemu/osdep.h"
#include "hw/pci/pci_regs.h"
#include "qemu/bswap.h"
#include "sluice-channel.h"

#define SHAPER      "-object shaper,id=sluice0 "

static QOSState *boot(Channel *channel, const char *options)
{
    QOSState *qs = qtest_pc_boot(SHAPER CHANNEL "%s", options);

    channel_find(channel, qs);
    return qs;
}

static void finish(Channel *channel, QOSState *qs)
{
    channel_free(channel);
    qtest_shutdown(qs);
}

/* Registers */

static void test_registers(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, ",calls=123");

    g_assert_cmphex(qpci_config_readw(channel.pci, PCI_VENDOR_ID), ==,
                    SLUICE_CHANNEL_VENDOR_ID);
    g_assert_cmphex(qpci_config_readw(channel.pci, PCI_DEVICE_ID), ==,
                    SLUICE_CHANNEL_DEVICE_ID);
    g_assert_cmphex(qpci_config_readw(channel.pci, PCI_SUBSYSTEM_ID), ==,
                    SLUICE_CHANNEL_SUBSYSTEM_ID);
    g_assert_cmphex(qpci_config_readw(channel.pci, PCI_CLASS_DEVICE), ==,
                    SLUICE_CHANNEL_CLASS);
    g_assert_cmphex(get_register(&channel, SLUICE_CHANNEL_REG_MAGIC), ==,
                    SLUICE_CHANNEL_MAGIC);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_VERSION), ==,
                     SLUICE_CHANNEL_VERSION);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_CALLS_MAX), ==,
                     123);
    /* A version that is not known is no driver, and without one there is no map. */
    set_register(&channel, SLUICE_CHANNEL_REG_DRIVER, 2);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_DRIVER), ==, 0);
    set_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP), ==, 0);
    set_register(&channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    set_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_DRIVER), ==, 1);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP), ==, 1);
    set_register(&channel, SLUICE_CHANNEL_REG_DRIVER, 0);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP), ==, 0);
    finish(&channel, qs);
}

/* Only aligned accesses of 32 bits count. */
static void test_sizes(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, "");
    unsigned driver = SLUICE_CHANNEL_REG_DRIVER;

    qpci_io_writeb(channel.pci, channel.registers, driver, 1);
    qpci_io_writew(channel.pci, channel.registers, driver, 1);
    qpci_io_writeq(channel.pci, channel.registers, driver, 1);
    qpci_io_writel(channel.pci, channel.registers, driver - 1, 0x101);
    g_assert_cmpuint(get_register(&channel, driver), ==, 0);
    set_register(&channel, driver, 1);
    g_assert_cmpuint(qpci_io_readb(channel.pci, channel.registers, driver), ==, 0);
    g_assert_cmpuint(qpci_io_readw(channel.pci, channel.registers, driver), ==, 0);
    g_assert_cmpuint(qpci_io_readq(channel.pci, channel.registers, driver), ==, 0);
    g_assert_cmpuint(get_register(&channel, 0x100), ==, 0);
    finish(&channel, qs);
}

/* Memories */

static void test_memories(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, "");
    SluiceChannelHeader before = read_host(&channel, header), after;

    g_assert_cmpmem(before.magic, sizeof(before.magic),
                    SLUICE_CHANNEL_HEADER_MAGIC, 8);
    g_assert_cmpuint(le32_to_cpu(before.version), ==, SLUICE_CHANNEL_VERSION);
    qpci_io_writel(channel.pci, channel.host, 0, 0);
    g_assert_cmpuint(qpci_io_readl(channel.pci, channel.host, 0), !=, 0);
    write_guest(&channel, port_map[80], (uint8_t)0x82);
    set_register(&channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    set_register(&channel, SLUICE_CHANNEL_REG_EVENTS, 1);
    set_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);

    qtest_system_reset(qs->qts);
    channel_free(&channel);
    channel_find(&channel, qs);
    for (unsigned offset = SLUICE_CHANNEL_REG_DRIVER;
         offset < SLUICE_CHANNEL_REG_CALLS_MAX; offset += 4) {
        g_assert_cmpuint(get_register(&channel, offset), ==, 0);
    }
    g_assert_cmpuint(read_guest(&channel, port_map[80]), ==, 0);
    after = read_host(&channel, header);
    g_assert_cmpuint(after.epoch, !=, before.epoch);
    finish(&channel, qs);
}

/* Life cycle */

static void test_refused(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, "");

    qmp_refused(qs->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'sluice-channel', 'shaper': 'sluice0', 'id': 'second'}}",
                "sluice0", "channel0");
    qmp_refused(qs->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'sluice-channel', 'id': 'second'}}", "shaper=ID");
    qmp_refused(qs->qts, "{'execute': 'device_add', 'arguments': "
                "{'driver': 'sluice-channel', 'shaper': 'sluice0', 'id': 'second', "
                "'calls': 1000001}}", "calls 1000001", "1 to 1000000");
    qmp_refused(qs->qts, "{'execute': 'object-del', 'arguments': "
                "{'id': 'sluice0'}}", "sluice0");
    finish(&channel, qs);
}

/* After an unplug the shaper has no map, and another channel may come. */
static void test_unplug(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, "");

    for (unsigned i = 0; i < 2; i++) {
        set_register(&channel, SLUICE_CHANNEL_REG_DRIVER, 1);
        set_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP, 1);
        channel_free(&channel);
        qtest_qmp_device_del_send(qs->qts, "channel0");
        qtest_system_reset_nowait(qs->qts);
        qtest_qmp_eventwait(qs->qts, "DEVICE_DELETED");
        qtest_qmp_device_add(qs->qts, "sluice-channel", "channel0",
                             "{'shaper': 'sluice0', 'addr': '5'}");
        channel_find(&channel, qs);
        g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_DRIVER), ==, 0);
        g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_PORT_MAP),
                         ==, 0);
    }
    finish(&channel, qs);
}

/* The slot is free before the memory has gone. */
static void test_successor(void)
{
    Channel channel;
    QOSState *qs = boot(&channel, "");
    bool is_refused = true;

    channel_free(&channel);
    qtest_qmp_device_del_send(qs->qts, "channel0");
    qtest_system_reset_nowait(qs->qts);
    while (is_refused) {
        QDict *answer = qtest_qmp(qs->qts, "{'execute': 'device_add', 'arguments': "
                                  "{'driver': 'sluice-channel', 'id': 'channel1', "
                                  "'shaper': 'sluice0', 'addr': '5'}}");

        is_refused = qdict_haskey(answer, "error");
        qobject_unref(answer);
    }
    channel_find(&channel, qs);
    g_assert_cmpuint(get_register(&channel, SLUICE_CHANNEL_REG_DRIVER), ==, 0);
    finish(&channel, qs);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("sluice/channel/registers", test_registers);
    qtest_add_func("sluice/channel/sizes", test_sizes);
    qtest_add_func("sluice/channel/memories", test_memories);
    qtest_add_func("sluice/channel/refused", test_refused);
    qtest_add_func("sluice/channel/unplug", test_unplug);
    qtest_add_func("sluice/channel/successor", test_successor);
    return g_test_run();
}
