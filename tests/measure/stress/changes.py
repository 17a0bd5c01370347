# SPDX-License-Identifier: GPL-2.0-or-later
"""Live changes of classes under load, tens of thousands of them.

A guest writes and verifies on a disk, and sends and receives over TCP. Its two classes and the
ceiling change all the time: rates, bursts, priorities, weights, tags; now and then a class is
removed and made again (``next_change.py``). fio and both connections carry the tag of one class
and the rewriter that of the other. Nothing may go wrong in the guest, no connection may break,
and nothing may wait much longer than its rate explains.

The bound. Together they have ``OUTSTANDING`` requests of 4 KiB, in the worst case all in one
class, and no class has less than ``RATE_MIN_BPS``, so that the shaper explains a wait of at
most ``OUTSTANDING * 4096 / RATE_MIN_BPS``. A second fio measures the delay of a busy machine at
the same time, on the root disk, which has no shaper here and an I/O thread of its own. The rest
must stay below 100 ms.

Of the connections the lowest rate explains that each second passes no less than that in each
direction; ``NET_SHARE_MIN`` of it must, since TCP looks for its rate anew after each loss. That
is more than the acknowledgements of the other direction. The shaper counts passed bytes
(``passage.py``): at the other end data in order may come late, and all at once, if a frame is
lost twice. The first ``NET_START_SECONDS`` are for the connections to begin.

The control's excuse has a bound. If it waits for longer than ``EXCUSED_MS``, nothing can be
said: the machine is too busy, or a change stops all of QEMU, the control included. That run is
no proof, and fails; with ``--skip-times`` its times are not judged, and it says so. Changes are
made by QEMU's main loop, so their answers are held to the same bound.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from measure.loads import fio_job
from measure.stress import passage, rewriter
from measure.stress.bare import ADDRESS, Machine
from measure.stress.loads import (
    UNIT,
    Found,
    end_network,
    end_units,
    require_active,
    start_network,
    start_verify,
)
from measure.stress.next_change import CARD, NET_RATE_MIN_BPS, RATE_MIN_BPS, NextChange
from measure.stress.scene import (
    BOOT_SECONDS,
    BULK,
    BULK_TAG,
    REWRITE_OFFSET_BYTES,
    Scene,
    scene,
    verify_command,
)

OTHER = "other"
OTHER_TAG = 3
OTHER_COMMAND = f"ionice -c1 -n{OTHER_TAG}"
DEPTH = 16
OUTSTANDING = DEPTH + rewriter.WRITERS
BLOCK_BYTES = 4096
STALL_MS = 100.0
SHAPED_MS = 1e3 * OUTSTANDING * BLOCK_BYTES / RATE_MIN_BPS
EXCUSED_MS = 250.0
# The tag's DSCP, as a type of service (docs/specs/tags.md).
NET_TOS = (BULK_TAG << 2 | 3) << 2
NET_START_SECONDS = 3
NET_SHARE_MIN = 0.5
NET_LEAST_BPS = NET_SHARE_MIN * NET_RATE_MIN_BPS
KINDS = ("ceiling", "removal", "tag", f"rates of {BULK}", f"rates of {OTHER}")
CONTROL = "control"
SAY_EVERY_SECONDS = 30.0


@dataclass
class Outcome(Found):
    """The outcome; latencies are the longest, submission to completion.

    ``held_writes`` and ``held_frames`` are the numbers that each class has held. ``passed_bps``
    are the bytes that passed in each second, by direction.
    """

    changes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    held_writes: dict[str, int] = field(default_factory=dict)
    held_frames: dict[str, int] = field(default_factory=dict)
    passed_bps: dict[str, list[float]] = field(default_factory=dict)
    longest_ms: float = 0.0
    rewrite_longest_ms: float = 0.0
    answer_longest_ms: float = 0.0
    control_longest_ms: float = 0.0

    def problems(self) -> list[str]:
        """Return what is wrong, one sentence each; empty if all is well."""
        busy = self.too_busy()
        return self.wrong() + self._silence() + ([busy] if busy else []) + self._stalls()

    def too_busy(self) -> str:
        """Say why nothing can be said of times; empty if something can."""
        if self.control_longest_ms <= EXCUSED_MS:
            return ""
        return (
            f"inconclusive: without a shaper a request took {self.control_longest_ms:.0f} ms, "
            f"and {EXCUSED_MS:.0f} ms can be excused; run it when the machine has less to do"
        )

    def wrong(self) -> list[str]:
        """Return faults that no slow machine excuses."""
        found = super().wrong()
        for kind in KINDS:
            if not self.kinds.get(kind):
                found.append(f"no change was one of the kind '{kind}'; use a larger --count")
        for name in (BULK, OTHER):
            if not self.held_writes.get(name):
                found.append(f"class {name} has held no write, so its changes prove nothing")
            if not self.held_frames.get(name):
                found.append(f"class {name} has held no frame, so its changes prove nothing")
        return found

    def _silence(self) -> list[str]:
        """Name the directions in which too little passed in a second."""
        found = []
        for resource in CARD:
            rates = self.passed_bps.get(resource, [])[NET_START_SECONDS:]
            few = [
                f"{rate:.0f} in second {at}"
                for at, rate in enumerate(rates, NET_START_SECONDS)
                if rate < NET_LEAST_BPS
            ]
            if few or not rates:
                found.append(
                    f"{resource}: of {len(rates)} seconds {len(few)} passed less than the "
                    f"{NET_LEAST_BPS:.0f} bytes that the lowest rate explains: "
                    f"{', '.join(few[:20]) or 'there was none'}"
                )
        return found

    def _stalls(self) -> list[str]:
        """Name the loads that waited for too long."""
        found = []
        excused_ms = min(self.control_longest_ms, EXCUSED_MS)
        for what, took_ms, shaped_ms in (
            ("a request of fio", self.longest_ms, SHAPED_MS),
            ("a request of rewrite", self.rewrite_longest_ms, SHAPED_MS),
            ("the answer to a change", self.answer_longest_ms, 0.0),
        ):
            if took_ms > shaped_ms + excused_ms + STALL_MS:
                found.append(
                    f"{what} took {took_ms:.0f} ms; its rate explains {shaped_ms:.0f} ms, "
                    f"the machine {excused_ms:.0f} ms, and {STALL_MS:.0f} ms are allowed"
                )
        return found


def run(count: int, seconds: float, say: Callable[[str], None]) -> Outcome:
    """Make ``count`` changes, spread over at least ``seconds``."""
    outcome = Outcome()
    choice = NextChange(random.Random(1), {BULK: BULK_TAG, OTHER: OTHER_TAG})
    with scene("changes") as stage:
        machine = stage.machine(
            "m0",
            disk_options=",num-queues=2,packed=on,iothread=io0",
            root_options=",iothread=io1",
        )
        say(
            f"guest up under {stage.accelerator} after {stage.guest.wait_ready(BOOT_SECONDS):.0f} s"
        )
        for command, arguments in choice.first():
            machine.qmp.execute(command, **arguments)
        rewriter.install(stage.guest, stage.folder)
        start_verify(stage.guest, verify_command(DEPTH))
        rewriter.start(stage.guest, rewriter.command(REWRITE_OFFSET_BYTES, f"{OTHER_COMMAND} "))
        stage.guest.spawn(f"{control_command()} >/run/{CONTROL}.out 2>&1", unit=CONTROL)
        net = start_network(stage.guest, ADDRESS, stage.client, "--tos", str(NET_TOS))
        make_changes(machine, choice, count, seconds, say, outcome)
        outcome.kinds = choice.made
        outcome.network_errors = end_network(net)
        read_results(stage, machine, outcome)
        machine.stop()
    return outcome


def control_command() -> str:
    """The fio command that shows the machine's own delay of a request."""
    return (
        "fio --name=control --filename=/root/control --size=8m --direct=1 --ioengine=libaio "
        "--iodepth=1 --rw=randwrite --bs=4k --rate_iops=50 --time_based --runtime=86400 "
        "--output-format=json"
    )


def make_changes(
    machine: Machine,
    choice: NextChange,
    count: int,
    seconds: float,
    say: Callable[[str], None],
    outcome: Outcome,
) -> None:
    """Make the changes at an even pace, or as fast as QEMU answers."""
    started = spoken = time.monotonic()
    meter = passage.Meter(started, machine.passed_bytes())
    outcome.passed_bps = meter.rates
    for index in range(count):
        for command, arguments in choice.next():
            asked = time.monotonic()
            machine.qmp.execute(command, **arguments)
            answer_ms = 1e3 * (time.monotonic() - asked)
            outcome.answer_longest_ms = max(outcome.answer_longest_ms, answer_ms)
        outcome.changes += 1
        now = time.monotonic()
        if meter.due(now):
            meter.look(now, machine.passed_bytes())
        ahead = started + (index + 1) * seconds / count - now
        if ahead > 0:
            time.sleep(ahead)
        if now - spoken > SAY_EVERY_SECONDS:
            spoken = now
            say(f"{outcome.changes} of {count} changes after {now - started:.0f} s")
    outcome.seconds = time.monotonic() - started


def read_results(stage: Scene, machine: Machine, outcome: Outcome) -> None:
    """End all loads and read their findings; StressError if one is gone."""
    units = UNIT, rewriter.UNIT, CONTROL
    require_active(stage.guest, *units)
    end_units(stage.guest, *units)
    job, rewritten = outcome.read_writers(stage.guest)
    outcome.longest_ms = max(job[way]["lat_ns"]["max"] for way in ("read", "write")) / 1e6
    outcome.rewrite_longest_ms = rewritten.longest_ms
    control = fio_job(stage.guest.ssh(f"cat /run/{CONTROL}.out").stdout)
    outcome.control_longest_ms = control["write"]["lat_ns"]["max"] / 1e6
    shaper = machine.qmp.execute("query-shapers")[0]
    outcome.held_writes = held_requests(shaper, "blk-write")
    outcome.held_frames = held_requests(shaper, *CARD)


def held_requests(shaper: dict, *resources: str) -> dict[str, int]:
    """Return how many requests each class of a shaper has held of them, by its name.

    Of several resources the fewest: none should be without.
    """
    return {
        each["class"]: min(
            stats["held-requests"] for stats in each["stats"] if stats["resource"] in resources
        )
        for each in shaper["classes"]
    }
