# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets a scenario pass under a policy, tick by tick, and notes the bytes of each class."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sim import native
from sim.scenario import EPOCH_S, MS, SECOND, STREAM_TAG, Class, Scenario, Step
from sluice_controller.domain.render import AUTO_BURST_BYTES

TICK_NS = 100 * MS
HALF_NS = 500 * MS
TICKS_IN_A_HALF = HALF_NS // TICK_NS
NEVER_NS = 1 << 62

# A class by its VM, tag and resource, and its bytes per second; None: no limit.
Caps = Mapping[tuple[int, int, int], float | None]


class Policy(Protocol):
    """Decides ten times a second."""

    def tick(self, plant: native.Plant, now_ns: int) -> Caps | None:
        """The caps that hold from now on; None if they stay as they are."""
        ...


class Unshaped:
    def tick(self, plant: native.Plant, now_ns: int) -> Caps | None:
        return None


@dataclass(frozen=True)
class Static:
    """Rates that never change."""

    caps: Caps

    def tick(self, plant: native.Plant, now_ns: int) -> Caps | None:
        return self.caps if now_ns <= TICK_NS else None


@dataclass
class Course:
    """The events, by half-seconds; `bad[i]` if any stream was imperfect in half-second i."""

    bad: list[bool] = field(default_factory=list)
    # Of each half-second the bytes that each class got in it.
    served: list[list[int]] = field(default_factory=list)
    # And the sum of the caps on each resource, None where there are none.
    caps: list[float | None] = field(default_factory=list)
    slip_s: float = 0.0
    events: int = 0

    def rates(self, from_half: int, to_half: int) -> list[float]:
        """Bytes per second of each class."""
        rows = self.served[from_half:to_half]
        seconds = max(1, len(rows)) / 2
        return [sum(column) / seconds for column in zip(*rows, strict=True)]


class World:
    """The plant of a scenario, or of one of its epochs alone, and its changes as time passes."""

    def __init__(self, scenario: Scenario, plant: native.Plant, epoch: int | None) -> None:
        self.scenario = scenario
        self.plant = plant
        self._from_ns = 0 if epoch is None else epoch * EPOCH_S * SECOND
        steps = scenario.steps if epoch is None else scenario.steps[epoch : epoch + 1]
        self._link = self._disk = 1.0
        self._changes = sorted(self._timed(steps), key=lambda change: change[0])
        self._set_up(credit=not epoch, active=steps[0].active)
        self.pass_to(0)

    def _timed(self, steps: Sequence[Step]) -> Iterator[tuple[int, Callable[[], None]]]:
        for step in steps:
            yield max(0, step.at_s * SECOND - self._from_ns), lambda step=step: self._step(step)
        for at_s, factor in self.scenario.changes:
            at_ns = round(at_s * SECOND) - self._from_ns
            if at_ns >= 0:
                yield at_ns, lambda factor=factor: self._change(factor)

    def _set_up(self, credit: bool, active: frozenset[int]) -> None:
        scenario, plant = self.scenario, self.plant
        if scenario.disk is not None:
            disk = native.Disk.from_buffer_copy(scenario.disk)
            # Of a later epoch: greedy readers have used it up by then.
            disk.credit_bytes *= credit
            plant.set_disk(disk)
        if scenario.link is not None:
            plant.set_link(scenario.link)
        streaming = {stream.vm for stream in scenario.streams}
        for vm in range(scenario.vms):
            names = {0: "default", **{c.tag: c.name for c in scenario.classes if c.vm == vm}}
            plant.add_vm({**names, **({STREAM_TAG: "stream"} if vm in streaming else {})})
        for stream in scenario.streams:
            plant.add_stream(stream)
        begins = {load for number in active for load in scenario.classes[number].loads}
        for number, load in enumerate(scenario.loads):
            copy = native.Load.from_buffer_copy(load)
            copy.start_ns = load.start_ns if number in begins else NEVER_NS
            plant.add_load(copy)

    def _step(self, step: Step) -> None:
        self._link = step.link
        if self.scenario.disk is not None:
            self.plant.step_disk(step.disk)
        self._change(1.0)
        for number, entry in enumerate(self.scenario.classes):
            for load in entry.loads:
                # Loads of the first epoch begin by themselves.
                if self.plant.now_ns:
                    self.plant.step_load(load, number in step.active)

    def _change(self, factor: float) -> None:
        link = self.scenario.link
        if link is None:
            return
        rate, beyond = link.bytes_per_second, link.beyond_bytes_per_second
        factor *= self._link
        # Of two, the bottleneck changes.
        self.plant.step_link(rate if beyond else rate * factor, beyond * factor)

    def pass_to(self, until_ns: int) -> None:
        while self._changes and self._changes[0][0] <= until_ns:
            at_ns, change = self._changes.pop(0)
            self.plant.run(at_ns)
            change()
        self.plant.run(until_ns)


def limit(plant: native.Plant, before: Caps, after: Caps) -> None:
    """Give the engines the caps that differ."""
    for key in before.keys() | after.keys():
        if before.get(key) != after.get(key):
            plant.limit(*key, after.get(key), AUTO_BURST_BYTES)


def _served(plant: native.Plant, classes: tuple[Class, ...]) -> list[int]:
    return [sum(plant.load_bytes(load) for load in entry.loads) for entry in classes]


@contextmanager
def world(scenario: Scenario, epoch: int | None = None) -> Iterator[World]:
    with native.Plant(scenario.seed + 1) as plant:
        yield World(scenario, plant, epoch)


def run(
    scenario: Scenario, policy: Policy, seconds: float | None = None, epoch: int | None = None
) -> Course:
    """The course of the scenario, or of one of its epochs alone; as long as it is, or shorter."""
    course = Course()
    ticks = round((scenario.seconds if seconds is None else seconds) * SECOND / TICK_NS)
    caps: Caps = {}
    coming: list[tuple[int, Caps]] = []
    with world(scenario, epoch) as here:
        plant = here.plant
        before = _served(plant, scenario.classes)
        for tick in range(1, ticks + 1):
            now_ns = tick * TICK_NS
            while coming and coming[0][0] <= now_ns:
                at_ns, after = coming.pop(0)
                here.pass_to(at_ns)
                limit(plant, caps, after)
                caps = after
            here.pass_to(now_ns)
            decided = policy.tick(plant, now_ns)
            if decided is not None:
                coming.append((now_ns + scenario.late_ns, decided))
            if tick % TICKS_IN_A_HALF == 0:
                after_half = _served(plant, scenario.classes)
                course.served.append(
                    [new - old for new, old in zip(after_half, before, strict=True)]
                )
                course.caps.append(sum(c for c in caps.values() if c) if caps else None)
                before = after_half
        halves = [plant.halves(number) for number in range(len(scenario.streams))]
        course.bad = [any(column) for column in zip(*halves, strict=True)]
        course.slip_s = sum(plant.quality(n).slip_ns for n in range(len(scenario.streams))) / SECOND
        course.events = plant.sums().made
    return course
