# SPDX-License-Identifier: GPL-2.0-or-later
"""The player's buffer, driven by the stream's clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stream.playout import PCR_HZ, PCR_WRAP, Playout

STEP_S = 0.04


def feed(playout: Playout, arrivals, first_pcr: int = 0, step_s: float = STEP_S) -> None:
    """A clock reference each ``step_s`` of the programme, at the given times."""
    for index, now in enumerate(arrivals):
        playout.clock((first_pcr + round(index * step_s * PCR_HZ)) % PCR_WRAP, now)


def steady(count: int, delay_s: float = 0.0) -> list[float]:
    return [delay_s + index * STEP_S for index in range(count)]


def test_a_steady_stream_plays():
    playout = Playout(1.0)
    feed(playout, steady(250))
    assert (playout.stalls, playout.stall_seconds(10.0)) == (0, 0.0)


def test_a_gap_shorter_than_the_buffer_is_not_seen():
    playout = Playout(1.0)
    arrivals = [t if t < 5 else max(t, 5.9) for t in steady(250)]
    feed(playout, arrivals)
    assert playout.stalls == 0


def test_a_gap_longer_than_the_buffer_is_one_stall_until_the_buffer_is_full_again():
    playout = Playout(1.0)
    # Data up to 5.0 s plays until 6.0 s; it goes on at 8.0 s and plays from 9.0 s.
    feed(playout, [t if t <= 5 else t + 3 for t in steady(250)])
    assert playout.stalls == 1
    assert playout.stall_seconds(12.0) == pytest.approx(3.0, abs=2 * STEP_S)


def test_an_ongoing_stall_grows_with_time():
    playout = Playout(0.5)
    feed(playout, steady(26))  # one second of programme, plays until 1.5 s
    playout.advance(2.0)
    assert playout.stalls == 1
    assert playout.stall_seconds(2.0) == pytest.approx(0.5, abs=0.01)
    assert playout.stall_seconds(3.0) == pytest.approx(1.5, abs=0.01)


def test_a_hole_in_the_programme_is_a_stall_of_its_length():
    playout = Playout(1.0)
    feed(playout, steady(100))
    playout.clock(round((100 * STEP_S + 1.2) * PCR_HZ), 4.0)
    assert playout.stalls == 1
    assert playout.stall_seconds(4.0) == pytest.approx(1.2 + STEP_S, abs=0.01)


def test_the_clock_may_wrap():
    playout = Playout(1.0)
    feed(playout, steady(250), first_pcr=PCR_WRAP - 3 * PCR_HZ)
    assert (playout.stalls, playout.restarts) == (0, 0)


@pytest.mark.parametrize("jump_s", [-30.0, 30.0])
def test_a_programme_that_begins_anew_goes_on_seamlessly(jump_s):
    playout = Playout(1.0)
    feed(playout, steady(1000))
    start = 1000 * STEP_S
    for index in range(250):
        pcr = round((start + jump_s + index * STEP_S) * PCR_HZ) % PCR_WRAP
        playout.clock(pcr, start + index * STEP_S)
    assert (playout.stalls, playout.restarts) == (0, 1)


def test_before_the_first_data_nothing_stalls():
    playout = Playout(1.0)
    playout.advance(100.0)
    assert (playout.stalls, playout.stall_seconds(100.0)) == (0, 0.0)


@given(
    jitter=st.lists(st.floats(0, 0.9), min_size=20, max_size=300),
    buffer_s=st.floats(0.95, 2.0),
)
def test_jitter_within_the_buffer_never_stalls(jitter, buffer_s):
    playout = Playout(buffer_s)
    arrivals, last = [], 0.0
    for index, late in enumerate([0.0, *jitter]):
        last = max(last, index * STEP_S + late)
        arrivals.append(last)
    feed(playout, arrivals)
    assert playout.stalls == 0


@given(
    waits=st.lists(st.floats(0, 2.0), min_size=1, max_size=100),
    buffer_s=st.floats(0.1, 1.5),
)
def test_stalled_time_never_shrinks_and_never_exceeds_the_time_that_passed(waits, buffer_s):
    playout = Playout(buffer_s)
    now = before = 0.0
    for index, wait in enumerate(waits):
        now += wait
        playout.clock(round(index * STEP_S * PCR_HZ), now)
        stalled = playout.stall_seconds(now)
        assert before - 1e-9 <= stalled <= now + 1e-9
        before = stalled
    assert playout.stall_seconds(now) == 0 or playout.stalls > 0
