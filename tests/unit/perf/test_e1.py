# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.e1: who is first, and what a row says of rounds."""

import pytest

from perf import bars, e1, turns
from perf.e1 import PATCHED, STOCK, Round, figures_of_one, figures_of_two
from sluice_controller.adapters.domain_xml import DISK_QUEUE_SIZE

LOAD = e1.LOADS[0]
BESIDE = LOAD.beside(1)


def test_who_is_first_alternates():
    assert [e1.order(number, ("a", "b")) for number in range(3)] == [
        ("a", "b"),
        ("b", "a"),
        ("a", "b"),
    ]


def test_as_many_rounds_are_run_as_the_judge_asks_for():
    assert {bar.runs_min for bar in bars.BARS["E1"]} == {e1.REPEATS}


def test_loads_are_those_that_are_expected():
    parts = [(load.part + more, load.name) for more in (e1.ONE_GUEST, "") for load in e1.LOADS]
    assert tuple(parts) == bars.EXPECTED["E1"]


def test_the_stock_guest_has_the_ring_that_attaching_gives():
    assert str(e1.RING_SIZE) == DISK_QUEUE_SIZE


ROUNDS = 10


def _across(number: int, factor: float) -> Round:
    """A round of two restores of two fours each: one four is of a slow moment, for both guests."""

    def turn(unit: str, rate: float, cpu: float) -> turns.Turn:
        return turns.Turn(unit, 0.2, 0.2 * rate, 0.2 * rate * cpu)

    taken = []
    for rate in (1000.0 - 40 * (number % 7), 500.0):
        its = turn(STOCK, rate, 1e-4)
        mine = turn(PATCHED, rate * factor * (1 + number % 3 / 1000), 2e-4)
        taken += [its, mine, mine, its]
    return Round(across=[taken, taken])


def _judged(part: str, figures: bars.Row) -> bars.Outcome:
    row = {"part": part, "subject": "a load", **figures}
    (verdict,) = bars.judge({"experiment": "E1", "rows": [row]})
    return verdict.outcome


def _judged_across(factor: float) -> bars.Outcome:
    found = figures_of_two(LOAD, [_across(number, factor) for number in range(ROUNDS)])
    assert found["runs"] == ROUNDS
    assert found["cpu_ratio"]["median"] == pytest.approx(2.0)
    assert found["stock"]["max"] == 1000.0
    return _judged("disk", found)


def test_the_judge_tells_a_loss_from_none_and_from_what_cannot_be_told():
    assert _judged_across(1.0) is bars.Outcome.MET
    assert _judged_across(0.98) is bars.Outcome.MISSED
    assert _judged_across(0.989) is bars.Outcome.INCONCLUSIVE


def _turns(first: float, second: float) -> list[turns.Turn]:
    """Of a guest whose first and second device do so much per second."""
    one, other = (
        turns.Turn(load.unit, 0.1, 0.1 * rate)
        for load, rate in zip(BESIDE, (first, second), strict=True)
    )
    return [one, other, other, one] * 5


def test_what_favours_a_place_is_not_taken_for_the_shapers_cost():
    # The shaper costs a fiftieth, and the second device does a tenth more.
    found = figures_of_one(LOAD, [Round(taken=[_turns(98, 110), _turns(100, 107.8)])] * ROUNDS)
    assert found["shaped_ratio"]["median"] == pytest.approx(0.98)
    assert found["place_ratio"]["median"] == pytest.approx(1 / 1.1)
    assert found["runs"] == ROUNDS
    assert _judged("disk, one guest", found) is bars.Outcome.MISSED


def test_the_luck_of_a_boot_is_in_the_interval():
    """Within each boot nothing varies, and boots differ by four per cent."""
    lucky, unlucky = [_turns(102, 100), _turns(100, 102)], [_turns(98, 100), _turns(100, 98)]
    found = figures_of_one(LOAD, [Round(taken=one) for one in [lucky, unlucky] * 5])
    assert found["shaped_ratio"]["min"] < 0.99 < found["shaped_ratio"]["median"]
    assert _judged("disk, one guest", found) is bars.Outcome.INCONCLUSIVE


def test_the_luck_of_a_process_is_evened_out_within_a_round():
    (lucky, _), (unlucky, _) = _across(0, 1.1).across, _across(0, 1 / 1.1).across
    found = figures_of_two(LOAD, [Round(across=[lucky, unlucky])] * ROUNDS)
    assert found["pooled_ratio"]["min"] == pytest.approx(1.0)


def test_a_round_that_failed_counts_for_nothing():
    rounds = [Round(), _across(1, 1.0), Round(taken=[_turns(1, 1), _turns(1, 1)])]
    assert figures_of_one(LOAD, rounds)["runs"] == figures_of_two(LOAD, rounds)["runs"] == 1


def test_a_guest_that_did_nothing_has_no_figures():
    idle = Round(_across(1, 0.0).across, [_turns(1, 0), _turns(1, 1)])
    for figures in (figures_of_one, figures_of_two):
        for rounds in ([idle], [Round()], []):
            with pytest.raises(ValueError, match="nothing"):
                figures(LOAD, rounds)
