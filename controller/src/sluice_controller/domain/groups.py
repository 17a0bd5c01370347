# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups: one limit of the host for a resource of several domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .errors import BadValue
from .group_page import GroupLimit
from .knobs import Model, Whole, Word
from .limits import RESOURCES, Limit
from .model import parse_class_name
from .models import parse

WEIGHT_DEFAULT = 100
WEIGHT_MAX = 10_000
# An absent burst is that of a class, too: 1/20 s of the rate.
BURST_TIME_DIVISOR = 20
BURST_BYTES_MIN = 65536
# Resources of groups: a class's, or both directions of disks or of NICs together.
PARTS: Mapping[str, tuple[str, ...]] = {
    **{resource: (resource,) for resource in RESOURCES},
    "blk": ("blk-read", "blk-write"),
    "net": ("net-tx", "net-rx"),
}


@dataclass(frozen=True)
class Group:
    name: str
    resource: str  # of PARTS
    limit: GroupLimit

    @property
    def parts(self) -> tuple[str, ...]:
        """The resources that it limits together."""
        return PARTS[self.resource]


@dataclass(frozen=True)
class Membership:
    group: str
    domain: str
    weight: int = WEIGHT_DEFAULT


@dataclass(frozen=True, kw_only=True)
class GroupBody(Limit):
    """One rate, in bytes or in operations, for all members together."""

    resource: Annotated[str, Word(tuple(PARTS), help="one of them, or both directions")]


@dataclass(frozen=True)
class MemberBody(Model):
    """A domain in a group."""

    weight: Annotated[int, Whole(1, WEIGHT_MAX, help="beside the others")] = WEIGHT_DEFAULT


def parse_group_name(raw: Any) -> str:
    return parse_class_name(raw, "group")


def _limit(limit: Limit) -> GroupLimit:
    both = (limit.bytes_per_second, limit.operations_per_second)
    if (both[0] is None) == (both[1] is None):
        raise BadValue(
            "limit",
            list(both),
            "is not one rate",
            "give either bytes_per_second or operations_per_second",
        )
    if both[0] is not None:
        unit, rate, burst = "bytes", both[0], limit.burst_bytes
    else:
        unit, rate, burst = "operations", both[1], limit.burst_operations
    rate = round(rate or 0)
    return GroupLimit(unit, rate, _chosen(unit, rate) if burst is None else max(1, round(burst)))


def _chosen(unit: str, rate: int) -> int:
    """The burst of a group for which none is given."""
    return max(rate // BURST_TIME_DIVISOR, BURST_BYTES_MIN if unit == "bytes" else 1)


def given(group: Group) -> dict[str, Any]:
    """The members for a request, without a burst that is chosen anyway."""
    unit, rate, burst = group.limit.unit, group.limit.rate, group.limit.burst
    of_burst = {} if burst == _chosen(unit, rate) else {f"burst_{unit}": burst}
    return {"resource": group.resource, f"{unit}_per_second": rate, **of_burst}


def parse_group(name: Any, body: Mapping[str, Any]) -> Group:
    given = parse(GroupBody, body)
    return Group(parse_group_name(name), given.resource, _limit(given))


def group_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "resource": group.resource,
        "unit": group.limit.unit,
        "rate_per_second": group.limit.rate,
        "burst": group.limit.burst,
    }
