# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes a domain's definition and restarts the domain, while the caller waits.

Nothing of it outlives the call. The definition is changed in one step, before the guest is
asked to shut down: a sluiced that is killed leaves either the definition of before or the new
one, which counts from the domain's next start. A restart that comes to nothing puts back the
definition of before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..domain.errors import Conflict, NotFound, SluiceError, Unavailable, command, sluice
from ..domain.events import Subject
from ..domain.guests import NOT_TO_BE_STARTED, Guest, Seen
from .catalogue import audited
from .ports import Clock, Store, Transaction

log = logging.getLogger(__name__)

# Each has a thread of the API waiting; the API must have some to spare (`entry/daemon.py`).
MOST_RESTARTS = 4
POLL_SECONDS = 0.25


class Power(Protocol):
    """Definitions, and running domains."""

    def persistent_xml(self, name: str) -> str: ...
    def define(self, xml: str) -> None: ...
    def same(self, one: str, other: str) -> bool: ...
    def ask_to_shut_down(self, name: str) -> None: ...
    def look(self, name: str) -> Seen:
        """NotFound, or Unavailable for any other refusal of libvirt."""
        ...

    def start(self, name: str) -> None: ...


@dataclass(frozen=True)
class Change:
    """A change of a definition; `wanted` is None if only a restart is due.

    `original` and `changes` are for attach's record; both None remove it.
    """

    action: str
    before: str | None = None
    wanted: str | None = None
    original: str | None = None
    changes: Mapping[str, Any] | None = None
    said: Any = None


@dataclass
class _Made:
    """A change in force; `before` puts it back, None if nothing is to be put back.

    `after` is libvirt's form of the new definition, None if unknown.
    """

    name: str
    before: str | None
    record_before: Mapping[str, Any] | None
    after: str | None = None


@dataclass(eq=False)
class Restarts:
    """`monotonic` is in seconds, `clock` for the audit. `pause` says if sluiced ends."""

    store: Store
    editor: Power
    monotonic: Callable[[], float]
    clock: Clock
    pause: Callable[[float], bool]

    def __post_init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MOST_RESTARTS)

    def run(self, guest: Guest, change: Change, seconds: int | None) -> None:
        """Changes the definition and restarts the domain, or leaves both as they were.

        Waits `seconds` for the guest to shut down; None: no restart. The domain's lock is held.
        """
        if seconds is None:
            self._change(guest, change, is_all=True)
            return
        if not self._slots.acquire(blocking=False):
            raise Conflict(
                "domain",
                guest.name,
                f"cannot be restarted now: sluiced waits for {MOST_RESTARTS} other guests already",
                "try again when one of them is restarted, or repeat without restart",
            )
        try:
            self._restart(guest, self._change(guest, change, is_all=False), seconds)
            with self.store.transaction() as unit:
                self._audit(unit, guest, change)
        finally:
            self._slots.release()

    def _audit(self, unit: Transaction, guest: Guest, change: Change) -> None:
        about = Subject((guest.name,))
        audited(unit, self.clock, change.action, guest.name, None, change.said, about)

    # The definition

    def _change(self, guest: Guest, change: Change, is_all: bool) -> _Made:
        """The new definition and its record, or as before. `is_all`: no restart follows."""
        with self.store.transaction() as unit:
            made = _Made(guest.name, change.before, unit.stored_xml(guest.name))
        if change.wanted is None:
            return made
        try:
            self.editor.define(change.wanted)
            made.after = self.editor.persistent_xml(guest.name)
            record = None
            if change.changes is not None:
                record = {
                    "original": change.original,
                    "attached": made.after,
                    "changes": change.changes,
                }
            with self.store.transaction() as unit:
                unit.put_stored_xml(guest.name, record)
                if is_all:
                    self._audit(unit, guest, change)
        except Exception:
            self._put_back(made)
            raise
        return made

    def _put_back(self, made: _Made) -> str:
        """The definition of before, unless somebody has edited the new one; says which it is."""
        if made.before is None:
            return "its definition is as it was"
        try:
            present = self.editor.persistent_xml(made.name)
            if not self.editor.same(present, made.before):
                if made.after is not None and not self.editor.same(present, made.after):
                    return "its definition was changed meanwhile, and stays so"
                self.editor.define(made.before)
            with self.store.transaction() as unit:
                unit.put_stored_xml(made.name, made.record_before)
        except SluiceError as error:
            log.error("domain %s: its definition could not be put back: %s", made.name, error)
            return (
                f"its definition of before could not be put back ({error.problem}): the new one"
                f" counts from its next start, see: {sluice('show', made.name)}"
            )
        return "its definition is as before"

    # The restart

    def _restart(self, guest: Guest, made: _Made, seconds: int) -> None:
        seen = self._wait_until_off(guest, made, seconds)
        if seen is None or seen.uuid != guest.uuid or seen.off in NOT_TO_BE_STARTED:
            raise Conflict(
                "domain",
                guest.name,
                "was saved, moved or undefined while it was to be restarted, and is not started",
                f"see 'virsh list --all', and try again; {self._put_back(made)}",
            )
        if seen.off is not None:
            self._start(guest, made)

    def _wait_until_off(self, guest: Guest, made: _Made, seconds: int) -> Seen | None:
        """How it is when it has ended, or runs anew already; None: libvirt knows it no more."""
        deadline = self.monotonic() + seconds
        asked = False
        while True:
            away: Unavailable | None = None
            try:
                asked = asked or self._ask(guest, made)
                seen = self.editor.look(guest.name)
                if seen.off is not None or (seen.uuid, seen.incarnation) != (
                    guest.uuid,
                    guest.incarnation,
                ):
                    return seen
            except NotFound:
                return None
            except Unavailable as error:
                # libvirt may be back in time.
                away = error
            if self.monotonic() >= deadline:
                raise self._gave_up(guest, made, seconds, away)
            if self.pause(POLL_SECONDS):
                left = "a new definition counts from its next start"
                raise _unfinished(guest, "sluiced is being stopped", left)

    def _ask(self, guest: Guest, made: _Made) -> bool:
        """Whether the guest was asked, or is off; Conflict if libvirt does not want to ask it."""
        try:
            self.editor.ask_to_shut_down(guest.name)
        except Conflict:
            if self.editor.look(guest.name).off is None:
                self._put_back(made)
                raise
        return True

    def _gave_up(
        self, guest: Guest, made: _Made, seconds: int, away: Unavailable | None
    ) -> SluiceError:
        if away is not None:
            why = f"libvirt went away ({away.problem})"
            return _unfinished(guest, why, self._put_back(made))
        return Conflict(
            "domain",
            guest.name,
            f"did not shut down within {seconds} s",
            "give it longer with shutdown_seconds, or repeat without restart and restart it later;"
            f" it runs on, {self._put_back(made)}, and a guest that shuts down later stays off",
        )

    def _start(self, guest: Guest, made: _Made) -> None:
        """With the new definition, else with the one of before."""
        refusal = self._refused_start(guest)
        if refusal is None:
            return
        log.error("%s", refusal)
        put_back = self._put_back(made)
        if made.before is not None and self._refused_start(guest) is None:
            result = f"{put_back}, and it runs with that"
        else:
            result = f"{put_back}; it is off: {command('virsh', 'start', guest.name)}"
        raise type(refusal)(
            refusal.thing, refusal.value, refusal.problem, f"{refusal.remedy}; {result}"
        ) from refusal

    def _refused_start(self, guest: Guest) -> SluiceError | None:
        """Why the domain does not run; None if it does."""
        try:
            self.editor.start(guest.name)
        except SluiceError as error:
            try:
                # Somebody else may have been faster, or the answer was lost.
                is_off = self.editor.look(guest.name).off is not None
            except SluiceError:
                is_off = True
            return error if is_off else None
        return None


def _unfinished(guest: Guest, why: str, left: str) -> Unavailable:
    return Unavailable(
        "domain",
        guest.name,
        f"may not be restarted: {why}",
        f"see 'virsh list --all' and start it if it is off; {left}",
    )
