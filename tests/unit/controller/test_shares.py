# SPDX-License-Identifier: GPL-2.0-or-later
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.shares import Load, first_split, floor_of, is_hungry, scaled, split

MIB = 1024.0 * 1024
FLOORS = {"blk-read": MIB, "blk-write": MIB}


@st.composite
def loads(draw):
    count = draw(st.integers(1, 6))
    return [
        Load(
            "vm",
            f"c{i}",
            draw(st.sampled_from(["blk-read", "blk-write"])),
            draw(st.floats(0, 1e9)),
            0.0,
            draw(st.integers(0, 3)),
            draw(st.none() | st.floats(4 * MIB, 1e9)),
            draw(st.sampled_from([0.0, 0.0, MIB / 2, 4 * MIB])),
        )
        for i in range(count)
    ]


levels = st.floats(10 * MIB, 1e9)


@given(levels, loads())
def test_caps_stay_between_the_floor_and_the_operators_limit(level, some):
    before = first_split(level, some, FLOORS)
    for caps in (before, split(level, some, FLOORS, before), split(level, some, FLOORS, {})):
        assert set(caps) == {load.key for load in some}
        for load in some:
            assert caps[load.key] >= max(MIB, load.reserved)
            assert load.own_limit is None or caps[load.key] <= load.own_limit


@given(levels, loads(), st.floats(0.01, 1))
def test_not_even_draining_goes_below_what_is_reserved(level, some, factor):
    before = first_split(level, some, FLOORS)
    for load in some:
        assert scaled(factor, before, some, FLOORS)[load.key] >= max(MIB, load.reserved)


@given(levels, loads())
def test_hungry_classes_get_no_more_than_is_left_beyond_their_floors(level, some):
    before = first_split(level, some, FLOORS)
    caps = split(level, some, FLOORS, before)
    hungry = [load for load in some if is_hungry(load, before[load.key])]
    used = sum(load.bytes_per_second for load in some if load not in hungry)
    given_out = sum(caps[load.key] for load in hungry)
    assert given_out <= max(0.0, level - used) * 1.000001 + sum(
        floor_of(load, FLOORS) for load in hungry
    )


def test_an_idle_class_costs_nothing_and_has_room_to_grow():
    busy = Load("vm", "busy", "blk-read", 40e6, backlog_requests=5)
    idle = Load("vm", "idle", "blk-read", 0.0)
    caps = split(40e6, [busy, idle], FLOORS, {busy.key: 40e6, idle.key: 20e6})
    assert caps[busy.key] == 40e6
    assert caps[idle.key] == MIB


def test_where_nobody_is_hungry_there_is_room_for_bursts():
    one = Load("vm", "one", "blk-read", 5e6)
    caps = split(40e6, [one], FLOORS, {one.key: 30e6})
    assert caps[one.key] == 5e6 + 17.5e6


def test_two_hungry_classes_drift_to_equal_parts():
    one = Load("vm", "one", "blk-read", 0, backlog_requests=1)
    two = Load("vm", "two", "blk-read", 0, backlog_requests=1)
    caps = {one.key: 38e6, two.key: 2e6}
    for _ in range(60):
        caps = split(40e6, [one, two], FLOORS, caps)
    assert abs(caps[one.key] - 20e6) < 0.2e6
    assert abs(caps[two.key] - 20e6) < 0.2e6


def test_a_newcomer_is_not_stuck_at_the_floor():
    old = Load("vm", "old", "blk-read", 40e6, backlog_requests=1)
    new = Load("vm", "new", "blk-read", MIB, backlog_requests=1)
    caps = split(40e6, [old, new], FLOORS, {old.key: 40e6, new.key: MIB})
    assert caps[new.key] > 3 * MIB


def test_what_is_short_of_a_reservation_comes_from_the_others():
    promised = Load("vm", "promised", "blk-read", 5e6, backlog_requests=1, reserved=30e6)
    free = Load("vm", "free", "blk-read", 5e6, backlog_requests=1)
    caps = split(40e6, [promised, free], FLOORS, {})
    assert caps[promised.key] == 30e6
    assert caps[free.key] == 10e6


def test_what_an_own_limit_leaves_goes_to_the_others():
    held = Load("vm", "held", "blk-read", 5e6, backlog_requests=1, own_limit=5e6)
    free = Load("vm", "free", "blk-read", 5e6, backlog_requests=1)
    caps = split(40e6, [held, free], FLOORS, {})
    assert caps[held.key] == 5e6
    assert caps[free.key] == 35e6
