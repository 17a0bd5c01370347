# SPDX-License-Identifier: GPL-2.0-or-later
"""Resources, and the limit of a class on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

from .errors import BadValue
from .knobs import Model, Name, Number
from .models import parse, without_nulls
from .values import inner

Value = TypeVar("Value")

BLK_READ, BLK_WRITE, NET_TX, NET_RX = RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
DISK_RESOURCES = (BLK_READ, BLK_WRITE)

MIN_BYTES_PER_SECOND = 1024
MIN_OPERATIONS_PER_SECOND = 1
MAX_PER_SECOND = 10**11
MAX_BURST = 2**40


def _rate(low: float, unit: str) -> Number:
    return Number(low, MAX_PER_SECOND, unit, optional=True, help="null: unlimited")


def _burst(unit: str) -> Number:
    return Number(1, MAX_BURST, unit, optional=True, help="at once; null: as the shaper chooses")


@dataclass(frozen=True)
class Limit(Model):
    """What a class may do with one resource."""

    bytes_per_second: Annotated[float | None, _rate(MIN_BYTES_PER_SECOND, "bytes per second")] = (
        None
    )
    burst_bytes: Annotated[float | None, _burst("bytes")] = None
    operations_per_second: Annotated[
        float | None, _rate(MIN_OPERATIONS_PER_SECOND, "operations per second")
    ] = None
    burst_operations: Annotated[float | None, _burst("operations")] = None

    @property
    def is_unlimited(self) -> bool:
        return self.bytes_per_second is None and self.operations_per_second is None

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)

    def check(self, thing: str) -> None:
        for burst, rate in (
            ("burst_bytes", "bytes_per_second"),
            ("burst_operations", "operations_per_second"),
        ):
            value = getattr(self, burst)
            if value is not None and getattr(self, rate) is None:
                raise BadValue(
                    inner(thing, burst), value, "has no rate", f"give {rate} with it, or neither"
                )


UNLIMITED = Limit()

Resource = Annotated[str, Name("|".join(RESOURCES), lambda raw, thing: parse_resource(raw, thing))]


def parse_limit(raw: Any, thing: str) -> Limit:
    """A limit from untrusted JSON; `thing` is the path to it."""
    return parse(Limit, raw, thing)


def parse_resource(raw: Any, thing: str = "resource") -> str:
    if raw not in RESOURCES:
        raise BadValue(thing, raw, "is not a resource", f"use one of {', '.join(RESOURCES)}")
    return raw


def parse_by_resource(raw: Any, shape: type[Value], thing: str) -> dict[str, Value]:
    """{resource: object}; those that are null or say nothing are left out."""
    found = parse(Mapping[Resource, shape], without_nulls(raw), thing)
    for resource, one in found.items():
        if hasattr(one, "check_for"):
            one.check_for(resource, inner(thing, resource))
    usual = shape()
    return {resource: one for resource, one in found.items() if one != usual}


def parse_limits(raw: Any, thing: str = "limits") -> dict[str, Limit]:
    return parse_by_resource(raw, Limit, thing)


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
