# SPDX-License-Identifier: GPL-2.0-or-later
"""One device of the host under the gate: its outer loop, and what is worth a line. Pure.

All domains with a disk on the device have one target; each has a window of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .gate import Reader, State, Steering, steer
from .rates import format_rate
from .tuner_types import SECOND

# Between two sentences of one kind about one device.
QUIET_NS = 5 * SECOND
# The target is said again when it has become so many times longer or shorter.
REGIME = 2.0

ON, OFF, MOVED, STARVING = "on", "off", "moved", "starving"


@dataclass(frozen=True)
class News:
    """A change of regime, as a sentence."""

    kind: str
    stream: str | None
    sentence: str


@dataclass(frozen=True)
class Look:
    """One tick of one device.

    `held`: a gate there held a request lately; `unseen`: a stream or a domain there is not seen
    just now; `moved`: the bytes per second of the background there; `why_open`: why no stream
    needs a gate, where there is no reader.
    """

    readers: Sequence[Reader]
    held: bool
    unseen: bool
    moved: Callable[[], float]
    why_open: str
    now_ns: int
    passed_s: float


@dataclass(frozen=True)
class Device:
    """The memory of one device."""

    name: str
    state: State = field(default_factory=State)
    steering: Steering = field(default_factory=lambda: Steering(0))
    # The target that was said last, and when each kind of sentence was.
    told_target_ns: int = 0
    told_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return self.steering.target_ns > 0


def advance(device: Device, look: Look) -> tuple[Device, tuple[News, ...]]:
    """One tick: `steering` of the new device should be in force from now on."""
    state, steering = steer(
        look.readers,
        device.state,
        held=look.held,
        unseen=look.unseen,
        now_ns=look.now_ns,
        passed_s=look.passed_s,
    )
    before, after = device, replace(device, state=state, steering=steering)
    if before.is_on and not after.is_on:
        return _telling(after, OFF, None, f"Gate of {device.name} opened: {look.why_open}", look)
    if not after.is_on:
        return after, ()
    worst = max(look.readers, key=lambda reader: state.waiting[reader.name])
    if not before.is_on:
        return _telling(
            after, ON, worst, f"Gate on {device.name}: {_words(after, worst, look)}", look
        )
    hungry = next((reader for reader in look.readers if reader.starves), None)
    if hungry is not None and _is_due(after, STARVING, look.now_ns):
        rates = (hungry.bytes_per_second, hungry.nominal_bytes_per_second)
        has, needs = map(format_rate, rates)
        words = f"{hungry.name} starves, with {has} of {needs}: {_words(after, hungry, look)}"
        return _telling(after, STARVING, hungry, words, look)
    if _has_moved(after) and _is_due(after, MOVED, look.now_ns):
        return _telling(after, MOVED, worst, _words(after, worst, look), look)
    return after, ()


def opened(device: Device, why: str, now_ns: int) -> tuple[Device, tuple[News, ...]]:
    """Without a gate from now on."""
    return advance(device, Look((), False, False, lambda: 0.0, why, now_ns, 0.0))


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
    return device, (News(kind, reader and reader.name, sentence),)


def _words(device: Device, reader: Reader, look: Look) -> str:
    bears_ms = 1000 * reader.bears_s
    # At the first look nothing is smoothed yet.
    share = device.state.waiting[reader.name] or reader.mean_in_flight / reader.depth
    waits_ms = share * bears_ms
    return (
        f"{reader.name} waits {waits_ms:.0f} of {bears_ms:.0f} ms that it can bear; the background "
        f"may keep {_ms(device.steering.target_ns)} of work in {device.name}, and moves "
        f"{format_rate(look.moved())} now"
    )


def _ms(target_ns: int) -> str:
    return f"{target_ns / 1e6:.{0 if target_ns >= 10_000_000 else 1}f} ms"
