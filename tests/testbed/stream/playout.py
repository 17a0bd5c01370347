# SPDX-License-Identifier: GPL-2.0-or-later
"""A player's buffer, driven by the stream's own clock.

The player fills its buffer for ``buffer_s`` seconds after the first data, then plays at the
speed of the clock. Data up to the last program clock reference (PCR) can be played. When the
position reaches that edge the picture stands still: a stall. It lasts until data comes again
and the buffer is filled anew, as in VLC.

A jump of the clock forward by more than ``HOLE_S`` (a PCR comes at least every
100 ms, ISO/IEC 13818-1 2.7.2) is a hole in the programme: the player has
nothing to show for as long, which is a stall too. A jump back, or forward by
more than ``RESTART_S``, is a new clock (the programme began anew) and goes on
seamlessly.

All times are seconds; the caller passes arrival times, which never go back.
"""

from dataclasses import dataclass

HOLE_S = 0.25
RESTART_S = 10.0
PCR_HZ = 27_000_000
PCR_WRAP = (1 << 33) * 300


@dataclass
class Playout:
    buffer_s: float
    stalls: int = 0
    restarts: int = 0
    _last_pcr: int | None = None
    _edge_s: float = 0.0  # end of what has arrived, in the programme's time
    _base_s: float = 0.0  # programme time at which playing (re)starts …
    _resume_at: float | None = None  # … and when that is; None before the first data
    _stalled_since: float | None = None
    _counted_s: float = 0.0  # stall time of stalls that are over

    def stall_seconds(self, now: float) -> float:
        """Return the time stalled until now."""
        if self._stalled_since is None:
            return self._counted_s
        return self._counted_s + max(0.0, now - self._stalled_since)

    def runs_dry_at(self) -> float | None:
        """Return when playing stops unless more comes; None if it does not play."""
        if self._resume_at is None:
            return None
        return self._resume_at + (self._edge_s - self._base_s)

    def advance(self, now: float) -> None:
        """Play until now."""
        if self._stalled_since is not None and self._resume_at is not None:
            if now < self._resume_at:
                return
            self._counted_s += self._resume_at - self._stalled_since
            self._stalled_since = None
        dry = self.runs_dry_at()
        if dry is not None and now > dry:
            self.stalls += 1
            self._stalled_since = dry
            self._resume_at = None

    def clock(self, pcr: int, now: float) -> None:
        """A PCR has arrived, and with it everything before it."""
        self.advance(now)
        if self._last_pcr is None:
            self._last_pcr = pcr
            self._begin(now)
            return
        step_s = _step(self._last_pcr, pcr) / PCR_HZ
        self._last_pcr = pcr
        if not 0 <= step_s <= RESTART_S:
            self.restarts += 1
            step_s = 0.0
        if self._resume_at is None:
            self._edge_s += step_s
            self._begin(now)
        elif step_s > HOLE_S:
            self.stalls += 1
            self._counted_s += step_s
            self._edge_s += step_s
        else:
            self._edge_s += step_s

    def _begin(self, now: float) -> None:
        self._base_s = self._edge_s
        self._resume_at = now + self.buffer_s


def _step(before: int, after: int) -> int:
    """Return the clock's step in 27 MHz ticks, its wrap taken out; may be negative."""
    step = (after - before) % PCR_WRAP
    return step - PCR_WRAP if step > PCR_WRAP // 2 else step
