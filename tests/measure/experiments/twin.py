# SPDX-License-Identifier: GPL-2.0-or-later
"""The same guest under two emulators: definitions in, definitions out. Pure.

Attaching a shaper changes a domain's definition: another emulator, the shaper, rings of
another size, a serial port for the agent. What makes a difference to a guest has to be in
both: so the stock guest's definition is that of the attached one, without the shaper alone.
One saved guest can then go on under either.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"


def under(xml: str, emulator: Path) -> str:
    """Return the definition with another emulator."""
    root = ET.fromstring(xml)
    root.find("devices/emulator").text = str(emulator)
    return ET.tostring(root, encoding="unicode")


def emulator_of(xml: str) -> Path:
    """Return the emulator of a definition."""
    return Path(ET.fromstring(xml).findtext("devices/emulator"))


def under_stock(xml: str, emulator: Path) -> str:
    """Return the definition of an attached guest for an emulator that knows no shaper.

    Its devices stay. So do other words of QEMU's command line than the shaper's, and other
    overridden properties. Raises ValueError if there is no shaper in it.
    """
    root = ET.fromstring(xml)
    root.find("devices/emulator").text = str(emulator)
    # Whose note of the shaper it is would look for it.
    for note in root.findall("metadata"):
        root.remove(note)
    if not (_without_object(root) and _without_properties(root)):
        raise ValueError("the guest has no shaper, or no device that has it")
    return ET.tostring(root, encoding="unicode")


def on_processor(xml: str, processor: int) -> str:
    """Return the definition with all of the guest's QEMU on one of the host's processors."""
    root = ET.fromstring(xml)
    for old in root.findall("cputune"):
        root.remove(old)
    tune = ET.Element("cputune")
    for vcpu in range(int(root.findtext("vcpu"))):
        ET.SubElement(tune, "vcpupin", vcpu=str(vcpu), cpuset=str(processor))
    ET.SubElement(tune, "emulatorpin", cpuset=str(processor))
    root.insert(list(root).index(root.find("vcpu")) + 1, tune)
    return ET.tostring(root, encoding="unicode")


def _without_object(root: ET.Element) -> bool:
    """Take ``-object shaper,…`` from QEMU's command line; whether it was there."""
    line = root.find(f"{QEMU}commandline")
    words = [] if line is None else line.findall(f"{QEMU}arg")
    for option, value in zip(words, words[1:], strict=False):
        if option.get("value") == "-object" and value.get("value").startswith("shaper,"):
            line.remove(option)
            line.remove(value)
            return True
    return False


def _without_properties(root: ET.Element) -> bool:
    """Take ``shaper`` from all devices; whether any had it."""
    found = False
    for frontend in root.iterfind(f"{QEMU}override/{QEMU}device/{QEMU}frontend"):
        for its in frontend.findall(f"{QEMU}property"):
            if its.get("name") == "shaper":
                frontend.remove(its)
                found = True
    override = root.find(f"{QEMU}override")
    for device in [] if override is None else override.findall(f"{QEMU}device"):
        # libvirt refuses one that overrides nothing.
        if not len(device.find(f"{QEMU}frontend")):
            override.remove(device)
    if override is not None and not len(override):
        root.remove(override)
    return found
