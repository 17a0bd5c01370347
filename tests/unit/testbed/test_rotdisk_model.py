# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of a rotating disk, in simulated time.

Tolerances follow from the constants: a seek within the readers' volume is
between track-to-track and average, a rotation at most one turn.
"""

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.testbed.rotdisk_model import (
    MIB,
    MS,
    SECOND,
    Disk,
    PacedReader,
    Reader,
    Request,
    Shaped,
    build,
)

FILE = 160 * MIB


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("rotdisk"))


def twelve_readers(disk: Disk, request: int, think_ms: float) -> list[Reader]:
    base = disk.params.capacity_bytes // 3
    return [
        Reader(disk, base + i * FILE, FILE, request, int(think_ms * MS), ahead=1) for i in range(12)
    ]


def rate(readers: list[Reader], seconds: float) -> float:
    return sum(reader.bytes for reader in readers) / seconds / 1e6


def player(disk: Disk) -> PacedReader:
    """128 KiB at 875 kB/s, from another volume of the disk."""
    return PacedReader(disk, 0, 128 * 1024, 128 * 1024 * SECOND // 875_000)


def test_one_reader_gets_nearly_the_transfer_rate(lib):
    disk = Disk(lib)
    reader = Reader(disk, 0, FILE, MIB, MS, ahead=1)
    disk.run(5 * SECOND)
    assert rate([reader], 5) > 0.97 * disk.params.media_bps / 1e6


def test_twelve_readers_get_together_what_the_papers_disk_gave(lib):
    disk = Disk(lib)
    readers = twelve_readers(disk, MIB, think_ms=2)
    disk.run(20 * SECOND)
    # SCS, Table 2: 45.2 and 45.5 MB/s.
    assert 42 < rate(readers, 20) < 48
    shares = [reader.bytes for reader in readers]
    assert min(shares) > 0.7 * max(shares)


def test_beside_twelve_readers_a_player_waits_for_most_of_a_second(lib):
    disk = Disk(lib)
    twelve_readers(disk, MIB, think_ms=2)
    movie = player(disk)
    disk.run(20 * SECOND)
    waits = sorted(movie.latencies_ms)
    # Twelve slices of 100 ms, and a seek before each.
    assert waits[-1] > 1000
    assert sum(waits) / len(waits) > 500


def test_a_player_alone_never_waits_longer_than_its_positioning(lib):
    disk = Disk(lib)
    movie = player(disk)
    disk.run(10 * SECOND)
    assert len(movie.latencies_ms) > 60
    first, *others = movie.latencies_ms
    assert first < 30
    # The drive has read ahead: only the interface's transfer and the command.
    assert max(others) < 128 * 1024 / disk.params.interface_bps * 1000 + 1


def test_beside_shaped_readers_a_player_is_in_time(lib):
    """The same twelve readers at 85 % of what they get unshaped, 3 MiB at a time."""
    disk = Disk(lib)
    shaped = Shaped(disk, 39e6)
    base = disk.params.capacity_bytes // 3
    readers = [Reader(shaped, base + i * FILE, FILE, 3 * MIB, 3 * MS, ahead=2) for i in range(12)]
    movie = player(disk)
    disk.run(20 * SECOND)
    assert rate(readers, 20) > 38
    waits = movie.latencies_ms
    assert sum(waits) / len(waits) < 90
    assert max(waits) < 300


def test_the_scheduler_does_not_wait_for_readers_who_think_long(lib):
    """Two readers, one far away who thinks 50 ms: the disk idles a few times, then never."""
    disk = Disk(lib)
    busy = Reader(disk, 0, FILE, MIB, MS, ahead=1)
    Reader(disk, disk.params.capacity_bytes // 2, FILE, 128 * 1024, 50 * MS, ahead=1)
    disk.run(10 * SECOND)
    # Of each second: about 13 visits of the slow reader (two seeks of at most
    # 25 ms each), 13 × 8 ms more if the disk idled for it.
    assert rate([busy], 10) > 0.6 * disk.params.media_bps / 1e6


def test_constants_are_set_by_name_and_zero_or_unknown_is_refused(lib):
    params = lib.rotdisk_defaults()
    assert lib.rotdisk_set(params, b"media_bps", 1234567)
    assert params.media_bps == 1234567
    assert not lib.rotdisk_set(params, b"media_bps", 0)
    assert not lib.rotdisk_set(params, b"colour", 1)
    assert params.media_bps == 1234567


def test_seek_time_at_a_third_of_the_platter_is_the_average_seek(lib):
    params = lib.rotdisk_defaults()
    third = params.capacity_bytes // 3
    assert lib.rotdisk_seek_ns(params, third) == pytest.approx(params.seek_average_ns, rel=0.001)
    assert lib.rotdisk_seek_ns(params, 0) == 0


@given(near=st.integers(1, 80_000_000_000), further=st.integers(0, 80_000_000_000))
def test_seek_time_grows_with_distance(lib, near, further):
    params = lib.rotdisk_defaults()
    assert lib.rotdisk_seek_ns(params, near) <= lib.rotdisk_seek_ns(params, near + further)


requests = st.lists(
    st.tuples(
        st.integers(0, 60 * MS),  # time since the one before
        st.integers(0, 2000),  # where, in MiB
        st.integers(1, 4 * MIB),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(plan=requests)
def test_every_request_is_served_once_and_never_faster_than_physics_allows(lib, plan):
    disk = Disk(lib)
    done: list[Request] = []
    time_ns = 0
    for gap_ns, where, size in plan:
        time_ns += gap_ns
        disk.at(time_ns, lambda w=where, s=size: disk.read(w * MIB, s, done.append))
    # Each may cost a full seek, a turn, its transfer and an idle window.
    most_ns = sum(45 * MS + size * SECOND // disk.params.media_bps for _, _, size in plan)
    disk.run(time_ns + most_ns + SECOND)
    assert disk.waiting == 0
    assert len(done) == len(plan)
    free_ns = 0
    for request in done:
        # One arm: services do not overlap, and none begins before its arrival.
        assert request.started_ns >= max(free_ns, request.arrived_ns)
        fastest = request.bytes * SECOND // disk.params.interface_bps
        assert request.done_ns - request.started_ns >= fastest
        turn_and_seek = request.positioning_ns
        assert turn_and_seek <= 40 * MS
        free_ns = request.done_ns


@settings(deadline=None, max_examples=25)
@given(delay_ns=st.integers(0, 5 * MS), think_ms=st.integers(0, 4))
def test_a_late_caller_does_not_slow_the_disk_down(lib, delay_ns, think_ms):
    """The caller's wake-ups come late; the disk's own time line stays the same.

    A reader whose next request comes after its completion is seen later by the
    delay, no more.
    """

    class LateDisk(Disk):
        def read(self, start, size, done):
            super().read(start, size, lambda r: self.at(self.now + delay_ns, lambda: done(r)))

    prompt, late = Disk(lib), LateDisk(lib)
    on_time = Reader(prompt, 0, FILE, MIB, think_ms * MS, ahead=2)
    delayed = Reader(late, 0, FILE, MIB, think_ms * MS, ahead=2)
    prompt.run(3 * SECOND)
    late.run(3 * SECOND)
    # Two requests in turn cover a delay of less than one transfer (21 ms).
    assert delayed.bytes >= on_time.bytes - 3 * MIB
