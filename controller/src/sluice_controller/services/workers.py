# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads for calls that libvirt may keep for ever, as a question to a QEMU that hangs.

A few run at a time. A thread that has taken SLOW_SECONDS no longer counts, so hanging guests do
not keep all others waiting. The end of sluiced does not wait for these threads.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

SLOW_SECONDS = 10.0
# Slow ones and others; of sluiced's unit, TasksMax= is for five such pools and the rest.
MOST_THREADS = 32

_Task = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Pool(Protocol):
    def submit(self, what: Callable[..., Any], *arguments: Any) -> Future[Any]: ...
    def tend(self) -> None: ...
    def close(self) -> None: ...


class Workers:
    """At most `most` tasks at a time, in the order in which they came."""

    def __init__(self, most: int, name: str, monotonic: Callable[[], float]) -> None:
        self.most = most
        self.name = name
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: deque[_Task] = deque()
        # Threads by number, with the begin of their present call.
        self._began: dict[int, float] = {}
        self._closed = False

    def submit(self, what: Callable[..., Any], *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            if self._closed:
                answer.cancel()
                return answer
            self._waiting.append((answer, what, arguments))
        self.tend()
        return answer

    def tend(self) -> None:
        """Begins waiting calls as far as there is room; to be called now and then."""
        with self._lock:
            while self._waiting and self._has_room():
                number = next(self._numbers)
                threading.Thread(
                    target=self._work,
                    args=(number, self._waiting[0]),
                    name=f"{self.name}-{number}",
                    daemon=True,
                ).start()
                # If that failed, it waits still.
                self._waiting.popleft()
                self._began[number] = self.monotonic()

    def _has_room(self) -> bool:
        since = self.monotonic() - SLOW_SECONDS
        quick = sum(began > since for began in self._began.values())
        return quick < self.most and len(self._began) < MOST_THREADS

    def _work(self, number: int, task: _Task | None) -> None:
        while task is not None:
            _carry_out(*task)
            with self._lock:
                del self._began[number]
                task = None
                if self._waiting and self._has_room():
                    task = self._waiting.popleft()
                    self._began[number] = self.monotonic()

    def close(self) -> None:
        """Gives up waiting calls and leaves running ones to themselves."""
        with self._lock:
            self._closed = True
            while self._waiting:
                self._waiting.popleft()[0].cancel()


def _carry_out(answer: Future[Any], what: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        result = what(*arguments)
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)
