# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.e1: who is when under which emulator, and what a row says of rounds."""

import pytest

from measure.experiments import bars, e1
from measure.experiments.e1 import (
    PATCHED,
    STOCK,
    Round,
    emulators_of,
    figures,
    shaped_work,
    trimmed_mean,
)
from sluice_controller.adapters.domain_xml import DISK_QUEUE_SIZE

ROUNDS = bars.COST_ROUNDS_MIN


def test_each_lane_is_under_each_emulator_twice_and_never_under_its_neighbours():
    for four in range(2):
        times = emulators_of(four, 2)
        assert all(one != other for one, other in times)
        for lane in zip(*times, strict=True):
            assert sorted(lane) == [PATCHED, PATCHED, STOCK, STOCK]
            # What changes steadily hits both alike.
            assert lane == lane[::-1]


def test_fours_alternate():
    assert emulators_of(0, 1) == [(STOCK,), (PATCHED,), (PATCHED,), (STOCK,)]
    assert emulators_of(1, 1) == [(PATCHED,), (STOCK,), (STOCK,), (PATCHED,)]


def test_as_many_rounds_are_run_as_the_judge_asks_for():
    assert {bar.runs_min for bar in bars.BARS["E1"]} == {e1.REPEATS}


def test_loads_are_those_that_are_expected():
    assert tuple((load.part, load.name) for load in e1.LOADS) == bars.EXPECTED["E1"]


def test_guests_have_the_ring_that_attaching_gives():
    assert str(e1.RING_SIZE) == DISK_QUEUE_SIZE


def _round(number: int, factor: float) -> Round:
    """A round whose fours are of slow and of fast moments, and in which each process differs."""
    fours = []
    for four in range(10):
        rate = 1000.0 - 40 * ((number + four) % 7)
        luck = 1 + 0.02 * ((number + 3 * four) % 3 - 1)
        fours.append({STOCK: [rate, rate], PATCHED: [rate * factor * luck, rate * factor / luck]})
    return Round(fours)


def _judged(factor: float, rounds: int = ROUNDS) -> bars.Outcome:
    found = figures([_round(number, factor) for number in range(rounds)])
    assert found["runs"] == rounds
    row = {"part": "disk", "subject": "a load", **found}
    (verdict,) = bars.judge({"experiment": "E1", "rows": [row]})
    return verdict.outcome


def test_the_judge_tells_a_loss_from_none_and_from_what_cannot_be_told():
    assert _judged(1.0) is bars.Outcome.MET
    assert _judged(0.98) is bars.Outcome.MISSED
    assert _judged(1.0, ROUNDS - 1) is bars.Outcome.INCONCLUSIVE


def test_a_moment_that_tcp_loses_by_itself_is_no_loss_of_the_round():
    found = _round(0, 1.0)
    found.fours[0] = {STOCK: [1000.0, 1000.0], PATCHED: [500.0, 500.0]}
    ratio = figures([found])["pooled_ratio"]["median"]
    assert ratio == pytest.approx(1.0)


def test_the_mean_leaves_out_a_tenth_at_either_end():
    assert trimmed_mean(iter([9.0, *[2.0] * 8, 0.1])) == pytest.approx(2.0)
    assert trimmed_mean(iter([4.0, 1.0])) == pytest.approx(2.0)


def test_rates_of_all_processes_are_shown():
    found = figures([_round(0, 2.0)])
    assert found["stock"]["max"] == 1000.0
    assert found["patched"]["max"] == pytest.approx(2000.0 / 0.98)


def test_a_round_that_failed_counts_for_nothing():
    assert figures([Round(), _round(1, 1.0)])["runs"] == 1


def test_a_process_that_did_nothing_has_no_figures():
    idle = Round([{STOCK: [1.0, 1.0], PATCHED: [1.0, 0.0]}])
    for rounds in ([idle], [Round()], []):
        with pytest.raises(ValueError, match="nothing"):
            figures(rounds)


def test_what_a_shaper_counted_is_that_of_all_its_classes():
    def stats(resource, count):
        return {"resource": resource, "requests": count, "bytes": 100 * count}

    classes = [
        {"stats": [stats("blk-read", 3), stats("net-tx", 50)]},
        {"stats": [stats("blk-read", 4)]},
    ]
    assert shaped_work({"classes": classes}, "blk-read", "requests") == 7
    assert shaped_work({"classes": classes}, "net-tx", "bytes") == 5000
