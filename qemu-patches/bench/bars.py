# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench` has to print, and how much it may be.

A figure is a median in nanoseconds, a number of instructions, or the ratio of two medians. All
that are named here must be there; those with a bar must not be above it.
"""

from dataclasses import dataclass

BASELINE = "qemu-throttle-core"
TIMES = (
    "pass",
    BASELINE,
    "pass-unlimited",
    "hold-release",
    "hold-release-10k",
    "all-in-use",
    "all-in-use-10k",
    "contended",
    "contended-10k",
    "lock",
    "qemu-mutex-core",
    "group",
    "pass-group",
    "group-2-processes",
)
# One process makes the row: only then do its instructions repeat.
COUNTED = tuple(name for name in TIMES if not name.endswith("-processes"))
GROWING = ("hold-release", "all-in-use", "contended")

# Name of a figure -> the most that it may be.
BARS = {
    "pass": 15.0,
    "pass-of-baseline": 1.0,
    "pass-instructions": 100,
    "pass-unlimited": 15.0,
    "pass-unlimited-instructions": 100,
    # Limits decide.
    "hold-release": 60.0,
    "hold-release-instructions": 400,
    "hold-release-growth": 1.5,
    # Reservation, weight, limit and priority all decide.
    "all-in-use": 60.0,
    "all-in-use-growth": 1.5,
}


@dataclass(frozen=True)
class Row:
    """A figure that is to be there, None if it is not."""

    name: str
    value: float | None
    unit: str

    @property
    def bar(self) -> float | None:
        return BARS.get(self.name)

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "MISSING"
        if self.bar is None:
            return ""
        return "met" if self.value <= self.bar else "MISSED"


def ratio(figures: dict[str, float], above: str, below: str) -> float | None:
    """One median by another, or None if either is not there."""
    if above not in figures or below not in figures:
        return None
    return figures[above] / figures[below]


def time_rows(medians: dict[str, float]) -> list[Row]:
    rows = [Row(name, medians.get(name), "ns") for name in TIMES]
    rows.append(Row("pass-of-baseline", ratio(medians, "pass", BASELINE), "times"))
    for name in GROWING:
        rows.append(Row(f"{name}-growth", ratio(medians, f"{name}-10k", name), "times"))
    return rows


def instruction_rows(counts: dict[str, float]) -> list[Row]:
    return [Row(f"{name}-instructions", counts.get(name), "instructions") for name in COUNTED]


def problems(rows: list[Row]) -> list[str]:
    """What there is to say against the figures; nothing if all is well."""
    said = []
    for row in rows:
        if row.verdict == "MISSING":
            said.append(f"{row.name} was not measured")
        elif row.verdict == "MISSED":
            said.append(f"{row.name} is {row.value:.2f} {row.unit}, the bar is {row.bar:g}")
    return said
