# SPDX-License-Identifier: GPL-2.0-or-later
"""Series, plots and the page."""

import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import charts, judge, report
from demo.plan import Bars, Plan
from demo.run import Attempt, Outcome
from demo.sampler import class_rates
from testbed.rotdisk import Constant
from unit.demo.facts import SCALE, phase, samples, windows

VERDICTS = {"control": {}, "unshaped": {"stalls": 9, "stall_seconds": 20.0}, "auto": {}}


@pytest.fixture
def facts(monkeypatch) -> dict:
    table = [Constant("media_bps", 50_000_000, "a drive's <own> rate")]
    monkeypatch.setattr(report, "constants", lambda: table)
    played = {name: phase(name, 20e6, 40e6, **bad) for name, bad in VERDICTS.items()}
    outcome = Outcome(
        attempt=Attempt(SCALE, played, 6.345, 60.0, 371.7),
        given_up=Attempt(SCALE, {"control": played["control"]}),
        costs=None,
        windows=windows(0, 90),
        samples=[*samples(0, 90, 20e6, 40e6)],
        auto_log=[{"at": 1_700_000_000.0, "sentence": "disk <wait> 300 ms: 40 → 20 MB/s"}],
        httperf=None,
        problem="",
    )
    for sample in outcome.samples:
        sample.disk_bytes["web"] = 0
    scene = SimpleNamespace(
        plan=Plan(),
        testbed=SimpleNamespace(accelerator=SimpleNamespace(name="tcg", reason="no /dev/kvm")),
        qemu_version=lambda: "10.0.13",
    )
    found = judge.check(outcome.phases, outcome.attempt.settled_after_s, Bars())
    return report.document(scene, outcome, found)


def test_the_report_has_what_is_promised(facts):
    read = json.loads(json.dumps(facts))
    assert read["accelerator"] == "tcg"
    assert read["qemu_version"] == "10.0.13"
    assert list(read["phases"]) == ["control", "unshaped", "auto"]
    for part in read["phases"].values():
        assert set(part["stream"]) >= {
            "verdict",
            "continuity_errors",
            "stalls",
            "stall_seconds",
            "lost_pictures",
            "delivered_ratio",
            "max_gap_ms",
        }
        assert set(part["background"]) == {"http_bytes_per_s", "disk_bytes_per_s"}
    assert read["phases"]["auto"]["settled_after_s"] == pytest.approx(6.345, abs=0.01)
    assert read["auto"]["settled_after_s"] == pytest.approx(6.345, abs=0.01)
    assert read["disk"]["constants"][0]["name"] == "media_bps"
    assert read["succeeded"] is True
    chosen = ("film_mbit", "link_mbit", "disk_bytes_per_s", "readers", "why")
    assert [read["scale"][name] for name in chosen] == [3.0, 100, 25_000_000, 9, "it fits"]
    assert list(read["given_up"]["phases"]) == ["control"]


def test_rates_per_second_come_from_totals(facts):
    row = facts["seconds"][10]
    assert row["http_bytes_per_s"] == 20_000_000
    assert row["disk_bytes_per_s"]["media"] == 40_000_000
    assert row["cpu_ratio"] == 0.75


def test_the_page_loads_nothing_and_escapes_what_it_shows(facts):
    page = report.page(facts)
    assert "beside 9 readers" in page
    assert not re.search(r"(src|href)\s*=|@import|url\(", page)
    assert "drive's <own>" not in page
    assert "disk <wait>" not in page
    assert "&lt;wait&gt;" in page
    assert not re.search(r"<!--[a-z]+-->", page)
    assert page.count("<svg") == 5
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(drawing)


def test_where_processors_were_short_the_page_has_no_bars_and_no_poor_phase(facts):
    facts["checks"] = [{"name": "auto is perfect", "holds": False, "figures": "poor: 9 stalls"}]
    assert "poor: 9 stalls" in report.page(facts)
    facts["shortage"] = "97% busy with the demo in auto"
    page = report.page(facts)
    assert "Processors were short: 97% busy" in page
    assert "poor: 9 stalls" not in page


def test_the_page_tells_of_a_larger_demo_that_was_given_up(facts):
    facts["given_up"]["shortage"] = "97% busy with the demo in control"
    told = "A larger demo was given up before: 97% busy with the demo in control"
    assert told in report.page(facts)
    facts["given_up"] = None
    assert "given up" not in report.page(facts)


def test_a_missing_value_interrupts_a_line_and_a_limit_is_in_steps():
    axes = charts.Axes(0, 10, 10.0)
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 4.0), (4.0, 5.0)]
    path = charts.path_of(charts.Line("x", "c1", points), axes)
    assert (path.count("M"), path.count("L")) == (2, 2)
    steps = charts.path_of(charts.Line("x", "c1", points, limit=True), axes)
    assert (steps.count("M"), steps.count("L")) == (2, 4)


@given(st.floats(1e-6, 1e12))
def test_the_scale_holds_the_largest_value_without_wasting_the_picture(most):
    top = charts.nice_top(most)
    # Below one the scale stays at one: rates here are MB/s and gaps ms.
    assert most <= top * (1 + 1e-9)
    assert top <= max(10.0 * most, 1.0)


def test_live_rates_are_flattened_and_absent_domains_left_out():
    sample = {"bytes_per_second": 5.0, "limit_bytes_per_second": None}
    live = {
        "domains": {
            "media": {"classes": {"batch": {"blk-read": sample}}},
            "gone": {"classes": None, "error": "no page"},
        }
    }
    assert class_rates(live) == {"media/batch/blk-read": {"rate": 5.0, "limit": None}}
