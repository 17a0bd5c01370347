# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenarios follow from kind and seed alone, and stay within their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import native
from sim.scenario import (
    DISKS,
    JUDGED_FROM,
    KINDS,
    LINKS,
    MBIT,
    SECOND,
    draw,
    is_judged,
)

kinds, any_seed = st.sampled_from(KINDS), st.integers(0, 10**6)


def told(scenario):
    """All of it, comparable."""
    records = (scenario.disk, scenario.link, *scenario.streams, *scenario.loads)
    plain = (scenario.classes, scenario.steps, scenario.changes, scenario.link_known)
    more = (scenario.gate_on, scenario.reports, scenario.lost_samples, scenario.late_ns)
    return [None if r is None else bytes(r) for r in records], plain, more


@given(kinds, any_seed)
def test_a_seed_is_a_scenario(kind, seed):
    assert told(draw(kind, seed)) == told(draw(kind, seed)) != told(draw(kind, seed + 1))


@given(kinds, any_seed)
def test_a_scenario_has_streams_and_a_background_within_bounds(kind, seed):
    scenario = draw(kind, seed)
    assert (scenario.disk is not None) == (kind not in LINKS)
    assert (scenario.link is not None) == (kind not in DISKS)
    assert 1 <= len(scenario.streams) <= 4
    for stream in scenario.streams:
        assert MBIT <= stream.bytes_per_second <= 25 * MBIT
        assert stream.size % stream.request_bytes == 0
    assert 1 <= len(scenario.classes) <= 16
    assert sorted(n for c in scenario.classes for n in c.loads) == list(range(len(scenario.loads)))
    for entry in scenario.classes:
        assert 2 <= entry.tag <= 15 and entry.vm < scenario.vms
        for number in entry.loads:
            load = scenario.loads[number]
            assert (load.vm, load.tag) == (entry.vm, entry.tag)
            assert load.size >= load.request_bytes
    assert len({(c.vm, c.tag) for c in scenario.classes}) == len(scenario.classes)
    assert scenario.late_ns < SECOND


@given(kinds, any_seed)
def test_regions_of_the_disk_are_apart_and_on_it(kind, seed):
    scenario = draw(kind, seed)
    readers = [s for s in scenario.streams if s.reads]
    readers += [load for load in scenario.loads if load.kind < native.TCP]
    regions = sorted((r.base, r.base + r.size) for r in readers)
    assert all(end <= begin for (_, end), (begin, _) in zip(regions, regions[1:], strict=False))
    # The capacity of the modelled disk.
    assert not regions or regions[-1][1] <= 80e9


@given(kinds, any_seed)
def test_floors_of_all_classes_leave_room_for_the_streams(kind, seed):
    scenario = draw(kind, seed)
    for resource, floor in scenario.floors.items():
        sends = resource == "net-tx"
        count = sum((c.resource == native.SEND) == sends for c in scenario.classes)
        device = scenario.link if sends else scenario.disk
        if device is not None and floor > 1024:
            assert floor * count <= 0.21 * device.bytes_per_second * 1.5


def test_seeds_for_judging_are_apart():
    assert not is_judged(JUDGED_FROM - 1)
    assert is_judged(JUDGED_FROM)


def test_an_unknown_kind_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="'tape'; there are sliced"):
        draw("tape", 1)
