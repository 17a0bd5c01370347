# SPDX-License-Identifier: GPL-2.0-or-later
"""Events: what sluiced did and found, numbered, in a bounded ring. Pure.

Ids rise by one. Those of a run begin at the millisecond of its start times `IDS_A_MS`, so a later
run has higher ids without a memory of the earlier ones, unless the clock was set back.

A reader has a cursor, the id of the last event that it has passed. All events between the cursor
and the oldest one that is kept are lost to it: it gets one event of the kind `gap` in their place,
with their number and the id of the last of them. So the ids that a reader sees rise, and the
numbers add up. A cursor that no event of this run can have, as after a restart, gives a gap of
unknown size.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any

from .errors import shortened
from .knobs import Model, Whole
from .model import AuditEntry
from .tuner_types import Change

# As a rule about a megabyte.
MOST_EVENTS = 4096
# Characters. A QEMU that its guest has taken over may word a refusal in ten megabytes.
LONGEST_SENTENCE = 1000
# A run has fewer for each millisecond that it lasts.
IDS_A_MS = 1000
GAP = "gap"
NOT_IN_FORCE, IN_FORCE = "not in force", "in force"
# Before every event of every run: all that is kept follows a gap of unknown size.
UNKNOWN = -1
# Between two events of one thing that is not in force.
QUIET_S = 30.0
_DIGITS = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class Subject(Model):
    """Whom an event is about; without a domain it is about the host."""

    domains: tuple[str, ...] = ()
    class_name: str | None = None
    resource: str | None = None
    device: str | None = None
    stream: str | None = None


HOST = Subject()


@dataclass(frozen=True)
class Event(Model):
    """`lost`: of a gap, how many events are missing; null where that is not known."""

    id: Annotated[int, Whole(0, 2**53 - 1, help="it rises; of a gap, of the last lost event")] = (
        field(default=0, kw_only=True)
    )
    at: float
    kind: str
    sentence: str
    subject: Subject = HOST
    lost: int | None = None


@dataclass(frozen=True)
class Wanted:
    """A reader's filter. A kind is wanted by itself or by its first words: `gate` is each of
    `gate on`, `gate off` and so on."""

    domain: str | None = None
    kind: str | None = None

    def takes(self, event: Event) -> bool:
        if self.domain is not None and self.domain not in event.subject.domains:
            return False
        return self.kind is None or f"{event.kind} ".startswith(f"{self.kind} ")


@dataclass(frozen=True)
class Begin:
    """Where a reader begins: after an id, at a time (seconds since 1970), or with as many of the
    newest that it wants; without any of these at the next event."""

    after: int | None = None
    since: float | None = None
    newest: int | None = None


class Ring:
    """The newest events of a run."""

    def __init__(self, began_at: float, most: int = MOST_EVENTS) -> None:
        self.began_at = began_at
        self.first = self.newest = int(1000 * began_at) * IDS_A_MS
        self._events: deque[Event] = deque(maxlen=most)

    def add(self, event: Event) -> None:
        self.newest += 1
        sentence = shortened(event.sentence, LONGEST_SENTENCE)
        self._events.append(replace(event, id=self.newest, sentence=sentence))

    @property
    def _dropped(self) -> int:
        """The last id that is not kept."""
        return self.newest - len(self._events)

    def after(self, cursor: int, most: int, now: float) -> list[Event]:
        """The next events after a cursor, at most `most`; first a gap, where some are lost."""
        found = []
        if not self.first <= cursor <= self.newest:
            found, cursor = [self._gap(None, now)], self._dropped
        elif cursor < self._dropped:
            found, cursor = [self._gap(self._dropped - cursor, now)], self._dropped
        skipped = cursor - self._dropped
        return [*found, *islice(self._events, skipped, skipped + most)]

    def _gap(self, lost: int | None, now: float) -> Event:
        counted = (
            "earlier events are lost, how many is not known"
            if lost is None
            else (f"{lost} event{'s are' if lost > 1 else ' is'} lost")
        )
        keeps = f"sluiced keeps the newest {self._events.maxlen} since its start"
        return Event(now, GAP, f"{counted}: {keeps}", HOST, lost, id=self._dropped)

    def cursor(self, begin: Begin, wanted: Wanted) -> int:
        """From where `begin` reads on."""
        cursor = self.newest
        if begin.after is not None:
            cursor = begin.after
        elif begin.since is not None:
            cursor = self._before(begin.since)
        elif begin.newest is not None:
            cursor = self._dropped
        if begin.newest is None:
            return cursor
        ids = (one.id for one in reversed(self._events) if wanted.takes(one))
        last = next(islice(ids, begin.newest - 1, None), None)
        # Older events than the newest ones were not asked for, so they are not lost.
        return cursor if last is None or cursor >= last else last - 1

    def _before(self, at: float) -> int:
        if at < self.began_at:
            return UNKNOWN
        found = next((one.id for one in self._events if one.at >= at), self.newest + 1)
        is_oldest = found == self._dropped + 1 and self._dropped > self.first
        return UNKNOWN if is_oldest else found - 1


# Events made of what sluiced stores


def of_audit(entry: AuditEntry, about: Subject) -> Event:
    sentence = f"{entry.actor}: {entry.action} {entry.thing}".rstrip()
    return Event(entry.at, entry.action, sentence, about)


def of_decision(at: float, entry: Mapping[str, Any], about: Subject) -> Event:
    """`entry` is a row of the log of auto-shaping."""
    rehearsed = "(dry run) " if entry["dry_run"] else ""
    about = replace(about, stream=entry["stream"])
    return Event(at, entry["reason"], rehearsed + entry["sentence"], about)


def of_changes(changes: Collection[Change], stream_domain: str | None) -> Subject:
    """The domains of changed limits and of the stream they are for; one class is named."""
    domains = {change.key[0] for change in changes} | ({stream_domain} - {None})
    classes = {change.key[1:] for change in changes}
    class_name, resource = classes.pop() if len(classes) == 1 else (None, None)
    return Subject(tuple(sorted(domains)), class_name, resource)


# Events made of what holds


@dataclass(frozen=True)
class Standing:
    """Something that holds now. `end` is the event when it holds no more, if that is one."""

    kind: str
    sentence: str
    about: Subject = HOST
    end: tuple[str, str] | None = None
    # Where another sentence of the same kind is news.
    is_reason: bool = field(default=False, kw_only=True)

    def is_like(self, other: Standing) -> bool:
        """Whether one of them tells nothing beside the other; figures alone are no news."""
        if self.kind != other.kind:
            return False
        return not self.is_reason or _bare(self.sentence) == _bare(other.sentence)


def _bare(sentence: str) -> str:
    return _DIGITS.sub("0", sentence)


def not_in_force(sentence: str, about: Subject = HOST) -> Standing:
    # It is compared each second, so not even for a moment at its whole length.
    sentence = shortened(sentence, LONGEST_SENTENCE)
    return Standing(
        NOT_IN_FORCE, sentence, about, (IN_FORCE, f"no longer so: {sentence}"), is_reason=True
    )


Key = tuple[str, ...]
Standings = Mapping[Key, Standing]


class Board:
    """What holds as of the last look, and what was told of it."""

    def __init__(self) -> None:
        self._now: Standings = {}
        self._told_s: dict[Key, float] = {}

    def news(self, found: Standings, at: float, now_s: float) -> list[Event]:
        """What began, changed and ended since then."""
        told: list[Event] = []
        now: dict[Key, Standing] = {}
        self._told_s = {key: s for key, s in self._told_s.items() if now_s - s < QUIET_S}
        for key in [*self._now, *(key for key in found if key not in self._now)]:
            before, after = self._now.get(key), found.get(key)
            if (before is not None and after is not None) and after.is_like(before):
                after = before
            elif key in self._told_s:
                # A QEMU that its guest has taken over may word each refusal anew.
                after = before
            else:
                told += _told(before, after, at)
                if (after or before).is_reason:
                    self._told_s[key] = now_s
            if after is not None:
                now[key] = after
        self._now = now
        return told


def _told(before: Standing | None, after: Standing | None, at: float) -> list[Event]:
    if after is not None:
        return [Event(at, after.kind, after.sentence, after.about)]
    return [Event(at, *before.end, before.about)] if before.end is not None else []
