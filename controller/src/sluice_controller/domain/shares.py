# SPDX-License-Identifier: GPL-2.0-or-later
"""How one total is split over classes that compete for a resource.

A class that wants less than its share (no backlog, rate below its cap) is left room to grow (a
quarter of its use, or half of the unused rate) and charged only for its use, so idle classes
cost nothing. The rest goes to the hungry classes: in proportion to their rates before, drifting
towards equal parts, so a newcomer is never stuck at the floor. No cap goes below the floor, or
below a higher reservation, or above the operator's own limit.

The caps' sum may exceed the level: by floors, and by the room that idle
classes were left. The next split, half a second later, takes that back if it
is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Key = tuple[str, str, str]

HUNGRY_RATIO = 0.9
# Of a cap, with requests waiting: a second may end just before a large one goes.
WAITING_RATIO = 0.5
HEADROOM = 0.25
NEWCOMER_SHARE = 0.25
DRIFT_TO_EQUAL = 0.1


class Load(NamedTuple):
    """One background class on one resource, over the last second."""

    domain: str
    class_name: str
    resource: str
    bytes_per_second: float
    recent_bytes_per_second: float = 0.0
    backlog_requests: int = 0
    own_limit: float | None = None
    # Its reservation: auto-shaping holds it no lower.
    reserved: float = 0.0

    @property
    def key(self) -> Key:
        return (self.domain, self.class_name, self.resource)


def floor_of(load: Load, floors: Mapping[str, float]) -> float:
    """The lowest that the class may be held to."""
    return max(floors.get(load.resource, 0.0), load.reserved)


def used_floor(load: Load, floors: Mapping[str, float]) -> float:
    """The part of a total that no cut takes from the class: the used part of its reservation.

    An unused part is no reason to spare others.
    """
    used = max(load.bytes_per_second, load.recent_bytes_per_second)
    return max(floors.get(load.resource, 0.0), min(load.reserved, used))


def is_hungry(load: Load, cap: float | None) -> bool:
    if load.backlog_requests > 0:
        return True
    return cap is not None and load.bytes_per_second >= HUNGRY_RATIO * cap


def is_held_back(load: Load, cap: float | None) -> bool:
    """Whether the cap holds it, and not the operator's limit, a ceiling or the device."""
    if cap is None or (load.own_limit is not None and cap >= load.own_limit):
        return False
    ratio = WAITING_RATIO if load.backlog_requests > 0 else HUNGRY_RATIO
    return load.bytes_per_second >= ratio * cap


def first_split(
    level: float, loads: Iterable[Load], floors: Mapping[str, float]
) -> dict[Key, float]:
    """In proportion to the classes' present rates."""
    loads = list(loads)
    total = sum(load.bytes_per_second for load in loads)
    if total < 1.0:
        return {load.key: _bounded(load, level / len(loads), floors) for load in loads}
    return {
        load.key: _bounded(load, level * (load.bytes_per_second / total), floors) for load in loads
    }


def split(
    level: float,
    loads: Iterable[Load],
    floors: Mapping[str, float],
    before: Mapping[Key, float],
) -> dict[Key, float]:
    hungry: list[Load] = []
    idle: list[Load] = []
    moved = left_alone = 0.0
    for load in loads:
        moved += load.bytes_per_second
        if is_hungry(load, before.get(load.key)):
            hungry.append(load)
        else:
            idle.append(load)
            left_alone += load.bytes_per_second
    # Unused room is no reason to hold a class back.
    room = max(0.0, level - moved) / 2
    caps = {
        load.key: _bounded(
            load, load.bytes_per_second + max(HEADROOM * load.bytes_per_second, room), floors
        )
        for load in idle
    }
    rest = max(0.0, level - left_alone)
    for load, share in _fill(rest, hungry, before):
        caps[load.key] = _bounded(load, share, floors)
    return caps


def scaled(
    factor: float, caps: Mapping[Key, float], loads: Iterable[Load], floors: Mapping[str, float]
) -> dict[Key, float]:
    """All caps by one factor, within their bounds."""
    return {
        load.key: _bounded(load, factor * caps[load.key], floors)
        for load in loads
        if load.key in caps
    }


def _bounded(load: Load, share: float, floors: Mapping[str, float]) -> float:
    raised = max(share, floor_of(load, floors))
    return raised if load.own_limit is None else min(raised, load.own_limit)


def _fill(
    rest: float, hungry: list[Load], before: Mapping[Key, float]
) -> Iterable[tuple[Load, float]]:
    """Water-filling by weight; the rest above a class's own limit goes to the others.

    The others also give the rate that a class lacks of its reservation.
    """
    open_loads = list(hungry)
    while open_loads:
        fair = rest / len(open_loads)
        weights = [
            (1 - DRIFT_TO_EQUAL)
            * max(before.get(load.key, load.bytes_per_second), NEWCOMER_SHARE * fair)
            + DRIFT_TO_EQUAL * fair
            for load in open_loads
        ]
        total = sum(weights) or 1.0
        shares = [(load, rest * w / total) for load, w in zip(open_loads, weights, strict=True)]
        short = [load for load, share in shares if share < load.reserved]
        bound = [(load, load.reserved) for load in short] or [
            (load, load.own_limit)
            for load, share in shares
            if load.own_limit is not None and share > load.own_limit
        ]
        if not bound:
            yield from shares
            return
        for load, share in bound:
            yield load, share
            rest = max(0.0, rest - share)
        done = {load.key for load, _share in bound}
        open_loads = [load for load in open_loads if load.key not in done]
