# SPDX-License-Identifier: GPL-2.0-or-later
"""The rate of a link beyond the host that nobody here can see, from streams' round trips. Pure.

**Signal.** A stream's TCP connection knows its round trip and the least of it. The difference is
the time in queues on its way. While the host's own queue is short, or the stream goes first in
it, it is that of a link beyond. The edge is 10 ms, or an eighth of the least round trip where that
is more, as long ways vary more. It is far below what a player buffers: a queue has to be noticed
before it overflows.

**Estimate.** While a queue stands there, its link is full: what left this host in the last
second is what it carries, and somewhat more while senders lose data. So at the edge all that
leaves is held to 0.93 of what left, and to less until the queue has drained. From then on the
rate rises as CUBIC's window does (RFC 9438, section 4.2): fast, slowly about the level that
failed, and faster beyond it, by 2 to 4 % a second at most, so that the next queue is noticed while
it is short.

**Guards.** The numbers are a guest's word, so they bound others no more than they must: the
rate is never below a quarter of what left when it was first held, once that has helped of what the
link carried then, nor below what streams and floors need. A hold that follows another soon is
bounded by what left when that began, or each would be a quarter of the last. Cuts down to there
that do not help are given back (`guards.py`): the congestion is somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .guards import helped, is_aside, is_helpless, set_aside, still_aside
from .rates import format_rate
from .tuner_types import MS, SECOND, Elsewhere, Help, Policy

LEAST_EDGE_S = 0.010
EDGE_OF_ROUND_TRIP = 0.125
# Guests tell twice a second.
FRESH_NS = 2 * SECOND
# Of the first, the next two and each further cut of a row: senders who do not slow down send
# far more than the link carries.
CUTS = (0.93, 0.8, 0.8, 0.65)
# From a cut until a guest can tell of its effect; a cut so soon after it is of its row.
# `TOLD`: a word that is older than that by then is of before.
HOLD_NS, AGAIN_NS, TOLD_NS = 1000 * MS, 2000 * MS, 500 * MS
# Paused or idle senders are no measure of what the link carries.
LEAST_OF_RATE = 0.5
# A queue of so many seconds shall be gone after as many; it has drained at that part of the edge.
DRAIN_S, LONGEST_DRAIN_NS, MOST_DRAINING, DRAINED = 0.5, 2 * SECOND, 0.5, 0.7
# After a cut, until the rate is again at the level that failed.
RECOVERY_S = 8.0
# Parts of the rate; `FAR`: above the level that failed.
RISE_PER_S, FAR_RISE_PER_S, FAR = 0.02, 0.04, 1.02
# Above that part of the edge it does not rise, nor while less than that part of it is in use.
WARY, USED = 0.5, 0.85
# Of what left when it was first held; then of what the link carried.
LEAST_SHARE = 0.25
# After a hold, until half of what left when it began bounds the next one.
HALF_LIFE_NS = 60 * SECOND
# Of all that leaves; less is not worth a limit.
LEAST_BACKGROUND = 0.05
# The rate is said again when it is so many times higher or lower, and that long after.
REGIME, QUIET_NS = 1.5, 5 * SECOND

HELD, MOVED, ELSEWHERE, LIFTED = "held", "moved", "elsewhere", "lifted"


@dataclass(frozen=True)
class RoundTrip:
    """A stream's, as its guest says: when sluiced heard of it, smoothed, and the least."""

    at_ns: int
    smoothed_s: float
    least_s: float

    @property
    def waits_s(self) -> float:
        return max(0.0, self.smoothed_s - self.least_s)

    @property
    def edge_s(self) -> float:
        return max(LEAST_EDGE_S, EDGE_OF_ROUND_TRIP * self.least_s)

    @property
    def words(self) -> str:
        return f"{_ms(self.smoothed_s)} over {_ms(self.least_s)}"


def shared(trips: Iterable[RoundTrip], now_ns: int) -> RoundTrip | None:
    """Of several connections the one that waits least now: a queue before all delays each."""
    fresh = (trip for trip in trips if now_ns - trip.at_ns <= FRESH_NS)
    return min(fresh, key=lambda trip: trip.waits_s, default=None)


@dataclass(frozen=True)
class Look:
    """One tick. Rates are bytes per second by the uplink.

    `trips` are those of streams that wait for no queue of the host's own. `left` is all that left,
    `background` its part; `least`, what streams and floors need; `top`, the link's rate as it is
    known.
    """

    trips: Mapping[str, RoundTrip]
    left: float
    background: float
    least: Callable[[], float]
    top: float | None
    now_ns: int


@dataclass(frozen=True)
class State:
    """`rate`: None while nothing is held; `drains`: so much less until a queue is gone; `first`:
    what left when it was first held, or more if that was soon after another hold, which `ended_ns`;
    `began`: the same until the queue was first gone, then the rate at which it was; `failed`: what
    left at the last cut."""

    rate: float | None = None
    drains: float = 0.0
    first: float = 0.0
    ended_ns: int = 0
    began: float = 0.0
    was_gone: bool = False
    failed: float = 0.0
    cut_ns: int = 0
    # In a row.
    cuts: int = 0
    moved_ns: int = 0
    # Of the newest word, and when there last was a fresh one.
    heard_ns: int = 0
    fresh_ns: int = 0
    help: Help = Help()
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    # Why all that leaves is held, as of the last cut.
    because: str = ""
    told_rate: float = 0.0
    told_ns: int = 0

    @property
    def held(self) -> float | None:
        """The rate now."""
        return None if self.rate is None else self.rate - self.drains


@dataclass(frozen=True)
class News:
    kind: str
    stream: str | None
    sentence: str


Step = tuple[State, tuple[News, ...]]


def advance(state: State, look: Look, policy: Policy) -> Step:
    """One tick: `held` of the new state should be in force from now on."""
    now_ns = look.now_ns
    values = {
        name: trip.waits_s / trip.edge_s
        for name, trip in look.trips.items()
        if now_ns - trip.at_ns <= FRESH_NS
    }
    aside = still_aside(state.elsewhere, values, policy, now_ns)
    state = replace(state, elsewhere=aside, fresh_ns=now_ns if values else state.fresh_ns)
    if state.rate is not None and now_ns - state.fresh_ns > policy.idle_ns:
        return _lifted(state, "no guest tells of a stream's round trips any more", now_ns)
    heard = {n: value for n, value in values.items() if not is_aside(aside, n, value, now_ns)}
    if not heard:
        # Missing knowledge loosens nothing, nor does it say that cuts do not help.
        return replace(state, moved_ns=now_ns, help=replace(state.help, helped_ns=now_ns)), ()
    worst = max(heard, key=heard.__getitem__)
    heard_ns = max(look.trips[name].at_ns for name in heard)
    is_new = heard_ns > state.heard_ns
    state = replace(state, heard_ns=heard_ns)
    if state.rate is None:
        is_ours = look.background >= LEAST_BACKGROUND * look.left > 0
        return _begun(state, worst, heard[worst], look) if is_new and is_ours else (state, ())
    if is_new:
        help_ = helped(state.help, heard[worst], False, policy, now_ns)
        is_tried = now_ns - state.cut_ns >= policy.last_try_ns and state.rate <= _bound(state, look)
        if is_tried and is_helpless(help_, policy, now_ns):
            aside = set_aside(aside, heard, worst, help_.peak, policy, now_ns)
            return _given_back(replace(state, elsewhere=aside), worst, look)
        state = replace(state, help=help_)
    return _told(_steered(state, worst, heard[worst], is_new, look), worst, look)


def _begun(state: State, worst: str, value: float, look: Look) -> Step:
    if value <= 1:
        return state, ()
    before = state.first * 0.5 ** ((look.now_ns - state.ended_ns) / HALF_LIFE_NS)
    first = max(look.left, before)
    begun = replace(state, first=first, began=first, help=Help(value, look.now_ns))
    begun = _cut(begun, worst, look)
    assert begun.rate is not None
    if look.top is not None and begun.rate >= look.top:
        # Those who know that rate hold all to it.
        return state, ()
    state = replace(begun, told_rate=begun.rate, told_ns=look.now_ns)
    return state, (News(HELD, worst, f"Stall risk on {worst}: {_words(state, worst, look)}"),)


def _steered(state: State, worst: str, value: float, is_new: bool, look: Look) -> State:
    assert state.rate is not None
    told_ns = look.trips[worst].at_ns
    has_told = is_new and min(look.now_ns, told_ns + TOLD_NS) - state.cut_ns >= HOLD_NS
    if value > 1 and has_told and state.rate > _bound(state, look):
        return _cut(state, worst, look)
    if value < DRAINED or look.now_ns - state.cut_ns > LONGEST_DRAIN_NS:
        state = replace(state, drains=0.0)
    if value < DRAINED and not state.was_gone:
        # Far more may have left at first than the link carries.
        state = replace(state, began=state.rate, was_gone=True)
    passed_s = (look.now_ns - state.moved_ns) / SECOND
    state = replace(state, moved_ns=look.now_ns)
    if value > WARY or state.drains or look.left < USED * state.rate:
        return state
    return replace(state, rate=_risen(state, passed_s, look))


def _cut(state: State, worst: str, look: Look) -> State:
    left, cuts = look.left, 0
    if state.rate is not None:
        # While a queue drains, less leaves on purpose.
        least_left = state.rate if state.drains else LEAST_OF_RATE * state.rate
        left = min(state.rate, max(left, least_left))
        cuts = state.cuts + 1 if look.now_ns - state.cut_ns < AGAIN_NS else 0
    rate = max(CUTS[min(cuts, len(CUTS) - 1)] * left, _bound(state, look))
    drains = min(look.trips[worst].waits_s / DRAIN_S, MOST_DRAINING) * rate
    return replace(
        state,
        rate=rate,
        drains=max(0.0, min(drains, rate - look.least())),
        failed=left,
        because=f"{worst}'s round trip was {look.trips[worst].words}",
        cut_ns=look.now_ns,
        cuts=cuts,
        moved_ns=look.now_ns,
    )


def _bound(state: State, look: Look) -> float:
    """No rate is lower."""
    return max(LEAST_SHARE * state.began, look.least())


def _risen(state: State, passed_s: float, look: Look) -> float:
    rate = state.rate or 0.0
    since = (look.now_ns - state.cut_ns) / SECOND / RECOVERY_S
    cubic = state.failed * (1 + (1 - CUTS[0]) * (since - 1) ** 3)
    rise_per_s = FAR_RISE_PER_S if rate > FAR * state.failed else RISE_PER_S
    return max(rate, min(cubic, rate * (1 + rise_per_s * passed_s)))


# Words


def _told(state: State, worst: str, look: Look) -> Step:
    rate = state.rate or 0.0
    if look.top is not None and rate >= look.top:
        return _lifted(state, "the queue beyond is gone at the uplink's own rate", look.now_ns)
    ratio = max(rate, state.told_rate) / min(rate, state.told_rate)
    if ratio < REGIME or look.now_ns - state.told_ns < QUIET_NS:
        return state, ()
    state = replace(state, told_rate=rate, told_ns=look.now_ns)
    return state, (News(MOVED, worst, f"{worst}: {_words(state, worst, look)}"),)


def _lifted(state: State, why: str, now_ns: int) -> Step:
    words = f"All that leaves the host is held no more for a link beyond: {why}"
    return _ended(state, now_ns), (News(LIFTED, None, words),)


def _ended(state: State, now_ns: int) -> State:
    return State(elsewhere=state.elsewhere, first=state.first, ended_ns=now_ns)


def _given_back(state: State, worst: str, look: Look) -> Step:
    wait_s = (state.elsewhere[worst].until_ns - look.now_ns) // SECOND
    words = (
        f"{worst} waits for something else than the others here: its round trip is "
        f"{look.trips[worst].words}, though all that leaves the host was held to "
        f"{format_rate(state.rate or 0.0)}; it is held no more, tried again in {wait_s} s"
    )
    return _ended(state, look.now_ns), (News(ELSEWHERE, worst, words),)


def _words(state: State, worst: str, look: Look) -> str:
    return (
        f"nobody here can see its link, and its round trip is {look.trips[worst].words}; all that "
        f"leaves the host is held to {format_rate(state.rate or 0.0)}"
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
