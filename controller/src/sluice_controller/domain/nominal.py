# SPDX-License-Identifier: GPL-2.0-or-later
"""The rate of a stream that was declared without one, learnt from its traffic. Pure.

**Model.** A stream that nothing holds up moves as much as it plays, over some seconds: its reads
come in lumps, and a player keeps its buffer full. So its bytes are summed over windows of 10 s, and
a window counts if nothing held the stream up in it. A player that catches up, or fills its buffer,
moves more for a while: the window after one that does not count does not count, either. Of disk and
network the greater sum is the stream's, for a guest may have the film in its cache.

**Rate.** Nine tenths of the last 60 windows that count do not exceed it. Films vary, and too high a
rate costs the background something, too low a rate costs the stream its deadline. It is known after
three windows. Up to then a usual film's rate is supposed, or what the stream has moved, held up or
not, if that is more.

**Bounds.** A guest chooses its own traffic. No learnt rate is above `MOST`, and a stream without a
declared rate is greedy (`tuner.py`, `uplink_first.py`) as if it had declared that. A stream that
needs more is to be declared with its rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from .knobs import Model, Word
from .model import Stream
from .rates import format_rate

WINDOW_S = 10.0
MOST_WINDOWS, LEAST_WINDOWS, SURE_WINDOWS = 60, 3, 6
# Windows of any kind, for what it has moved at least.
RECENT_WINDOWS = 6
SHARE = 0.9
# Bytes per second: 8 and 100 Mbit/s, a film as most are and one of the largest.
SUPPOSED, MOST, LEAST = 1e6, 12.5e6, 1024.0
# A declared rate is doubted if it is so many times more or less than what moves, for 5 min.
DOUBTED, DOUBT_WINDOWS = 3.0, 30

DECLARED, LEARNT, UNKNOWN = SOURCES = "declared", "learnt", "supposed"


@dataclass(frozen=True)
class Learning:
    """Of one stream. Rates are in bytes per second."""

    # Those of the windows that count, and of the last windows of any kind that moved something.
    counted: tuple[float, ...] = ()
    recent: tuple[float, ...] = ()
    # Whether the window before this one would have counted by itself.
    follows_clear: bool = False
    # This window: its length, bytes from the disk and to the network, whether it was held up.
    passed_s: float = 0.0
    disk_bytes: float = 0.0
    net_bytes: float = 0.0
    is_held: bool = False

    @property
    def moves(self) -> float | None:
        """The rate that the windows tell; None while they are too few."""
        if len(self.counted) < LEAST_WINDOWS:
            return None
        ordered = sorted(self.counted)
        return ordered[min(len(ordered) - 1, int(SHARE * len(ordered)))]

    @property
    def seconds(self) -> float:
        return WINDOW_S * len(self.counted)


@dataclass(frozen=True)
class Nominal(Model):
    """The rate that is in force for a stream."""

    bytes_per_second: float
    source: Annotated[str, Word(SOURCES, help="whose word it is")]
    # For people, with how sure that is.
    sentence: str

    @property
    def is_known(self) -> bool:
        return self.source != UNKNOWN


def looked(
    before: Learning, disk_bps: float, net_bps: float, passed_s: float, *, is_held: bool
) -> Learning:
    """After a look at the time that has passed since the last; `is_held`: something held it up."""
    now = replace(
        before,
        passed_s=before.passed_s + passed_s,
        disk_bytes=before.disk_bytes + disk_bps * passed_s,
        net_bytes=before.net_bytes + net_bps * passed_s,
        is_held=before.is_held or is_held,
    )
    return now if now.passed_s < WINDOW_S else _ended(now)


def _ended(window: Learning) -> Learning:
    rate = max(window.disk_bytes, window.net_bytes) / window.passed_s
    is_clear = rate >= LEAST and not window.is_held
    counted, recent = window.counted, window.recent
    if is_clear and window.follows_clear:
        counted = (*counted, rate)[-MOST_WINDOWS:]
    if rate >= LEAST:
        recent = (*recent, rate)[-RECENT_WINDOWS:]
    return Learning(counted, recent, follows_clear=is_clear)


def unseen(before: Learning) -> Learning:
    """After a time of which nothing is known: the window begins anew, and so does its stream."""
    return Learning(before.counted, before.recent)


def allowed_bps(stream: Stream) -> float:
    """The rate that it may move: much more, for long, is greedy."""
    declared = stream.nominal_bytes_per_second
    return MOST if declared is None else declared


def nominal(stream: Stream, learning: Learning) -> Nominal:
    """The rate in force."""
    declared = stream.nominal_bytes_per_second
    if declared is not None:
        return Nominal(declared, DECLARED, _of_declared(declared, learning))
    moves = learning.moves
    if moves is None:
        supposed = min(MOST, max(SUPPOSED, *learning.recent, 0.0))
        return Nominal(supposed, UNKNOWN, _of_unknown(supposed, learning))
    words = f"learnt over {_span(learning)}"
    if len(learning.counted) < SURE_WINDOWS:
        words += ", and not sure yet"
    if moves > MOST:
        words = (
            f"the most that is learnt, and it has moved {format_rate(moves)} for"
            f" {_span(learning)}: declare its rate if it needs more"
        )
    rate = min(MOST, moves)
    return Nominal(rate, LEARNT, f"{format_rate(rate)}, {words}")


def _of_declared(declared: float, learning: Learning) -> str:
    words = f"{format_rate(declared)}, declared"
    moves = learning.moves
    if moves is None or len(learning.counted) < DOUBT_WINDOWS:
        return words
    if declared / DOUBTED <= moves <= declared * DOUBTED:
        return words
    effect = "waits that it bears count as too long" if moves < declared else "it counts as greedy"
    return (
        f"{words}; it has moved {format_rate(moves)} for {_span(learning)}: with a wrong rate"
        f" {effect}; declare what it plays, or no rate, which is learnt then"
    )


def _of_unknown(supposed: float, learning: Learning) -> str:
    needs_s = WINDOW_S * LEAST_WINDOWS
    if not learning.recent:
        why = "it has moved nothing yet"
    else:
        why = f"{learning.seconds:.0f} of {needs_s:.0f} s are seen in which nothing held it up"
    return f"not known yet: {why}; {format_rate(supposed)} is supposed until then"


def _span(learning: Learning) -> str:
    seconds = learning.seconds
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# Over a restart


def kept(stream: Stream, learning: Learning) -> dict[str, Any]:
    """In JSON, with the class that it was learnt of."""
    of = [stream.domain, stream.class_name]
    return {"of": of, "counted": [round(rate) for rate in learning.counted]}


def restored(stream: Stream, record: Mapping[str, Any] | None) -> Learning:
    """Of a stream that has another class by now, nothing."""
    if record is None or record["of"] != [stream.domain, stream.class_name]:
        return Learning()
    return Learning(tuple(map(float, record["counted"])))
