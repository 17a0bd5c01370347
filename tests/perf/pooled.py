# SPDX-License-Identifier: GPL-2.0-or-later
"""A percentile of many short measurements together, and how sure it is.

On a machine with slow minutes the percentile of one measurement says little, and
so does the median of a few: a minute that hits one of a pair moves its ratio by
half. All waits of many measurements that took turns say more. How much more is
found by drawing pairs anew, with replacement (B. Efron, R. Tibshirani: An
Introduction to the Bootstrap, 1993, ch. 13): a pair stays together, as both had
the same minute.
"""

import math
import random
from collections.abc import Sequence

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
    if not mine:
        raise ValueError("nothing was measured")
    pools, dice, count = (Pool(mine), Pool(its)), random.Random(SEED), len(mine)

    def ratio(times: Sequence[int]) -> float:
        over, under = (pool.percentile99(times) for pool in pools)
        return math.inf if math.isinf(over) or math.isinf(under) else over / under

    def drawn() -> list[int]:
        chosen = dice.choices(range(count), k=count)
        return [chosen.count(number) for number in range(count)]

    found = sorted(ratio(drawn()) for _ in range(DRAWS))
    ends = (found[round(part * DRAWS)] for part in (0.025, 0.975))
    return {"median": ratio([1] * count), **dict(zip(("min", "max"), ends, strict=True))}
