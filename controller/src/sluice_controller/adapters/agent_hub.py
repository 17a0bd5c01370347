# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections to the agents of all guests: one thread, one selector.

The thread owns sockets and sessions; other threads hand over wishes and read the status under
the lock. The lock is never held across a system call that waits, nor while lines are parsed,
whose time is the guest's choice. The guest pays for that time by being read later (`Pace`).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..domain.agent_messages import Line, LineSplitter, read_line
from ..domain.agent_protocol import TABLE_ANSWER_S, Breaches, Pace, Preview, Session
from ..domain.beyond import RoundTrip
from ..domain.model import MAX_TAG

log = logging.getLogger(__name__)

ROUND_SECONDS = 0.25
RECONNECT_SECONDS = 1.0
RECEIVE_BYTES = 1 << 18
MAX_UNSENT_BYTES = 4 << 20
# A table older than this is no longer shown as present.
STALE_SECONDS = 30.0
SILENT_SECONDS = 15.0
# The longest wait for agents' answers to a preview.
PREVIEW_SECONDS = 5.0
# After this long the line itself may be at fault, as a port that QEMU has stopped until its
# host side closes. Renewal does not help without an agent, so it comes ever more rarely.
RENEW_SECONDS = 60.0
RENEW_DOUBLINGS = 4
FIRST_IDS = 1 << 31
# Of a guest's message, in the host's journal.
JOURNAL_CHARS = 300


@dataclass
class _Peer:
    path: str
    breaches: Breaches = field(default_factory=Breaches)
    pace: Pace = field(default_factory=Pace)
    rules: Mapping[str, Any] | None = None
    revision: int = 0
    socket: socket.socket | None = None
    session: Session | None = None
    splitter: LineSplitter = field(default_factory=LineSplitter)
    unsent: bytearray = field(default_factory=bytearray)
    # The events that the selector looks for; 0: it does not know the socket.
    watched: int = 0
    retry_at: float = 0.0
    error: str | None = None
    # Over all connections that were renewed since.
    heard_at: float = 0.0
    renewals: int = 0
    # That its agent speaks.
    is_told: bool = False


class AgentHub:
    def __init__(
        self,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self.clock = clock
        self.monotonic = monotonic
        self.processor_s = processor_s
        self._lock = threading.RLock()
        self._has_heard = threading.Condition(self._lock)
        self._peers: dict[str, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        # Revisions begin at the time, so that no earlier daemon's is met again.
        self._first_revision = int(clock())

    # Wishes of other threads

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\0")

    def set_targets(self, paths: Mapping[str, str]) -> None:
        """The sockets to be connected to: {domain: path}."""
        with self._lock:
            for domain in [d for d, peer in self._peers.items() if paths.get(d) != peer.path]:
                self._disconnect(self._peers.pop(domain), None)
            for domain, path in paths.items():
                if domain not in self._peers:
                    self._peers[domain] = _Peer(path, revision=self._first_revision)
        self.wake()

    def set_rules(self, domain: str, payload: Mapping[str, Any]) -> None:
        with self._lock:
            peer = self._peers.get(domain)
            if peer is None or peer.rules == payload:
                return
            peer.rules = payload
            if peer.session is not None:
                peer.session.want_rules(payload)
        self.wake()

    # Questions

    def status(self, domain: str) -> dict[str, Any]:
        with self._lock:
            peer = self._peers.get(domain)
            session = peer.session if peer else None
            hello = (session.hello if session else None) or {}
            error = None
            if peer is not None:
                error = peer.error or (session and (session.refusal or session.breach)) or None
                if not peer.pace.may_read(self.monotonic()):
                    error = error or "what the agent sends costs too much: it is read more slowly"
            if session and self._is_silent(peer):
                silence_s = self.monotonic() - peer.heard_at
                hello = {}
                error = error or f"the agent has said nothing for {silence_s:.0f} s"
            return {
                "connected": bool(hello),
                "agent_version": hello.get("agent_version"),
                "kernel": hello.get("kernel"),
                "hostname": hello.get("hostname"),
                "boot_id": hello.get("boot_id"),
                "max_tag": hello.get("max_tag"),
                "channel": hello.get("channel"),
                "error": error,
            }

    def processes(self, domain: str) -> dict[str, Any] | None:
        """The last table, or None if there is none that is recent."""
        with self._lock:
            peer = self._peers.get(domain)
            session = peer.session if peer else None
            table = session.table if session else None
            if table is None:
                return None
            age = self.monotonic() - session.table_at
            if age > STALE_SECONDS:
                return None
        return {
            "at": self.clock() - age,
            "age_seconds": age,
            "truncated": table.truncated,
            "processes": table.rows,
            "table": table,
        }

    def round_trips(self, domain: str) -> list[tuple[int, RoundTrip]]:
        """(tag of the class, round trip) of each stream that the agent has told of. An agent whose
        streams are asked for here tells of them from then on. Takes no lock: the sampler asks."""
        peer = self._peers.get(domain)
        session = None if peer is None else peer.session
        if session is None:
            return []
        session.want_streams()
        return [
            (tag, RoundTrip(round(at * 1e9), smoothed_us / 1e6, least_us / 1e6))
            for at, tag, smoothed_us, least_us in session.round_trips.values()
        ]

    def refresh(self, domains: Iterable[str]) -> None:
        """Asks the agents for their tables, and waits for them, but not for long."""
        now = self.monotonic()
        with self._has_heard:
            asked = []
            for domain in domains:
                peer = self._peers.get(domain)
                if peer is not None and peer.session is not None and peer.session.ask_table(now):
                    asked.append((peer, peer.session))
            if not asked:
                return
            self.wake()
            self._has_heard.wait_for(
                lambda: all(p.session is not s or s.table_at >= now for p, s in asked),
                TABLE_ANSWER_S,
            )

    def _is_silent(self, peer: _Peer) -> bool:
        return self.monotonic() - peer.heard_at > SILENT_SECONDS

    def refused(self) -> dict[str, dict[str, str]]:
        """{domain: {id of a rule that its agent does not follow: why}}"""
        with self._lock:
            return {
                domain: dict(peer.session.refused)
                for domain, peer in self._peers.items()
                if peer.session is not None and peer.session.refused
            }

    def preview(self, domains: Iterable[str], match: Mapping[str, str]) -> dict[str, Preview]:
        """The connected agents' answers about a rule; waits, but not for long."""
        with self._has_heard:
            asked = {}
            for domain in domains:
                peer = self._peers.get(domain)
                session = peer.session if peer else None
                if session is not None and session.hello and not self._is_silent(peer):
                    asked[domain] = (peer, session, session.ask_preview(match))
            self.wake()
            self._has_heard.wait_for(
                lambda: all(p.session is not s or one.is_over for p, s, one in asked.values()),
                PREVIEW_SECONDS,
            )
            for _peer, _session, preview in asked.values():
                if not preview.is_over:
                    preview.untold = f"its agent has not answered within {PREVIEW_SECONDS:g} s"
            return {domain: preview for domain, (_p, _s, preview) in asked.items()}

    def max_tag(self, domain: str) -> int:
        return self.status(domain)["max_tag"] or MAX_TAG

    # The thread

    def round(self) -> None:
        """Waits for traffic at most a quarter of a second, and deals with it."""
        events = self._selector.select(ROUND_SECONDS)
        now = self.monotonic()
        for key, mask in events:
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
                continue
            with self._on_its_own(key.data, now):
                self._serve(key.data, mask, now)
        with self._lock:
            for peer in self._peers.values():
                with self._on_its_own(peer, now):
                    self._tend(peer, now)
                    self._watch(peer, now)

    @contextlib.contextmanager
    def _on_its_own(self, peer: _Peer, now: float) -> Iterator[None]:
        """An unforeseen error of one agent ends its connection, and no other's."""
        try:
            yield
        except Exception as error:
            log.exception("%s: its connection failed", peer.path)
            with self._lock:
                self._disconnect(peer, f"the connection failed ({error!r})")
                # It may come back with the same, which must not fill the log.
                peer.breaches.add(now)

    def _serve(self, peer: _Peer, mask: int, now: float) -> None:
        with self._lock:
            if mask & selectors.EVENT_WRITE and peer.socket is not None:
                self._flush(peer)
            data = self._received(peer, now) if mask & selectors.EVENT_READ else b""
            session = peer.session
        if not data or session is None:
            return
        began = self.processor_s()
        lines = [read_line(line) for line in peer.splitter.feed(data)]
        with self._lock:
            # Another thread may have ended the connection.
            if peer.session is session:
                self._take(peer, session, lines, now)
                self._has_heard.notify_all()
            peer.pace.spend(self.processor_s() - began, now)

    def _received(self, peer: _Peer, now: float) -> bytes:
        if peer.socket is None:
            return b""
        try:
            data = peer.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._disconnect(peer, f"the connection broke ({error})")
            return b""
        if not data:
            self._disconnect(peer, "the connection was closed")
        elif peer.breaches.add_bytes(len(data), now):
            self._disconnect(peer, "disconnected for a minute: the agent sent too much in one")
            return b""
        return data

    def _take(self, peer: _Peer, session: Session, lines: list[Line], now: float) -> None:
        for line in lines:
            if not session.take(line, now):
                self._disconnect(
                    peer, f"disconnected for a minute: too many breaches, last {session.breach}"
                )
                return
        if session.heard_at == now:
            peer.heard_at, peer.renewals = now, 0
        self._tell_greeted(peer)
        for level, text in self._drain_logs(session):
            priority = logging.getLevelNamesMapping()[level.upper()]
            log.log(priority, "%s: %r", peer.path, text[:JOURNAL_CHARS])

    def _tell_greeted(self, peer: _Peer) -> None:
        hello = peer.session.hello
        if hello and not peer.is_told:
            peer.is_told = True
            log.info("%s: the agent speaks, version %r", peer.path, hello["agent_version"])

    def _drain_logs(self, session: Session) -> list[tuple[str, str]]:
        logs = list(session.logs)
        session.logs.clear()
        return logs

    def _tend(self, peer: _Peer, now: float) -> None:
        """Connects when it is time, and sends due lines."""
        if peer.socket is None:
            if now >= max(peer.retry_at, peer.breaches.banned_until):
                self._connect(peer, now)
            return
        patience_s = RENEW_SECONDS * 2 ** min(peer.renewals, RENEW_DOUBLINGS)
        if now - peer.session.heard_at > patience_s:
            peer.renewals += 1
            self._disconnect(peer, f"nothing was heard for {now - peer.heard_at:.0f} s")
            return
        for message in peer.session.due(now):
            if len(peer.unsent) + len(message) > MAX_UNSENT_BYTES:
                self._disconnect(peer, "the agent does not read")
                return
            peer.unsent += message
        if peer.unsent:
            self._flush(peer)

    def _connect(self, peer: _Peer, now: float) -> None:
        peer.retry_at = now + RECONNECT_SECONDS
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(peer.path)
        except OSError as error:
            connection.close()
            peer.error = f"{peer.path}: {error.strerror or error}"
            return
        except Exception:
            connection.close()
            raise
        peer.socket, peer.error = connection, None
        peer.splitter = LineSplitter()
        peer.unsent.clear()
        # Requests of an earlier connection, or of another host, may be answered here.
        first_id = 1 + secrets.randbelow(FIRST_IDS)
        peer.session = Session(now, peer.breaches, peer.revision, first_id)
        if not peer.renewals:
            peer.heard_at = now
        if peer.rules is not None:
            peer.session.want_rules(peer.rules)

    def _watch(self, peer: _Peer, now: float) -> None:
        """Tells the selector which events of the connection to watch."""
        wanted = 0
        if peer.socket is not None and peer.pace.may_read(now):
            wanted |= selectors.EVENT_READ
        if peer.unsent and peer.socket is not None:
            wanted |= selectors.EVENT_WRITE
        if wanted == peer.watched:
            return
        if peer.watched:
            self._selector.unregister(peer.socket)
            peer.watched = 0
        if wanted:
            self._selector.register(peer.socket, wanted, peer)
            # Not before: if that fails, the selector does not know it.
            peer.watched = wanted

    def _flush(self, peer: _Peer) -> None:
        try:
            sent = peer.socket.send(peer.unsent)
            del peer.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            self._disconnect(peer, f"the connection broke ({error})")

    def _disconnect(self, peer: _Peer, reason: str | None) -> None:
        if peer.socket is not None:
            if peer.watched:
                self._selector.unregister(peer.socket)
            peer.socket.close()
        peer.watched = 0
        if peer.session is not None:
            peer.revision = peer.session.revision
        if peer.is_told and reason is not None:
            log.info("%s: %r", peer.path, reason)
        peer.is_told = False
        self._has_heard.notify_all()
        peer.socket, peer.session, peer.error = None, None, reason

    def close(self) -> None:
        with self._lock:
            for peer in self._peers.values():
                self._disconnect(peer, None)
            self._peers.clear()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
