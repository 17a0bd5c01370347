# SPDX-License-Identifier: GPL-2.0-or-later
"""What the clients print, and the disk's counters."""

import struct

import pytest

from testbed.clients import parse_httperf
from testbed.rotdisk import EXPORT, MAGIC, DiskError, read_counters

HTTPERF = """\
Maximum connect burst length: 205

Total: connections 47712 requests 34754 replies 182 test-duration 129.350 s

Errors: total 47080 client-timo 46712 socket-timo 0 connrefused 0 connreset 0
"""


def test_httperf_summary():
    result = parse_httperf(HTTPERF)
    assert (result.connections, result.replies, result.timeouts) == (47712, 182, 46712)
    assert result.replies_per_second == pytest.approx(182 / 129.35)


def test_httperf_that_was_killed_has_no_summary():
    assert parse_httperf("httperf --hog --server=x") is None


def counters_page(volumes: dict[str, tuple[int, ...]]) -> bytes:
    page = MAGIC + struct.pack("<Q", len(volumes))
    for name, values in volumes.items():
        page += name.encode().ljust(32, b"\0") + EXPORT.pack(*values, 0)
    return page.ljust(4096, b"\0")


def test_disk_counters_by_volume():
    page = counters_page({"movie": (1, 2, 3, 4, 5, 6, 7), "media": (10, 20, 30, 40, 50, 60, 70)})
    found = read_counters(page)
    assert list(found) == ["movie", "media"]
    assert found["media"].bytes == 20
    later = read_counters(counters_page({"media": (15, 26, 30, 41, 50, 60, 90)}))["media"]
    added = later.since(found["media"])
    assert (added.requests, added.bytes, added.busy_ns, added.latency_max_ns) == (5, 6, 1, 90)


def test_a_file_that_is_no_counters_page_is_refused():
    with pytest.raises(DiskError, match="ROTDISK1"):
        read_counters(b"\0" * 4096)
