# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.e2: its points can show its bars, and its subjects are those that are expected."""

import pytest

from perf import bars
from perf.accuracy import fluid_wait_seconds
from perf.choice import Choice
from perf.e2 import (
    DEPTH_MAX,
    DISK_POINTS,
    IDEAL_SECONDS,
    NET_POINTS,
    Comparison,
    Point,
    beside_control,
    with_capacity,
)
from perf.load_class import LoadClass
from perf.rows import Rows
from perf.subjects import LEAKY_BUCKET, Sluice, Unlimited
from perf.subjects.disk import CgroupThrottle, QemuThrottle
from perf.subjects.net import LibvirtBandwidth, TcHtb, TcTbf


@pytest.mark.parametrize("point", DISK_POINTS + NET_POINTS)
def test_one_request_is_less_than_the_bar_of_a_second(point):
    row = {"part": "disk read", "subject": "sluice"}
    bar = bars.bar_of("E2", row, "worst_window_error_ratio")
    assert point.request_bytes / point.rate_bps < bar.high


@pytest.mark.parametrize("point", DISK_POINTS)
def test_so_many_requests_are_outstanding_that_the_ideal_wait_is_the_same_at_all_rates(point):
    wait = fluid_wait_seconds(point.depth, point.request_bytes, point.rate_bps)
    assert IDEAL_SECONDS <= wait < IDEAL_SECONDS + point.request_bytes / point.rate_bps


def test_no_more_requests_are_outstanding_than_a_ring_has_room_for():
    assert Point(2**30, 65536).depth == DEPTH_MAX < 1024


def test_rates_begin_at_64_kib():
    assert min(point.rate_bps for point in DISK_POINTS) == 64 * 1024
    assert min(point.rate_bps for point in NET_POINTS) == 64 * 1024


def test_the_highest_point_is_nine_tenths_of_the_capacity():
    points = with_capacity([Point(10, 1), Point(90, 1), Point(95, 1)], 100.0, 7)
    assert points == [Point(10, 1), Point(90, 7)]
    with pytest.raises(ValueError, match="without a limit"):
        with_capacity([Point(10, 1)], 0.0, 7)


def test_a_part_that_comes_to_no_end_is_missing_and_the_next_is_measured(monkeypatch):
    def fails():
        raise TimeoutError("the load does not run")

    monkeypatch.setattr("perf.guest_counter.mark", lambda _guest: None)
    said = []
    comparison = Comparison(LoadClass(None, None, 1), 3, Rows(said.append), said.append)
    comparison.part("net in", fails)
    found = {"experiment": "E2", **comparison.rows.as_dict()}
    assert any("net in, every subject" in line for line in bars.problems(found))
    assert len(said) == 1


def test_a_part_is_measured_if_one_of_its_rows_is_wanted(monkeypatch):
    monkeypatch.setattr("perf.guest_counter.mark", lambda _guest: None)
    measured = []
    comparison = Comparison(LoadClass(None, None, 1), 3, Rows(print, Choice("in, tc-htb")), print)
    for title in ("disk read", "net out", "net in"):
        comparison.part(title, lambda title=title: measured.append(title))
    assert measured == ["net in"]


CONTROL = {"mean_error_ratio": 1.0, "longest_standstill_ms": 30.0, "longest_wait_ratio": 0.75}
MINE = {"mean_error_ratio": 0.0, "longest_standstill_ms": 20.0, "longest_wait_ratio": 1.05}


def test_each_subject_has_the_control_of_its_turn_beside_it():
    found = dict(beside_control({"sluice": MINE, bars.UNLIMITED: CONTROL}))
    assert found[bars.UNLIMITED] == CONTROL
    beside = {
        "unlimited_rate_ratio": 2.0,
        "unlimited_standstill_ms": 30.0,
        # At twice the rate its ideal is half of that at the rate.
        "unlimited_stall_ratio": 0.25,
    }
    assert found["sluice"] == {**MINE, **beside}


def test_a_turn_without_its_control_says_nothing():
    assert list(beside_control({"sluice": MINE})) == []


def test_a_control_that_moved_nothing_tests_no_limit():
    nothing = {**CONTROL, "mean_error_ratio": -1.0}
    figures = dict(beside_control({"sluice": MINE, bars.UNLIMITED: nothing}))["sluice"]
    assert figures["unlimited_rate_ratio"] == 0.0


def _compared(monkeypatch, fails):
    """Compare two subjects at one point in three turns; return rows, missing and the order."""
    order = []

    def measure(_self, subject, _point, _measure):
        order.append(subject.name)
        if (subject.name, len(order)) == fails:
            raise TimeoutError("the load does not run")
        quick = {"quantum_ratio": 0.0, "clock_ratio": 0.0, "worst_window_error_ratio": 0.0}
        return {**(CONTROL if subject.name == bars.UNLIMITED else MINE), **quick}

    monkeypatch.setattr("perf.guest_counter.mark", lambda _guest: None)
    monkeypatch.setattr(Comparison, "_measure", measure)
    comparison = Comparison(LoadClass(None, None, 1), 3, Rows(print), print)
    subjects = [Sluice(None, "blk-read"), QemuThrottle("vdb", "read")]
    comparison.compare("disk read", subjects, [Point(65536, 512)], None)
    rows = {row["subject"]: row for row in comparison.rows.rows}
    return rows, comparison.rows.missing, order


def test_subjects_and_their_control_take_turns_in_an_order_that_alternates(monkeypatch):
    rows, missing, order = _compared(monkeypatch, None)
    there = ["unlimited", "sluice", "qemu-throttle"]
    assert order == there + there[::-1] + there
    assert {name: row["runs"] for name, row in rows.items()} == dict.fromkeys(there, 3)
    assert rows["sluice"]["unlimited_rate_ratio"]["median"] == 2.0
    assert missing == []


def test_a_control_that_fails_takes_its_turn_with_it(monkeypatch):
    rows, missing, _order = _compared(monkeypatch, ("unlimited", 6))
    assert {row["runs"] for row in rows.values()} == {2}
    assert [one["subject"] for one in missing] == ["unlimited"]


def test_expected_subjects_are_those_that_are_compared():
    sluice = (Sluice(None, "blk-read"), Sluice(None, "blk-read", LEAKY_BUCKET))
    assert tuple(one.name for one in sluice) == bars.SLUICE
    assert Unlimited.name == bars.UNLIMITED
    assert (QemuThrottle.name, CgroupThrottle.name) == bars.DISK_PEERS
    assert (TcTbf.name, TcHtb.name, LibvirtBandwidth.name) == bars.NET_PEERS
