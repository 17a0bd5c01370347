# SPDX-License-Identifier: GPL-2.0-or-later
"""How the test runner counts, and when it calls a suite sound."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("test_runner", TOP / "tools" / "test" / "run.py")
runner = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = runner  # its dataclasses look themselves up there
SPEC.loader.exec_module(runner)

SUITE = runner.Suite("some", ("fuzz",), [], runner.count_closing_line("fuzz"), 1)


@pytest.mark.parametrize(
    ("line", "passed", "failed", "skipped"),
    [
        ("6 passed, 0 failed", 6, 0, 0),
        ("5 passed, 1 failed", 5, 1, 0),
        ("0 passed, 0 failed, 6 skipped", 0, 0, 6),
    ],
)
def test_closing_line(line: str, passed: int, failed: int, skipped: int):
    tally = SUITE.count(["ok   engine: Done 5 runs", line])
    assert (tally.passed["fuzz"], tally.failed, tally.skipped) == (passed, failed, skipped)


def test_without_closing_line_nothing_ran():
    tally = SUITE.count(["ok   engine: Done 5 runs"])
    assert not tally.passed["fuzz"]
    assert not runner.is_sound(SUITE, tally, 0)


def test_skipped_suite_is_sound_only_where_it_may_be():
    tally = SUITE.count(["0 passed, 0 failed, 6 skipped"])
    assert not runner.is_sound(SUITE, tally, 0)
    may_skip = dataclasses.replace(SUITE, may_skip=True)
    assert runner.is_sound(may_skip, tally, 0)
    assert not runner.is_sound(may_skip, SUITE.count([]), 0)


@pytest.mark.parametrize(("line", "status"), [("6 passed, 0 failed", 1), ("5 passed, 1 failed", 0)])
def test_failure_is_not_sound(line: str, status: int):
    assert runner.is_sound(SUITE, SUITE.count(["6 passed, 0 failed"]), 0)
    assert not runner.is_sound(SUITE, SUITE.count([line]), status)


@pytest.mark.parametrize(
    "line",
    [
        "FAILED tests/unit/test_a.py::test_b - AssertionError: 1 is not 2",
        "ERROR tests/unit/test_a.py::test_b - OSError",
        "E       AssertionError: 1 is not 2",
        "    not ok 3 /net/ring",
        "test class::names ... FAILED",
        "FAIL frame: exit status 77; the end of its output:",
        "sluice-net-ring-test          18 passed, 1 failed, 0 skipped",
    ],
)
def test_failure_is_named_at_the_end(line: str):
    log = ["ok 1 /net/other", line, "test class::rest ... ok", "a 3 passed, 0 failed, 0 skipped"]
    assert runner.failures("some", log) == [f"some: {line}"]


def test_suite_that_names_no_failure_shows_how_it_ended():
    assert runner.failures("some", ["begun", "killed"]) == ["some: begun", "some: killed"]


def test_each_suite_has_a_kind_that_can_be_asked_for():
    for suite in runner.suites():
        assert set(suite.kinds) <= set(runner.KINDS)
