/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the qtests of the channel: the guest's end of it. */
#ifndef TESTS_SLUICE_CHANNEL_H
#define TESTS_SLUICE_CHANNEL_H

#include "qemu/bswap.h"
#include "sluice/channel-abi.h"
#include "sluice-test.h"

#define CHANNEL_SLOT    5
#define CHANNEL         "-device sluice-channel,id=channel0,addr=5,shaper=sluice0"

typedef struct Channel {
    QTestState *qts;
    QPCIDevice *pci;
    QPCIBar registers;
    QPCIBar guest;
    QPCIBar host;
} Channel;

G_GNUC_UNUSED
static void channel_find(Channel *channel, QOSState *qs)
{
    channel->qts = qs->qts;
    channel->pci = qpci_device_find(qs->pcibus, QPCI_DEVFN(CHANNEL_SLOT, 0));
    g_assert_nonnull(channel->pci);
    qpci_device_enable(channel->pci);
    channel->registers = qpci_iomap(channel->pci, SLUICE_CHANNEL_BAR_REGISTERS,
                                    NULL);
    channel->guest = qpci_iomap(channel->pci, SLUICE_CHANNEL_BAR_GUEST, NULL);
    channel->host = qpci_iomap(channel->pci, SLUICE_CHANNEL_BAR_HOST, NULL);
}

G_GNUC_UNUSED
static void channel_free(Channel *channel)
{
    g_free(channel->pci);
}

G_GNUC_UNUSED
static uint32_t get_register(Channel *channel, unsigned offset)
{
    return qpci_io_readl(channel->pci, channel->registers, offset);
}

G_GNUC_UNUSED
static void set_register(Channel *channel, unsigned offset, uint32_t value)
{
    qpci_io_writel(channel->pci, channel->registers, offset, value);
}

/* Copies bytes of the guest's and of the host's pages. */
#define write_guest(channel, member, value) do {                            \
        typeof(value) value_ = (value);                                     \
                                                                            \
        qpci_memwrite((channel)->pci, (channel)->guest,                     \
                      offsetof(SluiceChannelGuest, member), &value_,        \
                      sizeof(value_));                                      \
    } while (0)
#define read_host(channel, member) ({                                       \
        typeof(((SluiceChannelHost *)0)->member) value_;                    \
                                                                            \
        qpci_memread((channel)->pci, (channel)->host,                       \
                     offsetof(SluiceChannelHost, member), &value_,          \
                     sizeof(value_));                                       \
        value_;                                                             \
    })
#define read_guest(channel, member) ({                                      \
        typeof(((SluiceChannelGuest *)0)->member) value_;                   \
                                                                            \
        qpci_memread((channel)->pci, (channel)->guest,                      \
                     offsetof(SluiceChannelGuest, member), &value_,         \
                     sizeof(value_));                                       \
        value_;                                                             \
    })

/* Calls */

G_GNUC_UNUSED
static SluiceChannelCall make_call(uint32_t service, uint32_t operation,
                                   uint64_t first, uint64_t second)
{
    return (SluiceChannelCall){
        .service = cpu_to_le32(service), .operation = cpu_to_le32(operation),
        .arguments = { cpu_to_le64(first), cpu_to_le64(second) },
    };
}

/* Makes a fast call; sets the value, and returns the status. */
G_GNUC_UNUSED
static uint32_t fast_call(Channel *channel, SluiceChannelCall call,
                          uint64_t *value)
{
    static uint32_t sequence;
    unsigned slot = ++sequence % SLUICE_CHANNEL_SLOTS;
    SluiceChannelResult result;

    call.key = cpu_to_le32(sequence);
    write_guest(channel, calls[slot], call);
    set_register(channel, SLUICE_CHANNEL_REG_CALL, slot);
    result = read_host(channel, results[slot]);
    g_assert_cmpuint(le32_to_cpu(result.sequence), ==, sequence);
    *value = le64_to_cpu(result.value);
    return le32_to_cpu(result.status);
}

G_GNUC_UNUSED
static uint32_t fast_status(Channel *channel, uint32_t service,
                            uint32_t operation, uint64_t first, uint64_t second)
{
    uint64_t value;

    return fast_call(channel, make_call(service, operation, first, second),
                     &value);
}

G_GNUC_UNUSED
static uint32_t subscribe(Channel *channel, unsigned tag, uint64_t kinds,
                          uint64_t priority, uint64_t backlog_bytes)
{
    SluiceChannelCall call = make_call(SLUICE_SERVICE_EVENTS,
                                       SLUICE_EVENTS_SUBSCRIBE, tag, kinds);
    uint64_t value;

    call.arguments[2] = cpu_to_le64(priority);
    call.arguments[3] = cpu_to_le64(backlog_bytes);
    return fast_call(channel, call, &value);
}

/* Writes a deferred call into the ring: no access to a register. */
G_GNUC_UNUSED
static void defer_call_of(Channel *channel, SluiceChannelCall call,
                          uint32_t kind, uint32_t delay_ms)
{
    uint32_t head = le32_to_cpu(read_guest(channel, ring_head));

    call.key = cpu_to_le32(kind);
    call.delay_ms = cpu_to_le32(delay_ms);
    write_guest(channel, ring[head % SLUICE_CHANNEL_RING], call);
    write_guest(channel, ring_head, cpu_to_le32(head + 1));
}

G_GNUC_UNUSED
static void defer_ping(Channel *channel, uint32_t kind, uint32_t delay_ms)
{
    defer_call_of(channel, make_call(SLUICE_SERVICE_CHANNEL,
                                     SLUICE_CHANNEL_PING, 0, 0),
                  kind, delay_ms);
}

/* One number of query-shaper-channel. */
G_GNUC_UNUSED
static int64_t channel_number(QTestState *qts, const char *field)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-channel', "
                                "'arguments': {'id': 'sluice0'}}");
    int64_t value = qdict_get_int(qdict_get_qdict(response, "return"), field);

    qobject_unref(response);
    return value;
}

G_GNUC_UNUSED
static bool channel_flag(QTestState *qts, const char *field)
{
    QDict *response = qtest_qmp(qts, "{'execute': 'query-shaper-channel', "
                                "'arguments': {'id': 'sluice0'}}");
    bool value = qdict_get_bool(qdict_get_qdict(response, "return"), field);

    qobject_unref(response);
    return value;
}

#endif
