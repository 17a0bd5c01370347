# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a domain's past an answer shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HISTORY_FIELDS = ("bytes_per_second", "limit_bytes_per_second", "backlog_bytes", "held_p99_ms")
MAX_HISTORY_POINTS = 2000


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
_MERGED = {"limit_bytes_per_second": _Newest, "held_p99_ms": _Largest}


class Summary:
    """Rows, newest first, as an answer: means per step; a limit is the last of its step.

    null where nothing was seen. Only the newest steps are kept, and of each step only sums.
    """

    def __init__(self, since: float, step: float) -> None:
        self.since = since
        self.step = step
        self._steps: dict[int, dict[str, list[_Merged]]] = {}

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
                merged = keys[key] = [_MERGED.get(name, _Mean)() for name in HISTORY_FIELDS]
            for one, value in zip(merged, values, strict=False):
                one.add(value)
        return True

    def as_json(self) -> dict[str, Any]:
        order = sorted(self._steps)
        series: dict[str, list[float | None]] = {}
        for key in sorted({key for keys in self._steps.values() for key in keys}):
            for position, name in enumerate(HISTORY_FIELDS):
                series[f"{key}/{name}"] = [
                    self._steps[index][key][position].value() if key in self._steps[index] else None
                    for index in order
                ]
        at = [self.since + index * self.step for index in order]
        return {"step": self.step, "at": at, "series": series}
