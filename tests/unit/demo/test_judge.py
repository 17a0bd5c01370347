# SPDX-License-Identifier: GPL-2.0-or-later
"""From windows and samples to figures, and from figures to bars."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import judge
from demo.plan import BadPlan, Bars, Plan
from unit.demo.facts import phase, samples, windows

POOR = {"stalls": 20, "stall_seconds": 25.0, "continuity_errors": 30}


def test_a_phase_is_what_was_collected_within_it():
    collected = windows(100, 110) + windows(110, 140, continuity_errors=1) + windows(140, 150)
    found = judge.measure("auto", 110, 140, collected, samples(100, 150, 20e6, 40e6))
    assert found.stream.continuity_errors == 60
    assert found.stream.seconds == pytest.approx(30)
    assert found.background.http_bytes_per_s == pytest.approx(20e6)
    assert found.background.disk_bytes_per_s == pytest.approx(40e6)
    assert found.cpu_ratio == pytest.approx(0.75)
    assert found.disk_seeks_per_s == pytest.approx(8)


def test_a_silent_meter_is_a_stall_not_a_perfect_stream():
    found = judge.measure("auto", 110, 140, [], samples(100, 150, 20e6, 40e6))
    assert found.stream.verdict == "poor"


def test_a_phase_without_samples_is_an_error():
    with pytest.raises(ValueError, match="control"):
        judge.measure("control", 0, 10, windows(0, 10), samples(500, 500, 1, 1))


def test_a_run_without_any_sample_is_an_error_that_names_the_phase():
    with pytest.raises(ValueError, match="phase control: no samples"):
        judge.measure("control", 0, 10, windows(0, 10), [])


def test_perfect_since_is_the_last_fault_s_end():
    collected = windows(10, 20) + windows(20, 22, continuity_errors=1) + windows(22, 40)
    assert judge.perfect_since(collected, 5) == 22
    assert judge.perfect_since(collected, 30) == 30
    assert judge.perfect_since(collected + windows(40, 41, stalls=1), 5) is None
    assert judge.perfect_since([], 5) is None


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_from_perfect_since_on_there_is_no_fault(good):
    collected = []
    for index, fine in enumerate(good):
        faults = {} if fine else {"lost_pictures": 1}
        collected += windows(index, index + 1, **faults)
    since = judge.perfect_since(collected, 0)
    run = 0
    for fine in reversed(good):
        if not fine:
            break
        run += 1
    assert since == (None if run == 0 else len(good) - run)


def phases(**changes):
    found = {
        "control": phase("control", 0, 0),
        "unshaped": phase("unshaped", 20e6, 45e6, **POOR),
        "auto": phase("auto", 19e6, 41e6),
    }
    return {**found, **changes}


def failing(found, settled=7.0):
    return [check.name for check in judge.check(found, settled, Bars()) if not check.holds]


def test_all_bars_hold():
    assert failing(phases()) == []


@pytest.mark.parametrize(
    ("changes", "settled", "name"),
    [
        ({"control": phase("control", 0, 0, lost_pictures=1)}, 7, "control"),
        ({"unshaped": phase("unshaped", 20e6, 45e6)}, 7, "unshaped"),
        ({"auto": phase("auto", 19e6, 41e6, continuity_errors=1)}, 7, "auto"),
        ({"auto": phase("auto", 18e6, 20e6)}, 7, "background"),
        ({}, 10.1, "settled"),
        ({}, None, "settled"),
    ],
)
def test_each_bar_fails_on_its_own(changes, settled, name):
    (found,) = failing(phases(**changes), settled)
    assert found.startswith(name)


def test_the_background_bar_is_about_the_sum_and_shows_the_parts():
    found = phases(auto=phase("auto", 12e6, 45e6))
    assert failing(found) == []
    (check,) = [c for c in judge.check(found, 1.0, Bars()) if c.name.startswith("background")]
    assert "http 12.0 of 20.0 MB/s (60%)" in check.figures


BUSY = {"cpu_ratio": 0.97, "cpu_ours_ratio": 0.95}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (BUSY, "95% busy with the demo in auto"),
        ({"cpu_ratio": 1.0, "cpu_ours_ratio": 0.5}, ""),
        # Outside of a group httperf polls whenever no other program would run.
        ({"cpu_ratio": 1.0, "cpu_ours_ratio": None}, ""),
        (
            {"cpu_ratio": 1.0, "cpu_ours_ratio": None, "waited_ratio": 0.5},
            "the stream's guest waited 50% of auto for a processor",
        ),
        ({"waited_ratio": 0.6}, "the stream's guest waited 60% of auto for a processor"),
    ],
)
def test_processors_are_short_by_the_demo_s_own_load_or_where_the_stream_waits(changes, words):
    found = phases()
    found["auto"] = dataclasses.replace(found["auto"], **changes)
    assert judge.shortage(found) == words


def test_a_poor_stream_proves_nothing_while_processors_are_short():
    poor = phase("auto", 19e6, 41e6, **POOR)
    assert not judge.inconclusive(phases(auto=poor), None, Bars())
    short = phases(auto=dataclasses.replace(poor, **BUSY))
    assert judge.inconclusive(short, None, Bars())
    assert dict(judge.rows(short))["stream"] == ["perfect", "poor", "not judged"]


@pytest.mark.parametrize("busy", ["control", "unshaped"])
@pytest.mark.parametrize(
    ("auto", "settled"),
    [(phase("auto", 19e6, 41e6, **POOR), None), (phase("auto", 9e6, 9e6), 7.0)],
)
def test_processors_that_were_short_in_another_phase_excuse_nothing(busy, auto, settled):
    found = phases(auto=auto)
    found[busy] = dataclasses.replace(found[busy], **BUSY)
    assert judge.shortage(found)
    assert not judge.inconclusive(found, settled, Bars())
    assert judge.shown(found["auto"]) == auto.stream.verdict


def test_one_bar_that_fails_with_processors_to_spare_makes_a_verdict():
    control = dataclasses.replace(phase("control", 0, 0, **POOR), **BUSY)
    assert judge.inconclusive(phases(control=control), 7.0, Bars())
    both = phases(control=control, auto=phase("auto", 19e6, 41e6, **POOR))
    assert not judge.inconclusive(both, None, Bars())


def test_bars_that_hold_on_busy_processors_hold():
    busy = {name: dataclasses.replace(found, **BUSY) for name, found in phases().items()}
    assert not judge.inconclusive(busy, 7.0, Bars())


def test_a_run_that_ended_after_its_control_is_judged_by_that():
    control = dataclasses.replace(phase("control", 0, 0, **POOR), **BUSY)
    assert judge.inconclusive({"control": control}, None, Bars())
    assert failing({"control": control}) == ["control is perfect"]


@pytest.mark.parametrize(
    "bad", [{"link_mbit": 9}, {"readers": 13}, {"overload": 0.05}, {"auto_s": -1}, {"wgets": 0}]
)
def test_a_bad_plan_names_what_is_wrong(bad):
    (name,) = bad
    with pytest.raises(BadPlan, match=name):
        Plan(**bad)
