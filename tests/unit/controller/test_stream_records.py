# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's records of its streams: what is taken, how it is judged, which one counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.channel_records import MOST_RECORDS
from sluice_controller.domain.stream_records import (
    FRESH_S,
    SOURCES,
    Series,
    counting,
    readings,
    said,
)

SECOND = 1_000_000_000


def row(**changes):
    usual = {
        "number": 0,
        "name": "film",
        "tag": 3,
        "source": "vlc",
        "rate-millihertz": 25_000,
        "frames": 0,
        "late": 0,
        "lost": 0,
        "last-ns": 0,
        "pace-bytes-per-second": 0,
    }
    return {**usual, **{name.replace("_", "-"): value for name, value in changes.items()}}


def reading(**changes):
    (found,) = readings({"streams": [row(**changes)]})
    return found


def series(*rows):
    """A row of changes a second."""
    found = Series()
    for second, changes in enumerate(rows):
        last_ns = changes.pop("last_ns", second * SECOND)
        found.add(second, 1000.0 + second, reading(last_ns=last_ns, **changes))
    return found


def plays(seconds, rate=25):
    return [{"frames": rate * second} for second in range(seconds)]


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 64},
        {"number": None},
        {"tag": 16},
        {"tag": -1},
        {"tag": True},
        {"tag": "3"},
        {"frames": 1 << 64},
        {"frames": 1.5},
        {"late": 1 << 32},
        {"rate_millihertz": None},
        {"source": "oracle"},
        {"source": ["vlc"]},
        {"name": ""},
        {"name": "x" * 25},
        {"name": "a\x1b[2J"},
        {"name": "é"},
        {"name": 7},
    ],
)
def test_a_record_out_of_range_is_left_out_alone(changes):
    found = readings({"streams": [row(**changes), row(name="right")]})
    assert [one.name for one in found] == ["right"]


def test_no_more_records_than_the_channel_has():
    rows = [row(name=str(i)) for i in range(3 * MOST_RECORDS)]
    assert len(readings({"streams": rows})) == MOST_RECORDS


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists) | st.just({"streams": 3}))
def test_no_answer_is_too_odd(answer):
    assert readings(answer) == []
    assert readings({"streams": answer}) == []
    assert readings({"streams": [answer]}) == []


def test_a_stream_in_time_is_perfect():
    assert series(*plays(11)).verdict(10)[0] == "perfect"


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ({"lost": 1}, "poor"),
        ({"late": 1}, "good"),
        ({"late": 60}, "poor"),
    ],
)
def test_late_and_lost_frames(last, verdict):
    found, reason = series(*plays(10), {"frames": 250, **last}).verdict(10)
    assert found == verdict
    assert str(*last.values()) in reason


def test_faults_are_forgotten_after_a_while():
    rows = [*plays(3), *({"frames": 25 * s, "lost": 4} for s in range(3, 16))]
    found = series(*rows)
    assert found.verdict(15)[0] == "perfect"
    assert series(*rows[:6]).verdict(5)[0] == "poor"


def test_counters_go_past_their_end():
    rows = [{"frames": 25 * s, "lost": (1 << 32) - 2} for s in range(5)]
    verdict, reason = series(*rows, {"frames": 125, "lost": 1}).verdict(5)
    assert verdict == "poor"
    assert "3 lost" in reason


@pytest.mark.parametrize(("rate", "verdict"), [(25, "perfect"), (24, "good"), (20, "poor")])
def test_too_few_frames(rate, verdict):
    assert series(*plays(11, rate)).verdict(10)[0] == verdict


def test_no_frame_for_a_while():
    found = series(*plays(5))
    assert found.verdict(6)[0] == "perfect"
    found.add(8, 1008.0, found.newest.reading)
    assert found.verdict(8) == ("poor", "no frame for 4 s")
    verdict, reason = found.verdict(4 + FRESH_S + 1)
    assert verdict == "unknown"
    assert "nothing new for 11 s" in reason


def test_nothing_is_said_of_the_time_since_the_last_look():
    """A guest without a declared stream is asked seldom."""
    found = Series()
    for second in (0, 5):
        found.add(second, 1000.0, reading(frames=25 * second, last_ns=second * SECOND))
    assert found.verdict(9.5)[0] == "perfect"


def test_a_pace_that_changes_is_no_frame():
    found = series(*plays(5))
    for second in range(5, 9):
        still = reading(frames=100, last_ns=4 * SECOND, pace_bytes_per_second=second)
        found.add(second, 1000.0 + second, still)
    assert found.verdict(8)[0] == "poor"


def test_a_counter_that_goes_back_begins_anew():
    found = series({"frames": 10, "late": 5}, {"frames": 25}, {"frames": 50})
    assert found.verdict(2)[0] == "perfect"


def test_a_program_that_begins_anew_has_no_faults_of_before():
    rows = [{"frames": 1000, "lost": 50}, {"frames": 1025, "lost": 50}]
    found = series(*rows, {"frames": 3}, {"frames": 28}, {"frames": 53})
    assert found.verdict(4)[0] == "perfect"


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "frames": st.integers(0, (1 << 64) - 1),
                "late": st.integers(0, (1 << 32) - 1),
                "lost": st.integers(0, (1 << 32) - 1),
                "last_ns": st.integers(0, (1 << 64) - 1),
                "rate_millihertz": st.integers(0, (1 << 32) - 1),
            }
        ),
        min_size=1,
        max_size=60,
    )
)
def test_any_numbers_have_a_verdict(rows):
    verdict, reason = series(*rows).verdict(len(rows))
    assert verdict in ("perfect", "good", "poor", "unknown")
    assert len(reason) < 200


def told(source, *rows, now=10, name="film"):
    found = Series()
    for second, changes in enumerate(rows):
        found.add(second, second, reading(source=source, name=name, **changes))
    return said(found, "movie", "film", now)


def test_the_best_source_counts():
    assert counting([]) is None
    found = [told(source, *plays(11)) for source in reversed(SOURCES)]
    assert counting(found).source == "program"
    assert counting(found[:2]).source == "gstreamer"


def test_a_better_source_that_is_silent_does_not_count():
    silent, fresh = told("program", *plays(2), now=30), told("socket", *plays(31), now=30)
    assert counting([silent, fresh]) == fresh
    assert counting([silent]) is None


def test_of_several_the_worst_counts():
    right = told("vlc", *plays(11))
    lossy = told("vlc", *plays(10), {"frames": 250, "lost": 9}, name="other")
    assert counting([right, lossy]).name == "other"
