# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping: finds the rates at which a stream plays and all else gets the most.

After SCS, section 5: a quality signal of the stream drives the limits of the
other classes. Two things differ. The signal is not the player's failure but
what precedes it, so that finding the limit does not cost a stall; and disk and
network are two arms with one level each, so that each is blamed for its own.

**Model.** An arm's *level* is the total rate of all background classes on its
resource, in bytes per second. Some level is the most that leaves the stream's
requests in time; it is unknown, moves with the load, and beyond it waiting
grows without bound (a queue near saturation).

**Pressure** is the stream's waiting over what it can bear; 1 is the edge.
* disk: a stream that reads R bytes at a time at N bytes per second needs an
  answer each R/N seconds. The mean service time of its reads may take half of
  that, the slowest all of it (read-ahead and the player's buffer cover one late
  answer). Example: 128 KiB at 875 kB/s: 150 ms; the edge is 75 ms mean, 150 ms
  worst.
* network: the uplink's backlog, as time at the link's rate, over 20 ms; a drop
  is pressure 2.

**Control.**
* watching: no limits, until pressure stays above 1 for three ticks.
* first reaction: the level is a factor of what the background moves just now,
  which is the resource's capacity since the stream waits; on a link of known
  rate what the stream leaves of it.
* backing off: after each change the old queue has to drain before pressure says
  anything; then a level still too high is cut by a factor and remembered as
  failed.
* probing: below pressure 0.7 the level rises each second by half of the way to
  2 % below the failed level; where nothing has failed, by a step that doubles.
* settled: no more way to go, or nobody wants more. A failed level is forgotten
  after a while, and longer each time it fails again, so that the loop finds new
  room and yet does not oscillate.

**Invariants** (tested): caps stay between floor and the operator's own limit;
the stream's class is never capped; without streams nothing is.

**Limits.** All attached domains are taken to share one disk and one uplink.
Inbound traffic is left alone. A stream's stall whose cause is on neither
resource is logged and not acted upon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .limits import BLK_READ, BLK_WRITE, NET_TX
from .shares import Key, Load, first_split, is_hungry, split

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
    first_factor: float = 0.85
    cut_factor: float = 0.85
    hard_cut_factor: float = 0.7
    gentle_cut_factor: float = 0.93
    link_margin: float = 0.02
    queue_delay_ms: float = 20.0
    hold_ns: Mapping[str, int] = field(
        default_factory=lambda: {DISK: 1500 * MS, NETWORK: 1200 * MS}
    )
    longest_hold_ns: int = 3 * SECOND
    player_delay_ns: int = 1 * SECOND
    probe_ns: int = 1 * SECOND
    first_step: float = 0.02
    largest_step: float = 0.16
    failed_margin: float = 0.02
    forget_ns: int = 20 * SECOND
    longest_forget_ns: int = 300 * SECOND
    split_ns: int = 500 * MS
    edge_ns: int = 2 * SECOND
    idle_ns: int = 30 * SECOND
    smallest_change: float = 0.02


@dataclass(frozen=True)
class StreamView:
    """A stream as the host sees it, and what its client said since the last tick."""

    name: str
    domain: str
    class_name: str
    nominal_bytes_per_second: float
    disk_bytes_per_second: float = 0.0
    disk_request_bytes: float = 0.0
    disk_mean_ms: float = 0.0
    disk_worst_ms: float = 0.0
    net_bytes_per_second: float = 0.0
    stalled: bool = False
    lost: bool = False
    fault_began_ns: int = 0


@dataclass(frozen=True)
class UplinkView:
    backlog_bytes: float
    dropped: int
    bytes_per_second: float
    link_bytes_per_second: float | None


@dataclass(frozen=True)
class Observation:
    streams: tuple[StreamView, ...]
    background: tuple[Load, ...]
    uplink: UplinkView | None = None


@dataclass(frozen=True)
class Arm:
    """What is remembered of one resource."""

    phase: str = WATCHING
    level: float | None = None
    caps: Mapping[Key, float] = field(default_factory=dict)
    risky_ticks: int = 0
    active_ns: int = 0
    changed_ns: int = 0
    split_at_ns: int = 0
    cut_pressure: float = 0.0
    edge_since_ns: int | None = None
    safe_level: float | None = None
    failed_level: float | None = None
    failed_ns: int = 0
    failures: int = 0
    step: float = 0.02
    risk_began_ns: int | None = None
    settled_ns: int | None = None


@dataclass(frozen=True)
class State:
    arms: Mapping[str, Arm] = field(default_factory=lambda: {DISK: Arm(), NETWORK: Arm()})
    unexplained_ns: int | None = None

    @property
    def caps(self) -> dict[Key, float]:
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
    stream: str | None = None
    words: str = ""
    fault: bool = False
    fault_began_ns: int = 0
    without_fault: Pressure | None = None


@dataclass(frozen=True)
class Change:
    key: Key
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Decision:
    """Something worth a line in the log; `changes` may be empty."""

    arm: str | None
    kind: str
    stream: str | None
    words: str
    changes: tuple[Change, ...] = ()


# Sensing


def disk_deadline_ms(stream: StreamView) -> float:
    request = stream.disk_request_bytes or 128 * 1024
    return min(1000.0, max(20.0, 1000 * request / stream.nominal_bytes_per_second))


def _disk_pressure(stream: StreamView) -> Pressure:
    deadline_ms = disk_deadline_ms(stream)
    value = max(stream.disk_mean_ms / (deadline_ms / 2), stream.disk_worst_ms / deadline_ms)
    shown_ms = max(stream.disk_mean_ms, stream.disk_worst_ms)
    words = f"disk wait {shown_ms:.0f} ms of {deadline_ms:.0f} ms"
    return Pressure(value, stream.name, words)


def _network_pressure(stream: StreamView, uplink: UplinkView | None, policy: Policy) -> Pressure:
    if uplink is None:
        return Pressure(0.0, stream.name, "no uplink is watched")
    delay_ms = 0.0
    # A queue that stands empties at the link's rate, known or not.
    rate = uplink.link_bytes_per_second or uplink.bytes_per_second
    if rate:
        delay_ms = 1000 * uplink.backlog_bytes / rate
    value = delay_ms / policy.queue_delay_ms
    words = f"uplink queue {delay_ms:.0f} ms"
    if uplink.dropped:
        value, words = max(2.0, value), f"{words}, {uplink.dropped} packets dropped"
    return Pressure(value, stream.name, words)


def pressures(observation: Observation, policy: Policy) -> dict[str, Pressure]:
    """The worst stream's pressure on each arm, client faults laid to one of them."""
    worst = {DISK: Pressure(), NETWORK: Pressure()}
    for stream in observation.streams:
        on = {
            DISK: _disk_pressure(stream),
            NETWORK: _network_pressure(stream, observation.uplink, policy),
        }
        if stream.net_bytes_per_second <= 0 and not stream.lost:
            on[NETWORK] = Pressure()
        if stream.stalled or stream.lost:
            blamed = _blame(stream, on)
            if blamed is not None:
                what = "the client stalled" if stream.stalled else "the client lost data"
                hit = on[blamed]
                on[blamed] = replace(
                    hit,
                    value=max(1.5, hit.value),
                    words=f"{what}, {hit.words}",
                    fault=True,
                    fault_began_ns=stream.fault_began_ns,
                    without_fault=hit,
                )
        for arm, pressure in on.items():
            if worst[arm].stream is None or pressure.value > worst[arm].value:
                worst[arm] = pressure
    return worst


def _blame(stream: StreamView, on: Mapping[str, Pressure]) -> str | None:
    """The resource under more pressure; neither if both are at ease.

    Lost data is the network's doing before it is the disk's: a late disk stalls.
    """
    order = (NETWORK, DISK) if stream.lost else (DISK, NETWORK)
    arm = max(order, key=lambda name: on[name].value)
    return arm if on[arm].value > 0.3 else None


# Deciding


def decide(
    observation: Observation, state: State, policy: Policy, now_ns: int
) -> tuple[State, tuple[Decision, ...]]:
    """One tick. The new state's caps are what should hold from now on."""
    protected = {(s.domain, s.class_name) for s in observation.streams}
    decisions: list[Decision] = []
    arms = {}
    felt = pressures(observation, policy)
    for name, arm in state.arms.items():
        loads = [
            load
            for load in observation.background
            if load.resource in ARM_RESOURCES[name]
            and (load.domain, load.class_name) not in protected
        ]
        stepped, decision = _step(name, arm, felt[name], loads, observation, policy, now_ns)
        arms[name] = stepped
        if decision is not None:
            decisions.append(decision)
    state = replace(state, arms=arms)
    unexplained = _unexplained(observation, felt)
    if unexplained is not None and (
        state.unexplained_ns is None or now_ns - state.unexplained_ns > 10 * SECOND
    ):
        state = replace(state, unexplained_ns=now_ns)
        decisions.append(Decision(None, "unexplained", unexplained, "disk and uplink are at ease"))
    return state, tuple(decisions)


def _unexplained(observation: Observation, felt: Mapping[str, Pressure]) -> str | None:
    for stream in observation.streams:
        if (stream.stalled or stream.lost) and not any(p.fault for p in felt.values()):
            return stream.name
    return None


def _is_active(name: str, observation: Observation, pressure: Pressure) -> bool:
    if pressure.value > 0.05:
        return True
    if name == DISK:
        return any(s.disk_bytes_per_second > 0 for s in observation.streams)
    return any(s.net_bytes_per_second > 0 for s in observation.streams)


def _step(
    name: str,
    arm: Arm,
    pressure: Pressure,
    loads: list[Load],
    observation: Observation,
    policy: Policy,
    now_ns: int,
) -> tuple[Arm, Decision | None]:
    if pressure.fault and _is_stale(arm, pressure, policy):
        pressure = pressure.without_fault or Pressure()
    if not observation.streams and arm.level is not None:
        return _release(name, arm, observation)
    if _is_active(name, observation, pressure):
        arm = replace(arm, active_ns=now_ns)
    risky = pressure.value > 1.0
    arm = replace(arm, risky_ticks=arm.risky_ticks + 1 if risky else 0)
    if arm.level is None:
        if arm.risky_ticks >= policy.risk_ticks or pressure.fault:
            return _first_reaction(name, arm, pressure, loads, observation, policy, now_ns)
        return arm, None
    if now_ns - arm.active_ns > policy.idle_ns:
        return _release(name, arm, observation)
    if risky:
        return _on_risk(name, arm, pressure, loads, policy, now_ns)
    left = _left_of_link(name, loads, observation)
    return _on_ease(name, arm, pressure, loads, left, policy, now_ns)


def _is_stale(arm: Arm, pressure: Pressure, policy: Policy) -> bool:
    """A client reports late: its fault may be older than what was done about it."""
    return arm.level is not None and (
        pressure.fault_began_ns < arm.changed_ns + policy.player_delay_ns
    )


def _total(loads: list[Load]) -> float:
    return sum(load.bytes_per_second for load in loads)


def _capacity(loads: list[Load]) -> float:
    """What the background moves just now; the last second may lag a rising load."""
    return max(_total(loads), sum(load.recent_bytes_per_second for load in loads))


def _first_level(
    name: str, arm: Arm, loads: list[Load], observation: Observation, policy: Policy
) -> tuple[float, float]:
    """(where to begin, the level that counts as failed)."""
    capacity = _capacity(loads)
    left = _left_of_link(name, loads, observation)
    if left is not None:
        level = (1 - policy.link_margin) * min(left, max(capacity, 0.5 * left))
        return level, left
    level = policy.first_factor * capacity
    return level if arm.safe_level is None else min(level, arm.safe_level), capacity


def _left_of_link(name: str, loads: list[Load], observation: Observation) -> float | None:
    """What the streams leave of a link of known rate, as the shaper counts bytes.

    Beyond it packets drop, the stream's among them: no probe may go there. The
    link carries headers for each segment that the shaper sees only once; while
    it drops, that overhead cannot be measured and full segments are assumed.
    """
    uplink = observation.uplink
    if name != NETWORK or uplink is None or not uplink.link_bytes_per_second:
        return None
    streams = sum(s.nominal_bytes_per_second for s in observation.streams)
    seen = _total(loads) + sum(s.net_bytes_per_second for s in observation.streams)
    overhead = SEGMENT_OVERHEAD
    if seen > 0 and not uplink.dropped:
        overhead = min(LARGEST_OVERHEAD, max(1.0, uplink.bytes_per_second / seen))
    return max(1024.0, (uplink.link_bytes_per_second - 1.1 * streams) / overhead)


def _first_reaction(
    name: str,
    arm: Arm,
    pressure: Pressure,
    loads: list[Load],
    observation: Observation,
    policy: Policy,
    now_ns: int,
) -> tuple[Arm, Decision | None]:
    floors = sum(policy.floors.get(load.resource, 0.0) for load in loads if load.bytes_per_second)
    if _capacity(loads) <= floors or not loads:
        # Nothing worth limiting: the stream's trouble is not the background's.
        return arm, None
    level, failed_level = _first_level(name, arm, loads, observation, policy)
    arm = replace(
        arm,
        failed_level=failed_level,
        failed_ns=now_ns,
        failures=1,
        risk_began_ns=now_ns,
        settled_ns=None,
    )
    caps = first_split(level, loads, policy.floors)
    return _moved(name, arm, level, caps, "risk", BACKING_OFF, pressure, policy, now_ns)


def _on_risk(
    name: str, arm: Arm, pressure: Pressure, loads: list[Load], policy: Policy, now_ns: int
) -> tuple[Arm, Decision | None]:
    arm = replace(arm, edge_since_ns=None)
    since_ns = now_ns - arm.changed_ns
    hold_ns = policy.hold_ns[name]
    draining = pressure.value < 0.7 * arm.cut_pressure and since_ns < policy.longest_hold_ns
    brief = arm.risky_ticks < policy.risk_ticks
    if since_ns < hold_ns or (not pressure.fault and (draining or brief)):
        return _resplit(arm, loads, policy, now_ns), None
    assert arm.level is not None
    reached = min(arm.level, max(_total(loads), 1024.0))
    level = _cut(arm, reached, pressure, policy)
    lowest = sum(policy.floors.get(load.resource, 0.0) for load in loads)
    if level < lowest:
        level = lowest
        if arm.level <= lowest:
            return replace(arm, phase=BACKING_OFF), None
    arm = replace(
        arm,
        failed_level=reached,
        failed_ns=now_ns,
        failures=min(arm.failures + 1, 8),
        safe_level=None if arm.safe_level is None or arm.safe_level > level else arm.safe_level,
        step=policy.first_step,
        risk_began_ns=now_ns if arm.settled_ns is not None else arm.risk_began_ns,
        settled_ns=None,
    )
    caps = split(level, loads, policy.floors, arm.caps)
    return _moved(name, arm, level, caps, "risk", BACKING_OFF, pressure, policy, now_ns)


def _cut(arm: Arm, reached: float, pressure: Pressure, policy: Policy) -> float:
    """A failed probe goes back to the level that was safe; else a factor down."""
    if arm.safe_level is not None and arm.safe_level < 0.995 * reached:
        return max(arm.safe_level, policy.cut_factor * reached)
    if pressure.value > 2:
        return policy.hard_cut_factor * reached
    # A level that was safe for a while is left by little.
    gentle = arm.safe_level is not None
    return (policy.gentle_cut_factor if gentle else policy.cut_factor) * reached


def _on_ease(
    name: str,
    arm: Arm,
    pressure: Pressure,
    loads: list[Load],
    left: float | None,
    policy: Policy,
    now_ns: int,
) -> tuple[Arm, Decision | None]:
    arm = _resplit(_forgetting(arm, policy, now_ns), loads, policy, now_ns)
    wait_ns = policy.hold_ns[name] if arm.phase == BACKING_OFF else policy.probe_ns
    if now_ns - arm.changed_ns < wait_ns:
        return arm, None
    assert arm.level is not None
    wants_more = any(is_hungry(load, arm.caps.get(load.key)) for load in loads)
    if pressure.value >= policy.safe_pressure or not wants_more:
        since_ns = now_ns if arm.edge_since_ns is None else arm.edge_since_ns
        arm = replace(arm, edge_since_ns=since_ns)
        return (_settle(arm, now_ns) if now_ns - since_ns >= policy.edge_ns else arm), None
    arm = replace(arm, edge_since_ns=None, safe_level=arm.level)
    level, step = _raised(arm, left, policy)
    if level is None:
        return _settle(arm, now_ns), None
    arm = replace(arm, step=step)
    caps = split(level, loads, policy.floors, arm.caps)
    # Finding new room from a settled level is not unsettled.
    phase = SETTLED if arm.settled_ns is not None else PROBING
    return _moved(name, arm, level, caps, "room", phase, pressure, policy, now_ns)


def _raised(arm: Arm, left: float | None, policy: Policy) -> tuple[float | None, float]:
    """(next level or None if there is no way to go, next step)."""
    assert arm.level is not None
    top = min((bound for bound in (arm.failed_level, left) if bound is not None), default=None)
    if top is None:
        return arm.level * (1 + arm.step), min(2 * arm.step, policy.largest_step)
    way = top * (1 - policy.failed_margin) - arm.level
    if way <= 0.01 * arm.level:
        return None, policy.first_step
    return arm.level + max(way / 2, min(way, 0.01 * arm.level)), policy.first_step


def _forgetting(arm: Arm, policy: Policy, now_ns: int) -> Arm:
    """A level that failed long ago may do by now; one that failed often takes longer."""
    if arm.failed_level is None:
        return arm
    patience_ns = min(policy.forget_ns << max(0, arm.failures - 1), policy.longest_forget_ns)
    if now_ns - arm.failed_ns < patience_ns:
        return arm
    return replace(arm, failed_level=None, step=policy.first_step)


def _settle(arm: Arm, now_ns: int) -> Arm:
    if arm.phase == SETTLED:
        return arm
    return replace(arm, phase=SETTLED, settled_ns=arm.settled_ns or now_ns)


def _resplit(arm: Arm, loads: list[Load], policy: Policy, now_ns: int) -> Arm:
    """The same level over classes whose demand has changed."""
    if now_ns - arm.split_at_ns < policy.split_ns:
        return arm
    assert arm.level is not None
    caps = split(arm.level, loads, policy.floors, arm.caps)
    return replace(arm, caps=_damped(arm.caps, caps, policy), split_at_ns=now_ns)


def _damped(
    before: Mapping[Key, float], after: Mapping[Key, float], policy: Policy
) -> dict[Key, float]:
    """Leaves caps alone that would hardly change: each change is a command to QEMU."""
    kept = {}
    for key, cap in after.items():
        old = before.get(key)
        close = old is not None and abs(cap - old) < policy.smallest_change * old
        kept[key] = old if close else cap
    return kept


def _moved(
    name: str,
    arm: Arm,
    level: float,
    caps: Mapping[Key, float],
    kind: str,
    phase: str,
    pressure: Pressure,
    policy: Policy,
    now_ns: int,
) -> tuple[Arm, Decision]:
    changes = tuple(
        Change(key, arm.caps.get(key), caps.get(key))
        for key in sorted(set(arm.caps) | set(caps))
        if arm.caps.get(key) != caps.get(key)
    )
    moved = replace(
        arm,
        level=level,
        caps=dict(caps),
        phase=phase,
        changed_ns=now_ns,
        split_at_ns=now_ns,
        cut_pressure=pressure.value if kind == "risk" else 0.0,
        risky_ticks=0,
    )
    return moved, Decision(name, kind, pressure.stream, pressure.words, changes)


def _release(name: str, arm: Arm, observation: Observation) -> tuple[Arm, Decision]:
    changes = tuple(Change(key, cap, None) for key, cap in sorted(arm.caps.items()))
    stream = observation.streams[0].name if observation.streams else None
    fresh = Arm(safe_level=arm.safe_level)
    return fresh, Decision(name, "idle", stream, "no stream uses it", changes)
