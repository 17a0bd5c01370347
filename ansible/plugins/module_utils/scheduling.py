# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Scheduling and queues as written in an inventory → the API's members.

Pure. The words are those of the ``sluice`` command, the bounds those of the
controller's API. What is read has every member, as the API answers, so that the
two can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .rates import is_number, parse_rate, parse_size, parse_time_ns, shown

RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
DISK_RESOURCES = RESOURCES[:2]
QUEUE_RESOURCES = RESOURCES[2:]
POLICIES = ("token-bucket", "leaky-bucket", "token-leaky")
DYNAMICS = ("none", "latency", "throughput")
CHARGES = ("all", "device")
AQMS = ("none", "codel")
MAX_RESERVED_RATE = 10**11
MAX_PEAK_RATE = MAX_CONNECTION_RATE = 10**12
WEIGHT_MAX = 1000
MAX_OF = 1000

_PART = re.compile(r"(?P<few>[0-9]{1,4})/(?P<of>[0-9]{1,4})")

DEFAULT_SCHEDULING = {
    "reservation_bytes_per_second": None,
    "policy": "token-bucket",
    "peak_bytes_per_second": None,
    "minimum_charge_bytes": None,
    "dynamic": "none",
    "charge": "all",
    "window": None,
}
DEFAULT_QUEUE = {
    "limit_bytes": None,
    "limit_packets": None,
    "aqm": "none",
    "ecn": False,
    "connections_per_second": None,
    "burst_connections": None,
}


def _bounded(number: object, low: int, high: int, whole: bool) -> object:
    """The number, if it is one within the bounds. Raises ValueError."""
    if not is_number(number) or not low <= number <= high:
        raise ValueError(f"is out of range: give {low} to {high}")
    if whole and number != int(number):
        raise ValueError("is not a whole number: give one")
    return int(number) if whole else number


def _rate(high: int):
    def read(value: object) -> object:
        rate = parse_rate(value)
        return None if rate is None else _bounded(rate, 1, high, False)

    return read


def _size(low: int, high: int):
    return lambda value: _bounded(parse_size(value), low, high, True)


def _count(high: int, whole: bool):
    def read(value: object) -> object:
        try:
            number = float(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError("is not a number: write for example 200") from None
        return _bounded(number, 1, high, whole)

    return read


def _word(words: tuple):
    def read(value: object) -> object:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"is not known: use one of {', '.join(words)}")
        return value

    return read


def _bool(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false: give one of them")
    return value


def _window(value: object) -> dict | None:
    if value == "none":
        return None
    size, slash, period = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash:
        raise ValueError("is not a window: write SIZE/TIME, for example 64KiB/20ms")
    return {
        "period_ns": _bounded(parse_time_ns(period), 1000, 3600 * 10**9, True),
        "bytes": _bounded(parse_size(size), 1, 2**32 - 1, True),
        "may_miss": 0,
        "of": 1,
    }


def _may_miss(value: object) -> tuple:
    match = _PART.fullmatch(value) if isinstance(value, str) else None
    few, of = (int(match["few"]), int(match["of"])) if match else (0, 0)
    if not few < of <= MAX_OF:
        raise ValueError(f"is not a part: write N/OF with N less than OF and OF up to {MAX_OF}")
    return few, of


# key as written → (member of the API, reader)
_SCHEDULING_KEYS = {
    "reserve": ("reservation_bytes_per_second", _rate(MAX_RESERVED_RATE)),
    "policy": ("policy", _word(POLICIES)),
    "peak": ("peak_bytes_per_second", _rate(MAX_PEAK_RATE)),
    "min_charge": ("minimum_charge_bytes", _size(0, 2**20)),
    "dynamic": ("dynamic", _word(DYNAMICS)),
    "charge": ("charge", _word(CHARGES)),
    "window": ("window", _window),
    "may_miss": ("may_miss", _may_miss),
}
_QUEUE_KEYS = {
    "bytes": ("limit_bytes", _size(1, 2**26)),
    "packets": ("limit_packets", _count(2**18, True)),
    "aqm": ("aqm", _word(AQMS)),
    "ecn": ("ecn", _bool),
    "connections": ("connections_per_second", _count(MAX_CONNECTION_RATE, False)),
    "burst_connections": ("burst_connections", _count(2**40, False)),
}


def _members(value: object, keys: dict) -> dict:
    """The members that are given, by their names in the API."""
    if not isinstance(value, Mapping):
        raise ValueError(f"is not a mapping: give some of {', '.join(keys)}")
    found = {}
    for key, raw in value.items():
        if key not in keys:
            raise ValueError(f"has the unknown member {key!r}: use {', '.join(keys)}")
        if raw is None:
            continue
        member, reader = keys[key]
        try:
            found[member] = reader(raw)
        except ValueError as error:
            raise ValueError(f"has {key} {shown(raw)}, which {error}") from error
    return found


def read_scheduling(value: object, resource: str, limit: Mapping) -> dict:
    """Of one resource, beside its limit in the API's form. Raises ValueError."""
    given = _members(value, _SCHEDULING_KEYS)
    late = given.pop("may_miss", None)
    one = {**DEFAULT_SCHEDULING, **given}
    if late is not None:
        if one["window"] is None:
            raise ValueError("has may_miss without a window: give the window with it")
        one["window"] = {**one["window"], "may_miss": late[0], "of": late[1]}
    peak, rate = one["peak_bytes_per_second"], limit.get("bytes_per_second")
    if (peak is not None) != (one["policy"] == "token-leaky"):
        raise ValueError("has peak or policy token-leaky alone: give both, or neither")
    if peak is not None and (rate is None or peak < rate):
        raise ValueError(f"has the peak {peak} without a limit, or below it: correct one of them")
    if one["window"] is not None and one["reservation_bytes_per_second"] is not None:
        raise ValueError("has a window and reserve: give one; a window is a reservation")
    if one["charge"] == "device" and resource not in DISK_RESOURCES:
        raise ValueError(f"has charge device: it is for {' and '.join(DISK_RESOURCES)}")
    reserved = _reserved(one)
    if reserved > MAX_RESERVED_RATE:
        raise ValueError(
            f"reserves {reserved} bytes per second, more than {MAX_RESERVED_RATE}: lower it"
        )
    if rate is not None and reserved > rate:
        raise ValueError(f"reserves {reserved} bytes per second, more than the limit: lower it")
    return one


def _reserved(one: Mapping) -> float:
    window = one["window"]
    if window is not None:
        return -(-window["bytes"] * 10**9 // window["period_ns"])
    return one["reservation_bytes_per_second"] or 0


def read_queue(value: object) -> dict:
    """Of one resource that has frames. Raises ValueError."""
    queue = {**DEFAULT_QUEUE, **_members(value, _QUEUE_KEYS)}
    if queue["ecn"] and queue["aqm"] == "none":
        raise ValueError("has ecn, which marks nothing without aqm: give aqm codel too")
    if queue["burst_connections"] is not None and queue["connections_per_second"] is None:
        raise ValueError("has burst_connections without connections: give both, or neither")
    return queue


def _by_resource(value: object, known: tuple, default: dict, read) -> dict:
    """{resource: what ``read`` made of it}, without those that are as by default."""
    if not isinstance(value, Mapping):
        raise ValueError(f"is not a mapping: map some of {', '.join(known)} to settings")
    found = {}
    for resource, written in value.items():
        if resource not in known:
            raise ValueError(f"has the unknown resource {resource!r}: use {', '.join(known)}")
        if written is None:
            continue
        try:
            one = read(written, resource)
        except ValueError as error:
            raise ValueError(f"{resource}: {shown(written)} {error}") from error
        if one != default:
            found[resource] = one
    return found


def read_schedulings(value: object, limits: Mapping) -> dict:
    """{resource: scheduling as written} → the API's form."""

    def read(written: object, resource: str) -> dict:
        return read_scheduling(written, resource, limits.get(resource, {}))

    return _by_resource(value, RESOURCES, DEFAULT_SCHEDULING, read)


def read_queues(value: object) -> dict:
    """{resource: queue as written} → the API's form."""

    def read(written: object, resource: str) -> dict:
        queue = read_queue(written)
        if queue["connections_per_second"] is not None and resource != "net-rx":
            raise ValueError("has connections: they are counted where they come in, use net-rx")
        return queue

    return _by_resource(value, QUEUE_RESOURCES, DEFAULT_QUEUE, read)
