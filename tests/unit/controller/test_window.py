# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates and waits over a window of readings, from pages as in `test_counters.py`."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.history import HISTORY_FIELDS
from sluice_controller.domain.window import Window, percentile_ms
from unit.controller.test_counters import (
    MS,
    header,
    put,
    put_more,
    put_tokens,
    put_untagged,
    read,
    with_second_table,
)


def test_drops_by_reason_and_marks_are_rates():
    window = Window()
    for at_ms, values in ((0, [10] * 10), (2000, [10, 12, 10, 14, 10, 16, 3, 4000, 500, 131072])):
        page = put(with_second_table(header()), 0, 3, "default", dropped_requests=sum(values[:5]))
        window.add(read(put_more(page, 0, 3, values), at_ms * MS))
    sample = window.span().samples()["default"]["net-rx"]
    assert sample["dropped_per_second"] == 3
    assert sample["drops_per_second"] == {
        "backlog": 0,
        "codel": 1,
        "connection": 0,
        "window": 2,
        "reset": 0,
    }
    assert sample["marked_per_second"] == 3
    assert (sample["buffered_bytes"], sample["buffer_bytes_max"]) == (4000, 131072)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ((10, 100), (40, 140), 0.75),
        ((10, 100), (10, 140), 0.0),
        ((0, 40), (40, 80), 1.0),
        ((10, 100), (10, 100), None),
        # A QEMU from before it was counted.
        ((0, 0), (0, 0), None),
        # Damage to the page.
        ((10, 100), (2**64 - 1, 101), 1.0),
        ((10, 100), (0, 140), 0.0),
    ],
)
def test_the_untagged_share_is_of_the_requests_between(before, after, share):
    window = Window()
    for at_ms, values in ((0, before), (1000, after)):
        page = put(with_second_table(header()), 0, 3, "default", requests=values[1])
        window.add(read(put_untagged(page, 0, 3, *values), at_ms * MS))
    assert window.span().samples()["default"]["net-rx"]["untagged_share"] == share


UNLIMITED = 2**63 - 1


@pytest.mark.parametrize(
    ("in_page", "in_sample"),
    [
        ((4096, 3, 7), (4096, 3)),
        ((-2288, UNLIMITED, 1), (-2288, None)),
        ((UNLIMITED, -(2**62), 2**63), (None, -(2**62))),
        ((0, 0, 1), (0, 0)),
        # Written before there were tokens.
        ((0, 0, 0), (None, None)),
    ],
)
def test_tokens_are_gauges_where_there_is_a_limit(in_page, in_sample):
    window = Window()
    page = put(with_second_table(header()), 3, 0, "batch")
    window.add(read(put_tokens(page, 3, 0, *in_page), 0))
    sample = window.span().samples()["batch"]["blk-read"]
    assert (sample["tokens_bytes"], sample["tokens_operations"]) == in_sample


def test_bursts_are_told_where_there_is_a_limit():
    slot = {"limit_bytes_per_second": 20_000_000, "burst_bytes": 65536, "burst_operations": 7}
    sample = window_of((0, slot), (1000, slot)).span().samples()["default"]["blk-read"]
    assert (sample["burst_bytes"], sample["burst_operations"]) == (65536, None)
    slot = {"limit_operations_per_second": 50, "burst_bytes": 65536, "burst_operations": 7}
    sample = window_of((0, slot), (1000, slot)).span().samples()["default"]["blk-read"]
    assert (sample["burst_bytes"], sample["burst_operations"]) == (None, 7)


def test_a_page_without_a_second_table_tells_nothing_of_tokens():
    sample = window_of((0, {}), (1000, {})).span().samples()["default"]["blk-read"]
    assert (sample["tokens_bytes"], sample["tokens_operations"]) == (None, None)


def test_an_older_page_tells_nothing_of_reasons():
    sample = (
        window_of((0, {}), (1000, {"dropped_requests": 5})).span().samples()["default"]["blk-read"]
    )
    assert sample["dropped_per_second"] == 5
    assert (sample["drops_per_second"], sample["marked_per_second"]) == (None, None)


def window_of(*steps):
    window = Window()
    for at_ms, values in steps:
        page = put(header(), 0, 0, "default", **values)
        window.add(read(page, at_ms * MS))
    return window


def test_rates_over_the_last_second():
    steps = [(t, {"bytes": t * 2000, "requests": t // 100}) for t in range(0, 3001, 100)]
    sample = window_of(*steps).span().samples()["default"]["blk-read"]
    assert sample["bytes_per_second"] == pytest.approx(2e6)
    assert sample["requests_per_second"] == pytest.approx(10)


def test_means_of_waiting_and_service():
    sample = (
        window_of(
            (0, {}),
            (
                1000,
                {
                    "requests": 10,
                    "held_requests": 4,
                    "held_ns": 40 * MS,
                    "completed_requests": 8,
                    "service_ns": 80 * MS,
                    "limit_bytes_per_second": 5000,
                },
            ),
        )
        .span()
        .samples()["default"]["blk-read"]
    )
    assert sample["held_mean_ms"] == 10
    assert sample["service_mean_ms"] == 10
    assert sample["limit_bytes_per_second"] == 5000
    assert sample["limit_operations_per_second"] is None


def test_counters_that_began_anew_give_no_negative_rate():
    sample = window_of((0, {"bytes": 10**9}), (1000, {"bytes": 5})).span().samples()
    assert sample["default"]["blk-read"]["bytes_per_second"] == 0


def test_a_new_qemu_clears_the_window():
    window = window_of((0, {"bytes": 0}))
    window.add(read(put(header(created_ns=9), 0, 0, "default", bytes=10**9), 1000 * MS))
    assert window.span().samples()["default"]["blk-read"]["bytes_per_second"] == 0


def test_the_slowest_tick_counts():
    window = window_of(
        (0, {}),
        (100, {"completed_requests": 1, "service_ns": 10 * MS}),
        (200, {"completed_requests": 2, "service_ns": 90 * MS}),
        (300, {"completed_requests": 4, "service_ns": 100 * MS}),
    )
    assert window.worst_service_ms("default", "blk-read") == 80


def test_a_request_that_does_not_come_back_counts_while_it_waits():
    window = window_of(*((t, {"in_flight": 1}) for t in range(0, 901, 100)))
    assert window.worst_service_ms("default", "blk-read") == 900


def test_percentiles_are_upper_edges():
    assert percentile_ms((99, 1), 0.99) == 0.004
    assert percentile_ms((0,) * 11 + (1,), 0.99) == 4**12 / 1000
    assert percentile_ms((), 0.99) == 0


def test_p99_counts_requests_that_did_not_wait():
    steps = ((0, {}), (1000, {"requests": 1000, "histogram": (0, 0, 0, 0, 0, 5)}))
    assert window_of(*steps).span().samples()["default"]["blk-read"]["held_p99_ms"] == 0
    steps = ((0, {}), (1000, {"requests": 100, "histogram": (0, 0, 0, 0, 0, 5)}))
    assert window_of(*steps).span().samples()["default"]["blk-read"]["held_p99_ms"] == 4**6 / 1000


COUNTS = st.fixed_dictionaries(
    {
        "requests": st.integers(0, 300),
        "bytes": st.integers(0, 10**9),
        "backlog_bytes": st.integers(0, 10**6),
        "backlog_requests": st.integers(0, 99),
        "limit_bytes_per_second": st.sampled_from([0, 10**7]),
        "histogram": st.lists(st.integers(0, 9), max_size=12),
    }
)


@given(st.lists(st.tuples(COUNTS, COUNTS, st.booleans()), min_size=1, max_size=14))
def test_what_is_worked_out_for_all_at_once_is_what_the_samples_say(steps):
    """History's values and the tuner's rates, whatever moved, came, went or began anew."""
    window = Window()
    for number, (first, second, has_both) in enumerate(steps):
        page = put(header(), 0, 0, "default", seq=2 * number + 2, **first)
        if has_both:
            put(page, 3, 2, "batch", seq=2 * number + 2, **second)
        struct.pack_into("<Q", page, 32, number)
        window.add(read(page, number * 100 * MS, window.newest()))
    span = window.span()
    keys = list(span.new.content.layout.numbers)
    samples = {key: span.sample(key) for key in keys}
    assert span.history(keys) == {
        "/".join(key): [sample[field] for field in HISTORY_FIELDS]
        for key, sample in samples.items()
    }
    rates = window.rates(keys)
    assert rates.bytes_per_second == [samples[key]["bytes_per_second"] for key in keys]
    assert rates.backlog_requests == [samples[key]["backlog_requests"] for key in keys]
    assert all(rate >= 0 for rate in rates.recent_bytes_per_second)


def test_the_windows_last_part_is_ahead_of_the_mean():
    steps = [(t, {"bytes": max(0, t - 800) * 1000}) for t in range(0, 1001, 100)]
    rates = window_of(*steps).rates([("default", "blk-read")])
    assert rates.bytes_per_second == [pytest.approx(200_000)]
    assert rates.recent_bytes_per_second == [pytest.approx(200_000 / 0.3)]
