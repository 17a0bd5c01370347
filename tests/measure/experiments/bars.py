# SPDX-License-Identifier: GPL-2.0-or-later
"""The bars of experiments, and their verdicts: measured figures in, verdicts out.

Pure: an experiment hands over its rows as they go into its JSON file. A figure
of a row is a spread, ``{median, min, max}``, over ``runs`` runs; or it is of all
runs together, and then ``min`` and ``max`` are the ends of its interval. A bar
holds for the median, for every run, or for all together. A verdict is one of three:

* **met**;
* **missed**: the figure lies beyond its bar by more than the clock may be wrong, or
  with its whole interval;
* **inconclusive**: it cannot be told: too few runs or samples, a counter that was
  read too slowly, a request too large for the window, a ring that was not full, a
  load that did no more without a limit, a machine that stood still by itself, a
  figure that was not measured.

A bar for every run is missed by a single one, however few there were. All but *met* is a
problem, and so is a missing row. Infinity stands for an event that never came, such as a lost
ping.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from demo.judge import BUSY_MOST
from measure.experiments.choice import Choice

Row = dict[str, Any]

# "Every experiment repeats at least three times."
RUNS_MIN = 3
# So many pairs, drawn anew, say how sure a figure of all of them is.
PAIRS_MIN = 8
# A bar of one per cent: processes differ by more for as long as they live, so there are many.
COST_ROUNDS_MIN = 20
# Held ÷ full of a flood at least, and of a control at most.
FULL_MIN = 1.0
CALM_MAX = 0.5
# A 99th percentile has ten values beyond it.
ASKED_MIN = 1000
# A quarter of the smallest bar of a rate.
GUEST_CLOCK_MAX = 0.0005
# The least rate of a load without a limit, ÷ the set rate: else no limit kept it.
UNLIMITED_MIN = 1.05
# How long nothing may come through: as long as Sluice's bursts and queues last.
STANDSTILL_MS_MAX = 50.0
UNLIMITED = "unlimited"
ALL = Choice()
SLUICE = ("sluice", "sluice leaky")
DISK_PEERS = ("qemu-throttle", "cgroup-blkio")
NET_PEERS = ("tc-tbf", "tc-htb", "libvirt-bandwidth")
DISK_PARTS = ("disk read", "disk write")
NET_PARTS = ("net out", "net in")

# Names and formats of figures.
FIGURES = {
    "mean_error_ratio": ("error over 10 s", "{:+.2%}"),
    "worst_window_error_ratio": ("worst second", "{:+.2%}"),
    "quantum_ratio": ("one request", "{:.2%}"),
    "clock_ratio": ("clock", "{:.2%}"),
    "guest_clock_ratio": ("guest's clock", "{:.3%}"),
    "longest_wait_ratio": ("longest wait ÷ ideal", "{:.3f}"),
    "longest_standstill_ms": ("longest standstill, ms", "{:.0f}"),
    "unlimited_rate_ratio": ("without a limit ÷ rate", "{:.2f}"),
    "unlimited_stall_ratio": ("without a limit: wait beyond its ideal ÷ ideal", "{:.3f}"),
    "unlimited_standstill_ms": ("without a limit: longest standstill, ms", "{:.0f}"),
    "pooled_ratio": ("patched ÷ stock, mean of all rounds", "{:.3f}"),
    "pooled_p99_ratio": ("p99 of all runs, flood ÷ control", "{:.3f}"),
    "p99_ratio": ("p99 of one pair, flood ÷ control", "{:.3f}"),
    "flood_p99_ms": ("p99 beside the flood, ms", "{:.2f}"),
    "control_p99_ms": ("p99 of the control, ms", "{:.2f}"),
    "asked": ("asked", "{:.0f}"),
    "flood_lost": ("lost beside the flood", "{:.0f}"),
    "control_lost": ("lost in the control", "{:.0f}"),
    "flood_fill_ratio": ("flood: held ÷ full", "{:.2f}"),
    "control_fill_ratio": ("control: held ÷ full", "{:.2f}"),
    "elsewhere_fill_ratio": ("control: held elsewhere ÷ full", "{:.2f}"),
    "set_aside": ("pairs set aside", "{:.0f}"),
    "stock": ("stock", "{:,.0f}"),
    "patched": ("patched", "{:,.0f}"),
    "median_us": ("median, µs", "{:.2f}"),
    "p95_us": ("p95, µs", "{:.2f}"),
    "exits": ("exits of each", "{:.2f}"),
    "serial_ratio": ("virtio-serial round trip ÷ it", "{:.2f}"),
    "served_ms": ("of a served connection, ms", "{:.2f}"),
    "refused_ms": ("of a refused connection, ms", "{:.3f}"),
    "idle_ms": ("of a second of the idle guest, ms", "{:.1f}"),
    "refused_share": ("refused ÷ offered", "{:.3f}"),
    "cost_ratio": ("refused ÷ served", "{:.3f}"),
    "agent_ratio": ("the agent, of a CPU", "{:.3f}"),
    "added_ratio": ("the guest with agent − without, of a CPU", "{:.3f}"),
    "absent_ratio": ("the guest without agent, of a CPU", "{:.3f}"),
    "forks_per_second": ("forks/s", "{:.0f}"),
    "perfect_s": ("perfect after switching on, s", "{:.1f}"),
    "step_s": ("perfect after the step, s", "{:.1f}"),
    "optimum_ratio": ("background ÷ best limit's", "{:.2f}"),
    "unshaped_ratio": ("background ÷ unshaped", "{:.2f}"),
    "searched_share": ("best limit's background ÷ unshaped", "{:.2f}"),
    "cpu_share": ("processors busy", "{:.2f}"),
}


class Outcome(StrEnum):
    MET = "met"
    MISSED = "missed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Bar:
    """The bar of a figure, its rows, and the remedy if it is missed.

    ``parts`` and ``subjects`` choose rows; empty means all. ``needs`` must hold for the figure
    to mean anything. ``windows`` is the number of windows of the row's ``clock_ratio`` over
    which the figure is measured; 0: no clock is in it. ``of_all``: the figure is one of all
    runs together; its interval must not reach ``sure``, or the figure says too little.
    ``runs_min``: the least number of runs, if not as usual. ``control``: the figure of the row
    by which the machine itself may have put the value beyond its bar.
    """

    figure: str
    remedy: str
    low: float = -math.inf
    high: float = math.inf
    of_median: bool = False
    of_all: bool = False
    parts: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    needs: tuple["Bar", ...] = ()
    windows: int = 0
    sure: float | None = None
    runs_min: int = 0
    control: str = ""

    def applies(self, row: Row) -> bool:
        return (not self.parts or row["part"] in self.parts) and (
            not self.subjects or row["subject"] in self.subjects
        )

    def text(self) -> str:
        """Return the bar in words, such as ``≤ 1.10 in every run``."""
        if self.low == -self.high:
            limit = "within ±" + written(self.figure, self.high).lstrip("+")
        elif math.isinf(self.high):
            limit = f"≥ {written(self.figure, self.low)}"
        else:
            limit = f"≤ {written(self.figure, self.high)}"
        if self.of_all:
            interval = "" if self.sure is None else f", for sure above {self.sure:g}"
            return f"{limit} of all runs{interval}"
        return limit + (" in the median" if self.of_median else " in every run")

    def worst(self, spread: dict[str, float]) -> float:
        """Return the value of a spread that this bar judges."""
        if self.of_median or self.of_all:
            return spread["median"]
        return max(spread["min"], spread["max"], key=self.beyond)

    def beyond(self, value: float) -> float:
        """Return by how much a value misses the bar; 0 or less if it does not."""
        return max(self.low - value, value - self.high)

    def too_wide(self, row: Row) -> bool:
        """Whether the figure's interval reaches ``sure``."""
        return self.sure is not None and row[self.figure]["min"] <= self.sure

    def rests_on(self, row: Row) -> Iterator[str]:
        """Return the figures without which a row cannot be judged by this bar."""
        yield self.figure
        if self.windows:
            yield "clock_ratio"
        if self.control:
            yield self.control
        yield from (need.figure for need in self.needs if need.applies(row))

    def uncertainty(self, row: Row) -> float:
        """Return by how much the judged value may be wrong."""
        if self.of_all:
            least = min(self.beyond(value) for value in row[self.figure].values())
            # An interval that is infinite at both ends is sure.
            return 0.0 if math.isinf(least) else self.beyond(row[self.figure]["median"]) - least
        if self.control:
            return row[self.control]["max"]
        return row["clock_ratio"]["max"] / self.windows if self.windows else 0.0


@dataclass(frozen=True)
class Verdict:
    """One figure of one row, judged."""

    part: str
    subject: str
    figure: str
    measured: str
    bar: str
    outcome: Outcome
    remedy: str = ""

    def sentence(self) -> str:
        return (
            f"{self.part}, {self.subject}: {self.figure} is {self.measured}, the bar is"
            f" {self.bar}: {self.outcome}; {self.remedy}"
        )


def written(figure: str, value: float) -> str:
    """Return a figure's value as people read it."""
    return "∞" if math.isinf(value) else FIGURES[figure][1].format(value)


IDLE = "let the machine do nothing else and run again"
# Bars as the table of experiments has them. `make bench` measures the engine's decisions and
# holds them to their own bars.
_SAME_RATE = "the limit is not kept"
_RING = "the row says nothing before the ring is full: give the flood more depth or more senders"
_CALM = "the control must not fill the ring: lower its rate or its depth"
_QUICK = f"it is slow beside virtio-serial: {IDLE}, under KVM"
_FLOOD = "a flood reaches its neighbours, or the machine was busy"


_SPARE = Bar(
    "cpu_share",
    f"processors were short, so nothing is said of disk and link: {IDLE}, under KVM",
    high=BUSY_MOST,
    of_median=True,
)
_LATE = "see the decisions of that run (sluice auto log): why did it not act, or not enough"
_FREE = Bar(
    "unlimited_rate_ratio",
    f"without a limit the load must do more than the rate, or no limit was at work: {IDLE}",
    low=UNLIMITED_MIN,
)


def _rate(figure: str, ratio: float, windows: int, remedy: str) -> Bar:
    """Return the bar of an error over so many windows, above which it must be visible."""
    needs = (
        _FREE,
        Bar("quantum_ratio", "give this rate smaller requests", high=ratio * windows),
        Bar("clock_ratio", f"the counter was read too slowly: {IDLE}", high=ratio * windows),
        Bar(
            "guest_clock_ratio",
            "the guest counts by its own clock, which goes wrong: see its clocksource",
            high=GUEST_CLOCK_MAX,
            parts=("net in",),
        ),
    )
    return Bar(
        figure, remedy, low=-ratio, high=ratio, subjects=SLUICE, needs=needs, windows=windows
    )


def _flood(high: float, part: str, *more: Bar) -> Bar:
    needs = (
        *more,
        Bar("flood_fill_ratio", _RING, low=FULL_MIN),
        Bar("control_fill_ratio", _CALM, high=CALM_MAX),
        Bar("control_lost", f"the control loses pings: {IDLE}", high=0),
        Bar("asked", "measure for longer", low=ASKED_MIN),
    )
    remedy = f"{_FLOOD}: {IDLE}"
    return Bar("pooled_p99_ratio", remedy, high=high, of_all=True, parts=(part,), needs=needs)


BARS: dict[str, tuple[Bar, ...]] = {
    "E1": (
        Bar(
            "pooled_ratio",
            f"the patched QEMU is slower: {IDLE}; if it stays, see what a decision costs"
            " (make bench)",
            low=0.99,
            of_all=True,
            sure=0.98,
            runs_min=COST_ROUNDS_MIN,
        ),
    ),
    "E2": (
        _rate(
            "mean_error_ratio",
            0.002,
            10,
            f"{_SAME_RATE}: {IDLE}; if it stays, see what passes beside the limit",
        ),
        _rate(
            "worst_window_error_ratio",
            0.01,
            1,
            f"{_SAME_RATE} evenly: {IDLE}; if it stays, see when requests are let go",
        ),
        Bar(
            "longest_wait_ratio",
            f"a request was passed over, or the guest stood still: {IDLE}, under KVM",
            high=1.1,
            parts=DISK_PARTS,
            subjects=SLUICE,
            needs=(_FREE,),
            control="unlimited_stall_ratio",
        ),
        Bar(
            "longest_standstill_ms",
            f"nothing came through, or the machine stood still: {IDLE}, under KVM",
            high=STANDSTILL_MS_MAX,
            subjects=SLUICE,
            needs=(_FREE,),
            control="unlimited_standstill_ms",
        ),
    ),
    "E10": tuple(
        Bar(figure, remedy, low, high, of_median=True, subjects=("gate",), needs=(_SPARE,))
        for figure, low, high, remedy in (
            ("perfect_s", -math.inf, 10.0, _LATE),
            ("step_s", -math.inf, 3.0, _LATE),
            ("optimum_ratio", 0.95, math.inf, "the background was cut more than was needed"),
        )
    ),
    "FLOOD": (
        _flood(1.1, "same guest", Bar("elsewhere_fill_ratio", _RING, low=FULL_MIN)),
        _flood(1.05, "other guest"),
    ),
    "E12": (
        Bar(
            "exits",
            "a deferred call touches a register, or the guest did: see the accesses in the trace",
            high=0,
            subjects=("deferred call",),
        ),
        Bar(
            "median_us",
            f"the clock alone may take so long: {IDLE}, under KVM",
            high=0.1,
            of_median=True,
            subjects=("deferred call",),
        ),
        Bar("serial_ratio", _QUICK, low=5, of_median=True, subjects=("fast call",)),
        Bar("serial_ratio", _QUICK, low=3, of_median=True, subjects=("upcall",)),
    ),
    "BURDEN": tuple(
        Bar(
            figure,
            f"the agent costs more than its share, or the guest's load varied: {IDLE}",
            high=0.05,
            of_median=True,
        )
        for figure in ("agent_ratio", "added_ratio")
    ),
    "SYN": (
        Bar(
            "cost_ratio",
            f"something of what is refused reaches the guest, or its idle time varies: {IDLE}",
            high=0.05,
            needs=(Bar("refused_share", "offer more than the limit lets in", low=0.9),),
        ),
    ),
}

EXPECTED: dict[str, tuple[tuple[str, str], ...]] = {
    "E12": tuple(
        ("channel", subject)
        for subject in ("fast call", "deferred call", "upcall", "virtio-serial round trip")
    ),
    "E10": tuple(
        (part, method)
        for part in ("disk", "network", "disk and network")
        for method in ("gate", "rates")
    ),
    "E1": (
        ("disk", "fio 4 KiB, requests/s"),
        ("disk", "fio 128 KiB, requests/s"),
        ("network", "TCP out, bytes/s"),
        ("network", "TCP in, bytes/s"),
    ),
    "E2": (
        *((part, name) for part in DISK_PARTS for name in (UNLIMITED, *SLUICE, *DISK_PEERS)),
        *((part, name) for part in NET_PARTS for name in (UNLIMITED, *SLUICE, *NET_PEERS)),
    ),
    "FLOOD": tuple(
        (part, subject)
        for part in ("same guest", "other guest")
        for subject in ("disk read", "ping")
    ),
    "SYN": (("network", "refused connections"),),
    "BURDEN": tuple(("agent", load) for load in ("forks", "sockets held", "sockets churned")),
}


def bar_of(experiment: str, row: Row, figure: str) -> Bar:
    """Return the bar that a figure has in a row, or would have if the row were ours."""
    return next(
        bar
        for bar in BARS[experiment]
        if bar.figure == figure and (not bar.parts or row["part"] in bar.parts)
    )


def judge(found: dict[str, Any]) -> list[Verdict]:
    """Judge all figures of an experiment that have a bar."""
    bars = BARS[found["experiment"]]
    return [_judge_one(bar, row) for row in found["rows"] for bar in bars if bar.applies(row)]


def problems(found: dict[str, Any], choice: Choice = ALL) -> list[str]:
    """Return one sentence for each problem of the wanted rows."""
    wrong = [one.sentence() for one in judge(found) if one.outcome is not Outcome.MET]
    return [*wrong, *_absent(found, choice)]


def as_json(verdicts: Iterable[Verdict]) -> list[dict[str, str]]:
    return [asdict(one) for one in verdicts]


def _absent(found: dict[str, Any], choice: Choice) -> Iterator[str]:
    told = set()
    for gone in found.get("missing", ()):
        told.add((gone["part"], gone["subject"]))
        yield f"{gone['part']}, {gone['subject']}: a measurement is missing: {gone['reason']}"
    there = {(row["part"], row["subject"]) for row in found["rows"]}
    for part, subject in choice.of(EXPECTED[found["experiment"]]):
        if (part, subject) not in there | told:
            yield f"{part}, {subject}: all figures are missing: run {found['experiment']} again"


def _judge_one(bar: Bar, row: Row) -> Verdict:
    if unknown := _unknown(bar, row):
        return _verdict(bar, row, "–", Outcome.INCONCLUSIVE, unknown)
    worst = bar.worst(row[bar.figure])
    unsure = bar.uncertainty(row)
    beyond = bar.beyond(worst)
    few = _few_runs(bar, row)
    if doubt := _unmet_need(bar, row):
        outcome, remedy = Outcome.INCONCLUSIVE, doubt
    elif beyond > unsure and not (few and (bar.of_median or bar.of_all)):
        outcome, remedy = Outcome.MISSED, bar.remedy
    elif few:
        outcome, remedy = Outcome.INCONCLUSIVE, few
    elif beyond > 0 or bar.too_wide(row):
        outcome = Outcome.INCONCLUSIVE
        remedy = _unsure(bar, row, unsure)
    else:
        outcome, remedy = Outcome.MET, ""
    return _verdict(bar, row, written(bar.figure, worst), outcome, remedy)


def _verdict(bar: Bar, row: Row, measured: str, outcome: Outcome, remedy: str) -> Verdict:
    subject, figure = row["subject"] + _at(row), FIGURES[bar.figure][0]
    return Verdict(row["part"], subject, figure, measured, bar.text(), outcome, remedy)


def _unknown(bar: Bar, row: Row) -> str:
    """Return which figure that the verdict rests on was not measured; empty if all were."""
    for figure in bar.rests_on(row):
        if any(map(math.isnan, (row.get(figure) or {"": math.nan}).values())):
            return f"{FIGURES[figure][0]} was not measured: {IDLE}"
    return ""


def _unsure(bar: Bar, row: Row, unsure: float) -> str:
    if bar.of_all:
        low, high = (written(bar.figure, row[bar.figure][end]) for end in ("min", "max"))
        return f"it may be from {low} to {high}: {IDLE}, with more pairs (ARGS=--repeats=N)"
    if bar.control:
        return f"{FIGURES[bar.control][0]} is {written(bar.control, unsure)}: {IDLE}"
    return f"the clock may be wrong by {written('clock_ratio', unsure)}: {IDLE}"


def _few_runs(bar: Bar, row: Row) -> str:
    least = bar.runs_min or (PAIRS_MIN if bar.of_all else RUNS_MIN)
    if row["runs"] >= least:
        return ""
    return f"runs: {row['runs']}, which is too few; give ARGS=--repeats={least} or more"


def _unmet_need(bar: Bar, row: Row) -> str:
    """Return why a row's figure means nothing; empty if it does."""
    for need in filter(lambda need: need.applies(row), bar.needs):
        worst = need.worst(row[need.figure])
        if need.beyond(worst) > 0:
            name = FIGURES[need.figure][0]
            return f"{name} is {written(need.figure, worst)}, not {need.text()}: {need.remedy}"
    return ""


def _at(row: Row) -> str:
    if "rate_bps" not in row:
        return ""
    return f" at {row['rate_bps'] / 2**20:.4g} MiB/s, {row['request_bytes']} B"
