# SPDX-License-Identifier: GPL-2.0-or-later
"""How a class used one resource in the last second, from the readings of its counters page. Pure.

A page is a picture ten times a second. A request that waits in a picture was held at that time,
so the share of pictures with a waiting request is the share of time in which the class was held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .counters import GateState, Key, Reading, Slot
from .window import Window


@dataclass(frozen=True)
class Use:
    """Shares are of the time. None: the page does not tell."""

    bytes_per_second: float = 0.0
    requests_per_second: float = 0.0
    # Requests of the class waited in the shaper.
    held_share: float = 0.0
    # Of the time in which they waited: the class's own limit, in bytes or in operations, was
    # used up.
    spent_bytes_share: float | None = None
    spent_operations_share: float | None = None
    backlog_requests: int = 0
    held_mean_ms: float = 0.0
    # Requests that the device has, in the mean, and how long it has each of them.
    in_flight: float = 0.0
    service_ms: float = 0.0
    # Of all requests since QEMU began to count.
    usual_service_ms: float | None = None
    # As the shaper has them now.
    limit_bytes_per_second: float | None = None
    limit_operations_per_second: float | None = None
    burst_bytes: int | None = None
    burst_operations: int | None = None
    # Connections that were refused because there were too many new ones.
    refused_per_second: float = 0.0


def use_of(window: Window, key: Key) -> Use | None:
    """None if the newest reading has no such class."""
    span = window.span()
    sample, newest = span.sample(key), span.new.content.slot(key)
    if sample is None or newest is None:
        return None
    looks = [slot for reading in window.readings if (slot := _slot(reading, key)) is not None]
    held = [slot for slot in looks if slot.backlog_requests]
    completed = newest.completed_requests
    done_ms, in_flight = _service(window, key, span.elapsed_s, sample)
    drops = sample["drops_per_second"] or {}
    return Use(
        bytes_per_second=sample["bytes_per_second"],
        requests_per_second=sample["requests_per_second"],
        held_share=len(held) / len(looks),
        spent_bytes_share=_spent(held, "tokens_bytes"),
        spent_operations_share=_spent(held, "tokens_operations"),
        backlog_requests=newest.backlog_requests,
        held_mean_ms=sample["held_mean_ms"],
        in_flight=in_flight,
        service_ms=done_ms,
        usual_service_ms=newest.service_ns / completed / 1e6 if completed else None,
        limit_bytes_per_second=sample["limit_bytes_per_second"],
        limit_operations_per_second=sample["limit_operations_per_second"],
        burst_bytes=sample["burst_bytes"],
        burst_operations=sample["burst_operations"],
        refused_per_second=drops.get("connection", 0.0),
    )


def _slot(reading: Reading, key: Key) -> Slot | None:
    return reading.content.slot(key)


def _service(
    window: Window, key: Key, elapsed_s: float, sample: dict[str, float]
) -> tuple[float, float]:
    """The time of a request in the device, in ms, and how many are there in the mean."""
    first, last = window.readings[0].content.slot(key), window.readings[-1].content.slot(key)
    if first is None or last is None:
        return 0.0, 0.0
    done = last.completed_requests - first.completed_requests
    if done > 0:
        return sample["service_mean_ms"], max(0, last.service_ns - first.service_ns) / (
            elapsed_s * 1e9
        )
    # Nothing came back: a request that is there now has been there for so long at least.
    return window.worst_service_ms(*key), float(sample["in_flight"])


def _spent(held: Sequence[Slot], tokens: str) -> float | None:
    """Of these looks, the share without a token of this kind; None if no look tells."""
    told = [slot.more for slot in held if slot.more is not None]
    left = [getattr(more, tokens) for more in told]
    known = [count for count in left if count is not None]
    return sum(count <= 0 for count in known) / len(held) if known else None


def gate_of(window: Window, key: Key) -> tuple[GateState | None, float | None]:
    """The gate, and for how long of the last second it was closed while a request waited for it
    alone, as a share; None without a gate. `key` is that of the class that has its figures."""
    span = window.span()
    old, new = _slot(span.old, key), _slot(span.new, key)
    after = new.more.gate if new is not None and new.more is not None else None
    if after is None or not after.target_ns:
        return None, None
    before = old.more.gate if old is not None and old.more is not None else None
    held_ns = after.held_ns - (before or after).held_ns
    return after, min(1.0, max(0.0, held_ns / (span.elapsed_s * 1e9)))
