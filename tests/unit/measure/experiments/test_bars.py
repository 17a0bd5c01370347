# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.bars: what is met, missed and not to be told."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.experiments.bars import (
    BARS,
    COST_ROUNDS_MIN,
    EXPECTED,
    FIGURES,
    UNLIMITED,
    Outcome,
    as_json,
    judge,
    problems,
)


def _spread(*values):
    return {"median": sorted(values)[len(values) // 2], "min": min(values), "max": max(values)}


def _rate_row(part, subject, **figures):
    row = {
        "part": part,
        "subject": subject,
        "rate_bps": 65536,
        "request_bytes": 512,
        "runs": 3,
        "mean_error_ratio": _spread(0.0),
        "worst_window_error_ratio": _spread(0.0),
        "quantum_ratio": _spread(0.0078),
        "clock_ratio": _spread(0.0005),
        "longest_standstill_ms": _spread(20.0),
    }
    if part.startswith("disk"):
        row["longest_wait_ratio"] = _spread(1.0)
    if subject != UNLIMITED:
        row["unlimited_rate_ratio"] = _spread(1.11)
        row["unlimited_standstill_ms"] = _spread(15.0)
        row["unlimited_stall_ratio"] = _spread(0.005)
    if part == "net in":
        row["guest_clock_ratio"] = _spread(0.0001)
    return {**row, **figures}


def _flood_row(part, subject, **figures):
    return {
        "part": part,
        "subject": subject,
        "runs": 12,
        "pooled_p99_ratio": _spread(1.0),
        "flood_fill_ratio": _spread(1.0),
        "control_fill_ratio": _spread(0.1),
        "control_lost": _spread(0),
        "asked": _spread(2000),
        **({"elsewhere_fill_ratio": _spread(1.0)} if part == "same guest" else {}),
        **figures,
    }


def _cost_row(part, subject, **figures):
    return {
        "part": part,
        "subject": subject,
        "runs": COST_ROUNDS_MIN,
        "pooled_ratio": _spread(0.995, 1.0, 1.005),
        **figures,
    }


def _call_row(part, subject, **figures):
    return {
        "part": part,
        "subject": subject,
        "runs": 5,
        "median_us": _spread(0.05),
        "p95_us": _spread(0.08),
        "exits": _spread(0 if subject == "deferred call" else 1),
        **({"serial_ratio": _spread(6.0)} if subject in ("fast call", "upcall") else {}),
        **figures,
    }


def _syn_row(part, subject, **figures):
    return {
        "part": part,
        "subject": subject,
        "runs": 3,
        "served_ms": _spread(5.0),
        "refused_ms": _spread(0.05),
        "idle_ms": _spread(3.0),
        "refused_share": _spread(0.97),
        "cost_ratio": _spread(0.01),
        **figures,
    }


def _burden_row(part, subject, **figures):
    return {
        "part": part,
        "subject": subject,
        "runs": 3,
        "agent_ratio": _spread(0.02),
        "added_ratio": _spread(0.03),
        "absent_ratio": _spread(0.5),
        "forks_per_second": _spread(167),
        **figures,
    }


def _auto_row(part, subject, **figures):
    row = {"part": part, "subject": subject, "runs": 3}
    row |= {"perfect_s": _spread(2.0), "step_s": _spread(1.0), "cpu_share": _spread(0.6)}
    row |= {"optimum_ratio": _spread(0.97, 1.0, 1.05), "unshaped_ratio": _spread(0.8)}
    return row | {"searched_share": _spread(0.8)} | figures


ROWS = {
    "E1": _cost_row,
    "E2": _rate_row,
    "E12": _call_row,
    "FLOOD": _flood_row,
    "SYN": _syn_row,
    "BURDEN": _burden_row,
    "E10": _auto_row,
}


def _found(experiment, changes=None, **figures):
    """All rows of an experiment, flawless, but for one row's figures."""
    rows = [
        ROWS[experiment](*key, **(figures if key == changes else {}))
        for key in EXPECTED[experiment]
    ]
    return {"experiment": experiment, "rows": rows}


@pytest.mark.parametrize("experiment", EXPECTED)
def test_an_experiment_without_a_flaw_has_no_problem(experiment):
    found = _found(experiment)
    assert problems(found) == []
    assert {one.outcome for one in judge(found)} == {Outcome.MET}


@pytest.mark.parametrize("experiment", EXPECTED)
def test_an_experiment_that_measured_nothing_misses_every_row(experiment):
    wrong = problems({"experiment": experiment, "rows": []})
    assert len(wrong) == len(EXPECTED[experiment])
    assert all("missing" in line and "again" in line for line in wrong)


@pytest.mark.parametrize("experiment", EXPECTED)
def test_every_bar_of_an_experiment_judges_one_of_its_rows(experiment):
    found = _found(experiment)
    for bar in BARS[experiment]:
        assert any(bar.applies(row) for row in found["rows"])


SLUICE_READ = ("disk read", "sluice")


@pytest.mark.parametrize(
    ("experiment", "row", "figure", "values", "bar"),
    [
        ("E1", ("network", "TCP in, bytes/s"), "pooled_ratio", (0.97, 0.98, 0.989), "≥ 0.990"),
        ("E2", SLUICE_READ, "mean_error_ratio", (0, 0, 0.0031), "±0.20%"),
        ("E2", SLUICE_READ, "mean_error_ratio", (-0.0031, 0, 0), "±0.20%"),
        ("E2", ("net in", "sluice leaky"), "worst_window_error_ratio", (0, 0, -0.02), "±1.00%"),
        ("E2", ("disk write", "sluice"), "longest_wait_ratio", (1, 1, 1.11), "≤ 1.100"),
        ("E2", ("disk write", "sluice"), "longest_wait_ratio", (1, 1, math.inf), "≤ 1.100"),
        ("E2", ("net in", "sluice"), "longest_standstill_ms", (20, 20, 66), "≤ 50"),
        ("E12", ("channel", "deferred call"), "exits", (0, 0, 0.01), "≤ 0.00"),
        ("E12", ("channel", "deferred call"), "median_us", (0.1, 0.11, 0.2), "≤ 0.10"),
        ("E12", ("channel", "fast call"), "serial_ratio", (4, 4.9, 6), "≥ 5.00"),
        ("E12", ("channel", "upcall"), "serial_ratio", (1, 2.9, 6), "≥ 3.00"),
        ("FLOOD", ("same guest", "ping"), "pooled_p99_ratio", (1.11,), "≤ 1.100"),
        ("FLOOD", ("other guest", "disk read"), "pooled_p99_ratio", (1.06, 1.2, 1.7), "≤ 1.050"),
        ("FLOOD", ("other guest", "ping"), "pooled_p99_ratio", (math.inf,), "≤ 1.050"),
        ("SYN", ("network", "refused connections"), "cost_ratio", (0.01, 0.02, 0.051), "≤ 0.050"),
        ("E10", ("disk", "gate"), "perfect_s", (2.0, 10.1, math.inf), "≤ 10.0"),
        ("E10", ("network", "gate"), "step_s", (3.1, 3.1, 3.2), "≤ 3.0"),
        ("E10", ("disk and network", "gate"), "optimum_ratio", (0.9, 0.94, 1.0), "≥ 0.95"),
        ("BURDEN", ("agent", "forks"), "agent_ratio", (0.01, 0.051, 0.06), "≤ 0.050"),
        ("BURDEN", ("agent", "sockets held"), "added_ratio", (0.01, 0.051, 0.06), "≤ 0.050"),
    ],
)
def test_a_figure_beyond_its_bar_is_missed_and_named(experiment, row, figure, values, bar):
    (line,) = problems(_found(experiment, row, **{figure: _spread(*values)}))
    assert line.startswith(", ".join(row))
    assert bar in line
    assert ": missed; " in line


@pytest.mark.parametrize(
    ("interval", "runs", "outcome"),
    [
        ((0.991, 1.0, 1.2), COST_ROUNDS_MIN, None),
        ((0.99, 0.99, 0.99), COST_ROUNDS_MIN, None),
        ((0.981, 0.99, 1.0), COST_ROUNDS_MIN, None),
        ((0.98, 1.0, 1.2), COST_ROUNDS_MIN, Outcome.INCONCLUSIVE),
        ((0.985, 0.9899, 0.995), COST_ROUNDS_MIN, Outcome.INCONCLUSIVE),
        ((0.97, 0.98, 0.989), COST_ROUNDS_MIN, Outcome.MISSED),
        ((0.97, 0.98, 0.989), COST_ROUNDS_MIN - 1, Outcome.INCONCLUSIVE),
        ((0.991, 1.0, 1.2), COST_ROUNDS_MIN - 1, Outcome.INCONCLUSIVE),
    ],
)
def test_what_the_patches_cost_is_judged_by_the_mean_if_it_is_sure_enough(interval, runs, outcome):
    row = ("disk", "fio 4 KiB, requests/s")
    found = _found("E1", row, pooled_ratio=_spread(*interval), runs=runs)
    unmet = [one.outcome for one in judge(found) if one.outcome is not Outcome.MET]
    assert unmet == ([outcome] if outcome else [])


def test_an_interval_that_reaches_beyond_its_bar_is_told():
    figures = {"pooled_ratio": _spread(0.979, 1.0, 1.01)}
    (line,) = problems(_found("E1", ("disk", "fio 4 KiB, requests/s"), **figures))
    assert "it may be from 0.979 to 1.010" in line and "for sure above 0.98" in line


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((0.9, 1.04, 3.0), None),
        ((0.9, 1.06, 1.2), Outcome.INCONCLUSIVE),
        ((1.04, 1.06, math.inf), Outcome.INCONCLUSIVE),
        ((1.06, math.inf, math.inf), Outcome.INCONCLUSIVE),
        ((1.06, 1.07, 1.2), Outcome.MISSED),
    ],
)
def test_a_figure_of_all_runs_is_missed_with_its_whole_interval(interval, outcome):
    row = ("other guest", "disk read")
    found = _found("FLOOD", row, pooled_p99_ratio=_spread(*interval))
    unmet = [one.outcome for one in judge(found) if one.outcome is not Outcome.MET]
    assert unmet == ([outcome] if outcome else [])


def test_peers_are_shown_and_not_judged():
    figures = {"mean_error_ratio": _spread(0.3), "worst_window_error_ratio": _spread(0.3)}
    assert problems(_found("E2", ("net in", "tc-htb"), **figures)) == []


def _only(found):
    (one,) = [verdict for verdict in judge(found) if verdict.outcome is not Outcome.MET]
    return one


@pytest.mark.parametrize(
    ("experiment", "row", "figures", "why"),
    [
        (
            "E1",
            ("disk", "fio 4 KiB, requests/s"),
            {"runs": COST_ROUNDS_MIN - 1},
            f"--repeats={COST_ROUNDS_MIN}",
        ),
        (
            "E2",
            SLUICE_READ,
            {"quantum_ratio": _spread(0.0156)},
            "smaller requests",
        ),
        ("E2", SLUICE_READ, {"clock_ratio": _spread(0, 0, 0.011)}, "read too slowly"),
        (
            "E2",
            SLUICE_READ,
            {"worst_window_error_ratio": _spread(0.012), "clock_ratio": _spread(0.004)},
            "the clock may be wrong by 0.40%",
        ),
        (
            "E2",
            SLUICE_READ,
            {
                "longest_wait_ratio": _spread(1, 1, 1.4),
                "unlimited_stall_ratio": _spread(0, 0.1, 0.35),
            },
            "wait beyond its ideal ÷ ideal is 0.350",
        ),
        (
            "E2",
            ("net out", "sluice leaky"),
            {
                "longest_standstill_ms": _spread(20, 20, 90),
                "unlimited_standstill_ms": _spread(10, 10, 41),
            },
            "without a limit: longest standstill, ms is 41",
        ),
        (
            "FLOOD",
            ("other guest", "disk read"),
            {"flood_fill_ratio": _spread(1, 1, 0.7)},
            "held ÷ full is 0.70, not ≥ 1.00",
        ),
        ("FLOOD", ("same guest", "ping"), {"control_fill_ratio": _spread(0.9)}, "control must not"),
        (
            "FLOOD",
            ("same guest", "ping"),
            {"elsewhere_fill_ratio": _spread(1, 1, 0.9)},
            "held elsewhere ÷ full is 0.90",
        ),
        ("FLOOD", ("same guest", "ping"), {"control_lost": _spread(0, 0, 1)}, "loses pings"),
        ("FLOOD", ("same guest", "ping"), {"asked": _spread(2000, 999)}, "for longer"),
        ("FLOOD", ("same guest", "ping"), {"runs": 7}, "--repeats=8"),
        (
            "FLOOD",
            ("same guest", "ping"),
            {"pooled_p99_ratio": _spread(0.9, 1.2, 1.5)},
            "it may be from 0.900 to 1.500",
        ),
    ],
)
def test_what_cannot_be_told_is_a_problem_with_its_remedy(experiment, row, figures, why):
    found = _found(experiment, row, **figures)
    assert _only(found).outcome is Outcome.INCONCLUSIVE
    (line,) = problems(found)
    assert why in line


def test_one_run_beyond_a_bar_for_every_run_is_missed_not_doubted():
    found = _found("E2", SLUICE_READ, runs=1, longest_wait_ratio=_spread(2.0))
    outcomes = {one.figure: one.outcome for one in judge(found) if one.outcome is not Outcome.MET}
    assert outcomes["longest wait ÷ ideal"] is Outcome.MISSED
    assert outcomes["worst second"] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("experiment", EXPECTED)
@pytest.mark.parametrize("nothing", [None, math.nan])
def test_no_bar_passes_with_a_figure_that_was_not_measured(experiment, nothing):
    found = _found(experiment)
    for bar in BARS[experiment]:
        for row in filter(bar.applies, found["rows"]):
            for figure in bar.rests_on(row):
                without = {key: value for key, value in row.items() if key != figure}
                if nothing is not None:
                    without[figure] = {"median": 1.0, "min": nothing, "max": nothing}
                unmet = {
                    one.figure: one
                    for one in judge({**found, "rows": [without]})
                    if one.outcome is not Outcome.MET
                }
                told = unmet[FIGURES[bar.figure][0]]
                assert told.outcome is Outcome.INCONCLUSIVE
                assert "was not measured" in told.remedy


def test_a_standstill_beyond_the_machine_s_own_is_missed():
    figures = {
        "longest_wait_ratio": _spread(1.6),
        "unlimited_stall_ratio": _spread(0.35),
        "longest_standstill_ms": _spread(92),
        "unlimited_standstill_ms": _spread(41),
    }
    verdicts = judge(_found("E2", SLUICE_READ, **figures))
    unmet = {one.figure: one.outcome for one in verdicts if one.outcome is not Outcome.MET}
    missed = Outcome.MISSED
    assert unmet == {"longest wait ÷ ideal": missed, "longest standstill, ms": missed}


@pytest.mark.parametrize("rates", [(1.04,), (1.2, 1.2, 1.0), (0.0,)])
def test_no_bar_is_met_where_no_limit_was_at_work(rates):
    found = _found("E2", SLUICE_READ, unlimited_rate_ratio=_spread(*rates))
    mine = [one for one in judge(found) if (one.part, one.subject.split(" at")[0]) == SLUICE_READ]
    assert len(mine) == len(BARS["E2"])
    assert {one.outcome for one in mine} == {Outcome.INCONCLUSIVE}
    assert all("without a limit" in one.remedy for one in mine)


def test_a_guest_whose_clock_goes_wrong_says_nothing_about_a_rate():
    wrong = {"guest_clock_ratio": _spread(0.0006), "mean_error_ratio": _spread(0.5)}
    verdicts = judge(_found("E2", ("net in", "sluice"), **wrong))
    unmet = [one for one in verdicts if one.outcome is not Outcome.MET]
    assert {one.outcome for one in unmet} == {Outcome.INCONCLUSIVE}
    assert {one.figure for one in unmet} == {"error over 10 s", "worst second"}
    assert all("clocksource" in one.remedy for one in unmet)


def test_a_ring_that_was_not_full_leaves_even_a_bad_ratio_untold():
    figures = {"pooled_p99_ratio": _spread(2.0), "flood_fill_ratio": _spread(0.2)}
    found = _found("FLOOD", ("other guest", "ping"), **figures)
    assert _only(found).outcome is Outcome.INCONCLUSIVE


def test_a_missing_peer_is_told_once_with_its_reason():
    found = _found("E2")
    found["rows"] = [row for row in found["rows"] if row["subject"] != "tc-htb"]
    found["missing"] = [
        {"part": part, "subject": "tc-htb", "reason": "no sch_htb; load it"}
        for part in ("net out", "net in")
    ]
    assert problems(found) == [
        "net out, tc-htb: a measurement is missing: no sch_htb; load it",
        "net in, tc-htb: a measurement is missing: no sch_htb; load it",
    ]


def test_verdicts_go_into_json():
    text = json.dumps(as_json(judge(_found("E2", SLUICE_READ, mean_error_ratio=_spread(0.5)))))
    assert '"outcome": "missed"' in text


@given(st.floats(0, 0.5), st.floats(0, 0.009))
def test_a_worse_error_is_never_judged_better(error, clock):
    order = [Outcome.MET, Outcome.INCONCLUSIVE, Outcome.MISSED]

    def rank(error_ratio):
        figures = {"worst_window_error_ratio": _spread(error_ratio), "clock_ratio": _spread(clock)}
        verdicts = judge(_found("E2", SLUICE_READ, **figures))
        return max(order.index(one.outcome) for one in verdicts)

    assert rank(error) <= rank(error * 1.5 + 0.001)
    assert rank(error) == rank(-error)
