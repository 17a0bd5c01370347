# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's domains through libvirt.

A thread polls every half second: one call for the states of all domains, and
the XML of those that changed. libvirt may come and go: while it is away each
question is answered with Unavailable, and the poll connects again by itself.

libvirt may also be there and not answer for any time. So no lock is held during a call: the
state of the last poll is answered at once, and a fresh question is given up after
ANSWER_SECONDS.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import libvirt

from ..domain.errors import NotFound, SluiceError, Unavailable
from ..domain.guests import Guest
from .domain_xml import describe

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

POLL_SECONDS = 0.5
# Persistent XML changes without an event that the poll sees: read it again.
XML_AGE_SECONDS = 5.0
# Less than the web waits for an answer of ours (`READ_TIMEOUT_SECONDS` there).
ANSWER_SECONDS = 4.0
# Questions of now that libvirt may have at a time: each has a thread, for as long as it takes.
MOST_QUESTIONS = 8

STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: "no state",
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "blocked",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "shutting down",
    libvirt.VIR_DOMAIN_SHUTOFF: "shut off",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "suspended",
}

# A pause during which the domain belongs to libvirt: it arrives here, leaves, or
# starts. Its QEMU may not have all of its state yet.
MOVING = {
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
    libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY,
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED,
}

# libvirt prints every error to stderr unless told otherwise.
libvirt.registerErrorHandler(lambda _context, _error: None, None)


def is_moving(state: int, reason: int) -> bool:
    return state == libvirt.VIR_DOMAIN_PAUSED and reason in MOVING


def _is_alive(connection: libvirt.virConnect) -> bool:
    try:
        return bool(connection.isAlive()) and connection.getLibVersion() > 0
    except libvirt.libvirtError:
        return False


@dataclass
class _Cached:
    guest: Guest
    read_at: float


def _newest(found: list[_Cached]) -> dict[str, _Cached]:
    """By uuid, and of a name the last that was read: another domain has it no more."""
    found = sorted(found, key=lambda one: one.read_at)
    of_uuid = {one.guest.uuid: one for one in found}
    of_name = {one.guest.name: one for one in sorted(of_uuid.values(), key=lambda o: o.read_at)}
    return {one.guest.uuid: one for one in of_name.values()}


class LibvirtHost:
    def __init__(
        self, uri: str, monotonic: Callable[[], float], answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.uri = uri
        self.monotonic = monotonic
        self.answer_seconds = answer_seconds
        # Guards the members below. Never held across a call of libvirt.
        self._lock = threading.Lock()
        self._connection: libvirt.virConnect | None = None
        self._error: str | None = "not connected yet"
        self._cache: dict[str, _Cached] = {}
        # Held while a connection is opened, so that not everybody opens one.
        self._opening = threading.Lock()
        self._questions = threading.BoundedSemaphore(MOST_QUESTIONS)
        # The last log line of each unreadable domain; only the poll uses it.
        self._said: dict[str, str] = {}

    # Connection

    def connection(self) -> dict[str, Any]:
        with self._lock:
            return {
                "uri": self.uri,
                "connected": self._connection is not None,
                "error": self._error,
            }

    def _present(self) -> libvirt.virConnect | None:
        with self._lock:
            return self._connection

    def unavailable(self) -> Unavailable:
        return Unavailable(
            "libvirt",
            self.uri,
            f"cannot be reached ({self.connection()['error']})",
            "start libvirtd; sluiced connects again by itself",
        )

    def _slow(self) -> Unavailable:
        return Unavailable(
            "libvirt",
            self.uri,
            f"does not answer within {self.answer_seconds:g} s",
            "try again; if that goes on, see what keeps libvirtd",
        )

    def open(self) -> libvirt.virConnect:
        connection = self._present()
        if connection is not None:
            return connection
        if not self._opening.acquire(timeout=self.answer_seconds):
            raise self._slow()
        try:
            # Another thread may have opened it meanwhile.
            return self._present() or self._open()
        finally:
            self._opening.release()

    def _open(self) -> libvirt.virConnect:
        try:
            connection = libvirt.open(self.uri)
        except libvirt.libvirtError as error:
            with self._lock:
                self._error = str(error)
            raise self.unavailable() from error
        with self._lock:
            self._connection, self._error = connection, None
        log.info("connected to libvirt at %s", self.uri)
        return connection

    def lost(self, error: libvirt.libvirtError) -> None:
        """Lets the connection go if the error says that it is gone.

        It closes with its last user: closing it here would free it under another thread's call,
        or wait for a call that libvirt keeps.
        """
        connection = self._present()
        if connection is None or _is_alive(connection):
            return
        with self._lock:
            if self._connection is not connection:
                return  # another thread was here first, and there may be a new one
            self._connection, self._error = None, str(error)
        log.warning("lost libvirt at %s: %s", self.uri, error)

    def tried(self, call: Callable[[], Answer], thing: str, value: str, problem: str) -> Answer:
        """The call's answer; Unavailable, in these words, if libvirt fails it."""
        try:
            return call()
        except libvirt.libvirtError as error:
            self.lost(error)
            remedy = "nothing to do; sluiced tries again by itself"
            raise Unavailable(thing, value, f"{problem} ({error})", remedy) from error

    def version(self) -> int:
        return self.open().getLibVersion()

    def close(self) -> None:
        """Lets the connection go, as `lost`."""
        with self._lock:
            connection, self._connection, self._error = self._connection, None, "closed"
        # Where it closes now, that takes its time.
        del connection

    # Domains

    def domain(self, name: str) -> libvirt.virDomain:
        connection = self.open()
        try:
            return connection.lookupByName(name)
        except libvirt.libvirtError as error:
            raise self._refusal(name, error) from error

    def _refusal(self, name: str, error: libvirt.libvirtError) -> SluiceError:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return NotFound("domain", name, "does not exist", "see 'virsh list --all'")
        self.lost(error)
        if self._present() is None:
            return self.unavailable()
        # It may exist all the same.
        return Unavailable("domain", name, f"cannot be read ({error})", "try again")

    def guest(self, name: str) -> Guest:
        """The domain as it is now; Unavailable if libvirt takes its time."""
        return self._answer(lambda: self._guest(name))

    def has(self, uuid: str) -> bool:
        """Whether there is a domain of this uuid, under any name; Unavailable as above."""
        return self._answer(lambda: self._has(uuid))

    def _answer(self, question: Callable[[], Answer]) -> Answer:
        if not self._questions.acquire(timeout=self.answer_seconds):
            raise self._slow()
        answer: Future[Answer] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)
            finally:
                self._questions.release()

        # A daemon thread: the end of sluiced does not wait for it.
        thread = threading.Thread(target=ask, name="asks libvirt", daemon=True)
        try:
            thread.start()
        except BaseException:
            # The thread did not start, so its place is given back here.
            self._questions.release()
            raise
        try:
            return answer.result(timeout=self.answer_seconds)
        except TimeoutError:
            raise self._slow() from None

    def _has(self, uuid: str) -> bool:
        connection = self.open()
        try:
            connection.lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return False
            raise self._refusal(uuid, error) from error
        return True

    def _guest(self, name: str) -> Guest:
        domain = self.domain(name)
        now = self.monotonic()
        try:
            guest = self._read(domain)
        except libvirt.libvirtError as error:
            raise self._refusal(name, error) from error
        with self._lock:
            self._cache = _newest([*self._cache.values(), _Cached(guest, now)])
        return guest

    def guests(self) -> list[Guest]:
        """All domains as of the last poll."""
        with self._lock:
            connected = self._connection is not None
            known = [cached.guest for cached in self._cache.values()]
        if not connected:
            raise self.unavailable()
        return sorted(known, key=lambda guest: guest.name)

    def _read(self, domain: libvirt.virDomain) -> Guest:
        state, reason = domain.state()
        live = domain.isActive() == 1
        persistent = domain.isPersistent() == 1
        inactive_xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        live_description = describe(domain.XMLDesc(0)) if live else None
        return Guest(
            name=domain.name(),
            uuid=domain.UUIDString(),
            state=STATES.get(state, "no state"),
            incarnation=domain.ID() if live else -1,
            persistent=describe(inactive_xml) if persistent else (live_description),
            live=live_description,
            moving=is_moving(state, reason),
            transient=not persistent,
        )

    def refresh(self) -> None:
        """One poll. Raises Unavailable while libvirt is away."""
        connection = self.open()
        began = self.monotonic()
        try:
            stats = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
            present = {}
            for domain, values in stats:
                uuid = domain.UUIDString()
                number, reason = values.get("state.state", 0), values.get("state.reason", 0)
                state = STATES.get(number, "no state"), is_moving(number, reason)
                present[uuid] = self._refreshed(domain, uuid, state)
        except libvirt.libvirtError as error:
            self.lost(error)
            if self._present() is None:
                raise self.unavailable() from error
            log.warning("libvirt: %s", error)
            return
        with self._lock:
            # Another thread's reading since then is newer than this poll's.
            known = [c for u, c in self._cache.items() if present.get(u) or c.read_at > began]
            self._cache = _newest([*known, *filter(None, present.values())])

    def _refreshed(
        self, domain: libvirt.virDomain, uuid: str, state: tuple[str, bool]
    ) -> _Cached | None:
        with self._lock:
            cached = self._cache.get(uuid)
        now = self.monotonic()
        if (
            cached is not None
            and (cached.guest.state, cached.guest.moving) == state
            and cached.guest.name == domain.name()
            and cached.guest.incarnation == domain.ID()
            and now - cached.read_at < XML_AGE_SECONDS
        ):
            return cached
        try:
            read = _Cached(self._read(domain), now)
            self._said.pop(uuid, None)
            return read
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            self.lost(error)
            if self._present() is None:
                raise
            self._say_unread(domain, uuid, error)
        except SluiceError as error:
            self._say_unread(domain, uuid, error)
        # An unreadable domain must not hide the others.
        return cached

    def _say_unread(self, domain: libvirt.virDomain, uuid: str, error: Exception) -> None:
        """Once for each reason, not at each poll."""
        if self._said.get(uuid) != str(error):
            self._said[uuid] = str(error)
            log.warning("domain %s cannot be read: %s", domain.name(), error)
