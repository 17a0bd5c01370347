# SPDX-License-Identifier: GPL-2.0-or-later
"""Observations, memory and decisions of the tuner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from .limits import BLK_READ, BLK_WRITE, NET_TX
from .shares import Key, Load

MS = 1_000_000
SECOND = 1000 * MS

DISK, NETWORK = "disk", "network"
ARM_RESOURCES = {DISK: (BLK_READ, BLK_WRITE), NETWORK: (NET_TX,)}

SEGMENT_OVERHEAD = 1.045
LARGEST_OVERHEAD = 1.1

OFF, WATCHING, BACKING_OFF, PROBING, SETTLED = (
    "off",
    "watching",
    "backing-off",
    "probing",
    "settled",
)


@dataclass(frozen=True)
class Policy:
    floors: Mapping[str, float]
    risk_ticks: int = 3
    safe_pressure: float = 0.7
    comfort_pressure: float = 0.5
    first_factor: float = 0.85
    cut_factor: float = 0.85
    hard_cut_factor: float = 0.7
    drain_factor: float = 0.25
    least_reached: float = 0.75
    hard_pressure: float = 2.0
    drain_pressure: float = 1.5
    gentle_cut_factor: float = 0.93
    link_margin: float = 0.02
    queue_delay_ms: float = 20.0
    hold_ns: Mapping[str, int] = field(
        default_factory=lambda: {DISK: 1500 * MS, NETWORK: 1200 * MS}
    )
    shortest_drain_ns: int = 300 * MS
    longest_drain_ns: int = 8 * SECOND
    player_delay_ns: int = 1 * SECOND
    probe_ns: int = 1 * SECOND
    first_step: float = 0.02
    largest_step: float = 0.08
    settled_step: float = 1.05
    failed_margin: float = 0.02
    forget_ns: int = 20 * SECOND
    longest_forget_ns: int = 300 * SECOND
    split_ns: int = 500 * MS
    edge_ns: int = 2 * SECOND
    idle_ns: int = 30 * SECOND
    # Cuts that do not bring the pressure below this share of its peak, for so long, do not help.
    helped_share: float = 0.7
    help_ns: int = 5 * SECOND
    # A client reports once a second: its fault goes on until that long brings no other.
    fault_lasts_ns: int = 2 * SECOND
    # Then everything but the floors is cut for so long: a last try.
    last_try_ns: int = 3 * SECOND
    # Before cuts are tried again; twice as long after each try that did not help.
    elsewhere_ns: int = 30 * SECOND
    longest_elsewhere_ns: int = 600 * SECOND
    # A stream that moves so much more than its nominal rate, for so long, is no reason to cut.
    greedy_factor: float = 1.5
    greedy_ns: int = 2 * SECOND
    # Peaks of a film are shorter. After so long, cuts that were made for it are lifted.
    longest_peak_ns: int = 10 * SECOND
    smallest_change: float = 0.02


@dataclass(frozen=True)
class StreamView:
    """A stream as the host sees it, with its client's reports since the last tick."""

    name: str
    domain: str
    class_name: str
    nominal_bytes_per_second: float
    disk_bytes_per_second: float = 0.0
    disk_request_bytes: float = 0.0
    disk_requests: float = 0.0
    disk_mean_ms: float = 0.0
    disk_worst_ms: float = 0.0
    disk_latest_ms: float = 0.0
    net_bytes_per_second: float = 0.0
    processor_wait_ms_per_second: float = 0.0
    stalled: bool = False
    lost: bool = False
    fault_began_ns: int = 0
    # The rate beyond which it is greedy, where that is not the nominal one.
    allowed_bytes_per_second: float | None = None


@dataclass(frozen=True)
class UplinkView:
    backlog_bytes: float
    dropped: int
    bytes_per_second: float
    link_bytes_per_second: float | None
    # The link of this rate lies beyond the host: its queue is not in the backlog.
    is_beyond: bool = False
    # Streams whose frames wait for none of the others'.
    first: frozenset[str] = frozenset()
    # The highest of the mean over a second and over its last half.
    peak_bytes_per_second: float = 0.0
    # Why its rate is one that `beyond.py` has learnt, and moves; empty if it is not.
    learnt: str = ""


class Background(Sequence[Load]):
    """Loads that are worked out on first use.

    Use is seldom: not while every stream is at ease and nothing is held.
    """

    def __init__(self, work_out: Callable[[], Sequence[Load]]) -> None:
        self._work_out = work_out

    @cached_property
    def _loads(self) -> Sequence[Load]:
        return self._work_out()

    def __getitem__(self, index):
        return self._loads[index]

    def __len__(self) -> int:
        return len(self._loads)

    def __iter__(self) -> Iterator[Load]:
        return iter(self._loads)


@dataclass(frozen=True)
class Observation:
    streams: tuple[StreamView, ...]
    background: Sequence[Load]
    uplink: UplinkView | None = None
    # The traffic of classes that no cap holds.
    unmanaged_net_bytes_per_second: float = 0.0
    # Domains of which the host sees nothing just now.
    unseen: frozenset[str] = frozenset()
    # There should be an uplink, and it could not be read.
    uplink_unseen: bool = False


@dataclass(frozen=True)
class Elsewhere:
    """A stream that cuts on a resource did not help; the streams beside it are watched on."""

    # In a row.
    tries: int
    # Until then, and up to that pressure, none is made.
    until_ns: int
    pressure: float
    # When it was last beyond its edge.
    risky_ns: int


@dataclass(frozen=True)
class Help:
    """The most pressure since cuts began, and when they last were seen to help."""

    peak: float = 0.0
    helped_ns: int | None = None


@dataclass(frozen=True)
class Arm:
    """The memory of one resource."""

    phase: str = WATCHING
    level: float | None = None
    caps: Mapping[Key, float] = field(default_factory=dict)
    risky_ticks: int = 0
    active_ns: int = 0
    changed_ns: int = 0
    split_at_ns: int = 0
    resume_level: float | None = None
    resume_caps: Mapping[Key, float] = field(default_factory=dict)
    edge_since_ns: int | None = None
    safe_level: float | None = None
    failed_level: float | None = None
    failed_ns: int = 0
    failures: int = 0
    step: float = 0.02
    risk_began_ns: int | None = None
    settled_ns: int | None = None
    help: Help = Help()
    # When a client's fault was last laid to the resource.
    fault_ns: int | None = None
    is_last_try: bool = False
    # Its level is what a link beyond leaves, whose rate is learnt.
    follows: bool = False
    # Level and failed level when every stream was last at ease, if one was since the first cut.
    eased: tuple[float, float | None] | None = None
    # By name, the streams that cuts did not help.
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    arms: Mapping[str, Arm] = field(default_factory=lambda: {DISK: Arm(), NETWORK: Arm()})
    unexplained_ns: int | None = None
    # Streams that move more than they declare, by name: since when.
    greedy_since_ns: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def caps(self) -> Mapping[Key, float]:
        return {key: cap for arm in self.arms.values() for key, cap in arm.caps.items()}

    @property
    def phase(self) -> str:
        phases = {arm.phase for arm in self.arms.values() if arm.level is not None}
        for phase in (BACKING_OFF, PROBING, SETTLED):
            if phase in phases:
                return phase
        return WATCHING

    @property
    def settled_after_ns(self) -> int | None:
        """From the first risk until the last arm settled; None until then."""
        spans = [
            None if arm.settled_ns is None else arm.settled_ns - arm.risk_began_ns
            for arm in self.arms.values()
            if arm.risk_began_ns is not None
        ]
        return None if not spans or None in spans else max(spans)


@dataclass(frozen=True)
class Pressure:
    """How near a stream is to its edge on one resource, and in which words."""

    value: float = 0.0
    latest: float = 0.0
    stream: str | None = None
    words: str = ""
    fault: bool = False
    fault_began_ns: int = 0
    without_fault: Pressure | None = None


class Change(NamedTuple):
    key: Key
    before: float | None
    after: float | None


# The kind of a decision about a fault for which nothing here is to blame.
UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Decision:
    """Something worth a line in the log; `changes` may be empty."""

    arm: str | None
    kind: str
    stream: str | None
    words: str
    changes: tuple[Change, ...] = ()
