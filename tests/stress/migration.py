# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration between two QEMUs of this machine, with requests held.

A guest writes and verifies on its disk and sends and receives over TCP, both
through limited classes, so that there are always requests held. It moves to a
fresh QEMU, again and again. A request lost would hang fio or leave a block that
is not what was written; one doubled, a block that an older write came over; a
frame lost costs TCP a moment, a connection lost ends iperf3.

The source's trace says how many held requests it gave to the migration.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from stress.loads import Found, Loads
from stress.machine import ADDRESS, Machine
from stress.scene import BOOT_SECONDS, BULK, BULK_TAG, Scene, scene, verify_command
from testbed import network
from testbed.sandbox import Task

DISK_BPS = 2_000_000
NET_BPS = 1_000_000
MIGRATION_SECONDS = 180.0
STALL_SECONDS = 30.0
SECONDS_BETWEEN = 2.0
TRACE = ("shaper_withdraw", "sluice_net_*")


@dataclass
class Outcome:
    """What came of it. ``held`` is per migration: requests that moved along."""

    seconds: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    verified_bytes: int = 0
    verify_errors: str = ""
    network_bytes: int = 0
    network_errors: str = ""

    def found(self, what: Found) -> None:
        """Take over what the loads found."""
        for name, value in asdict(what).items():
            setattr(self, name, value)

    def problems(self) -> list[str]:
        """Return what is wrong, one sentence each; empty if all is well."""
        found = []
        if self.verify_errors:
            found.append(f"fio: {self.verify_errors}")
        if not self.verified_bytes:
            found.append("fio has verified nothing")
        if self.network_errors:
            found.append(f"iperf3: {self.network_errors}")
        if not self.network_bytes:
            found.append("iperf3 has moved nothing")
        if self.held and not any(self.held):
            found.append("no migration had a request held, so nothing was tested")
        return found


def limit(machine: Machine) -> None:
    """Give a machine the classes of this run."""
    machine.set_class(BULK, BULK_TAG, blk_read=DISK_BPS, blk_write=DISK_BPS)
    machine.set_class("default", 0, net_tx=NET_BPS, net_rx=NET_BPS)


def run(count: int, say: Callable[[str], None]) -> Outcome:
    """Migrate ``count`` times; the guest's loads begin before and end after."""
    outcome = Outcome()
    with scene("migration") as stage:
        machine = stage.machine("m0", trace=TRACE)
        boot_seconds = stage.guest.wait_ready(BOOT_SECONDS)
        say(f"guest up under {stage.accelerator} after {boot_seconds:.0f} s")
        limit(machine)
        loads = loads_of(stage)
        loads.start(verify_command(86400))
        time.sleep(SECONDS_BETWEEN)
        for index in range(1, count + 1):
            before = loads.progress()
            machine = migrate_once(stage, machine, index, outcome)
            loads.check_alive(before)
            say(
                f"migration {index} of {count}: {outcome.seconds[-1]:.1f} s, "
                f"{outcome.held[-1]} requests held"
            )
            time.sleep(SECONDS_BETWEEN)
        outcome.found(loads.finish())
        machine.stop()
    return outcome


def loads_of(stage: Scene) -> Loads:
    """Return the guest's loads, not yet started."""

    def client(command: list[str]) -> Task:
        log = stage.folder / "logs" / "iperf3.log"
        return stage.sandbox.popen(command, name="iperf3", netns=network.CLIENTS, log=log)

    return Loads(stage.guest, ADDRESS, client, STALL_SECONDS)


def migrate_once(stage: Scene, source: Machine, index: int, outcome: Outcome) -> Machine:
    """Move the guest to a new QEMU and end the old one; return the new one."""
    target = stage.machine(f"m{index}", incoming=True, trace=TRACE)
    limit(target)
    started = time.monotonic()
    source.migrate_to(target, MIGRATION_SECONDS)
    outcome.seconds.append(time.monotonic() - started)
    source.stop()
    outcome.held.append(source.trace_log.read_text().count("shaper_withdraw"))
    return target
