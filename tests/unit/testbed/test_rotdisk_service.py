# SPDX-License-Identifier: GPL-2.0-or-later
"""What a single request costs on the modelled disk, and whose turn it is."""

import ctypes
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.testbed.rotdisk_model import MIB, MS, SECOND, Disk, Request, build

STREAMS = 128


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("rotdisk"))


def pair(disk: Disk, first: int, pause_ns: int, size: int, between: int | None) -> list[Request]:
    """Read 1 MiB, pause, perhaps read elsewhere, then read on where the first ended."""
    done: list[Request] = []
    disk.read(0, MIB, done.append)
    disk.run(first)
    if between is not None:
        disk.at(first + pause_ns // 2, lambda: disk.read(between, 4096, done.append))
    disk.at(first + pause_ns, lambda: disk.read(MIB, size, done.append))
    disk.run(first + pause_ns + 2 * SECOND)
    return done


@settings(deadline=None)
@given(pause_ns=st.integers(0, 2 * SECOND), size=st.integers(1, 8 * MIB))
def test_reading_on_costs_no_seek_even_if_it_comes_late(lib, pause_ns, size):
    disk = Disk(lib)
    params = disk.params
    _, on = pair(disk, SECOND, pause_ns, size, between=None)
    assert (on.seeked, on.positioning_ns) == (False, 0)
    took = on.done_ns - on.started_ns
    # Never faster than the interface; never slower than from the platter after
    # one turn at most, for which a full buffer makes the head wait. Rounding
    # to whole nanoseconds is worth one or two.
    assert took >= params.overhead_ns + size * SECOND // params.interface_bps
    slowest = params.overhead_ns + params.revolution_ns + size * SECOND / params.media_bps
    assert took <= slowest + 2


def test_what_the_drive_has_read_ahead_comes_at_the_interface_s_speed(lib):
    disk = Disk(lib)
    params = disk.params
    _, on = pair(disk, SECOND, 500 * MS, params.buffer_bytes, between=None)
    wanted = params.overhead_ns + params.buffer_bytes * SECOND / params.interface_bps
    assert on.done_ns - on.started_ns == pytest.approx(wanted, abs=2)


def test_the_read_ahead_is_lost_when_the_head_moves(lib):
    disk = Disk(lib)
    _, elsewhere, back = pair(disk, SECOND, 500 * MS, MIB, between=20_000 * MIB)
    assert elsewhere.seeked
    assert back.seeked
    assert back.positioning_ns > disk.params.seek_track_ns


def test_readers_with_a_backlog_take_turns_of_one_slice(lib):
    """Three readers who always have requests waiting."""
    disk = Disk(lib)
    size, served = 256 * 1024, []
    for reader in range(3):
        for index in range(120):
            start = reader * 10_000 * MIB + index * size
            disk.read(start, size, lambda r, who=reader: served.append((who, r)))
    disk.run(10 * SECOND)
    assert len(served) == 360
    turns = [[r for _, r in group] for _, group in groupby(served, key=lambda pair: pair[0])]
    owners = [who for who, _ in groupby(served, key=lambda pair: pair[0])]
    assert owners[:9] == [0, 1, 2] * 3
    slice_ns = disk.params.slice_ns
    for turn in turns[:9]:
        # The slice ends with the request that was begun within it.
        assert turn[-1].started_ns - turn[0].started_ns < slice_ns
        assert turn[-1].done_ns - turn[0].started_ns >= slice_ns
        assert [r.seeked for r in turn] == [True] + [False] * (len(turn) - 1)


def test_more_readers_than_the_scheduler_can_tell_apart_are_all_served(lib):
    disk = Disk(lib)
    done: list[Request] = []
    count = 2 * STREAMS + 1
    for index in range(count):
        disk.read(index * 100 * MIB, 4096, done.append)
    disk.run(count * 45 * MS)
    assert disk.waiting == 0
    assert len({r.start for r in done}) == count
