# SPDX-License-Identifier: GPL-2.0-or-later
"""Ten times a second: counters pages and the uplink's queue; once a second, history."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ..domain.counters import HEARTBEAT_LIMIT_NS, BadPage, Window
from ..domain.errors import SluiceError
from ..domain.guests import Guest
from ..domain.history import HISTORY_FIELDS, Summary
from .ports import Clock, Host, Pages, Store, UplinkReading, Uplinks

log = logging.getLogger(__name__)

SAMPLE_HZ = 10
SECOND_NS = 1_000_000_000
PRUNE_NS = 60 * SECOND_NS
# Of history, in one unit of work; a month has millions of rows.
SLICE_ROWS = 1000
LET_IN_S = 0.001


@dataclass
class PageState:
    path: str
    window: Window = field(default_factory=Window)
    at: float = 0.0
    error: str | None = None
    samples: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def live_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "page_ok": self.error is None,
            "error": self.error,
            "classes": self.samples if self.error is None else {},
        }


class Sampler:
    def __init__(
        self, store: Store, host: Host, pages: Pages, uplinks: Uplinks, clock: Clock
    ) -> None:
        self.store = store
        self.host = host
        self.pages = pages
        self.uplinks = uplinks
        self.clock = clock
        self._lock = threading.Lock()
        # Held from reading the settings until they count: the last reader has the newest.
        self._reading_settings = threading.Lock()
        self._states: dict[str, PageState] = {}
        self._uplink: dict[str, Any] | None = None
        self._uplink_name: str | None = None
        self._uplink_said = ""
        self._uplink_readings: deque[tuple[int, UplinkReading]] = deque()
        self._history_seconds = 3600
        self._next_second_ns = 0
        self._next_prune_ns = 0
        self.settings_changed()

    def settings_changed(self) -> None:
        with self._reading_settings:
            with self.store.transaction() as unit:
                settings = unit.settings()
            with self._lock:
                self._history_seconds = settings.history_seconds
                if settings.uplink != self._uplink_name:
                    self._uplink_name = settings.uplink
                    self._uplink_readings.clear()
                    self._uplink = None
                    self._uplink_said = ""

    # One tick

    def tick(self, now_ns: int) -> None:
        self._sample_pages(now_ns)
        self._sample_uplink(now_ns)
        if now_ns >= self._next_second_ns:
            # In step with the seconds, unless the loop itself fell behind.
            self._next_second_ns = max(self._next_second_ns, now_ns - SECOND_NS) + SECOND_NS
            try:
                self._record(now_ns)
            except Exception as error:
                # A full disk, say. The tuner, which comes next, needs no history.
                log.error("the history of this second is lost: %s", error)

    def _active(self) -> list[Guest] | None:
        try:
            return [g for g in self.host.guests() if g.active and g.live.page_path]
        except SluiceError:
            # libvirt is away; the pages are not: go on with what was known.
            return None

    def _sample_pages(self, now_ns: int) -> None:
        active = self._active()
        guests = {g.name: g for g in active or ()}
        with self._lock:
            if active is not None:
                for name in set(self._states) - set(guests):
                    del self._states[name]
            for name, guest in guests.items():
                state = self._states.get(name)
                if state is None or state.path != guest.live.page_path:
                    self._states[name] = PageState(guest.live.page_path)
            for state in self._states.values():
                self._sample_page(state, now_ns)

    def _sample_page(self, state: PageState, now_ns: int) -> None:
        state.at = self.clock()
        try:
            reading = self.pages.read(state.path)
        except (OSError, BadPage) as error:
            self._unread(state, str(error))
            return
        except Exception as error:
            # What nobody foresaw of one guest's page hides no other's.
            before = state.error
            if self._unread(state, repr(error)) != before:
                log.exception("%s: the page cannot be read", state.path)
            return
        age_ns = now_ns - reading.header.heartbeat_ns
        if age_ns > HEARTBEAT_LIMIT_NS:
            state.error = f"{state.path}: not refreshed by QEMU for {age_ns / 1e9:.0f} s"
            return
        state.error = None
        state.window.add(reading)
        state.samples = state.window.samples()

    def _unread(self, state: PageState, why: str) -> str:
        state.error = f"{state.path}: {why}"
        state.window = Window()
        return state.error

    def _sample_uplink(self, now_ns: int) -> None:
        with self._lock:
            name = self._uplink_name
        if name is None:
            return
        try:
            reading = self.uplinks.read(name)
        except Exception as error:
            # Guests are looked at all the same, whatever netlink says.
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
            readings.append((now_ns, reading))
            while len(readings) > 2 and now_ns - readings[1][0] >= SECOND_NS:
                readings.popleft()
            self._uplink = _uplink_json(name, list(readings))

    # Questions

    def live(self, domain: str | None = None) -> dict[str, Any]:
        with self._lock:
            domains = {
                name: state.live_json()
                for name, state in self._states.items()
                if domain in (None, name)
            }
            return {"at": self.clock(), "domains": domains, "uplink": self._public_uplink()}

    def _public_uplink(self) -> dict[str, Any] | None:
        if self._uplink is None:
            return None
        return {k: v for k, v in self._uplink.items() if not k.startswith("worst_")}

    def observed(self) -> tuple[dict[str, PageState], dict[str, Any] | None, bool]:
        """For the tuner: the states themselves, the uplink with its worst values, and
        whether there should be one and it could not be read."""
        with self._lock:
            unseen = self._uplink_name is not None and self._uplink_said != ""
            return dict(self._states), self._uplink, unseen

    def generation(self, domain: str) -> int | None:
        with self._lock:
            state = self._states.get(domain)
            if state is None or state.error is not None or not state.window.readings:
                return None
            return state.window.readings[-1].header.generation

    # History

    def _record(self, now_ns: int) -> None:
        now = self.clock()
        with self._lock:
            rows = []
            for name, state in self._states.items():
                samples = {
                    f"{class_name}/{resource}": [sample[f] for f in HISTORY_FIELDS]
                    for class_name, resources in state.samples.items()
                    for resource, sample in resources.items()
                }
                if state.error is None and samples:
                    rows.append((now, name, samples))
            keep = self._history_seconds
        # First, and on its own: it makes the room that new rows may lack.
        if now_ns >= self._next_prune_ns:
            self._next_prune_ns = now_ns + PRUNE_NS
            with self.store.transaction() as unit:
                is_more = unit.prune(now - keep)
            if is_more:
                self._next_prune_ns = now_ns + SECOND_NS
        if rows:
            with self.store.transaction() as unit:
                unit.add_history(rows)

    def history(self, domain: str, since: float, step: float) -> dict[str, Any]:
        """Reads no further back than the answer reaches, and lets others in between."""
        summary = Summary(since, step)
        oldest = None
        while True:
            with self.store.transaction() as unit:
                rows = unit.history(domain, since, SLICE_ROWS, oldest)
            room = all([summary.add(row.at, row.samples) for row in rows])
            if not room or len(rows) < SLICE_ROWS:
                return summary.as_json()
            oldest = rows[-1]
            # Who waits for the store gets it: a lock that is taken again at once would not let go.
            time.sleep(LET_IN_S)


def _uplink_json(name: str, readings: list[tuple[int, UplinkReading]]) -> dict[str, Any]:
    (old_ns, old), (new_ns, new) = readings[0], readings[-1]
    span = (new_ns - old_ns) / 1e9 or 1.0
    last = readings[-2][1] if len(readings) > 1 else new
    return {
        "name": name,
        "backlog_bytes": new.backlog_bytes,
        "dropped_per_second": max(0, new.dropped_packets - old.dropped_packets) / span,
        "bytes_per_second": max(0, new.bytes - old.bytes) / span,
        "link_bytes_per_second": new.link_bytes_per_second,
        "worst_backlog_bytes": max(r.backlog_bytes for _, r in readings),
        "worst_dropped": max(0, new.dropped_packets - last.dropped_packets),
    }
