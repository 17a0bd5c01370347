# SPDX-License-Identifier: GPL-2.0-or-later
"""A saved guest that goes on under one emulator and under the other, in process after process.

Two processes of one emulator that go on from one saved guest differ by some per cent, and
each for as long as it lives; a second one costs little more than three seconds. So each is
measured once, for half a second, and there are hundreds.

A *lane* is a guest with one of the host's processors for all of its QEMU: the emulated
processor, the main loop and all workers. So all further work of an emulator is missing in the
guest: nothing hides on an idle processor, and no thread has to wake another one on a sleeping
processor. The program that sends to a guest, or receives from it, has that processor, too.
Lanes run at the same time, one under each emulator, and change emulators: a slow moment hits
both.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import Guest

# From when on a process is as fast as it gets, under either emulator: until then its code is
# translated, and memory is touched for the first time, of which a shaper has more.
SETTLE_SECONDS = 1.8
LOOK_SECONDS = 0.5
# In which a load must have begun.
BEGIN_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Lane:
    """A guest, its processor of the host's, and its definition for each emulator."""

    guest: Guest
    processor: int
    definitions: Mapping[str, str]

    def go_on(self, emulator: str, saved: Path) -> None:
        """Have the guest, saved in a folder of its name, go on under an emulator."""
        self.guest.restore(saved / self.guest.name, self.definitions[emulator])


def begin(count: Callable[[], float], begun: float) -> None:
    """Wait until a count has grown by more than an idle guest makes.

    Raises TimeoutError if it does not.
    """
    at_first, end = count(), time.monotonic() + BEGIN_SECONDS
    while count() - at_first < begun:
        if time.monotonic() > end:
            raise TimeoutError(f"there is no load after {BEGIN_SECONDS:g} s")
        time.sleep(0.05)


def look(counts: Sequence[Callable[[], float]]) -> list[float]:
    """Return the growth of each count in a second, all at the same time."""
    before = [_timed(count) for count in counts]
    time.sleep(LOOK_SECONDS)
    after = [_timed(count) for count in counts]
    return [
        (late - early) / (end - start)
        for (start, early), (end, late) in zip(before, after, strict=True)
    ]


def _timed(count: Callable[[], float]) -> tuple[float, float]:
    before = time.monotonic()
    counted = count()
    return (before + time.monotonic()) / 2, counted
