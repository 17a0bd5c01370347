# SPDX-License-Identifier: GPL-2.0-or-later
"""E10: the search for the best limit, its rows and its page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.experiments import bars, e10, report
from measure.experiments.e10 import best_share
from testbed.stream.meter import Window

STEP = 1 / 2**e10.SEARCH_STEPS


def test_the_rows_are_the_expected_ones() -> None:
    assert bars.EXPECTED["E10"] == tuple(
        (part, method) for part in e10.PARTS for method in e10.METHODS
    )


@given(st.floats(STEP, 1 - 1e-9))
def test_the_search_ends_just_below_the_limit_that_is_too_much(most) -> None:
    share, bps = best_share(lambda share: 50e6 * share if share <= most else None)
    assert share <= most < share + STEP
    assert bps == 50e6 * share


def test_a_stream_that_no_limit_helps_ends_the_search_with_the_least_share() -> None:
    with pytest.raises(ValueError, match="with 6% of the unshaped rates"):
        best_share(lambda _share: None)


def windows(start_s: float, seconds: float, stalls: int = 0) -> list[Window]:
    return [
        Window(start_s + half / 2, 500, received_datagrams=100, stalls=stalls)
        for half in range(round(2 * seconds))
    ]


def test_a_stream_is_perfect_from_the_first_half_second_of_a_long_time_without_fault() -> None:
    seen = windows(100, 5, stalls=1) + windows(105, 16)
    assert e10.perfect_from(seen, 100, 121) == 105
    assert e10.perfect_from(seen, 107, 122.5) == 107


def test_a_stream_that_was_perfect_for_a_moment_at_the_end_never_was() -> None:
    assert e10.perfect_from(windows(100, 50, stalls=1) + windows(150, 10), 100, 160) is None


def test_a_meter_that_has_fallen_silent_calls_nothing_perfect() -> None:
    assert e10.perfect_from(windows(100, 5), 100, 120) is None


def test_a_page_is_drawn() -> None:
    one = {"median": 1.0, "min": 0.9, "max": 1.1}
    names = ("perfect_s", "step_s", "optimum_ratio", "unshaped_ratio", "searched_share")
    figures = dict.fromkeys((*names, "cpu_share"), one)
    rows = [
        {"part": part, "subject": method, "runs": 3, **figures}
        for part, method in bars.EXPECTED["E10"]
    ]
    found = {"experiment": "E10", "title": e10.TITLE, "accelerator": "tcg", "repeats": 3}
    found |= {"note": "", "only": "", "rows": rows, "missing": []}
    found |= {"problems": [], "verdicts": bars.as_json(bars.judge(found))}
    page = report.page(found)
    assert page.count("<svg") == 3
    assert "perfect after the step, s" in page
