# SPDX-License-Identifier: GPL-2.0-or-later
"""Waits of what was asked for at a steady pace, and their 99th percentile."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Latencies:
    """What was asked for at a steady pace: waits, and how many never came."""

    values_ms: list[float]
    lost: int = 0

    @property
    def asked(self) -> int:
        return len(self.values_ms) + self.lost

    def waits_ms(self) -> list[float]:
        """Return all of them, where what never came is infinite."""
        return [*self.values_ms, *[math.inf] * self.lost]

    def percentile99_ms(self) -> float:
        """Return the value at the nearest rank; what never came is the greatest."""
        ordered = sorted(self.waits_ms())
        if not ordered:
            return math.inf
        return ordered[math.ceil(0.99 * len(ordered)) - 1]


def parse_ping(text: str, asked: int) -> Latencies:
    """Read ping's replies; what is not among them is lost. A doubled one counts once."""
    replies = dict(re.findall(r"icmp_seq=(\d+) .*time=([\d.]+) ms", text))
    return Latencies([float(ms) for ms in replies.values()], asked - len(replies))


def at_a_pace(waits_ms: Sequence[float], interval_ms: float) -> list[float]:
    """Add the waits of those who would have asked while one was waiting.

    A reader that asks again only when it has its answer asks little while it is
    starved: without this, the longest waits would count least.
    """
    found = []
    for wait in waits_ms:
        while wait > 0:
            found.append(wait)
            wait -= interval_ms
    return found


def p99_ratio(flood: Latencies, control: Latencies) -> float:
    """Return flood ÷ control; infinite if either has none."""
    mine, theirs = flood.percentile99_ms(), control.percentile99_ms()
    return math.inf if math.isinf(mine) or math.isinf(theirs) else mine / theirs
