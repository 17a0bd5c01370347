# SPDX-License-Identifier: GPL-2.0-or-later
"""The search for the best static rates."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import native, optimum
from sim.scenario import MIB, SECOND, Class, draw

wants = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=16)


@given(st.floats(0, 1e9), wants)
def test_parts_are_equal_but_for_those_who_want_less(total, wants):
    parts = optimum.filled(total, wants)
    assert sum(parts) <= total * (1 + 1e-9)
    largest = max(parts)
    for part, want in zip(parts, wants, strict=True):
        assert want is None or part <= want
        assert part == pytest.approx(largest) or part == want
    if None in wants:
        assert sum(parts) == pytest.approx(total)


def two_readers(**changes):
    """A stream of 1 MB/s beside two readers on a drive with a queue; greedy without changes."""
    fields = {"request_bytes": MIB, "depth": 8, "start_ns": 2 * SECOND, **changes}
    drawn = draw("queued", 0)
    stream = native.Stream(
        bytes_per_second=1e6,
        buffer_ns=SECOND // 10,
        size=4096 * MIB,
        request_bytes=128 * 1024,
        depth=1,
        frame_bytes=1316,
        tag=1,
        reads=1,
    )
    loads = tuple(
        native.Load(
            base=(20_000 + 512 * n) * MIB,
            size=512 * MIB,
            tag=2 + n,
            **fields,
        )
        for n in range(2)
    )
    classes = tuple(Class(0, 2 + n, native.READ, (n,), None) for n in range(2))
    steps = tuple(replace(step, disk=1.0, active=frozenset({0, 1})) for step in drawn.steps)
    disk = native.Disk(bytes_per_second=100e6, kind=native.QUEUED)
    return replace(
        drawn, vms=1, disk=disk, streams=(stream,), loads=loads, classes=classes, steps=steps
    )


def test_rates_are_found_at_which_the_stream_is_perfect():
    found = optimum._Search(two_readers(), 1).found()
    assert found.possible and found.overloaded
    assert 0 < found.total < 100e6
    # Equal parts of two alike.
    assert found.rates[0] == pytest.approx(found.rates[1], rel=0.2)


def test_without_an_overload_the_optimum_is_all_that_they_get():
    paced = two_readers(kind=native.PACED_READ, bytes_per_second=2e6)
    found = optimum._Search(paced, 1).found()
    assert found.possible and not found.overloaded
    assert found.total == pytest.approx(4e6, rel=0.1)


def test_a_disk_that_is_too_slow_for_its_stream_has_no_optimum():
    scenario = two_readers()
    slow = native.Disk(bytes_per_second=0.5e6, kind=native.QUEUED)
    found = optimum._Search(replace(scenario, disk=slow), 1).found()
    assert not found.possible
    assert found.total == 0
