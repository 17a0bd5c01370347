# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's settings: their ranges, and what follows from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import __main__ as command
from demo.plan import BadPlan, Plan
from demo.run import RunError

RANGES = [
    ("link_mbit", 10, 10_000),
    ("readers", 1, 12),
    ("wgets", 1, 16),
    ("overload", 0.1, 10.0),
    ("control_s", 5, 120),
    ("unshaped_s", 5, 300),
    ("auto_s", 5, 600),
    ("ramp_s", 0, 60),
    ("settle_most_s", 10, 300),
]


@pytest.mark.parametrize(("name", "least", "most"), RANGES)
def test_both_ends_of_a_range_are_in_it_and_the_next_values_are_not(name, least, most):
    for value in (least, most):
        assert getattr(Plan(**{name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(BadPlan, match=f"{name} is {value}; use {least} to {most}"):
            Plan(**{name: value})


@pytest.mark.parametrize("name", ["overload", "control_s", "ramp_s"])
def test_what_is_no_number_is_out_of_range(name):
    with pytest.raises(BadPlan, match=name):
        Plan(**{name: float("nan")})


@given(
    control=st.floats(5, 120),
    unshaped=st.floats(5, 300),
    auto=st.floats(5, 600),
    ramp=st.floats(0, 60),
    settle=st.floats(10, 300),
)
def test_loads_last_longer_than_everything_they_are_needed_for(
    control, unshaped, auto, ramp, settle
):
    plan = Plan(
        control_s=control, unshaped_s=unshaped, auto_s=auto, ramp_s=ramp, settle_most_s=settle
    )
    assert plan.longest_s > control + unshaped + auto + settle + 2 * ramp


def test_a_film_that_was_not_made_is_refused_with_those_that_were():
    with pytest.raises(BadPlan, match="film_mbit is 4; there are films of 7, 3, 1.5"):
        Plan(film_mbit=4.0)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "0", "51", "fast"])
def test_a_speed_of_the_disk_that_cannot_be_is_refused_in_a_sentence(text, monkeypatch, capsys):
    monkeypatch.setattr(command.sys, "argv", ["demo", f"--disk-mb={text}"])
    with pytest.raises(SystemExit) as ended:
        command.parse()
    assert ended.value.code == 2
    assert "disk" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("problem", [OSError("no space left"), RunError("no samples")])
def test_a_demo_that_could_not_run_is_no_bar_that_does_not_hold(problem, monkeypatch):
    def play(*_arguments):
        raise problem

    monkeypatch.setattr(command, "parse", Plan)
    monkeypatch.setattr(command, "play", play)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command.patience, "use", lambda _factor: None)
    assert command.main() == 2
