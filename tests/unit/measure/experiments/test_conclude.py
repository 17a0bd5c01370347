# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments: the exit status, the JSON file and the page."""

import json
import math

import pytest

from measure.experiments.__main__ import conclude
from measure.experiments.bars import ALL, EXPECTED, SLUICE, UNLIMITED
from measure.experiments.choice import Choice
from measure.experiments.report import finite


def _spread(value):
    return {"median": value, "min": value, "max": value}


def _found(ratio):
    figures = ("stock", "patched", "pooled_ratio")
    rows = [
        {
            "part": part,
            "subject": subject,
            "runs": 200,
            **{name: _spread(ratio) for name in figures},
        }
        for part, subject in EXPECTED["E1"]
    ]
    about = {"title": "a title", "accelerator": "none", "repeats": 3, "note": "A <note>."}
    return {"experiment": "E1", "rows": rows, **about}


def _conclude(found, folder, choice=ALL):
    said = []
    status = conclude(found, folder, said.append, choice)
    name = found["experiment"].lower() + choice.suffix()
    kept = json.loads((folder / f"{name}.json").read_text())
    return status, kept, (folder / f"{name}.html").read_text(), said


def test_all_bars_met_is_a_success(tmp_path):
    status, kept, page, said = _conclude(_found(1.0), tmp_path)
    assert status == 0
    assert kept["problems"] == [] and kept["missing"] == []
    assert [one["outcome"] for one in kept["verdicts"]] == ["met"] * 4
    assert "All bars are met" in page
    assert not any("WRONG" in line for line in said)


def test_a_missed_bar_is_a_failure_that_stands_everywhere(tmp_path):
    status, kept, page, said = _conclude(_found(0.9), tmp_path)
    assert status == 1
    assert len(kept["problems"]) == 4
    assert {one["outcome"] for one in kept["verdicts"]} == {"missed"}
    assert page.count('<tr class="missed">') == 4
    assert sum(line.startswith("WRONG: ") for line in said) == 4


def test_a_missing_row_is_a_failure(tmp_path):
    found = _found(1.0)
    found["rows"].pop()
    status, kept, page, _said = _conclude(found, tmp_path)
    assert status == 1
    assert "TCP in" in kept["problems"][0] and "TCP in" in page


def test_a_row_that_was_not_wanted_is_not_missing_and_the_page_says_so(tmp_path):
    found = _found(1.0)
    found["rows"] = [row for row in found["rows"] if row["part"] == "disk"]
    assert _conclude(found, tmp_path)[0] == 1
    status, kept, page, _said = _conclude(found, tmp_path, Choice("disk, fio"))
    assert (status, kept["only"]) == (0, "disk, fio")
    assert "<em>disk, fio</em>" in page
    assert json.loads((tmp_path / "e1.json").read_text())["problems"] != []


def test_nothing_measured_is_a_failure(tmp_path):
    status, _kept, page, _said = _conclude({**_found(1.0), "rows": []}, tmp_path)
    assert status == 1 and "missing" in page


def test_what_never_came_is_null_in_json_and_does_not_break_the_page(tmp_path):
    rows = [
        {
            "part": part,
            "subject": subject,
            "runs": 3,
            **{name: _spread(1) for name in ("asked", "flood_fill_ratio", "elsewhere_fill_ratio")},
            **{name: _spread(0) for name in ("control_lost", "control_fill_ratio")},
            **{
                name: _spread(math.inf)
                for name in ("pooled_p99_ratio", "p99_ratio", "flood_p99_ms")
            },
        }
        for part, subject in EXPECTED["FLOOD"]
    ]
    found = {**_found(1.0), "experiment": "FLOOD", "rows": rows}
    status, kept, page, _said = _conclude(found, tmp_path)
    assert status == 1
    assert kept["rows"][0]["p99_ratio"]["median"] is None
    assert "∞" in page


def test_a_control_without_a_control_of_its_own_has_its_row_in_the_page(tmp_path):
    rows = [_rate_row(part, subject) for part, subject in EXPECTED["E2"]]
    status, kept, page, _said = _conclude(
        {**_found(1.0), "experiment": "E2", "rows": rows}, tmp_path
    )
    assert status == 0
    assert {one["subject"].split(" at")[0] for one in kept["verdicts"]} == set(SLUICE)
    assert page.count("<td>unlimited</td>") == 4
    assert "without a limit ÷ rate" in page


def _rate_row(part, subject):
    figures = {
        "mean_error_ratio": 0.0,
        "worst_window_error_ratio": 0.0,
        "quantum_ratio": 0.001,
        "clock_ratio": 0.0,
        "longest_standstill_ms": 20.0,
    }
    if part.startswith("disk"):
        figures["longest_wait_ratio"] = 1.0
    if part == "net in":
        figures["guest_clock_ratio"] = 0.0
    if subject == UNLIMITED:
        figures["mean_error_ratio"] = 300.0
    else:
        beside = ("unlimited_rate_ratio", "unlimited_stall_ratio", "unlimited_standstill_ms")
        figures |= dict.fromkeys(beside, 2.0)
    spreads = {name: _spread(value) for name, value in figures.items()}
    about = {"part": part, "subject": subject, "rate_bps": 65536, "request_bytes": 512}
    return {**about, "runs": 3, **spreads}


@pytest.mark.parametrize("value", [1, 1.5, "text", None, [1, {"a": (2.0,)}]])
def test_finite_figures_stay(value):
    assert json.dumps(finite(value)) == json.dumps(value)
