# SPDX-License-Identifier: GPL-2.0-or-later
"""The outer loop of the gate: its steps, and bounds that hold whatever it sees."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain import gate
from sluice_controller.domain.gate import Reader, State, depth_of, steer

MS = 1_000_000
SECOND = 1000 * MS
# 128 KiB at 1 MiB/s: a read is due each 125 ms.
AT_EASE = Reader("movie", 1024.0 * 1024, 128.0 * 1024, 1, 0.1, 0.0, 0.2, 1024.0 * 1024)
WAITING = replace(AT_EASE, mean_in_flight=0.9, outstanding=0.9)
STARVING = replace(AT_EASE, mean_in_flight=1.0, outstanding=1.0, bytes_per_second=0.5e6)


NEW = State()


def steered(reader, state=NEW, seconds=10.0, held=True, unseen=False, from_ns=SECOND):
    """The last state and steering, and all targets on the way."""
    targets = []
    for tick in range(round(seconds * 10)):
        now_ns = from_ns + tick * 100 * MS
        state, steering = steer(
            [reader], state, held=held, unseen=unseen, now_ns=now_ns, passed_s=0.1
        )
        targets.append(steering.target_ns)
    return state, steering, targets


def test_without_streams_the_gate_is_open():
    _, steering = steer([], State(0.5), held=True, unseen=False, now_ns=0, passed_s=0.1)
    assert steering.target_ns == 0


def test_the_target_is_a_part_of_what_the_stream_bears():
    _, steering, _ = steered(AT_EASE, seconds=0.1, held=False)
    assert steering.target_ns == pytest.approx(0.4 * 0.125 * SECOND)
    deep = replace(AT_EASE, depth=4)
    _, steering, _ = steered(deep, seconds=0.1, held=False)
    assert steering.target_ns == pytest.approx(0.4 * 0.5 * SECOND)


def test_a_film_of_a_low_rate_bears_no_more_than_its_player_buffers():
    slow = replace(AT_EASE, nominal_bytes_per_second=128.0 * 1024)
    assert (slow.lasts_s, slow.bears_s) == (1.0, gate.MOST_D_S)
    # A tenth of a second in each: a third of what it bears.
    assert slow.waits == pytest.approx(0.1 / gate.MOST_D_S)


def test_of_several_streams_the_hastiest_counts():
    slow = replace(AT_EASE, name="slow", nominal_bytes_per_second=64.0 * 1024)
    _, steering = steer([slow, AT_EASE], State(), held=False, unseen=False, now_ns=0, passed_s=0.1)
    assert steering.target_ns == pytest.approx(0.4 * 0.125 * SECOND)


@pytest.mark.parametrize(
    ("reader", "before", "factor"),
    [
        (replace(AT_EASE, oldest_s=0.16), 0.1, 0.5),
        (STARVING, 0.1, 0.5),
        (WAITING, 0.9, 0.75),
        (WAITING, 0.7, 1.0),
    ],
    ids=["late", "starving", "waiting", "near its edge"],
)
def test_a_stream_in_need_lowers_the_target_and_shrinks_the_windows(reader, before, factor):
    state, steering, _ = steered(reader, State(waiting={"movie": before}), seconds=0.1)
    assert steering.target_ns == pytest.approx(factor * 0.4 * 0.125 * SECOND)
    assert steering.shrink == (0.7 if factor < 1 else 1.0)
    assert state.adjust == factor


def test_cuts_wait_for_their_effect():
    late = replace(AT_EASE, oldest_s=0.16)
    _, _, targets = steered(late, seconds=0.5)
    # At 0, 200 and 400 ms: 150 ms must have passed.
    assert len(set(targets)) == 3


def test_cuts_wait_until_the_work_in_flight_is_done():
    slow = replace(AT_EASE, nominal_bytes_per_second=128.0 * 1024, oldest_s=1.3)
    _, _, targets = steered(slow, State(4.0), seconds=0.3)
    # The first cut leaves 240 ms of work before the read.
    assert len(set(targets)) == 1


def test_near_the_last_cut_the_target_rises_no_faster_than_waiting_is_told():
    slow = replace(AT_EASE, nominal_bytes_per_second=128.0 * 1024)
    far, _, _ = steered(slow, State(0.2, cut_from=4.0), seconds=1.0)
    assert far.adjust == pytest.approx(0.2 * gate.RISE**10)
    near, _, _ = steered(slow, State(0.2, cut_from=0.3), seconds=1.0)
    assert near.adjust == pytest.approx(0.2 * gate.RISE ** (10 / 8))


def test_cuts_of_one_cause_remember_where_they_began():
    late = replace(AT_EASE, oldest_s=0.16)
    state, _, _ = steered(late, State(1.5), seconds=1.0)
    assert state.adjust < 0.2 and state.cut_from == 1.5


def test_the_target_stays_below_its_edge_for_longer_after_each_relapse():
    state, now_ns, holds = State(2.0), 1000 * SECOND, []
    for _ in range(6):
        cut, _, _ = steered(replace(AT_EASE, oldest_s=0.16), state, 0.1, from_ns=now_ns)
        assert (cut.cut_from, cut.until_ns) == (state.adjust, now_ns + max(cut.hold_ns, 0))
        holds.append(cut.hold_ns / SECOND)
        seconds = holds[-1] - 1
        held, _, _ = steered(AT_EASE, cut, seconds, from_ns=now_ns + SECOND)
        assert held.adjust == pytest.approx(gate.HELD * cut.cut_from)
        now_ns += round(seconds + 5) * SECOND
        state, _, _ = steered(AT_EASE, held, 4, from_ns=now_ns)
        assert state.adjust > held.adjust
        now_ns += 4 * SECOND
    assert holds == [20, 40, 80, 160, 300, 300]


def test_ease_raises_the_target_only_where_the_gate_held():
    state, _, _ = steered(AT_EASE, held=True, seconds=60)
    assert state.adjust == gate.MOST_ADJUST
    state, _, _ = steered(AT_EASE, held=False)
    assert state.adjust == 1.0
    for before in (0.2, 3.0):
        state, _, _ = steered(AT_EASE, State(before), held=False)
        assert state.adjust == pytest.approx(1.0, abs=0.1)


def test_a_stream_that_is_not_seen_loosens_nothing():
    state, _, _ = steered(AT_EASE, State(0.5), unseen=True)
    assert state.adjust == 0.5
    state, _, _ = steered(AT_EASE, State(3.0), unseen=True)
    assert state.adjust == 1.0


@pytest.mark.parametrize(
    ("asked", "depth"),
    [((), 1), ((0, 0), 1), ((10,), 1), ((95, 5), 1), ((50, 50), 2), ((10, 10, 10, 70), 4)],
)
def test_the_depth_is_learnt_low(asked, depth):
    assert depth_of(asked) == depth


readers = st.lists(
    st.builds(
        Reader,
        name=st.sampled_from("abc"),
        nominal_bytes_per_second=st.floats(1024, 1e9),
        request_bytes=st.floats(512, 1e8),
        depth=st.integers(1, 16),
        mean_in_flight=st.floats(0, 100),
        oldest_s=st.floats(0, 1e6),
        outstanding=st.floats(0, 1),
        bytes_per_second=st.floats(0, 1e10),
    ),
    max_size=4,
)


@given(st.lists(st.tuples(readers, st.booleans(), st.booleans()), max_size=30))
def test_bounds_whatever_is_seen(ticks):
    state = State()
    for number, (seen, held, unseen) in enumerate(ticks):
        before = state
        state, steering = steer(
            seen, state, held=held, unseen=unseen, now_ns=number * 100 * MS, passed_s=0.1
        )
        assert gate.LEAST_ADJUST <= state.adjust <= gate.MOST_ADJUST
        assert (steering.target_ns == 0) == (not seen)
        assert steering.shrink in (1.0, gate.SHRINK)
        if unseen and seen:
            assert state.adjust <= max(before.adjust, 1.0)
        if seen and steering.shrink < 1:
            assert state.adjust <= before.adjust
