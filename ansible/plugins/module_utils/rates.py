# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Rates and sizes as people write them: 1 MB is 10^6 bytes, 1 MiB is 2^20.

The same language as the ``sluice`` command's; a test holds both beside each
other. A managed host need not have the command yet when an inventory is
checked, so the collection reads rates by itself.
"""

from __future__ import annotations

import math
import re

UNLIMITED = ("unlimited", "none", "max")
RATE_EXAMPLES = "write for example 20MB/s, 160Mbit/s, 1.5MiB/s or unlimited"
SIZE_EXAMPLES = "write for example 256KiB or 1MB"

_QUANTITY = re.compile(
    r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*"
    r"(?:(?P<power>[kKMGT])(?P<binary>i)?)?(?P<unit>bytes|byte|bit|B|b)?(?P<per>/s|ps)?\s*"
)
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _quantity(match: re.Match) -> float:
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * base ** _POWERS.get(match["power"], 0)


def _tidy(value: float) -> float:
    return int(value) if value == int(value) else value


def parse_rate(value: object) -> float | None:
    """Bytes per second; None for no limit. Raises ValueError with the remedy.

    A bare number is bytes per second.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in UNLIMITED):
        return None
    if _is_number(value) and math.isfinite(value):
        return _tidy(float(value))
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"is not a rate: {RATE_EXAMPLES}")
    bits = match["unit"] in ("b", "bit")
    return _tidy(_quantity(match) / (8 if bits else 1))


def parse_size(value: object) -> float:
    """Bytes. Raises ValueError with the remedy."""
    if _is_number(value) and math.isfinite(value):
        return _tidy(float(value))
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match["per"] or match["unit"] in ("b", "bit"):
        raise ValueError(f"is not a size: {SIZE_EXAMPLES}")
    return _tidy(_quantity(match))


_TIME = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ns|us|µs|ms|s)\s*")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}


def parse_time_ns(value: object) -> int:
    """Nanoseconds. Raises ValueError with the remedy."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("is not a time: write for example 20ms, 500us or 1s")
    return round(float(match["number"]) * _NANOSECONDS[match["unit"]])


def parse_count(value: object) -> float:
    """Operations, or operations per second. Raises ValueError with the remedy."""
    if _is_number(value) and math.isfinite(value):
        return _tidy(float(value))
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()):
        return _tidy(float(value))
    raise ValueError("is not a number of operations: write for example 200")
