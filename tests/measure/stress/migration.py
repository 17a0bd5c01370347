# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration between two QEMUs of this machine, with requests held.

A guest writes and verifies on its disk and sends and receives over TCP, both through limited
classes, so that there are always requests held. It moves to a fresh QEMU, again and again,
without configuration: classes arrive with the guest. Effects of a mistake:

- A request lost hangs the program that waits for it, or, answered but not done,
  leaves an older block: fio and the rewriter know which write each block holds.
- A request done twice is one more that the QEMUs have done than the guest has
  had answered; if the second is late, it also puts an older block over a newer.
- A frame lost costs TCP a moment; a connection lost ends iperf3.

That fio and the rewriter see an older block is shown first (``proof.py``). The
source's trace says how many held requests it gave to the migration.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from measure.stress import proof, rewriter
from measure.stress.bare import ADDRESS, DiskRequests, Machine
from measure.stress.loads import Found, Loads, gone_on_in_words
from measure.stress.scene import (
    BOOT_SECONDS,
    BULK,
    BULK_COMMAND,
    BULK_TAG,
    REWRITE_OFFSET_BYTES,
    Scene,
    scene,
    verify_command,
)
from measure.stress.withdrawn import EVENT, withdrawn
from testbed import patience

# The loads wait for reads or for writes, in turn: with one limit for both, reads that wait keep
# the writes behind them below it. A slow guest asks for more than this.
SLOW_BPS = 200_000
FAST_BPS = 2_000_000
NET_BPS = 1_000_000
MIGRATION_SECONDS = 180.0
STALL_SECONDS = 30.0
SECONDS_BETWEEN = 2.0
TRACE = (EVENT, "sluice_net_*")
# Between two passes fio has nothing outstanding, and no write while it compares.
HELD_SHARE = 0.9
# Every other migration happens while writes wait.
HELD_WRITES_SHARE = 0.4


@dataclass
class Outcome(Found):
    """What came of it.

    Lists have one value a migration: ``gone_on_seconds`` is the time after it at which each
    load had gone on, ``held`` are the requests that moved along, of them ``held_writes`` the
    disk's writes. ``unshaped`` are the numbers of migrations after which the shaper was not as
    on the source. Requests that the QEMUs have done and the guest has had answered are counted
    where all the QEMUs can be asked.
    """

    seconds: list[float] = field(default_factory=list)
    gone_on_seconds: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    held_writes: list[int] = field(default_factory=list)
    unshaped: list[int] = field(default_factory=list)
    network_bytes: int = 0
    done: DiskRequests | None = None
    answered: DiskRequests | None = None

    def moved(self, seconds: float, held: Counter[str]) -> None:
        """Take over the figures of an ended migration."""
        self.seconds.append(seconds)
        self.held.append(held.total())
        self.held_writes.append(held["blk-write"])

    def problems(self) -> list[str]:
        """Return what is wrong, one sentence each; empty if all is well."""
        found = self.wrong()
        if not self.network_bytes:
            found.append("iperf3 has moved nothing")
        if self.done != self.answered:
            found.append(
                f"the QEMUs have done {self.done}, and the guest has had {self.answered} answered"
            )
        if self.unshaped:
            found.append(f"the limits have not arrived in migrations {self.unshaped}")
        return found + self._untested()

    def _untested(self) -> list[str]:
        """Name conditions that too few of the migrations met, so that they prove little."""
        found = []
        for what, counts, share in (
            ("a request", self.held, HELD_SHARE),
            ("a write to the disk", self.held_writes, HELD_WRITES_SHARE),
        ):
            having = sum(map(bool, counts))
            if having < share * len(counts) or not counts:
                found.append(
                    f"{having} of {len(counts)} migrations had {what} held; "
                    f"at least {share:.0%} must"
                )
        return found


def limit(machine: Machine, index: int) -> None:
    """Give a machine the classes it has before migration ``index``, of which the first is 1."""
    read, write = (FAST_BPS, SLOW_BPS) if index % 2 else (SLOW_BPS, FAST_BPS)
    machine.set_class(BULK, BULK_TAG, blk_read=read, blk_write=write)
    machine.set_class("default", 0, net_tx=NET_BPS, net_rx=NET_BPS)


def run(count: int, say: Callable[[str], None]) -> Outcome:
    """Migrate ``count`` times; the guest's loads begin before and end after."""
    outcome = Outcome()
    with scene("migration") as stage:
        machine = stage.machine("m0", trace=TRACE)
        boot_seconds = stage.guest.wait_ready(BOOT_SECONDS)
        say(f"guest up under {stage.accelerator} after {boot_seconds:.0f} s")
        limit(machine, 1)
        # The firmware's, which the guest's kernel does not know of.
        done = DiskRequests() - (machine.disk_requests() - stage.guest.disk_requests())
        rewriter.install(stage.guest, stage.folder)
        commands = verify_command(), rewriter.command(REWRITE_OFFSET_BYTES, f"{BULK_COMMAND} ")
        proof.prove(stage.guest, *commands)
        say("fio and the rewriter both see a stale block")
        loads = loads_of(stage)
        loads.start(*commands)
        for index in range(1, count + 1):
            limit(machine, index)
            time.sleep(SECONDS_BETWEEN)
            source, machine = machine, migrate(stage, machine, index, outcome)
            gone_on = loads.wait_gone_on()
            outcome.gone_on_seconds.append(max(gone_on.values()))
            done += source.disk_requests()
            source.stop()
            say(
                f"migration {index} of {count}: {outcome.seconds[-1]:.1f} s, "
                f"{outcome.held[-1]} requests held, {outcome.held_writes[-1]} of them writes; "
                f"{gone_on_in_words(gone_on)}"
            )
        outcome.network_bytes = loads.finish(outcome)
        outcome.answered = stage.guest.disk_requests()
        outcome.done = done + machine.disk_requests()
        machine.stop()
    return outcome


def loads_of(stage: Scene) -> Loads:
    """Return the guest's loads, not yet started."""
    return Loads(stage.guest, ADDRESS, stage.client, patience.seconds(STALL_SECONDS))


def migrate(stage: Scene, source: Machine, index: int, outcome: Outcome) -> Machine:
    """Move the guest to a new QEMU and return that; the old one stays, stopped."""
    target = stage.machine(f"m{index}", incoming=True, trace=TRACE)
    before = withdrawn(source.trace_log.read_text())
    started = time.monotonic()
    source.migrate_to(target, patience.seconds(MIGRATION_SECONDS))
    seconds = time.monotonic() - started
    outcome.moved(seconds, withdrawn(source.trace_log.read_text()) - before)
    if target.shaping() != source.shaping():
        outcome.unshaped.append(index)
    return target
