# SPDX-License-Identifier: GPL-2.0-or-later
"""The third pressure beside disk and network: a stream's VM waits for a processor.

Once a second the scheduler's times of each VM with a declared stream are read, in threads of
their own: a QEMU or a libvirt that hangs keeps its own answer alone waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from ..domain.errors import SluiceError, shortened
from ..domain.guests import Guest
from ..domain.processors import Turns, Wait, wait_between
from .declared import Declared
from .ports import Host
from .workers import Workers

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
# A wait that was seen earlier tells nothing of now.
WAIT_LASTS_S = 5.0
# A QEMU that has refused is asked again after this long.
REFUSED_S = 10.0
WORKERS = 2
# Of a QEMU's words, in the host's journal.
JOURNAL_CHARS = 300


class Threads(Protocol):
    """The threads of a QEMU that carry a guest's I/O."""

    def read(self, guest: Guest) -> Mapping[int, Turns]:
        """By the threads' numbers. SluiceError if they cannot be known now."""
        ...

    def forget(self, uuid: str) -> None: ...


@dataclass
class _Watched:
    uuid: str
    running: Future[None] | None = None
    turns: Mapping[int, Turns] | None = None
    at_s: float = 0.0
    wait: Wait | None = None
    not_before_s: float = 0.0
    said: str = ""


@dataclass(eq=False)
class Processors:
    host: Host
    threads: Threads
    declared: Declared
    monotonic: Callable[[], float]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._pool = Workers(WORKERS, "processors", self.monotonic)

    def round(self) -> None:
        self._pool.tend()
        try:
            guests = {g.name: g for g in self.host.guests() if g.active}
        except SluiceError:
            return
        self._watch(guests)

    def wait(self, domain: str) -> Wait | None:
        """Of the last second; None if it is not known."""
        now_s = self.monotonic()
        with self._lock:
            seen = self._watched.get(domain)
            return seen.wait if seen and now_s - seen.at_s <= WAIT_LASTS_S else None

    def close(self) -> None:
        self._pool.close()

    # Eyes

    def _watch(self, guests: Mapping[str, Guest]) -> None:
        streaming = {stream.domain for stream in self.declared.now.streams} & guests.keys()
        now_s = self.monotonic()
        for name, seen in list(self._watched.items()):
            is_wanted = name in streaming and guests[name].uuid == seen.uuid
            if not is_wanted and (seen.running is None or seen.running.done()):
                with self._lock:
                    del self._watched[name]
                self.threads.forget(seen.uuid)
        for name in streaming:
            with self._lock:
                seen = self._watched.setdefault(name, _Watched(guests[name].uuid))
            is_busy = seen.running is not None and not seen.running.done()
            if not is_busy and seen.uuid == guests[name].uuid and now_s >= seen.not_before_s:
                seen.running = self._pool.submit(self._look, guests[name], seen)

    def _look(self, guest: Guest, seen: _Watched) -> None:
        try:
            turns = self.threads.read(guest)
        except Exception as error:
            # A QEMU that its guest has taken over may answer what nobody expects.
            why = shortened(repr(error), JOURNAL_CHARS)
            if why != seen.said:
                log.info("how long %s waits for processors is not known: %s", guest.name, why)
            with self._lock:
                seen.said, seen.turns, seen.wait = why, None, None
                seen.not_before_s = self.monotonic() + REFUSED_S
            return
        now_s = self.monotonic()
        with self._lock:
            span_ns = round(1e9 * (now_s - seen.at_s))
            before = seen.turns
            seen.said, seen.turns, seen.at_s = "", turns, now_s
            seen.wait = None if before is None else wait_between(before, turns, span_ns)
