# SPDX-License-Identifier: GPL-2.0-or-later
"""Single values of untrusted JSON: the value, or a refusal that names the fault."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .errors import BadValue
from .rates import parse_rate, parse_size

# How text is read that stands for a number of these.
_READERS = {"bytes per second": parse_rate, "bytes": parse_size}


def inner(thing: str, member: str) -> str:
    """The path to a member of `thing`; of a body itself the path is empty."""
    return f"{thing}.{member}" if thing else member


def parse_bool(raw: Any, thing: str) -> bool:
    if not isinstance(raw, bool):
        raise BadValue(thing, raw, "is neither true nor false", "give true or false")
    return raw


def parse_integer(raw: Any, thing: str, low: int, high: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        raise BadValue(
            thing,
            raw,
            f"is not an integer from {low} to {high}",
            f"give an integer from {low} to {high}",
        )
    return raw


def parse_text(raw: Any, thing: str, longest: int) -> str:
    if not isinstance(raw, str) or not 1 <= len(raw) <= longest or not raw.isprintable():
        raise BadValue(
            thing, raw, "is not usable text", f"give 1 to {longest} printable characters"
        )
    return raw


def parse_word(raw: Any, thing: str, words: Iterable[str]) -> str:
    if not isinstance(raw, str) or raw not in words:
        raise BadValue(thing, raw, "is not known", f"use one of {', '.join(words)}")
    return raw


def finite_number(thing: str, value: Any, low: float, high: float, unit: str) -> float:
    """The number, or a refusal that names the fault. Rates and sizes may be text."""
    typed = value
    if isinstance(value, str) and unit in _READERS:
        value = _READERS[unit](value, thing)
    remedy = f"give a number{f' of {unit}' if unit else ''} from {low:.0f} to {high:.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(thing, typed, "is not a number", remedy)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(thing, value, "is not a finite number", remedy)
    if value < 0 <= low:
        raise BadValue(thing, typed, "is negative", remedy)
    if value < low:
        raise BadValue(thing, typed, f"is below {low:.0f}", remedy)
    if value > high:
        raise BadValue(thing, typed, f"is above {high:.0f}", remedy)
    return value
