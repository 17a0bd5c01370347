# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenarios by kind and seed: a host, its streams and its background, with steps each 30 s.

A scenario is drawn from its kind and seed alone, so all runs of it are alike. Seeds below
``JUDGED_FROM`` are for fitting constants, seeds from there on for judging them: a constant that
was tried on a seed says nothing about that seed any more.
"""

import random
from dataclasses import dataclass, replace

from sim import native

JUDGED_FROM = 1000
EPOCH_S = 30
EPOCHS = 3
# Streams alone until then; then the background, or auto-shaping, is switched on.
ONSET_S = 5
MS = 1_000_000
SECOND = 1000 * MS
MBIT = 125_000.0
MB = 1e6
MIB = 1 << 20

DISKS = ("sliced", "queued", "ssd", "cloud", "network")
LINKS = ("uplink-known", "uplink-unknown", "uplink-changing", "beyond")
BOTH = "disk-and-uplink"
KINDS = (*DISKS, *LINKS, BOTH)
DEFAULT_FLOOR = 1.0 * MIB
STREAM_TAG = 1
FIRST_TAG = 2


@dataclass(frozen=True)
class Class:
    """A background class: its VM, tag and resource, and its loads by their numbers."""

    vm: int
    tag: int
    resource: int
    loads: tuple[int, ...]
    # Bytes per second that it asks for at most; None: all it gets.
    wants: float | None

    @property
    def name(self) -> str:
        return f"c{self.tag}"


@dataclass(frozen=True)
class Step:
    """The world from a time on: the disk's speed, the link's rates, and the active classes."""

    at_s: int
    disk: float
    link: float
    active: frozenset[int]


@dataclass(frozen=True)
class Scenario:
    kind: str
    seed: int
    vms: int
    disk: native.Disk | None
    link: native.Link | None
    # The host knows the uplink's rate, and that it is so much.
    link_known: float | None
    streams: tuple[native.Stream, ...]
    loads: tuple[native.Load, ...]
    classes: tuple[Class, ...]
    # Of each epoch, the first from 0 on.
    steps: tuple[Step, ...]
    # The link's rate at other times: (second, factor).
    changes: tuple[tuple[float, float], ...]
    # True: auto-shaping is on when the background comes; False: it comes under overload.
    gate_on: bool
    reports: bool
    lost_samples: float
    # From a decision until QEMU has it.
    late_ns: int

    @property
    def seconds(self) -> int:
        return EPOCHS * EPOCH_S

    @property
    def floors(self) -> dict[str, float]:
        """No class is held lower; all of them together ask for a fifth of the slowest at most."""
        slow = min(step.disk for step in self.steps), min(step.link for step in self.steps)
        disk = DEFAULT_FLOOR if self.disk is None else slow[0] * self._disk_rate() / 5
        link = DEFAULT_FLOOR if self.link is None else slow[1] * self._link_rate() / 5
        counts = [
            max(1, sum((c.resource == native.SEND) == sends for c in self.classes))
            for sends in (False, True)
        ]
        # No lower than a floor may be.
        on_disk = max(1024.0, min(DEFAULT_FLOOR, disk / counts[0]))
        on_link = max(1024.0, min(DEFAULT_FLOOR, link / counts[1]))
        return {"blk-read": on_disk, "blk-write": on_disk, "net-tx": on_link}

    def _disk_rate(self) -> float:
        assert self.disk is not None
        return self.disk.base_bytes_per_second or self.disk.bytes_per_second

    def _link_rate(self) -> float:
        assert self.link is not None
        return self.link.beyond_bytes_per_second or self.link.bytes_per_second


def is_judged(seed: int) -> bool:
    return seed >= JUDGED_FROM


def draw(kind: str, seed: int) -> Scenario:
    """The scenario of this kind and seed; ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; there are {', '.join(KINDS)}")
    chance = random.Random(f"{kind}/{seed}")
    on_disk = kind in DISKS or kind == BOTH
    on_link = kind in LINKS or kind == BOTH
    disk = _disk(chance, chance.choice(DISKS) if kind == BOTH else kind) if on_disk else None
    link = _link(chance, kind) if on_link else None
    vms = chance.randint(1, 4)
    streams = _streams(chance, vms, disk, link)
    gate_on = chance.random() < 0.5
    classes, loads = _background(chance, vms, disk, link, gate_on)
    return Scenario(
        kind=kind,
        seed=seed,
        vms=vms,
        disk=disk,
        link=link,
        link_known=_known(chance, kind, link),
        streams=streams,
        loads=loads,
        classes=classes,
        steps=_steps(chance, kind, len(classes)),
        changes=_changes(chance, kind),
        gate_on=gate_on,
        reports=chance.random() < 0.5,
        lost_samples=chance.choice((0.0, 0.02, 0.1)),
        late_ns=chance.randint(5, 60) * MS,
    )


def _disk(chance: random.Random, kind: str) -> native.Disk:
    if kind == "sliced":
        return native.Disk(
            bytes_per_second=chance.uniform(40, 180) * MB,
            revolution_ns=round(60e9 / chance.choice((5400, 7200, 10000))),
            kind=native.SLICED,
        )
    if kind == "queued":
        return native.Disk(
            bytes_per_second=chance.uniform(80, 220) * MB,
            revolution_ns=round(60e9 / chance.choice((5400, 7200, 10000))),
            kind=native.QUEUED,
        )
    if kind == "ssd":
        return native.Disk(
            bytes_per_second=chance.uniform(100, 400) * MB,
            latency_ns=chance.uniform(0.1, 0.3) * MS,
            noise=chance.uniform(0.1, 0.4),
            kind=native.SSD,
            channels=chance.randint(4, 8),
        )
    if kind == "cloud":
        base = chance.uniform(30, 125) * MB
        return native.Disk(
            bytes_per_second=base * chance.uniform(1.5, 3),
            base_bytes_per_second=base,
            credit_bytes=base * chance.uniform(1, 12),
            requests_per_second=chance.uniform(1500, 8000),
            latency_ns=chance.uniform(0.5, 1.5) * MS,
            noise=0.3,
            kind=native.CLOUD,
        )
    return native.Disk(
        bytes_per_second=chance.uniform(60, 300) * MB,
        latency_ns=chance.uniform(0.5, 2) * MS,
        noise=chance.uniform(0.15, 0.35),
        kind=native.NETWORK,
    )


def _link(chance: random.Random, kind: str) -> native.Link:
    rate = chance.uniform(30, 300) * MBIT
    limit_bytes = round(rate * chance.uniform(0.03, 0.2))
    delay_ns = chance.randint(2, 40) * MS
    if kind == "beyond":
        return native.Link(
            bytes_per_second=1000 * MBIT,
            beyond_bytes_per_second=rate,
            limit_bytes=4 * MIB,
            beyond_limit_bytes=limit_bytes,
            delay_ns=delay_ns,
        )
    return native.Link(bytes_per_second=rate, limit_bytes=limit_bytes, delay_ns=delay_ns)


def _known(chance: random.Random, kind: str, link: native.Link | None) -> float | None:
    known = chance.random() < 0.5
    if link is None or kind == "uplink-unknown" or (kind == "uplink-changing" and not known):
        return None
    return link.bytes_per_second


def _streams(
    chance: random.Random, vms: int, disk: native.Disk | None, link: native.Link | None
) -> tuple[native.Stream, ...]:
    """Together they take at most a fifth of a disk or four tenths of a link."""
    room = float("inf")
    if disk is not None:
        room = 0.2 * (disk.base_bytes_per_second or disk.bytes_per_second)
    if link is not None:
        room = min(room, 0.4 * (link.beyond_bytes_per_second or link.bytes_per_second))
    streams: list[native.Stream] = []
    for number in range(min(vms, chance.randint(1, 4))):
        rate = min(chance.uniform(1, 25) * MBIT, room)
        if rate < MBIT:
            break
        room -= rate
        request = chance.choice((64, 128, 128, 256)) * 1024
        streams.append(
            native.Stream(
                bytes_per_second=rate,
                # From a conference's to a film's.
                buffer_ns=round(1000 * MS * 10 ** -chance.random()),
                start_ns=chance.randint(0, 1000) * MS,
                base=number * 4096 * MIB,
                size=4096 * MIB,
                request_bytes=request,
                depth=chance.choice((1, 1, 2, 4)),
                frame_bytes=1316 if rate < 8 * MBIT else 2632,
                vm=number,
                tag=STREAM_TAG,
                reads=disk is not None,
                sends=link is not None,
            )
        )
    return tuple(streams)


def _background(
    chance: random.Random,
    vms: int,
    disk: native.Disk | None,
    link: native.Link | None,
    gate_on: bool,
) -> tuple[tuple[Class, ...], tuple[native.Load, ...]]:
    classes: list[Class] = []
    loads: list[native.Load] = []
    start_ns = ONSET_S * SECOND if gate_on else 2 * SECOND
    # A VM has tags enough for a stream and twelve more.
    count = min(round(2 ** chance.uniform(0, 4)), 12 * vms)
    if disk is not None and link is not None:
        count = max(count, 2)
    for number in range(count):
        vm, tag = number % vms, FIRST_TAG + number // vms
        sends = disk is None or (link is not None and number % 2 == 1)
        make = _sender if sends else _disk_load
        # The first of each resource takes all it gets: the scenario shall be an overload.
        is_greedy = number < (2 if disk is not None and link is not None else 1)
        pattern = make(chance, disk, link, is_greedy)
        numbers = []
        for _ in range(chance.choice((2, 4, 6) if is_greedy else (1, 1, 2, 4))):
            place = 20_000 * MIB + len(loads) * 512 * MIB
            loads.append(_placed(pattern, vm, tag, place, start_ns))
            numbers.append(len(loads) - 1)
        resource = native.SEND if sends else int(pattern.kind == native.SEQUENTIAL_WRITE)
        wants = pattern.bytes_per_second * len(numbers) or None
        classes.append(Class(vm, tag, resource, tuple(numbers), wants))
    return tuple(classes), tuple(loads)


def _placed(pattern: native.Load, vm: int, tag: int, base: int, start_ns: int) -> native.Load:
    load = native.Load.from_buffer_copy(pattern)
    load.vm, load.tag, load.base, load.start_ns = vm, tag, base, start_ns
    return load


def _disk_load(
    chance: random.Random, disk: native.Disk, _link: object, is_greedy: bool
) -> native.Load:
    """Each reads or writes in a region of its own."""
    size = 512 * MIB
    kinds = (native.SEQUENTIAL_READ, native.SEQUENTIAL_READ, native.SEQUENTIAL_WRITE)
    kind = chance.choice(kinds if is_greedy else (*kinds, native.RANDOM_READ, native.PACED_READ))
    if kind == native.RANDOM_READ:
        request, depth = chance.choice((16, 32, 64)) * 1024, chance.choice((1, 4, 16))
    elif is_greedy and disk.kind in (native.SSD, native.CLOUD, native.NETWORK):
        # With fewer no stream would wait there.
        request, depth = chance.choice((256, 512, 1024)) * 1024, chance.choice((8, 16, 32))
    else:
        request, depth = chance.choice((128, 256, 512, 1024)) * 1024, chance.choice((1, 2, 4, 8))
    load = native.Load(size=size, request_bytes=request, depth=depth, kind=kind)
    if kind == native.PACED_READ:
        load.bytes_per_second = chance.uniform(0.02, 0.2) * disk.bytes_per_second
    if not is_greedy and chance.random() < 0.3:
        load.on_ns, load.off_ns = _times(chance)
    if chance.random() < 0.5:
        load.think_ns = chance.randint(100, 2000) * 1000
    return load


def _times(chance: random.Random) -> tuple[int, int]:
    return chance.randint(500, 5000) * MS, chance.randint(500, 5000) * MS


def _sender(
    chance: random.Random, _disk: object, link: native.Link, is_greedy: bool
) -> native.Load:
    kind = native.TCP if is_greedy else chance.choice((native.TCP, native.TCP, native.UDP))
    load = native.Load(
        size=MIB,
        request_bytes=5792,
        window_bytes=chance.choice((256, 1024, 4096)) * 1024,
        depth=1,
        kind=kind,
    )
    if is_greedy:
        load.window_bytes = 4 * MIB
    if kind == native.UDP:
        rate = link.beyond_bytes_per_second or link.bytes_per_second
        load.bytes_per_second = chance.uniform(0.02, 0.3) * rate
    elif not is_greedy and chance.random() < 0.4:
        load.on_ns, load.off_ns = _times(chance)
    return load


def _steps(chance: random.Random, kind: str, classes: int) -> tuple[Step, ...]:
    """Each changes the capacity, the load, or both; the greedy classes stay."""
    step = Step(0, 1.0, 1.0, frozenset(range(classes)))
    steps = [step]
    for epoch in range(1, EPOCHS):
        what = chance.choice(("capacity", "load", "both"))
        factor = chance.choice((chance.uniform(0.6, 0.9), chance.uniform(1.1, 1.5)))
        stay = frozenset(n for n in range(classes) if n < 2 or chance.random() < 0.5)
        step = replace(step, at_s=epoch * EPOCH_S)
        if what != "load":
            step = replace(step, disk=factor if kind != BOTH else 1.0, link=factor)
        if what != "capacity":
            step = replace(step, active=stay)
        steps.append(step)
    return tuple(steps)


def _changes(chance: random.Random, kind: str) -> tuple[tuple[float, float], ...]:
    if kind != "uplink-changing":
        return ()
    changes, at_s = [], 0.0
    while at_s < EPOCHS * EPOCH_S:
        at_s += chance.uniform(1, 5)
        changes.append((at_s, chance.uniform(0.6, 1.0)))
    return tuple(changes)
