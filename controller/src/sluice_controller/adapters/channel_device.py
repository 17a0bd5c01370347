# SPDX-License-Identifier: GPL-2.0-or-later
"""The device `sluice-channel` in a domain's XML, and its place on the PCI bus.

libvirt knows nothing of a device of `<qemu:commandline>` and may give its slot to another one.
libvirt counts slots upwards from 1, and gives 0x1a, 0x1b, 0x1d, 0x1e and 0x1f of a q35 machine to
devices that belong there. So the device has the highest free slot of the others: on `pcie.0`, where
libvirt plugs nothing in while the domain runs, and on `pci.0` of the older machine, where libvirt
would have to plug in two dozen devices first. The slot is part of the definition, and so the same
on the host to which the domain migrates.
"""

from __future__ import annotations

from lxml import etree

from . import qemu_arguments

DRIVER = "sluice-channel"
ID = "sluice-channel0"
# The first bus of a machine, as libvirt names it, by the model of its controller.
BUSES = {"pcie-root": "pcie.0", "pci-root": "pci.0"}
SLOTS = (0x1C, *range(0x19, 0x0F, -1))
NO_BUS = "the domain has no PCI bus"
NO_SLOT = "no slot of the domain's first PCI bus is free from 0x10 to 0x19, nor 0x1c"


def is_in(root: etree._Element) -> bool:
    return bool(qemu_arguments.found(root, "-device", DRIVER))


def add(root: etree._Element, shaper_id: str) -> str:
    """Adds the device; returns a line for people, also where it does not fit."""
    bus = _bus(root)
    if bus is None:
        return f"no {DRIVER}: {NO_BUS}"
    taken = _taken(root, bus)
    slot = next((slot for slot in SLOTS if slot not in taken), None)
    if slot is None:
        return f"no {DRIVER}: {NO_SLOT}"
    value = qemu_arguments.added(
        root, "-device", DRIVER, id=ID, shaper=shaper_id, bus=bus, addr=f"{slot:#x}"
    )
    return f"command line -device {value}"


def why_not(root: etree._Element) -> str | None:
    """Why it cannot be added; None if it can."""
    bus = _bus(root)
    if bus is None:
        return NO_BUS
    return None if set(SLOTS) - _taken(root, bus) else NO_SLOT


def _bus(root: etree._Element) -> str | None:
    for controller in root.findall("devices/controller[@type='pci']"):
        if controller.get("index") == "0":
            return BUSES.get(controller.get("model", ""))
    return None


def _taken(root: etree._Element, bus: str) -> set[int]:
    """The slots of that bus that other devices have."""
    addresses = [
        address.get("slot", "")
        for address in root.findall("devices//address[@type='pci']")
        if _number(address.get("domain", "0")) == _number(address.get("bus", "0")) == 0
    ]
    # "1c.0" is slot 0x1c, function 0; QEMU reads it as hexadecimal with and without 0x.
    others = [
        device["addr"].partition(".")[0]
        for device in qemu_arguments.found(root, "-device")
        if device.get("bus", bus) == bus and device[""] != DRIVER and "addr" in device
    ]
    return {_number(slot) for slot in (*addresses, *others)}


def _number(text: str) -> int:
    """-1 for text that is no number."""
    try:
        return int(text, 16)
    except ValueError:
        return -1
