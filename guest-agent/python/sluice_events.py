# SPDX-License-Identifier: GPL-2.0-or-later
"""A program hears of events of its class in the host's Sluice.

The class is limited, its limit has changed, much waits. The guest's sluice-agent knows the
class by the process::

    with Events(kinds=["limited", "no-longer-limited"]) as events:
        for event in events:
            show_less() if event.kind == "limited" else show_all()

``Events`` has ``fileno``, so that it can be waited for by ``selectors``.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

PATH = "/run/sluice-agent/events.sock"
KINDS = ("limited", "no-longer-limited", "limit-changed", "backlog", "grants-changed")
RESOURCES = ("disk.read", "disk.write", "net.inbound", "net.outbound")
_MESSAGE = struct.Struct("=QQBBBB4xQQ32s")
_ANSWER_WITHIN_S = 10


@dataclass(frozen=True)
class Event:
    """``datum``: requests that wait (limited, no-longer-limited), bytes per second or 0 without
    a limit (limit-changed), bytes that wait (backlog), bits of granted tags (grants-changed).
    ``time_ns`` is of the host's CLOCK_MONOTONIC. ``lost`` events before it did not fit.
    """

    kind: str
    class_: str
    resource: str
    datum: int
    time_ns: int
    lost: int


class Events:
    """A subscription, which ends with the agent.

    ``kinds`` and ``resources`` are names of ``KINDS`` and ``RESOURCES``; none are all. A backlog
    is an event when it rises above ``backlog`` bytes. ``class_`` is one in which this user has a
    process, unless root asks; else the class of this process.

    :raises PermissionError: the agent refuses; the message says why.
    :raises OSError: there is no agent, or it does not answer.
    """

    def __init__(
        self,
        kinds: Sequence[str] = (),
        resources: Sequence[str] = (),
        backlog: int = 0,
        class_: str | None = None,
        path: str = PATH,
    ) -> None:
        wanted = {
            "kinds": list(kinds),
            "resources": list(resources),
            "backlog": backlog,
            "class": class_,
        }
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
                agent.connect(path)
                socket.send_fds(agent, [json.dumps(wanted).encode()], [theirs.fileno()])
            self._socket.settimeout(_ANSWER_WITHIN_S)
            self._refused(self._socket.recv(4096))
        except BaseException:
            self._socket.close()
            raise

    def next(self, timeout_s: float | None = None) -> Event | None:
        """The next event; nothing after ``timeout_s`` seconds, 0 to take what is there.

        :raises ConnectionError: the agent has ended the subscription.
        """
        self._socket.settimeout(timeout_s)
        try:
            message = self._socket.recv(4096)
        except (BlockingIOError, TimeoutError):
            return None
        self._refused(message)
        if len(message) != _MESSAGE.size:
            raise ConnectionError("the agent is of another version than this module")
        _, time_ns, kind, _, resource, _, datum, lost, name = _MESSAGE.unpack(message)
        class_ = name.rstrip(b"\0").decode(errors="replace")
        return Event(KINDS[kind - 1], class_, RESOURCES[resource], datum, time_ns, lost)

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def fileno(self) -> int:
        """Can be read when there is an event."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @staticmethod
    def _refused(message: bytes) -> None:
        if not message:
            raise ConnectionError("the agent has ended the subscription")
        if message.startswith(b'{"error"'):
            raise PermissionError(json.loads(message)["error"])
