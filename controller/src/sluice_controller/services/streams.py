# SPDX-License-Identifier: GPL-2.0-or-later
"""Streams, their reports and their quality.

A client's fresh reports count first, then what the guest says of the stream's class, then the
host's own view.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ..domain.errors import BadValue, NotFound, sluice
from ..domain.events import Subject
from ..domain.model import Stream, StreamBody, may_stream, parse_stream_name
from ..domain.models import as_json, parse
from ..domain.nominal import Nominal
from ..domain.processors import Wait
from ..domain.quality import (
    DELIVERY_WINDOW_S,
    REPORT_AGE_S,
    host_verdict,
    parse_report,
    stream_verdict,
)
from ..domain.stream_records import GuestStream, counting
from .catalogue import audited, find_class, find_grant
from .declared import Declared
from .ports import Clock, Store, Transaction
from .sampler import Sampler

# A request's time at which a stream that reads 128 KiB at a time falls behind.
READ_BYTES = 128 * 1024
# Reports of a stream in memory. A verdict needs reports of the last 20 s, and no right client
# sends 25 a second. Each question looks at all of them.
MOST_REPORTS = 500
# In one answer: hours of a report a second, and a few megabytes.
MOST_HISTORY = 10_000


@dataclass(frozen=True)
class _Report:
    """`number` counts all reports, so that the order does not depend on the clock."""

    number: int
    at: float
    values: dict[str, float]


@dataclass
class _Memory:
    reports: deque[_Report] = field(default_factory=lambda: deque(maxlen=MOST_REPORTS))
    verdict: str = "unknown"
    since: float = 0.0
    reason: str = ""


@dataclass(eq=False)
class Streams:
    store: Store
    declared: Declared
    sampler: Sampler
    clock: Clock
    about: Callable[[str], AbstractContextManager[Transaction]]
    # The rate in force.
    nominal: Callable[[Stream], Nominal]
    # What a domain's guest says of its streams.
    said: Callable[[str], Sequence[GuestStream]] = lambda _domain: ()
    # How long a domain's threads wait for a processor.
    waits: Callable[[str], Wait | None] = lambda _domain: None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: dict[str, _Memory] = {}
        self._reports = 0

    def all(self) -> tuple[Stream, ...]:
        return self.declared.fresh().streams

    def verdicts(self) -> list[tuple[Stream, str, str]]:
        """(stream, verdict, reason), without a question to the store."""
        found = [(stream, self._json(stream)) for stream in self.declared.now.streams]
        return [(stream, one["verdict"], one["reason"]) for stream, one in found]

    def list_json(self) -> list[dict[str, Any]]:
        return [self._json(stream) for stream in self.all()]

    def _find(self, name: str) -> Stream:
        stream = next((s for s in self.all() if s.name == name), None)
        if stream is None:
            raise _missing(name)
        return stream

    def _json(self, stream: Stream) -> dict[str, Any]:
        said = [s for s in self.said(stream.domain) if s.class_name == stream.class_name]
        guest = counting(said)
        wait = self.waits(stream.domain)
        with self._lock:
            now = self.clock()
            memory = self._memory.setdefault(stream.name, _Memory(since=now))
            last = memory.reports[-1] if memory.reports else None
            reports = [r for r in memory.reports if now - DELIVERY_WINDOW_S <= r.at <= now]
            fresh = bool(reports) and now - reports[-1].at <= REPORT_AGE_S
            if fresh:
                source, source_at = "client", reports[-1].at
                verdict, reason = stream_verdict(
                    [r.values for r in reports], stream.nominal_bytes_per_second
                )
            elif guest is not None:
                source, source_at = guest.source, guest.at
                verdict, reason = guest.verdict, f"{guest.name}: {guest.reason}"
            else:
                source, source_at = "host", None
                verdict, reason = self._host_verdict(stream)
            if verdict != memory.verdict:
                memory.verdict, memory.since = verdict, now
            memory.reason = reason
            return {
                **as_json(stream),
                "nominal": as_json(self.nominal(stream)),
                "verdict": verdict,
                "since": memory.since,
                "reason": reason,
                "source": source,
                "source_at": source_at,
                "guest": as_json(said),
                "processor_pressure": wait.pressure if wait else None,
                "processor_wait_ms_per_second": wait.ms_per_second if wait else None,
                "last_report": {"at": last.at, **last.values} if last else None,
            }

    def _host_verdict(self, stream: Stream) -> tuple[str, str]:
        live = self.sampler.live(stream.domain)["domains"].get(stream.domain)
        resources = (live or {"classes": {}})["classes"].get(stream.class_name, {})
        deadline_ms = 1000 * READ_BYTES / self.nominal(stream).bytes_per_second
        busiest = max(resources.values(), key=lambda s: s["bytes_per_second"], default=None)
        disk = resources.get("blk-read")
        return host_verdict(disk if disk and disk["bytes_per_second"] else busiest, deadline_ms)

    def put(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        parse_stream_name(name, "stream")
        after = Stream(name, **vars(parse(StreamBody, body)))
        class_name = after.class_name
        with self.about(after.domain) as unit:
            find_grant(unit, after.domain, class_name)
            if not may_stream(find_class(unit, class_name)):
                raise BadValue(
                    "class",
                    class_name,
                    "is not a stream class",
                    f"mark it: {sluice('class', 'set', class_name, '--stream')}",
                )
            before = next((s for s in unit.streams() if s.name == name), None)
            unit.put_stream(after)
            audited(unit, self.clock, "set stream", name, before, after, of_stream(after))
        return self._json(after)

    def delete(self, name: str) -> None:
        stream = self._find(name)
        with self.store.transaction() as unit:
            unit.delete_stream(name)
            audited(unit, self.clock, "remove stream", name, stream, None, of_stream(stream))
        self.forget(name)

    def forget(self, name: str) -> None:
        """Drops the reports of a stream that is no longer declared."""
        with self._lock:
            self._memory.pop(name, None)

    # Reports

    def report(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._find(name)
        report = parse_report(body)
        with self._lock:
            now = self.clock()
            memory = self._memory.setdefault(name, _Memory(since=now))
            self._reports += 1
            memory.reports.append(_Report(self._reports, now, report))
            # One from a time to come was taken before the clock was set back.
            while not now - 2 * DELIVERY_WINDOW_S <= memory.reports[0].at <= now:
                memory.reports.popleft()
        shown = self._json(stream)
        with self.store.transaction() as unit:
            if not any(known.name == name for known in unit.streams()):
                raise _missing(name)  # removed meanwhile; another one may have its name
            unit.add_report(name, now, {"verdict": shown["verdict"], **report})
        return {"verdict": shown["verdict"]}

    def reports_so_far(self) -> int:
        with self._lock:
            return self._reports

    def reports_between(self, name: str, after: int, last: int) -> list[dict[str, float]]:
        """A stream's, by their numbers among all."""
        with self._lock:
            memory = self._memory.get(name)
            reports = memory.reports if memory else ()
            return [r.values for r in reports if after < r.number <= last]

    def history(self, name: str, since: float = 0.0) -> list[dict[str, Any]]:
        self._find(name)
        with self.store.transaction() as unit:
            return unit.reports(name, since, self.clock(), MOST_HISTORY)


def of_stream(stream: Stream) -> Subject:
    return Subject((stream.domain,), stream.class_name, stream=stream.name)


def _missing(name: str) -> NotFound:
    set_it = sluice("stream", "set", name)
    return NotFound("stream", name, "does not exist", f"create it: {set_it} …")
