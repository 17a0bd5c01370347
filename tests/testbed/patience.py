# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the testbed waits, on a machine where everything takes longer.

A property of the machine, as its accelerator is: the nightly run sets it from
``run.patience``, and whatever waits asks for its time here.
"""

import math

LEAST, MOST = 1.0, 20.0

_factor = LEAST


def use(factor: float) -> None:
    """Multiply every time by ``factor`` from now on. ValueError outside 1 to 20."""
    global _factor
    if not math.isfinite(factor) or not LEAST <= factor <= MOST:
        raise ValueError(f"patience {factor!r} is out of range; give {LEAST:g} to {MOST:g}")
    _factor = factor


def seconds(ordinary: float) -> float:
    """Return how long to wait for what ordinarily takes less than ``ordinary`` seconds."""
    return ordinary * _factor
