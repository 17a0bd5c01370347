# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's counters to what guests move, pressures, and which streams play."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_nightly.activity import GuestActivity, activity, tells_disks
from sluice_nightly.facts import parse_pressure, pressures
from sluice_nightly.host import playing_streams

BEFORE = {
    "cpu.time": 10_000_000_000,
    "block.count": 2,
    "block.0.name": "vda",
    "block.0.rd.bytes": 1000,
    "block.0.wr.bytes": 500,
    "block.0.rd.times": 77,
    "block.1.rd.bytes": 10,
    "net.count": 1,
    "net.0.rx.bytes": 100,
    "net.0.tx.bytes": 200,
    "net.0.rx.pkts": 9,
}
AFTER = {
    **BEFORE,
    "cpu.time": 12_000_000_000,
    "block.0.rd.bytes": 9000,
    "block.1.rd.bytes": 2010,
    "net.0.tx.bytes": 4200,
    "block.0.rd.times": 99_999,
}


def test_bytes_of_all_devices_are_added_up():
    assert activity({"web": BEFORE}, {"web": AFTER}, 4.0) == (
        GuestActivity("web", 2500.0, 1000.0, 0.5),
    )


def test_a_new_guest_counts_whole_and_one_that_left_not_at_all():
    (only,) = activity({"gone": BEFORE}, {"new": {"block.0.rd.bytes": 800}}, 2.0)
    assert only == GuestActivity("new", 400.0, 0.0, 0.0)


def test_a_restarted_guest_moves_no_negative_amount():
    (only,) = activity({"web": AFTER}, {"web": {"cpu.time": 1_000_000_000}}, 1.0)
    assert only == GuestActivity("web", 0.0, 0.0, 1.0)


def test_what_was_not_told_before_is_not_what_moved_since():
    """As of a guest that had another job at the first reading, or that got a disk."""
    (only,) = activity({"web": {"cpu.time": 10_000_000_000}}, {"web": AFTER}, 4.0)
    assert only == GuestActivity("web", 0.0, 0.0, 0.5)


def test_a_disk_that_was_taken_away_is_not_what_the_others_moved():
    left = {name: value for name, value in AFTER.items() if not name.startswith("block.0.")}
    (only,) = activity({"web": BEFORE}, {"web": left}, 4.0)
    assert only.disk_bytes_per_s == 500.0


def test_disks_that_are_there_and_not_told_of_are_seen():
    assert tells_disks(BEFORE) and tells_disks({"cpu.time": 1}) and tells_disks({"block.count": 0})
    assert not tells_disks({"block.count": 1, "block.0.name": "vda"})


def test_two_readings_at_one_time_are_refused():
    with pytest.raises(ValueError):
        activity({}, {}, 0.0)


COUNTERS = st.dictionaries(
    st.sampled_from([*BEFORE, "junk"]), st.integers(0, 2**63) | st.text(max_size=4) | st.booleans()
)


@given(st.dictionaries(st.text(max_size=3), COUNTERS), st.dictionaries(st.text(max_size=3), COUNTERS))  # noqa: E501  # fmt: skip
def test_whatever_libvirt_says_no_rate_is_negative(before, after):
    found = activity(before, after, 0.5)
    assert [guest.name for guest in found] == sorted(after)
    for guest in found:
        assert min(guest.disk_bytes_per_s, guest.net_bytes_per_s, guest.processors) >= 0


PRESSURE = "some avg10=1.50 avg60=12.30 avg300=0.00 total=5\nfull avg10=9.00 avg60=9.00 total=1\n"


def test_pressure_is_that_of_some():
    assert parse_pressure(PRESSURE, "avg60") == 12.3
    assert parse_pressure(PRESSURE, "avg10") == 1.5
    assert parse_pressure("", "avg10") is None


def test_a_pressure_that_is_not_told_is_absent(tmp_path):
    (tmp_path / "cpu.pressure").write_text(PRESSURE)
    assert pressures(tmp_path, ".pressure", "avg60") == {"cpu": 12.3}
    assert pressures(tmp_path / "none", "", "avg60") == {}


def test_a_stream_plays_if_its_class_moves_a_tenth_of_its_rate():
    streams = [
        {"name": n, "domain": "media", "class": n, "nominal": {"bytes_per_second": 1000.0}}
        for n in ("on", "off", "absent")
    ]
    samples = {
        "on": {"blk-read": {"bytes_per_second": 0}, "net-tx": {"bytes_per_second": 100}},
        "off": {"net-tx": {"bytes_per_second": 99}},
    }
    live = {"domains": {"media": {"classes": samples}}}
    assert playing_streams(streams, live) == ("on",)
    assert playing_streams(streams, {"domains": {"media": {"classes": None}}}) == ()
