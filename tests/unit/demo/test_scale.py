# SPDX-License-Identifier: GPL-2.0-or-later
"""Sizes of the demo: they fit any machine, and what the user has fixed stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import scale
from demo.scale import Asked, Costs, choose, smaller

# About what two processors of some 25 ns and of some 94 ns a qemu-throttle-core need.
QUICK = Costs(2, 0.08, 0.0, 3.0, 0.20, 4e-9, 3e-9, 8e-9, 6e-9)
SLOW = Costs(2, 0.30, 0.0, 3.0, 0.75, 16e-9, 12e-9, 32e-9, 24e-9)


def share(low: float, high: float):
    return st.floats(low, high)


costs = st.builds(
    Costs,
    processors=st.integers(1, 64),
    idle_share=share(0.0, 2.0),
    others_share=share(0.0, 64.0),
    film_mbit=st.sampled_from(scale.FILMS_MBIT),
    film_share=share(0.0, 4.0),
    disk_s_per_byte=share(1e-11, 1e-6),
    disk_guest_s_per_byte=share(1e-11, 1e-6),
    link_s_per_byte=share(1e-11, 1e-6),
    link_guest_s_per_byte=share(1e-11, 1e-6),
)
asked = st.builds(
    Asked,
    film_mbit=st.none() | st.sampled_from(scale.FILMS_MBIT),
    link_mbit=st.none() | st.integers(10, 10_000),
    disk_bytes_per_s=st.none() | st.integers(2_000_000, scale.DISK_MOST_BPS),
    readers=st.none() | st.integers(1, scale.READERS),
    overload=st.none() | st.floats(0.1, 10.0),
)


def test_a_machine_with_many_quick_processors_plays_the_papers_sizes():
    quick = Costs(16, 0.05, 0.0, 3.0, 0.05, 1e-9, 1e-9, 2e-9, 2e-9)
    found = choose(quick, Asked())
    assert (found.film_mbit, found.link_mbit, found.readers) == (7.0, 1000, 12)
    assert found.disk_bytes_per_s == 50_000_000
    assert found.read_ahead_kib == 3072


def test_a_slower_machine_plays_a_smaller_film_on_a_slower_disk_and_link():
    quick, slow = choose(QUICK, Asked()), choose(SLOW, Asked())
    assert quick.film_mbit > slow.film_mbit
    assert quick.disk_bytes_per_s > slow.disk_bytes_per_s
    assert quick.link_mbit > slow.link_mbit
    assert "2 processors" in slow.why


@given(costs, asked)
def test_any_machine_gets_sizes_within_their_ranges(costs, asked):
    found = choose(costs, asked)
    assert found.film_mbit in scale.FILMS_MBIT
    assert 1 <= found.link_mbit <= 10_000
    assert 2_000_000 <= found.disk_bytes_per_s <= scale.DISK_MOST_BPS
    assert 1 <= found.readers <= scale.READERS
    assert 128 <= found.read_ahead_kib <= scale.READ_AHEAD_KIB
    assert scale.LEAST_POLLING <= found.polling_share <= scale.MOST_POLLING


@given(costs, asked)
def test_what_was_asked_for_is_what_is_played(costs, asked):
    for found in (choose(costs, asked), smaller(choose(costs, asked), costs, asked)):
        for name in ("film_mbit", "link_mbit", "disk_bytes_per_s", "readers"):
            value = getattr(asked, name)
            assert found is None or value is None or getattr(found, name) == value


@given(costs, asked)
def test_what_is_chosen_keeps_below_the_bar_beside_what_is_asked_or_is_the_least(costs, asked):
    found = choose(costs, asked)
    least = (
        found.film_mbit in (asked.film_mbit, scale.FILMS_MBIT[-1])
        and found.disk_bytes_per_s in (asked.disk_bytes_per_s, scale.DISK_LEAST_BPS)
        and found.link_mbit in (asked.link_mbit, scale.LINK_LEAST_MBIT)
    )
    # A program that polls has a least share, whatever is served.
    assert found.expected_share <= scale.BUSY + scale.LEAST_POLLING or least


@given(costs, asked)
def test_a_smaller_demo_is_smaller_and_there_is_an_end_to_it(costs, asked):
    found = choose(costs, asked)
    for _attempt in range(20):
        less = smaller(found, costs, asked)
        if less is None:
            return
        assert less.film_mbit <= found.film_mbit
        assert less.link_mbit <= found.link_mbit
        assert less.disk_bytes_per_s <= found.disk_bytes_per_s
        assert less.expected_share <= found.expected_share + 1e-9
        found = less
    pytest.fail("there is always a smaller one")


def test_nothing_is_measured_where_nothing_is_left_to_choose():
    everything = Asked(7.0, 200, 50_000_000, 12)
    assert everything.scale().link_bytes_per_s == 25_000_000
    assert Asked(7.0, 200, 50_000_000, None).scale() is None
