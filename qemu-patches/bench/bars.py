# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench` has to print, and how much it may be.

A figure is a median in nanoseconds, a number of instructions, or the ratio of two medians. All
that are named here must be there; those with a bar must not be above it.

Bars in nanoseconds were set on a machine on which the baseline took BASELINE_NS. Where it takes
longer in the same run, by a slower processor or by neighbours that use the same core, a figure
above its bar is held against a bar that is higher in proportion, and its verdict says so. A
faster machine lowers no bar.
"""

from dataclasses import dataclass

BASELINE = "qemu-throttle-core"
BASELINE_NS = 24.0
TIMES = (
    "pass",
    BASELINE,
    "pass-unlimited",
    "hold-release",
    "all-in-use",
    "contended",
    "pass-gated",
    "gate-release",
    "lock",
    "qemu-mutex-core",
    "port-map",
    "frame",
    "group",
    "pass-group",
    "group-2-processes",
)
# The whole path of a request, in an emulator (path.py).
PATHS = ("path-stock", "path-shaper", "path-throttle", "release-shaper", "release-throttle")
# Name of a row -> median, lower and upper quartile in nanoseconds.
Times = dict[str, tuple[float, float, float]]
# One process makes the row: only then do its instructions repeat.
COUNTED = tuple(name for name in TIMES if not name.endswith("-processes"))

# Name of a figure -> the most that it may be.
BARS = {
    "pass": 15.0,
    "pass-of-baseline": 1.0,
    "pass-instructions": 98,
    "pass-unlimited": 15.0,
    "pass-unlimited-instructions": 98,
    # A gate adds its decision and its completion to a request that passes.
    "gate-of-baseline": 0.5,
    "gate-instructions": 200,
    # Limits decide.
    "hold-release": 60.0,
    "hold-release-instructions": 391,
    # Reservation, weight, limit and priority all decide.
    "all-in-use": 60.0,
    "all-in-use-instructions": 621,
    # The class of a frame whose headers are read.
    "port-map": 30.0,
    # Beside QEMU's throttle filter: of a request that passes what is added, of one that waits all.
    "path-added-of-throttle": 0.35,
    "release-of-throttle": 1.0,
}


@dataclass(frozen=True)
class Row:
    """A figure that is to be there, None if it is not.

    ``slowness`` is by how much longer than BASELINE_NS the baseline took, at least 1.
    """

    name: str
    value: float | None
    unit: str
    slowness: float = 1.0

    @property
    def bar(self) -> float | None:
        return BARS.get(self.name)

    @property
    def bar_here(self) -> float | None:
        """The bar as it is on a machine whose baseline is as slow as it was in this run."""
        return self.bar and self.bar * (self.slowness if self.unit == "ns" else 1.0)

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "MISSING"
        if self.bar is None:
            return ""
        if self.value <= self.bar:
            return "met"
        if self.value <= self.bar_here:
            return f"met of {self.bar_here:.1f}: the baseline is slow, too"
        return "MISSED"


def quietest(runs: list[Times]) -> Times:
    """The run in which the baseline was fastest; the first one where there is no baseline."""
    return min(runs, key=lambda run: run.get(BASELINE, (0.0,))[0])


def ratio(figures: dict[str, float], above: str, below: str) -> float | None:
    """One median by another, or None if either is not there."""
    if above not in figures or below not in figures:
        return None
    return figures[above] / figures[below]


def added_ratio(figures: dict[str, float]) -> float | None:
    """What a shaper adds to a request, by what QEMU's throttle adds; None if one is not there."""
    if not figures.keys() >= set(PATHS[:3]):
        return None
    stock, shaper, throttle = (figures[name] for name in PATHS[:3])
    return (shaper - stock) / (throttle - stock) if throttle > stock else None


def gate_added(figures: dict[str, float]) -> float | None:
    """The addition of a gate to a request that passes; None if a figure is not there."""
    if "pass-gated" not in figures or "pass" not in figures:
        return None
    return figures["pass-gated"] - figures["pass"]


def time_rows(medians: dict[str, float]) -> list[Row]:
    slowness = max(1.0, medians.get(BASELINE, 0.0) / BASELINE_NS)
    rows = [Row(name, medians.get(name), "ns", slowness) for name in TIMES]
    rows.append(Row("pass-of-baseline", ratio(medians, "pass", BASELINE), "times"))
    added = gate_added(medians)
    if added is not None and medians.get(BASELINE):
        added /= medians[BASELINE]
    rows.append(Row("gate-of-baseline", added, "times"))
    rows += [Row(name, medians.get(name), "ns") for name in PATHS]
    rows.append(Row("path-added-of-throttle", added_ratio(medians), "times"))
    released = ratio(medians, "release-shaper", "release-throttle")
    rows.append(Row("release-of-throttle", released, "times"))
    return rows


def instruction_rows(counts: dict[str, float]) -> list[Row]:
    rows = [Row(f"{name}-instructions", counts.get(name), "instructions") for name in COUNTED]
    return [*rows, Row("gate-instructions", gate_added(counts), "instructions")]


def problems(rows: list[Row]) -> list[str]:
    """What there is to say against the figures; nothing if all is well."""
    said = []
    for row in rows:
        if row.verdict == "MISSING":
            said.append(f"{row.name} was not measured")
        elif row.verdict == "MISSED":
            said.append(f"{row.name} is {row.value:.2f} {row.unit}, the bar is {row.bar_here:g}")
    return said
