# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes definitions and restarts domains, so that nothing is left half done.

What is begun is in the store before it is begun (`domain/restarts.py` says what
follows). The caller's thread sees to it, holding the domain's lock; what it
leaves open, because libvirt is away, sluiced ends or the guest is slow, a loop
carries on with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..domain.errors import Conflict, NotFound, SluiceError, Unavailable
from ..domain.guests import Guest
from ..domain.model import AuditEntry
from ..domain.restarts import (
    LATE_SECONDS,
    Phase,
    Restart,
    Seen,
    Step,
    from_json,
    next_step,
    not_to_come,
)
from .catalogue import current_actor
from .locks import DomainLocks
from .ports import Clock, Store, Transaction

log = logging.getLogger(__name__)

# Each has a thread of the API waiting; the API must have some to spare (`entry/daemon.py`).
MOST_RESTARTS = 4
POLL_SECONDS = 0.25
# After a failure, what nobody waits for is tried again.
RETRY_SECONDS = 5.0
# A definition of before that libvirt refuses is offered again after 5 s, 10 s and so on.
LONGEST_RETRY_SECONDS = 300.0
STORED_AS = "restarts"


class Power(Protocol):
    """Definitions, and what runs."""

    def persistent_xml(self, name: str) -> str: ...
    def define(self, xml: str) -> None: ...
    def same(self, one: str, other: str) -> bool: ...
    def ask_to_shut_down(self, name: str) -> None: ...
    def look(self, name: str) -> Seen:
        """NotFound, or Unavailable for whatever else keeps libvirt from telling."""
        ...

    def start(self, name: str) -> None: ...


@dataclass(frozen=True)
class Change:
    """What is to become of a definition; `wanted` is None where only a restart is due.

    `original` and `changes` are for attach's record; both None: there is none any more.
    """

    action: str
    before: str | None = None
    wanted: str | None = None
    original: str | None = None
    changes: Mapping[str, Any] | None = None
    said: Any = None


@dataclass
class _Refused:
    """A restart whose definition of before libvirt does not take, and when it is offered again."""

    restart: Restart
    wait_s: float = 0.0
    again_at: float = 0.0


class Restarts:
    """`monotonic` goes on from one sluiced to the next (`domain/restarts.py`); `clock` is for
    the audit alone. `pause` says if sluiced ends."""

    def __init__(
        self,
        store: Store,
        editor: Power,
        monotonic: Callable[[], float],
        clock: Clock,
        pause: Callable[[float], bool],
        boot_id: str,
        editing: DomainLocks,
        changed: Callable[[str | None], None],
    ) -> None:
        self.store = store
        self.editor = editor
        self.monotonic = monotonic
        self.clock = clock
        self.pause = pause
        self.boot_id = boot_id
        self.editing = editing
        self.changed = changed
        self._slots = threading.BoundedSemaphore(MOST_RESTARTS)
        self._guard = threading.Lock()
        self._retry_at: dict[str, float] = {}
        self._refused: dict[str, _Refused] = {}
        # What was last logged of those that fail as nobody foresaw.
        self._unforeseen: dict[str, str] = {}
        self._known = self._stored()

    # What is begun, in the store and here

    def _stored(self) -> dict[str, Restart]:
        found = {}
        with self.store.transaction() as unit:
            for key, raw in unit.value(STORED_AS, {}).items():
                try:
                    found[key] = not_to_come(from_json(raw), self.boot_id, self.monotonic())
                except (TypeError, ValueError, KeyError) as error:
                    log.error("a restart that another version began is left as it is: %s", error)
        return found

    @staticmethod
    def _key(restart: Restart) -> str:
        # A change that fails at once must not end the watch over an earlier request.
        kind = "definition" if restart.phase is Phase.CHANGING else "restart"
        return f"{kind} {restart.uuid}"

    @contextmanager
    def _writing(self) -> Iterator[tuple[Transaction, dict[str, Restart]]]:
        """A transaction, and what is begun; both are changed, or neither."""
        with self._guard:
            begun = dict(self._known)
            with self.store.transaction() as unit:
                yield unit, begun
                unit.put_value(STORED_AS, {key: one.as_json() for key, one in begun.items()})
            self._known = begun

    def _keep(self, restart: Restart) -> Restart:
        with self._writing() as (_unit, begun):
            begun[self._key(restart)] = restart
        return restart

    def _forget(
        self, restart: Restart, actor: str = "", action: str = "", said: Any = None
    ) -> None:
        """It is over; `action` is for the audit."""
        with self._writing() as (unit, begun):
            begun.pop(self._key(restart), None)
            if action:
                entry = AuditEntry(self.clock(), actor, action, restart.name, None, said)
                unit.add_audit(entry)

    def refuse_unfinished(self, guest: Guest) -> None:
        """Conflict where an earlier change has not come to its end; its caller is gone.

        One that cannot be undone does not count: `run` leaves it behind.
        """
        for key, restart in list(self._known.items()):
            if self._is_refused(key, restart):
                continue
            if restart.uuid == guest.uuid and restart.phase is not Phase.LATE:
                raise Conflict(
                    "domain",
                    guest.name,
                    "is still being restarted, or given back its definition",
                    "sluiced sees to it by itself; look at it with"
                    f" 'sluice show {guest.name}' and try again later",
                )

    # What cannot be undone

    def _is_refused(self, key: str, restart: Restart, now: float = 0.0) -> bool:
        """Whether libvirt does not take it; at `now`: and it is not to be offered again yet."""
        refused = self._refused.get(key)
        return refused is not None and refused.restart is restart and now < refused.again_at

    def _note_refused(self, key: str, restart: Restart, error: Conflict) -> None:
        """The guest runs; nothing is lost but its definition of before. Said once."""
        if not self._is_refused(key, restart):
            self._refused[key] = _Refused(restart)
            said = (
                f"its definition of before cannot be put back ({error.problem}): correct what"
                f" libvirt names, and that is done within {LONGEST_RETRY_SECONDS:.0f} s; or leave"
                f" it behind with 'sluice attach {restart.name}' or 'sluice detach {restart.name}'"
            )
            log.error("domain %s: %s", restart.name, said)
            with self.store.transaction() as unit:
                action = f"{restart.action} not undone"
                unit.add_audit(
                    AuditEntry(self.clock(), "sluiced", action, restart.name, None, said)
                )
        refused = self._refused[key]
        refused.wait_s = min(max(RETRY_SECONDS, 2 * refused.wait_s), LONGEST_RETRY_SECONDS)
        refused.again_at = self.monotonic() + refused.wait_s

    def _leave_behind(self, guest: Guest) -> None:
        """A change is asked for on top of one that cannot be undone: it counts from now on.

        The definition is the new one, and attach's record is of it, as without a restart.
        The guest may follow our request still.
        """
        for key, restart in list(self._known.items()):
            if restart.uuid == guest.uuid and self._is_refused(key, restart):
                self._keep(_late(restart))
                del self._refused[key]
                log.warning(
                    "domain %s: its definition of before is not put back any more", guest.name
                )

    # For a caller

    def run(self, guest: Guest, change: Change, seconds: int | None) -> None:
        """Changes the definition and restarts the domain, or leaves both as they were.

        Waits `seconds` for the guest to shut down; None: no restart. The domain's lock is held.
        """
        if seconds is None:
            self._define(guest, change, None)
            return
        if not self._slots.acquire(blocking=False):
            raise Conflict(
                "domain",
                guest.name,
                f"cannot be restarted now: sluiced waits for {MOST_RESTARTS} other guests already",
                "try again when one of them is restarted, or repeat without restart",
            )
        try:
            restart = self._define(guest, change, seconds)
            self._wait(restart)
        finally:
            self._slots.release()

    def _define(self, guest: Guest, change: Change, seconds: int | None) -> Restart:
        """The new definition and its record; with `seconds` the restart is in the store then."""
        self._leave_behind(guest)
        with self.store.transaction() as unit:
            record = unit.stored_xml(guest.name)
        restart = Restart(
            guest.uuid,
            guest.name,
            change.action,
            current_actor.get(),
            self.boot_id,
            guest.incarnation,
            Phase.CHANGING,
            self.monotonic(),
            seconds or 0,
            before=change.before,
            record_before=record,
            said=change.said,
        )
        self._keep(restart)
        try:
            if change.wanted is not None:
                self.editor.define(change.wanted)
            return self._defined(restart, change, seconds)
        except Exception:
            self._undo(restart)
            raise

    def _defined(self, restart: Restart, change: Change, seconds: int | None) -> Restart:
        after = self.editor.persistent_xml(restart.name) if change.wanted is not None else None
        record = None
        if change.changes is not None:
            record = {"original": change.original, "attached": after, "changes": change.changes}
        asked = replace(restart, phase=Phase.ASKED, asked_at=self.monotonic(), after=after)
        with self._writing() as (unit, begun):
            del begun[self._key(restart)]
            if change.wanted is not None:
                unit.put_stored_xml(restart.name, record)
            if seconds is None:
                entry = AuditEntry(
                    self.clock(), restart.actor, restart.action, restart.name, None, restart.said
                )
                unit.add_audit(entry)
            else:
                begun[self._key(asked)] = asked
        return asked

    def _undo(self, restart: Restart) -> None:
        try:
            self._put_back(restart)
            self._forget(restart)
        except Exception as error:
            log.error(
                "domain %s: its definition of before could not be put back (%s); it is tried again",
                restart.name,
                error,
            )

    def _wait(self, restart: Restart) -> None:
        asked, left = False, restart
        while left is not None:
            try:
                asked = asked or self._ask(restart)
                left, refusal = self._carry_out(left, self._due(left))
                if refusal is not None:
                    raise refusal
            except Unavailable as error:
                # libvirt may be back in time.
                if self.monotonic() >= restart.deadline_at:
                    raise _unfinished(restart, f"libvirt went away ({error.problem})") from error
            if left is not None and self.pause(POLL_SECONDS):
                raise _unfinished(restart, "sluiced is being stopped")

    def _ask(self, restart: Restart) -> bool:
        """Whether the guest was asked, or is off; Conflict if libvirt does not want to ask it."""
        try:
            self.editor.ask_to_shut_down(restart.name)
        except Unavailable as error:
            log.info("domain %s: %s", restart.name, error)
            return False
        except Conflict:
            if self.editor.look(restart.name).off is None:
                self._undo(restart)
                raise
        return True

    # What is due

    def _due(self, restart: Restart) -> Step:
        try:
            seen = self.editor.look(restart.name)
        except NotFound:
            seen = None
        return next_step(restart, seen, self.boot_id, self.monotonic())

    def _carry_out(self, restart: Restart, step: Step) -> tuple[Restart | None, SluiceError | None]:
        """What is left to do, and why the caller is refused; Unavailable: nothing was done."""
        if step is Step.WAIT:
            return restart, None
        if step is Step.START:
            return self._start(restart)
        if step is Step.GIVE_UP:
            self._put_back(restart)
            return self._keep(_late(restart)), _slow(restart)
        if step is Step.UNDO:
            self._put_back(restart)
            self._forget(restart)
            return None, _kept_off(restart)
        if step is Step.DONE:
            self._done(restart)
            return None, None
        if restart.phase is not Phase.LATE:
            log.warning("domain %s: what was begun with it is left as it is", restart.name)
        self._forget(restart)
        return None, _kept_off(restart)

    def _done(self, restart: Restart) -> None:
        self._forget(restart, restart.actor, restart.action, restart.said)
        self.changed(restart.name)

    def _start(self, restart: Restart) -> tuple[Restart | None, SluiceError | None]:
        if restart.phase is Phase.LATE:
            # Whatever happens from here, it is off because of us.
            restart = self._moved_on(restart, Phase.BACK)
        try:
            if restart.phase is Phase.BACK:
                self._put_back(restart)
            self.editor.start(restart.name)
        except Conflict as error:
            if self.editor.look(restart.name).off is not None:
                return self._not_started(restart, error)
            # Somebody else was faster.
        if restart.phase is Phase.ASKED:
            self._done(restart)
        else:
            said = "was switched off by our request, and started again"
            log.info("domain %s: %s", restart.name, said)
            self._forget(restart, "sluiced", "start", said)
            self.changed(restart.name)
        return None, None

    def _not_started(
        self, restart: Restart, error: Conflict
    ) -> tuple[Restart | None, SluiceError | None]:
        log.error("%s", error)
        if restart.phase is Phase.BACK:
            return restart, error
        back = self._moved_on(restart, Phase.BACK)
        if back.before is None:
            return back, error
        try:
            left, _again = self._start(back)
        except SluiceError as away:
            log.error("%s", away)
            left = back
        return left, error

    def _moved_on(self, restart: Restart, phase: Phase) -> Restart:
        return self._keep(replace(restart, phase=phase))

    def _put_back(self, restart: Restart) -> None:
        """The definition of before, unless somebody has edited the new one."""
        if restart.before is None:
            return
        present = self.editor.persistent_xml(restart.name)
        if self.editor.same(present, restart.before):
            pass
        elif restart.after is None or self.editor.same(present, restart.after):
            self.editor.define(restart.before)
        else:
            log.warning(
                "domain %s: its definition was changed meanwhile, and stays as it is", restart.name
            )
            return
        with self.store.transaction() as unit:
            unit.put_stored_xml(restart.name, restart.record_before)
        self.changed(restart.name)

    # What nobody waits for

    def round(self) -> None:
        for noted in (self._refused, self._unforeseen, self._retry_at):
            for key in set(noted) - set(self._known):
                noted.pop(key, None)
        for key, restart in list(self._known.items()):
            if self.monotonic() < self._retry_at.get(key, 0.0):
                continue
            self._retry_at.pop(key, None)
            try:
                refusal = self._look_after(key, restart)
            except Unavailable as error:
                log.debug("%s", error)
                refusal = error
            except SluiceError as error:
                log.warning("%s", error)
                refusal = error
            except Exception as error:
                # What nobody foresaw of one domain leaves no other switched off.
                self._say_unforeseen(key, restart, error)
                refusal = error
            if refusal is not None:
                self._retry_at[key] = self.monotonic() + RETRY_SECONDS

    def _say_unforeseen(self, key: str, restart: Restart, error: Exception) -> None:
        if self._unforeseen.get(key) != repr(error):
            self._unforeseen[key] = repr(error)
            log.exception("domain %s: what was begun with it waits; tried again", restart.name)

    def _look_after(self, key: str, restart: Restart) -> SluiceError | None:
        step = self._due(restart)
        if step is Step.WAIT:
            return None
        # Only that may wait: a guest that goes off meanwhile is started at once.
        if step is Step.GIVE_UP and self._is_refused(key, restart, self.monotonic()):
            return None
        lock = self.editing.of(restart.name)
        # Its caller may be there still, or another one by now.
        if not lock.acquire(blocking=False):
            return None
        try:
            if self._known.get(key) is not restart:
                return None
            step = self._due(restart)
            _left, refusal = self._carry_out(restart, step)
            return refusal
        except Conflict as error:
            if step is not Step.GIVE_UP:
                raise
            self._note_refused(key, restart, error)
            return error
        except Unavailable:
            # It may have been put back, with the answer lost.
            self._refused.pop(key, None)
            raise
        finally:
            lock.release()


def _late(restart: Restart) -> Restart:
    """Its time is over, and there is nothing to put back."""
    return replace(restart, phase=Phase.LATE, before=None, after=None, record_before=None)


def _slow(restart: Restart) -> Conflict:
    return Conflict(
        "domain",
        restart.name,
        f"did not shut down within {restart.seconds} s",
        "give it longer with shutdown_seconds, or repeat without restart and restart it later; it"
        f" runs on as before, and if it shuts down within the next {LATE_SECONDS} s it is started"
        " again, as it may then follow this request",
    )


def _kept_off(restart: Restart) -> Conflict:
    return Conflict(
        "domain",
        restart.name,
        "was saved, moved or undefined while it was to be restarted, and is not started",
        "see 'virsh list --all', and try again",
    )


def _unfinished(restart: Restart, why: str) -> Unavailable:
    return Unavailable(
        "domain",
        restart.name,
        f"may not be restarted yet: {why}",
        "sluiced finishes what was begun when both are back; look at it with"
        f" 'sluice show {restart.name}'",
    )
