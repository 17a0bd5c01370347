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
# Longer values would hide what is said of them.
LONGEST_SHOWN = 120
RATE_EXAMPLES = "write for example 20MB/s, 160Mbit/s, 1.5MiB/s or unlimited"
SIZE_EXAMPLES = "write for example 256KiB or 1MB"

_QUANTITY = re.compile(
    r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*"
    r"(?:(?P<power>[kKMGT])(?P<binary>i)?)?(?P<unit>bytes|byte|bit|B|b)?(?P<per>/s|ps)?\s*"
)
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def shown(value: object) -> str:
    """A value as sentences repeat it."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no number of more than 4300 digits.
        text = "of very many digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def is_number(value: object) -> bool:
    """Whether it is a finite number; true and false are none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _quantity(match: re.Match) -> float:
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * base ** _POWERS.get(match["power"], 0)


def _tidy(value: object, remedy: str) -> float:
    """As an integer where it is one; ValueError where no float holds it."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError(f"is out of range: {remedy}")
    return int(number) if number == int(number) else number


def parse_rate(value: object) -> float | None:
    """Bytes per second; None for no limit. Raises ValueError with the remedy.

    A bare number is bytes per second.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in UNLIMITED):
        return None
    remedy = "no rate is above 1TB/s, write for example 20MB/s or unlimited"
    if is_number(value):
        return _tidy(value, remedy)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"is not a rate: {RATE_EXAMPLES}")
    bits = match["unit"] in ("b", "bit")
    return _tidy(_quantity(match) / (8 if bits else 1), remedy)


def parse_size(value: object) -> float:
    """Bytes. Raises ValueError with the remedy."""
    remedy = "no size is above 1TiB, write for example 256KiB"
    if is_number(value):
        return _tidy(value, remedy)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match["per"] or match["unit"] in ("b", "bit"):
        raise ValueError(f"is not a size: {SIZE_EXAMPLES}")
    return _tidy(_quantity(match), remedy)


_TIME = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ns|us|µs|ms|s)\s*")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}


def parse_time_ns(value: object) -> int:
    """Nanoseconds. Raises ValueError with the remedy."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("is not a time: write for example 20ms, 500us or 1s")
    remedy = "no time is above 3600s, write for example 20ms"
    return round(_tidy(float(match["number"]) * _NANOSECONDS[match["unit"]], remedy))


def parse_count(value: object) -> float:
    """Operations, or operations per second. Raises ValueError with the remedy."""
    written = isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip())
    if is_number(value) or written:
        return _tidy(value, "write for example 200")
    raise ValueError("is not a number of operations: write for example 200")
