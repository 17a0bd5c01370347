# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated host: nothing is lost, nothing is faster than it can be, and seeds decide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import native
from sim.scenario import MIB, SECOND

MS = 1_000_000
CAPACITY_BPS = 50e6
BURST_BYTES = 256 * 1024

DISKS = {
    "sliced": native.Disk(bytes_per_second=CAPACITY_BPS, kind=native.SLICED),
    "queued": native.Disk(bytes_per_second=CAPACITY_BPS, kind=native.QUEUED),
    "ssd": native.Disk(
        bytes_per_second=CAPACITY_BPS, latency_ns=MS / 5, noise=0.2, kind=native.SSD, channels=4
    ),
    "cloud": native.Disk(
        bytes_per_second=CAPACITY_BPS,
        base_bytes_per_second=CAPACITY_BPS,
        requests_per_second=1e4,
        latency_ns=MS,
        noise=0.2,
        kind=native.CLOUD,
    ),
    "network": native.Disk(
        bytes_per_second=CAPACITY_BPS, latency_ns=MS, noise=0.2, kind=native.NETWORK
    ),
}


@pytest.fixture(params=DISKS)
def disk(request):
    return DISKS[request.param]


def load(kind=native.SEQUENTIAL_READ, number=0, **changes):
    """Greedy, in a region of its own."""
    fields = {"size": 512 * MIB, "request_bytes": 256 * 1024, "depth": 4, "tag": 2}
    fields |= {"base": 20_000 * MIB + number * 512 * MIB, "kind": kind, **changes}
    return native.Load(**fields)


def stream(**changes):
    fields = {"bytes_per_second": 1e6, "buffer_ns": 500 * MS, "size": 4096 * MIB, "depth": 2}
    fields |= {"request_bytes": 128 * 1024, "frame_bytes": 1316, "tag": 1, "reads": 1}
    return native.Stream(**{**fields, **changes})


def host(seed=1, disk=None, link=None):
    plant = native.Plant(seed)
    if disk is not None:
        plant.set_disk(disk)
    if link is not None:
        plant.set_link(link)
    plant.add_vm({0: "default", 1: "stream", 2: "batch"})
    return plant


def link(bytes_per_second=5e6, **changes):
    fields = {"limit_bytes": 300_000, "delay_ns": 10 * MS, **changes}
    return native.Link(bytes_per_second=bytes_per_second, **fields)


def test_a_disk_serves_no_more_than_it_can(disk):
    with host(disk=disk) as plant:
        kinds = (native.SEQUENTIAL_READ, native.RANDOM_READ, native.SEQUENTIAL_WRITE)
        for number, kind in enumerate(kinds):
            plant.add_load(load(kind, number))
        plant.run(5 * SECOND)
        served = sum(plant.load_bytes(number) for number in range(len(kinds)))
        assert served == plant.sums().disk_bytes
        # A drive reads on into its buffer when it has nothing to do.
        assert 0 < served <= CAPACITY_BPS * 5 + 2 * MIB


def test_a_reader_alone_gets_most_of_the_disk(disk):
    with host(disk=disk) as plant:
        plant.add_load(load(depth=8))
        plant.run(5 * SECOND)
        # Network storage has others on it.
        least = 0.5 if disk.kind == native.NETWORK else 0.9
        assert plant.load_bytes(0) >= least * CAPACITY_BPS * 5


def test_each_request_is_served_in_the_end(disk):
    with host(disk=disk) as plant:
        loads = [plant.add_load(load(number=number, depth=32)) for number in range(4)]
        plant.limit(0, 2, native.READ, 20e6, BURST_BYTES)
        plant.run(2 * SECOND)
        for number in loads:
            plant.step_load(number, False)
        plant.run(20 * SECOND)
        assert plant.sums().disk_in_flight == 0
        assert sum(map(plant.load_bytes, loads)) == plant.sums().disk_bytes


def test_a_step_in_speed_is_felt(disk):
    with host(disk=disk) as plant:
        plant.add_load(load(depth=8))
        plant.run(5 * SECOND)
        first = plant.load_bytes(0)
        plant.step_disk(0.5)
        plant.run(10 * SECOND)
        assert 0.3 * first < plant.load_bytes(0) - first < 0.7 * first


@given(st.floats(1e6, 40e6), st.sampled_from([native.SEQUENTIAL_READ, native.RANDOM_READ]))
def test_a_class_gets_its_cap_and_no_more(cap, kind):
    with host(disk=DISKS["ssd"]) as plant:
        plant.limit(0, 2, native.READ, cap, BURST_BYTES)
        plant.add_load(load(kind, depth=8))
        plant.run(4 * SECOND)
        # A request may go while any token is left; those under way are not served yet.
        most = cap * 4 + BURST_BYTES + 256 * 1024
        assert most - 10 * 256 * 1024 <= plant.load_bytes(0) <= most


def test_a_stream_alone_is_perfect(disk):
    with host(disk=disk) as plant:
        plant.add_stream(stream())
        plant.run(10 * SECOND)
        assert not any(plant.halves(0))
        assert plant.quality(0).received_bytes == pytest.approx(1e6 * 10, rel=0.1)


def test_a_stream_without_its_disk_stands_still_until_now(disk):
    with host(disk=disk) as plant:
        plant.add_stream(stream())
        plant.run(3 * SECOND)
        plant.limit(0, 1, native.READ, 4096.0, 1.0)
        plant.run(9 * SECOND)
        bad = plant.halves(0)
        assert not any(bad[:6])
        # Both its buffers last for a second.
        assert all(bad[10:])
        assert plant.quality(0).stall_ns > 3 * SECOND


def test_a_player_goes_on_after_a_stall_as_much_later():
    with host(disk=DISKS["ssd"]) as plant:
        plant.add_stream(stream())
        plant.run(3 * SECOND)
        plant.limit(0, 1, native.READ, 4096.0, 1.0)
        plant.run(6 * SECOND)
        plant.limit(0, 1, native.READ, None, 0.0)
        plant.run(12 * SECOND)
        assert not any(plant.halves(0)[14:])
        quality = plant.quality(0)
        assert quality.slip_ns == quality.stall_ns > SECOND
        assert quality.received_bytes <= 1e6 * (12 * SECOND - quality.slip_ns) / SECOND


@pytest.mark.parametrize("beyond", [0.0, 3e6])
def test_a_link_carries_no_more_than_its_rate(beyond):
    with host(link=link(beyond_bytes_per_second=beyond, beyond_limit_bytes=300_000)) as plant:
        for _ in range(3):
            plant.add_load(load(native.TCP, request_bytes=5792, window_bytes=MIB))
        plant.run(10 * SECOND)
        found = plant.uplink()
        served = sum(map(plant.load_bytes, range(3)))
        assert found.bytes <= 5e6 * 10 + 5792
        # TCP fills the link, and loses frames where it is full.
        assert 0.8 * (beyond or 5e6) * 10 <= served <= (beyond or 5e6) * 10
        assert (found.beyond_dropped > 0) == (beyond > 0)
        assert (found.dropped > 0) == (beyond == 0)


@pytest.mark.parametrize("streams_first", [False, True])
def test_a_stream_beside_a_full_link_is_perfect_where_it_goes_first(streams_first):
    with host(link=link(streams_first=streams_first)) as plant:
        plant.add_stream(stream(reads=0, sends=1))
        plant.add_load(
            load(
                native.UDP,
                request_bytes=5792,
                bytes_per_second=9e6,
                window_bytes=MIB,
                start_ns=2 * SECOND,
            )
        )
        plant.run(8 * SECOND)
        assert any(plant.halves(0)) != streams_first
        assert (plant.quality(0).lost > 0) != streams_first


def served(seed):
    with host(seed, DISKS["network"], link()) as plant:
        plant.add_stream(stream(sends=1))
        plant.add_load(load(native.RANDOM_READ, on_ns=300 * MS, off_ns=200 * MS))
        plant.add_load(load(native.TCP, request_bytes=5792, window_bytes=MIB))
        plant.run(4 * SECOND)
        return plant.load_bytes(0), plant.load_bytes(1), plant.sums().made, plant.halves(0)


def test_a_seed_gives_one_course_and_another_seed_another():
    assert served(1) == served(1) != served(2)


def test_a_plant_that_is_full_says_so():
    with host() as plant, pytest.raises(ValueError, match="no room for another stream"):
        for _ in range(100):
            plant.add_stream(stream())
    with host() as plant, pytest.raises(ValueError, match=r"refuses .* bytes/s"):
        plant.limit(0, 2, native.READ, 1e18, 1.0)


def test_a_streams_round_trip_has_the_queue_beyond_and_a_ceiling_before_it_removes_that():
    beyond = {"beyond_bytes_per_second": 3e6, "beyond_limit_bytes": 300_000}
    with host(link=link(streams_first=True, **beyond)) as plant:
        plant.add_stream(stream(reads=False, sends=True))
        for _ in range(3):
            plant.add_load(
                load(native.TCP, request_bytes=5792, window_bytes=MIB, start_ns=2 * SECOND)
            )
        plant.run(2 * SECOND)
        alone = plant.round_trip(0)
        assert alone.smoothed_ns == pytest.approx(alone.least_ns, rel=0.1)
        plant.run(6 * SECOND)
        full = plant.round_trip(0)
        assert full.least_ns == alone.least_ns
        # A queue of 100 ms, of which TCP leaves seven tenths at a loss.
        assert 40 * MS < full.smoothed_ns - full.least_ns < 110 * MS
        plant.hold_uplink(2.7e6)
        plant.run(10 * SECOND)
        held = plant.round_trip(0)
        assert held.smoothed_ns - held.least_ns < 10 * MS
