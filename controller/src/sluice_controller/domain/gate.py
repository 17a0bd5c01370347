# SPDX-License-Identifier: GPL-2.0-or-later
"""The outer loop of the gate: the latency that the background may have on a disk. Pure.

The gate (`qemu-patches/src/sluice/gate.c`) keeps the background's latency at a target, in
milliseconds. Ten times a second this loop moves the target, by the streams' reads alone: it
needs no agent and no player.

**Model.** A stream at rate r that reads R bytes at a time needs an answer each d = R / r. With
N reads under way an answer may take N d: the stream *bears* that. Its share of that time, u,
is the mean of its reads in flight over N: at 1 it always waits. The target is
`SHARE` of the shortest time that a stream bears, times `adjust`.

**Control.** If some stream's u is above `STRAINED`, or a read of it is late, `adjust` falls by
a quarter, and by half if that is worse, and again when the work in flight is done: no cut makes
that less. If all are below `AT_EASE` and the gate held requests, it rises by an eighth, ten times
a second up to half of where it was cut last, and beyond that once in the shortest time in which u
tells of it. For 20 s it stays below three quarters of where it was cut, and for twice as long
each time that it is cut again within half a minute after that. A gate that held nothing is no
reason for either: `adjust` drifts to 1. A stream that is not seen loosens nothing.

N is learnt low: of the reads in flight with each new one, the number that nine tenths do not
exceed. If N is too high, waiting looks like ease.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

MS = 1_000_000
SHARE = 0.4
# A film of a low rate reads seldom, but its player buffers no longer for that.
LEAST_D_S, MOST_D_S = 0.02, 0.3
LEAST_SMOOTH_S, MOST_SMOOTH_S = 0.25, 2.0
STRAINED, STALLING, AT_EASE = 0.75, 0.95, 0.6
LATE = 1.2
STARVING_BUSY, STARVING_RATE = 0.98, 0.93
CUT, HARD_CUT, SHRINK, RISE, DRIFT = 0.75, 0.5, 0.7, 1.12, 0.97
LEAST_ADJUST, MOST_ADJUST = 0.05, 2.5
CUT_EACH_NS, CUT_MOST_NS = 150 * MS, 600 * MS
# Cuts that follow each other sooner have one cause.
EPISODE_NS = 2_000 * MS
# For so long the target stays below this part of where it was cut, and longer after a relapse: a
# loop that goes back to its edge at once has the stream stall each few seconds.
HELD, LEAST_HELD = 0.75, 0.3
HOLD_NS, LONGEST_HOLD_NS, RELAPSE_NS = 20_000 * MS, 300_000 * MS, 30_000 * MS
# A target below this part of the last one that was cut may rise at once.
NEAR = 0.5
DEPTH_SHARE = 0.9


@dataclass(frozen=True)
class Reader:
    """The reads of a stream: since the last tick, but where a second is named."""

    name: str
    nominal_bytes_per_second: float
    request_bytes: float
    depth: int
    mean_in_flight: float
    oldest_s: float
    # Over the last second: the share of it with a read in flight, and the rate.
    outstanding: float
    bytes_per_second: float
    # The mean time that a read took; of none that was done the age of the oldest.
    wait_s: float = 0.0
    # Whether the nominal rate is declared or learnt, and not supposed.
    is_rate_known: bool = True

    @property
    def lasts_s(self) -> float:
        """The bytes of a read play for so long."""
        return self.request_bytes / self.nominal_bytes_per_second

    @property
    def each_s(self) -> float:
        """A read is due so soon."""
        return min(MOST_D_S, max(LEAST_D_S, self.lasts_s))

    @property
    def waits(self) -> float:
        """The share of the time that it can bear which its reads take."""
        return self.mean_in_flight / self.depth * max(1.0, self.lasts_s / self.each_s)

    @property
    def bears_s(self) -> float:
        return self.each_s * self.depth

    def pressure(self, waiting: float) -> float:
        """How near it is to its edge, which is 1; `waiting` is its smoothed share of waiting."""
        return max(waiting / STRAINED, self.wait_s / self.bears_s)

    @property
    def starves(self) -> bool:
        """It always waits, and gets less than it plays."""
        slow = self.bytes_per_second < STARVING_RATE * self.nominal_bytes_per_second
        return self.is_rate_known and slow and self.outstanding > STARVING_BUSY


@dataclass(frozen=True)
class State:
    adjust: float = 1.0
    cut_ns: int = -2 * EPISODE_NS
    # Where the last cuts began: near it the loop feels its way. Up to `until_ns`, `hold_ns` after
    # that, it stays well below.
    cut_from: float = 1 / NEAR
    hold_ns: int = 0
    until_ns: int = 0
    # Of each stream its smoothed share of waiting.
    waiting: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Steering:
    """The target of all gates on the disk in ns, 0 to open them; their windows times `shrink`."""

    target_ns: int
    shrink: float = 1.0


def depth_of(asked: Sequence[int]) -> int:
    """N, from how often a new read was the first, second … of those in flight."""
    total, seen = sum(asked), 0
    for in_flight, count in enumerate(asked, 1):
        seen += count
        if total and seen >= DEPTH_SHARE * total:
            return in_flight
    return 1


def steer(
    readers: Sequence[Reader],
    state: State,
    *,
    held: bool,
    unseen: bool,
    now_ns: int,
    passed_s: float,
    aside: Collection[str] = (),
) -> tuple[State, Steering]:
    """One tick. `held`: a gate of the disk held a request since the last; `unseen`: the reads
    of some stream are not known just now; `aside`: readers that have no say."""
    waiting = {reader.name: _waiting(reader, state, passed_s) for reader in readers}
    readers = [reader for reader in readers if reader.name not in aside]
    if not readers:
        return State(cut_ns=state.cut_ns, waiting=waiting), Steering(0)
    worst = max(waiting[reader.name] for reader in readers)
    late = any(reader.oldest_s > LATE * reader.bears_s for reader in readers)
    bears_s = min(reader.bears_s for reader in readers)
    shrink = 1.0
    state = replace(state, waiting=waiting)
    if worst > STRAINED or late:
        if now_ns - state.cut_ns >= _effect_ns(state.adjust, bears_s):
            state = _cut(state, HARD_CUT if late or worst > STALLING else CUT, now_ns)
            shrink = SHRINK
    elif unseen:
        state = replace(state, adjust=min(state.adjust, 1.0))
    elif not held:
        state = replace(state, adjust=1.0 + (state.adjust - 1.0) * DRIFT)
    elif worst < AT_EASE:
        state = _risen(state, max(_smooth_s(reader) for reader in readers), now_ns)
    target_ns = max(1, round(SHARE * bears_s * state.adjust * 1e9))
    return state, Steering(target_ns, shrink)


def _cut(state: State, factor: float, now_ns: int) -> State:
    if now_ns - state.cut_ns > EPISODE_NS:
        has_relapsed = now_ns - state.until_ns < RELAPSE_NS
        hold_ns = min(LONGEST_HOLD_NS, 2 * state.hold_ns) if has_relapsed else HOLD_NS
        until_ns = now_ns + max(HOLD_NS, hold_ns)
        state = replace(state, cut_from=state.adjust, hold_ns=hold_ns, until_ns=until_ns)
    return replace(state, adjust=max(LEAST_ADJUST, state.adjust * factor), cut_ns=now_ns)


def _risen(state: State, smooth_s: float, now_ns: int) -> State:
    near = NEAR * state.cut_from
    rise = RISE if state.adjust < near else RISE ** (LEAST_SMOOTH_S / smooth_s)
    most = max(HELD * state.cut_from, LEAST_HELD) if now_ns < state.until_ns else MOST_ADJUST
    # A target that is above already need not fall.
    return replace(state, adjust=max(state.adjust, min(most, state.adjust * rise)))


def _effect_ns(adjust: float, bears_s: float) -> int:
    """How long a cut takes to be felt: as long as the work takes that it has left in flight."""
    return max(CUT_EACH_NS, min(CUT_MOST_NS, round(SHARE * bears_s * adjust * 1e9)))


def _smooth_s(reader: Reader) -> float:
    """Three reads are the least that tell how a stream waits."""
    return min(MOST_SMOOTH_S, max(LEAST_SMOOTH_S, 3 * reader.lasts_s))


def _waiting(reader: Reader, state: State, passed_s: float) -> float:
    """Smoothed over a few reads."""
    now = 1.0 if reader.starves else reader.waits
    weight = 1 - math.exp(-passed_s / _smooth_s(reader))
    before = state.waiting.get(reader.name, 0.0)
    smoothed = before + weight * (now - before)
    return max(smoothed, 1.0) if reader.starves else smoothed
