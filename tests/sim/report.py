# SPDX-License-Identifier: GPL-2.0-or-later
"""The report of many runs: a table by kind for people, and JSON. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sim.figures import Figures
from sim.scenario import KINDS

# (heading, figure of the runs of one kind)
Column = tuple[str, Callable[[Sequence[Figures]], str]]
PERFECT_S, GATE_ON_S, RETURN_S = 5.0, 1.0, 3.0
MISSING = "–"


def _share(hits: Iterable[bool]) -> str:
    found = list(hits)
    return f"{100 * sum(found) / len(found):.0f} %" if found else MISSING


def _median(values: Sequence[float]) -> str:
    """With the 5th percentile."""
    if not values:
        return MISSING
    return f"{statistics.median(values):.2f} ({percentile(values, 0.05):.2f})"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that at most this share of them lies below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _seconds(values: Sequence[float | None]) -> str:
    """Median and 95th percentile; a value that was not reached is the longest of all."""
    if not values:
        return MISSING
    ordered = sorted(float("inf") if value is None else value for value in values)

    def shown(share: float) -> str:
        value = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
        return "never" if value == float("inf") else f"{value:.1f}"

    return f"{shown(0.5)} / {shown(0.95)}"


def _soon(runs: Sequence[Figures], gate_on: bool, bar_s: float) -> str:
    begun = [run.seconds_to_perfect for run in runs if run.gate_on == gate_on and run.possible]
    return _share(value is not None and value <= bar_s for value in begun)


def _returns(runs: Sequence[Figures]) -> list[float | None]:
    return [value for run in runs if run.possible for value in run.seconds_to_return]


COLUMNS: tuple[Column, ...] = (
    ("runs", lambda runs: str(len(runs))),
    ("counted", lambda runs: str(sum(run.possible for run in runs))),
    ("clean", lambda runs: _share(run.clean for run in runs if run.possible)),
    ("strictly", lambda runs: _share(run.strictly_clean for run in runs if run.possible)),
    (
        "imperfect ½ s",
        lambda runs: _median_count([r.imperfect_half_seconds for r in runs if r.possible]),
    ),
    (
        "perfect after s",
        lambda runs: _seconds([run.seconds_to_perfect for run in runs if run.possible]),
    ),
    (f"≤ {PERFECT_S:.0f} s", lambda runs: _soon(runs, False, PERFECT_S)),
    (f"on: ≤ {GATE_ON_S:.0f} s", lambda runs: _soon(runs, True, GATE_ON_S)),
    ("back after s", lambda runs: _seconds(_returns(runs))),
    (
        f"≤ {RETURN_S:.0f} s",
        lambda runs: _share(value is not None and value <= RETURN_S for value in _returns(runs)),
    ),
    (
        "background",
        lambda runs: _median([run.background for run in runs if run.background is not None]),
    ),
    (
        "worst-off",
        lambda runs: _median([run.worst_off for run in runs if run.worst_off is not None]),
    ),
)


def _median_count(counts: Sequence[int]) -> str:
    if not counts:
        return MISSING
    return f"{statistics.median(counts):.0f} / {percentile(counts, 0.95)}"


def table(runs: Sequence[Figures]) -> str:
    """A row for each policy and kind, of the overloaded scenarios alone."""
    rows = [["policy", "kind", *(heading for heading, _ in COLUMNS)]]
    for policy in dict.fromkeys(run.policy for run in runs):
        loaded = [run for run in runs if run.policy == policy and run.overloaded]
        for kind in KINDS:
            of_kind = [run for run in loaded if run.kind == kind]
            if of_kind:
                rows.append([policy, kind, *(figure(of_kind) for _, figure in COLUMNS)])
        if loaded:
            rows.append([policy, "all", *(figure(loaded) for _, figure in COLUMNS)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


LEGEND = """\
counted: overloaded scenarios in which the streams alone are perfect in each epoch; they alone
are in all columns but the last two, for which each epoch counts that is possible and clean.
clean: no imperfect half-second but in the 5 s after the onset and the 3 s after a step;
strictly: none at all. imperfect ½ s, perfect and back after s: median / 95th percentile.
≤ 5 s: auto-shaping was switched on under load; on: it was on when the load came.
background, worst-off: ÷ the best static rates found, median (5th percentile)."""


def as_json(runs: Sequence[Figures], command: Sequence[str], events: int) -> dict[str, Any]:
    return {"command": list(command), "events": events, "runs": [run.as_json() for run in runs]}
