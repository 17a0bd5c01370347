# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates, measured on a machine that does other work at the same time.

Other work takes from a rate and adds nothing to it: a limit holds in every measurement,
while a rate that is to be reached is reached in one of a few.
"""

import math
from collections.abc import Callable

MEASUREMENTS = 3
# Shares of a limit: beside a limited class others of the guest read a little, and bursts go at
# once; a limit that is taken for its half must be seen.
MOST_OF_LIMIT, LEAST_OF_LIMIT = 1.05, 0.8


def reached(measure: Callable[[], float], least_bps: float, most_bps: float = math.inf) -> float:
    """Return the first rate of a few that is ``least_bps`` or more, in bytes/s.

    AssertionError as soon as one is above ``most_bps``, or if none comes up to ``least_bps``.
    """
    rates = []
    for _ in range(MEASUREMENTS):
        rates.append(measure())
        assert rates[-1] <= most_bps, f"{rates[-1]:.0f} bytes/s are more than {most_bps:.0f}"
        if rates[-1] >= least_bps:
            return rates[-1]
    raise AssertionError(f"of {[round(one) for one in rates]} bytes/s none is {least_bps:.0f}")


def at_limit(measure: Callable[[], float], limit_bps: float) -> float:
    """Return a rate that uses a limit and keeps to it, as ``reached`` does."""
    return reached(measure, LEAST_OF_LIMIT * limit_bps, MOST_OF_LIMIT * limit_bps)
