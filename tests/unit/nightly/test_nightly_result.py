# SPDX-License-Identifier: GPL-2.0-or-later
"""What the demo measured to the result that sluiced takes."""

import json

import pytest

from sluice_controller.domain import nightly as taken
from sluice_controller.domain.models import as_json, parse
from sluice_nightly.decide import Reason
from sluice_nightly.result import result
from unit.nightly.measured import ABOUT, facts


def test_a_measured_night_is_what_sluiced_takes(monkeypatch):
    document = facts(monkeypatch)
    # auto_log's time of day is of another clock here.
    document["auto_log"][0]["at_s"] = 61.5
    found = result(ABOUT, 1_780_000_240.0, "passed", (), {"name": "tcg", "reason": "x"}, document)
    found = json.loads(json.dumps(found, allow_nan=False))
    kept = parse(taken.NightlyResult, found)
    assert as_json(kept) == found
    figures = taken.figures(kept.measured)
    assert figures.background_ratio == 1.0
    assert figures.unshaped.stall_seconds == 20.0
    seconds = found["measured"]["seconds"]
    assert seconds["readers_disk_bytes_per_s"][10] == 40_000_000
    assert seconds["readers_disk_limit_bytes_per_s"][0] is None
    assert seconds["readers_disk_limit_bytes_per_s"][-1] == 12_345_679
    assert seconds["web_net_limit_bytes_per_s"][-1] is None
    assert found["measured"]["windows"]["start_s"][0] == 0
    assert found["measured"]["windows"]["received_bytes_per_s"][0] == 830_000


def test_a_night_that_never_settled(monkeypatch):
    document = facts(monkeypatch, settled_after_s=None)
    document["auto_log"] = []
    found = result(ABOUT, 1_780_000_240.0, "failed", (), {"name": "tcg", "reason": "x"}, document)
    assert parse(taken.NightlyResult, found).measured.settled_after_s is None


@pytest.mark.parametrize("outcome", taken.UNMEASURED)
def test_a_night_that_was_not_measured_says_why(outcome):
    reasons = [Reason("guests-busy", "x" * 5000)] * 50
    found = result(ABOUT, ABOUT.started_at - 5, outcome, reasons)
    kept = as_json(parse(taken.NightlyResult, found))
    assert len(kept["reasons"]) == 20 and len(kept["reasons"][0]["sentence"]) == 1000
    assert kept["ended_at"] == kept["started_at"]


def test_control_characters_of_a_program_do_not_make_a_result_refused():
    found = result(ABOUT, ABOUT.started_at, "error", [Reason("run-failed", "QEMU: \x1b[31mno\x00")])
    assert as_json(parse(taken.NightlyResult, found))["reasons"][0]["sentence"] == "QEMU: ?[31mno?"
