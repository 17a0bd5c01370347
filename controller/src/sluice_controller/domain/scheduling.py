# SPDX-License-Identifier: GPL-2.0-or-later
"""How a class uses a resource beside its limit: reservation, policy, order, charge, window.

The ranges are those of the shaper (`docs/specs/shaper-qmp.md`), which would
refuse anything else; here it is refused before anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from .errors import BadValue, SluiceError
from .knobs import Model, Number, Size, Time, Whole, Word
from .limits import DISK_RESOURCES, MAX_PER_SECOND, UNLIMITED, Limit
from .rates import format_size, format_time_ns
from .values import inner

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


@dataclass(frozen=True)
class Window(Model):
    """`bytes` in each period, of which `may_miss` of each `of` requests may come late."""

    null_is_default: ClassVar[bool] = True

    period_ns: Annotated[int, Time(MIN_PERIOD_NS, MAX_PERIOD_NS, help="nanoseconds")]
    bytes: Annotated[int, Size(1, MAX_WINDOW_BYTES, help="to be served in each period")]
    may_miss: Annotated[int, Whole(0, MAX_OF - 1, help="of each `of` requests may be late")] = 0
    of: Annotated[int, Whole(1, MAX_OF)] = 1

    def told(self) -> str:
        """For people."""
        period, late = format_time_ns(self.period_ns), f"{self.may_miss} of {self.of}"
        words = f"{format_size(self.bytes)} in each {period}"
        return f"{words}, {late} may be late" if self.may_miss else words

    @property
    def bytes_per_second(self) -> int:
        """The rate that it reserves, rounded up as in the shaper."""
        return -(-self.bytes * 10**9 // self.period_ns)

    def check(self, thing: str) -> None:
        if self.may_miss >= self.of:
            raise BadValue(
                inner(thing, "may_miss"),
                self.may_miss,
                f"is not an integer from 0 to {self.of - 1}",
                f"give an integer from 0 to {self.of - 1}",
            )
        if self.bytes_per_second > MAX_PER_SECOND:
            raise BadValue(
                thing,
                asdict(self),
                f"is {self.bytes_per_second} bytes per second, above {MAX_PER_SECOND}",
                "give fewer bytes, or a longer period",
            )


def _rate(most: float, says: str, **more: Any) -> Number:
    return Number(1, most, "bytes per second", optional=True, help=says, **more)


@dataclass(frozen=True)
class Scheduling(Model):
    """How a class uses one resource beside its limit."""

    null_is_default: ClassVar[bool] = True

    reservation_bytes_per_second: Annotated[
        # Auto-shaping's limit may have to rise to it.
        float | None,
        _rate(
            MAX_PER_SECOND,
            "the least rate of the class, up to its limit",
            option="--reserve",
            shown="at least {}",
        ),
    ] = None
    policy: Annotated[str, Word(POLICIES, help="how it uses its limit")] = TOKEN_BUCKET
    peak_bytes_per_second: Annotated[
        float | None,
        _rate(
            MAX_PEAK_BYTES_PER_SECOND,
            f"with {TOKEN_LEAKY}: no burst passes faster",
            option="--peak",
            shown="peak {}",
            beside=("policy", TOKEN_LEAKY),
        ),
    ] = None
    minimum_charge_bytes: Annotated[
        int | None,
        Size(
            0,
            MAX_MINIMUM_CHARGE,
            optional=True,
            help="charged for each request at least; null: 4 KiB for disks, 0 for frames",
            option="--min-charge",
            shown="minimum charge {}",
        ),
    ] = None
    dynamic: Annotated[
        str,
        Word(
            DYNAMICS,
            help="the flows that go first, with few bytes so far or many",
            shown="dynamic {}",
        ),
    ] = NOT_DYNAMIC
    charge: Annotated[
        str,
        Word(
            CHARGES,
            help="disks: the requested bytes, or the cost on the device",
            shown="charge {}",
            only=DISK_RESOURCES,
        ),
    ] = CHARGE_ALL
    window: Window | None = None

    @property
    def reserved_bytes_per_second(self) -> float:
        """The least rate of the class, by its reservation or its window."""
        if self.window is not None:
            return self.window.bytes_per_second
        return self.reservation_bytes_per_second or 0.0

    def check(self, thing: str) -> None:
        """Refuses members that do not go together; `check_within` adds the limit."""
        peak = self.peak_bytes_per_second
        if peak is not None and self.policy != TOKEN_LEAKY:
            raise BadValue(
                inner(thing, "peak_bytes_per_second"),
                peak,
                f"does not go with the policy {self.policy}",
                f"use the policy {TOKEN_LEAKY}, or leave the peak out",
            )
        if peak is None and self.policy == TOKEN_LEAKY:
            raise BadValue(
                inner(thing, "policy"),
                TOKEN_LEAKY,
                "has no peak",
                f"give peak_bytes_per_second with it, or use the policy {LEAKY_BUCKET}",
            )
        if self.window is not None and self.reservation_bytes_per_second is not None:
            raise BadValue(
                inner(thing, "window"),
                asdict(self.window),
                "does not go with a reservation",
                "give one of them; a window is a reservation",
            )

    def check_for(self, resource: str, thing: str) -> None:
        if self.charge == CHARGE_DEVICE and resource not in DISK_RESOURCES:
            raise BadValue(
                inner(thing, "charge"),
                CHARGE_DEVICE,
                f"does not go with {resource}",
                f"use it for {' or '.join(DISK_RESOURCES)}, or charge for {CHARGE_ALL}",
            )


DEFAULT_SCHEDULING = Scheduling()


def shapers_own(resource: str) -> Scheduling:
    """The values that a shaper has by default: a disk reads less than a page no faster."""
    return Scheduling(minimum_charge_bytes=DISK_MINIMUM_CHARGE if resource in DISK_RESOURCES else 0)


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
