# SPDX-License-Identifier: GPL-2.0-or-later
"""The stream of events: one ring for all, and readers that wait for more.

An event costs its teller an append under a lock that nobody holds for longer than a copy of some
hundred references. A reader keeps no queue: it has a cursor into the ring, and a reader that is
too slow finds a gap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..domain.errors import Unavailable
from ..domain.events import GAP, Begin, Event, Ring, Wanted
from .ports import Clock

# Each has a thread (`entry/api/pools.py`).
MOST_READERS = 16
# At a time; also while a reader is far behind.
BATCH = 200


class Events:
    def __init__(self, clock: Clock, ring: Ring | None = None) -> None:
        self._clock = clock
        self._ring = ring or Ring(clock())
        self._condition = threading.Condition()
        self._readers = 0
        self._is_over = False

    def add(self, event: Event) -> None:
        with self._condition:
            self._ring.add(event)
            self._condition.notify_all()

    def read(self, begin: Begin, wanted: Wanted) -> list[Event]:
        """The events that are there."""
        with self._condition:
            cursor = self._ring.cursor(begin, wanted)
            found = self._ring.after(cursor, self._ring.newest, self._clock())
        return _chosen(found, wanted)

    def reader(self, begin: Begin, wanted: Wanted) -> Reader:
        """To be closed by its user. Unavailable if there are too many."""
        with self._condition:
            if self._readers >= MOST_READERS:
                raise Unavailable(
                    "streams of events",
                    MOST_READERS,
                    "are open, and no more can be",
                    "end one of them, or ask now and then with follow=false",
                )
            self._readers += 1
            return Reader(self, self._ring.cursor(begin, wanted), wanted)

    def close(self) -> None:
        """Ends all readers at once."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()


class Reader:
    """One stream's place. `is_over`: sluiced ends."""

    def __init__(self, events: Events, cursor: int, wanted: Wanted) -> None:
        self._events = events
        self._wanted = wanted
        self._is_closed = False
        # The id of the last event that was passed.
        self.cursor = cursor

    @property
    def is_over(self) -> bool:
        return self._events._is_over

    def next(self, seconds: float) -> Sequence[Event]:
        """The next wanted events; none where none came within that time."""
        events, ring = self._events, self._events._ring
        with events._condition:
            events._condition.wait_for(
                lambda: events._is_over or self.cursor != ring.newest, seconds
            )
            found = ring.after(self.cursor, BATCH, events._clock())
        if found:
            self.cursor = found[-1].id
        return _chosen(found, self._wanted)

    def close(self) -> None:
        """May be called again."""
        with self._events._condition:
            self._events._readers -= not self._is_closed
            self._is_closed = True


def _chosen(found: list[Event], wanted: Wanted) -> list[Event]:
    return [one for one in found if one.kind == GAP or wanted.takes(one)]


Tell = Callable[[Event], None]
