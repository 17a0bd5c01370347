# SPDX-License-Identifier: GPL-2.0-or-later
"""When VMs without a stream leave processors to those with one, and how far.

Only the host can ease this pressure: a VM's weight first, as it costs nothing while
processors are idle, then a quota of each of its vCPUs. One step at a time, up while a stream's
VM waits for longer than a stream bears, down after calm.

Steps that do not help within some seconds are all taken back, and tried again later: the VM
may wait for its own other threads, for a program outside of VMs, or for a limit that an
operator gave it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from .auto_words import listed
from .processors import BEARABLE_MS_PER_SECOND, Wait

SECOND = 1_000_000_000

# Of a VM's own weight, and of a processor for each of its vCPUs.
LADDER: tuple[tuple[float, float | None], ...] = (
    (1 / 8, None),
    (1 / 64, None),
    (1 / 64, 1 / 2),
    (1 / 64, 1 / 8),
)
# The least that each version of control groups takes, and that libvirt does.
LEAST_WEIGHT = 2
LEAST_QUOTA_US = 1000
NO_QUOTA_US = -1
RISKY_ROUNDS = 3
CALM_PRESSURE = 0.5
CALM_NS = 10 * SECOND
LONGEST_CALM_NS = 160 * SECOND
# So soon after a step down, one risky look takes it back.
RELAPSE_NS = 30 * SECOND
# As for disk and network (`Policy` in tuner_types.py).
HELPED_SHARE = 0.7
HELP_NS = 5 * SECOND
ELSEWHERE_NS = 30 * SECOND
LONGEST_ELSEWHERE_NS = 600 * SECOND
# For so long, missing knowledge loosens nothing.
UNSEEN_NS = 30 * SECOND
# That nobody can leave anything is said again after this long.
REPEAT_NS = 600 * SECOND

RISK, ROOM, ELSEWHERE, NOBODY, IDLE = "risk", "room", "elsewhere", "nobody", "idle"


@dataclass(frozen=True)
class Share:
    """A running VM's share of the host's processors. The quota is of each vCPU, in a period."""

    weight: int
    quota_us: int = NO_QUOTA_US
    period_us: int = 100_000


def eased(own: Share, level: int) -> Share:
    """A VM's share at a level, of what is its own. Level 0 is the latter."""
    if level == 0:
        return own
    weight, of_processor = LADDER[level - 1]
    share = replace(own, weight=min(own.weight, max(LEAST_WEIGHT, round(own.weight * weight))))
    if of_processor is None:
        return share
    quota_us = max(LEAST_QUOTA_US, round(own.period_us * of_processor))
    if own.quota_us > 0:
        quota_us = min(own.quota_us, quota_us)
    return replace(share, quota_us=quota_us)


def every_share(own: Share) -> frozenset[Share]:
    """All that sluiced makes of it."""
    return frozenset(eased(own, level) for level in range(1, len(LADDER) + 1)) - {own}


def given_back(present: Share, own: Share, ours: Collection[Share]) -> Share:
    """A share that an operator has changed: the parts that are sluiced's still are its own again.

    A period is never sluiced's, so a quota of sluiced's in another period is given back, too.
    """
    share = present
    if share.weight in {one.weight for one in ours}:
        share = replace(share, weight=own.weight)
    if share.quota_us in {one.quota_us for one in ours}:
        share = replace(share, quota_us=own.quota_us)
    return share


@dataclass(frozen=True)
class State:
    level: int = 0
    risky: int = 0
    changed_ns: int = 0
    seen_ns: int = 0
    # When the pressure became calm; None while it is not.
    calm_since_ns: int | None = None
    calm_ns: int = CALM_NS
    stepped_down_ns: int | None = None
    peak: float = 0.0
    helpless: int = 0
    elsewhere_until_ns: int = 0
    nobody_until_ns: int = 0


@dataclass(frozen=True)
class Move:
    """Something worth a line in the log. The stream is none where all are gone."""

    kind: str
    stream: str | None
    level: int


def step(
    state: State, pressures: Mapping[str, float | None], can_ease: bool, now_ns: int
) -> tuple[State, Move | None]:
    """One look at the pressure of each stream; None where it is not known.

    `can_ease`: whether any VM could leave something.
    """
    known = {name: value for name, value in pressures.items() if value is not None}
    if not known:
        if state.level and (not pressures or now_ns - state.seen_ns >= UNSEEN_NS):
            return State(), Move(IDLE, None, 0)
        return replace(state, risky=0, calm_since_ns=None), None
    worst = max(known, key=lambda name: known[name])
    pressure = known[worst]
    is_calm = pressure < CALM_PRESSURE
    since_ns = state.calm_since_ns if state.calm_since_ns is not None else now_ns
    state = replace(
        state,
        seen_ns=now_ns,
        risky=state.risky + 1 if pressure > 1 else 0,
        calm_since_ns=since_ns if is_calm else None,
        peak=max(state.peak, pressure) if state.level else pressure,
    )
    if state.risky >= (1 if _is_relapse(state, now_ns) else RISKY_ROUNDS):
        return _up(state, worst, pressure, can_ease, now_ns)
    if is_calm and now_ns - since_ns >= state.calm_ns:
        return _down(state, worst, now_ns)
    return state, None


def _up(
    state: State, stream: str, pressure: float, can_ease: bool, now_ns: int
) -> tuple[State, Move | None]:
    if now_ns < state.elsewhere_until_ns:
        return state, None
    if not can_ease:
        if now_ns < state.nobody_until_ns:
            return state, None
        return replace(state, nobody_until_ns=now_ns + REPEAT_NS), Move(NOBODY, stream, 0)
    if state.level < len(LADDER):
        calm_ns = state.calm_ns
        stepped_down_ns = state.stepped_down_ns
        if _is_relapse(state, now_ns):
            # Taken back at once. Of a further step the usual holds again.
            calm_ns, stepped_down_ns = min(LONGEST_CALM_NS, 2 * calm_ns), None
        state = replace(
            state,
            level=state.level + 1,
            risky=0,
            changed_ns=now_ns,
            calm_ns=calm_ns,
            stepped_down_ns=stepped_down_ns,
        )
        return state, Move(RISK, stream, state.level)
    if pressure < HELPED_SHARE * state.peak or now_ns - state.changed_ns < HELP_NS:
        return state, None
    wait_ns = min(LONGEST_ELSEWHERE_NS, ELSEWHERE_NS << min(state.helpless, 8))
    helpless = state.helpless + 1
    state = State(seen_ns=now_ns, helpless=helpless, elsewhere_until_ns=now_ns + wait_ns)
    return state, Move(ELSEWHERE, stream, 0)


def _is_relapse(state: State, now_ns: int) -> bool:
    """Whether a risk now says that the last step down came too early."""
    return state.stepped_down_ns is not None and now_ns - state.stepped_down_ns < RELAPSE_NS


def _down(state: State, stream: str, now_ns: int) -> tuple[State, Move | None]:
    """Calm counts anew for each step."""
    if state.level == 0:
        return State(seen_ns=now_ns, calm_since_ns=now_ns), None
    state = replace(
        state,
        level=state.level - 1,
        changed_ns=now_ns,
        stepped_down_ns=now_ns,
        calm_since_ns=now_ns,
        helpless=0,
    )
    return state, Move(ROOM, stream, state.level)


# Words


def share_words(level: int) -> str:
    """The share of VMs without a stream at a level."""
    if level == 0:
        return "their own share of the processors"
    weight, of_processor = LADDER[level - 1]
    words = f"1/{round(1 / weight)} of their weight"
    return words if of_processor is None else f"{words} and {of_processor:.1%} of each vCPU's time"


def sentence(move: Move, domain: str, wait: Wait | None, others: Sequence[str]) -> str:
    """`domain` is the stream's, `others` the VMs that leave something to it."""
    stream, gives = move.stream or "", listed(others)
    waits = ""
    if wait is not None:
        waits = (
            f"{domain} waits {wait.ms_per_second:.0f} ms of each second for a processor, "
            f"{BEARABLE_MS_PER_SECOND:.0f} ms can be borne"
        )
    if move.kind == RISK:
        return f"Stall risk on {stream}: {waits}; {gives} get {share_words(move.level)}"
    if move.kind == ROOM:
        return f"Room beside {stream}: {waits}; {gives} get {share_words(move.level)}"
    if move.kind == ELSEWHERE:
        return (
            f"{stream} waits for something else than the others' processors: {waits}; "
            f"{gives} get {share_words(0)}"
        )
    if move.kind == NOBODY:
        return (
            f"Stall risk on {stream}: {waits}; no attached VM without a stream can leave it any, "
            "and nothing was changed"
        )
    return f"No stream waits for processors any more; {gives or 'others'} get {share_words(0)}"
