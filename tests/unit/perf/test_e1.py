# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.e1: pairs in turn, and what a row says of them."""

import pytest

from perf import bars, e1, turns
from perf.e1 import Cost, figures
from sluice_controller.adapters.domain_xml import DISK_QUEUE_SIZE


def test_pairs_are_measured_in_an_order_that_alternates():
    assert list(e1.orders(4, ("a", "b"))) == [("a", "b"), ("b", "a")] * 2


def test_as_many_pairs_are_run_as_the_judge_asks_for():
    pairs, fours = bars.BARS["E1"]
    assert pairs.runs_min == e1.REPEATS == 20
    # Longer than four turns ever took on an emulated guest.
    assert fours.runs_min <= e1.REPEATS * fours.runs_per_repeat
    assert e1.TURNS_SECONDS / fours.runs_per_repeat >= 1.2


def test_loads_are_those_that_are_expected():
    parts = [(load.part + more, load.name) for more in (e1.ONE_GUEST, "") for load in e1.LOADS]
    assert tuple(parts) == bars.EXPECTED["E1"]


def test_the_stock_guest_has_the_ring_that_attaching_gives():
    assert str(e1.RING_SIZE) == DISK_QUEUE_SIZE


def _judged(factor: float) -> bars.Outcome:
    """The verdict on twenty pairs, of which some are of slow minutes."""
    stock = [Cost(1000.0 - 40 * (number % 7), 1e-4) for number in range(20)]
    mine = [
        Cost(one.work * factor * (1 + number % 3 / 1000), 2e-4) for number, one in enumerate(stock)
    ]
    row = {"part": "disk", "subject": "a load", "runs": 20, **figures(stock, mine)}
    assert row["cpu_ratio"]["median"] == pytest.approx(2.0)
    assert row["stock"]["max"] == 1000.0
    (verdict,) = bars.judge({"experiment": "E1", "rows": [row]})
    return verdict.outcome


def test_the_judge_tells_a_loss_from_none_and_from_what_cannot_be_told():
    assert _judged(1.0) is bars.Outcome.MET
    assert _judged(0.98) is bars.Outcome.MISSED
    assert _judged(0.989) is bars.Outcome.INCONCLUSIVE


def _turns(first: float, second: float) -> list[turns.Turn]:
    """Of a guest whose first and second device do so much per second."""
    one, other = turns.Turn("a", 0.1, 0.1 * first), turns.Turn("b", 0.1, 0.1 * second)
    return [one, other, other, one] * 50


def test_what_favours_a_place_is_not_taken_for_the_shapers_cost():
    # The shaper costs a fiftieth, and the second device does a tenth more.
    found = e1.figures_of_one([_turns(98, 110), _turns(100, 107.8)], ["a", "b"])
    assert found["shaped_ratio"]["median"] == pytest.approx(0.98)
    assert found["place_ratio"]["median"] == pytest.approx(1 / 1.1)
    assert found["runs"] == 100


def test_a_guest_that_did_nothing_has_no_figures():
    with pytest.raises(ValueError, match="nothing"):
        figures([Cost(1.0, 1.0)], [Cost(0.0, 1.0)])
    with pytest.raises(ValueError, match="nothing"):
        figures([], [])
