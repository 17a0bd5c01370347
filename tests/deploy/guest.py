# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest that an operator has on a host: a domain under type='kvm'.

It is defined through libvirt and knows nothing of Sluice. Its root disk is an
overlay of the host's second disk, the machines' own image; its second disk is a
raw file whose bytes were really written, opened with O_DIRECT, so that what the
guest reads is what the host's disk reads. Its interface is on the host's
bridge, so the control node reaches it as it reaches the hosts.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.fleet import CONTROL_ADDRESS, Fleet
from deploy.machine import BRIDGE, Image, Machine, MachineSpec, kernel_command_line
from testbed import paths

IMAGES = "/var/lib/libvirt/images"
DATA_MIB = 64
# Each of its exits empties the emulated TLB: it boots in minutes, not in seconds.
READY_SECONDS = 1200.0
DOMAIN = """\
<domain type='kvm'>
  <name>{name}</name>
  <memory unit='MiB'>{memory_mib}</memory>
  <vcpu>{processors}</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{images}/vmlinuz</kernel>
    <initrd>{images}/initrd.img</initrd>
    <cmdline>{append}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='host-passthrough'/>
  <clock offset='utc'/>
  <devices>
    <emulator>{emulator}</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/>
      <source file='{images}/{name}.qcow2'/>
      <backingStore type='block'>
        <format type='raw'/>
        <source dev='/dev/vdb'/>
        <backingStore/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native'/>
      <source file='{images}/{name}-data.raw'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <controller type='usb' model='none'/>
    <interface type='bridge'>
      <mac address='{mac}'/>
      <source bridge='{bridge}'/>
      <model type='virtio'/>
    </interface>
    <serial type='pty'>
      <log file='/var/log/libvirt/qemu/{name}-console.log' append='on'/>
      <target port='0'/>
    </serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""


@dataclass(frozen=True)
class GuestPlan:
    """Which guest, on which host."""

    name: str
    address: str
    mac: str
    memory_mib: int = 512
    processors: int = 1


WEB1 = GuestPlan("web1", "10.78.0.21", "52:54:00:78:00:21")


def domain_xml(plan: GuestPlan, emulator: str, public_key: str) -> str:
    """Return what the operator hands to ``virsh define``."""
    append = kernel_command_line(plan.name, plan.address, CONTROL_ADDRESS, public_key, bridge=False)
    return DOMAIN.format(
        name=plan.name,
        memory_mib=plan.memory_mib,
        processors=plan.processors,
        mac=plan.mac,
        images=IMAGES,
        append=append,
        emulator=emulator,
        bridge=BRIDGE,
    )


class NestedGuest:
    """The domain on its host, and ssh into the guest."""

    def __init__(self, fleet: Fleet, host: Machine, plan: GuestPlan):
        self.plan = plan
        self.host = host
        self._fleet = fleet
        spec = MachineSpec(plan.name, plan.address, plan.mac)
        self.inside = Machine(spec, fleet.sandbox, fleet.key, fleet.logs)

    @property
    def name(self) -> str:
        return self.plan.name

    def make_disks(self, image: Image) -> None:
        """Lay kernel and disks where libvirt keeps images."""
        overlay = self._fleet.folder / f"{self.name}.qcow2"
        command = [str(paths.qemu_img()), "create", "-q", "-u", "-f", "qcow2", "-F", "raw"]
        size = str(image.root.stat().st_size)
        subprocess.run([*command, "-b", "/dev/vdb", str(overlay), size], check=True, timeout=60)
        self.host.copy(image.kernel, f"{IMAGES}/vmlinuz")
        self.host.copy(image.initrd, f"{IMAGES}/initrd.img")
        self.host.copy(overlay, f"{IMAGES}/{self.name}.qcow2")
        self.host.ssh(
            f"dd if=/dev/urandom of={IMAGES}/{self.name}-data.raw bs=1M count={DATA_MIB} "
            "conv=fsync status=none"
        )

    def define(self, emulator: str) -> None:
        """Define the domain through libvirt."""
        xml = domain_xml(self.plan, emulator, self._fleet.public_key)
        self.host.ssh("virsh define /dev/stdin", input=xml)
        self._kept_definition.write_text(self.definition())

    @property
    def _kept_definition(self) -> Path:
        return self._fleet.folder / f"{self.name}.xml"

    def definition(self) -> str:
        """The domain's persistent XML as libvirt has it today."""
        return self.host.out(f"virsh dumpxml --inactive --security-info {self.name}")

    def definition_of_operator(self) -> str:
        """The same from when the operator had just defined it."""
        return self._kept_definition.read_text()

    def start(self) -> None:
        self.host.ssh(f"virsh start {self.name}")

    def wait_ready(self) -> float:
        """Wait until ssh into the guest works, for its operator too; return how long that took."""
        seconds = self.inside.wait_ready(READY_SECONDS)
        self._fleet.prepare(self.inside)
        return seconds

    def state(self) -> str:
        return self.host.out(f"virsh domstate {self.name}")

    def pid(self) -> int:
        """Its QEMU's process id on the host."""
        return int(self.host.out(f"cat /run/libvirt/qemu/{self.name}.pid"))

    def binary(self) -> str:
        """The path of the program that its QEMU process runs."""
        return self.host.out(f"readlink /proc/{self.pid()}/exe")

    def confinement(self) -> str:
        """Its QEMU's AppArmor profile and mode, as the kernel says it."""
        return self.host.out(f"cat /proc/{self.pid()}/attr/current")

    def console(self) -> str:
        """The end of the guest's console, for an error."""
        return self.host.ssh(
            f"tail -n 25 /var/log/libvirt/qemu/{self.name}-console.log "
            f"/var/log/libvirt/qemu/{self.name}.log",
            check=False,
        ).stdout
