# SPDX-License-Identifier: GPL-2.0-or-later
"""A small queueing model of a shared disk and a shared link, for the tuner's tests.

Disk: background classes want more than the capacity; each is admitted at its
cap, and what is admitted beyond the capacity queues. A stream's read waits for
a service time and for its part of the queue. Without caps the queue holds what
closed-loop readers keep outstanding.

Link: a byte queue in front of a rate, which drops beyond its length.

Time advances in ticks of 100 ms; rates are means over the last ten.
"""

from collections import deque
from dataclasses import dataclass, field

from sluice_controller.domain.shares import Load
from sluice_controller.domain.tuner import decide
from sluice_controller.domain.tuner_types import (
    MS,
    Observation,
    Policy,
    State,
    StreamView,
    UplinkView,
)

TICK_S = 0.1
FLOOR = 1024.0 * 1024


@dataclass
class Demand:
    domain: str
    class_name: str
    resource: str
    bytes_per_second: float
    own_limit: float | None = None
    rates: deque = field(default_factory=lambda: deque([0.0] * 10, maxlen=10))
    held: bool = False
    reserved: float = 0.0

    @property
    def key(self):
        return (self.domain, self.class_name, self.resource)

    def load(self):
        recent = list(self.rates)[-3:]
        return Load(
            *self.key,
            sum(self.rates) / len(self.rates),
            sum(recent) / len(recent),
            1 if self.held else 0,
            self.own_limit,
            self.reserved,
        )


@dataclass
class Disk:
    """`outstanding_bytes` is what closed-loop readers keep in the queue at most."""

    capacity_bps: float
    base_ms: float = 12.0
    outstanding_bytes: float = 24e6
    queue_bytes: float = 0.0

    def admit(self, offered_bytes):
        """Returns what enters; readers wait for their answers beyond their depth."""
        served = min(self.queue_bytes + offered_bytes, self.capacity_bps * TICK_S)
        room = self.outstanding_bytes - self.queue_bytes + served
        entered = min(offered_bytes, room)
        self.queue_bytes = max(0.0, self.queue_bytes + entered - served)
        return entered

    def wait_ms(self, utilisation):
        busy = min(0.97, utilisation)
        return 1000 * self.queue_bytes / self.capacity_bps + self.base_ms * (
            1 + 0.5 * busy / (1 - busy) * 0.3
        )


@dataclass
class Link:
    rate_bps: float
    length_bytes: float = 500e3
    queue_bytes: float = 0.0
    # Its queue is another host's: nobody here sees backlog, drops, or what goes through.
    is_beyond: bool = False

    def offer(self, offered_bytes):
        """Returns (bytes carried on, packets dropped)."""
        self.queue_bytes += offered_bytes
        carried = min(self.queue_bytes, self.rate_bps * TICK_S)
        self.queue_bytes -= carried
        lost = max(0.0, self.queue_bytes - self.length_bytes)
        self.queue_bytes -= lost
        return carried, round(lost / 1500)


@dataclass
class Plant:
    disk: Disk
    link: Link
    demands: list
    nominal_bps: float = 875_000.0
    policy: Policy = field(
        default_factory=lambda: Policy(
            floors={r: FLOOR for r in ("blk-read", "blk-write", "net-tx", "net-rx")}
        )
    )
    state: State = field(default_factory=State)
    now_ns: int = 1_000_000_000
    waits_ms: deque = field(default_factory=lambda: deque(maxlen=10))
    drops: deque = field(default_factory=lambda: deque(maxlen=10))
    backlogs: deque = field(default_factory=lambda: deque(maxlen=10))
    carried: deque = field(default_factory=lambda: deque(maxlen=10))
    decisions: list = field(default_factory=list)

    def _offered(self, resources):
        offered = 0.0
        for demand in self.demands:
            if demand.resource not in resources:
                continue
            caps = [demand.own_limit, self.state.caps.get(demand.key)]
            cap = min([c for c in caps if c is not None], default=float("inf"))
            demand.held = demand.bytes_per_second > cap
            demand.rates.append(min(demand.bytes_per_second, cap))
            offered += demand.rates[-1] * TICK_S
        return offered

    def _scale(self, resources, ratio):
        for demand in self.demands:
            if demand.resource in resources:
                demand.rates[-1] *= ratio

    def tick(self, enabled=True):
        disk, net = ("blk-read", "blk-write"), ("net-tx",)
        offered = self._offered(disk)
        entered = self.disk.admit(offered)
        if offered > 0:
            self._scale(disk, entered / offered)
        utilisation = (entered + self.nominal_bps * TICK_S) / (self.disk.capacity_bps * TICK_S)
        self.waits_ms.append(self.disk.wait_ms(utilisation))
        offered = self._offered(net)
        carried, dropped = self.link.offer(offered + self.nominal_bps * TICK_S)
        sent = offered + self.nominal_bps * TICK_S if self.link.is_beyond else carried
        self.carried.append(sent / TICK_S)
        self.drops.append(dropped)
        self.backlogs.append(self.link.queue_bytes)
        self.now_ns += 100 * MS
        if not enabled:
            return ()
        self.state, decisions = decide(self.observe(), self.state, self.policy, self.now_ns)
        self.decisions += decisions
        return decisions

    def observe(self, **changes):
        stream = StreamView(
            "movie",
            "media",
            "stream",
            self.nominal_bps,
            disk_bytes_per_second=self.nominal_bps,
            disk_request_bytes=128 * 1024,
            disk_requests=self.nominal_bps / (128 * 1024),
            disk_mean_ms=sum(self.waits_ms) / len(self.waits_ms),
            disk_worst_ms=max(self.waits_ms),
            disk_latest_ms=self.waits_ms[-1],
            net_bytes_per_second=self.nominal_bps,
            **changes,
        )
        uplink = UplinkView(
            0.0 if self.link.is_beyond else max(self.backlogs),
            0 if self.link.is_beyond else sum(self.drops),
            sum(self.carried) / len(self.carried),
            self.link.rate_bps,
            self.link.is_beyond,
        )
        return Observation((stream,), tuple(d.load() for d in self.demands), uplink)

    def run(self, seconds, enabled=True):
        for _ in range(round(seconds / TICK_S)):
            self.tick(enabled)

    def rate(self, *resources):
        return sum(sum(d.rates) / len(d.rates) for d in self.demands if d.resource in resources)


def busy_disk(capacity_bps=45e6, **changes):
    demands = [
        Demand("media", "batch", "blk-read", 200e6),
        Demand("media", "default", "blk-read", 20e3),
        Demand("web", "default", "blk-read", 60e6),
    ]
    return Plant(Disk(capacity_bps), Link(50e6), demands, **changes)


def busy_link(rate_bps=50e6, **changes):
    demands = [
        Demand("web", "default", "net-tx", 80e6),
        Demand("media", "default", "net-tx", 5e3),
    ]
    return Plant(Disk(45e6), Link(rate_bps), demands, **changes)
