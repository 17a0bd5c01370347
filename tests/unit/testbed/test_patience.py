# SPDX-License-Identifier: GPL-2.0-or-later
"""More time on a slow machine, within bounds, for whatever waits."""

from pathlib import Path

import pytest

from demo.plan import Plan
from testbed import patience
from testbed.sandbox import CommandFailed, Sandbox


@pytest.fixture(autouse=True)
def ordinary():
    yield
    patience.use(1)


def test_a_patient_machine_waits_longer():
    assert patience.seconds(30) == 30
    before = Plan().longest_s
    patience.use(8)
    assert patience.seconds(30) == 240
    assert Plan().longest_s - before == 7 * 60


@pytest.mark.parametrize("factor", [0.5, 21, float("nan"), float("inf")])
def test_what_is_no_patience_is_named_and_changes_nothing(factor):
    with pytest.raises(ValueError, match="is out of range; give 1 to 20"):
        patience.use(factor)
    assert patience.seconds(30) == 30


class Here(Sandbox):
    """Commands of this process's own namespaces: only how they are waited for matters."""

    def argv(self, command, netns=None):
        return list(command)


def test_a_command_that_never_ends_is_given_what_patience_says():
    with pytest.raises(CommandFailed, match="still runs after 0.5 s"):
        patience.use(5)
        Here(Path("/"), {}).run(["sleep", "20"], timeout_seconds=0.1)


def test_an_error_says_what_was_run_in_the_words_of_who_ran_it():
    with pytest.raises(CommandFailed, match="^guest: `false` ended with 1"):
        Here(Path("/"), {}).run(["false"], shown="guest: `false`")


def test_a_machine_of_one_processor_is_given_more_and_none_too_much(monkeypatch):
    monkeypatch.setattr(patience, "NUMBERS", 1)
    monkeypatch.setattr(patience.os, "sched_getaffinity", lambda _pid: {0})
    assert patience.of_this_machine() == 2
    # So much takes a thousand times longer than it should.
    monkeypatch.setattr(patience, "NUMBERS", 50_000)
    monkeypatch.setattr(patience, "NUMBERS_SECONDS", 1e-7)
    assert patience.of_this_machine() == patience.MOST
