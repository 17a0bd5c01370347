# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.accuracy: errors of a counter against a rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.experiments.accuracy import (
    Sample,
    assess,
    bytes_at,
    fluid_wait_seconds,
    longest_standstill_seconds,
    mean_bps,
)


def _steady(rate_bps: float, seconds: float = 12.0, step: float = 0.1):
    count = round(seconds / step)
    return [Sample(n * step, n * step * rate_bps) for n in range(count + 1)]


def test_an_exact_flow_has_no_error():
    found = assess(_steady(1000.0), 1000.0, 10, skip_seconds=1.0, interval_seconds=1.0)
    assert found.mean_error_ratio == pytest.approx(0, abs=1e-9)
    assert found.worst_window_error_ratio == pytest.approx(0, abs=1e-9)
    assert found.quantum_ratio == 0.01


def test_one_slow_second_shows_in_the_worst_window_and_a_tenth_of_it_in_the_mean():
    samples = [Sample(float(n), 1000.0 * n - (500.0 if n >= 5 else 0.0)) for n in range(13)]
    found = assess(samples, 1000.0, 1, skip_seconds=1.0, interval_seconds=1.0)
    assert found.worst_window_error_ratio == pytest.approx(-0.5)
    assert found.mean_error_ratio == pytest.approx(-0.05)


def test_a_slow_reading_makes_both_windows_at_its_edge_unsure():
    samples = [Sample(float(n), 1000.0 * n, 0.02 if n == 5 else 0.001) for n in range(13)]
    found = assess(samples, 1000.0, 1, skip_seconds=1.0, interval_seconds=1.0)
    # Edges lie on samples here, and the next sample counts too.
    assert found.clock_ratio == pytest.approx(0.04)
    assert assess(_steady(1.0), 1.0, 1, skip_seconds=1.0, interval_seconds=1.0).clock_ratio == 0


def test_readings_that_lie_apart_make_the_time_between_them_unsure():
    samples = [sample for sample in _steady(1000.0) if not 4.93 < sample.at_seconds < 5.87]
    found = assess(samples, 1000.0, 1, skip_seconds=1.0, interval_seconds=0.2)
    # 0.1 s around each edge as asked for; 1.0 s around the one at 5 s.
    assert found.clock_ratio == pytest.approx((1.0 - 0.2) / 2)
    assert found.mean_error_ratio == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("moved_at", "longest"),
    [
        ((0.5, 1.0, 2.0, 2.25, 4.0, 4.5), 1.75),
        ((0.5,), 4.0),
        ((1.0, 2.0, 3.0), 2.0),
        ((2.0, 3.0, 4.0, 4.75, 9.0), 1.0),
    ],
)
def test_the_longest_standstill_lies_within_what_is_measured(moved_at, longest):
    times = [n / 4 for n in range(41)]
    samples = [Sample(at, 100.0 * sum(moved <= at for moved in moved_at)) for at in times]
    assert longest_standstill_seconds(samples, 1.0, 5.0) == longest


def test_a_steady_flow_stands_still_for_one_interval_of_reading():
    found = assess(_steady(1000.0, step=0.125), 1000.0, 1, skip_seconds=1.0, interval_seconds=1.0)
    assert found.longest_standstill_ms == 125.0
    stuck = [Sample(at, min(count, 5000.0)) for at, count, _ in _steady(1000.0)]
    found = assess(stuck, 1000.0, 1, skip_seconds=1.0, interval_seconds=1.0)
    assert found.longest_standstill_ms == pytest.approx(6000.0)


def test_the_mean_is_of_what_is_not_skipped():
    samples = [Sample(0.0, 0.0), Sample(1.0, 9e6), Sample(3.0, 9e6 + 2000.0)]
    assert mean_bps(samples, skip_seconds=1.0) == 1000.0
    with pytest.raises(ValueError, match="no more than 3 s"):
        mean_bps(samples, skip_seconds=3.0)


def test_samples_that_are_too_short_are_refused():
    with pytest.raises(ValueError, match="outside"):
        assess(_steady(1.0, seconds=5.0), 1.0, 1, skip_seconds=1.0, interval_seconds=1.0)


def test_the_fluid_wait_of_sixteen_requests():
    assert fluid_wait_seconds(16, 65536, 262144.0) == 4.0


@given(
    rate=st.floats(1.0, 1e9),
    factor=st.floats(0.5, 2.0),
    skip=st.floats(0.0, 1.5),
)
def test_a_steady_flow_has_the_same_error_in_every_window(rate, factor, skip):
    found = assess(_steady(rate * factor), rate, 1, skip_seconds=skip, interval_seconds=1.0)
    assert found.mean_error_ratio == pytest.approx(factor - 1, abs=1e-6)
    assert found.worst_window_error_ratio == pytest.approx(factor - 1, abs=1e-6)


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=30), st.floats(0.0, 1.0))
def test_interpolation_stays_between_its_neighbours(steps, where):
    samples = [Sample(0.0, 0.0)]
    for step in steps:
        samples.append(Sample(samples[-1].at_seconds + step, samples[-1].bytes + 3 * step))
    at = samples[-1].at_seconds * where
    assert bytes_at(samples, at) == pytest.approx(3 * at, rel=1e-6, abs=1e-6)
