/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the qtests of the channel: the guest's end of it. */
#ifndef TESTS_SLUICE_CHANNEL_H
#define TESTS_SLUICE_CHANNEL_H

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

#endif
