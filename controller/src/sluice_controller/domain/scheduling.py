# SPDX-License-Identifier: GPL-2.0-or-later
"""How a class uses a resource beside its limit: reservation, policy, order, charge, window.

The ranges are those of the shaper (`docs/specs/shaper-qmp.md`), which would
refuse anything else; here it is refused before anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import BadValue, SluiceError
from .limits import (
    DISK_RESOURCES,
    MAX_PER_SECOND,
    UNLIMITED,
    Limit,
    finite_number,
    parse_by_resource,
)
from .values import parse_integer, parse_members, parse_word

TOKEN_BUCKET, LEAKY_BUCKET, TOKEN_LEAKY = POLICIES = (
    "token-bucket",
    "leaky-bucket",
    "token-leaky",
)
NOT_DYNAMIC, LATENCY, THROUGHPUT = DYNAMICS = ("none", "latency", "throughput")
CHARGE_ALL, CHARGE_DEVICE = CHARGES = ("all", "device")

MAX_PEAK_BYTES_PER_SECOND = 10**12
MAX_MINIMUM_CHARGE = 2**20
MIN_PERIOD_NS, MAX_PERIOD_NS = 1000, 3600 * 10**9
MAX_WINDOW_BYTES = 2**32 - 1
MAX_OF = 1000
DISK_MINIMUM_CHARGE = 4096


def default_minimum_charge(resource: str) -> int:
    """A disk does not read less than a page any faster."""
    return DISK_MINIMUM_CHARGE if resource in DISK_RESOURCES else 0


@dataclass(frozen=True)
class Window:
    """`bytes` in each period, of which `may_miss` of each `of` requests may come late."""

    period_ns: int
    bytes: int
    may_miss: int = 0
    of: int = 1

    @property
    def bytes_per_second(self) -> int:
        """What it reserves, rounded up as the shaper does."""
        return -(-self.bytes * 10**9 // self.period_ns)


@dataclass(frozen=True)
class Scheduling:
    """`minimum_charge_bytes` None is the resource's own default."""

    reservation_bytes_per_second: float | None = None
    policy: str = TOKEN_BUCKET
    peak_bytes_per_second: float | None = None
    minimum_charge_bytes: int | None = None
    dynamic: str = NOT_DYNAMIC
    charge: str = CHARGE_ALL
    window: Window | None = None

    @property
    def is_default(self) -> bool:
        return self == DEFAULT_SCHEDULING

    @property
    def reserved_bytes_per_second(self) -> float:
        """What the class gets at least, by its reservation or its window."""
        if self.window is not None:
            return self.window.bytes_per_second
        return self.reservation_bytes_per_second or 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


DEFAULT_SCHEDULING = Scheduling()
_MEMBERS = tuple(DEFAULT_SCHEDULING.as_json())
_WINDOW_MEMBERS = ("period_ns", "bytes", "may_miss", "of")


def _parse_window(raw: Any, thing: str) -> Window:
    given = parse_members(raw, thing, _WINDOW_MEMBERS)
    of = parse_integer(given.get("of", 1), f"{thing}.of", 1, MAX_OF)
    return Window(
        parse_integer(given.get("period_ns"), f"{thing}.period_ns", MIN_PERIOD_NS, MAX_PERIOD_NS),
        parse_integer(given.get("bytes"), f"{thing}.bytes", 1, MAX_WINDOW_BYTES),
        parse_integer(given.get("may_miss", 0), f"{thing}.may_miss", 0, of - 1),
        of,
    )


def _rate(given: Mapping[str, Any], key: str, most: int, thing: str) -> float | None:
    if key not in given:
        return None
    return finite_number(f"{thing}.{key}", given[key], 1, most, "bytes per second")


def parse_scheduling(raw: Any, resource: str, thing: str) -> Scheduling:
    """Of one resource, sound by itself; `check_within` looks at the limit beside it."""
    given = parse_members(raw, thing, _MEMBERS)
    minimum = given.get("minimum_charge_bytes")
    if minimum is not None:
        parse_integer(minimum, f"{thing}.minimum_charge_bytes", 0, MAX_MINIMUM_CHARGE)
    window = given.get("window")
    scheduling = Scheduling(
        # Auto-shaping's limit may have to rise to it.
        _rate(given, "reservation_bytes_per_second", MAX_PER_SECOND, thing),
        parse_word(given.get("policy", TOKEN_BUCKET), f"{thing}.policy", POLICIES),
        _rate(given, "peak_bytes_per_second", MAX_PEAK_BYTES_PER_SECOND, thing),
        minimum,
        parse_word(given.get("dynamic", NOT_DYNAMIC), f"{thing}.dynamic", DYNAMICS),
        parse_word(given.get("charge", CHARGE_ALL), f"{thing}.charge", CHARGES),
        None if window is None else _parse_window(window, f"{thing}.window"),
    )
    _check_members(scheduling, resource, thing)
    return scheduling


def _check_members(scheduling: Scheduling, resource: str, thing: str) -> None:
    peak = scheduling.peak_bytes_per_second
    if peak is not None and scheduling.policy != TOKEN_LEAKY:
        raise BadValue(
            f"{thing}.peak_bytes_per_second",
            peak,
            f"does not go with the policy {scheduling.policy}",
            f"use the policy {TOKEN_LEAKY}, or leave the peak out",
        )
    if peak is None and scheduling.policy == TOKEN_LEAKY:
        raise BadValue(
            f"{thing}.policy",
            TOKEN_LEAKY,
            "has no peak",
            f"give peak_bytes_per_second with it, or use the policy {LEAKY_BUCKET}",
        )
    if scheduling.window is not None and scheduling.reservation_bytes_per_second is not None:
        raise BadValue(
            f"{thing}.window",
            asdict(scheduling.window),
            "does not go with a reservation",
            "give one of them; a window is a reservation",
        )
    _check_window_rate(scheduling.window, thing)
    if scheduling.charge == CHARGE_DEVICE and resource not in DISK_RESOURCES:
        raise BadValue(
            f"{thing}.charge",
            CHARGE_DEVICE,
            f"does not go with {resource}",
            f"use it for {' or '.join(DISK_RESOURCES)}, or charge for {CHARGE_ALL}",
        )


def _check_window_rate(window: Window | None, thing: str) -> None:
    if window is not None and window.bytes_per_second > MAX_PER_SECOND:
        raise BadValue(
            f"{thing}.window",
            asdict(window),
            f"is {window.bytes_per_second} bytes per second, above {MAX_PER_SECOND}",
            "give fewer bytes, or a longer period",
        )


def check_within(
    limit: Limit,
    scheduling: Scheduling,
    thing: str,
    error: type[SluiceError] = BadValue,
) -> None:
    """Refuses a reservation or window above the limit, and a peak below it or without one."""
    rate = limit.bytes_per_second
    peak = scheduling.peak_bytes_per_second
    if peak is not None and rate is None:
        raise error(
            f"{thing}.policy",
            scheduling.policy,
            "has no limit of bytes per second to go with",
            "limit the class on this resource first, or use another policy",
        )
    if rate is None:
        return
    if peak is not None and peak < rate:
        raise error(
            f"{thing}.peak_bytes_per_second",
            peak,
            f"is below the limit of {rate:.0f}",
            "give a peak that is not below the limit, or lower the limit",
        )
    if scheduling.reserved_bytes_per_second > rate:
        window = scheduling.window
        raise error(
            f"{thing}.{'window' if window else 'reservation_bytes_per_second'}",
            asdict(window) if window else scheduling.reservation_bytes_per_second,
            f"reserves {scheduling.reserved_bytes_per_second:.0f} bytes per second, more than the"
            f" limit of {rate:.0f}",
            "reserve no more than the limit, or raise the limit",
        )


def check_all_within(
    limits: Mapping[str, Limit],
    scheduling: Mapping[str, Scheduling],
    error: type[SluiceError] = BadValue,
) -> None:
    for resource, one in scheduling.items():
        check_within(limits.get(resource, UNLIMITED), one, f"scheduling.{resource}", error)


def parse_schedulings(raw: Any, thing: str = "scheduling") -> dict[str, Scheduling]:
    """{resource: scheduling}; resources that are scheduled by default are left out."""
    parsed = parse_by_resource(raw, thing, parse_scheduling)
    return {resource: one for resource, one in parsed.items() if not one.is_default}
