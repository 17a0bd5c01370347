# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates as people write and read them. 1 MB is 10^6 bytes, 1 MiB is 2^20."""

from __future__ import annotations

import math
import re

from .errors import BadValue, shortened

_RATE = re.compile(
    r"\s*(?P<number>[-+]?[0-9]+(?:\.[0-9]+)?)\s*(?P<prefix>[kKMGT]i?)?(?P<unit>[Bb]|bit|byte|bytes)?"
    r"(?P<per>/s|ps)?\s*"
)
_PREFIXES = {
    None: 1,
    **{p: 1000 ** (i + 1) for i, p in enumerate(("k", "M", "G", "T"))},
    "K": 1000,
    **{p: 1024 ** (i + 1) for i, p in enumerate(("ki", "Mi", "Gi", "Ti"))},
    "Ki": 1024,
}
_UNLIMITED = ("unlimited", "none", "max")


# A number with more digits would hide the rest of a refusal.
_SHOWN_CHARACTERS = 60


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def _number(match: re.Match[str], factor: float, thing: str, remedy: str) -> float:
    """The written number times `factor`; refused where no float holds it."""
    value = float(match["number"]) * factor
    if not math.isfinite(value):
        raise BadValue(
            thing, shortened(match.string.strip(), _SHOWN_CHARACTERS), "is out of range", remedy
        )
    return value


def _with_unit(text: str, thing: str, examples: str) -> re.Match[str] | None:
    match = _RATE.fullmatch(text)
    bare = match is not None and not (match["prefix"] or match["unit"])
    if bare and float(match["number"]) != 0:
        # People meant bytes, kilobytes and megabytes by it.
        shown = shortened(text.strip(), _SHOWN_CHARACTERS)
        raise BadValue(thing, shown, "has no unit", f"write for example {examples}")
    return match


def parse_rate(text: str, thing: str = "rate") -> float | None:
    """Bytes per second from "2MB/s", "16Mbit/s", "1.5MiB/s", "500B/s"; None for "unlimited".

    Whether the number makes sense as a rate is for the API to say.
    """
    if text.strip().lower() in _UNLIMITED:
        return None
    match = _with_unit(text, thing, "2MB/s, 16Mbit/s, 1.5MiB/s or unlimited")
    if match is None:
        raise BadValue(
            thing, text, "is not a rate", "write for example 2MB/s, 16Mbit/s, 1.5MiB/s or unlimited"
        )
    remedy = "no rate is above 1TB/s, write for example 2MB/s or unlimited"
    value = _number(match, _PREFIXES[match["prefix"]], thing, remedy)
    # A small b is a bit by convention, and so is anything ending in "bit" or "bps".
    is_bits = match["unit"] in ("b", "bit")
    return _whole(value / 8 if is_bits else value)


def parse_size(text: str, thing: str = "burst") -> float:
    match = _with_unit(text, thing, "256KiB or 1MB")
    if match is None or match["per"] or match["unit"] in ("b", "bit"):
        raise BadValue(thing, text, "is not a size", "write for example 256KiB or 1MB")
    remedy = "no size is above 1TiB, write for example 256KiB"
    return _whole(_number(match, _PREFIXES[match["prefix"]], thing, remedy))


_TIME = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ns|us|µs|ms|s)\s*")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}


def parse_time_ns(text: str, thing: str = "time") -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise BadValue(thing, text, "is not a time", "write for example 20ms, 500us or 1s")
    remedy = "no time is above 3600s, write for example 20ms"
    return round(_number(match, _NANOSECONDS[match["unit"]], thing, remedy))


def format_time_ns(value: int) -> str:
    for unit in ("s", "ms", "us"):
        if value >= _NANOSECONDS[unit]:
            return f"{value / _NANOSECONDS[unit]:.6g} {unit}"
    return f"{value} ns"


def format_size(value: float) -> str:
    """Bytes, in binary units where these are exact: queues and bursts mostly are."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor and value % factor == 0:
            return f"{value / factor:.0f} {unit}"
    factor, unit = _scale(value)
    return f"{value / factor:.6g} {unit.removesuffix('/s')}"


def format_measured(value: float) -> str:
    """Bytes that were measured, to about three digits."""
    return f"{value:.0f} B" if value < 1000 else format_rate(value).removesuffix("/s")


def _digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _scale(value: float) -> tuple[float, str]:
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= factor:
            return factor, unit
    return 1.0, "B/s"


def format_rate(value: float | None) -> str:
    if value is None:
        return "unlimited"
    factor, unit = _scale(value)
    return f"{_digits(value / factor)} {unit}"


def format_change(before: float | None, after: float | None) -> str:
    """ "45 → 22 MB/s", with one unit where both have one."""
    if before is None or after is None:
        return f"{format_rate(before)} → {format_rate(after)}"
    factor, unit = _scale(max(before, after))
    return f"{_digits(before / factor)} → {_digits(after / factor)} {unit}"
