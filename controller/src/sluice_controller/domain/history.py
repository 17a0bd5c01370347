# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a domain's past in an answer, and the number of its rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

HISTORY_FIELDS = ("bytes_per_second", "limit_bytes_per_second", "backlog_bytes", "held_p99_ms")
MAX_HISTORY_POINTS = 2000
# "class/resource" keys of an answer: as many as a shaper has slots.
MOST_KEYS = 64
# Of a domain, for one answer; history has one a second, and an hour of it unless told
# otherwise. A row costs a tenth of a millisecond.
MOST_ROWS = 4000


def seconds_a_row(span_s: float) -> int:
    """Of so long a time, one row in how many seconds is read: of a month there are millions."""
    return max(1, math.ceil(span_s / MOST_ROWS))


class _Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1

    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class _Newest:
    def __init__(self) -> None:
        self.found: list[float | None] = []

    def add(self, value: float | None) -> None:
        if not self.found:
            self.found.append(value)

    def value(self) -> float | None:
        return self.found[0]


class _Largest:
    def __init__(self) -> None:
        self.found: float | None = None

    def add(self, value: float | None) -> None:
        if value is not None and (self.found is None or value > self.found):
            self.found = value

    def value(self) -> float | None:
        return self.found


_Merged = _Mean | _Newest | _Largest
_MERGED = {
    "limit_bytes_per_second": _Newest,
    "held_p99_ms": _Largest,
    "pressure": _Largest,
    "target_ms": _Newest,
}


class Summary:
    """Rows of values of these fields, newest first, as an answer: means per step, of a limit or a
    target the last of its step, of a pressure or `held_p99_ms` the largest.

    null where nothing was seen. Only the newest steps are kept, and of each step only sums;
    of keys, too, the newest, as classes come and go.
    """

    def __init__(self, since: float, step: float, fields: Sequence[str] = HISTORY_FIELDS) -> None:
        self.since = since
        self.step = step
        self.fields = fields
        self._steps: dict[int, dict[str, list[_Merged]]] = {}
        self._keys: set[str] = set()

    def add(self, at: float, samples: Mapping[str, Sequence[float | None]]) -> bool:
        """Whether there is room for the row; if not, there is none for an older one."""
        index = int((at - self.since) // self.step)
        keys = self._steps.get(index)
        if keys is None:
            if len(self._steps) == MAX_HISTORY_POINTS:
                return False
            keys = self._steps[index] = {}
        for key, values in samples.items():
            merged = keys.get(key)
            if merged is None:
                if key not in self._keys and len(self._keys) == MOST_KEYS:
                    continue
                self._keys.add(key)
                merged = keys[key] = [_MERGED.get(name, _Mean)() for name in self.fields]
            for one, value in zip(merged, values, strict=False):
                one.add(value)
        return True

    def as_json(self) -> dict[str, Any]:
        order = sorted(self._steps)
        series: dict[str, list[float | None]] = {}
        for key in sorted(self._keys):
            for position, name in enumerate(self.fields):
                series[f"{key}/{name}"] = [
                    self._steps[index][key][position].value() if key in self._steps[index] else None
                    for index in order
                ]
        at = [self.since + index * self.step for index in order]
        return {"step": self.step, "at": at, "series": series}
