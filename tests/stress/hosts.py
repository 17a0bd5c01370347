# SPDX-License-Identifier: GPL-2.0-or-later
"""A shaped guest moves between two hosts with KVM, by libvirt, there and back.

The hosts are the emulated machines of ``make test-deploy``, installed with
``site.yml``; the guest is the testbed's, under ``type='kvm'``, with an agent. It
writes and verifies on its disk in a class that a rule gives it, and sends and
receives over TCP through limits. It is moved as docs/how-to/migrate-a-guest.md
says, with its disks, which no other host reaches.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy import plan
from deploy.control import ControlNode
from deploy.fleet import CONTROL_ADDRESS, Fleet
from deploy.guest import IMAGES
from deploy.machine import BRIDGE, Machine, MachineSpec
from stress.loads import Loads
from stress.migration import Outcome
from stress.scene import DATA_MIB, StressError, verify_command
from testbed import agent_disk, paths
from testbed.domain_xml import FileDisk, GuestSpec, Placement, domain_xml
from testbed.guest import Guest
from testbed.sandbox import Task

HOSTS = (
    MachineSpec("host1", "10.78.0.11", "52:54:00:78:00:11", data=("root.img",)),
    MachineSpec("host2", "10.78.0.12", "52:54:00:78:00:12", data=("root.img",)),
)
EMULATOR = Path("/usr/lib/sluice/qemu/bin/qemu-system-x86_64")
NAME = "mover"
ADDRESS = "10.78.0.31"
# The hosts' third disk: the testbed's root image.
BASE = "/dev/vdc"
CLASS = "bulk"
LIMITS = {"blk-read": "400kB/s", "blk-write": "400kB/s"}
DEFAULT_LIMITS = {"net-tx": "400kB/s", "net-rx": "300kB/s"}
READY_SECONDS = 1200.0
MOVE_SECONDS = 900.0
# Emulated hosts: a guest that goes on, its agent and its sluiced take their time.
STALL_SECONDS = 240.0


class Mover(Guest):
    """The guest, on whichever host it is: commands by ssh, which moving keeps."""

    def __init__(self, fleet: Fleet):
        data = FileDisk(Path(f"{IMAGES}/{NAME}-data.raw"))
        spec = GuestSpec(NAME, memory_mib=384, vcpus=1, disks=(data,))
        placement = Placement(
            accelerator="kvm",
            emulator=EMULATOR,
            kernel=Path(f"{IMAGES}/vmlinuz"),
            initrd=Path(f"{IMAGES}/initrd.img"),
            root_overlay=Path(f"{IMAGES}/{NAME}.qcow2"),
            console_log=Path(f"/var/log/libvirt/qemu/{NAME}-console.log"),
            address=ADDRESS,
            mac="52:54:00:78:00:31",
            agent_image=Path(f"{IMAGES}/agent.img"),
            processors=1,
            bridge=BRIDGE,
            gateway=CONTROL_ADDRESS,
        )
        super().__init__(spec, placement, fleet.sandbox, None, paths.image("id_ed25519"))
        self._fleet = fleet

    def running(self) -> bool:
        """Return whether some host runs it; libvirt is asked where it matters."""
        return True

    def lay_files(self, host: Machine) -> None:
        """Lay what it boots with, and disks as they are before it ever ran."""
        self._fleet.copy_guest_files(host, IMAGES)
        image = self._fleet.folder / "agent.img"
        if not image.exists():
            agent_disk.make(image)
        host.copy(image, f"{IMAGES}/agent.img")
        self.lay_disks(host)

    def lay_disks(self, host: Machine) -> None:
        """Lay its two disks, empty: a host that gives it away may keep old ones."""
        overlay = self._fleet.folder / f"{NAME}.qcow2"
        size = str(paths.image("root.img").stat().st_size)
        command = [str(paths.qemu_img()), "create", "-q", "-u", "-f", "qcow2", "-F", "raw"]
        subprocess.run([*command, "-b", BASE, str(overlay), size], check=True, timeout=60)
        host.ssh(f"rm -f {IMAGES}/{NAME}.qcow2 {IMAGES}/{NAME}-data.raw")
        host.copy(overlay, f"{IMAGES}/{NAME}.qcow2")
        host.ssh(f"truncate -s {DATA_MIB}M {IMAGES}/{NAME}-data.raw")


def run(count: int, say: Callable[[str], None]) -> Outcome:
    """Move the guest ``count`` times; its loads begin before and end after."""
    outcome = Outcome()
    with Fleet("hosts", HOSTS) as fleet:
        seconds = fleet.wait_ready()
        say(f"machines up after {max(seconds.values()):.0f} s: {fleet.folder}")
        install(fleet, say)
        guest = Mover(fleet)
        begin(fleet, guest, say)
        loads = loads_of(fleet, guest)
        loads.start(verify_command(86400, tagged=False))
        source, target = fleet["host1"], fleet["host2"]
        wait_shaped(source)
        for index in range(1, count + 1):
            before = loads.progress()
            outcome.held.append(backlog(source))
            outcome.seconds.append(move(guest, source, target))
            loads.check_alive(before)
            wait_shaped(target)
            say(
                f"move {index} of {count}, {source.name} to {target.name}: "
                f"{outcome.seconds[-1]:.1f} s, {outcome.held[-1]} requests held before it"
            )
            source, target = target, source
        outcome.found(loads.finish())
        source.ssh(f"virsh destroy {NAME}")
    return outcome


def install(fleet: Fleet, say: Callable[[str], None]) -> None:
    """Deploy to both hosts, and let root of each reach the other's libvirt."""
    control = ControlNode(fleet)
    control.install_collection()
    wanted = plan.inventory(fleet, control.passwords)
    wanted["sluice_nightly"]["hosts"] = {}
    done = control.play("site", control.write_inventory("site", wanted))
    say(f"site.yml on both: {done.seconds:.0f} s")
    names = "".join(f"{machine.address} {machine.name}\n" for machine in fleet.machines.values())
    known = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    for machine in fleet.machines.values():
        machine.ssh("cat >>/etc/hosts", input=names)
        machine.write("/root/.ssh/id_ed25519", fleet.key.read_text(), mode="0600")
        machine.write("/root/.ssh/config", known, mode="0600")


def begin(fleet: Fleet, guest: Mover, say: Callable[[str], None]) -> None:
    """Define, attach and limit the guest on the first host, and boot it."""
    host = fleet["host1"]
    for machine in fleet.machines.values():
        guest.lay_files(machine)
    host.ssh("virsh define /dev/stdin", input=domain_xml(guest.spec, guest.placement))
    host.ssh(f"sluice attach {NAME}")
    host.ssh(f"sluice class set {CLASS} && sluice grant {NAME} {CLASS}")
    for name, limits in ((CLASS, LIMITS), ("default", DEFAULT_LIMITS)):
        for resource, rate in limits.items():
            host.ssh(f"sluice limit {NAME} {name} {resource} {rate}")
    host.ssh(f"sluice rule add {CLASS} --domain {NAME} --unit verify.service")
    host.ssh(f"virsh start {NAME}")
    say(f"guest up under kvm after {guest.wait_ready(READY_SECONDS):.0f} s")


def loads_of(fleet: Fleet, guest: Mover) -> Loads:
    """Return the guest's loads, not yet started; the control node is iperf3's other end."""

    def client(command: list[str]) -> Task:
        return fleet.sandbox.popen(command, name="iperf3", log=fleet.logs / "iperf3.log")

    return Loads(guest, ADDRESS, client, STALL_SECONDS)


def move(guest: Mover, source: Machine, target: Machine) -> float:
    """Move the guest as an operator does; return how long it took, in seconds."""
    guest.lay_disks(target)
    started = time.monotonic()
    source.ssh(
        "virsh migrate --live --persistent --undefinesource --copy-storage-inc "
        f"{NAME} qemu+ssh://{target.name}/system",
        timeout_seconds=MOVE_SECONDS,
    )
    seconds = time.monotonic() - started
    state = target.out(f"virsh domstate {NAME}")
    if state != "running":
        raise StressError(f"{NAME} is {state!r} on {target.name} after its migration")
    if source.ssh(f"virsh dominfo {NAME}", check=False).returncode == 0:
        raise StressError(f"{source.name} still has {NAME} after it went")
    return seconds


def live(host: Machine) -> dict[str, Any]:
    """Return what the host's sluiced says of the guest's class right now."""
    answer = json.loads(host.out(f"sluice live {NAME} --once --json"))
    return answer["domains"][NAME]["classes"].get(CLASS, {})


def backlog(host: Machine) -> int:
    """Return how many of the class's requests are held."""
    return sum(live(host)[resource]["backlog_requests"] for resource in LIMITS)


def wait_shaped(host: Machine) -> None:
    """Wait until the agent speaks and the class is held to its limits; StressError."""
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        shown = json.loads(host.out(f"sluice show {NAME} --json"))
        grants = {grant["class"]: grant for grant in shown["classes"]}
        limited = CLASS in grants and set(LIMITS) <= set(grants[CLASS]["limits"])
        held = [resource for resource in LIMITS if live(host).get(resource, {}).get("held_p99_ms")]
        if shown["agent"]["connected"] and limited and held:
            return
        if time.monotonic() > deadline:
            raise StressError(
                f"{NAME} is not shaped on {host.name} after {STALL_SECONDS:g} s: agent "
                f"{shown['agent']}, classes {sorted(grants)}, held {held}"
            )
        time.sleep(2)
