# SPDX-License-Identifier: GPL-2.0-or-later
"""The pressures and targets of the last minutes."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.auto_past import Row, summed_up

FIGURES = st.none() | st.floats(0, 5)


def test_of_a_step_the_largest_pressure_and_the_newest_target_are_told():
    rows = [
        Row(10.0, {"disk": 0.4, "network": None}, {"sda": 60.0}),
        Row(11.0, {"disk": 1.3, "network": None}, {"sda": 30.0}),
        Row(12.0, {"disk": 0.2, "network": 0.1}, {"sda": None, "sdb": 12.0}),
    ]
    assert summed_up(rows, 10.0, 99.0, 2.0) == {
        "step": 2.0,
        "at": [10.0, 12.0],
        "series": {
            "disk/pressure": [1.3, 0.2],
            "network/pressure": [None, 0.1],
            "sda/target_ms": [30.0, None],
            "sdb/target_ms": [None, 12.0],
        },
    }


@given(st.lists(st.tuples(st.floats(0, 100), FIGURES)), st.floats(0, 100))
def test_nothing_of_a_time_to_come_is_told_whatever_the_clock_is_set_to(rows, until):
    told = summed_up([Row(at, {"disk": value}, {}) for at, value in rows], 0.0, until, 1.0)
    assert told["at"] == sorted({float(int(at)) for at, _ in rows if at <= until})
