# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate in the plant: a stage of the engines, and the page of the disk."""

from dataclasses import replace

import pytest

from sim.native import PAGE_BYTES
from sim.run import Unshaped, run
from sim.scenario import DISKS, MIB, SECOND, draw
from sim.sluiced import sluiced
from sluice_controller.domain.counters import read_page
from sluice_controller.domain.model import GATE
from unit.sim.test_plant import DISKS as PLAIN
from unit.sim.test_plant import host, load, stream

MS = 1_000_000
LARGEST = 1024 * 1024


def test_in_flight_is_within_the_window_but_for_one_request():
    with host(disk=PLAIN["ssd"]) as plant:
        for number in range(4):
            plant.add_load(load(number=number, depth=32))
        plant.set_gate(0, 20 * MS)
        for tick in range(1, 400):
            plant.run(tick * 10 * MS)
            found = plant.gate(0)
            # It shrinks by a quarter at most while older requests are under way.
            assert found.in_flight_bytes <= found.window_bytes * 4 / 3 + 256 * 1024
        assert found.held > 0
        # 20 ms of work of the device.
        assert 0.5e6 < found.window_bytes < 2e6
        # And the device is busy all the same.
        assert sum(map(plant.load_bytes, range(4))) > 0.9 * 50e6 * 4


def test_classes_of_a_vm_take_turns():
    with host(disk=PLAIN["ssd"]) as plant:
        plant.add_load(load(tag=2, depth=64))
        plant.add_load(load(tag=3, number=1, depth=4, request_bytes=LARGEST))
        plant.set_gate(0, 5 * MS)
        plant.run(SECOND)
        before = plant.load_bytes(0), plant.load_bytes(1)
        plant.run(4 * SECOND)
        small, large = plant.load_bytes(0) - before[0], plant.load_bytes(1) - before[1]
        assert small == pytest.approx(large, rel=0.1)


def test_an_opened_gate_lets_all_go():
    with host(disk=PLAIN["ssd"]) as plant:
        plant.add_load(load(depth=64))
        plant.set_gate(0, 1 * MS)
        plant.run(SECOND)
        assert plant.gate(0).in_flight_bytes < 2 * MIB
        plant.set_gate(0, 0)
        assert plant.sums().disk_in_flight == 64


def test_the_reads_of_a_stream_are_told_exactly():
    with host(disk=PLAIN["cloud"]) as plant:
        plant.add_stream(stream())
        plant.run(10 * SECOND)
        found = plant.reads(0)
        assert found.bytes == sum(found.asked) * 128 * 1024
        # Each takes 2.6 ms of the volume, and about a millisecond on the way.
        assert found.busy_ns / sum(found.asked) == pytest.approx(3.6 * MS, rel=0.1)
        assert found.outstanding_ns <= found.busy_ns
        assert found.oldest_ns == 0
        plant.limit(0, 1, 0, 4096.0, 1.0)
        plant.run(12 * SECOND)
        assert SECOND < plant.reads(0).oldest_ns < 2 * SECOND


def gated(scenario, seconds):
    with sluiced(scenario, GATE) as daemon:
        return run(scenario, daemon, seconds)


@pytest.mark.parametrize("kind", DISKS)
def test_without_streams_the_gate_changes_nothing(kind):
    scenario = replace(draw(kind, 1), streams=())
    assert gated(scenario, 4) == run(scenario, Unshaped(), 4)


@pytest.mark.parametrize("kind", ["ssd", "cloud", "network"])
def test_streams_beside_the_gate_are_no_worse_than_without(kind):
    """On devices without an arm, where its latency follows from the bytes in flight."""
    scenario = draw(kind, 1)
    with_gate, without = gated(scenario, 12), run(scenario, Unshaped(), 12)
    assert sum(with_gate.bad) <= sum(without.bad)
    assert gated(scenario, 12) == with_gate


def test_the_page_tells_of_streams_and_gates_as_the_plant_counts_them():
    with host(disk=PLAIN["ssd"]) as plant:
        plant.add_stream(stream())
        plant.add_load(load(depth=64))
        plant.set_gate(0, 1 * MS)
        plant.run(2 * SECOND)
        plant.write_pages()
        page = read_page(lambda at, length: plant.page(0)[at : at + length], PAGE_BYTES, 2 * SECOND)
        told, reads, gate = page.content, plant.reads(0), plant.gate(0)
        assert told.gate(("default", "blk-read")).held_times == gate.held > 0
        assert told.gate(("default", "blk-read")).window_bytes == gate.window_bytes
        (name,) = {n for n, r in told.layout.numbers if told.stream((n, r)).busy_ns}
        sums = told.stream((name, "blk-read"))
        assert (sums.busy_ns, sums.outstanding_ns) == (reads.busy_ns, reads.outstanding_ns)
        assert sum(sums.depth) == sum(reads.asked)
