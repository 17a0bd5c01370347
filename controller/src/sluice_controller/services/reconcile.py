# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes shapers and agents equal to the catalogue; pushes only differences.

A round a second, and at once after a change. A shaper is asked for its configuration when its
domain (re)started, after a failure, a moment after a push, and when its page's generation moved
without a push; otherwise it has the last push.

A domain of another sluiced is taken over first (`takeover.py`). Its shaping is then written
into its metadata, for the next host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..domain.cards import by_path
from ..domain.errors import Conflict, SluiceError, StoreUnavailable, Unavailable
from ..domain.guests import Device, Guest
from ..domain.model import Assignment
from ..domain.rules import agent_rules, assignment_rule
from ..domain.shaped import UNKNOWN, Shapes, shaped_ids
from ..domain.shaper_config import Command, Config, actual, commands, wanted
from .auto_limits import AutoLimits
from .names import settle
from .ports import Agents, Clock, Host, Shapers, Store, Transaction
from .takeover import TakeOver
from .workers import Workers

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
WORKERS = 4
# A generation read from the page this long after our push includes the push.
GENERATION_SETTLES_S = 0.5
# Each QEMU is asked this often for its shaped devices: one may have gone and come unseen.
SHAPES_AGE_S = 30.0
# A process must be missing this long after its assignment before it counts as gone.
ASSIGNMENT_GRACE_S = 10.0
# A question to libvirt about an arriving domain waits for its migration, so these domains have
# threads of their own.
ARRIVING_WORKERS = 4
# A failed read or write of a domain's metadata is tried again after this long.
RETRY_S = 5.0


class Hub(Agents, Protocol):
    def set_targets(self, paths: dict[str, str]) -> None: ...
    def set_rules(self, domain: str, payload: Mapping[str, Any]) -> None: ...


@dataclass
class _Shaper:
    """Knowledge of one running domain's shaper."""

    incarnation: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    # The shaper's content, as of so many changes and of the devices; whether it is in groups.
    want: Config | None = None
    want_as_of: tuple[int, int, tuple[Device, ...]] | None = None
    in_groups: bool = False
    # The state by which its agent got its rules; None while processes of assignments are
    # sought.
    rules_as_of: tuple[int, str | None, int | None] | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    pushed: Config | None = None
    pushed_at: float = 0.0
    generation: int | None = None
    error: str | None = None
    # The devices that it shapes, when that was asked, and of which devices.
    shapes: frozenset[str] | None = None
    shapes_at: float = 0.0
    shapes_of: tuple[Device, ...] = ()
    # An error of the round itself, before any question.
    failure: str | None = None
    # On its way here, and configured from its metadata; here and taken over.
    arriving: bool = False
    held: bool = False
    taken: bool = False
    retry_at: float = 0.0
    # When it began to differ in every round; None if it did not in the last one.
    behind_since: float | None = None
    # Its last metadata, and the count of changes at which that was compared.
    carries: Mapping[str, Any] | None = None
    looked_at: int = -1


@dataclass(eq=False)
class Reconciler:
    store: Store
    host: Host
    shapers: Shapers
    hub: Hub
    auto_limits: AutoLimits
    generation: Callable[[str], int | None]
    clock: Clock
    monotonic: Callable[[], float]
    groups: Callable[[Transaction, str], Mapping[str, Mapping[str, Any]]]
    takeover: TakeOver
    lost: Callable[[str, Collection[str]], None] = lambda _domain, _object_ids: None

    def __post_init__(self) -> None:
        self._changes = 0
        # Of domains by uuid, as their policies are stored.
        self._names: dict[str, str] = {}
        self._wake = threading.Event()
        self._known: dict[str, _Shaper] = {}
        self._running: dict[str, Future[None]] = {}
        # Of these, the ones whose end begins a round.
        self._awaited: dict[str, Future[None]] = {}
        self._pool = Workers(WORKERS, "qmp", self.monotonic)
        self._arriving = Workers(ARRIVING_WORKERS, "arriving", self.monotonic)

    def changed(self, _domain: str | None = None) -> None:
        self._changes += 1
        self._wake.set()

    def wait(self, seconds: float = ROUND_SECONDS) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def close(self) -> None:
        self._wake.set()
        for pool in (self._pool, self._arriving):
            pool.close()

    # One round

    def round(self) -> None:
        for pool in (self._pool, self._arriving):
            pool.tend()
        try:
            guests = self.host.guests()
        except SluiceError:
            return
        self._settle(guests)
        active = {g.name: g for g in guests if g.active and g.uuid in self._names}
        for name in set(self._known) - set(active):
            del self._known[name]
        self.hub.set_targets(
            {name: g.live.agent_socket for name, g in active.items() if g.live.agent_socket}
        )
        for name, guest in active.items():
            shaper = self._known.get(name)
            if shaper is None or shaper.incarnation != guest.incarnation:
                shaper = self._known[name] = _Shaper(guest.incarnation)
            try:
                self._start(name, guest, shaper)
                # Until then its agent goes on by the rules that it has.
                if shaper.taken and not guest.moving:
                    self._push_rules(name, shaper)
            except Exception as error:
                self._left_out(name, shaper, error)
            else:
                shaper.failure = None

    def _settle(self, guests: list[Guest]) -> None:
        """A domain whose policy is not known yet is left alone until it is."""
        before, self._names = self._names, {}
        for guest in guests:
            try:
                if before.get(guest.uuid) != guest.name:
                    settle(self.store, self.host, self.clock, guest)
                self._names[guest.uuid] = guest.name
            except SluiceError as error:
                log.info("domain %s: %s", guest.name, error)

    def _left_out(self, name: str, shaper: _Shaper, error: Exception) -> None:
        """Logs an unforeseen error of one domain; the others go on."""
        if repr(error) != shaper.failure:
            shaper.failure = repr(error)
            unforeseen = None if isinstance(error, SluiceError) else error
            log.error(
                "domain %s: it is left as it is, and tried again each round: %s",
                name,
                error,
                exc_info=unforeseen,
            )

    def _start(self, name: str, guest: Guest, shaper: _Shaper) -> None:
        """A domain's QEMU may not answer for long: it must not hold up the others."""
        running = self._running.get(name)
        if running is not None and not running.done():
            # Its round goes on; the next one sees later changes.
            if self._awaited.get(name) is not running:
                self._awaited[name] = running
                running.add_done_callback(lambda _done: self._wake.set())
            return
        if guest.moving:
            self._meet(name, guest, shaper)
            return
        if shaper.arriving:
            # A failure on its way says nothing about now.
            shaper.arriving, shaper.retry_at = False, 0.0
        if not shaper.taken and not self._is_ours(name, guest, shaper):
            return
        changes = self._changes
        want = self._wanted(guest, shaper)
        differs = self._differs(name, shaper, want)
        # A shaper that refuses some of it does not keep the domain from carrying it, nor
        # does auto-shaping with other limits for it in every round.
        may_write = not differs or shaper.error or self._is_behind(shaper)
        if not differs:
            shaper.behind_since = None
        if may_write and self._should_carry(guest, shaper, changes):
            shaper.behind_since = None
            self._running[name] = self._pool.submit(self._write, guest, shaper)
            if differs:
                self._running[name].add_done_callback(lambda _done: self._wake.set())
        elif differs:
            self._running[name] = self._pool.submit(self._push, name, guest, shaper, want)
        elif self._may_confirm(name, guest, shaper):
            self._running[name] = self._pool.submit(self._confirm, name, guest, shaper, want)

    def _is_behind(self, shaper: _Shaper) -> bool:
        """Whether a domain has differed in each round for a while."""
        now = self.monotonic()
        if shaper.behind_since is None:
            shaper.behind_since = now
        return now - shaper.behind_since >= ROUND_SECONDS

    # Domains of others

    def _meet(self, name: str, guest: Guest, shaper: _Shaper) -> None:
        """Configures an arriving domain from its metadata before it runs, if libvirt permits."""
        if shaper.taken or shaper.held or guest.live.carried is None:
            return
        shaper.arriving = True
        if self._attempt(guest, shaper, lambda: self.takeover.due(guest)):
            self._running[name] = self._arriving.submit(self._hold, guest, shaper)

    def _hold(self, guest: Guest, shaper: _Shaper) -> None:
        def hold() -> bool:
            self.takeover.hold(guest)
            return True

        shaper.held = bool(self._attempt(guest, shaper, hold))
        # libvirt holds each question for 30 s and then refuses it; only a question that waits
        # when the domain has arrived is answered before it runs.
        shaper.retry_at = 0.0
        if shaper.held:
            self._wake.set()

    def _is_ours(self, name: str, guest: Guest, shaper: _Shaper) -> bool:
        """Whether it is already; if not, the way there begins."""
        due = self._attempt(guest, shaper, lambda: self.takeover.due(guest))
        shaper.taken = due is False
        if due:
            self._running[name] = self._pool.submit(self._take, guest, shaper)
        return due is False

    def _take(self, guest: Guest, shaper: _Shaper) -> None:
        def take() -> bool:
            self.takeover.take(guest)
            return True

        shaper.taken = bool(self._attempt(guest, shaper, take))
        if shaper.taken:
            shaper.error = None
        self.changed(guest.name)

    def _attempt(self, guest: Guest, shaper: _Shaper, what: Callable[[], bool]) -> bool | None:
        """The answer; None if it failed, or failed a short while ago."""
        if self.monotonic() < shaper.retry_at:
            return None
        try:
            return what()
        except SluiceError as error:
            if str(error) != shaper.error:
                expected = guest.moving and isinstance(error, Unavailable)
                log.log(logging.INFO if expected else logging.WARNING, "%s", error)
                if not isinstance(error, Unavailable | StoreUnavailable):
                    self.takeover.refused(guest, error)
            shaper.error = str(error)
        except Exception:
            log.exception("domain %s: it could not be taken over", guest.name)
        shaper.retry_at = self.monotonic() + RETRY_S
        return None

    # Metadata of domains

    def _should_carry(self, guest: Guest, shaper: _Shaper, changes: int) -> bool:
        if shaper.looked_at == changes or self.monotonic() < shaper.retry_at:
            return False
        with self.store.transaction() as unit:
            wish = self.takeover.to_carry(unit, guest.name, self.auto_limits.held(guest.name))
        if shaper.carries is None and self.takeover.carries(guest, wish):
            shaper.carries = wish
        if shaper.carries == wish:
            shaper.looked_at = changes
            return False
        return True

    def _write(self, guest: Guest, shaper: _Shaper) -> None:
        try:
            written = self.takeover.write(guest, self.auto_limits.held(guest.name))
        except SluiceError as error:
            log.info("%s", error)
            shaper.retry_at = self.monotonic() + RETRY_S
        except Exception:
            log.exception("domain %s: its metadata could not be written", guest.name)
            shaper.retry_at = self.monotonic() + RETRY_S
        else:
            shaper.carries = written

    # Pushing

    def _wanted(self, guest: Guest, shaper: _Shaper) -> Config:
        """Worked out anew after a change, and in each round if it is in a group, whose page
        may have to be made anew."""
        name = guest.name
        # Counted before they are read, so the next round sees a change meanwhile.
        as_of = self.store.changes, self.auto_limits.changes, guest.live.devices
        if shaper.want is None or shaper.want_as_of != as_of or shaper.in_groups:
            with self.store.transaction() as unit:
                shaper.in_groups = any(m.domain == name for m in unit.memberships())
                shaper.want = wanted(
                    name,
                    unit.grants(name),
                    unit.classes(),
                    unit.ceiling(name),
                    self.auto_limits.snapshot(),
                    self.groups(unit, name),
                    by_path(unit.cards(name), guest.live),
                    self.auto_limits.controls(),
                )
            shaper.want_as_of = as_of
        return shaper.want

    def _differs(self, name: str, shaper: _Shaper, want: Config) -> bool:
        if shaper.pushed != want:
            return True
        generation = self.generation(name)
        if generation is None or shaper.generation is None:
            return False
        if generation != shaper.generation:
            log.info("domain %s: its shaper was changed by someone else", name)
            shaper.pushed = None
            return True
        return False

    def _push(self, name: str, guest: Guest, shaper: _Shaper, want: Config) -> None:
        shaper_id = guest.live.shaper_id
        with self._asking(name, shaper):
            have = shaper.pushed
            if have is None:
                have = actual(self._query(guest, shaper), want)
            self._carry_out(name, commands(shaper_id, have, want))
            shaper.pushed, shaper.pushed_at = want, self.monotonic()
            shaper.generation, shaper.error = None, None

    def _query(self, guest: Guest, shaper: _Shaper) -> Mapping[str, Any]:
        began = self.monotonic()
        answer = self.shapers.query(guest.name, guest.live.shaper_id)
        shaper.shapes, shaper.shapes_at = shaped_ids(answer), began
        shaper.shapes_of = guest.live.devices
        if answer.get("lost-groups"):
            self.lost(guest.name, answer["lost-groups"])
        return answer

    def shapes(self, guest: Guest) -> Shapes:
        """The shaped devices by the last answer of the guest's QEMU."""
        shaper = self._known.get(guest.name)
        if shaper is None or shaper.incarnation != guest.incarnation or guest.live is None:
            return UNKNOWN
        if shaper.shapes is None or shaper.shapes_of != guest.live.devices:
            return Shapes(None, shaper.error or "")
        return Shapes(shaper.shapes)

    def errors(self) -> dict[str, str]:
        """Of running domains whose shaper has not all that it should, why."""
        return {name: one.error for name, one in list(self._known.items()) if one.error}

    def _may_confirm(self, name: str, guest: Guest, shaper: _Shaper) -> bool:
        is_old = self.monotonic() - shaper.shapes_at >= SHAPES_AGE_S
        if is_old or shaper.shapes_of != guest.live.devices:
            return True
        if shaper.generation is not None or self.generation(name) is None:
            return False
        return self.monotonic() - shaper.pushed_at >= GENERATION_SETTLES_S

    def _confirm(self, name: str, guest: Guest, shaper: _Shaper, want: Config) -> None:
        """Reads the shaper back: the answer shows others' changes so far, the generation later
        ones."""
        shaper_id = guest.live.shaper_id
        generation = self.generation(name)
        with self._asking(name, shaper):
            if commands(shaper_id, actual(self._query(guest, shaper), want), want):
                log.info("domain %s: its shaper was changed by someone else at once", name)
                shaper.pushed = None
                self._wake.set()
            else:
                shaper.generation = generation

    @contextmanager
    def _asking(self, name: str, shaper: _Shaper) -> Iterator[None]:
        """After a failure the shaper's configuration is unknown: the next round asks for it."""
        with shaper.lock:
            try:
                yield
            except SluiceError as error:
                shaper.pushed = None
                if str(error) != shaper.error:
                    log.warning("%s", error)
                shaper.error = str(error)
            except Exception:
                shaper.pushed = None
                log.exception("domain %s: its shaper could not be set", name)

    def _carry_out(self, name: str, steps: list[Command]) -> None:
        """Tries every step, since an earlier QEMU refuses only unknown members.

        Raises the first Conflict in the end.
        """
        refused: Conflict | None = None
        for command, arguments in steps:
            try:
                self.shapers.execute(name, command, arguments)
            except Conflict as error:
                refused = refused or error
        if refused is not None:
            raise refused

    # Rules

    def _push_rules(self, name: str, shaper: _Shaper) -> None:
        status = self.hub.status(name)
        if not status["connected"]:
            return
        max_tag = self.hub.max_tag(name)
        as_of = self.store.changes, status["boot_id"], max_tag
        if as_of == shaper.rules_as_of:
            # The hub has them already, unless the channel was unplugged and plugged in again.
            self.hub.set_rules(name, shaper.rules)
            return
        with self.store.transaction() as unit:
            grants, rules = unit.grants(name), unit.rules()
            assignments = unit.assignments(name)
            present = self._present(name, status["boot_id"], assignments)
            for assignment in assignments:
                if assignment not in present:
                    unit.delete_assignment(name, assignment.pid)
        fitting = [grant for grant in grants if grant.tag <= max_tag]
        shaper.rules = agent_rules(name, fitting, rules, present)
        self.hub.set_rules(name, shaper.rules)
        shaper.rules_as_of = None if assignments else as_of

    def _present(self, name: str, boot_id: str, assignments: list[Assignment]) -> list[Assignment]:
        """The assignments of this boot with a live process, or live children of one."""
        table = self.hub.processes(name)
        rows = table["processes"] if table else []
        alive = {(p["pid"], p["start_time_ticks"]) for p in rows}
        heirs = {p["rule"] for p in rows}
        now = self.clock()
        certain = table is not None and not table["truncated"]
        return [
            a
            for a in assignments
            if a.boot_id == boot_id
            and (
                not certain
                or (a.pid, a.start_time_ticks) in alive
                or assignment_rule(a) in heirs
                # One of a time to come was made before the clock was set back.
                or 0 <= now - a.created_at < ASSIGNMENT_GRACE_S
            )
        ]
