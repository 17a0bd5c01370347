# SPDX-License-Identifier: GPL-2.0-or-later
"""Live changes of classes under load, tens of thousands of them.

A guest writes and verifies on a disk whose two classes and ceiling change all
the time: rates, bursts, priorities, tags; now and then a class is removed and
made again. Nothing may go wrong in the guest, and nothing may wait much longer
than its rate explains.

The bound. fio has ``DEPTH`` requests of 4 KiB outstanding, and no rate is below
``RATE_MIN_BPS``, so that the shaper explains a wait of at most ``DEPTH * 4096 /
RATE_MIN_BPS``. What a busy machine adds is measured by a second fio on the
unshaped root disk at the same time. The rest must stay below 100 ms.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from stress.loads import VERIFY, read_verify, start_verify
from stress.machine import Machine
from stress.scene import BOOT_SECONDS, BULK, BULK_TAG, Scene, StressError, scene, verify_command

DEPTH = 16
BLOCK_BYTES = 4096
RATE_MIN_BPS = 2_000_000
RATE_MAX_BPS = 50_000_000
STALL_MS = 100.0
SHAPED_MS = 1e3 * DEPTH * BLOCK_BYTES / RATE_MIN_BPS
CONTROL = "/run/control.out"
SAY_EVERY_SECONDS = 30.0


@dataclass
class Outcome:
    """What came of it; latencies are fio's longest, submission to completion."""

    changes: int = 0
    seconds: float = 0.0
    verified_bytes: int = 0
    verify_errors: str = ""
    longest_ms: float = 0.0
    control_longest_ms: float = 0.0

    def problems(self) -> list[str]:
        """Return what is wrong, one sentence each; empty if all is well."""
        found = []
        if self.verify_errors:
            found.append(f"fio: {self.verify_errors}")
        if not self.verified_bytes:
            found.append("fio has verified nothing")
        allowed_ms = SHAPED_MS + STALL_MS + self.control_longest_ms
        if self.longest_ms > allowed_ms:
            found.append(
                f"a request took {self.longest_ms:.0f} ms; its rate explains {SHAPED_MS:.0f} ms, "
                f"the machine {self.control_longest_ms:.0f} ms, and {STALL_MS:.0f} ms are allowed"
            )
        return found


def change(machine: Machine, chance: random.Random) -> None:
    """Make one change, valid by itself and against what is there."""
    rate = int(RATE_MIN_BPS * (RATE_MAX_BPS / RATE_MIN_BPS) ** chance.random())
    kind = chance.random()
    if kind < 0.1:
        limits = [{"resource": "blk-write", "bytes-per-second": rate}]
        machine.qmp.execute("shaper-set-ceiling", id="sluice0", limits=limits)
    elif kind < 0.11:
        machine.qmp.execute("shaper-remove-class", id="sluice0", class_=BULK)
        machine.set_class(BULK, BULK_TAG, blk_read=rate, blk_write=rate)
    else:
        limit = {"bytes-per-second": rate, "burst-bytes": chance.choice((1, 4096, 65536))}
        machine.qmp.execute(
            "shaper-set-class",
            id="sluice0",
            class_=BULK,
            tag=BULK_TAG,
            priority=chance.randrange(10),
            limits=[{"resource": resource, **limit} for resource in ("blk-read", "blk-write")],
        )


def run(count: int, seconds: float, say: Callable[[str], None]) -> Outcome:
    """Make ``count`` changes, spread over at least ``seconds``."""
    outcome = Outcome()
    chance = random.Random(1)
    with scene("changes") as stage:
        machine = stage.machine("m0", disk_options=",num-queues=2,packed=on,iothread=io0")
        say(
            f"guest up under {stage.accelerator} after {stage.guest.wait_ready(BOOT_SECONDS):.0f} s"
        )
        machine.set_class(BULK, BULK_TAG, blk_read=RATE_MIN_BPS, blk_write=RATE_MIN_BPS)
        start_verify(stage.guest, verify_command(86400, DEPTH))
        stage.guest.spawn(f"{control_command()} >{CONTROL} 2>&1", unit="control")
        make_changes(machine, chance, count, seconds, say, outcome)
        read_results(stage, outcome)
        machine.stop()
    return outcome


def control_command() -> str:
    """The fio command that shows what the machine alone costs a request."""
    return (
        "fio --name=control --filename=/root/control --size=8m --direct=1 --ioengine=libaio "
        "--iodepth=1 --rw=randwrite --bs=4k --rate_iops=50 --time_based --runtime=86400 "
        "--output-format=json"
    )


def make_changes(
    machine: Machine,
    chance: random.Random,
    count: int,
    seconds: float,
    say: Callable[[str], None],
    outcome: Outcome,
) -> None:
    """Make the changes at an even pace, or as fast as QEMU answers."""
    started = spoken = time.monotonic()
    for index in range(count):
        change(machine, chance)
        outcome.changes += 1
        now = time.monotonic()
        ahead = started + (index + 1) * seconds / count - now
        if ahead > 0:
            time.sleep(ahead)
        if now - spoken > SAY_EVERY_SECONDS:
            spoken = now
            say(f"{outcome.changes} of {count} changes after {now - started:.0f} s")
    outcome.seconds = time.monotonic() - started


def read_results(stage: Scene, outcome: Outcome) -> None:
    """End both loads and read what they found; StressError if one is gone."""
    if len(stage.guest.pids("fio")) < 2:
        raise StressError(f"a fio has ended: {stage.guest.ssh(f'tail -n 5 {VERIFY}').stdout}")
    stage.guest.ssh("pkill -INT -x fio; true")
    stage.guest.wait_unit("verify", 60)
    stage.guest.wait_unit("control", 60)
    job, outcome.verify_errors = read_verify(stage.guest)
    outcome.verified_bytes = job["read"]["io_bytes"]
    outcome.longest_ms = max(job[way]["lat_ns"]["max"] for way in ("read", "write")) / 1e6
    text = stage.guest.ssh(f"cat {CONTROL}").stdout
    control = json.loads(text[text.index("{") :])["jobs"][0]
    outcome.control_longest_ms = control["write"]["lat_ns"]["max"] / 1e6
