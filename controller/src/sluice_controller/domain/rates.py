# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates as people write and read them. 1 MB is 10^6 bytes, 1 MiB is 2^20."""

from __future__ import annotations

import re

from .errors import BadValue

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


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def parse_rate(text: str, thing: str = "rate") -> float | None:
    """Bytes per second from "2MB/s", "16Mbit/s", "1.5MiB/s", "2000000"; None for "unlimited".

    Whether the number makes sense as a rate is for the API to say.
    """
    if text.strip().lower() in _UNLIMITED:
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise BadValue(
            thing, text, "is not a rate", "write for example 2MB/s, 16Mbit/s, 1.5MiB/s or unlimited"
        )
    value = float(match["number"]) * _PREFIXES[match["prefix"]]
    # A small b is a bit by convention, and so is anything ending in "bit" or "bps".
    is_bits = match["unit"] in ("b", "bit")
    return _whole(value / 8 if is_bits else value)


def parse_size(text: str, thing: str = "burst") -> float:
    match = _RATE.fullmatch(text)
    if match is None or match["per"] or match["unit"] in ("b", "bit"):
        raise BadValue(thing, text, "is not a size", "write for example 256KiB or 1MB")
    return _whole(float(match["number"]) * _PREFIXES[match["prefix"]])


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
