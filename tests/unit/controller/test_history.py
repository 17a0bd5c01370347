# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer about a domain's past, against its definition."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain import history
from sluice_controller.domain.history import HISTORY_FIELDS, Summary

POINTS = 5
KEYS = 64
VALUES = st.none() | st.integers(0, 99)
SAMPLES = st.dictionaries(st.sampled_from("ab"), st.tuples(*[VALUES] * len(HISTORY_FIELDS)))
ROWS = st.lists(st.tuples(st.integers(0, 40).map(lambda n: n / 2), SAMPLES), max_size=30)


def merged(name, values):
    present = [value for value in values if value is not None]
    if name == "limit_bytes_per_second":
        return values[-1] if values else None
    if not present:
        return None
    return max(present) if name == "held_p99_ms" else sum(present) / len(present)


def defined(rows, since, step):
    """Of rows that are oldest first."""
    order = sorted({(at - since) // step for at, _ in rows})[-POINTS:]
    series = {}
    of_step = {i: [s for at, s in rows if (at - since) // step == i] for i in order}
    for key in sorted({key for samples in of_step.values() for s in samples for key in s}):
        for position, name in enumerate(HISTORY_FIELDS):
            series[f"{key}/{name}"] = [
                merged(name, [s[key][position] for s in of_step[i] if key in s]) for i in order
            ]
    return {"step": step, "at": [since + i * step for i in order], "series": series}


@given(ROWS, st.sampled_from([-3.0, 0.0, 1.25]), st.sampled_from([1.0, 2.5, 100.0]))
def test_the_newest_steps_are_summed_up(rows, since, step):
    rows = sorted(rows, key=lambda row: row[0])
    with patch.object(history, "MAX_HISTORY_POINTS", POINTS):
        summary = Summary(since, step)
        for at, samples in reversed(rows):
            if not summary.add(at, samples):
                break
    assert summary.as_json() == defined(rows, since, step)


def test_of_names_that_come_and_go_the_newest_are_shown():
    summary = Summary(0.0, 1.0)
    for at in range(99, 0, -1):
        assert summary.add(float(at), {f"c{at}/blk-read": (1, None, 0, 0)})
    series = summary.as_json()["series"]
    assert {key.split("/")[0] for key in series} == {f"c{n}" for n in range(99, 99 - KEYS, -1)}


@pytest.mark.parametrize(
    ("span_s", "seconds"), [(0, 1), (3600, 1), (4000, 1), (4001, 2), (2592000, 648)]
)
def test_of_a_long_time_not_every_second_is_read(span_s, seconds):
    assert history.seconds_a_row(span_s) == seconds
