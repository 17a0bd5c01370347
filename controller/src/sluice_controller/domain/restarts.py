# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of a domain's definition with a restart, and what is due next. Pure.

A restart asks the guest to shut down, and a guest takes its time, does not
listen, or does as asked long after. What was begun is therefore written down
before it is begun (`Restart`), and followed until one of these is true:

* the domain runs with the new definition;
* it runs as before, with the definition of before, and the request to shut down
  is too old to have any more effect;
* somebody else has decided otherwise.

    CHANGING ──→ ASKED ──→ runs anew
                   │ ╲
                   │  ╲ the new definition does not start
                   │   ╲
                   ↓    ↘
                 LATE ──→ BACK ──→ runs as before

CHANGING: the definition is being changed, and nobody was asked to shut down.
ASKED: the request was made; whatever switches the domain off, it is started.
LATE: it did not shut down in time, and its definition is again as before. The
request is still with the guest: one that now shuts down is started once more.
BACK: it is off because of us, and is to run with the definition of before.

Who shut a domain down cannot be seen: a guest that its owner switches off from
inside looks like one that follows our request late. Hence three bounds. After the
wait only a guest that shut itself down is taken for ours, and not one that was
destroyed, saved, moved or has crashed. The request counts for LATE_SECONDS after
the wait. And a domain is started at most once for a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum, StrEnum
from typing import Any

# How long after the wait a guest that shuts down is taken to follow our request.
LATE_SECONDS = 600


class Phase(StrEnum):
    CHANGING = "changing"
    ASKED = "asked"
    LATE = "late"
    BACK = "back"


class Off(Enum):
    """Why a domain does not run, as far as libvirt knows."""

    SHUT_DOWN = "shut down"
    # libvirtd was away at that time.
    UNKNOWN = "unknown"
    DESTROYED = "destroyed"
    CRASHED = "crashed"
    SAVED = "saved"
    MOVED = "moved"


@dataclass(frozen=True)
class Seen:
    """A domain now. `incarnation` counts its starts; `off` is None while it runs."""

    uuid: str
    incarnation: int
    off: Off | None = None


@dataclass(frozen=True)
class Restart:
    """What was begun with a domain. It outlives sluiced, but not the host.

    Times are therefore the host's CLOCK_MONOTONIC in seconds: it goes on from one sluiced
    to the next, nobody can set it, and with another boot id it means nothing.
    `before` is the definition to put back, None if it is that already, and `after` what
    libvirt made of the new one; the records are attach's, of the store.
    """

    uuid: str
    name: str
    action: str
    actor: str
    boot_id: str
    incarnation: int
    phase: Phase
    asked_at: float
    seconds: int
    before: str | None = None
    after: str | None = None
    record_before: Mapping[str, Any] | None = None
    said: Any = None

    @property
    def deadline_at(self) -> float:
        return self.asked_at + self.seconds

    @property
    def until(self) -> float:
        return self.deadline_at + LATE_SECONDS

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(raw: Mapping[str, Any]) -> Restart:
    """ValueError or TypeError of what another version of sluiced wrote."""
    return Restart(**{**raw, "phase": Phase(raw["phase"])})


def not_to_come(restart: Restart, boot_id: str, now: float) -> Restart:
    """As it was stored, but begun by now at the latest: it must come to its end.

    An earlier sluiced stored seconds since the epoch.
    """
    if restart.boot_id == boot_id and restart.asked_at > now:
        return replace(restart, asked_at=now)
    return restart


class Step(Enum):
    WAIT = "nothing yet"
    START = "start it"
    GIVE_UP = "it has had its time: put the definition of before back"
    UNDO = "nobody was asked to shut down, or it may not be started: put it back, and forget"
    DONE = "it runs anew"
    FORGET = "what was begun is over"


# Of these it may not even be asked: a moved domain runs elsewhere, and a saved one would
# go on with the definition that is saved with it.
NOT_TO_BE_STARTED = (Off.SAVED, Off.MOVED)
# With these a guest may have followed our request after its time.
MAY_BE_OURS = (Off.SHUT_DOWN, Off.UNKNOWN)


def next_step(restart: Restart, seen: Seen | None, boot_id: str, now: float) -> Step:
    """`seen` is None if libvirt has no such domain any more."""
    if seen is None or seen.uuid != restart.uuid:
        return Step.FORGET
    if restart.phase is Phase.CHANGING:
        # After that long the definition may have been edited for good reasons; of another
        # boot, whoever edits it has had the time since the host was started.
        since_s = now - restart.asked_at if boot_id == restart.boot_id else now
        return Step.UNDO if since_s <= restart.seconds + LATE_SECONDS else Step.FORGET
    if boot_id != restart.boot_id:
        # The host was started anew, and all that ran has ended with it.
        return Step.DONE if restart.phase is Phase.ASKED else Step.FORGET
    if seen.off is None:
        return _of_running(restart, seen, now)
    if now > restart.until:
        return Step.FORGET
    return _of_off(restart, seen.off)


def _of_running(restart: Restart, seen: Seen, now: float) -> Step:
    if seen.incarnation != restart.incarnation:
        return Step.DONE if restart.phase is Phase.ASKED else Step.FORGET
    if restart.phase is Phase.ASKED:
        return Step.GIVE_UP if now >= restart.deadline_at else Step.WAIT
    return Step.FORGET if now > restart.until else Step.WAIT


def _of_off(restart: Restart, off: Off) -> Step:
    if restart.phase is Phase.LATE:
        return Step.START if off in MAY_BE_OURS else Step.FORGET
    if off in NOT_TO_BE_STARTED:
        return Step.UNDO if restart.phase is Phase.ASKED else Step.FORGET
    return Step.START
