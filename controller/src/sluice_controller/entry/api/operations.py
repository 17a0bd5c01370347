# SPDX-License-Identifier: GPL-2.0-or-later
"""One call of the API: its request, its answer and its action."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...domain.errors import BadValue
from ...domain.knobs import Flag, Knob, Number, Text, Whole
from ...domain.models import parse

if TYPE_CHECKING:
    from ..wiring import Services
    from .event_stream import EventStream

MOST_ROWS = 1000
# Parameters of a path or a query, by name.
PARAMETERS: Mapping[str, Knob] = {
    "domain": Text(255, help="name of a libvirt domain", example="media"),
    "class": Text(255, help="name of a class", example="batch"),
    "card": Text(255, help="MAC address, target or alias of a card", example="52:54:00:12:34:56"),
    "group": Text(255, help="name of a group", example="disks"),
    "stream": Text(255, help="name of a stream", example="film"),
    "resource": Text(255, help="blk-read, blk-write, net-tx or net-rx", example="blk-read"),
    "pid": Whole(1, 2**31 - 1, help="of a process in the guest", example=812),
    "rule": Whole(0, 2**31 - 1, help="id of a rule", example=1),
    "night": Whole(0, 2**31 - 1, help="id of a result", example=1),
    "kind": Text(255, help="of events, or its first words", example="gate"),
    "after": Whole(0, 2**53 - 1, help="id of the last event that is known", example=0),
    "follow": Flag(help="go on with what comes, as by default", example=False),
    "limit": Whole(1, MOST_ROWS, help="of rows, 100 unless given", example=100),
    "since": Number(0, 1e12, "seconds", help="since 1970", example=1764288000),
    "step": Number(1, 86400, "seconds", help="between points, 1 unless given", example=1),
    "prune": Flag(help="remove what a section of the document does not name", example=False),
    "absent": Flag(
        help="store what is declared for domains that libvirt has not (yet)", example=False
    ),
    "dry_run": Flag(help="change nothing", example=False),
}


@dataclass(frozen=True)
class Asked:
    """A request: its parts of the path and query by name, body and headers."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]
    # As it was sent, and the object that it is.
    raw: Any
    body: Any
    headers: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.path[name]


@dataclass(frozen=True)
class Answer:
    """For answers beside the JSON of a value with the usual status."""

    value: Any
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # JSON already: building objects of a large table would cost seconds.
    text: str | None = None
    stream: EventStream | None = None


Call = Callable[["Services", Asked], Any]


def called(name: str) -> Call:
    """Calls a method of the services with the path's parts, the body if there is one, and
    the query: "catalogue.put_class"."""
    method = attrgetter(name)

    def call(services: Services, asked: Asked) -> Any:
        body = [] if asked.body is None else [asked.body]
        return method(services)(*asked.path.values(), *body, **asked.query)

    return call


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    call: Call
    # Types; None is no body.
    answer: Any = None
    body: Any = None
    query: tuple[str, ...] = ()
    # Of a success; of others than the method's usual ones.
    statuses: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    # Other changes wait between its look at the present state and its change.
    alone: bool = True
    # Beside JSON: of an answer that goes on.
    streams: str | None = None
    # The path of the body in refusals: "limits.{resource}".
    place: str = ""

    @property
    def name(self) -> str:
        """A unique name, for routes and for operationId."""
        words = [part.strip("{}") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *words])

    @property
    def arguments(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def successes(self) -> tuple[int, ...]:
        return self.statuses or (204 if self.answer is None else 200,)

    @property
    def refusals(self) -> tuple[int, ...]:
        """The statuses of problems that the call can answer."""
        usual = {401, 500, 503, *self.errors}
        if self.body is not None or self.query or self.arguments:
            usual.add(422)
        if self.arguments:
            usual.add(404)
        if self.body is not None:
            usual.add(413)
        return tuple(sorted(usual))

    def run(self, services: Services, asked: Asked) -> Any:
        if self.alone and self.method in ("PUT", "PATCH", "DELETE"):
            with services.catalogue.changing(asked.path.get("domain")):
                said = self.call(services, asked)
        else:
            said = self.call(services, asked)
        if hasattr(self.answer, "of_domains"):
            value = said.value if isinstance(said, Answer) else said
            value["later"] = services.catalogue.later(self.answer.of_domains(asked.path, value))
        return said

    def asked(
        self,
        path: Mapping[str, str],
        query: Mapping[str, str],
        body: Any,
        headers: Mapping[str, str],
    ) -> Asked:
        """The request, checked; BadValue."""
        for name, value in query.items():
            if name not in self.query:
                known = ", ".join(self.query) or "no parameter"
                raise BadValue(f"parameter {name}", value, "is not known", f"give {known}")
        parts = {name: _from_text(name, path[name]) for name in self.arguments}
        given = None
        if self.body is not None:
            given = parse(self.body, body, self.place.format(**path))
        asked = {name: _from_text(name, value) for name, value in query.items()}
        return Asked(parts, asked, body, given, headers)


def _from_text(name: str, text: str) -> Any:
    knob = PARAMETERS[name]
    value: Any = text
    if not isinstance(knob, Text):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
    return knob.read(value, name)
