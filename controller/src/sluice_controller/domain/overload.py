# SPDX-License-Identifier: GPL-2.0-or-later
"""Overload control: the limit of new connections of a class follows how full its servers are.

After ECalls, section 3.4. The records of servers (`docs/specs/channel.md`, "Server records") are
the guest's own word: a lie limits only the class of the guest that tells it, between the floor and
the operator's limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .channel_records import records
from .knobs import Model

_COUNTER = 1 << 32
_BOUNDS = {
    "tag": 16,
    "port": 1 << 16,
    "queued": _COUNTER,
    "queue-max": _COUNTER,
    "open": _COUNTER,
}
FLOOR_PER_SECOND = 1.0
# Of the accept queue: beyond it the limit is cut.
FULL_SHARE = 0.5
CUT = 0.5
# Of the operator's limit, at each look that finds no connection waiting.
RAISE_SHARE = 0.05
# A limit is kept for so many looks that nobody tells of its servers.
UNKNOWN_ROUNDS = 300


@dataclass(frozen=True)
class Server:
    """A port of a class on which somebody listens. `queued` of `queue_max` connections wait to be
    accepted."""

    tag: int
    port: int
    queued: int
    queue_max: int
    open: int

    @property
    def fill(self) -> float:
        # The kernel lets one more wait than the length says.
        return self.queued / (self.queue_max + 1)


@dataclass(frozen=True)
class Control(Model):
    """The limit of new connections that is in force, and the reason."""

    connections_per_second: float
    reason: str


# (domain, class) → what holds it now.
Controls = Mapping[tuple[str, str], Control]


def servers(answer: Any) -> list[Server]:
    """The sound server records in an answer to query-shaper-channel."""
    return [Server(*numbers) for _, numbers in records(answer, "servers", _BOUNDS)]


def unreported(most: float) -> Control:
    return Control(most, "the guest reports no server of the class: the operator's limit holds")


def unknown(before: float | None, most: float, looks: int) -> Control:
    """While nobody tells of the servers: as before for a while, then raised step by step.

    `looks`: at which that was so, in a row.
    """
    if before is None or before >= most:
        return unreported(most)
    if looks <= UNKNOWN_ROUNDS:
        return Control(before, "nobody tells of the class's servers now: kept")
    now = min(most, before + RAISE_SHARE * most)
    return Control(now, "nobody has told of the class's servers for long: raised again")


def decide(before: float | None, most: float, of_class: Sequence[Server]) -> Control:
    """The next limit: cut by half while an accept queue is more than half full, raised by a part
    of `most` while all are empty, else as before.

    `before`: connections per second that were let in so far, None at the start; `most`: the
    operator's limit. Without servers the operator's limit holds.
    """
    if not of_class:
        return unreported(most)
    now = most if before is None else min(before, most)
    fullest = max(of_class, key=lambda server: server.fill)
    queue = f"port {fullest.port}: {fullest.queued} of {fullest.queue_max} in the accept queue"
    if fullest.fill > FULL_SHARE:
        now = max(min(FLOOR_PER_SECOND, most), now * CUT)
        at_floor = "" if now > FLOOR_PER_SECOND else ", and no lower limit is set"
        return Control(now, f"{queue}, more than half: cut{at_floor}")
    if not fullest.queued:
        now = min(most, now + RAISE_SHARE * most)
        if now == most:
            return Control(most, "no connection waits to be accepted: the operator's limit holds")
        return Control(now, "no connection waits to be accepted: raised again")
    return Control(now, f"{queue}: kept")
