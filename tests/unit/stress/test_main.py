# SPDX-License-Identifier: GPL-2.0-or-later
"""stress.__main__: how figures are told."""

import json

import pytest

from stress import __main__ as stress
from stress.migration import Outcome


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([18.8702, 24.3], "18.9 to 24.3"),
        ([49, 17], "17 to 49"),
        ({"bulk": 3, "other": 0.25}, "bulk 3, other 0.2"),
        ([], "none"),
        ("", "none"),
        ("verify: bad header", "verify: bad header"),
        (None, "not counted here"),
        (0, "0"),
        (0.0, "0.0"),
    ],
)
def test_figures_are_told_in_words(value, words):
    assert stress.in_words(value) == words


def test_a_report_is_kept_whole_and_what_is_wrong_is_its_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stress.paths, "BUILD", tmp_path)
    outcome = Outcome(seconds=[1.23456], verify_errors="bad header")
    assert stress.report("hosts", outcome) == 1
    kept = json.loads((tmp_path / "stress" / "hosts.json").read_text())
    assert kept["seconds"] == [1.23456]
    assert kept["problems"] == outcome.problems()
    told = capsys.readouterr().out
    assert "seconds: 1.2 to 1.2" in told
    assert "WRONG: " in told and "bad header" in told
