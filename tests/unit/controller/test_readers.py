# SPDX-License-Identifier: GPL-2.0-or-later
"""How a stream reads, from readings of its page."""

import struct

import pytest

from sluice_controller.domain.counters import PAGE_BYTES
from sluice_controller.domain.model import Stream
from sluice_controller.domain.nominal import Learning, nominal
from sluice_controller.domain.readers import Memory, read
from sluice_controller.domain.window import Window
from unit.controller.test_counters import MS, header, put, with_second_table
from unit.controller.test_counters import read as read_bytes

SECOND = 1000 * MS
FILM = Stream("film", "media", "movie", 1e6)
RATE = nominal(FILM, Learning())
KIB = 1024


class Film:
    """A page on which the film has read so much, and its window."""

    def __init__(self, target_ns=20 * MS):
        self.window, self.memory, self.now_ns = Window(), Memory(), 10 * SECOND
        self.target_ns = target_ns
        self.reads, self.busy_ns, self.service_ns = 100, SECOND, SECOND
        self.depth = [100] + [0] * 7

    def look(self, reads=0, busy=0.0, at_depth=1, oldest_ms=None, service=0.0, in_flight=0):
        """After 100 ms in which so many reads were under way for this share of the time."""
        self.now_ns += 100 * MS
        self.reads += reads
        self.busy_ns += round(busy * 100 * MS)
        self.service_ns += round(service * 100 * MS)
        self.depth[at_depth - 1] += reads
        page = with_second_table(header(), 256)
        put(page, 0, 0, "default")
        put(
            page, 2, 0, "movie", seq=2 * (self.now_ns // MS), requests=self.reads,
            bytes=self.reads * 64 * KIB, completed_requests=self.reads,
            service_ns=self.service_ns, in_flight=in_flight,
        )  # fmt: skip
        oldest_ns = 0 if oldest_ms is None else self.now_ns - oldest_ms * MS
        sums = (self.busy_ns, self.busy_ns, oldest_ns, *self.depth)
        struct.pack_into("<11Q", page, PAGE_BYTES + 8 * 256 + 128, *sums)
        struct.pack_into("<Q", page, PAGE_BYTES + 216, self.target_ns)
        self.window.add(read_bytes(page, self.now_ns))
        return read(FILM, RATE, self.window, self.memory, self.now_ns)


def test_of_one_reading_nothing_is_known():
    assert Film().look() is None


def test_sums_are_told_since_the_last_reading_and_over_a_second():
    film = Film()
    film.look()
    for _ in range(10):
        film.look(reads=2, busy=0.25)
    found = film.look(reads=2, busy=0.75, oldest_ms=40)
    assert found.mean_in_flight == pytest.approx(0.75)
    assert found.oldest_s == pytest.approx(0.040)
    assert found.outstanding == pytest.approx(0.3)
    assert found.request_bytes == 64 * KIB
    assert found.bytes_per_second == pytest.approx(20 * 64 * KIB)


def test_the_depth_begins_at_one_and_is_learnt_from_half_a_minute():
    film = Film()
    film.look()
    # It was behind, and asked for all at once.
    for _ in range(45):
        assert film.look(reads=50, at_depth=8).depth == 1
    for _ in range(60):
        found = film.look(reads=10, at_depth=3)
    assert found.depth == 3
    for _ in range(320):
        found = film.look(reads=10, at_depth=2)
    assert found.depth == 2


def test_what_was_learnt_is_forgotten_with_the_gate():
    film = Film()
    for _ in range(120):
        film.look(reads=10, at_depth=3)
    film.target_ns = 0
    film.look(reads=10, at_depth=3)
    film.target_ns = 20 * MS
    assert film.look(reads=10, at_depth=3).depth == 1


def test_without_a_gate_the_times_of_reads_stand_in():
    film = Film(target_ns=0)
    film.look()
    for _ in range(10):
        found = film.look(reads=2, busy=0.0, service=0.6)
    assert found.mean_in_flight == pytest.approx(0.6)


def test_a_page_that_was_not_written_again_says_what_it_said():
    film = Film()
    film.look()
    found = film.look(reads=2, busy=0.5)
    assert read(FILM, RATE, film.window, film.memory, film.now_ns + 50 * MS) is found


def test_a_stream_with_a_read_under_way_is_not_idle():
    film = Film()
    film.look()
    for _ in range(20):
        film.look(in_flight=1)
    assert not film.memory.is_idle(film.now_ns, 0)
    film.look()
    assert film.memory.is_idle(film.now_ns, 0)
