/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The PCI device of the channel between guest and host: -device sluice-channel,shaper=ID.
 * It lends the shaper its memory and its interrupt; all else is the shaper's
 * (shaper-channel.c). Its memories are RAM to a migration, and to a processor: the guest's
 * pages as any, the host's as a ROM.
 */
#include "qemu/osdep.h"
#include "hw/pci/pci_device.h"
#include "hw/qdev-properties.h"
#include "hw/sluice/shaper.h"
#include "migration/vmstate.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "system/runstate.h"
#include "shaper-channel.h"

#define TYPE_SLUICE_CHANNEL "sluice-channel"
OBJECT_DECLARE_SIMPLE_TYPE(SluiceChannel, SLUICE_CHANNEL)

struct SluiceChannel {
    PCIDevice parent_obj;

    Shaper *shaper;
    uint32_t calls_max;
    MemoryRegion registers;
    MemoryRegion guest_memory;
    MemoryRegion host_memory;
    QEMUBH *interrupt_bh;
    VMChangeStateEntry *change;
    ShaperChannel *channel;     /* the shaper's, for vmstate */
};

/* Registers */

static bool is_register(hwaddr offset, unsigned bytes)
{
    return bytes == 4 && offset % 4 == 0;
}

static uint64_t channel_read(void *opaque, hwaddr offset, unsigned bytes)
{
    SluiceChannel *device = opaque;

    return is_register(offset, bytes)
           ? shaper_channel_read(device->shaper, offset) : 0;
}

static void channel_write(void *opaque, hwaddr offset, uint64_t value,
                           unsigned bytes)
{
    SluiceChannel *device = opaque;

    if (is_register(offset, bytes)) {
        shaper_channel_write(device->shaper, offset, value);
    }
}

/* All sizes come, so that none is taken for several of 32 bits. */
static const MemoryRegionOps register_ops = {
    .read = channel_read,
    .write = channel_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8 },
    .impl = { .min_access_size = 1, .max_access_size = 8 },
};

static void set_interrupt_bh(void *opaque)
{
    SluiceChannel *device = opaque;

    pci_set_irq(PCI_DEVICE(device), shaper_channel_interrupts(device->shaper));
}

static void vm_state_changed(void *opaque, bool running, RunState state)
{
    SluiceChannel *device = opaque;

    shaper_channel_set_running(device->shaper, running);
}

/* Life cycle */

static bool check_properties(SluiceChannel *device, Error **errp)
{
    if (!device->shaper) {
        error_setg(errp, "sluice-channel needs a shaper; give it shaper=ID");
        return false;
    }
    if (device->calls_max < 1 || device->calls_max > SLUICE_CHANNEL_CALLS_MAX) {
        error_setg(errp, "calls %u is out of range; use 1 to %u",
                   device->calls_max, SLUICE_CHANNEL_CALLS_MAX);
        return false;
    }
    return true;
}

static bool make_memory(SluiceChannel *device, Error **errp)
{
    Object *owner = OBJECT(device);

    memory_region_init_io(&device->registers, owner, &register_ops, device,
                          "sluice-channel-registers",
                          SLUICE_CHANNEL_REGISTER_BYTES);
    device->registers.lockless_io = true;
    device->registers.disable_reentrancy_guard = true;
    return memory_region_init_ram(&device->guest_memory, owner,
                                  "sluice-channel-guest",
                                  SLUICE_CHANNEL_GUEST_BYTES, errp)
           && memory_region_init_rom(&device->host_memory, owner,
                                     "sluice-channel-host",
                                     SLUICE_CHANNEL_HOST_BYTES, errp);
}

static void register_bars(SluiceChannel *device)
{
    PCIDevice *pci = PCI_DEVICE(device);

    pci_config_set_interrupt_pin(pci->config, 1);
    pci_register_bar(pci, SLUICE_CHANNEL_BAR_REGISTERS,
                     PCI_BASE_ADDRESS_SPACE_MEMORY, &device->registers);
    pci_register_bar(pci, SLUICE_CHANNEL_BAR_GUEST,
                     PCI_BASE_ADDRESS_SPACE_MEMORY, &device->guest_memory);
    pci_register_bar(pci, SLUICE_CHANNEL_BAR_HOST,
                     PCI_BASE_ADDRESS_SPACE_MEMORY, &device->host_memory);
}

static void channel_realize(PCIDevice *pci, Error **errp)
{
    SluiceChannel *device = SLUICE_CHANNEL(pci);
    ShaperChannelDevice lent = {
        .device = DEVICE(device),
        .guest_memory = &device->guest_memory,
        .host_memory = &device->host_memory,
        .calls_max = device->calls_max,
    };

    if (!check_properties(device, errp) || !make_memory(device, errp)) {
        return;
    }
    lent.interrupt_bh = qemu_bh_new_guarded(set_interrupt_bh, device,
                                            &DEVICE(device)->mem_reentrancy_guard);
    if (!shaper_channel_attach(device->shaper, &lent, errp)) {
        qemu_bh_delete(lent.interrupt_bh);
        return;
    }
    device->interrupt_bh = lent.interrupt_bh;
    device->channel = shaper_channel_of(device->shaper);
    device->change = qdev_add_vm_change_state_handler(DEVICE(device),
                                                      vm_state_changed, device);
    shaper_channel_set_running(device->shaper, runstate_is_running());
    register_bars(device);
}

/* Processors may use the memory for a while yet, but a device that comes to this slot has
 * memory of the same name, which QEMU would not bear. */
static void give_names_back(SluiceChannel *device)
{
    vmstate_unregister_ram(&device->guest_memory, DEVICE(device));
    vmstate_unregister_ram(&device->host_memory, DEVICE(device));
}

static void channel_exit(PCIDevice *pci)
{
    SluiceChannel *device = SLUICE_CHANNEL(pci);

    qemu_del_vm_change_state_handler(device->change);
    shaper_channel_detach(device->shaper);
    give_names_back(device);
    qemu_bh_delete(device->interrupt_bh);
}

static void channel_reset(DeviceState *dev)
{
    shaper_channel_reset(SLUICE_CHANNEL(dev)->shaper);
}

static const VMStateDescription vmstate_channel = {
    .name = TYPE_SLUICE_CHANNEL,
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, SluiceChannel),
        VMSTATE_STRUCT_POINTER(channel, SluiceChannel, vmstate_shaper_channel,
                               ShaperChannel),
        VMSTATE_END_OF_LIST()
    },
};

static const Property channel_properties[] = {
    DEFINE_PROP_LINK("shaper", SluiceChannel, shaper, TYPE_SHAPER, Shaper *),
    DEFINE_PROP_UINT32("calls", SluiceChannel, calls_max,
                       SLUICE_CHANNEL_CALLS_DEFAULT),
};

static void channel_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(oc);

    pc->realize = channel_realize;
    pc->exit = channel_exit;
    pc->vendor_id = SLUICE_CHANNEL_VENDOR_ID;
    pc->device_id = SLUICE_CHANNEL_DEVICE_ID;
    pc->subsystem_vendor_id = SLUICE_CHANNEL_VENDOR_ID;
    pc->subsystem_id = SLUICE_CHANNEL_SUBSYSTEM_ID;
    pc->class_id = SLUICE_CHANNEL_CLASS;
    dc->desc = "Sluice: channel between guest and host";
    dc->vmsd = &vmstate_channel;
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    device_class_set_legacy_reset(dc, channel_reset);
    device_class_set_props(dc, channel_properties);
}

static const TypeInfo channel_types[] = {
    {
        .name = TYPE_SLUICE_CHANNEL,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(SluiceChannel),
        .class_init = channel_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_CONVENTIONAL_PCI_DEVICE },
            { }
        },
    },
};

DEFINE_TYPES(channel_types)
