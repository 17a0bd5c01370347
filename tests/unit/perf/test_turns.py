# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.turns: what the script in the guest tells, and the figures of it."""

import pytest

from perf import turns

TOLD = """\
plain 100000 10
shaped 200000 30
shaped 100000 30
plain 300000 10
"""


def test_a_four_is_one_figure_of_each_load():
    found = turns.parse(TOLD * 2)
    assert found[1] == turns.Turn("shaped", 0.2, 30.0)
    assert turns.rates(found, "plain") == pytest.approx([50.0, 50.0])
    assert turns.rates(found, "shaped") == pytest.approx([200.0, 200.0])


def test_a_turn_in_which_nothing_was_done_counts_for_its_four():
    told = TOLD.replace("plain 100000 10", "plain 100000 0")
    assert turns.rates(turns.parse(told), "plain") == pytest.approx([25.0])


def test_loads_run_for_longer_than_their_turns_take():
    assert turns.commands_last(240) > 240 + turns.BEGIN_SECONDS
