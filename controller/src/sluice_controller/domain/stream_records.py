# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's word on its streams (`docs/specs/channel.md`, "Stream records"): checked, judged,
and which of several sources counts.

All of it is the guest's word, and a QEMU that its guest has taken over may answer anything. So a
record that is out of range is left out, and a record speaks of its own domain and class alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from .channel_records import MOST_RECORDS, records
from .knobs import Flag, Model, Word
from .model import ClassName
from .quality import DELIVERY_WINDOW_S, LUMPY_DELIVERY, POOR_DELIVERY

# The first counts before the others: a program knows its frames better than its sockets do.
SOURCES = ("program", "vlc", "ffmpeg", "gstreamer", "socket")
NAME_CHARS = 24
# Late and lost frames of so long ago count. Each source tells once a second or more often.
FAULTS_S = 5.0
STALL_S = 3.0
# A source that has told nothing new for so long does not count: the agent itself may be gone.
FRESH_S = 10.0
# At two looks a second, all of the window.
_MOST_CHANGES = 40
_COUNTER = 1 << 32
_BOUNDS = {
    "number": MOST_RECORDS,
    "tag": 16,
    "rate-millihertz": _COUNTER,
    "frames": 1 << 64,
    "late": _COUNTER,
    "lost": _COUNTER,
    "last-ns": 1 << 64,
    "pace-bytes-per-second": 1 << 42,
}
_VERDICTS = ("poor", "good", "unknown", "perfect")


@dataclass(frozen=True)
class Reading:
    """A record. `last_ns` is of the guest's clock; `late` and `lost` are modulo 2^32."""

    number: int
    tag: int
    source: str
    name: str
    rate_millihertz: int
    frames: int
    late: int
    lost: int
    last_ns: int
    pace_bytes_per_second: int

    @property
    def key(self) -> tuple[int, int, str, str]:
        """Two users of a guest may give their streams of one class one name."""
        return self.number, self.tag, self.source, self.name


def readings(answer: Any) -> list[Reading]:
    """The records in an answer to query-shaper-channel."""
    found = []
    for row, (number, tag, *others) in records(answer, "streams", _BOUNDS):
        source, name = row.get("source"), row.get("name")
        if source not in SOURCES or not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS:
            continue
        if name.isascii() and name.isprintable():
            found.append(Reading(number, tag, source, name, *others))
    return found


@dataclass(frozen=True)
class _Change:
    """`at_s` is of sluiced's monotonic clock, `shown_at` of the host's clock."""

    at_s: float
    shown_at: float
    reading: Reading


@dataclass
class Series:
    """The changes of one record, oldest first. `looked_s`: when it was last read; `framed_s`: when
    it last had another number of frames."""

    changes: deque[_Change] = field(default_factory=lambda: deque(maxlen=_MOST_CHANGES))
    looked_s: float = 0.0
    framed_s: float = 0.0

    def add(self, at_s: float, shown_at: float, reading: Reading) -> None:
        self.looked_s = at_s
        last = self.changes[-1].reading if self.changes else None
        if reading == last:
            return
        if last is None or reading.frames != last.frames:
            self.framed_s = at_s
        if last is not None and _began_anew(last, reading):
            self.changes.clear()
        self.changes.append(_Change(at_s, shown_at, reading))

    @property
    def newest(self) -> _Change:
        return self.changes[-1]

    def is_fresh(self, now_s: float) -> bool:
        return now_s - self.newest.at_s <= FRESH_S

    def verdict(self, now_s: float) -> tuple[str, str]:
        """(verdict, reason) of the last seconds."""
        last = self.newest
        silent_s = now_s - last.at_s
        if silent_s > FRESH_S:
            return "unknown", f"nothing new for {silent_s:.0f} s"
        # Since the last look, frames may have come.
        still_s = self.looked_s - self.framed_s
        if still_s > STALL_S and last.reading.rate_millihertz:
            return "poor", f"no frame for {still_s:.0f} s"
        window = [c for c in self.changes if now_s - c.at_s <= DELIVERY_WINDOW_S]
        if len(window) < 2:
            return "unknown", "one report so far"
        return _faults(window, now_s) or _delivery(window[0].reading, last.reading)


def _began_anew(old: Reading, new: Reading) -> bool:
    goes_back = any(
        (after - before) % _COUNTER >= _COUNTER // 2
        for before, after in ((old.late, new.late), (old.lost, new.lost))
    )
    return goes_back or new.frames < old.frames or new.rate_millihertz != old.rate_millihertz


def _faults(window: Sequence[_Change], now_s: float) -> tuple[str, str] | None:
    recent = [c for c in window if now_s - c.at_s <= FAULTS_S]
    # The change before them is where their numbers begin.
    base = window[max(0, len(window) - len(recent) - 1)]
    new, old = window[-1].reading, base.reading
    late, lost = (new.late - old.late) % _COUNTER, (new.lost - old.lost) % _COUNTER
    if not late and not lost:
        return None
    frames = new.frames - old.frames
    reason = f"{late} late and {lost} lost of {frames + lost} frames in {now_s - base.at_s:.0f} s"
    return ("good" if not lost and late < 0.01 * frames else "poor"), reason


def _delivery(old: Reading, new: Reading) -> tuple[str, str]:
    rate = new.rate_millihertz / 1000
    span_s = (new.last_ns - old.last_ns) / 1e9
    if rate and span_s >= DELIVERY_WINDOW_S / 2:
        ratio = (new.frames - old.frames) / (rate * span_s)
        if ratio < LUMPY_DELIVERY:
            worse = "poor" if ratio < POOR_DELIVERY else "good"
            return worse, f"only {ratio:.1%} of its frames in {span_s:.0f} s"
    return "perfect", "no frame late or lost"


@dataclass(frozen=True)
class GuestStream(Model):
    """A guest's word on one of its streams, not measured by the host."""

    class_name: ClassName
    name: str
    source: Annotated[str, Word(SOURCES)]
    frames_per_second: float
    frames: int
    late: int
    lost: int
    pace_bytes_per_second: int | None
    at: float
    fresh: Annotated[bool, Flag(help="it has told something new in the last 10 s")]
    verdict: Annotated[str, Word(("perfect", "good", "poor", "unknown"))]
    reason: str
    stream: str | None


def said(series: Series, class_name: str, stream: str | None, now_s: float) -> GuestStream:
    """`stream`: the declared stream of the domain and class, if there is one."""
    reading = series.newest.reading
    verdict, reason = series.verdict(now_s)
    return GuestStream(
        class_name,
        reading.name,
        reading.source,
        reading.rate_millihertz / 1000,
        reading.frames,
        reading.late,
        reading.lost,
        reading.pace_bytes_per_second or None,
        series.newest.shown_at,
        series.is_fresh(now_s),
        verdict,
        reason,
        stream,
    )


def counting(found: Iterable[GuestStream]) -> GuestStream | None:
    """Which of a class's records its stream is judged by: of the fresh ones the best source's,
    and of several of that source the worst. None if no record is fresh."""
    fresh = [one for one in found if one.fresh]
    return min(
        fresh,
        key=lambda one: (SOURCES.index(one.source), _VERDICTS.index(one.verdict)),
        default=None,
    )
