# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML of a test guest: plain data in, text out."""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from testbed import network


@dataclass(frozen=True)
class FileDisk:
    """A raw image. Uncached, so that each read of the guest is one of the host."""

    path: Path
    readonly: bool = False
    cache: str = "none"
    io: str = "native"


@dataclass(frozen=True)
class NbdDisk:
    """An export of an NBD server that listens on a UNIX socket.

    ``socket`` is the path as a process inside the sandbox sees it.
    """

    socket: Path
    export: str = ""
    readonly: bool = False


Disk = FileDisk | NbdDisk


@dataclass(frozen=True)
class GuestSpec:
    """A test's wishes for a guest. Disks appear as vdb, vdc, … in this order.

    ``agent`` puts a disk with the guest agent beside the root disk (it comes last). ``vhost``
    asks for the kernel's network backend, which a shaper refuses. ``disk_queue_size`` is the
    ring of each disk; None leaves it to QEMU, or to attach. Of several ``nics`` only the first
    has an address; MAC addresses of the others differ in their fifth byte. ``guest_agent`` gives
    it the channel of the QEMU guest agent, which the image has.
    """

    name: str
    memory_mib: int = 512
    vcpus: int = 2
    disks: tuple[Disk, ...] = ()
    disk_queue_size: int | None = None
    agent: bool = True
    guest_agent: bool = False
    vhost: bool = False
    nics: int = 1
    cmdline: str = ""
    emulator: Path | None = None


@dataclass(frozen=True)
class Placement:
    """The testbed's choices for a guest: files, address, accelerator, network.

    ``processors`` is the number that the host has for its guests, ``cpuset`` names them if they
    are not all: libvirt would also give a guest processors that the testbed may not use.
    """

    accelerator: str
    emulator: Path
    kernel: Path
    initrd: Path
    root_overlay: Path
    console_log: Path
    address: str
    mac: str
    agent_image: Path | None = None
    uuid: str | None = None
    processors: int = 2
    cpuset: str | None = None
    bridge: str = network.BRIDGE
    gateway: str = network.HOST_ADDRESS


def kernel_command_line(spec: GuestSpec, placement: Placement) -> str:
    """Return the guest kernel's command line."""
    words = [
        # Each character on the console is an exit, so only failures are printed.
        "console=ttyS0 net.ifnames=0 loglevel=4 systemd.show_status=error",
        # In a slow guest a late service does not hang.
        "systemd.service_watchdogs=no",
        f"systemd.hostname={spec.name}",
        f"sluice.ip={placement.address}/{network.PREFIX} sluice.gw={placement.gateway}",
    ]
    if placement.accelerator != "kvm":
        # Emulated, the guest pays for them and nothing is protected by them.
        words.append("mitigations=off")
        # A busy machine can keep the timer's first ticks from the guest for longer
        # than its kernel waits before it panics. Under KVM it does not ask.
        words.append("no_timer_check")
    return " ".join([*words, spec.cmdline]).strip()


def vcpus(spec: GuestSpec, placement: Placement) -> int:
    """Return the guest's number: under KVM no more than can run at once.

    A spinning processor would only burn the time of the one that it waits for.
    """
    if placement.accelerator == "kvm":
        return min(spec.vcpus, placement.processors)
    return spec.vcpus


def domain_xml(spec: GuestSpec, placement: Placement) -> str:
    """Return the XML that libvirt defines the guest from."""
    domain = ET.Element("domain", type="kvm" if placement.accelerator == "kvm" else "qemu")
    ET.SubElement(domain, "name").text = spec.name
    if placement.uuid:
        ET.SubElement(domain, "uuid").text = placement.uuid
    ET.SubElement(domain, "memory", unit="MiB").text = str(spec.memory_mib)
    _vcpus(domain, vcpus(spec, placement), placement)
    boot = ET.SubElement(domain, "os")
    ET.SubElement(boot, "type", arch="x86_64", machine="q35").text = "hvm"
    ET.SubElement(boot, "kernel").text = str(placement.kernel)
    ET.SubElement(boot, "initrd").text = str(placement.initrd)
    ET.SubElement(boot, "cmdline").text = kernel_command_line(spec, placement)
    # Without <acpi/> libvirt 9 passes -no-acpi, which QEMU 10 refuses.
    ET.SubElement(ET.SubElement(domain, "features"), "acpi")
    if placement.accelerator == "kvm":
        ET.SubElement(domain, "cpu", mode="host-passthrough")
    ET.SubElement(domain, "clock", offset="utc")
    ET.SubElement(domain, "on_poweroff").text = "destroy"
    ET.SubElement(domain, "on_reboot").text = "restart"
    ET.SubElement(domain, "on_crash").text = "destroy"
    _devices(domain, spec, placement)
    ET.indent(domain)
    return ET.tostring(domain, encoding="unicode")


def _vcpus(domain: ET.Element, count: int, placement: Placement) -> None:
    """Say how many processors the guest has, and how many it could have.

    A guest that could never have a second is emulated without its locked instructions being
    barriers, though QEMU's other threads see its memory too. Its driver then misses one of
    some million interrupts, and waits for ever.
    """
    element = ET.SubElement(domain, "vcpu")
    if count == 1 and placement.accelerator != "kvm":
        element.set("current", "1")
        count = 2
    if placement.cpuset:
        element.set("cpuset", placement.cpuset)
    element.text = str(count)


def _devices(domain: ET.Element, spec: GuestSpec, placement: Placement) -> None:
    devices = ET.SubElement(domain, "devices")
    ET.SubElement(devices, "emulator").text = str(placement.emulator)
    _disk(devices, "vda", placement.root_overlay, "qcow2", cache="unsafe")
    disks: list[Disk] = list(spec.disks)
    if placement.agent_image:
        # O_DIRECT would gain nothing on a disk that is read once.
        disks.append(FileDisk(placement.agent_image, readonly=True, cache="unsafe", io="threads"))
    for index, disk in enumerate(disks):
        target = f"vd{chr(ord('b') + index)}"
        if isinstance(disk, NbdDisk):
            _nbd_disk(devices, target, disk)
        else:
            _disk(devices, target, disk.path, "raw", disk.cache, disk.io, disk.readonly)
    if spec.disk_queue_size:
        for driver in devices.iterfind("disk/driver"):
            driver.set("queue_size", str(spec.disk_queue_size))
    ET.SubElement(devices, "controller", type="usb", model="none")
    for number in range(spec.nics):
        _interface(devices, spec, placement, number)
    if spec.guest_agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    serial = ET.SubElement(devices, "serial", type="file")
    ET.SubElement(serial, "source", path=str(placement.console_log), append="on")
    ET.SubElement(serial, "target", port="0")
    ET.SubElement(devices, "memballoon", model="none")


def _disk(
    devices: ET.Element,
    target: str,
    path: Path,
    form: str,
    cache: str,
    io: str | None = None,
    readonly: bool = False,
) -> None:
    disk = ET.SubElement(devices, "disk", type="file", device="disk")
    driver = ET.SubElement(disk, "driver", name="qemu", type=form, cache=cache)
    if io:
        driver.set("io", io)
    ET.SubElement(disk, "source", file=str(path))
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    if readonly:
        ET.SubElement(disk, "readonly")


def _nbd_disk(devices: ET.Element, target: str, spec: NbdDisk) -> None:
    disk = ET.SubElement(devices, "disk", type="network", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="raw", cache="none")
    source = ET.SubElement(disk, "source", protocol="nbd")
    if spec.export:
        source.set("name", spec.export)
    ET.SubElement(source, "host", transport="unix", socket=str(spec.socket))
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    if spec.readonly:
        ET.SubElement(disk, "readonly")


def _interface(devices: ET.Element, spec: GuestSpec, placement: Placement, number: int) -> None:
    octets = placement.mac.split(":")
    octets[4] = f"{number:02x}"
    interface = ET.SubElement(devices, "interface", type="bridge")
    ET.SubElement(interface, "mac", address=":".join(octets))
    ET.SubElement(interface, "source", bridge=placement.bridge)
    ET.SubElement(interface, "model", type="virtio")
    ET.SubElement(interface, "driver", name="vhost" if spec.vhost else "qemu")
