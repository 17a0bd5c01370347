# SPDX-License-Identifier: GPL-2.0-or-later
"""The meter: datagrams and their arrival times in, windows of numbers out.

A window covers the time since the previous one. Windows add up (``total``), so
a phase is the sum of its windows.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.stream.packets import Continuity, NotAStream, Sequence, rtp_payload, ts_packets
from testbed.stream.playout import Playout


@dataclass(frozen=True)
class Window:
    """The events of a span of time. Counts and sums, except max_gap_ms."""

    start_s: float = 0.0
    window_ms: float = 0.0
    received_bytes: int = 0
    received_datagrams: int = 0
    lost_datagrams: int = 0
    foreign_datagrams: int = 0
    continuity_errors: int = 0
    stalls: int = 0
    stall_seconds: float = 0.0
    max_gap_ms: float = 0.0
    pictures: int = 0
    lost_pictures: int = 0
    lost_audio_buffers: int = 0


SUMMED = [
    field.name
    for field in dataclasses.fields(Window)
    if field.name not in ("start_s", "max_gap_ms")
]


def total(windows: Iterable[Window]) -> Window:
    """Add windows up; they may have gaps between them."""
    windows = list(windows)
    if not windows:
        return Window()
    sums = {name: sum(getattr(window, name) for window in windows) for name in SUMMED}
    return Window(
        start_s=min(window.start_s for window in windows),
        max_gap_ms=max(window.max_gap_ms for window in windows),
        **sums,
    )


class Meter:
    """Measures one stream from its first datagram on."""

    def __init__(self, buffer_s: float):
        self._continuity = Continuity()
        self._sequence = Sequence()
        self._playout = Playout(buffer_s)
        self._bytes = 0
        self._foreign = 0
        self._last_arrival: float | None = None
        self._gap_s = 0.0
        self._closed_at: float | None = None
        self._before = self._totals(0.0)

    @property
    def started(self) -> bool:
        return self._last_arrival is not None

    def add(self, datagram: bytes, now: float) -> bytes:
        """Count a datagram that arrived now (seconds of a monotonic clock).

        Returns the transport packets in it if they are next in order, else nothing.
        """
        try:
            number, payload = rtp_payload(datagram)
            packets = list(ts_packets(payload))
        except NotAStream:
            self._foreign += 1
            return b""
        if self._last_arrival is not None:
            self._gap_s = max(self._gap_s, now - self._last_arrival)
        elif self._closed_at is None:
            self._closed_at = now
        self._last_arrival = now
        self._bytes += len(payload)
        if not self._sequence.add(number):
            # Too late for the packets' order; a player's buffer would sort it in.
            return b""
        for packet in packets:
            self._continuity.add(packet)
            if packet.pcr is not None:
                self._playout.clock(packet.pcr, now)
        return payload

    def close_window(self, now: float, pictures: tuple[int, int, int] = (0, 0, 0)) -> Window:
        """End the window at now and begin the next.

        ``pictures`` are the decoder's own counts for it: shown, lost, audio
        buffers lost.
        """
        self._playout.advance(now)
        gap_s = self._gap_s
        if self._last_arrival is not None:
            gap_s = max(gap_s, now - self._last_arrival)
        start = now if self._closed_at is None else self._closed_at
        totals = self._totals(now)
        parts = {name: totals[name] - self._before[name] for name in totals}
        self._before = totals
        self._closed_at = now
        self._gap_s = 0.0
        shown, lost, audio = pictures
        return Window(
            start_s=start,
            window_ms=(now - start) * 1000,
            max_gap_ms=gap_s * 1000,
            pictures=shown,
            lost_pictures=lost,
            lost_audio_buffers=audio,
            **parts,
        )

    def _totals(self, now: float) -> dict[str, float]:
        return {
            "received_bytes": self._bytes,
            "received_datagrams": self._sequence.received,
            "lost_datagrams": self._sequence.lost,
            "foreign_datagrams": self._foreign,
            "continuity_errors": self._continuity.errors,
            "stalls": self._playout.stalls,
            "stall_seconds": self._playout.stall_seconds(now),
        }
