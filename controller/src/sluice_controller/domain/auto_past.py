# SPDX-License-Identifier: GPL-2.0-or-later
"""The pressures and targets of the last minutes, a row a second, in memory. Pure.

A pressure says how near the worst stream is to its edge, which is 1, on the disks, the network
or the processors. A target is the latency that others may have on a device, while its gate is
set. Without a figure there is None; while auto-shaping is off there is no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .history import Summary

# A quarter of an hour, as the page shows it: some hundred kilobytes.
MOST_ROWS = 900
PRESSURE, TARGET_MS = ("pressure",), ("target_ms",)

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Row:
    at: float
    pressures: Values
    targets_ms: Values


def summed_up(rows: Iterable[Row], since: float, until: float, step: float) -> dict[str, Any]:
    """Series "disk/pressure", of each step the largest, and "sda/target_ms", the newest.

    None from after `until`: they were kept before the clock was set back.
    """
    felt, targets = Summary(since, step, PRESSURE), Summary(since, step, TARGET_MS)
    kept = [row for row in rows if since <= row.at <= until]
    for row in sorted(kept, key=lambda row: row.at, reverse=True):
        felt.add(row.at, {name: (value,) for name, value in row.pressures.items()})
        targets.add(row.at, {name: (value,) for name, value in row.targets_ms.items()})
    shown = felt.as_json()
    return {**shown, "series": {**shown["series"], **targets.as_json()["series"]}}
