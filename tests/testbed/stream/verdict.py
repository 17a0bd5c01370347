# SPDX-License-Identifier: GPL-2.0-or-later
"""The verdict on a stream, in place of the papers' judgement by eye.

    perfect   no error of any kind, no stall, at least 99.9 % delivered
    good      stalled less than 1 % of the time, less than 1 % of pictures lost
    poor      the rest

*delivered_ratio* is the share of the stream's nominal bitrate that reached the
viewer in time: the share of datagrams that came (by RTP sequence numbers),
times the share of time in which the player had something to play. A rate taken
from bytes and a wall clock would not do: the encoder's rate swings by a per
cent within a second, ten times the tolerance.

*lost pictures*, for the threshold of one per cent, are the decoder's count, and no fewer than
continuity errors damaged.
"""

from dataclasses import asdict, dataclass

from testbed.stream.meter import Window

PERFECT_RATIO = 0.999
GOOD_SHARE = 0.01
NOMINAL_PICTURES_PER_SECOND = 25


@dataclass(frozen=True)
class Quality:
    """A phase's stream, as the report shows it."""

    verdict: str
    continuity_errors: int
    stalls: int
    stall_seconds: float
    lost_pictures: int
    delivered_ratio: float
    max_gap_ms: float
    lost_audio_buffers: int
    lost_datagrams: int
    received_datagrams: int
    received_bytes_per_s: float
    pictures: int
    seconds: float

    def as_dict(self) -> dict:
        return asdict(self)


def delivered_ratio(window: Window) -> float:
    """Return the share that was delivered in time, 0 to 1."""
    seconds = window.window_ms / 1000
    # Below 0: late datagrams took back losses of an earlier window.
    sent = window.received_datagrams + max(0, window.lost_datagrams)
    if not sent or seconds <= 0:
        return 0.0
    playing = max(0.0, 1 - window.stall_seconds / seconds)
    return window.received_datagrams / sent * playing


def verdict_of(window: Window) -> str:
    """Judge a span of time."""
    ratio = delivered_ratio(window)
    faults = (
        window.continuity_errors
        + window.stalls
        + window.lost_pictures
        + window.lost_audio_buffers
        + max(0, window.lost_datagrams)
    )
    if not faults and window.stall_seconds <= 0 and ratio >= PERFECT_RATIO:
        return "perfect"
    seconds = window.window_ms / 1000
    due = max(window.pictures, NOMINAL_PICTURES_PER_SECOND * seconds)
    lost = max(window.lost_pictures, window.continuity_errors)
    mild = window.stall_seconds < GOOD_SHARE * seconds and lost < GOOD_SHARE * due
    return "good" if mild and ratio >= 1 - 2 * GOOD_SHARE else "poor"


def judge(window: Window) -> Quality:
    """Turn a phase's sum into the report's figures."""
    seconds = window.window_ms / 1000
    return Quality(
        verdict=verdict_of(window),
        continuity_errors=window.continuity_errors,
        stalls=window.stalls,
        stall_seconds=round(window.stall_seconds, 3),
        lost_pictures=window.lost_pictures,
        delivered_ratio=round(delivered_ratio(window), 5),
        max_gap_ms=round(window.max_gap_ms, 1),
        lost_audio_buffers=window.lost_audio_buffers,
        lost_datagrams=window.lost_datagrams,
        received_datagrams=window.received_datagrams,
        received_bytes_per_s=round(window.received_bytes / seconds, 1) if seconds else 0.0,
        pictures=window.pictures,
        seconds=round(seconds, 3),
    )
