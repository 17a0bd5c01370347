# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest of one boot sector, which does nothing but obey the power button.

It boots in a moment on any machine, and takes a time to shut down that a test
chooses. On its console it writes U when it is up and D when the button was
pressed; the latter counts down before the former is written again.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

SECTOR_BYTES = 512
DISK_BYTES = 1 << 20
# The timer that the BIOS sets up interrupts this often.
TICKS_PER_SECOND = 18.2
MOST_TICKS = 0xFFFF


def boot_sector(ticks: int) -> bytes:
    """The program, for the power-management ports where SeaBIOS puts them on q35."""
    if not 1 <= ticks <= MOST_TICKS:
        raise ValueError(f"ticks {ticks} are out of range; give 1 to {MOST_TICKS}")
    code = b"".join(
        (
            b"\xba\x02\x06\xb8\x00\x01\xef",  # PM1 enable (0x602): the power button
            b"\xba\xf8\x03\xb0U\xee",  # console: U
            b"\xba\x00\x06",  # PM1 status (0x600)
            b"\xfb\xf4\xed\xf6\xc4\x01\x74\xf8",  # wait for an interrupt; no button: again
            b"\xba\xf8\x03\xb0D\xee",  # console: D
            b"\xb9" + ticks.to_bytes(2, "little"),
            b"\xf4\xe2\xfd",  # that many interrupts
            b"\xba\x04\x06\xb8\x00\x20\xef",  # PM1 control (0x604): sleep type 0, power off
            b"\xf4\xeb\xfd",
        )
    )
    return code.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"


def make_disk(path: Path, shutdown_seconds: float) -> None:
    """A raw disk with the guest, which takes that long from the button to the end."""
    ticks = max(1, round(shutdown_seconds * TICKS_PER_SECOND))
    path.write_bytes(boot_sector(ticks).ljust(DISK_BYTES, b"\0"))


def domain_xml(name: str, domain_type: str, emulator: Path, disk: Path, console: Path) -> str:
    """What libvirt defines the guest from."""
    domain = ET.Element("domain", type=domain_type)
    ET.SubElement(domain, "name").text = name
    ET.SubElement(domain, "memory", unit="MiB").text = "64"
    boot = ET.SubElement(domain, "os")
    ET.SubElement(boot, "type", arch="x86_64", machine="q35").text = "hvm"
    ET.SubElement(ET.SubElement(domain, "features"), "acpi")
    devices = ET.SubElement(domain, "devices")
    ET.SubElement(devices, "emulator").text = str(emulator)
    vda = ET.SubElement(devices, "disk", type="file", device="disk")
    ET.SubElement(vda, "driver", name="qemu", type="raw", cache="unsafe")
    ET.SubElement(vda, "source", file=str(disk))
    ET.SubElement(vda, "target", dev="vda", bus="virtio")
    ET.SubElement(devices, "controller", type="usb", model="none")
    serial = ET.SubElement(devices, "serial", type="file")
    ET.SubElement(serial, "source", path=str(console), append="on")
    ET.SubElement(serial, "target", port="0")
    ET.SubElement(devices, "memballoon", model="none")
    return ET.tostring(domain, encoding="unicode")
