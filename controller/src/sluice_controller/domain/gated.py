# SPDX-License-Identifier: GPL-2.0-or-later
"""One device of the host under the gate: its outer loop, and what is worth a line. Pure.

All domains with a disk on the device have one target, and share one window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .gate import LEAST_ADJUST, Reader, State, Steering, steer
from .guards import helped, is_aside, is_helpless, set_aside, still_aside
from .rates import format_rate
from .tuner_types import SECOND, Elsewhere, Help, Policy

# Between two sentences of one kind about one device.
QUIET_NS = 5 * SECOND
# The target is said again when it has become so many times longer or shorter.
REGIME = 2.0

ON, OFF, MOVED, STARVING, ELSEWHERE = "on", "off", "moved", "starving", "elsewhere"


@dataclass(frozen=True)
class News:
    """A change of regime, as a sentence."""

    kind: str
    stream: str | None
    sentence: str
    device: str


@dataclass(frozen=True)
class Look:
    """One tick of one device.

    `held`: a gate there held a request lately; `unseen`: a stream or a domain there is not seen
    just now; `moved`: the bytes per second of the background there; `why_open`: why no stream
    needs a gate, where there is no reader; `priorities`: of the readers' classes, 0 goes first.
    """

    readers: Sequence[Reader]
    held: bool
    unseen: bool
    moved: Callable[[], float]
    why_open: str
    now_ns: int
    passed_s: float
    priorities: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """The memory of one device."""

    name: str
    state: State = field(default_factory=State)
    steering: Steering = field(default_factory=lambda: Steering(0))
    why_open: str = ""
    # Whether cuts help, and the streams that they did not help.
    help: Help = Help()
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    # The target that was said last, and when each kind of sentence was.
    told_target_ns: int = 0
    told_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return self.steering.target_ns > 0

    @property
    def open_because(self) -> str | None:
        """None while it is on."""
        if self.is_on:
            return None
        return "cuts help none of its streams" if self.state.waiting else self.why_open

    @property
    def acted_ns(self) -> int:
        """When it came on or was cut last."""
        return max(self.state.cut_ns, self.told_ns.get(ON, 0))


class Part(NamedTuple):
    """The devices of the host that a `Device` stands for, and the domains with a disk there."""

    devices: frozenset[str]
    domains: frozenset[str]


def went_on(
    name: str, part: Part, former: Sequence[tuple[Part, Device]], parts: Collection[Part]
) -> Device:
    """The device of this name and part, with the memory of the former one that it was in.

    It was in one with a device of its own; else, as after another name, in one with a domain of its
    own, none of whose devices is in any of the present `parts`. Of several the most careful counts.
    """
    there = frozenset(device for one in parts for device in one.devices)
    same = [device for before, device in former if before.devices & part.devices]
    renamed = [
        device
        for before, device in former
        if before.domains & part.domains and not before.devices & there
    ]
    found = same or renamed
    if not found:
        return Device(name)
    return replace(min(found, key=lambda one: (not one.is_on, one.state.adjust)), name=name)


def advance(device: Device, look: Look, policy: Policy) -> tuple[Device, tuple[News, ...]]:
    """One tick: `steering` of the new device should be in force from now on."""
    was_on = device.is_on
    device, aside, helpless = _guarded(device, look, policy)
    state, steering = steer(
        look.readers,
        device.state,
        held=look.held,
        unseen=look.unseen,
        now_ns=look.now_ns,
        passed_s=look.passed_s,
        aside=aside,
    )
    device = replace(device, state=state, steering=steering, why_open=look.why_open)
    if helpless is not None:
        return _telling(device, ELSEWHERE, helpless, _of_helpless(device, helpless, look), look)
    if not device.is_on:
        words = f"Gate of {device.name} opened: {look.why_open}"
        return _telling(device, OFF, None, words, look) if was_on else (device, ())
    heard = [reader for reader in look.readers if reader.name not in aside]
    return _news(device, heard, was_on, look)


def _guarded(device: Device, look: Look, policy: Policy) -> tuple[Device, list[str], Reader | None]:
    """With the streams that have no say, as cuts do not help them, and the worst of new ones."""
    now_ns, waiting = look.now_ns, device.state.waiting
    values = {r.name: r.pressure(waiting.get(r.name, 0.0)) for r in look.readers}
    elsewhere = still_aside(device.elsewhere, values, policy, now_ns)
    heard = [name for name in values if not is_aside(elsewhere, name, values[name], now_ns)]
    worst, help_, helpless = max(heard, key=values.__getitem__, default=None), Help(), None
    if worst is not None:
        # A gate that holds nobody has not cut anything.
        is_missed = look.unseen or not look.held
        help_ = helped(device.help, values[worst], is_missed, policy, now_ns)
        if device.state.adjust <= LEAST_ADJUST and is_helpless(help_, policy, now_ns):
            elsewhere = set_aside(elsewhere, values, worst, help_.peak, policy, now_ns)
            helpless = next(reader for reader in look.readers if reader.name == worst)
            help_ = Help(0.0, now_ns)
    aside = [name for name in values if is_aside(elsewhere, name, values[name], now_ns)]
    return replace(device, help=help_, elsewhere=elsewhere), aside, helpless


def _news(
    device: Device, heard: Sequence[Reader], was_on: bool, look: Look
) -> tuple[Device, tuple[News, ...]]:
    worst = max(heard, key=lambda reader: device.state.waiting[reader.name])
    if not was_on:
        words = f"Gate on {device.name}: {_words(device, worst, look)}"
        return _telling(device, ON, worst, words, look)
    hungry = next((reader for reader in heard if reader.starves), None)
    if hungry is not None and _is_due(device, STARVING, look.now_ns):
        has = format_rate(hungry.bytes_per_second)
        needs = format_rate(hungry.nominal_bytes_per_second)
        words = f"{hungry.name} starves, with {has} of {needs}: {_words(device, hungry, look)}"
        return _telling(device, STARVING, hungry, words, look)
    if _has_moved(device) and _is_due(device, MOVED, look.now_ns):
        return _telling(device, MOVED, worst, _words(device, worst, look), look)
    return device, ()


def opened(device: Device, why: str) -> tuple[News, ...]:
    """The news when its gate is opened for another reason than its streams."""
    words = f"Gate of {device.name} opened: {why}"
    return (News(OFF, None, words, device.name),) if device.is_on else ()


def _has_moved(device: Device) -> bool:
    return abs(math.log2(device.steering.target_ns / device.told_target_ns)) >= math.log2(REGIME)


def _is_due(device: Device, kind: str, now_ns: int) -> bool:
    return now_ns - device.told_ns.get(kind, -QUIET_NS) >= QUIET_NS


def _telling(
    device: Device, kind: str, reader: Reader | None, sentence: str, look: Look
) -> tuple[Device, tuple[News, ...]]:
    told_ns = {**device.told_ns, kind: look.now_ns}
    if kind == ON:
        # All that was said of an earlier gate is old.
        told_ns = {kind: look.now_ns, MOVED: look.now_ns}
    device = replace(device, told_target_ns=device.steering.target_ns, told_ns=told_ns)
    return device, (News(kind, reader and reader.name, sentence, device.name),)


def _words(device: Device, reader: Reader, look: Look) -> str:
    return (
        f"{reader.name} {_waits(device, reader)}; the background may keep "
        f"{_ms(device.steering.target_ns)} of work in {device.name}, and moves "
        f"{format_rate(look.moved())} now"
    )


def _of_helpless(device: Device, reader: Reader, look: Look) -> str:
    wait_s = (device.elsewhere[reader.name].until_ns - look.now_ns) // SECOND
    after = "the gate stays for others" if device.is_on else "its gate is open"
    return (
        f"{reader.name} waits for something else than the others on {device.name}: it "
        f"{_waits(device, reader)}, though they had as little as a gate leaves them"
        f"{_of_shortage(device, reader, look)}; {after}, tried again in {wait_s} s"
    )


def _of_shortage(device: Device, reader: Reader, look: Look) -> str:
    """Why a stream that has too little may have it: several need too much, or one declares it."""
    if not reader.starves:
        return ""
    gets = sum(one.bytes_per_second for one in look.readers)
    needs = sum(one.nominal_bytes_per_second for one in look.readers)
    if len(look.readers) > 1 and gets < needs:
        ordered = sorted(look.readers, key=lambda one: (look.priorities.get(one.name, 0), one.name))
        listed = ", ".join(_served(one, look) for one in ordered)
        return (
            f"; {device.name} gives its streams {format_rate(gets)}, and they need "
            f"{format_rate(needs)}: {listed}"
        )
    has, declared = reader.bytes_per_second, reader.nominal_bytes_per_second
    return (
        f"; it has {format_rate(has)} of the {format_rate(declared)} that its nominal rate says, "
        "which may be too high"
    )


def _served(reader: Reader, look: Look) -> str:
    has, needs = reader.bytes_per_second, reader.nominal_bytes_per_second
    known = look.priorities.get(reader.name)
    priority = "" if known is None else f" (priority {known})"
    state = f"has {format_rate(has)} of {format_rate(needs)}" if reader.starves else "is served"
    return f"{reader.name}{priority} {state}"


def _waits(device: Device, reader: Reader) -> str:
    bears_ms = 1000 * reader.bears_s
    # At the first look nothing is smoothed yet.
    share = device.state.waiting[reader.name] or reader.waits
    return f"waits {share * bears_ms:.0f} of {bears_ms:.0f} ms that it can bear"


def _ms(target_ns: int) -> str:
    return f"{target_ns / 1e6:.{0 if target_ns >= 10_000_000 else 1}f} ms"
