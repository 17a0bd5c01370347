# SPDX-License-Identifier: GPL-2.0-or-later
"""A shaped guest moves between two hosts with KVM, by libvirt, there and back.

The hosts are the emulated machines of ``make test-deploy``, installed with
``site.yml``; the guest is the testbed's, under ``type='kvm'``, with an agent. It
writes and verifies on its disk in a class that a rule gives it, and sends and
receives over TCP through limits. It is moved as docs/how-to/migrate-a-guest.md
says, with its disks, which no other host reaches.

Its QEMU's log has how many held requests it gave to the migration: the trace
event is switched on through libvirt. How many requests all the QEMUs have done
is not counted here: a QEMU is gone as soon as its guest is.
"""

import json
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from deploy import plan
from deploy.control import ControlNode
from deploy.fleet import CONTROL_ADDRESS, Fleet
from deploy.guest import IMAGES
from deploy.machine import BRIDGE, Machine, MachineSpec
from measure.stress import rewriter
from measure.stress.loads import UNIT, Loads, gone_on_in_words
from measure.stress.migration import Outcome
from measure.stress.scene import DATA_MIB, REWRITE_OFFSET_BYTES, StressError, verify_command
from measure.stress.withdrawn import EVENT, withdrawn
from testbed import agent_disk, paths, patience
from testbed.domain_xml import FileDisk, GuestSpec, Placement, domain_xml
from testbed.guest import Guest
from testbed.sandbox import CommandFailed, Task

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
# The loads must ask for more than this even on a busy machine: a limit that a guest of an
# emulated host cannot reach holds nothing. Writes have the lower limit: each follows a read,
# and a read that waits would keep them below theirs.
LIMITS = {"blk-read": "120kB/s", "blk-write": "10kB/s"}
DEFAULT_LIMITS = {"net-tx": "60kB/s", "net-rx": "45kB/s"}
# Emulated hosts: a command takes eight times as long as on others, and more;
# the next two are multiplied by it.
PATIENCE = 8
READY_SECONDS = 150.0
MOVE_SECONDS = 300.0
# A guest that goes on, its agent and its sluiced, asked by commands that are slow.
STALL_SECONDS = 600.0
# Commands that tell the state of a host and the guest after a failure.
HOST_STATE = (
    "uptime; ps -eLo ni,pcpu,time,stat,wchan:24,comm --sort=-pcpu | head -n 40; "
    f"virsh qemu-monitor-command --hmp {NAME} info qtree | grep -A 3 org.sluice.agent; "
    f"sluice show {NAME} --json; sluice live {NAME} --once --json; "
    f"tail -n 200 /var/log/libvirt/qemu/{NAME}*.log"
)
GUEST_STATE = (
    "uptime; ps -eLo ni,pcpu,time,stat,wchan:24,comm --sort=-pcpu | head -n 40; "
    "for pid in $(pgrep -x 'fio|rewrite'); do ionice -p $pid; done; "
    "journalctl -b --no-pager -o short-monotonic -u sluice-agent"
)
STATE_SECONDS = 240.0
TRACE = {"execute": "trace-event-set-state", "arguments": {"name": EVENT, "enable": True}}


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
        """Lay its boot files, and disks as they are before it ever ran."""
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
    patience.use(PATIENCE)
    with Fleet("hosts", HOSTS) as fleet:
        seconds = fleet.wait_ready()
        say(f"machines up after {max(seconds.values()):.0f} s: {fleet.folder}")
        guest = Mover(fleet)
        try:
            install(fleet, say)
            begin(fleet, guest, say)
            rewriter.install(guest, fleet.folder)
            loads = loads_of(fleet, guest)
            loads.start(verify_command(tagged=False), rewriter.command(REWRITE_OFFSET_BYTES))
            moves(fleet, guest, loads, count, outcome, say)
            outcome.network_bytes = loads.finish(outcome)
        except Exception:
            save_state(fleet, guest)
            raise
        finally:
            for machine in fleet.machines.values():
                machine.save_journal()
    return outcome


def save_state(fleet: Fleet, guest: Mover) -> None:
    """Save the state of the hosts and the guest beside the logs, as far as they answer."""
    asked = {machine.name: (machine.ssh, HOST_STATE) for machine in fleet.machines.values()}
    for name, (ssh, command) in {**asked, NAME: (guest.ssh, GUEST_STATE)}.items():
        try:
            text = ssh(command, timeout_seconds=STATE_SECONDS, check=False).stdout
        except CommandFailed as problem:
            text = f"{problem}\n"
        (fleet.logs / f"state-{name}.log").write_text(text)


def moves(
    fleet: Fleet,
    guest: Mover,
    loads: Loads,
    count: int,
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    """Move the guest there and back; each time all loads go on, and are shaped."""
    source, target = fleet["host1"], fleet["host2"]
    wait_shaped(source, say)
    for index in range(1, count + 1):
        say(f"requests held on {source.name} before move {index}: {backlog(live(source))}")
        outcome.moved(*move(guest, source, target))
        gone_on = loads.wait_gone_on()
        outcome.gone_on_seconds.append(max(gone_on.values()))
        wait_shaped(target, say)
        say(
            f"move {index} of {count}, {source.name} to {target.name}: "
            f"{outcome.seconds[-1]:.1f} s, {outcome.held[-1]} requests held, "
            f"{outcome.held_writes[-1]} of them writes; "
            f"{gone_on_in_words(gone_on)}"
        )
        source, target = target, source


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
    host.ssh("virsh define /dev/stdin", input=definition(guest))
    host.ssh(f"sluice attach {NAME}")
    host.ssh(f"sluice class set {CLASS} && sluice grant {NAME} {CLASS}")
    for name, limits in ((CLASS, LIMITS), ("default", DEFAULT_LIMITS)):
        for resource, rate in limits.items():
            host.ssh(f"sluice limit {NAME} {name} {resource} {rate}")
    for unit in (UNIT, rewriter.UNIT):
        host.ssh(f"sluice rule add {CLASS} --domain {NAME} --unit {unit}.service")
    host.ssh(f"virsh start {NAME}")
    say(f"guest up under kvm after {guest.wait_ready(READY_SECONDS):.0f} s")


def definition(guest: Guest) -> str:
    """Return its XML. It names the overlay's backing, which AppArmor must let through."""
    domain = ET.fromstring(domain_xml(guest.spec, guest.placement))
    root = next(disk for disk in domain.iter("disk") if disk.find("target").get("dev") == "vda")
    backing = ET.SubElement(root, "backingStore", type="block")
    ET.SubElement(backing, "format", type="raw")
    ET.SubElement(backing, "source", dev=BASE)
    ET.SubElement(backing, "backingStore")
    return ET.tostring(domain, encoding="unicode")


def loads_of(fleet: Fleet, guest: Mover) -> Loads:
    """Return the guest's loads, not yet started; the control node is iperf3's other end."""

    def client(command: list[str]) -> Task:
        return fleet.sandbox.popen(command, name="iperf3", log=fleet.logs / "iperf3.log")

    return Loads(guest, ADDRESS, client, STALL_SECONDS)


def move(guest: Mover, source: Machine, target: Machine) -> tuple[float, Counter[str]]:
    """Move the guest as an operator does.

    Returns how long it took, in seconds, and which held requests moved along.
    """
    guest.lay_disks(target)
    source.ssh(f"virsh qemu-monitor-command {NAME} {shlex.quote(json.dumps(TRACE))}")
    before = trace(source)
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
    return seconds, trace(source) - before


def trace(host: Machine) -> Counter[str]:
    """Return which requests the guest's QEMUs on a host have withdrawn so far."""
    return withdrawn(host.out(f"grep {EVENT} /var/log/libvirt/qemu/{NAME}.log || true"))


def live(host: Machine) -> dict[str, Any]:
    """Return the host's live view of the guest; empty without one."""
    done = host.ssh(f"sluice live {NAME} --once --json", check=False)
    return {} if done.returncode else json.loads(done.stdout)["domains"].get(NAME, {})


def class_of(known: dict[str, Any]) -> dict[str, Any]:
    """Return the class in the live view of the guest.

    Empty while sluiced does not know: the guest is new to it, or its page has not been
    refreshed for two seconds, which is soon on an emulated host.
    """
    return known.get("classes", {}).get(CLASS, {})


def backlog(known: dict[str, Any]) -> int | None:
    """Return how many of the class's requests are held; None if that is not known."""
    found = class_of(known)
    if not set(LIMITS) <= set(found):
        return None
    return sum(found[resource]["backlog_requests"] for resource in LIMITS)


def missing(shown: dict[str, Any], known: dict[str, Any]) -> dict[str, str]:
    """Name the guest's missing parts on its host, with reasons, in ``sluice show`` and live."""
    grants = {grant["class"]: grant for grant in shown["classes"]}
    limits = grants.get(CLASS, {}).get("limits", {})
    found = {} if shown["agent"]["connected"] else {"a connected agent": why(shown["agent"])}
    found |= {f"a limit of {each}": "sluiced has none" for each in LIMITS if each not in limits}
    return found if is_held(class_of(known)) else found | {"a request that was held": why(known)}


def is_held(resources: dict[str, Any]) -> bool:
    """Return whether a request of the class waits, or waited within the last second."""
    return any(
        resources.get(each, {}).get("held_p99_ms")
        or resources.get(each, {}).get("backlog_requests")
        for each in LIMITS
    )


def why(said: dict[str, Any]) -> str:
    return said.get("error") or "no error"


def in_words(lacks: dict[str, str]) -> str:
    return ", ".join(f"{what} ({reason})" for what, reason in lacks.items())


def wait_shaped(host: Machine, say: Callable[[str], None]) -> None:
    """Wait until the agent has spoken and the class was held to its limits; StressError.

    Not at one and the same time: a host that is emulated is busy, and says that late.
    """
    deadline = time.monotonic() + STALL_SECONDS
    lacks: dict[str, str] | None = None
    now: dict[str, str] = {}
    while lacks is None or lacks:
        if time.monotonic() > deadline:
            raise StressError(f"{NAME} on {host.name} lacks {in_words(lacks or now)}")
        try:
            now = missing(json.loads(host.out(f"sluice show {NAME} --json")), live(host))
        except CommandFailed as problem:
            now = {"an answer of sluiced": str(problem)}
        else:
            lacks = {what: now[what] for what in now if lacks is None or what in lacks}
        if lacks or lacks is None:
            say(f"{host.name} lacks {in_words(now)}")
            time.sleep(2)
