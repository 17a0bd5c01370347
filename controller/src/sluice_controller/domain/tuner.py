# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping: finds the rates at which a stream plays and all else gets the most.

After SCS, section 5: a quality signal of the stream drives the limits of the other classes. Two
things differ. The signal is not the player's failure but its precursor, so the search costs no
stall; and disk and network are two arms with one level each, so each is blamed for its own
delay.

**Model.** An arm's *level* is the total rate of all background classes on its
resource, in bytes per second. Some level is the most that leaves the stream's
requests in time; it is unknown, moves with the load, and beyond it waiting
grows without bound (a queue near saturation).

**Pressure** is the stream's waiting over what it can bear; 1 is the edge.
* disk: a stream that reads R bytes at a time at N bytes per second needs an
  answer each R/N seconds. The mean service time of its reads may take 0.6 of
  that, the slowest twice that (read-ahead and the player's buffer cover one late
  answer). Example: 128 KiB at 875 kB/s: 150 ms; the edge is 90 ms mean, 300 ms
  worst.
* network: the uplink's backlog, as time at the link's rate, over 20 ms; a drop
  is pressure 2.

**Control.**
* watching: no limits, until pressure stays above 1 for three ticks.
* first reaction: the level is a factor of the background's present rate, which is the
  resource's capacity since the stream waits; on a link of known rate, the rate that the stream
  leaves.
* backing off: a level still too high after its hold time is cut by a factor and remembered as
  failed. A disk far beyond its edge has a long queue, which a level just below capacity drains
  only slowly: the disk gets a quarter of the new level until the stream's reads are quick
  again.
* probing: below pressure 0.7 the level rises each second by half of the way to 2 % below the
  failed level; where nothing has failed, by a step that doubles. On a link of known rate probes
  end at the rate that the stream leaves.
* settled: no more way to go, or no class wants more. A class that waits for an operator's
  limit, a ceiling or the device does not reach its cap and is no reason to raise it; an
  unreached level would take as long to come back down. A disk's failed level is forgotten if
  the pressure is below 0.5 just under it: waiting grows gradually towards a true edge, so that
  failure had another cause (a busy host, a passing burst). Otherwise it is forgotten after a
  while, and later each time a probe fails, so that the loop finds new room without oscillation.
* elsewhere: cuts that leave the pressure near its peak for 5 s go down to the floors. If that
  does not help within 3 s, all is given back, for the stream waits for something else (a limit of
  its own, a slow store). Streams beside it that are at ease keep the level at which they were.
  Cuts are tried again after 30 s, and later each time they do not help, or once the stream has
  been at ease.
* greedy: a stream that has moved more than 1.5 times its nominal rate for 2 s gives no pressure;
  its waits are of its own making. After 10 s, which no peak of a film lasts, caps that were made
  for it are lifted.
* not seen: missing knowledge of a stream, of a held class or of the uplink loosens nothing. The
  caps stay until it is seen again or the stream has been idle.

**Invariants** (tested): caps stay between floor and the operator's own limit, and a class's
reservation is its floor; the stream's class is never capped, nor is an unmanaged class, which
nothing holds; without streams no class is.

**Limits.** All attached domains are taken to share one disk and one uplink.
Inbound traffic is left alone. A stream's fault whose cause is on neither
resource is logged and not acted upon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .guards import RISING_RATIO, helped, is_aside, is_helpless, set_aside, still_aside
from .limits import MAX_PER_SECOND, RESOURCES
from .shares import Key, Load, first_split, is_held_back, scaled, split, used_floor
from .tuner_sense import (
    FAULT_PRESSURE,
    is_active,
    is_user,
    left_of_link,
    pressures,
    recent,
    three_figures,
    total,
    unexplained,
    values_of,
    worst,
)
from .tuner_types import (
    ARM_RESOURCES,
    BACKING_OFF,
    DISK,
    NETWORK,
    PROBING,
    SECOND,
    SETTLED,
    UNEXPLAINED,
    Arm,
    Change,
    Decision,
    Help,
    Observation,
    Policy,
    Pressure,
    State,
    StreamView,
)

# Without such faults; then the next one is said again.
UNEXPLAINED_QUIET_NS = 60 * SECOND
MOST_FAILURES = 8

Step = tuple[Arm, Decision | None]


@dataclass(frozen=True)
class _Look:
    """One tick of one arm."""

    name: str
    pressure: Pressure
    # By stream; `pressure` is that of the worst for which cuts may help.
    each: Mapping[str, Pressure]
    observation: Observation
    policy: Policy
    now_ns: int
    # Streams that do not move more than they declare for longer than a peak lasts.
    modest: tuple[StreamView, ...]

    @cached_property
    def loads(self) -> list[Load]:
        """The background on this arm; most ticks need none of it."""
        protected, resources = _protected(self.observation), ARM_RESOURCES[self.name]
        streams = {domain for domain, _class in protected}
        return [
            load
            for load in self.observation.background
            if load.resource in resources
            and (load.domain not in streams or (load.domain, load.class_name) not in protected)
        ]

    def floors_total(self) -> float:
        """The lowest level that is worth setting."""
        return sum(used_floor(load, self.policy.floors) for load in self.loads)

    @cached_property
    def follows(self) -> bool:
        """Whether the rate of a link beyond is learnt, and a stream waits behind others for it."""
        uplink = self.observation.uplink
        return (
            self.name == NETWORK
            and uplink is not None
            and uplink.learnt != ""
            and any(is_user(NETWORK, s) and s.name not in uplink.first for s in self.modest)
        )

    def misses_a_stream(self) -> bool:
        return any(s.domain in self.observation.unseen for s in self.observation.streams)

    def misses(self, arm: Arm) -> bool:
        """Whether a stream, a class that the arm holds or its resource is not seen."""
        if self.name == NETWORK and self.observation.uplink_unseen:
            return True
        unseen = self.observation.unseen
        # Mostly that is none, and thousands of caps need not be looked at.
        return bool(unseen) and (
            self.misses_a_stream() or any(key[0] in unseen for key in arm.caps)
        )


def decide(
    observation: Observation, state: State, policy: Policy, now_ns: int
) -> tuple[State, tuple[Decision, ...]]:
    """One tick. The new state's caps should hold from now on."""
    protected = _protected(observation)
    greedy_since_ns = _greedy_since(observation, state, policy, now_ns)

    def without_greedy(for_ns: int) -> tuple[StreamView, ...]:
        """The streams but for those that have been greedy for so long."""
        began = {s.name: greedy_since_ns.get(s.name, now_ns) for s in observation.streams}
        return tuple(s for s in observation.streams if now_ns - began[s.name] < for_ns)

    felt = pressures(replace(observation, streams=without_greedy(policy.greedy_ns)), policy)
    modest = without_greedy(policy.longest_peak_ns)
    decisions: list[Decision] = []
    arms = {}
    for name, arm in state.arms.items():
        values = values_of(felt[name])
        arm = replace(arm, elsewhere=still_aside(arm.elsewhere, values, policy, now_ns))
        pressure = worst(
            one
            for stream, one in felt[name].items()
            if not is_aside(arm.elsewhere, stream, one.value, now_ns)
        )
        look = _Look(name, pressure, felt[name], observation, policy, now_ns, modest)
        # A class that was held may have become a stream's.
        if any((*pair, resource) in arm.caps for pair in protected for resource in RESOURCES):
            caps = {key: cap for key, cap in arm.caps.items() if key[:2] not in protected}
            arm = replace(arm, caps=caps)
        arms[name], decision = _step(arm, look)
        if decision is not None:
            decisions.append(decision)
    state = replace(state, arms=arms, greedy_since_ns=greedy_since_ns)
    stream = unexplained(observation, felt)
    if stream is not None:
        if state.unexplained_ns is None or now_ns - state.unexplained_ns >= UNEXPLAINED_QUIET_NS:
            words = "it moves more than it declares"
            if stream.name in felt[DISK]:
                words = three_figures(stream, felt)
            decisions.append(Decision(None, UNEXPLAINED, stream.name, words))
        state = replace(state, unexplained_ns=now_ns)
    return state, tuple(decisions)


def _greedy_since(
    observation: Observation, state: State, policy: Policy, now_ns: int
) -> dict[str, int]:
    """{stream: since when it has moved much more than it declares}"""
    return {
        s.name: state.greedy_since_ns.get(s.name, now_ns)
        for s in observation.streams
        if max(s.disk_bytes_per_second, s.net_bytes_per_second)
        > policy.greedy_factor * (s.allowed_bytes_per_second or s.nominal_bytes_per_second)
    }


def _protected(observation: Observation) -> set[tuple[str, str]]:
    return {(s.domain, s.class_name) for s in observation.streams}


def _step(arm: Arm, look: _Look) -> Step:
    if look.pressure.fault:
        arm = replace(arm, fault_ns=look.now_ns)
    if look.pressure.fault and _is_stale(arm, look):
        look = replace(look, pressure=look.pressure.without_fault or Pressure())
    if is_active(look.name, look.observation, look.pressure):
        arm = replace(arm, active_ns=look.now_ns)
    risky = look.pressure.value > 1.0
    arm = replace(arm, risky_ticks=arm.risky_ticks + 1 if risky else 0)
    if look.follows:
        return _follow(arm, look), None
    if arm.follows:
        return _lifted(arm, "no link beyond is short any more", look)
    if arm.level is None:
        if arm.risky_ticks >= look.policy.risk_ticks or look.pressure.fault:
            return _first_reaction(arm, look)
        return arm, None
    if not look.modest or look.now_ns - arm.active_ns > look.policy.idle_ns:
        return _release(arm, look)
    if not look.loads and not arm.caps:
        # Nothing is left that rates could hold.
        return Arm(active_ns=arm.active_ns, elsewhere=arm.elsewhere), None
    arm = _helped(arm, look)
    if is_helpless(arm.help, look.policy, look.now_ns):
        return _give_back(arm, look) if arm.is_last_try else _try_last(arm, look)
    if arm.is_last_try and not risky:
        # At ease between two faults of its client.
        return arm, None
    if arm.resume_level is not None:
        return _drain(arm, look)
    return _on_risk(arm, look) if risky else _on_ease(arm, look)


def _is_stale(arm: Arm, look: _Look) -> bool:
    """A client reports late: its fault may be older than the reaction to it."""
    return arm.level is not None and (
        look.pressure.fault_began_ns < arm.changed_ns + look.policy.player_delay_ns
    )


# A link beyond whose rate is learnt


def _follow(arm: Arm, look: _Look) -> Arm:
    """The level goes where the link's rate goes, which has its own caution (`beyond.py`)."""
    left = left_of_link(look.name, look.loads, look.observation)
    if left is None or not look.loads or look.misses(arm):
        return arm
    level = max(left, look.floors_total())
    falls = arm.level is None or level < (1 - look.policy.smallest_change) * arm.level
    if not falls and look.now_ns - arm.split_at_ns < look.policy.split_ns:
        return arm
    floors = look.policy.floors
    caps = split(level, look.loads, floors, arm.caps)
    if arm.level is None:
        caps = first_split(level, look.loads, floors)
    return Arm(
        phase=BACKING_OFF if falls else PROBING,
        level=level,
        caps=_damped(arm.caps, caps, look.policy),
        active_ns=arm.active_ns,
        changed_ns=look.now_ns,
        split_at_ns=look.now_ns,
        follows=True,
        elsewhere=arm.elsewhere,
    )


# The first reaction


def _first_reaction(arm: Arm, look: _Look) -> Step:
    busy = [load for load in look.loads if load.bytes_per_second > 0]
    floors = sum(used_floor(load, look.policy.floors) for load in busy)
    if max(total(look.loads), recent(look.loads)) <= floors:
        # Nothing worth limiting: the stream's trouble is not the background's.
        return arm, None
    level, failed_level = _first_level(arm, look)
    arm = replace(
        arm,
        failed_level=failed_level,
        failed_ns=look.now_ns,
        failures=1,
        risk_began_ns=look.now_ns,
        settled_ns=None,
        help=Help(look.pressure.value, look.now_ns),
    )
    caps = first_split(level, look.loads, look.policy.floors)
    return _lowered(arm, level, caps, look)


def _first_level(arm: Arm, look: _Look) -> tuple[float, float | None]:
    """(where to begin, the level that counts as failed if one is known)."""
    policy = look.policy
    steady, now = total(look.loads), recent(look.loads)
    left = left_of_link(look.name, look.loads, look.observation)
    if left is not None:
        return (1 - policy.link_margin) * min(left, max(steady, now, 0.5 * left)), left
    if now > RISING_RATIO * steady:
        # The load has just begun: a part of the rate fills queues, and the device's capacity is
        # still unknown.
        return policy.first_factor * max(steady, now / RISING_RATIO**2), None
    level = policy.first_factor * steady
    return level if arm.safe_level is None else min(level, arm.safe_level), steady


# Help, or none


def _helped(arm: Arm, look: _Look) -> Arm:
    value, policy = look.pressure.value, look.policy
    if arm.fault_ns is not None and look.now_ns - arm.fault_ns < policy.fault_lasts_ns:
        value = max(value, FAULT_PRESSURE)
    after = helped(arm.help, value, look.misses(arm), policy, look.now_ns)
    # Whatever has helped, it was no last try.
    is_last_try = arm.is_last_try and after.helped_ns == arm.help.helped_ns
    arm = replace(arm, help=after, is_last_try=is_last_try)
    if value > 1.0 or arm.level is None:
        return arm
    return replace(arm, eased=(arm.level, arm.failed_level))


def _try_last(arm: Arm, look: _Look) -> Step:
    """Down to the floors: a disk may be slow until far below what it can do."""
    policy = look.policy
    arm = replace(
        arm,
        help=replace(arm.help, helped_ns=look.now_ns - policy.help_ns + policy.last_try_ns),
        is_last_try=True,
        resume_level=None,
        resume_caps={},
    )
    level = look.floors_total()
    caps = split(level, look.loads, policy.floors, arm.caps)
    return _moved(arm, level, caps, "risk", BACKING_OFF, look)


def _give_back(arm: Arm, look: _Look) -> Step:
    """Sets the streams aside that are beyond their edge still, and goes on for the others."""
    now_ns, worst_name = look.now_ns, look.pressure.stream or ""
    aside = set_aside(
        arm.elsewhere, values_of(look.each), worst_name, arm.help.peak, look.policy, now_ns
    )
    arm = replace(arm, elsewhere=aside)
    wait_s = (arm.elsewhere[worst_name].until_ns - now_ns) // SECOND
    words = f"{look.pressure.words}, though cut to their floors; tried again in {wait_s} s"
    if any(
        is_user(look.name, stream)
        and not is_aside(aside, stream.name, values_of(look.each).get(stream.name, 0.0), now_ns)
        for stream in look.modest
    ):
        level, failed_level = arm.eased or (look.floors_total(), None)
        caps = split(level, look.loads, look.policy.floors, arm.caps)
        arm, moved = _moved(arm, level, caps, "elsewhere", BACKING_OFF, look)
        arm = replace(
            arm,
            failed_level=failed_level,
            failed_ns=now_ns,
            step=look.policy.first_step,
            help=Help(0.0, now_ns),
            is_last_try=False,
        )
        return arm, replace(moved, words=words)
    changes = tuple(Change(key, cap, None) for key, cap in sorted(arm.caps.items()))
    free = Arm(safe_level=arm.safe_level, active_ns=arm.active_ns, elsewhere=arm.elsewhere)
    return free, Decision(look.name, "elsewhere", worst_name, words, changes)


# Backing off


def _on_risk(arm: Arm, look: _Look) -> Step:
    policy, pressure = look.policy, look.pressure
    arm = replace(arm, edge_since_ns=None)
    brief = arm.risky_ticks < policy.risk_ticks and not pressure.fault
    if brief or look.now_ns - arm.changed_ns < policy.hold_ns[look.name]:
        return _resplit(arm, look), None
    reached = _reached(arm, look)
    lowest = look.floors_total()
    level = max(lowest, _cut(arm, reached, look))
    if arm.level is not None and arm.level <= lowest:
        return replace(arm, phase=BACKING_OFF), None
    arm = replace(
        arm,
        failed_level=max(reached, level),
        failed_ns=look.now_ns,
        # The cuts of one fall are one failure.
        failures=min(arm.failures + (arm.phase != BACKING_OFF), MOST_FAILURES),
        safe_level=None if arm.safe_level is None or arm.safe_level > level else arm.safe_level,
        step=policy.first_step,
        risk_began_ns=look.now_ns if arm.settled_ns is not None else arm.risk_began_ns,
        settled_ns=None,
    )
    return _lowered(arm, level, split(level, look.loads, policy.floors, arm.caps), look)


def _reached(arm: Arm, look: _Look) -> float:
    """The background's real rate under the failed level."""
    assert arm.level is not None
    moved = total(look.loads)
    if look.name == DISK and look.pressure.value > look.policy.hard_pressure:
        # The device's present rate, without the rate that first filled its queue.
        moved = min(moved, max(recent(look.loads), 0.5 * moved))
    # Large requests make both figures lumpy, and a load may pause for a moment:
    # neither says that the level itself was far off.
    least = look.policy.least_reached * arm.level
    return min(arm.level, max(moved, least, 1024.0))


def _cut(arm: Arm, reached: float, look: _Look) -> float:
    """A failed probe goes back to the level that was safe; else a factor down."""
    policy = look.policy
    if look.pressure.value > policy.hard_pressure:
        return policy.hard_cut_factor * reached
    level = arm.level or reached
    if arm.safe_level is not None and arm.safe_level < 0.995 * level:
        return max(arm.safe_level, policy.cut_factor * reached)
    # A level that was safe for a while is left by little.
    gentle = arm.safe_level is not None
    return (policy.gentle_cut_factor if gentle else policy.cut_factor) * reached


def _lowered(arm: Arm, level: float, caps: Mapping[Key, float], look: _Look) -> Step:
    """To the level, or first below it where a queue has to drain."""
    policy = look.policy
    lowest = look.floors_total()
    if look.name == DISK and look.pressure.value > policy.drain_pressure:
        below = max(lowest, policy.drain_factor * level)
        if below < level:
            arm = replace(arm, resume_level=level, resume_caps=dict(caps))
            level, caps = below, scaled(below / level, caps, look.loads, policy.floors)
    return _moved(arm, level, caps, "risk", BACKING_OFF, look)


def _drain(arm: Arm, look: _Look) -> Step:
    since_ns = look.now_ns - arm.changed_ns
    quick = look.pressure.latest <= look.policy.safe_pressure and not look.misses_a_stream()
    if since_ns < look.policy.shortest_drain_ns or not (
        quick or since_ns >= look.policy.longest_drain_ns
    ):
        return arm, None
    level = arm.resume_level
    assert level is not None
    caps = scaled(1.0, arm.resume_caps, look.loads, look.policy.floors)
    arm = replace(arm, resume_level=None, resume_caps={})
    return _moved(arm, level, caps, "drained", BACKING_OFF, look)


# Probing


def _on_ease(arm: Arm, look: _Look) -> Step:
    policy = look.policy
    if look.misses(arm):
        return arm, None
    arm = _resplit(_forgetting(arm, look), look)
    wait_ns = policy.hold_ns[look.name] if arm.phase == BACKING_OFF else policy.probe_ns
    if look.now_ns - arm.changed_ns < wait_ns:
        return arm, None
    wants_more = any(is_held_back(load, arm.caps.get(load.key)) for load in look.loads)
    if look.pressure.value >= policy.safe_pressure or not wants_more:
        return _at_edge(arm, look), None
    arm = replace(arm, edge_since_ns=None, safe_level=arm.level)
    arm = _outgrown(arm, look)
    level, step = _raised(arm, look)
    if level is None:
        return _settle(arm, look.now_ns), None
    failures = 0 if step > 4 * policy.first_step else arm.failures
    arm = replace(arm, step=step, failures=failures)
    caps = split(level, look.loads, policy.floors, arm.caps)
    if arm.failed_level is not None and level < policy.settled_step * (arm.level or level):
        # The last few percent below a level that failed.
        arm = _settle(arm, look.now_ns)
    # Finding new room from a settled level is not unsettled.
    phase = SETTLED if arm.settled_ns is not None else PROBING
    return _moved(arm, level, caps, "room", phase, look)


def _at_edge(arm: Arm, look: _Look) -> Arm:
    """Near the edge, or no class wants more: settled if it stays so."""
    since_ns = look.now_ns if arm.edge_since_ns is None else arm.edge_since_ns
    arm = replace(arm, edge_since_ns=since_ns)
    if look.now_ns - since_ns < look.policy.edge_ns:
        return arm
    return _settle(arm, look.now_ns)


def _raised(arm: Arm, look: _Look) -> tuple[float | None, float]:
    """(next level or None if there is no way to go, next step)."""
    assert arm.level is not None
    policy = look.policy
    left = left_of_link(look.name, look.loads, look.observation)
    top = min((bound for bound in (arm.failed_level, left) if bound is not None), default=None)
    if top is None:
        at_ease = look.pressure.value < policy.comfort_pressure
        step = arm.step if at_ease else policy.first_step
        if arm.level >= MAX_PER_SECOND:
            return None, policy.first_step
        level = min(arm.level * (1 + step), MAX_PER_SECOND)
        return level, min(2 * step, policy.largest_step)
    way = top * (1 - policy.failed_margin) - arm.level
    if way <= 0.01 * arm.level:
        return None, policy.first_step
    return arm.level + max(way / 2, min(way, 0.01 * arm.level)), policy.first_step


def _outgrown(arm: Arm, look: _Look) -> Arm:
    """Forgets a failed level that is as good as reached without strain.

    A disk's waiting grows gradually towards its true edge. At ease this near to
    the level that failed, the failure had another cause. A link is at ease until
    it overflows: there the memory stays.
    """
    assert arm.level is not None
    if look.name != DISK or arm.failed_level is None:
        return arm
    near = arm.failed_level * (1 - look.policy.failed_margin) - arm.level <= 0.01 * arm.level
    if not near or look.pressure.value >= look.policy.comfort_pressure:
        return arm
    return replace(arm, failed_level=None, step=look.policy.first_step)


def _forgetting(arm: Arm, look: _Look) -> Arm:
    """A level that failed long ago may hold by now; a level that failed often takes longer."""
    if arm.failed_level is None:
        return arm
    policy = look.policy
    patience_ns = min(policy.forget_ns << max(0, arm.failures - 1), policy.longest_forget_ns)
    if look.now_ns - arm.failed_ns < patience_ns:
        return arm
    return replace(arm, failed_level=None, step=policy.first_step)


def _settle(arm: Arm, now_ns: int) -> Arm:
    if arm.phase == SETTLED:
        return arm
    return replace(arm, phase=SETTLED, settled_ns=arm.settled_ns or now_ns)


# Caps


def _resplit(arm: Arm, look: _Look) -> Arm:
    """Splits the level anew over classes whose demand has changed."""
    policy = look.policy
    if arm.level is None or look.now_ns - arm.split_at_ns < policy.split_ns or look.misses(arm):
        return arm
    caps = split(arm.level, look.loads, policy.floors, arm.caps)
    return replace(arm, caps=_damped(arm.caps, caps, policy), split_at_ns=look.now_ns)


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
    arm: Arm, level: float, caps: Mapping[Key, float], kind: str, phase: str, look: _Look
) -> tuple[Arm, Decision]:
    unseen = look.observation.unseen
    caps = {**{key: cap for key, cap in arm.caps.items() if key[0] in unseen}, **caps}
    changed = [key for key, cap in caps.items() if arm.caps.get(key) != cap]
    changed += [key for key in arm.caps if key not in caps]
    changes = tuple(Change(key, arm.caps.get(key), caps.get(key)) for key in sorted(changed))
    moved = replace(
        arm,
        level=level,
        caps=caps,
        phase=phase,
        changed_ns=look.now_ns,
        split_at_ns=look.now_ns,
        risky_ticks=0,
    )
    return moved, Decision(look.name, kind, look.pressure.stream, look.pressure.words, changes)


def _release(arm: Arm, look: _Look) -> tuple[Arm, Decision]:
    words = "there is no stream"
    if look.observation.streams:
        words = "no stream uses it" if look.modest else "streams move more than they declare"
    return _lifted(arm, words, look)


def _lifted(arm: Arm, words: str, look: _Look) -> tuple[Arm, Decision]:
    changes = tuple(Change(key, cap, None) for key, cap in sorted(arm.caps.items()))
    streams = look.observation.streams
    name = streams[0].name if streams else None
    return Arm(safe_level=arm.safe_level), Decision(look.name, "idle", name, words, changes)
