# SPDX-License-Identifier: GPL-2.0-or-later
"""When VMs without a stream leave processors to a stream, how far, and when they get them back."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.easing import (
    ELSEWHERE,
    ELSEWHERE_NS,
    IDLE,
    LADDER,
    LONGEST_CALM_NS,
    NO_QUOTA_US,
    NOBODY,
    REPEAT_NS,
    RISK,
    RISKY_ROUNDS,
    ROOM,
    SECOND,
    UNSEEN_NS,
    Move,
    Share,
    State,
    eased,
    every_share,
    sentence,
    step,
)
from sluice_controller.domain.processors import Wait

TOP = len(LADDER)
levels = st.integers(0, TOP)
own_shares = st.builds(
    Share,
    st.integers(1, 262_144),
    st.just(NO_QUOTA_US) | st.integers(1000, 10**7),
    st.integers(1000, 10**6),
)


class Run:
    """Looks once a second; `pressure_at` tells the pressure from the level."""

    def __init__(self, pressure_at, can_ease=True):
        self.pressure_at, self.can_ease = pressure_at, can_ease
        self.state, self.now_s, self.moves = State(), 1000, []

    def seconds(self, count):
        for _ in range(count):
            self.now_s += 1
            found = self.pressure_at(self.state.level)
            pressures = found if isinstance(found, dict) else {"film": found}
            self.state, move = step(self.state, pressures, self.can_ease, self.now_s * SECOND)
            if move:
                self.moves.append((self.now_s - 1000, move.kind, move.level))
        return self


# Shares


@given(own_shares, levels)
def test_no_level_gives_a_vm_more_than_its_own_and_none_nothing(own, level):
    share = eased(own, level)
    assert min(2, own.weight) <= share.weight <= own.weight
    assert share.period_us == own.period_us
    if own.quota_us > 0:
        assert 1000 <= share.quota_us <= own.quota_us
    assert share.quota_us == own.quota_us or share.quota_us >= 1000
    assert (share in every_share(own)) == (share != own)


@given(own_shares, st.integers(1, TOP))
def test_each_level_takes_at_least_as_much_as_the_one_before(own, level):
    def of_processor(share):
        return share.quota_us / share.period_us if share.quota_us > 0 else float("inf")

    less, more = eased(own, level), eased(own, level - 1)
    assert less.weight <= more.weight
    assert of_processor(less) <= of_processor(more)


def test_weights_come_before_quotas():
    own = Share(1024)
    assert [eased(own, level) for level in range(TOP + 1)] == [
        own,
        Share(128),
        Share(16),
        Share(16, 50_000),
        Share(16, 12_500),
    ]


# Steps


def test_a_short_wait_moves_nothing():
    peaks = iter([3.0] * (RISKY_ROUNDS - 1) + [0.9] + [3.0] * (RISKY_ROUNDS - 1) + [0.9])
    assert Run(lambda _level: next(peaks)).seconds(2 * RISKY_ROUNDS).moves == []


def test_steps_go_up_until_the_stream_has_its_processor_and_down_after_calm():
    run = Run(lambda level: 2.0 if level < 2 else 0.8).seconds(60)
    assert run.moves == [(3, RISK, 1), (6, RISK, 2)]
    run.pressure_at = lambda _level: 0.1
    run.seconds(40)
    assert [m[1:] for m in run.moves[2:]] == [(ROOM, 1), (ROOM, 0)]


def test_a_step_down_that_brings_the_wait_back_is_tried_more_and_more_seldom():
    run = Run(lambda level: 2.0 if level < 1 else 0.1).seconds(1200)
    downs = [at for at, kind, _level in run.moves if kind == ROOM]
    waits = [after - before for before, after in zip(downs, downs[1:], strict=False)]
    assert waits == sorted(waits)
    assert waits[-1] > LONGEST_CALM_NS / SECOND
    assert run.state.level <= 1


def test_a_step_down_that_brings_the_wait_back_is_undone_at_once():
    run = Run(lambda level: 2.0 if level < 2 else 0.1).seconds(40)
    down = next(at for at, kind, level in run.moves if kind == ROOM)
    assert (down + 1, RISK, 2) in run.moves


def test_steps_that_do_not_help_are_taken_back_and_tried_more_and_more_seldom():
    run = Run(lambda _level: 3.0).seconds(300)
    ends = [at for at, kind, _level in run.moves if kind == ELSEWHERE]
    assert ends[0] <= 20
    assert ends[1] - ends[0] >= ELSEWHERE_NS / SECOND
    assert ends[2] - ends[1] > ends[1] - ends[0]
    assert max(level for _at, _kind, level in run.moves) == TOP
    # Help in part is help.
    assert Run(lambda level: 3.0 - 0.4 * level).seconds(300).state.level == TOP


def test_nobody_who_could_leave_anything_is_said_seldom():
    run = Run(lambda _level: 3.0, can_ease=False).seconds(REPEAT_NS // SECOND + 100)
    assert [kind for _at, kind, _level in run.moves] == [NOBODY, NOBODY]
    assert run.state.level == 0


def test_missing_knowledge_loosens_nothing_for_a_while_and_no_stream_does_at_once():
    run = Run(lambda level: 2.0 if level < 2 else 0.8).seconds(10)
    run.pressure_at = lambda _level: None
    run.seconds(UNSEEN_NS // SECOND - 1)
    assert run.state.level == 2
    run.seconds(5)
    assert run.state.level == 0 and run.moves[-1][1] == IDLE
    run = Run(lambda level: 2.0 if level < 2 else 0.8).seconds(10)
    run.pressure_at = lambda _level: {}
    run.seconds(1)
    assert run.state.level == 0 and run.moves[-1][1] == IDLE


def test_the_worst_stream_counts():
    run = Run(lambda _level: {"film": 0.1, "radio": 2.0, "off": None}).seconds(3)
    assert run.state.level == 1


@given(st.lists(st.none() | st.floats(0, 5), max_size=200), st.booleans())
def test_whatever_is_seen_levels_change_by_a_step_or_fall_to_none(pressures, can_ease):
    state = State()
    for i, pressure in enumerate(pressures):
        after, move = step(state, {"film": pressure}, can_ease, (1000 + i) * SECOND)
        assert 0 <= after.level <= TOP
        assert abs(after.level - state.level) <= 1 or after.level == 0
        assert after.level == state.level or move is not None
        assert can_ease or after.level == 0
        state = after


# Words


def test_a_move_reads_as_a_sentence():
    wait = Wait(420.0)
    others = ["batch", "web"]
    assert sentence(Move(RISK, "film", 1), "media", wait, others) == (
        "Stall risk on film: media waits 420 ms of each second for a processor, 200 ms can be "
        "borne; batch, web get 1/8 of their weight"
    )
    assert "1/64 of their weight and 12.5% of each vCPU's time" in sentence(
        Move(RISK, "film", 4), "media", wait, others
    )
    assert "a, b, c, d and 2 more" in sentence(Move(ROOM, "film", 0), "media", wait, list("fedcba"))
