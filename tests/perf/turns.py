# SPDX-License-Identifier: GPL-2.0-or-later
"""Two loads of one guest that take turns of a tenth of a second.

Emulated guests differ, though all that can be told of them is alike, by more than a
shaper costs, and for as long as they run; so what is to be compared has to be in
one guest. And what the machine does meanwhile changes from second to second; so
turns are short, and there are many. Both loads run all the time, and one of them is
frozen: none has to begin anew.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from testbed import Guest

SCRIPT = Path(__file__).with_name("turns.sh")
# What was under way before a turn is through in the first of these.
SETTLE_SECONDS = 0.03
LOOK_SECONDS = 0.1
# In which a load must have begun, and from when on it runs as fast as it will.
BEGIN_SECONDS = 60.0


class Load(NamedTuple):
    """A load: its unit in the guest, and a file whose first number grows with its work.

    ``begun`` is growth that nothing else in the guest makes: from then on the load runs.
    """

    unit: str
    command: str
    counter: str
    begun: int


class Turn(NamedTuple):
    """A look at one of the loads; at its QEMU's CPU time too, if the host looked."""

    unit: str
    seconds: float
    work: float
    cpu_seconds: float = math.nan


def commands_last(seconds: float) -> int:
    """Return for how many seconds a load must be told to run to be there all the time.

    It counts its own time by the clock, frozen or not.
    """
    return int(seconds + BEGIN_SECONDS + 120)


def take(guest: Guest, both: tuple[Load, Load], seconds: float) -> list[Turn]:
    """Run both loads and have them take turns for so long; return the turns in their order."""
    guest.ssh("cat >/run/turns.sh", input=SCRIPT.read_text())
    with _running(guest, both):
        words = " ".join(f"{load.unit} {load.counter} {load.begun}" for load in both)
        # Ahead of the loads on the guest's processors.
        times = f"{BEGIN_SECONDS:.0f} {seconds:.0f} {SETTLE_SECONDS} {LOOK_SECONDS}"
        command = f"nice -n -10 bash /run/turns.sh {times} {words}"
        told = guest.ssh(command, timeout_seconds=BEGIN_SECONDS + seconds + 60).stdout
        return parse(told)


@contextmanager
def _running(guest: Guest, both: Sequence[Load]) -> Iterator[None]:
    try:
        for load in both:
            guest.spawn(f"exec {load.command}", unit=load.unit)
        yield
    finally:
        for load in both:
            guest.kill_unit(load.unit)


def parse(text: str) -> list[Turn]:
    """Read the script's lines."""
    rows = (line.split() for line in text.splitlines())
    return [Turn(unit, int(micros) / 1e6, float(work)) for unit, micros, work in rows]


def rates(turns: Sequence[Turn], unit: str) -> list[float]:
    """Return what a load did per second in each four turns; two of the four are its own."""
    own = [turn for turn in turns if turn.unit == unit]
    return [
        (one.work + other.work) / (one.seconds + other.seconds)
        for one, other in zip(own[::2], own[1::2], strict=True)
    ]
