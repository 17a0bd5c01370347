# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of one run of a scenario, beside its optimum. Pure.

* A half-second is *imperfect* if in it any player's picture stood still or lost data.
* *Time to perfect*: from when the background and auto-shaping are both there until the first
  `CALM_S` without an imperfect half-second begin. *Return after a step* is that from the step on.
* *Clean*: no imperfect half-second but in the first `GRACE_S` after the onset and
  `STEP_GRACE_S` after a step; *strictly clean*: none at all after the onset.
* *Background*: bytes of all others ÷ their bytes at the best static rates, without the first
  `SETTLING_S` of an epoch. *Worst-off*: the least of these ratios of a class. Both are of the
  epochs that count and are clean: a ruined stream is no way to more background.

An epoch in which streams are imperfect even when they are alone does not count; a scenario
with an epoch of that kind says nothing on clean runs.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sim.optimum import Epoch
from sim.run import Course
from sim.scenario import EPOCH_S, EPOCHS, ONSET_S, Scenario

CALM_S = 5
GRACE_S = 5
STEP_GRACE_S = 3
SETTLING_S = 5
# A class below a thousandth of the background is left out.
LEAST_SHARE = 0.001


@dataclass(frozen=True)
class Figures:
    kind: str
    seed: int
    policy: str
    gate_on: bool
    overloaded: bool
    possible: bool
    clean: bool
    strictly_clean: bool
    imperfect_half_seconds: int
    # None: not within the epoch.
    seconds_to_perfect: float | None
    seconds_to_return: tuple[float | None, ...]
    # None where no epoch counts and is clean.
    background: float | None
    worst_off: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def calm_after(bad: Sequence[bool], from_s: int, to_s: int) -> float | None:
    """Seconds from `from_s` until the first CALM_S without a fault begin; None: not until to_s."""
    halves = list(bad[2 * from_s : 2 * to_s])
    for start in range(len(halves) - 2 * CALM_S + 1):
        if not any(halves[start : start + 2 * CALM_S]):
            return start / 2
    return None


def figures(scenario: Scenario, policy: str, course: Course, best: Sequence[Epoch]) -> Figures:
    ends = [(epoch + 1) * EPOCH_S for epoch in range(EPOCHS)]
    begins = [ONSET_S, *ends[:-1]]
    graces = [GRACE_S, *[STEP_GRACE_S] * (EPOCHS - 1)]
    counted = [epoch for epoch in range(EPOCHS) if best[epoch].possible]
    after_grace = [
        any(course.bad[2 * (begin + grace) : 2 * end])
        for begin, grace, end in zip(begins, graces, ends, strict=True)
    ]
    judged = [epoch for epoch in counted if not after_grace[epoch]]
    background, worst_off = _ratios(course, best, begins, ends, judged)
    return Figures(
        kind=scenario.kind,
        seed=scenario.seed,
        policy=policy,
        gate_on=scenario.gate_on,
        overloaded=any(epoch.overloaded for epoch in best),
        possible=len(counted) == EPOCHS,
        clean=not any(after_grace),
        strictly_clean=not any(course.bad[2 * ONSET_S :]),
        imperfect_half_seconds=sum(course.bad[2 * ONSET_S :]),
        seconds_to_perfect=calm_after(course.bad, begins[0], ends[0]),
        seconds_to_return=tuple(
            calm_after(course.bad, begins[epoch], ends[epoch]) for epoch in range(1, EPOCHS)
        ),
        background=background,
        worst_off=worst_off,
    )


def _ratios(
    course: Course,
    best: Sequence[Epoch],
    begins: Sequence[int],
    ends: Sequence[int],
    counted: Sequence[int],
) -> tuple[float | None, float | None]:
    """(background ÷ optimum, that of the class for which it is least)"""
    got: dict[int, float] = {}
    could: dict[int, float] = {}
    for epoch in counted:
        seconds = ends[epoch] - begins[epoch] - SETTLING_S
        rates = course.rates(2 * (begins[epoch] + SETTLING_S), 2 * ends[epoch])
        for number, (rate, possible) in enumerate(zip(rates, best[epoch].rates, strict=True)):
            # A class that is off in this epoch may still get the answers to earlier requests.
            if possible > 0:
                got[number] = got.get(number, 0.0) + rate * seconds
                could[number] = could.get(number, 0.0) + possible * seconds
    total = sum(could.values())
    if total <= 0:
        return None, None
    shares = [got[n] / could[n] for n in could if could[n] >= LEAST_SHARE * total]
    return sum(got.values()) / total, min(shares)
