# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a run, on courses by hand."""

import pytest

from sim.figures import calm_after, figures
from sim.optimum import Epoch
from sim.run import Course
from sim.scenario import draw

HALVES = 180
BEST = Epoch(True, True, (40e6, 10e6))
POSSIBLE = (BEST, BEST, BEST)


def course(bad=(), rates=(40e6, 10e6)):
    row = [round(rate / 2) for rate in rates]
    return Course([half in bad for half in range(HALVES)], [row] * HALVES)


def judged(run, best=POSSIBLE):
    return figures(draw("ssd", 0), "rates", run, best)


@pytest.mark.parametrize(
    ("bad", "seconds"),
    [((), 0.0), ((10,), 0.5), ((10, 15), 3.0), (range(10, 60), None), ((49,), 0.0), ((9,), 0.0)],
)
def test_calm_is_five_seconds_without_a_fault(bad, seconds):
    halves = [half in bad for half in range(60)]
    assert calm_after(halves, 5, 30) == seconds


def test_a_perfect_run():
    found = judged(course())
    assert found.clean and found.strictly_clean and found.possible and found.overloaded
    assert found.seconds_to_perfect == 0.0
    assert found.seconds_to_return == (0.0, 0.0)
    assert found.background == found.worst_off == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("half", "clean", "strictly"),
    [(9, True, True), (19, True, False), (20, False, False), (65, True, False), (66, False, False)],
)
def test_faults_soon_after_the_onset_or_a_step_are_counted_apart(half, clean, strictly):
    found = judged(course({half}))
    assert (found.clean, found.strictly_clean) == (clean, strictly)
    assert found.imperfect_half_seconds == (0 if half < 10 else 1)


def test_background_is_beside_the_optimum_and_the_worst_off_class_is_told():
    found = judged(course(rates=(20e6, 1e6)))
    assert found.background == pytest.approx(21 / 50)
    assert found.worst_off == pytest.approx(0.1)


def test_an_epoch_in_which_nothing_helps_does_not_count():
    nothing = Epoch(False, True, (0.0, 0.0))
    found = judged(course(), (BEST, nothing, BEST))
    assert not found.possible
    assert found.background == pytest.approx(1.0)
    found = judged(course(), (nothing, nothing, nothing))
    assert found.background is None and found.worst_off is None
