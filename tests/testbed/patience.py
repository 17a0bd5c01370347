# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the testbed waits, on a machine where everything takes longer.

A property of the machine, as its accelerator is: the nightly run sets it from ``run.patience``,
tests measure it, and each waiting program asks for its time here.
"""

import math
import os
import time

LEAST, MOST = 1.0, 20.0
# So long takes adding up so many numbers on a machine that needs no patience, with
# nothing beside it.
NUMBERS, NUMBERS_SECONDS = 5_000_000, 0.06
PROCESSORS = 2

_factor = LEAST


def use(factor: float) -> None:
    """Multiply every time by ``factor`` from now on. ValueError outside 1 to 20."""
    global _factor
    if not math.isfinite(factor) or not LEAST <= factor <= MOST:
        raise ValueError(f"patience {factor!r} is out of range; give {LEAST:g} to {MOST:g}")
    _factor = factor


def of_this_machine() -> float:
    """Measure how much longer things take here and now, for programs that only wait.

    Twice the measured factor: a moment does not show all that runs beside a test.
    """
    started = time.monotonic()
    sum(range(NUMBERS))
    slower = (time.monotonic() - started) / NUMBERS_SECONDS
    fewer = PROCESSORS / min(PROCESSORS, len(os.sched_getaffinity(0)))
    return min(MOST, max(2 * LEAST, 2 * slower * fewer))


def seconds(ordinary: float) -> float:
    """Return the wait for an event that ordinarily takes less than ``ordinary`` seconds."""
    return ordinary * _factor
