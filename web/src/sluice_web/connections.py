# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections to the page, none of which may take a thread before its request is whole.

waitress reads all connections in one loop that never waits for one of them, and hands a
request on when its last byte is there. This module adds four things that waitress lacks:

* a deadline for each stage of reading, which single bytes do not move;
* TLS, with the handshake in the same loop;
* room for a new connection at any time: the connection that has waited longest goes;
* threads of their own for event streams, which last.
"""

import errno
import json
import logging
import math
import resource
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask

from .certificate import Certificate
from .problems import MEDIA_TYPE, Problem
from .throttle import network_of

log = logging.getLogger(__name__)
# The page's own, and sluiced's, which are passed on.
EVENTS_PATHS = frozenset({"/events", "/api/v1/events"})
# A record of TLS, decrypted: with less, some of it would wait inside OpenSSL, where no
# poll sees it.
RECORD_BYTES = 16384
# So many requests may wait on one connection; browsers send the next one after the answer.
# Each answer that is not read takes memory, and a thread waits where that is too much.
REQUESTS_AHEAD = 8
NO_ROOM_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# A connection that waits is seen again at once: meanwhile the loop would do nothing else.
REST_SECONDS = 1.0


@dataclass(frozen=True)
class Patience:
    """How long the page waits for a client, in seconds, and for how many."""

    # For the TLS handshake and the head of the first request together, for each later head
    # from its first byte on, for a body, and between two requests.
    read_seconds: float = 10.0
    # For a client to take anything at all of an answer.
    unread_seconds: float = 60.0
    # Or half of the files that the process may open, where those are fewer.
    connections: int = 500


class Refusal(ErrorTask):
    """The answer to bytes that are no request, in the form of every refusal."""

    def execute(self) -> None:
        error = self.request.error
        problem = Problem(
            error.code,
            "http",
            error.reason,
            detail=f"The request cannot be taken: {error.body}; send one that HTTP/1.1 allows.",
            thing="request",
            remedy="send a request that HTTP/1.1 allows",
        )
        body = json.dumps(problem.body).encode()
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", MEDIA_TYPE))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Answer(WSGITask):
    """A request, whose answer keeps no file open for as long as the client does not read."""

    def get_environment(self) -> dict:
        """As of waitress, but files are read at once: the page serves no large file."""
        environ = super().get_environment()
        environ.pop("wsgi.file_wrapper", None)
        return environ


class Parser(HTTPRequestParser):
    """Refuses an address that none can be, as it does all else that is no request."""

    def parse_header(self, header_plus: bytes) -> None:
        """As of waitress, which lets some errors of urllib out, and its log tells them."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error


class Channel(HTTPChannel):
    """A connection, and the time by which it has to have sent the awaited bytes."""

    parser_class = Parser
    task_class = Answer
    error_task_class = Refusal

    def __init__(self, server, sock, addr, adj, map=None) -> None:
        self.patience: Patience = server.patience
        self.network = network_of(addr[0])
        self.opened = time.monotonic()
        self.deadline = self.opened + self.patience.read_seconds
        self._between = False
        super().__init__(server, sock, addr, adj, map)

    def received(self, data: bytes) -> bool:
        """Take bytes; a new stage of the request, not a new byte, begins a new deadline."""
        in_body = self._in_body()
        taken = super().received(data)
        if len(self.requests) > REQUESTS_AHEAD:
            self.handle_close()
            return False
        with self.requests_lock:
            if self.requests:
                self.deadline = math.inf
            elif self.request is not None and (self._between or (self._in_body() and not in_body)):
                self._between = False
                self.deadline = time.monotonic() + self.patience.read_seconds
        return taken

    def _in_body(self) -> bool:
        return self.request is not None and self.request.headers_finished

    def service(self) -> None:
        """Answer a request (in a thread of a pool); the connection then waits for the next."""
        super().service()
        with self.requests_lock:
            if not self.requests:
                self._between = self.request is None
                self.deadline = time.monotonic() + self.patience.read_seconds

    def overdue(self, now: float, clock: float) -> bool:
        """True if the client let its time pass; ``now`` is monotonic, ``clock`` time.time()."""
        if self.total_outbufs_len:
            return clock - self.last_activity > self.patience.unread_seconds
        return not self.requests and now > self.deadline

    def may_go(self) -> bool:
        """True while no thread works for it: it sends, or reads or does not read an answer."""
        return not self.requests


class TlsChannel(Channel):
    """The same over TLS. The first reads make the handshake."""

    def __init__(self, server, sock, addr, adj, map=None) -> None:
        # An answer is sent by its thread while the loop may read; OpenSSL takes one at a time.
        self._one_at_a_time = threading.Lock()
        self._handshake_sends = False
        super().__init__(server, sock, addr, adj, map)

    def writable(self) -> bool:
        """True also while a handshake waits for room to send."""
        return self._handshake_sends or super().writable()

    def handle_write(self) -> None:
        """Send more, or go on with the handshake, once there is room."""
        if self._handshake_sends:
            self.handle_read()
        else:
            super().handle_write()

    def handle_read(self) -> None:
        """Read the bytes that have come, unless they are a part of a record or of the handshake."""
        self._handshake_sends = False
        try:
            with self._one_at_a_time:
                data = self.socket.recv(RECORD_BYTES)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._handshake_sends = True
            return
        except OSError:
            data = b""
        if data:
            self.last_activity = time.time()
            self.received(data)
        else:
            self.handle_close()

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send as much as fits; 0 also when the connection is broken, as in waitress."""
        try:
            with self._one_at_a_time:
                return self.socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except OSError:
            if do_close:
                self.handle_close()
            return 0


class Pools:
    """The threads of requests, and those of event streams: neither uses up the other."""

    def __init__(self, requests: int, streams: int) -> None:
        self._requests, self._streams = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._requests.set_thread_count(requests)
        self._streams.set_thread_count(streams)

    def add_task(self, channel: Channel) -> None:
        """Queue a connection's first request."""
        request = channel.requests[0]
        # As waitress and Flask see it: for both //events is /events.
        path = "/" + getattr(request, "path", "").lstrip("/")
        pool = self._streams if path in EVENTS_PATHS and not request.error else self._requests
        pool.add_task(channel)

    def shutdown(self, timeout: float) -> None:
        """Give requests this long to end, in seconds; streams end with their connections."""
        self._streams.set_thread_count(0)
        self._requests.shutdown(timeout=timeout)


class Listener(TcpWSGIServer):
    """Accepts connections, and ends overdue connections."""

    # The loop does it between two rounds (Server.turn).
    next_channel_cleanup = math.inf

    def __init__(
        self, *arguments, patience: Patience, certificate: Certificate | None, **settings
    ) -> None:
        self.patience = patience
        self._certificate = certificate
        self.channel_class = TlsChannel if certificate else Channel
        # The other files are for the answers: a database, the controller, static files.
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_connections = min(patience.connections, files // 2)
        super().__init__(*arguments, **settings)

    def accept(self):
        """A connection, made ready for TLS; None if it is gone again."""
        try:
            accepted = super().accept()
        except OSError as error:
            if error.errno in NO_ROOM_LEFT and not self._make_room():
                log.warning("a connection waits: %s", error.strerror)
                time.sleep(REST_SECONDS)
            return None
        if accepted is None or self._certificate is None:
            return accepted
        connection, address = accepted
        connection.setblocking(False)
        try:
            context = self._certificate.context()
            wrapped = context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        except (OSError, ValueError):
            # It sent something and was gone before it could be looked at.
            connection.close()
            return None
        return wrapped, address

    def handle_accept(self) -> None:
        """Take a connection, and let another go where there are too many."""
        super().handle_accept()
        while len(self.active_channels) > self._most_connections:
            self._make_room()

    def _make_room(self) -> bool:
        """End a connection; False if there is none but the newest."""
        channels = list(self.active_channels.values())
        if len(channels) < 2:
            return False
        crowded_out(channels).handle_close()
        return True

    def maintenance(self, now: float) -> None:
        """End the connections whose time is over."""
        monotonic = time.monotonic()
        for channel in list(self.active_channels.values()):
            if channel.overdue(monotonic, now):
                channel.handle_close()

    def handle_error(self) -> None:
        """A connection that cannot be accepted is no reason to accept no more."""
        log.exception("a connection could not be accepted")


def crowded_out(channels: list[Channel]) -> Channel:
    """Which connection makes room: of the address with the most of them, the oldest.

    The newest stays, and those for which a thread works, as far as possible.
    """
    channels = sorted(channels, key=lambda one: one.opened)[:-1]
    waiting = [channel for channel in channels if channel.may_go()] or channels
    held = Counter(channel.network for channel in waiting)
    return max(waiting, key=lambda one: (held[one.network], -one.opened))
