# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what guests say of their streams and servers, from the channel's records by QMP.

A guest with a declared stream or a class with overload control is asked twice a second, another
guest with a channel every 5 s. A QEMU that hangs keeps its own answer alone waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..domain.errors import SluiceError
from ..domain.guests import Guest
from ..domain.overload import Server, servers
from ..domain.stream_records import GuestStream, Series, readings, said
from .declared import Declared
from .ports import Clock, Host, Shapers
from .workers import Workers

log = logging.getLogger(__name__)

ROUND_SECONDS = 0.5
# Of a guest without a declared stream, and of one whose QEMU has refused the question.
SELDOM_S = 5.0
# One refusal, as of a QEMU that is busy, is no reason to forget how full a server was.
SERVERS_LAST_S = 2 * SELDOM_S
WORKERS = 2


@dataclass
class _Asked:
    """Knowledge of one running domain. A domain that starts anew has new series."""

    of: tuple[str, int]
    series: dict[tuple[int, int, str, str], Series] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    answered_s: float = 0.0
    running: Future[None] | None = None
    asked_s: float | None = None
    refused: bool = False


@dataclass(eq=False)
class GuestStreams:
    host: Host
    shapers: Shapers
    declared: Declared
    clock: Clock
    monotonic: Callable[[], float]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}
        self._pool = Workers(WORKERS, "streams", self.monotonic)

    def round(self) -> None:
        self._pool.tend()
        try:
            guests = [g for g in self.host.guests() if g.active and g.live.has_channel]
        except SluiceError:
            return
        declaration = self.declared.now
        streaming = {stream.domain for stream in declaration.streams}
        streaming |= {domain for domain, _class in declaration.overload}
        now_s = self.monotonic()
        with self._lock:
            for name in set(self._asked) - {guest.name for guest in guests}:
                del self._asked[name]
            due = [g for g in guests if self._is_due(g, g.name in streaming, now_s)]
        for guest in due:
            asked = self._asked[guest.name]
            asked.asked_s = now_s
            asked.running = self._pool.submit(self._ask, guest, asked)

    def _is_due(self, guest: Guest, is_streaming: bool, now_s: float) -> bool:
        of = guest.uuid, guest.incarnation
        asked = self._asked.get(guest.name)
        if asked is None or asked.of != of:
            self._asked[guest.name] = asked = _Asked(of)
        if asked.running is not None and not asked.running.done():
            return False
        often = is_streaming and not asked.refused
        return asked.asked_s is None or often or now_s - asked.asked_s >= SELDOM_S

    def _ask(self, guest: Guest, asked: _Asked) -> None:
        question = {"id": guest.live.shaper_id}
        try:
            answer = self.shapers.execute(guest.name, "query-shaper-channel", question)
        except Exception as error:
            # A QEMU that its guest has taken over may answer what is no JSON.
            if not asked.refused:
                log.info("what guest %s says of its streams is not known: %s", guest.name, error)
            asked.refused = True
            return
        found = readings(answer)
        now_s, shown_at = self.monotonic(), self.clock()
        with self._lock:
            asked.refused = False
            asked.servers, asked.answered_s = servers(answer), now_s
            asked.series = {r.key: asked.series.get(r.key, Series()) for r in found}
            for reading in found:
                asked.series[reading.key].add(now_s, shown_at, reading)

    def of(self, domain: str) -> list[GuestStream]:
        """By class and name. A class that is no longer granted has none."""
        declaration = self.declared.now
        classes = dict(declaration.granted_to(domain))
        streams = {s.class_name: s.name for s in declaration.streams if s.domain == domain}
        now_s = self.monotonic()
        with self._lock:
            asked = self._asked.get(domain)
            found = [
                said(series, classes[tag], streams.get(classes[tag]), now_s)
                for (_number, tag, *_), series in (asked.series if asked else {}).items()
                if tag in classes
            ]
        return sorted(found, key=lambda one: (one.class_name, one.name, one.source))

    def servers(self, domain: str) -> list[Server] | None:
        """None: its QEMU has not answered for a while."""
        now_s = self.monotonic()
        with self._lock:
            asked = self._asked.get(domain)
            if asked is None or now_s - asked.answered_s > SERVERS_LAST_S:
                return None
            return list(asked.servers)

    def close(self) -> None:
        self._pool.close()
