# SPDX-License-Identifier: GPL-2.0-or-later
"""Resources, and the limit of a class on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from .errors import BadValue
from .knobs import Model, Name, Number
from .models import parse
from .values import inner

Value = TypeVar("Value")

BLK_READ, BLK_WRITE, NET_TX, NET_RX = RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
DISK_RESOURCES = (BLK_READ, BLK_WRITE)

MIN_BYTES_PER_SECOND = 1024
MIN_OPERATIONS_PER_SECOND = 1
MAX_PER_SECOND = 10**11
MAX_BURST = 2**40


def _rate(low: float, unit: str, **more: Any) -> Number:
    return Number(low, MAX_PER_SECOND, unit, optional=True, help="null: unlimited", **more)


def _burst(unit: str, option: str) -> Number:
    said = "at once; null: as the shaper chooses"
    return Number(1, MAX_BURST, unit, optional=True, help=said, option=option)


@dataclass(frozen=True)
class Limit(Model):
    """The limit of a class on one resource."""

    bytes_per_second: Annotated[float | None, _rate(MIN_BYTES_PER_SECOND, "bytes per second")] = (
        None
    )
    burst_bytes: Annotated[float | None, _burst("bytes", "--burst")] = None
    operations_per_second: Annotated[
        float | None, _rate(MIN_OPERATIONS_PER_SECOND, "operations per second", option="--ops")
    ] = None
    burst_operations: Annotated[float | None, _burst("operations", "--burst-ops")] = None

    @property
    def is_unlimited(self) -> bool:
        return self.bytes_per_second is None and self.operations_per_second is None

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


def parse_resource(raw: Any, thing: str = "resource") -> str:
    if raw not in RESOURCES:
        raise BadValue(thing, raw, "is not a resource", f"use one of {', '.join(RESOURCES)}")
    return raw


def unusual(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """{resource: object} without null and default objects."""
    return {r: one for r, one in values.items() if one is not None and one != type(one)()}


def parse_by_resource(raw: Any, shape: type[Value], thing: str) -> dict[str, Value]:
    """{resource: object}; null and empty objects are left out."""
    return unusual(parse(Mapping[Resource, shape | None], raw, thing))


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
