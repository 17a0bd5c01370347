# SPDX-License-Identifier: GPL-2.0-or-later
"""Events as server-sent events: the text of a stream, and the call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...domain.errors import BadValue
from ...domain.events import GAP, Begin, Event, Wanted
from ...domain.models import as_json
from ...services.events import Reader
from ...services.ports import USUAL_ROWS
from .operations import Answer, Asked

if TYPE_CHECKING:
    from ..wiring import Services

MEDIA_TYPE = "text/event-stream"
# The place of a client that was cut off.
LAST_ID = "Last-Event-ID"
# A stream that says nothing for so long shows that it is still there.
SILENCE_SECONDS = 5.0
# How soon the end of a client is noticed while there is no news for it.
LOOK_SECONDS = 1.0


class EventStream:
    """The text of one client's stream. To be closed, also where nobody has read from it."""

    def __init__(self, reader: Reader, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._monotonic = monotonic

    def close(self) -> None:
        self._reader.close()

    def text(self, is_gone: Callable[[], bool]) -> Iterator[str]:
        """Until the client is gone or sluiced ends."""
        cursor = self._reader.cursor
        # From the first byte on a client knows where to come back to.
        place = f"id: {cursor}\n" if cursor >= 0 else ""
        yield f"retry: 1000\n{place}\n"
        told = self._monotonic()
        while not is_gone() and not self._reader.is_over:
            found = self._reader.next(LOOK_SECONDS)
            if found:
                yield "".join(map(written, found))
            elif self._monotonic() - told < SILENCE_SECONDS:
                continue
            else:
                # An id alone is no event; a client that comes back goes on from there.
                yield f": still here\nid: {self._reader.cursor}\n\n"
            told = self._monotonic()


def written(event: Event) -> str:
    name = f"event: {GAP}\n" if event.kind == GAP else ""
    data = json.dumps(as_json(event), separators=(",", ":"))
    return f"{name}id: {event.id}\ndata: {data}\n\n"


def events(services: Services, asked: Asked) -> Answer:
    """A stream; or the events that are there as a list, with `follow=false`."""
    query = asked.query
    wanted = Wanted(query.get("domain"), query.get("kind"))
    if wanted.domain is not None:
        _check_known(services, wanted.domain)
    # A browser repeats the header, so it outranks the address.
    after = _last_id(asked) if LAST_ID in asked.headers else query.get("after")
    begin = Begin(after, query.get("since"), query.get("limit"))
    if query.get("follow", True):
        return Answer(None, stream=EventStream(services.events.reader(begin, wanted)))
    if begin == Begin():
        begin = Begin(newest=USUAL_ROWS)
    return Answer(as_json(services.events.read(begin, wanted)))


def _check_known(services: Services, domain: str) -> None:
    """NotFound if nobody knows it; of a domain that is gone its events are known."""
    if not services.events.read(Begin(newest=1), Wanted(domain)):
        services.catalogue.check_known(domain)


def _last_id(asked: Asked) -> int:
    text = asked.headers[LAST_ID]
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise BadValue(LAST_ID, text, "is no id of an event", "give an event's id, or leave it out")
    return int(text)
