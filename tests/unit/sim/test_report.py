# SPDX-License-Identifier: GPL-2.0-or-later
"""The report's table."""

from dataclasses import replace

from sim.figures import Figures
from sim.report import as_json, percentile, table

RUN = Figures(
    kind="ssd",
    seed=1,
    policy="rates",
    gate_on=True,
    overloaded=True,
    possible=True,
    clean=True,
    strictly_clean=False,
    imperfect_half_seconds=3,
    seconds_to_perfect=0.5,
    seconds_to_return=(0.0, None),
    background=0.9,
    worst_off=0.4,
)


def cells(text, kind):
    (row,) = (line for line in text.splitlines() if line.split()[1:2] == [kind])
    return row.split()


def test_a_kind_has_a_row_and_all_have_one():
    runs = [
        RUN,
        replace(RUN, seed=2, clean=False, seconds_to_perfect=None),
        replace(RUN, kind="cloud"),
    ]
    text = table(runs)
    assert [line.split()[1] for line in text.splitlines()[1:]] == ["ssd", "cloud", "all"]
    row = cells(text, "ssd")
    assert row[:6] == ["rates", "ssd", "2", "2", "50", "%"]
    assert "never" in row


def test_runs_that_say_nothing_are_left_out():
    calm = replace(RUN, kind="cloud", overloaded=False)
    hopeless = replace(RUN, possible=False, background=None, worst_off=None)
    text = table([calm, hopeless])
    assert "cloud" not in text
    # One run, none counted.
    assert cells(text, "ssd")[2:6] == ["1", "0", "–", "–"]


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 0.05) == 1.0
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0


def test_the_file_has_every_run():
    found = as_json([RUN], ["--seeds", "1"], 7)
    assert found["command"] == ["--seeds", "1"]
    assert found["runs"][0]["background"] == 0.9
