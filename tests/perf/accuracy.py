# SPDX-License-Identifier: GPL-2.0-or-later
"""How well a rate was kept: arithmetic on samples of a byte counter.

Samples are ``(seconds, bytes)`` pairs of a counter that only grows. Whole
requests are counted, so a window of t seconds is known to one request at each
end: with requests of *q* bytes at *r* bytes/s, errors below q / (r · t) are
below what can be seen, and are reported as ``quantum_ratio``.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass

Sample = tuple[float, float]


@dataclass(frozen=True)
class Accuracy:
    """Signed ratios: 0.01 is one per cent more than the rate that was set."""

    mean_error_ratio: float
    worst_window_error_ratio: float
    quantum_ratio: float
    windows: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def bytes_at(samples: Sequence[Sample], at_seconds: float) -> float:
    """Interpolate the counter at a time within the samples.

    Raises ValueError outside of them.
    """
    if not samples or not samples[0][0] <= at_seconds <= samples[-1][0]:
        raise ValueError(f"{at_seconds} s lies outside the samples")
    after = bisect_right(samples, at_seconds, key=lambda sample: sample[0])
    if after == len(samples):
        return samples[-1][1]
    (t0, b0), (t1, b1) = samples[after - 1], samples[after]
    return b0 + (b1 - b0) * (at_seconds - t0) / (t1 - t0)


def assess(
    samples: Sequence[Sample],
    rate_bps: float,
    request_bytes: int,
    *,
    skip_seconds: float,
    windows: int = 10,
    window_seconds: float = 1.0,
) -> Accuracy:
    """Compare what passed with the rate, after the first ``skip_seconds``.

    Raises ValueError if the samples are too short for the windows.
    """
    start = samples[0][0] + skip_seconds
    edges = [bytes_at(samples, start + n * window_seconds) for n in range(windows + 1)]
    errors = [
        (after - before) / (rate_bps * window_seconds) - 1
        for before, after in zip(edges, edges[1:], strict=False)
    ]
    return Accuracy(
        mean_error_ratio=(edges[-1] - edges[0]) / (rate_bps * windows * window_seconds) - 1,
        worst_window_error_ratio=max(errors, key=abs),
        quantum_ratio=request_bytes / (rate_bps * window_seconds),
        windows=windows,
    )


def fluid_wait_seconds(depth: int, request_bytes: int, rate_bps: float) -> float:
    """Return the wait of the last of ``depth`` requests under a perfect shaper."""
    return depth * request_bytes / rate_bps
