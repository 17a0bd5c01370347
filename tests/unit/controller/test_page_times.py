# SPDX-License-Identifier: GPL-2.0-or-later
"""When the counters of a page were so: its writer and its reader keep time by themselves."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.counters import HEARTBEAT_LIMIT_NS, read_page
from sluice_controller.domain.window import Window

MS = 1_000_000
RATE_BPS = 1_000_000
TABLES_BYTES = 128 + 68 * (256 + 128)
TAIL_BYTES = 64
KEY = ("default", "blk-read")


def written(heartbeat_ns, moved_bytes, tail=True):
    """A page with one class, of which so many bytes were read in requests of 1000."""
    page = bytearray(TABLES_BYTES + TAIL_BYTES * tail)
    struct.pack_into(
        "<8sIIIIQQQII", page, 0, b"SLUICEPG", 1, 128, 256, 68, 5, 1, heartbeat_ns, 9, 128
    )
    struct.pack_into("<Q", page, 120, 128 + 68 * 256)
    struct.pack_into("<IBBBB7s", page, 128, 2 + moved_bytes // 1000 * 2, 1, 0, 0, 5, b"default")
    struct.pack_into("<QQ", page, 128 + 40, moved_bytes // 1000, moved_bytes)
    if tail:
        struct.pack_into("<Q", page, TABLES_BYTES, heartbeat_ns)
    return bytes(page)


def look(window, page, at_ns):
    """As the sampler does."""

    def copy(offset, length):
        return page[offset : offset + length]

    reading = read_page(copy, len(page), at_ns, window.newest())
    window.add(reading)
    return reading


def sample(window):
    return window.span().sample(KEY)


@pytest.mark.parametrize("phase_ms", [0, 1, 50, 99])
@pytest.mark.parametrize("period_ms", [100, 107, 250])
def test_a_steady_load_has_a_steady_rate_whenever_it_is_looked_at(phase_ms, period_ms):
    window = Window()
    for n in range(1, 40):
        at_ns = (10_000 + n * 100 + phase_ms) * MS
        heartbeat_ns = at_ns // (period_ms * MS) * period_ms * MS
        look(window, written(heartbeat_ns, RATE_BPS * heartbeat_ns // 10**9), at_ns)
        if n > 3:
            assert sample(window)["bytes_per_second"] == pytest.approx(RATE_BPS)
        if n > 3 and period_ms < 250:
            (recent,) = window.rates([KEY]).recent_bytes_per_second
            assert recent == pytest.approx(RATE_BPS)


def test_a_writer_without_a_tail_shows_what_is_now():
    window = Window()
    for n in range(1, 20):
        at_ns = (10_000 + n * 100) * MS
        heartbeat_ns = at_ns // (250 * MS) * 250 * MS
        page = written(heartbeat_ns, RATE_BPS * at_ns // 10**9, tail=False)
        look(window, page, at_ns)
    assert sample(window)["bytes_per_second"] == pytest.approx(RATE_BPS)


def test_a_writing_that_is_met_counts_as_of_its_own_time():
    """The header is written last: when its slots rest, it says when they were so."""
    window = Window()
    for n in (1, 2):
        look(window, written(n * 100 * MS, n * 100_000), n * 100 * MS)
    whole = written(300 * MS, 300_000)
    half = bytearray(written(200 * MS, 200_000))
    half[128] += 1
    copies = iter([bytes(half)])

    def copy(offset, length):
        return next(copies, whole)[offset : offset + length]

    reading = read_page(copy, len(whole), 301 * MS, window.newest())
    window.add(reading)
    assert reading.at_ns == reading.header.heartbeat_ns == 300 * MS
    assert reading.slots[KEY].bytes == 300_000
    assert sample(window)["bytes_per_second"] == pytest.approx(RATE_BPS)


@given(ages_ms=st.lists(st.integers(-5000, HEARTBEAT_LIMIT_NS // MS), min_size=1, max_size=80))
def test_a_page_that_lies_about_its_time_gets_no_window_without_end(ages_ms):
    window = Window()
    for n, age_ms in enumerate(ages_ms):
        at_ns = (10_000 + n * 100) * MS
        reading = look(window, written(at_ns - age_ms * MS, n * 1000), at_ns)
        assert reading.at_ns <= at_ns
        rate = sample(window)["bytes_per_second"]
        assert math.isfinite(rate) and rate >= 0
    assert len(window.readings) <= 35
