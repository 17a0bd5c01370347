# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.pooled: percentiles of many measurements together, and their interval."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.experiments import pooled
from measure.experiments.latencies import Latencies

WAITS = st.lists(st.floats(0.01, 1000), min_size=1, max_size=300)


@given(st.lists(st.tuples(WAITS, st.integers(0, 3)), min_size=1, max_size=6))
def test_a_pool_counts_each_measurement_as_often_as_asked(measured):
    together = [wait for waits, times in measured for wait in waits * times]
    found = pooled.Pool([waits for waits, _ in measured]).percentile99([t for _, t in measured])
    assert found == Latencies(together).percentile99_ms()


def noisy(seed: int, factor: float) -> tuple[list, list]:
    """Twelve pairs; each pair has its own minute, and the first of each is slower by a factor."""
    dice = random.Random(seed)
    mine, its = [], []
    for _ in range(12):
        minute = dice.choice([1.0, 1.0, 1.0, 2.5])
        mine.append([factor * minute * dice.expovariate(1) for _ in range(1000)])
        its.append([minute * dice.expovariate(1) for _ in range(1000)])
    return mine, its


@pytest.mark.parametrize("factor", [1.0, 1.5])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_slow_minutes_that_hit_both_leave_the_ratio(seed, factor):
    found = pooled.ratio_of_p99(*noisy(seed, factor))
    assert found["min"] <= found["median"] <= found["max"]
    assert found["median"] == pytest.approx(factor, rel=0.25)


@pytest.mark.parametrize("factor", [1.0, 0.97])
def test_the_interval_of_a_mean_holds_the_ratio_with_95_per_cent(factor):
    """Of ten rounds drawn anew it is somewhat too narrow: some 8 to 10 of 100 miss it."""
    dice = random.Random(7)
    held = 0
    for _ in range(100):
        found = pooled.mean_ratio([factor * math.exp(dice.gauss(0, 0.05)) for _ in range(10)])
        assert found["min"] <= found["median"] <= found["max"]
        held += found["min"] <= factor <= found["max"]
    assert 80 <= held <= 100


def test_the_mean_is_geometric_twice_and_half_cancel_out():
    found = pooled.mean_ratio([2.0, 0.5, 2.0, 0.5])
    assert found["median"] == pytest.approx(1.0)
    assert found["min"] == pytest.approx(0.5) and found["max"] == pytest.approx(2.0)


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [-1.0], [math.nan]])
def test_rounds_with_nothing_in_one_have_no_mean(ratios):
    with pytest.raises(ValueError, match="nothing"):
        pooled.mean_ratio(ratios)


def test_what_never_ended_makes_the_ratio_infinite():
    calm = [[1.0] * 1000] * 12
    starved = [[1.0] * 900 + [math.inf] * 100] * 12
    assert pooled.ratio_of_p99(starved, calm)["min"] == math.inf
    assert pooled.ratio_of_p99(calm, starved)["median"] == math.inf
    with pytest.raises(ValueError, match="nothing"):
        pooled.ratio_of_p99([], [])
