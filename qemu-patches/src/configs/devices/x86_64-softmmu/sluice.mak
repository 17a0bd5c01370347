# SPDX-License-Identifier: GPL-2.0-or-later
# The machines and devices that the demo and the tests use. The package sluice-qemu
# has all of Debian's (qemu-patches/debian/rules).

# libvirt's machine, and that of QEMU's own qtests.
CONFIG_Q35=y
CONFIG_I440FX=y
# Parts of every machine: a guest's clock is another one without them.
CONFIG_HPET=y
CONFIG_VMPORT=y
# For devices that are plugged in later, and behind another bridge.
CONFIG_PCIE_PORT=y
CONFIG_PCIE_PCI_BRIDGE=y
CONFIG_PCI_BRIDGE=y
CONFIG_I82801B11=y

CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
# Each uses the rings that the series changes.
CONFIG_VIRTIO_BALLOON=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_SCSI=y
CONFIG_VIRTIO_SERIAL=y

CONFIG_SERIAL_ISA=y
# A watchdog that stops the guest, and the port where firmware says what it does.
CONFIG_WDT_IB700=y
CONFIG_ISA_DEBUG=y
# Plugged in by QEMU's own qtests of a bus.
CONFIG_PCI_TESTDEV=y
