# SPDX-License-Identifier: GPL-2.0-or-later
"""waitress around the application.

One process with threads: the live poller is shared by all open pages.
"""

import errno
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

from waitress import wasyncore
from waitress.adjustments import Adjustments

from .certificate import Certificate
from .config import split_bind
from .connections import RECORD_BYTES, Listener, Patience, Pools
from .live import MAX_STREAMS

REQUEST_THREADS = 24
# More than there are streams: one too many is told so.
STREAM_THREADS = MAX_STREAMS + 4
MAX_BODY_BYTES = 1 << 20
MAX_HEAD_BYTES = 64 << 10
STOP_SECONDS = 1.0
PATIENCE = Patience()
# An address or a name may come later; the rest somebody has to mend.
MAY_PASS = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})


class CannotListen(Exception):
    """The message names the address, the reason and the remedy."""

    def __init__(self, bind: str, error: OSError) -> None:
        remedy = "give another --bind"
        if error.errno == errno.EADDRINUSE:
            remedy = "stop what listens there (ss -ltnp shows it), or give another --bind"
        elif error.errno == errno.EACCES:
            remedy = "give a port above 1023, or the service CAP_NET_BIND_SERVICE: sluice-web(8)"
        no_such_host = isinstance(error, socket.gaierror)
        # Of others Python's words have the address once more.
        why = error.strerror if no_such_host else os.strerror(error.errno)
        super().__init__(f"--bind {bind}: {why}; {remedy}")
        self.may_pass = no_such_host or error.errno in MAY_PASS


class Server:
    """Answers the requests at a listening socket, until it is told to stop."""

    def __init__(
        self,
        app: Callable,
        listening: socket.socket,
        certificate: Certificate | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        # An overdue connection ends after a tenth of its time more, at the latest.
        self._loop_seconds = min(1.0, patience.read_seconds / 10)
        self._stopping = self._ended = False
        # A signal may come to the thread that holds it.
        self._ending = threading.RLock()
        self._map: dict = {}
        settings = Adjustments(
            sockets=[listening],
            ident=None,
            url_scheme="https" if certificate else "http",
            # Words of a proxy are looked at by the application (app.py).
            clear_untrusted_proxy_headers=False,
            recv_bytes=RECORD_BYTES,
            max_request_header_size=MAX_HEAD_BYTES,
            # waitress takes less than this.
            max_request_body_size=MAX_BODY_BYTES + 1,
            # Also while an answer is under way, so that a client that left is noticed.
            channel_request_lookahead=1,
            # The bound is Patience.connections.
            connection_limit=1 << 30,
            log_socket_errors=False,
        )
        self._pools = Pools(REQUEST_THREADS, STREAM_THREADS)
        self._listener = Listener(
            app,
            self._map,
            True,
            listening,
            dispatcher=self._pools,
            adj=settings,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
            bind_socket=False,
            patience=patience,
            certificate=certificate,
        )

    def run(self) -> None:
        """Serve until ``stop``."""
        while not self._stopping:
            self.turn()
        self._pools.shutdown(STOP_SECONDS)
        with self._ending:
            self._ended = True
            wasyncore.close_all(self._map)

    def turn(self, seconds: float | None = None) -> None:
        """Handle the events that have come; wait for one for so long, or until one is overdue."""
        wasyncore.poll2(self._loop_seconds if seconds is None else seconds, self._map)
        # Not meanwhile: a new connection may get the descriptor of an ended connection, and with
        # it the news of its end.
        self._listener.maintenance(time.time())

    def connections(self) -> int:
        """How many are open."""
        return len(self._listener.active_channels)

    def stop(self, *_signal) -> None:
        """End ``run`` soon; may be called from a signal handler or another thread, and again."""
        # The end closes the pipe that wakes the loop, and its number may then be another file's.
        with self._ending:
            self._stopping = True
            if not self._ended:
                self._listener.pull_trigger()


def listen(bind: str) -> socket.socket:
    """A socket that listens on HOST:PORT; raises CannotListen."""
    host, port = split_bind(bind)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # All of IPv6 is IPv4, too, as is usual.
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, backlog=1024, dualstack_ipv6=both)
    except OSError as error:
        raise CannotListen(bind, error) from error


def run_until_told(server: Server) -> None:
    """Serve until SIGTERM or SIGINT."""
    # Requests that wait for a thread are no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.stop)
    server.run()
