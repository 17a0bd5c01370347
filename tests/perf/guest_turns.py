# SPDX-License-Identifier: GPL-2.0-or-later
"""Two guests that take turns of a fifth of a second, each with the same load.

What the machine does meanwhile changes from second to second, as for the loads of
one guest (``turns``), so these turns are short too. The whole QEMU of a guest is
stopped while the other has its turn: the machine is each one's alone. Both loads are
under way all the time, and a stopped guest finds that its clock has gone on.

A guest's work is counted by its host: asked for its own count, it would have to work
for the answer.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from perf import turns
from testbed import Guest, Testbed

# What arrived for a stopped guest is through in the first of these, and its flows are as
# fast as they were.
SETTLE_SECONDS = 0.1
LOOK_SECONDS = 0.2
UNIT = "load"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """A guest's load, and its host's count of the work that it has done.

    ``begun`` is growth of the count that nothing else makes: from then on the load runs.
    """

    guest: Guest
    command: str
    count: Callable[[], float]
    begun: float


class _Sight(NamedTuple):
    seconds: float
    work: float
    cpu_seconds: float


def take(testbed: Testbed, both: tuple[Load, Load], seconds: float) -> list[turns.Turn]:
    """Run both loads and have their guests take turns for so long; return all in their order.

    They come in fours, A B B A. A turn's unit is the name of its guest. Raises TimeoutError
    if a load does not begin.
    """
    first, second = both
    with _running(both), _stopped(testbed, both):
        end = time.monotonic() + seconds
        taken = []
        while time.monotonic() < end:
            taken += [_turn(testbed, load) for load in (first, second, second, first)]
    return taken


def cpu_per_work(taken: Sequence[turns.Turn], unit: str) -> float:
    """Return the CPU seconds that each of a guest's units of work took, in all its turns.

    Ticks of the clock are longer than what one turn is to tell, and do not add up to
    more than one. Raises ValueError if the guest did nothing.
    """
    own = [turn for turn in taken if turn.unit == unit]
    work = sum(turn.work for turn in own)
    if not work > 0:
        raise ValueError(f"{unit} did nothing in its turns")
    return sum(turn.cpu_seconds for turn in own) / work


def _turn(testbed: Testbed, load: Load) -> turns.Turn:
    with _going(testbed, load.guest):
        time.sleep(SETTLE_SECONDS)
        before = _look(testbed, load)
        time.sleep(LOOK_SECONDS)
        after = _look(testbed, load)
    grown = (late - early for early, late in zip(before, after, strict=True))
    return turns.Turn(load.guest.name, *grown)


def _look(testbed: Testbed, load: Load) -> _Sight:
    work = load.count()
    return _Sight(time.monotonic(), work, cpu_seconds(testbed, load.guest))


def cpu_seconds(testbed: Testbed, guest: Guest) -> float:
    """Return the CPU time that the QEMU of a running guest has had."""
    stat = testbed.sandbox.path(f"/proc/{guest.qemu_pid()}/stat").read_text()
    # After the name in parentheses: state is field 3, utime 14, stime 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@contextmanager
def _running(both: Sequence[Load]) -> Iterator[None]:
    """Have both loads under way, as fast as they get."""
    try:
        for load in both:
            at_first = load.count()
            load.guest.spawn(f"exec {load.command}", unit=UNIT)
            _await_begun(load, at_first)
        time.sleep(2)
        yield
    finally:
        for load in both:
            load.guest.kill_unit(UNIT)


def _await_begun(load: Load, at_first: float) -> None:
    end = time.monotonic() + turns.BEGIN_SECONDS
    while load.count() - at_first < load.begun:
        if time.monotonic() > end:
            raise TimeoutError(
                f"{load.guest.name} has no load {turns.BEGIN_SECONDS:g} s after `{load.command}`"
            )
        time.sleep(0.2)


@contextmanager
def _stopped(testbed: Testbed, both: Sequence[Load]) -> Iterator[None]:
    """Stop both guests; at the end they go on, whatever happened."""
    try:
        for load in both:
            _signal(testbed, load.guest, "STOP")
        yield
    finally:
        for load in both:
            _signal(testbed, load.guest, "CONT")


@contextmanager
def _going(testbed: Testbed, guest: Guest) -> Iterator[None]:
    _signal(testbed, guest, "CONT")
    yield
    _signal(testbed, guest, "STOP")


def _signal(testbed: Testbed, guest: Guest, name: str) -> None:
    testbed.sandbox.run(["kill", f"-{name}", str(guest.qemu_pid())])
