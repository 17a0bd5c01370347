# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration between two QEMUs of this machine, with requests held.

A guest writes and verifies on its disk and sends and receives over TCP, both
through limited classes, so that there are always requests held. It moves to a
fresh QEMU, again and again. A request lost would hang fio or leave a block that
is not what was written; one doubled, a block that an older write came over; a
frame lost costs TCP a moment, a connection lost ends iperf3.

The source's trace says how many held requests it gave to the migration.
"""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from stress.machine import ADDRESS, Machine
from stress.scene import BOOT_SECONDS, BULK, BULK_TAG, Scene, StressError, scene, verify_command
from testbed import network
from testbed.sandbox import Task

DISK_BPS = 2_000_000
NET_BPS = 1_000_000
MIGRATION_SECONDS = 180.0
STALL_SECONDS = 30.0
SECONDS_BETWEEN = 2.0
VERIFY = "/run/verify.out"
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
        net = start_loads(stage)
        time.sleep(SECONDS_BETWEEN)
        for index in range(1, count + 1):
            before = progress(stage)
            machine = migrate_once(stage, machine, index, outcome)
            check_alive(stage, net, before)
            say(
                f"migration {index} of {count}: {outcome.seconds[-1]:.1f} s, "
                f"{outcome.held[-1]} requests held"
            )
            time.sleep(SECONDS_BETWEEN)
        finish_loads(stage, net, outcome)
        machine.stop()
    return outcome


def start_loads(stage: Scene) -> Task:
    """Start fio in the guest, and iperf3 in both directions to it; return its client."""
    stage.guest.spawn(f"{verify_command(86400)} >{VERIFY} 2>&1", unit="verify")
    stage.guest.spawn("iperf3 --server --one-off", unit="stream")
    command = ["iperf3", "--client", ADDRESS, "--time", "86400", "--bidir", "--forceflush"]
    stage.guest.ssh("until ss -lnt | grep -q :5201; do sleep 0.1; done")
    log = stage.folder / "logs" / "iperf3.log"
    return stage.sandbox.popen(command, name="iperf3", netns=network.CLIENTS, log=log)


def progress(stage: Scene) -> tuple[int, int]:
    """Return sectors written to the data disk and bytes sent and received, in the guest."""
    command = "awk '{print $7}' /sys/block/vdb/stat; "
    command += "cat /sys/class/net/eth0/statistics/[rt]x_bytes"
    sectors, *frames = map(int, stage.guest.ssh(command).stdout.split())
    return sectors, sum(frames)


def check_alive(stage: Scene, net: Task, before: tuple[int, int]) -> None:
    """Both loads go on on the new machine; StressError if one does not."""
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        disk_sectors, net_bytes = progress(stage)
        # An ssh command itself moves some kilobytes.
        if disk_sectors > before[0] and net_bytes > before[1] + 100_000:
            break
        if time.monotonic() > deadline:
            raise StressError(
                f"{STALL_SECONDS:g} s after a migration: sectors written {before[0]} then "
                f"{disk_sectors}, bytes on the network {before[1]} then {net_bytes}"
            )
        time.sleep(0.2)
    if not net.running():
        raise StressError("iperf3 has lost its connection; see logs/iperf3.log")
    if stage.guest.ssh("pgrep -x fio", check=False).returncode:
        raise StressError(f"fio has ended: {stage.guest.ssh(f'tail -n 5 {VERIFY}').stdout}")


def finish_loads(stage: Scene, net: Task, outcome: Outcome) -> None:
    """End both loads and read what they found."""
    stage.guest.ssh("pkill -INT -x fio; true")
    stage.guest.wait_unit("verify", 60)
    text = stage.guest.ssh(f"cat {VERIFY}").stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    outcome.verified_bytes = job["read"]["io_bytes"]
    if job["error"] or "verify:" in text or "bad magic" in text:
        outcome.verify_errors = text[:500]
    outcome.network_errors = "" if net.running() else "its client has ended"
    net.signal(signal.SIGINT)
    net.wait(20)
    outcome.network_bytes = progress(stage)[1]


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
