# SPDX-License-Identifier: GPL-2.0-or-later
"""Which figures of the benchmark meet their bars."""

import importlib.util
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("bars", TOP / "qemu-patches" / "bench" / "bars.py")
bars = importlib.util.module_from_spec(SPEC)
sys.modules["bars"] = bars  # dataclasses look it up
SPEC.loader.exec_module(bars)

MEDIANS = dict.fromkeys(bars.TIMES + bars.PATHS, 10.0) | {
    bars.BASELINE: 20.0,
    "path-throttle": 20.0,
}
COUNTS = dict.fromkeys(bars.COUNTED, 90.0)


def said_of(medians: dict[str, float], counts: dict[str, float]) -> list[str]:
    return bars.problems(bars.time_rows(medians) + bars.instruction_rows(counts))


def test_figures_below_their_bars_are_well():
    assert said_of(MEDIANS, COUNTS) == []


@pytest.mark.parametrize("name", bars.TIMES + bars.PATHS)
def test_a_time_that_is_missing_is_a_problem(name: str):
    medians = {n: t for n, t in MEDIANS.items() if n != name}
    assert f"{name} was not measured" in said_of(medians, COUNTS)


def test_instructions_that_are_missing_are_a_problem():
    # Each row, and what the gate adds to one.
    assert len(said_of(MEDIANS, {})) == len(bars.COUNTED) + 1


@pytest.mark.parametrize("name", bars.BARS)
def test_each_bar_is_of_a_row_and_is_held(name: str):
    rows = bars.time_rows(MEDIANS) + bars.instruction_rows(COUNTS)
    unit = next(row.unit for row in rows if row.name == name)
    bar = bars.BARS[name]
    assert bars.Row(name, bar, unit).verdict == "met"
    assert bars.Row(name, bar * 1.01, unit).verdict == "MISSED"
    assert len(bars.problems([bars.Row(name, bar * 1.01, unit)])) == 1


def test_added_time_is_held_against_that_of_the_throttle_filter():
    """Of 10 ns that the filter adds 3.6."""
    said = said_of(MEDIANS | {"path-shaper": 13.6}, COUNTS)
    assert said == ["path-added-of-throttle is 0.36 times, the bar is 0.35"]


def test_a_throttle_filter_that_adds_nothing_was_not_measured():
    said = said_of(MEDIANS | {"path-throttle": 10.0}, COUNTS)
    assert said == ["path-added-of-throttle was not measured"]


def test_a_time_above_its_bar_is_held_against_a_baseline_that_is_slow_too():
    """Twice as slow as where the bars were set: 60 ns are 120."""
    slow = MEDIANS | {bars.BASELINE: 2 * bars.BASELINE_NS}
    rows = {row.name: row for row in bars.time_rows(slow | {"all-in-use": 119.0})}
    assert rows["all-in-use"].verdict == "met of 120.0: the baseline is slow, too"
    assert rows["pass"].verdict == "met"
    assert said_of(slow | {"all-in-use": 121.0}, COUNTS) != []


def test_neither_ratios_nor_instructions_are_excused_by_a_slow_baseline():
    slow = {name: 10 * each for name, each in MEDIANS.items()} | {"pass": 202.0}
    counts = COUNTS | {"pass": 101.0}
    said = said_of(slow, counts)
    assert said == [
        "pass is 202.00 ns, the bar is 125",
        "pass-of-baseline is 1.01 times, the bar is 1",
        "pass-instructions is 101.00 instructions, the bar is 98",
    ]
