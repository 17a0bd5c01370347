# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping by gates: each device of the host with its streams' readers and its target.

Ten times a second: how the streams on a device read, from their counters pages; the outer loop
(`domain/gate.py`); its target to each domain on the device. A gate that is found set and that
nobody wants is opened, whoever set it.

All gates on a device share one window, by its page; so do those on several devices of the same
domains, which no figure tells apart. A domain with disks on two devices that others have one of
has one gate, with the shorter of both targets and a window of its own. Disks whose device is not
known are taken to lie on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..domain.counters import Key
from ..domain.gate import Reader
from ..domain.gated import Device, Look, News, Part, advance, opened, went_on
from ..domain.limits import BLK_READ, DISK_RESOURCES
from ..domain.model import Stream
from ..domain.nominal import Nominal
from ..domain.readers import GATE_KEY, Memory, read
from ..domain.tuner_types import BACKING_OFF, SECOND, SETTLED, WATCHING, Policy
from .declared import Declaration
from .disk_places import Devices
from .gate_members import Member, Members
from .gate_setter import Gate, GateSetter, Shown
from .ports import GatePages, Host, Shapers
from .sampler import PageState
from .workers import Pool

# A player that waited reports it late, and catches up.
ACTED_NS = 10 * SECOND
# Why gates are open that would be set otherwise.
REHEARSED, UNABLE = "auto-shaping only rehearses", "no domain with a disk there has one"
# For commands, and for looks at images.
WORKERS = 4


@dataclass(frozen=True)
class Tick:
    """One look at all. `greedy_since_ns` and `unseen` are as the tuner has them."""

    pages: Mapping[str, PageState]
    declaration: Declaration
    unseen: frozenset[str]
    greedy_since_ns: Mapping[str, int]
    policy: Policy
    now_ns: int
    # A stream's rate.
    nominal: Callable[[Stream], Nominal]


@dataclass
class _Seen:
    """The streams of a tick that read a disk; `muted` ones give no pressure now."""

    readers: dict[str, Reader] = field(default_factory=dict)
    muted: set[str] = field(default_factory=set)
    # Whether a stream is not seen of which nothing is known yet.
    is_blind: bool = False


class Gates:
    def __init__(
        self,
        host: Host,
        devices: Devices,
        shapers: Shapers,
        pool: Pool,
        pages: GatePages | None = None,
    ) -> None:
        self.pool = pool
        self.members = Members(host, devices, pool)
        self.setter = GateSetter(shapers, pool, pages)
        self._memories: dict[str, Memory] = {}
        self._devices: dict[str, Device] = {}
        self._parts: Mapping[str, Part] = {}
        self._last: Tick | None = None
        self._is_rehearsal = False

    # One tick

    def tick(self, tick: Tick, is_rehearsal: bool = False) -> list[News]:
        """Steers, and sets the gates, after `follow`; returns what is worth a line."""
        self._is_rehearsal = is_rehearsal
        seen = self._look_at_streams(tick)
        passed_s = 0.0 if self._last is None else (tick.now_ns - self._last.now_ns) / SECOND
        self._last = tick
        self._regroup()
        news: list[News] = []
        for name, device in self._devices.items():
            look = self._look(name, seen, tick, passed_s)
            self._devices[name], said = advance(device, look, tick.policy)
            news += said
        if is_rehearsal:
            self._open_all(tick)
            return news
        for member in self._with_gates():
            self._set(member, seen, tick)
        return news

    def _regroup(self) -> None:
        """Devices are grouped anew as domains come and go, and their loops go on."""
        parts = self.members.parts
        if parts != self._parts:
            former = [(self._parts[name], device) for name, device in self._devices.items()]
            self._devices = {
                name: went_on(name, parts[name], former, parts.values()) for name in sorted(parts)
            }
            self._parts = parts

    def open(self, why: str, tick: Tick) -> list[News]:
        """Without gates from now on; after `follow`."""
        news = [one for d in self._devices.values() for one in opened(d, why)]
        self._devices, self._parts, self._memories, self._last = {}, {}, {}, None
        self._open_all(tick)
        return news

    def _open_all(self, tick: Tick) -> None:
        for member in self.members.by_name.values():
            # Where its disks lie does not matter for that.
            if member.is_read and member.has_gate:
                self._want(member, Gate(), tick)

    def close(self) -> None:
        self.pool.close()

    def has_just_acted(self, stream: str | None, now_ns: int) -> bool:
        """Whether a gate of the stream's came on or was cut so lately that a fault is older."""
        return any(
            device.is_on and stream in device.state.waiting and now_ns - device.acted_ns < ACTED_NS
            for device in self._devices.values()
        )

    def depth(self, stream: str) -> int:
        """The reads that it has under way at a time, as far as a gate has told."""
        memory = self._memories.get(stream)
        return 1 if memory is None or memory.reader is None else memory.reader.depth

    def covers(self, domain: str) -> bool:
        """Whether the domain's disks are held by a gate while a stream needs that."""
        member = self.members.by_name.get(domain)
        return member is not None and member.has_gate

    def follow(self, pages: Mapping[str, PageState], names: Mapping[str, str], now_ns: int) -> None:
        """The domains that run now, and whether each has a gate; `names`: the operator's, of
        devices, by the beginnings of images' paths."""
        self.pool.tend()
        self.members.follow(pages, names, now_ns)
        self.setter.tend(self.members.by_name.keys())

    def _with_gates(self) -> list[Member]:
        return [member for member in self.members.by_name.values() if member.because is None]

    # Streams

    def _look_at_streams(self, tick: Tick) -> _Seen:
        seen, memories = _Seen(), {}
        for stream in tick.declaration.streams:
            memory = memories[stream.name] = self._memories.get(stream.name) or Memory()
            self._look_at_stream(stream, memory, tick, seen)
        self._memories = memories
        return seen

    def _look_at_stream(self, stream: Stream, memory: Memory, tick: Tick, seen: _Seen) -> None:
        page = tick.pages.get(stream.domain)
        is_seen = page is not None and page.error is None and len(page.window.readings) > 1
        if is_seen:
            reader = read(stream, tick.nominal(stream), page.window, memory, tick.now_ns)
            if reader is None or memory.is_idle(tick.now_ns, tick.policy.idle_ns):
                seen.is_blind |= reader is not None and memory.is_new(tick.now_ns)
                return
        elif stream.domain in tick.unseen:
            reader = memory.reader
            seen.is_blind |= reader is None
        else:
            return
        greedy_ns = tick.now_ns - tick.greedy_since_ns.get(stream.name, tick.now_ns)
        if reader is None or greedy_ns >= tick.policy.longest_peak_ns:
            return
        if not is_seen or greedy_ns >= tick.policy.greedy_ns:
            seen.muted.add(stream.name)
            # It tells only how long it can wait.
            reader = replace(reader, mean_in_flight=0.0, oldest_s=0.0, outstanding=0.0, wait_s=0.0)
        seen.readers[stream.name] = reader

    # Devices

    def _look(self, device: str, seen: _Seen, tick: Tick, passed_s: float) -> Look:
        here = self.members.on(device)
        members = [self.members.by_name[name] for name in here]
        streams = [s for s in tick.declaration.streams if s.domain in here]
        readers = [seen.readers[s.name] for s in streams if s.name in seen.readers]
        is_greedy = any(s.name in tick.greedy_since_ns for s in streams)
        return Look(
            readers,
            held=any(member.holds(tick.now_ns) for member in members),
            unseen=any(reader.name in seen.muted for reader in readers)
            or any(member.is_missed(tick.now_ns, tick.policy.idle_ns) for member in members),
            moved=partial(self._moved, here, tick),
            why_open="streams move more than they declare" if is_greedy else "no stream reads it",
            now_ns=tick.now_ns,
            passed_s=passed_s,
            priorities={
                s.name: tick.declaration.priorities[s.class_name]
                for s in streams
                if s.class_name in tick.declaration.priorities
            },
        )

    def _moved(self, domains: list[str], tick: Tick) -> float:
        """Bytes per second of all background there."""
        moved = 0.0
        for name in domains:
            keys = _background(name, tick)
            if keys:
                moved += sum(tick.pages[name].window.rates(keys).bytes_per_second)
        return moved

    # Setting

    def _set(self, member: Member, seen: _Seen, tick: Tick) -> None:
        page, name = tick.pages[member.guest.name], member.guest.name
        steerings = [
            steering
            for device in self.members.groups(member)
            if (steering := self._devices[device].steering).target_ns
        ]
        if not steerings and seen.is_blind:
            # A gate of an earlier sluiced stays until the streams are seen.
            return
        names = {s.class_name for s in tick.declaration.streams if s.domain == name}
        # QEMU refuses the name of a class that it was not given yet.
        streams = tuple(sorted(name for name in names if (name, BLK_READ) in page.keys))
        target_ns = min((steering.target_ns for steering in steerings), default=0)
        shrink = min((steering.shrink for steering in steerings), default=1.0)
        gate = Gate(target_ns, streams, self.members.shared_by(member)) if target_ns else Gate()
        self._want(member, gate, tick, shrink)

    def _want(self, member: Member, gate: Gate, tick: Tick, shrink: float = 1.0) -> None:
        newest = tick.pages[member.guest.name].window.readings[-1]
        found = newest.content.gate(GATE_KEY)
        shown = Shown(newest.at_ns, found.target_ns if found is not None else 0)
        self.setter.want(member.guest, gate, shrink, shown, tick.now_ns)

    # Showing

    def phase(self) -> str:
        """In the tuner's words: of the device with the most trouble."""
        tick = self._last
        on = [device for device in self._devices.values() if device.is_on]
        if tick is None or not on:
            return WATCHING
        is_cut = any(tick.now_ns - device.state.cut_ns < SECOND for device in on)
        return BACKING_OFF if is_cut else SETTLED

    def pressures(self) -> dict[str, float]:
        """Of each stream that reads, how near it is to its edge, which is 1."""
        return {
            name: self._memories[name].reader.pressure(share)
            for device in self._devices.values()
            for name, share in device.state.waiting.items()
        }

    def targets_ms(self) -> dict[str, float | None]:
        """Of each device; None while its gate is open."""
        return {
            name: device.steering.target_ns / 1e6 if self._open_because(device) is None else None
            for name, device in self._devices.items()
        }

    def _open_because(self, device: Device) -> str | None:
        if device.is_on and self._is_rehearsal:
            return REHEARSED
        here = (self.members.by_name[name] for name in self.members.on(device.name))
        if device.is_on and all(member.because is not None for member in here):
            return UNABLE
        return device.open_because

    def status(self, names: Mapping[str, str]) -> dict[str, Any]:
        """As of the last tick; `names`: the operator's, as they are now."""
        tick = self._last
        return {
            "devices": []
            if tick is None
            else [self._shown(d, tick) for d in self._devices.values()],
            "assumed": self.members.assumed(),
            "names_without_disk": self.members.unused(names),
            "without_gate": self.without_gate(),
        }

    def without_gate(self) -> list[dict[str, str]]:
        return [
            {"domain": name, "because": why}
            for name, member in sorted(self.members.by_name.items())
            if (why := member.because or self.setter.error(name)) is not None
        ]

    def _shown(self, device: Device, tick: Tick) -> dict[str, Any]:
        here = self.members.on(device.name)
        target_ns = device.steering.target_ns
        return {
            "name": device.name,
            "domains": here,
            "named_by": self.members.named_by(device.name),
            "target_ms": target_ns / 1e6 if target_ns else None,
            "open_because": self._open_because(device),
            "adjust": device.state.adjust,
            "window_bytes": self._window_of_all(here, tick),
            "background_bytes_per_second": self._moved(here, tick),
            "streams": [
                {
                    "stream": name,
                    "waits_ms": 1000 * share * self._memories[name].reader.bears_s,
                    "bears_ms": 1000 * self._memories[name].reader.bears_s,
                    "is_elsewhere": name in device.elsewhere,
                }
                for name, share in device.state.waiting.items()
            ],
            "held": [one for name in here if target_ns for one in self._held(name, tick)],
        }

    def _window_of_all(self, domains: list[str], tick: Tick) -> int:
        """A window that gates share counts once."""
        shared, own = [0], [0]
        for name in domains:
            does_share = self.setter.shares(name)
            (shared if does_share else own).extend(self._windows(name, tick))
        return max(shared) + sum(own)

    def _windows(self, domain: str, tick: Tick) -> list[int]:
        page = tick.pages.get(domain)
        span = None if page is None else page.span()
        if span is None:
            return []
        gates = [span.new.content.gate((GATE_KEY[0], one)) for one in DISK_RESOURCES]
        return [gate.window_bytes for gate in gates if gate is not None]

    def _held(self, domain: str, tick: Tick) -> list[dict[str, Any]]:
        """The classes that had to wait in the last second, while their gate held requests."""
        member = self.members.by_name[domain]
        if member.held_ns is None or tick.now_ns - member.held_ns > SECOND:
            return []
        keys = _background(domain, tick)
        rates = tick.pages[domain].window.rates(keys).bytes_per_second if keys else []
        return [
            {"domain": domain, "class": key[0], "resource": key[1], "bytes_per_second": rate}
            for key, rate in zip(keys, rates, strict=True)
            if _has_waited(tick.pages[domain], key)
        ]


def _background(domain: str, tick: Tick) -> list[Key]:
    """Of a domain, what its gate holds; nothing while its page cannot be read."""
    page, declaration = tick.pages.get(domain), tick.declaration
    if page is None or page.span() is None:
        return []
    own = {s.class_name for s in declaration.streams if s.domain == domain}
    passes = own | declaration.unmanaged
    return [key for key in page.keys if key[1] in DISK_RESOURCES and key[0] not in passes]


def _has_waited(page: PageState, key: Key) -> bool:
    span = page.window.span()
    old, new = span.old.content.slot(key), span.new.content.slot(key)
    if new is None:
        return False
    return new.backlog_requests > 0 or (old is not None and new.held_requests > old.held_requests)
