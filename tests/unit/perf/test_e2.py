# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.e2: its points can show its bars, and its subjects are those that are expected."""

import pytest

from perf import bars
from perf.e2 import DISK_POINTS, NET_POINTS, Comparison, Point, with_capacity
from perf.load_class import LoadClass
from perf.subjects import LEAKY_BUCKET, Sluice
from perf.subjects.disk import CgroupThrottle, QemuThrottle
from perf.subjects.net import LibvirtBandwidth, TcHtb, TcTbf


@pytest.mark.parametrize("point", DISK_POINTS + NET_POINTS)
def test_one_request_is_less_than_the_bar_of_a_second(point):
    row = {"part": "disk read", "subject": "sluice"}
    bar = bars.bar_of("E2", row, "worst_window_error_ratio")
    assert point.request_bytes / point.rate_bps < bar.high


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
    comparison = Comparison(LoadClass(None, None, 1), 3, said.append)
    comparison.part("net in", fails)
    found = {"experiment": "E2", **comparison.rows.as_dict()}
    assert any("net in, every subject" in line for line in bars.problems(found))
    assert len(said) == 1


def test_expected_subjects_are_those_that_are_compared():
    sluice = (Sluice(None, "blk-read"), Sluice(None, "blk-read", LEAKY_BUCKET))
    assert tuple(one.name for one in sluice) == bars.SLUICE
    assert (QemuThrottle.name, CgroupThrottle.name) == bars.DISK_PEERS
    assert (TcTbf.name, TcHtb.name, LibvirtBandwidth.name) == bars.NET_PEERS
