# SPDX-License-Identifier: GPL-2.0-or-later
"""Ten times a second: counters pages and the uplink's queue; once a second, history.

Nothing here asks the store: declarations come from `declared.py`, and history goes to
`records.py`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..domain.counters import HEARTBEAT_LIMIT_NS, BadPage, Key, Layout
from ..domain.errors import SluiceError, shortened
from ..domain.guests import Guest
from ..domain.models import as_json
from ..domain.tuner_types import UplinkView
from ..domain.window import SECOND_NS, Span, Window
from .declared import Declared, Granted
from .ports import Clock, First, Host, Pages, Uplink, UplinkReading, Uplinks
from .records import Records

log = logging.getLogger(__name__)

SAMPLE_HZ = 10
# A class that was just revoked is in the page until QEMU has been told.
STRANGERS_NS = 10 * SECOND_NS
# Of a page's words, in the host's journal.
JOURNAL_CHARS = 300


@dataclass
class PageState:
    domain: str
    path: str
    window: Window = field(default_factory=Window)
    at: float = 0.0
    error: str | None = None
    # Of the newest reading: the classes that are granted to the domain, on each resource.
    keys: tuple[Key, ...] = ()
    # The layout and the grants that `keys` was made of.
    _seen: tuple[Layout, Granted] | None = None
    # Names in the page that were never granted, since when, and whether that was said.
    strangers: frozenset[str] = frozenset()
    _strange_ns: int = 0
    _told: frozenset[str] = frozenset()

    def span(self) -> Span | None:
        """None while the page cannot be read."""
        return self.window.span() if self.error is None and self.window.readings else None

    def admit(self, granted: Granted, now_ns: int) -> None:
        """Keeps only granted classes of the newest reading.

        A QEMU that its guest has taken over may name any class, and another each second. No
        answer shows that name, and no history keeps it.
        """
        layout = self.window.readings[-1].content.layout
        if self._seen is None or self._seen[0] is not layout or self._seen[1] is not granted:
            classes, numbers = layout.classes, layout.numbers
            self.keys = tuple(key for key in numbers if classes[numbers[key]] in granted)
            self._seen = layout, granted
            strangers = frozenset(key[0] for key in numbers) - {key[0] for key in self.keys}
            if strangers and not self.strangers:
                self._strange_ns = now_ns
            self.strangers = strangers
        if self.strangers and now_ns - self._strange_ns >= STRANGERS_NS:
            self._tell_strangers()

    def _tell_strangers(self) -> None:
        if not self._told:
            log.warning(
                "domain %s: its counters page names classes that are not granted to it, which"
                " are left out: %s; see what its QEMU was given: sluice show %s",
                self.domain,
                shortened(repr(sorted(self.strangers)), JOURNAL_CHARS),
                self.domain,
            )
        self._told = self.strangers

    def unread(self, why: str) -> str:
        """The error, and nothing is known of the page any more."""
        self.error = f"{self.path}: {why}"
        self.window = Window()
        return self.error


@dataclass(frozen=True)
class Seen:
    """All that is known of a page: why it cannot be read, or its granted classes and readings."""

    error: str | None
    keys: tuple[Key, ...]
    window: Window

    @property
    def is_known(self) -> bool:
        return self.error is None and bool(self.window.readings)


@dataclass(eq=False)
class Sampler:
    declared: Declared
    records: Records
    host: Host
    pages: Pages
    uplinks: Uplinks
    clock: Clock
    # The streams that go first on the uplink.
    first: Callable[[], First] = First

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, PageState] = {}
        self._uplink: Uplink | None = None
        self._uplink_name: str | None = None
        self._uplink_said = ""
        self._uplink_readings: deque[tuple[int, UplinkReading]] = deque()
        self._next_second_ns = 0

    # One tick

    def tick(self, now_ns: int) -> None:
        self._sample_pages(now_ns)
        self._sample_uplink(now_ns)
        if now_ns >= self._next_second_ns:
            # In step with the seconds, unless the loop itself fell behind.
            self._next_second_ns = max(self._next_second_ns, now_ns - SECOND_NS) + SECOND_NS
            self._record()

    def _active(self) -> list[Guest] | None:
        try:
            return [g for g in self.host.guests() if g.active and g.live.page_path]
        except SluiceError:
            # libvirt is away; the pages are not: go on with the last domains.
            return None

    def _sample_pages(self, now_ns: int) -> None:
        active = self._active()
        guests = {g.name: g for g in active or ()}
        declaration = self.declared.now
        at = self.clock()
        with self._lock:
            if active is not None:
                for name in set(self._states) - set(guests):
                    del self._states[name]
            for name, guest in guests.items():
                state = self._states.get(name)
                if state is None or state.path != guest.live.page_path:
                    self._states[name] = PageState(name, guest.live.page_path)
            for name, state in self._states.items():
                state.at = at
                self._sample_page(state, declaration.granted_to(name), now_ns)

    def _sample_page(self, state: PageState, granted: Granted, now_ns: int) -> None:
        try:
            reading = self.pages.read(state.path, state.window.newest())
        except (OSError, BadPage) as error:
            state.unread(str(error))
            return
        except Exception as error:
            # An unforeseen error of one guest's page hides no other page.
            before = state.error
            if state.unread(repr(error)) != before:
                log.exception("%s: the page cannot be read", state.path)
            return
        age_ns = now_ns - reading.header.heartbeat_ns
        if age_ns > HEARTBEAT_LIMIT_NS:
            state.error = f"{state.path}: not refreshed by QEMU for {age_ns / 1e9:.0f} s"
            return
        state.error = None
        state.window.add(reading)
        state.admit(granted, now_ns)

    def _sample_uplink(self, now_ns: int) -> None:
        name = self.declared.now.settings.uplink
        if name != self._uplink_name:
            with self._lock:
                self._uplink_name, self._uplink, self._uplink_said = name, None, ""
                self._uplink_readings.clear()
        if name is None:
            return
        try:
            reading = self.uplinks.read(name)
        except Exception as error:
            # A fault of netlink does not keep guests from being sampled.
            said = logging.WARNING if isinstance(error, OSError) else logging.ERROR
            if repr(error) != self._uplink_said:
                log.log(said, "uplink %s cannot be read: %s", name, error)
            with self._lock:
                self._uplink = None
                self._uplink_said = repr(error)
            return
        with self._lock:
            self._uplink_said = ""
            readings = self._uplink_readings
            if readings and readings[-1][1].ports != reading.ports:
                # Counters of other interfaces, as of a bond's other port: no difference counts.
                readings.clear()
            readings.append((now_ns, reading))
            while len(readings) > 2 and now_ns - readings[1][0] >= SECOND_NS:
                readings.popleft()
            slower = self.declared.now.settings.link_bytes_per_second
            self._uplink = replace(_uplink(name, list(readings), slower), **self._first_there())

    def _first_there(self) -> dict[str, Any]:
        if not self.declared.now.settings.uplink_first:
            return {}
        first = self.first()
        return {"first": first.streams, "first_reason": first.reason}

    def _record(self) -> None:
        """Hands history to the writing thread: the store delays no tick."""
        with self._lock:
            spans = {
                name: (span, state.keys)
                for name, state in self._states.items()
                if (span := state.span()) is not None and state.keys
            }
        if spans:
            self.records.add_second(self.clock(), spans)

    # Questions

    def live(self, domain: str | None = None) -> dict[str, Any]:
        with self._lock:
            seen = {
                name: (state.at, state.error, state.span(), state.keys)
                for name, state in self._states.items()
                if domain in (None, name)
            }
            uplink = as_json(self._uplink)
        # Readings do not change: the tick need not wait until they are worked out.
        domains = {
            name: {
                "at": at,
                "page_ok": error is None,
                "error": error,
                "classes": {} if span is None else span.samples(keys),
            }
            for name, (at, error, span, keys) in seen.items()
        }
        return {"at": self.clock(), "domains": domains, "uplink": uplink}

    def observed(self) -> tuple[dict[str, PageState], UplinkView | None, bool]:
        """For the tuner: the states themselves, the uplink with its longest backlog, and
        whether there should be one and it could not be read."""
        with self._lock:
            unseen = self._uplink_name is not None and self._uplink_said != ""
            view = None
            if self._uplink is not None:
                view = UplinkView(
                    max(reading.backlog_bytes for _, reading in self._uplink_readings),
                    # Over the window of a second: one lost packet is one too many.
                    round(self._uplink.dropped_per_second),
                    self._uplink.bytes_per_second,
                    self._uplink.link_bytes_per_second,
                    self._uplink.is_beyond,
                    frozenset(self._uplink.first),
                    max(self._uplink.bytes_per_second, _recent(self._uplink_readings)),
                )
            return dict(self._states), view, unseen

    def seen(self) -> dict[str, Seen]:
        """Of each domain the readings of the last second, as they are now; they do not change."""
        with self._lock:
            return {
                name: Seen(state.error, state.keys, state.window.copy())
                for name, state in self._states.items()
            }

    def generation(self, domain: str) -> int | None:
        with self._lock:
            state = self._states.get(domain)
            if state is None or state.error is not None or not state.window.readings:
                return None
            return state.window.readings[-1].header.generation


def _recent(readings: Iterable[tuple[int, UplinkReading]]) -> float:
    """Bytes per second in the last half of a second."""
    newest_ns, newest = (listed := list(readings))[-1]
    old_ns, old = next(one for one in listed if newest_ns - one[0] <= SECOND_NS // 2)
    span_ns = newest_ns - old_ns
    return max(0, newest.bytes - old.bytes) * SECOND_NS / span_ns if span_ns else 0.0


def _uplink(name: str, readings: list[tuple[int, UplinkReading]], slower: float | None) -> Uplink:
    """Over the readings of the last second. ``slower``: rate of a link beyond, if one is named."""
    (old_ns, old), (new_ns, new) = readings[0], readings[-1]
    span = (new_ns - old_ns) / 1e9 or 1.0
    is_beyond = slower is not None and slower < (new.link_bytes_per_second or float("inf"))
    return Uplink(
        name,
        new.backlog_bytes,
        max(0, new.dropped_packets - old.dropped_packets) / span,
        max(0, new.bytes - old.bytes) / span,
        slower if is_beyond else new.link_bytes_per_second,
        new.ports,
        is_beyond,
    )
