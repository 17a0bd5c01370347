# SPDX-License-Identifier: GPL-2.0-or-later
"""Median, least and greatest of repeated measurements."""

from collections.abc import Sequence
from statistics import median


def spread(values: Sequence[float]) -> dict[str, float]:
    """Summarise one figure. Raises ValueError when there is none."""
    if not values:
        raise ValueError("nothing was measured")
    return {"median": median(values), "min": min(values), "max": max(values)}


def spreads(measured: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Summarise repeated measurements of the same figures."""
    return {key: spread([one[key] for one in measured]) for key in measured[0]}
