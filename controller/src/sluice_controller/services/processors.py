# SPDX-License-Identifier: GPL-2.0-or-later
"""The third pressure beside disk and network: a stream's VM waits for a processor.

Once a second the scheduler's times of each VM with a declared stream are read. While
auto-shaping is on, attached VMs without a stream leave processors to it (`domain/easing.py`).

A share that is about to be changed is stored before. So it is given back by the next sluiced,
if this one is killed. Parts of it that somebody else has changed meanwhile are theirs and stay.

All calls are made in threads: a QEMU or a libvirt that hangs keeps its own answer alone waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from ..domain import easing
from ..domain.easing import Move, Share, sentence
from ..domain.errors import SluiceError, shortened
from ..domain.events import Subject
from ..domain.guests import Guest
from ..domain.model import AutoSettings
from ..domain.processors import Turns, Wait, wait_between
from .declared import Declared
from .ports import Clock, Host, Store
from .records import Records
from .workers import Workers

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
# A wait that was seen earlier tells nothing of now.
WAIT_LASTS_S = 5.0
# A QEMU or libvirt that has refused is asked again after this long.
REFUSED_S = 10.0
# The end of sluiced waits so long for libvirt.
GIVE_BACK_SECONDS = 4.0
DRY_RUN_REPEAT_S = 10.0
REFUSAL_REPEAT_S = 600.0
WORKERS = 2
# Of a QEMU's or libvirt's words, in the host's journal.
JOURNAL_CHARS = 300
STORED = "processor-shares"


class Threads(Protocol):
    """The threads of a QEMU that carry a guest's I/O."""

    def read(self, guest: Guest) -> Mapping[int, Turns]:
        """By the threads' numbers. SluiceError if they cannot be known now."""
        ...

    def forget(self, uuid: str) -> None: ...


class Shares(Protocol):
    """Running domains' shares of the processors. SluiceError if libvirt cannot."""

    def read(self, name: str) -> Share: ...
    def set(self, name: str, before: Share, share: Share) -> None: ...


@dataclass
class _Watched:
    uuid: str
    running: Future[None] | None = None
    turns: Mapping[int, Turns] | None = None
    at_s: float = 0.0
    wait: Wait | None = None
    not_before_s: float = 0.0
    said: str = ""


@dataclass
class _Eased:
    """A VM whose share is to be changed, is, or may be since an earlier sluiced.

    `own` is None until it was stored; `level` is the one that was set last.
    """

    name: str = ""
    own: Share | None = None
    ours: frozenset[Share] = frozenset()
    level: int = 0
    running: Future[None] | None = None
    not_before_s: float = 0.0
    refused: str = ""


@dataclass(eq=False)
class Processors:
    host: Host
    threads: Threads
    shares: Shares
    store: Store
    declared: Declared
    records: Records
    settings: Callable[[], AutoSettings]
    clock: Clock
    monotonic: Callable[[], float]

    def __post_init__(self) -> None:
        # Never held during a call of libvirt or the store.
        self._lock = threading.Lock()
        # Orders what is stored.
        self._storing = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._easing = easing.State()
        self._closing = False
        self._said_s: dict[str, float] = {}
        self._pool = Workers(WORKERS, "processors", self.monotonic)
        with self.store.transaction() as unit:
            stored = unit.value(STORED, {})
        # By uuid. Those of an earlier sluiced are at some level, until they are given back.
        self._eased = {
            uuid: _Eased(
                own=Share(*one["own"]), ours=frozenset(Share(*s) for s in one["ours"]), level=-1
            )
            for uuid, one in stored.items()
        }

    def round(self) -> None:
        self._pool.tend()
        try:
            known = self.host.guests()
        except SluiceError:
            return
        guests = {g.name: g for g in known if g.active}
        self._watch(guests)
        streaming = {stream.domain for stream in self.declared.now.streams}
        with self._lock:
            if self._closing:
                return
            self._decide(guests, streaming)
            self._act(guests, streaming, {g.uuid for g in known})

    def wait(self, domain: str) -> Wait | None:
        """Of the last second; None if it is not known."""
        now_s = self.monotonic()
        with self._lock:
            return self._wait(domain, now_s)

    def _wait(self, domain: str, now_s: float) -> Wait | None:
        seen = self._watched.get(domain)
        return seen.wait if seen and now_s - seen.at_s <= WAIT_LASTS_S else None

    def close(self) -> None:
        """Gives back what it can within some seconds; the rest is the next sluiced's."""
        with self._lock:
            self._closing = True
            self._easing = easing.State()
        guests: dict[str, Guest] = {}
        with suppress(SluiceError):
            guests = {g.name: g for g in self.host.guests() if g.active}
        until = time.monotonic() + GIVE_BACK_SECONDS
        # One round may find a call of before under way.
        for _ in range(2):
            with self._lock:
                self._act(guests, set(), self._eased.keys())
                running = [one.running for one in self._eased.values() if one.running]
            wait_for(running, max(0.0, until - time.monotonic()))
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

    # Decisions. All below is under the lock, but for what has a thread of its own.

    def _decide(self, guests: Mapping[str, Guest], streaming: Collection[str]) -> None:
        settings = self.settings()
        if not settings.enabled:
            self._easing = easing.State()
            return
        now_s = self.monotonic()
        streams = {s.name: s for s in self.declared.now.streams if s.domain in guests}
        waits = {name: self._wait(stream.domain, now_s) for name, stream in streams.items()}
        pressures = {name: one and one.pressure for name, one in waits.items()}
        able = [g.name for g in guests.values() if g.name not in streaming and self._takes(g)]
        state, move = easing.step(self._easing, pressures, bool(able), round(1e9 * now_s))
        if settings.dry_run:
            # Nothing is done, so the next look is as this one.
            state = easing.State(risky=min(state.risky, easing.RISKY_ROUNDS - 1))
        self._easing = state
        if move is None or (settings.dry_run and self._was_said("dry run", now_s)):
            return
        domain = streams[move.stream].domain if move.stream else ""
        text = sentence(move, domain, waits.get(move.stream or ""), able)
        named = {*able, domain} if domain else able
        self._say(move, text, settings.dry_run, named)

    def _takes(self, guest: Guest) -> bool:
        """Whether libvirt changes its share, as far as is known."""
        one = self._eased.get(guest.uuid)
        return one is None or not one.refused

    def _was_said(self, what: str, now_s: float, repeat_s: float = DRY_RUN_REPEAT_S) -> bool:
        """Whether it was within that time; if not, it is now."""
        last_s = self._said_s.get(what)
        if last_s is not None and now_s - last_s < repeat_s:
            return True
        self._said_s[what] = now_s
        return False

    def _say(self, move: Move, text: str, dry_run: bool, domains: Iterable[str]) -> None:
        log.info("%s%s", "(dry run) " if dry_run else "", text)
        entry = {
            "sentence": text,
            "stream": move.stream,
            "reason": f"processors {move.kind}",
            "action": None,
            "dry_run": dry_run,
        }
        self.records.add_decision(self.clock(), entry, Subject(tuple(sorted(domains))))

    # Hands

    def _act(
        self, guests: Mapping[str, Guest], streaming: Collection[str], known: Collection[str]
    ) -> None:
        """Has each VM's share brought to the present level.

        A VM that does not run keeps its record: it may be restored from a file, with the share
        that it was saved with.
        """
        now_s = self.monotonic()
        for uuid in self._eased.keys() - known:
            self._begin(self._eased[uuid], now_s, self._drop, uuid)
        for guest in guests.values():
            level = 0 if guest.name in streaming else self._easing.level
            one = self._eased.get(guest.uuid)
            if one is None and level:
                one = self._eased[guest.uuid] = _Eased()
            if one is None or (one.level == level and one.not_before_s == 0.0):
                continue
            one.name = guest.name
            self._begin(one, now_s, self._bring, guest, level)

    def _begin(self, one: _Eased, now_s: float, what: Callable[..., None], *about: Any) -> None:
        is_busy = one.running is not None and not one.running.done()
        if not is_busy and (now_s >= one.not_before_s or self._closing):
            one.running = self._pool.submit(self._try, one, what, *about)

    def _try(self, one: _Eased, what: Callable[..., None], *about: Any) -> None:
        try:
            what(one, *about)
        except Exception as error:
            why = error.problem if isinstance(error, SluiceError) else repr(error)
            with self._lock:
                one.refused = shortened(why, JOURNAL_CHARS)
                now_s = self.monotonic()
                one.not_before_s = now_s + REFUSED_S
                if not self._was_said(one.refused, now_s, REFUSAL_REPEAT_S):
                    move = Move("refused", None, self._easing.level)
                    words = shortened(str(error), JOURNAL_CHARS)
                    self._say(move, words, dry_run=False, domains=filter(None, [one.name]))

    def _bring(self, one: _Eased, guest: Guest, level: int) -> None:
        if one.own is not None or level:
            present = self.shares.read(guest.name)
            if one.own is None:
                self._keep(guest.uuid, {"own": astuple(present), "ours": _tuples(present)})
                one.own, one.ours = present, easing.every_share(present)
            if present == one.own or present in one.ours:
                share = easing.eased(one.own, level)
            else:
                # An operator's by now.
                share = easing.given_back(present, one.own, one.ours)
            self.shares.set(guest.name, present, share)
        if level == 0:
            self._keep(guest.uuid, None)
        with self._lock:
            one.level, one.refused, one.not_before_s = level, "", 0.0
            if level == 0:
                self._eased.pop(guest.uuid, None)

    def _drop(self, one: _Eased, uuid: str) -> None:
        """Forgets a domain that libvirt has no more. The poll may not have begun yet."""
        with self._lock:
            one.not_before_s = self.monotonic() + REFUSED_S
        if not self.host.has(uuid):
            self._keep(uuid, None)
            with self._lock:
                self._eased.pop(uuid, None)

    def _keep(self, uuid: str, record: Mapping[str, Any] | None) -> None:
        """Stores a VM's own share, or that nothing is to be given back."""
        with self._storing, self.store.transaction() as unit:
            stored = {k: v for k, v in unit.value(STORED, {}).items() if k != uuid}
            unit.put_value(STORED, stored if record is None else {**stored, uuid: record})

    def eased(self) -> list[dict[str, Any]]:
        """The VMs that leave processors to a stream, and those whose share cannot be changed."""
        with self._lock:
            found = [one for one in self._eased.values() if (one.own and one.name) or one.refused]
            return sorted((_eased_json(one) for one in found), key=lambda one: one["domain"])


def _tuples(own: Share) -> list[tuple[int, ...]]:
    return sorted(astuple(share) for share in easing.every_share(own))


def _eased_json(one: _Eased) -> dict[str, Any]:
    share = easing.eased(one.own, max(0, one.level)) if one.own else None
    limited = share is not None and share.quota_us > 0
    return {
        "domain": one.name,
        "weight": share and share.weight,
        "own_weight": one.own and one.own.weight,
        "processors_per_vcpu": share.quota_us / share.period_us if limited else None,
        "refused": one.refused or None,
    }
