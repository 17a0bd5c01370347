# SPDX-License-Identifier: GPL-2.0-or-later
"""One figure of many short measurements together, and how sure it is.

On a machine with slow minutes the percentile of one measurement says little, and
so does the median of a few: a minute that hits one of a pair moves its ratio by
half. All waits of many measurements that took turns say more. How much more is
found by drawing pairs anew, with replacement (B. Efron, R. Tibshirani: An
Introduction to the Bootstrap, 1993, ch. 13): a pair stays together, as both had
the same minute.

The figure is a percentile where each measurement is of many waits, and the geometric
mean of ratios where each is one number.
"""

import math
import random
from collections.abc import Callable, Sequence
from statistics import geometric_mean

DRAWS = 1000
SEED = 1


class Pool:
    """Waits of several measurements; infinite ones never ended."""

    def __init__(self, measured: Sequence[Sequence[float]]):
        self._sizes = [len(waits) for waits in measured]
        pairs = ((wait, number) for number, waits in enumerate(measured) for wait in waits)
        self._falling = sorted(pairs, reverse=True)

    def percentile99(self, times: Sequence[int]) -> float:
        """Return the value at the nearest rank when each measurement counts so many times."""
        asked = sum(count * size for count, size in zip(times, self._sizes, strict=True))
        above = asked - math.ceil(0.99 * asked)
        for wait, number in self._falling:
            above -= times[number]
            if above < 0:
                return wait
        return math.inf


def ratio_of_p99(mine: Sequence[Sequence[float]], its: Sequence[Sequence[float]]) -> dict:
    """Return the ratio of all waits' 99th percentiles, with the ends of its 95 % interval.

    ``mine`` and ``its`` are pairs of measurements, in their order. ``{median, min,
    max}``, as a spread; infinite where either percentile is. ValueError when
    there is no pair.
    """
    pools, count = (Pool(mine), Pool(its)), len(mine)

    def ratio(chosen: Sequence[int]) -> float:
        times = [chosen.count(number) for number in range(count)]
        over, under = (pool.percentile99(times) for pool in pools)
        return math.inf if math.isinf(over) or math.isinf(under) else over / under

    return _drawn_anew(count, ratio)


def mean_ratio(ratios: Sequence[float]) -> dict[str, float]:
    """Return the geometric mean of ratios, with the ends of its 95 % interval.

    The answer is as that of ``ratio_of_p99``, with the mean for a median. ValueError when
    there is none, or one is not above 0.
    """
    if not all(ratio > 0 for ratio in ratios):
        raise ValueError("in one of a pair nothing was measured")
    return _drawn_anew(
        len(ratios), lambda chosen: geometric_mean(ratios[number] for number in chosen)
    )


def _drawn_anew(count: int, figure: Callable[[Sequence[int]], float]) -> dict[str, float]:
    """Return a figure of all pairs, and its interval from drawing them anew.

    ``figure`` takes the numbers of the pairs that count, with repetitions.
    """
    if count == 0:
        raise ValueError("nothing was measured")
    dice = random.Random(SEED)
    pairs = range(count)
    found = sorted(figure(dice.choices(pairs, k=count)) for _ in range(DRAWS))
    low, high = (found[round(part * DRAWS)] for part in (0.025, 0.975))
    return {"median": figure(pairs), "min": low, "max": high}
