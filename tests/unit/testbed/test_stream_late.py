# SPDX-License-Identifier: GPL-2.0-or-later
"""Datagrams that come late or twice: no fault is hidden by them, none is invented."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stream import Meter, Window, total
from testbed.stream.packets import LATE_MOST, Sequence
from testbed.stream.verdict import delivered_ratio, verdict_of
from unit.testbed.stream_data import Programme


def count(numbers) -> Sequence:
    sequence = Sequence()
    for number in numbers:
        sequence.add(number % 65536)
    return sequence


def test_a_datagram_that_comes_twice_does_not_take_another_s_loss_back():
    sequence = count([1, 2, 4, 4, 5])
    assert (sequence.received, sequence.lost) == (4, 1)


def test_a_late_datagram_that_comes_twice_takes_one_loss_back():
    sequence = count([1, 2, 5, 3, 3, 6])
    assert (sequence.received, sequence.lost) == (5, 1)


@pytest.mark.parametrize(("others", "lost", "restarts"), [(LATE_MOST - 1, 0, 0), (LATE_MOST, 1, 1)])
def test_a_loss_is_taken_back_up_to_the_limit_beyond_it_the_sender_restarted(
    others, lost, restarts
):
    late = 65_500
    # The second copy of it changes nothing in either case.
    sequence = count([late - 1, *range(late + 1, late + 1 + others), late, late])
    assert (sequence.lost, sequence.restarts) == (lost, restarts)


def test_a_loss_before_a_restart_stays_lost():
    sequence = count([10, 11, 13, 40_000, 40_001, 12])
    assert (sequence.lost, sequence.restarts) == (1, 2)


@given(
    first=st.integers(0, 65535),
    copies=st.lists(st.integers(0, 3), min_size=2, max_size=300).filter(lambda c: c[0] and c[-1]),
)
def test_copies_change_nothing(first, copies):
    """Each datagram comes zero to three times, one copy after the other."""
    sequence = count(first + n for n, times in enumerate(copies) for _ in range(times))
    came = sum(1 for times in copies if times)
    assert (sequence.received, sequence.lost) == (came, len(copies) - came)


@given(
    first=st.integers(0, 65535),
    fates=st.lists(st.sampled_from(["on time", "late", "lost"]), min_size=1, max_size=300),
    delay=st.integers(1, 40),
)
def test_only_what_never_came_is_lost(first, fates, delay):
    """Late datagrams come ``delay`` places after their own."""
    places = [(0, 0)]
    for number, fate in enumerate(fates, start=1):
        if fate != "lost":
            places.append((number + (delay + 0.5 if fate == "late" else 0), number))
    last = len(fates) + 1
    order = [number for _, number in sorted(places)]
    sequence = count(first + number for number in [*order, last])
    assert (sequence.received, sequence.lost) == (2 + len(order) - 1, fates.count("lost"))


def test_a_window_that_takes_a_loss_back_hides_no_other_fault():
    window = Window(window_ms=500, received_datagrams=300, lost_datagrams=-1, pictures=12)
    assert delivered_ratio(window) == 1.0
    assert verdict_of(window) == "perfect"
    faulty = Window(window_ms=500, received_datagrams=300, lost_datagrams=-1, stalls=1, pictures=12)
    assert verdict_of(faulty) != "perfect"


def test_a_datagram_that_is_late_for_its_window_is_no_loss_in_the_sum():
    meter, programme = Meter(1.0), Programme()
    sent = [programme.datagram() for _ in range(40)]
    order = [*range(10), *range(11, 20)]
    for place, index in enumerate(order):
        meter.add(sent[index], place * programme.step_s)
    first = meter.close_window(0.03)
    for place, index in enumerate([10, *range(20, 40)]):
        meter.add(sent[index], 0.03 + place * programme.step_s)
    second = meter.close_window(0.07)
    assert (first.lost_datagrams, second.lost_datagrams) == (1, -1)
    whole = total([first, second])
    assert (whole.received_datagrams, whole.lost_datagrams) == (40, 0)
    # The packets' order was broken all the same, and a player may show it.
    assert whole.continuity_errors == 1
    assert verdict_of(whole) != "perfect"
