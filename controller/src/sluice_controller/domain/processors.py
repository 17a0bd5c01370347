# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a VM's threads wait for a processor, over what a stream there can bear.

A stream that reads one piece at a time has the time of one piece for each. As with the disk it
may wait for 0.6 of that time. A piece passes three threads one after another: the vCPU asks, an
I/O thread of QEMU fetches, the vCPU takes. So each may wait for a third of 0.6, which is 200 ms
in each second, whatever the rate. The thread that waits most counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEARABLE_MS_PER_SECOND = 200.0


@dataclass(frozen=True)
class Turns:
    """A thread's times since its start: with a processor, and ready for one without it."""

    ran_ns: int
    waited_ns: int


@dataclass(frozen=True)
class Wait:
    """Of the thread that waited most, in milliseconds of each second."""

    ms_per_second: float

    @property
    def pressure(self) -> float:
        return self.ms_per_second / BEARABLE_MS_PER_SECOND


def wait_between(
    before: Mapping[int, Turns], after: Mapping[int, Turns], span_ns: int
) -> Wait | None:
    """The wait of a VM's threads, by their numbers, in a span of time.

    None if that cannot be told: no time has passed, or no thread was there all the time. Threads
    that never ran in their life belong to a kernel that does not count.
    """
    both = before.keys() & after.keys()
    if span_ns <= 0 or not any(after[number].ran_ns for number in both):
        return None
    # A number that another thread has by now counts from the start again.
    waited_ns = max(after[n].waited_ns - before[n].waited_ns for n in both)
    return Wait(min(1000.0, max(0.0, 1000 * waited_ns / span_ns)))
