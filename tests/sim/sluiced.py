# SPDX-License-Identifier: GPL-2.0-or-later
"""sluiced's own sampler, windows, streams and `Auto`, by rates or by gates.

Only the edges are the simulated host's: its counters pages come from the plant's memory, the
uplink's queue is the plant's, and caps and gates go to the plant instead of through libvirt.
By gates the streams' frames go first on the uplink, by sluiced's own rounds; the plant's order
stands for that of its queue discipline.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from at_once import AtOnce
from sim import native
from sim.run import TICK_NS, TICKS_IN_A_HALF, Caps
from sim.scenario import ONSET_S, SECOND, STREAM_TAG, Scenario
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.beyond import RoundTrip
from sluice_controller.domain.counters import Reading, read_page
from sluice_controller.domain.guests import Description, Device, Guest
from sluice_controller.domain.limits import RESOURCES
from sluice_controller.domain.model import GATE, Grant, Settings, ShapingClass, Stream
from sluice_controller.domain.uplink_first import FIRST_STREAM, HANDLE, MAJOR, ROOT_CLASS
from sluice_controller.services.auto import Auto
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.beyond import Beyond
from sluice_controller.services.declared import Declared
from sluice_controller.services.gates import Gates
from sluice_controller.services.nominal import Nominals
from sluice_controller.services.ports import ClassReading, UplinkReading
from sluice_controller.services.records import Records
from sluice_controller.services.sampler import Sampler
from sluice_controller.services.streams import Streams
from sluice_controller.services.uplink_first import ROUND_SECONDS, UplinkFirst

UPLINK = "uplink0"
# Of the class that all others are under.
CEILING = re.compile(f"classid {MAJOR:x}:{ROOT_CLASS:x} .* ceil ([0-9]+)bit")
REPORT_S = 1
WRITE_S = 30


@dataclass
class Edges:
    """The host as sluiced meets it: libvirt's guests, their pages, the uplink."""

    scenario: Scenario
    plant: native.Plant | None = None
    now_ns: int = 0

    def __post_init__(self) -> None:
        self._guests = []
        for vm in range(self.scenario.vms):
            page, images = f"/run/vm{vm}.page", ("/images/vm",)
            card = Device("network", "net0", "tap0", shapeable=True, mac=f"52:54:00:00:00:0{vm}")
            live = Description(shaper_id="sluice0", page_path=page, images=images, devices=(card,))
            self._guests.append(Guest(f"vm{vm}", f"u{vm}", "running", vm + 1, live, live))
        self._number = {guest.live.page_path: vm for vm, guest in enumerate(self._guests)}

    def guests(self) -> list[Guest]:
        return list(self._guests)

    def names(self) -> list[str]:
        return [UPLINK]

    def under(self, _path: str) -> str:
        return "disk0"

    def execute(self, domain: str, _command: str, arguments: Mapping[str, Any]) -> None:
        """shaper-set-gate."""
        assert self.plant is not None
        shrink = arguments.get("window-percent", 100) / 100
        self.plant.set_gate(int(domain[2:]), arguments.get("target-ns", 0), shrink)

    def read(self, path: str, before: Reading | None = None):
        """A page by its path, or the uplink by its name."""
        assert self.plant is not None
        if path == UPLINK:
            found = self.plant.uplink()
            return UplinkReading(
                found.backlog_bytes, found.dropped, found.bytes, self.scenario.link_known, (UPLINK,)
            )
        page = self.plant.page(self._number[path])
        return read_page(
            lambda offset, length: page[offset : offset + length],
            len(page),
            self.now_ns,
            before,
        )


class Reporters:
    """`sluice-agent report --sockets` beside each stream, and the way of its words to sluiced.

    A look each half-second, of a phase of its own. A guest that has no processor misses looks as it
    misses pages. No stream here is TCP; its numbers are those that TCP_INFO would have for
    its frames.
    """

    def __init__(self, scenario: Scenario) -> None:
        chance = random.Random(f"round-trips/{scenario.kind}/{scenario.seed}")
        self._scenario, self._chance = scenario, chance
        self._phases = [chance.randrange(TICKS_IN_A_HALF) for _ in scenario.streams]
        self._coming: list[tuple[int, str, native.RoundTrip]] = []
        self._known: dict[str, RoundTrip] = {}

    def of(self, domain: str) -> list[tuple[int, RoundTrip]]:
        known = self._known.get(domain)
        return [] if known is None else [(STREAM_TAG, known)]

    def tick(self, plant: native.Plant, now_ns: int) -> None:
        scenario = self._scenario
        if scenario.link is None:
            return
        for number, stream in enumerate(scenario.streams):
            is_due = (now_ns // TICK_NS + self._phases[number]) % TICKS_IN_A_HALF == 0
            found = plant.round_trip(number)
            if is_due and self._chance.random() >= scenario.lost_samples and found.least_ns:
                # The confirmation's way back, and the word's way to sluiced.
                at_ns = now_ns + scenario.link.delay_ns + scenario.late_ns
                self._coming.append((at_ns, f"vm{stream.vm}", found))
        for word in [one for one in self._coming if one[0] <= now_ns]:
            self._coming.remove(word)
            _at_ns, domain, found = word
            self._known[domain] = RoundTrip(
                now_ns, found.smoothed_ns / SECOND, found.least_ns / SECOND
            )


class Queues:
    """The queue discipline of sluiced on the uplink: its rate counts a tick after its commands."""

    def __init__(self, streams: int) -> None:
        self._numbers = [HANDLE | FIRST_STREAM + slot for slot in range(streams)]
        self._is_set = False
        self._rate: float | None = None
        self._plant: native.Plant | None = None

    def settle(self, plant: native.Plant) -> None:
        self._plant = plant
        if self._is_set:
            plant.hold_uplink(self._rate)

    def other(self, _port: str) -> None:
        return None

    def owned(self) -> list[str]:
        return []

    def classes(self, _port: str) -> dict[int, ClassReading] | None:
        if not self._is_set or self._plant is None:
            return None
        return {
            number: ClassReading(self._plant.quality(stream).received_bytes, 0, 0)
            for stream, number in enumerate(self._numbers)
        }

    def change(self, lines: Sequence[str]) -> None:
        self._is_set = True
        for line in lines:
            if found := CEILING.search(line):
                self._rate = float(found[1]) / 8

    def make_fair(self, _port: str) -> None:
        """The plant's senders share one queue."""

    def remove(self, _port: str) -> None:
        self._is_set, self._rate = False, None


class Sluiced:
    """The policy of a method; off until the scenario's onset, unless it is on from the start."""

    def __init__(
        self, scenario: Scenario, store: SqlStore, method: str, declares: bool = True
    ) -> None:
        """`declares`: whether the rates of streams are declared."""
        self.scenario = scenario
        self.declares = declares
        self.store = store
        self.method = method
        self.edges = Edges(scenario)
        self._lost = random.Random(f"samples/{scenario.kind}/{scenario.seed}")
        self._from_ns = 0 if scenario.gate_on else ONSET_S * SECOND
        self._changes = 0
        self._told = [native.Quality() for _ in scenario.streams]
        self._declare()
        declared = Declared(store)
        self._reporters = Reporters(scenario)
        beyond = Beyond(declared, self._reporters.of, lambda: self._uplink_first.follow_rate())
        self._queues = Queues(len(scenario.streams))
        self._uplink_first = UplinkFirst(
            declared, self.edges, self.edges, self._queues, lambda: self._clock(), beyond.rate
        )
        self._records = Records(store, declared, self._clock, lambda: self.edges.now_ns / SECOND)
        self._sampler = Sampler(
            declared,
            self._records,
            self.edges,
            self.edges,
            self.edges,
            self._clock,
            self._uplink_first.now,
        )
        nominals, about = Nominals(self._records, {}), store.transaction
        self._streams = Streams(
            store, declared, self._sampler, self._clock, lambda _domain: about(), nominals.now
        )
        self._limits = AutoLimits()
        self.auto = Auto(
            store,
            declared,
            self._records,
            self._sampler,
            self._streams,
            self._limits,
            Gates(self.edges, self.edges, self.edges, AtOnce()),
            beyond,
            self._clock,
            lambda _domain: None,
            nominals,
        )

    def _clock(self) -> float:
        return self.edges.now_ns / SECOND

    def _declare(self) -> None:
        scenario = self.scenario
        with self.store.transaction() as unit:
            tags = {STREAM_TAG: "stream", **{c.tag: c.name for c in scenario.classes}}
            for name in ("default", *tags.values()):
                unit.put_class(ShapingClass(name, name, is_stream=name == "stream"))
            granted = {(c.vm, c.tag) for c in scenario.classes}
            granted |= {(stream.vm, STREAM_TAG) for stream in scenario.streams}
            for vm in range(scenario.vms):
                unit.remember_domain(f"vm{vm}", f"u{vm}")
                unit.put_grant(Grant(f"vm{vm}", "default", 0))
            for vm, tag in sorted(granted):
                unit.put_grant(Grant(f"vm{vm}", tags[tag], tag))
            for number, stream in enumerate(scenario.streams):
                rate = stream.bytes_per_second if self.declares else None
                unit.put_stream(Stream(f"s{number}", f"vm{stream.vm}", "stream", rate))
            floors = {**scenario.floors, "net-rx": 1.0 * 1024 * 1024}
            unit.put_value(
                "auto", {"enabled": True, "method": self.method, "floors_bytes_per_second": floors}
            )
            if scenario.link is not None:
                first = self.method == GATE
                unit.put_settings(Settings(uplink=UPLINK, uplink_first=first))

    def tick(self, plant: native.Plant, now_ns: int) -> Caps | None:
        self.edges.plant = plant
        self.edges.now_ns = now_ns
        # A QEMU that has no processor just now leaves its page as it was.
        if self._lost.random() >= self.scenario.lost_samples:
            plant.write_pages()
        self._reporters.tick(plant, now_ns)
        self._queues.settle(plant)
        self._sampler.tick(self.edges.now_ns)
        if self.scenario.link is not None and now_ns % (ROUND_SECONDS * SECOND) == 0:
            self._uplink_first.round()
        if now_ns % (WRITE_S * SECOND) == 0:
            # The store's thread, which no tick waits for.
            self._records.round()
        if self.scenario.reports and now_ns % (REPORT_S * SECOND) == 0:
            self._report(plant)
        if now_ns < self._from_ns:
            return None
        self.auto.tick(self.edges.now_ns)
        if self._limits.changes == self._changes:
            return None
        self._changes = self._limits.changes
        return {
            (int(domain[2:]), self._tag(class_name), RESOURCES.index(resource)): cap
            for (domain, class_name, resource), cap in self._limits.snapshot().items()
        }

    @staticmethod
    def _tag(class_name: str) -> int:
        return 0 if class_name == "default" else int(class_name[1:])

    def _report(self, plant: native.Plant) -> None:
        """The players' words of the last second."""
        for number, before in enumerate(self._told):
            now = plant.quality(number)
            self._streams.report(
                f"s{number}",
                {
                    "window_ms": REPORT_S * 1000,
                    "continuity_errors": now.lost - before.lost,
                    "stalls": max(0, now.stalls - before.stalls),
                    "stall_seconds": max(0, now.stall_ns - before.stall_ns) / SECOND,
                    "received_bytes": now.received_bytes - before.received_bytes,
                },
            )
            self._told[number] = now


@contextmanager
def sluiced(scenario: Scenario, method: str, declares: bool = True) -> Iterator[Sluiced]:
    """The policy with a store in memory, which ends with it."""
    with closing(SqlStore("sqlite://")) as store:
        yield Sluiced(scenario, store, method, declares)
