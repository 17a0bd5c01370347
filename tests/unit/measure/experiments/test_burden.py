# SPDX-License-Identifier: GPL-2.0-or-later
"""BURDEN: the agent's part of a guest's time, out of two windows."""

import subprocess

import pytest

from measure.experiments import bars, burden
from measure.experiments.burden import Window, costs


def test_the_rows_are_the_expected_ones() -> None:
    assert bars.EXPECTED["BURDEN"] == tuple((burden.PART, name) for name in burden.SUBJECTS)


def test_the_load_alone_is_taken_off() -> None:
    found = costs(Window(0.6, 12, 5010, 30), Window(0, 9, 4000, 30))
    assert found["agent_ratio"] == pytest.approx(0.02)
    assert found["added_ratio"] == pytest.approx(0.1)
    assert found["absent_ratio"] == pytest.approx(0.3)
    assert found["forks_per_second"] == pytest.approx(167)


@pytest.mark.parametrize("subject", burden.SUBJECTS)
def test_each_load_is_a_program(subject: str) -> None:
    text = burden.program(subject)
    subprocess.run(["perl", "-c"], input=text, text=True, check=True, capture_output=True)
