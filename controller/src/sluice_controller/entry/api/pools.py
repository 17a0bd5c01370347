# SPDX-License-Identifier: GPL-2.0-or-later
"""The threads of the API: those of requests, and those of event streams, which last."""

from __future__ import annotations

from collections.abc import Callable

from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher

from ...services.events import MOST_READERS

# More than restarts may wait at once (`services/restarts.py`).
API_THREADS = 8
# More than there are streams: one too many is told so.
STREAM_THREADS = MOST_READERS + 2
EVENTS_PATH = "/v1/events"
STOP_SECONDS = 5.0


class Pools:
    """`end_streams` has all streams end at once."""

    def __init__(self, end_streams: Callable[[], None]) -> None:
        self._end_streams = end_streams
        self._requests, self._streams = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._requests.set_thread_count(API_THREADS)
        self._streams.set_thread_count(STREAM_THREADS)

    def add_task(self, channel: HTTPChannel) -> None:
        """Queues a connection's first request."""
        # As Flask sees it: //v1/events is /v1/events.
        path = "/" + getattr(channel.requests[0], "path", "").lstrip("/")
        pool = self._streams if path == EVENTS_PATH else self._requests
        pool.add_task(channel)

    def shutdown(self) -> None:
        """A stream whose client does not read ends with its connection."""
        self._end_streams()
        self._streams.set_thread_count(0)
        self._requests.shutdown(timeout=STOP_SECONDS)
