# SPDX-License-Identifier: GPL-2.0-or-later
"""Twenty scenarios with sluiced's own tuner in the loop: promises that hold whatever it decides."""

from dataclasses import dataclass, replace

import pytest

from sim import native
from sim.run import Course, Unshaped, run
from sim.scenario import KINDS, STREAM_TAG, Scenario, draw
from sim.sluiced import sluiced
from sluice_controller.domain.model import RATES
from sluice_controller.domain.render import AUTO_BURST_BYTES

# The background is there, or auto-shaping is switched on, after 5 s.
SECONDS = 9
SMOKE = [(kind, seed) for kind in KINDS for seed in range(2)]


@dataclass
class Seen:
    """A run, and all caps that were decided in it."""

    scenario: Scenario
    course: Course
    caps: list


class Watched:
    def __init__(self, policy):
        self.policy = policy
        self.caps = []

    def tick(self, plant, now_ns):
        decided = self.policy.tick(plant, now_ns)
        if decided is not None:
            self.caps.append(dict(decided))
        return decided


def seen(scenario, seconds=SECONDS):
    with sluiced(scenario, RATES) as tuner:
        watched = Watched(tuner)
        return Seen(scenario, run(scenario, watched, seconds), watched.caps)


@pytest.fixture(scope="module", params=SMOKE, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def smoke(request):
    return seen(draw(*request.param))


def floor_of(scenario, resource):
    return scenario.floors[("blk-read", "blk-write", "net-tx")[resource]]


def test_no_class_is_held_below_its_floor_and_no_stream_at_all(smoke):
    streams = {(stream.vm, STREAM_TAG) for stream in smoke.scenario.streams}
    for caps in smoke.caps:
        for (vm, tag, resource), cap in caps.items():
            assert cap >= floor_of(smoke.scenario, resource)
            assert (vm, tag) not in streams


def test_the_background_gets_no_more_than_the_devices_have(smoke):
    scenario = smoke.scenario
    step = scenario.steps[0]
    for resources, device, speed in (
        ((native.READ, native.WRITE), scenario.disk, step.disk),
        ((native.SEND,), scenario.link, step.link),
    ):
        if device is None:
            continue
        served = [
            sum(row[n] for row in smoke.course.served)
            for n, entry in enumerate(scenario.classes)
            if entry.resource in resources
        ]
        rate = getattr(device, "beyond_bytes_per_second", 0) or device.bytes_per_second
        # A drive's buffer, and a request that was under way.
        assert sum(served) <= speed * rate * SECONDS + 3 * 1024 * 1024


def test_streams_alone_are_perfect(smoke):
    scenario = smoke.scenario
    quiet = tuple(replace(step, active=frozenset()) for step in scenario.steps)
    alone = replace(scenario, steps=quiet)
    assert not any(run(alone, Unshaped(), SECONDS).bad)


def test_a_run_can_be_had_again():
    scenario = draw("disk-and-uplink", 1)
    first, again = seen(scenario), seen(scenario)
    assert first.caps
    assert again == first


def test_a_held_class_stays_within_its_cap():
    """The tuner's caps are in force in the engines, and soon."""
    scenario = draw("sliced", 0)
    found = seen(scenario)
    held = {key for caps in found.caps for key in caps}
    assert held
    for number, entry in enumerate(scenario.classes):
        key = entry.vm, entry.tag, entry.resource
        if key not in held:
            continue
        loads = [scenario.loads[n] for n in entry.loads]
        under_way = sum(load.depth * load.request_bytes for load in loads)
        largest = max(caps.get(key, 0.0) for caps in found.caps)
        # The last second, long after the first caps came.
        got = sum(row[number] for row in found.course.served[-2:])
        assert got <= largest + AUTO_BURST_BYTES + under_way
