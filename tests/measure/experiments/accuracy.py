# SPDX-License-Identifier: GPL-2.0-or-later
"""How well a rate was kept: arithmetic on samples of a byte counter.

Samples are readings of a counter that only grows. Whole requests are counted, so a window of t
seconds is known to one request at each end: with requests of *q* bytes at *r* bytes/s, errors
below q / (r · t) are below what can be seen, and are reported as ``quantum_ratio``. A reading
takes a while, and the counter was as read at some time within it; and where readings lie
further apart than they should, the moment of its change is not known: the error of both is
``clock_ratio``.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import NamedTuple


class Sample(NamedTuple):
    """A reading: the middle of the time it took, and half of that time."""

    at_seconds: float
    bytes: float
    unsure_seconds: float = 0.0


@dataclass(frozen=True)
class Accuracy:
    """Signed ratios: 0.01 is one per cent more than the rate that was set."""

    mean_error_ratio: float
    worst_window_error_ratio: float
    quantum_ratio: float
    clock_ratio: float
    longest_standstill_ms: float
    windows: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def _around(samples: Sequence[Sample], at_seconds: float) -> tuple[Sample, Sample]:
    """Return the samples before and after a time. Raises ValueError outside of them."""
    if not samples or not samples[0].at_seconds <= at_seconds <= samples[-1].at_seconds:
        raise ValueError(f"{at_seconds} s lies outside the samples")
    after = bisect_right(samples, at_seconds, key=lambda sample: sample.at_seconds)
    return samples[after - 1], samples[min(after, len(samples) - 1)]


def bytes_at(samples: Sequence[Sample], at_seconds: float) -> float:
    """Interpolate the counter at a time within the samples.

    Raises ValueError outside of them.
    """
    before, after = _around(samples, at_seconds)
    if before is after:
        return after.bytes
    share = (at_seconds - before.at_seconds) / (after.at_seconds - before.at_seconds)
    return before.bytes + (after.bytes - before.bytes) * share


def mean_bps(samples: Sequence[Sample], *, skip_seconds: float) -> float:
    """Return the bytes per second of the samples after the first ``skip_seconds``.

    Raises ValueError if there are none.
    """
    last = samples[-1]
    seconds = last.at_seconds - samples[0].at_seconds - skip_seconds
    if seconds <= 0:
        raise ValueError(f"the samples are of no more than {skip_seconds:g} s")
    return (last.bytes - bytes_at(samples, last.at_seconds - seconds)) / seconds


def longest_standstill_seconds(
    samples: Sequence[Sample], begin_seconds: float, end_seconds: float
) -> float:
    """Return the longest time in which no reading showed more bytes than the one before.

    It begins with a reading that did, so one interval of reading is always in it.
    """
    grown_at, longest = begin_seconds, 0.0
    for before, after in pairwise(samples):
        if begin_seconds <= after.at_seconds <= end_seconds and after.bytes > before.bytes:
            longest = max(longest, after.at_seconds - grown_at)
            grown_at = after.at_seconds
    return max(longest, end_seconds - grown_at)


def _unsure_seconds(before: Sample, after: Sample, interval_seconds: float) -> float:
    """Return by how much the time of a count between two readings may be wrong."""
    late = max(0.0, after.at_seconds - before.at_seconds - interval_seconds)
    return max(before.unsure_seconds, after.unsure_seconds) + late / 2


def assess(
    samples: Sequence[Sample],
    rate_bps: float,
    request_bytes: int,
    *,
    skip_seconds: float,
    interval_seconds: float,
    windows: int = 10,
    window_seconds: float = 1.0,
) -> Accuracy:
    """Compare the passed bytes with the rate, after the first ``skip_seconds``.

    ``interval_seconds`` is the most that readings may lie apart. Raises ValueError if the
    samples are too short for the windows.
    """
    start = samples[0].at_seconds + skip_seconds
    times = [start + n * window_seconds for n in range(windows + 1)]
    edges = [bytes_at(samples, at) for at in times]
    unsure = [_unsure_seconds(*_around(samples, at), interval_seconds) for at in times]
    errors = [
        (after - before) / (rate_bps * window_seconds) - 1 for before, after in pairwise(edges)
    ]
    return Accuracy(
        mean_error_ratio=(edges[-1] - edges[0]) / (rate_bps * windows * window_seconds) - 1,
        worst_window_error_ratio=max(errors, key=abs),
        quantum_ratio=request_bytes / (rate_bps * window_seconds),
        clock_ratio=max(map(sum, pairwise(unsure))) / window_seconds,
        longest_standstill_ms=1e3 * longest_standstill_seconds(samples, times[0], times[-1]),
        windows=windows,
    )


def fluid_wait_seconds(depth: int, request_bytes: int, rate_bps: float) -> float:
    """Return the wait of the last of ``depth`` requests under a perfect shaper."""
    return depth * request_bytes / rate_bps
