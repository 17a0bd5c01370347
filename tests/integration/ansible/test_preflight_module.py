# SPDX-License-Identifier: GPL-2.0-or-later
"""The module ``preflight`` on this machine: settings that only a host can judge."""

import shutil

import pytest

from ansible_collection import run_module


def problems(**arguments) -> list[str]:
    answer = run_module("preflight", releases=[], virtualisation=False, **arguments)
    about = ("user ", "sluice_nightly_on_calendar")
    return [problem for problem in answer["problems"] if problem.startswith(about)]


def test_operators_that_the_host_does_not_have_are_named():
    found = problems(users=["root", "alcie", "nobody"])
    assert len(found) == 1 and "'alcie' of sluice_operators does not exist" in found[0]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("wrong", ["*-*-* 25:00", "every night", "03:30\nUnit=other.service", "-h"])
def test_a_time_that_systemd_does_not_understand_is_named(wrong):
    found = problems(calendar=wrong)
    assert len(found) == 1 and repr(wrong) in found[0] and "systemd.time(7)" in found[0]


@pytest.mark.parametrize("right", ["", "*-*-* 03:30", "Mon..Fri 02:00"])
def test_a_time_that_systemd_understands_is_no_problem(right):
    assert problems(calendar=right) == []
