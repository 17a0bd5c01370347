# SPDX-License-Identifier: GPL-2.0-or-later
"""Resources, and the limit of a class on one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from .errors import BadValue
from .rates import parse_rate, parse_size
from .values import inner

Value = TypeVar("Value")

# How text is read that stands for a number of these.
_READERS = {"bytes per second": parse_rate, "bytes": parse_size}

BLK_READ, BLK_WRITE, NET_TX, NET_RX = RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
DISK_RESOURCES = (BLK_READ, BLK_WRITE)

MIN_BYTES_PER_SECOND = 1024
MIN_OPERATIONS_PER_SECOND = 1
MAX_PER_SECOND = 10**11
MAX_BURST = 2**40


def finite_number(thing: str, value: Any, low: float, high: float, unit: str) -> float:
    """The number, or a refusal that says what is wrong with it. Rates and sizes may be text."""
    if isinstance(value, str) and unit in _READERS:
        value = _READERS[unit](value, thing)
    remedy = f"give a number of {unit} from {low:.0f} to {high:.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(thing, value, "is not a number", remedy)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(thing, value, "is not a finite number", remedy)
    if value < 0:
        raise BadValue(thing, value, "is negative", remedy)
    if value < low:
        raise BadValue(thing, value, f"is below {low:.0f}", remedy)
    if value > high:
        raise BadValue(thing, value, f"is above {high:.0f}", remedy)
    return value


@dataclass(frozen=True)
class Limit:
    """None means unlimited, and for a burst the shaper's own default."""

    bytes_per_second: float | None = None
    burst_bytes: float | None = None
    operations_per_second: float | None = None
    burst_operations: float | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.bytes_per_second is None and self.operations_per_second is None

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


UNLIMITED = Limit()

_BOUNDS = {
    "bytes_per_second": (MIN_BYTES_PER_SECOND, MAX_PER_SECOND, "bytes per second"),
    "burst_bytes": (1, MAX_BURST, "bytes"),
    "operations_per_second": (MIN_OPERATIONS_PER_SECOND, MAX_PER_SECOND, "operations per second"),
    "burst_operations": (1, MAX_BURST, "operations"),
}


def parse_limit(raw: Any, thing: str) -> Limit:
    """A limit from untrusted JSON; `thing` is the path to it."""
    if not isinstance(raw, Mapping):
        raise BadValue(thing, raw, "is not an object", f"give an object of {', '.join(_BOUNDS)}")
    for key in raw:
        if key not in _BOUNDS:
            raise BadValue(inner(thing, key), raw[key], "is not known", f"use {', '.join(_BOUNDS)}")
    values = {}
    for key, (low, high, unit) in _BOUNDS.items():
        if raw.get(key) is not None:
            values[key] = finite_number(inner(thing, key), raw[key], low, high, unit)
    limit = Limit(**values)
    for burst, rate in (
        ("burst_bytes", "bytes_per_second"),
        ("burst_operations", "operations_per_second"),
    ):
        if burst in values and rate not in values:
            raise BadValue(
                inner(thing, burst),
                values[burst],
                "has no rate",
                f"give {rate} with it, or neither",
            )
    return limit


def parse_resource(raw: Any, thing: str = "resource") -> str:
    if raw not in RESOURCES:
        raise BadValue(thing, raw, "is not a resource", f"use one of {', '.join(RESOURCES)}")
    return raw


def parse_by_resource(
    raw: Any, thing: str, parse: Callable[[Any, str, str], Value]
) -> dict[str, Value]:
    """{resource: what `parse` makes of value, resource and path}; nulls are left out."""
    if not isinstance(raw, Mapping):
        raise BadValue(thing, raw, "is not an object", f"map {', '.join(RESOURCES)} to {thing}")
    for resource in raw:
        parse_resource(resource, f"{thing}.{resource}")
    return {
        resource: parse(value, resource, f"{thing}.{resource}")
        for resource, value in raw.items()
        if value is not None
    }


def parse_limits(raw: Any, thing: str = "limits") -> dict[str, Limit]:
    """{resource: limit}; resources without any rate are left out."""
    limits = parse_by_resource(raw, thing, lambda value, _resource, path: parse_limit(value, path))
    return {resource: limit for resource, limit in limits.items() if not limit.is_unlimited}


def tighter(own: Limit, cap_bytes_per_second: float, burst_bytes: float) -> Limit:
    """The operator's limit with a byte-rate cap over it; never looser than it."""
    if own.bytes_per_second is not None and own.bytes_per_second <= cap_bytes_per_second:
        return own
    return Limit(
        bytes_per_second=cap_bytes_per_second,
        burst_bytes=min(burst_bytes, own.burst_bytes or burst_bytes),
        operations_per_second=own.operations_per_second,
        burst_operations=own.burst_operations,
    )
