# SPDX-License-Identifier: GPL-2.0-or-later
"""History and decisions of auto-shaping, written by a thread of their own.

The tick hands them over and goes on. If the store is slow, they wait here, within bounds;
beyond these the oldest are lost. The log says when a loss begins and when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..domain.counters import Key
from ..domain.errors import SluiceError
from ..domain.events import HOST, Event, Subject, of_decision
from ..domain.history import Summary, seconds_a_row
from ..domain.window import Span
from .declared import Declared
from .ports import Clock, Store

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
PRUNE_SECONDS = 60.0
# Rows may wait for the store: longer than it may be locked (`BUSY_SECONDS` of the adapter).
MOST_SECONDS = 60
MOST_DECISIONS = 1000
# Of history, in one unit of work.
SLICE_ROWS = 1000
LET_IN_S = 0.001

# Of each domain: the span of its page, and the classes to keep.
Spans = Mapping[str, tuple[Span, Collection[Key]]]


class _Second:
    """History of a second; the writing thread works it out, once."""

    def __init__(self, at: float, spans: Spans) -> None:
        self.at = at
        self._spans: Spans | None = spans
        self._rows: list[tuple[float, str, Mapping[str, Any]]] = []

    def rows(self) -> list[tuple[float, str, Mapping[str, Any]]]:
        spans, self._spans = self._spans, None
        if spans is not None:
            self._rows = [
                (self.at, domain, span.history(keys)) for domain, (span, keys) in spans.items()
            ]
        return self._rows


class _Queue:
    """The newest items, up to a bound; dropped items are counted.

    Adding and putting back return whether there was room for all.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lost = 0
        self._waiting: deque[Any] = deque()

    def add(self, item: Any) -> bool:
        self._waiting.append(item)
        return self._trim()

    def take(self) -> list[Any]:
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def put_back(self, taken: list[Any]) -> bool:
        self._waiting.extendleft(reversed(taken))
        return self._trim()

    def _trim(self) -> bool:
        lost = max(0, len(self._waiting) - self.most)
        for _ in range(lost):
            self._waiting.popleft()
        self.lost += lost
        return not lost

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(eq=False)
class Records:
    store: Store
    declared: Declared
    clock: Clock
    monotonic: Callable[[], float]
    # Hears of decisions.
    heard: Callable[[Event], None] | None = None

    def __post_init__(self) -> None:
        # Of the queues and values. Never held across a unit of work.
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._seconds = _Queue(MOST_SECONDS)
        self._decisions = _Queue(MOST_DECISIONS)
        self._values: dict[str, Any] = {}
        # When the newest decision was that this sluiced has written.
        self.decided_at: float | None = None
        self._said = ""
        self._is_loss_said = False
        self._prune_at = self.monotonic()

    # From the tick

    def add_second(self, at: float, spans: Spans) -> None:
        self._add(self._seconds, _Second(at, spans))

    def add_decision(self, at: float, entry: Mapping[str, Any], about: Subject = HOST) -> None:
        self._add(self._decisions, (at, entry))
        if self.heard is not None:
            self.heard(of_decision(at, entry, about))

    def _add(self, queue: _Queue, item: Any) -> None:
        with self._lock:
            found_room = queue.add(item)
            self._say_lost(found_room)
        self._wake.set()

    def _say_lost(self, found_room: bool) -> None:
        """When it begins. Under the lock."""
        if not found_room and not self._is_loss_said:
            self._is_loss_said = True
            log.error(
                "the database takes too long: what waits for it is lost from now on, the oldest"
                " first; this is said once"
            )

    def put_value(self, key: str, value: Any) -> None:
        with self._lock:
            self._values[key] = value
        self._wake.set()

    # The thread

    def wake(self) -> None:
        self._wake.set()

    def wait(self, seconds: float = ROUND_SECONDS) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def round(self) -> None:
        """Everything that waits, in one unit of work."""
        try:
            self.declared.fresh()
            self._prune()
        except SluiceError as error:
            self._say(error)
        with self._lock:
            seconds, decisions = self._seconds.take(), self._decisions.take()
            values, self._values = self._values, {}
        try:
            self._write(seconds, decisions, values)
        except SluiceError as error:
            self._say(error)
            with self._lock:
                have_room = self._seconds.put_back(seconds), self._decisions.put_back(decisions)
                self._say_lost(all(have_room))
                # Values that were set anew meanwhile stay.
                self._values = {**values, **self._values}
        except Exception as error:
            # An unforeseen error: the next write, without these items, may succeed.
            self._lose(seconds, decisions, error)
            if seconds or decisions:
                self._write_alone(values)
        else:
            if seconds or decisions or values:
                self._say_kept()

    def _write(
        self, seconds: list[_Second], decisions: list[Any], values: Mapping[str, Any]
    ) -> None:
        if not (seconds or decisions or values):
            return
        rows = [row for second in seconds for row in second.rows()]
        with self.store.transaction() as unit:
            unit.add_history(rows)
            for at, entry in decisions:
                unit.add_decision(at, entry)
            for key, value in values.items():
                unit.put_value(key, value)
        if decisions:
            self.decided_at = decisions[-1][0]

    def _write_alone(self, values: Mapping[str, Any]) -> None:
        """Tries each value alone: another may be at fault, and no value comes twice."""
        try:
            self._write([], [], values)
        except Exception as error:
            log.error("not kept for the next start: %s: %s", ", ".join(values), error)

    def _prune(self) -> None:
        """First, and on its own: it makes the room that new rows may lack."""
        if self.monotonic() < self._prune_at:
            return
        self._prune_at = self.monotonic() + PRUNE_SECONDS
        with self.store.transaction() as unit:
            is_more = unit.prune(self.declared.now.settings.history_seconds)
        if is_more:
            self._prune_at = self.monotonic() + ROUND_SECONDS

    def _say(self, error: SluiceError) -> None:
        """Once, not each second for as long as a disk is full."""
        if str(error) == self._said:
            return
        self._said = str(error)
        log.error(
            "history and decisions wait (%d s of history, %d decisions at most): %s",
            MOST_SECONDS,
            MOST_DECISIONS,
            error,
        )

    def _lose(self, seconds: list[Any], decisions: list[Any], error: Exception) -> None:
        with self._lock:
            self._seconds.lost += len(seconds)
            self._decisions.lost += len(decisions)
        if repr(error) != self._said:
            self._said = repr(error)
            log.exception("history and decisions cannot be written, and are lost; said once")

    def _say_kept(self) -> None:
        with self._lock:
            lost = self._seconds.lost, self._decisions.lost
            self._seconds.lost = self._decisions.lost = 0
            self._is_loss_said = False
        if any(lost):
            log.warning(
                "the database takes history and decisions again; %d s of history and %d decisions"
                " are lost",
                *lost,
            )
        elif self._said:
            log.info("the database takes history and decisions again; nothing is lost")
        self._said = ""

    # Questions

    def history(self, domain: str, since: float, step: float) -> dict[str, Any]:
        """Reads no further back than the answer reaches, and lets others in between.

        No row from a time to come: it was written before the clock was set back.
        """
        until = self.clock()
        first = max(since, until - self.declared.now.settings.history_seconds)
        every_s = seconds_a_row(until - first)
        summary = Summary(since, step)
        oldest = None
        while True:
            with self.store.transaction() as unit:
                rows = unit.history(domain, first, until, SLICE_ROWS, oldest, every_s)
            room = all([summary.add(row.at, row.samples) for row in rows])
            if not room or len(rows) < SLICE_ROWS:
                return summary.as_json()
            oldest = rows[-1]
            # A waiter for the store gets it: a lock that is taken again at once would not let go.
            time.sleep(LET_IN_S)
