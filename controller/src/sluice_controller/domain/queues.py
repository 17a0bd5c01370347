# SPDX-License-Identifier: GPL-2.0-or-later
"""What a class may queue of its frames, and what becomes of the rest.

The ranges are those of the shaper (`docs/specs/shaper-qmp.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import BadValue
from .limits import MAX_BURST, NET_RX, NET_TX, finite_number, parse_by_resource
from .values import parse_bool, parse_integer, parse_members, parse_word

QUEUE_RESOURCES = (NET_TX, NET_RX)
NO_AQM, CODEL = AQMS = ("none", "codel")

MAX_LIMIT_BYTES = 2**26
MAX_LIMIT_PACKETS = 2**18
MAX_CONNECTIONS_PER_SECOND = 10**12


@dataclass(frozen=True)
class Queue:
    """None leaves a bound, and the burst of connections, to the shaper."""

    limit_bytes: int | None = None
    limit_packets: int | None = None
    aqm: str = NO_AQM
    ecn: bool = False
    connections_per_second: float | None = None
    burst_connections: float | None = None

    @property
    def is_default(self) -> bool:
        return self == DEFAULT_QUEUE

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


DEFAULT_QUEUE = Queue()
_MEMBERS = tuple(DEFAULT_QUEUE.as_json())


def _bound(given: Mapping[str, Any], key: str, thing: str, high: int) -> int | None:
    return parse_integer(given[key], f"{thing}.{key}", 1, high) if key in given else None


def _number(given: Mapping[str, Any], key: str, thing: str, high: float, unit: str) -> float | None:
    return finite_number(f"{thing}.{key}", given[key], 1, high, unit) if key in given else None


def parse_queue(raw: Any, resource: str, thing: str) -> Queue:
    """Of one resource, checked as a whole."""
    if resource not in QUEUE_RESOURCES:
        raise BadValue(
            thing,
            raw,
            "has no queue of frames",
            f"use {' or '.join(QUEUE_RESOURCES)}; disk requests are never dropped",
        )
    given = parse_members(raw, thing, _MEMBERS)
    queue = Queue(
        _bound(given, "limit_bytes", thing, MAX_LIMIT_BYTES),
        _bound(given, "limit_packets", thing, MAX_LIMIT_PACKETS),
        parse_word(given.get("aqm", NO_AQM), f"{thing}.aqm", AQMS),
        parse_bool(given.get("ecn", False), f"{thing}.ecn"),
        _number(
            given,
            "connections_per_second",
            thing,
            MAX_CONNECTIONS_PER_SECOND,
            "connections per second",
        ),
        _number(given, "burst_connections", thing, MAX_BURST, "connections"),
    )
    _check_members(queue, resource, thing)
    return queue


def _check_members(queue: Queue, resource: str, thing: str) -> None:
    if queue.ecn and queue.aqm == NO_AQM:
        raise BadValue(f"{thing}.ecn", True, "marks nothing without aqm", f"give aqm {CODEL} too")
    if queue.connections_per_second is not None and resource != NET_RX:
        raise BadValue(
            f"{thing}.connections_per_second",
            queue.connections_per_second,
            f"does not go with {resource}",
            f"use {NET_RX}: new connections are counted where they come in",
        )
    if queue.burst_connections is not None and queue.connections_per_second is None:
        raise BadValue(
            f"{thing}.burst_connections",
            queue.burst_connections,
            "has no rate",
            "give connections_per_second with it, or neither",
        )


def parse_queues(raw: Any, thing: str = "queues") -> dict[str, Queue]:
    """{resource: queue}; resources that have the default queue are left out."""
    parsed = parse_by_resource(raw, thing, parse_queue)
    return {resource: one for resource, one in parsed.items() if not one.is_default}
