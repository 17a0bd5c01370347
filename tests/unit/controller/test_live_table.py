# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sluice live` prints of an answer of the API."""

import io

from rich.console import Console

from sluice_controller.entry.cli.live import render
from sluice_controller.entry.cli.output import uplink_line

SAMPLE = {
    "bytes_per_second": 0.0,
    "requests_per_second": 0.0,
    "limit_bytes_per_second": None,
    "limit_operations_per_second": None,
    "backlog_requests": 0,
    "backlog_bytes": 0,
    "held_p99_ms": 0.0,
    "service_mean_ms": 0.0,
    "in_flight": 0,
    "dropped_per_second": 0.0,
    "drops_per_second": dict.fromkeys(("backlog", "codel", "connection", "window", "reset"), 0.0),
    "marked_per_second": 0.0,
    "untagged_share": None,
}


def printed(**changes):
    state = {"page_ok": True, "classes": {"bulk": {"net-rx": {**SAMPLE, **changes}}}}
    answer = {"at": 0.0, "domains": {"media": state}, "uplink": None}
    console = Console(width=200, file=io.StringIO())
    console.print(render(answer, everything=False))
    return console.file.getvalue()


def test_a_class_that_does_nothing_is_left_out():
    assert "bulk" not in printed()
    assert "no shaped domain moves data" in printed()


def test_what_waits_is_said_in_requests_and_bytes():
    text = printed(backlog_requests=12, backlog_bytes=1_500_000)
    assert "12 (1.50 MB)" in text


def test_drops_are_said_by_reason_beside_marks():
    drops = {**SAMPLE["drops_per_second"], "codel": 3.0, "connection": 7.0}
    text = printed(dropped_per_second=10.0, drops_per_second=drops, marked_per_second=2.0)
    assert "codel 3/s, connection 7/s, ECN 2/s" in text


def test_an_older_qemu_tells_only_how_many():
    text = printed(dropped_per_second=5.0, drops_per_second=None, marked_per_second=None)
    assert "dropped 5/s" in text


def test_the_share_of_untagged_requests_is_said_where_requests_came():
    assert "37%" in printed(bytes_per_second=1.0, untagged_share=0.37)
    assert "%" not in printed(bytes_per_second=1.0)


def test_an_uplink_s_ports_are_told():
    uplink = {
        "name": "br0",
        "backlog_bytes": 5,
        "dropped_per_second": 0.0,
        "bytes_per_second": 1e6,
        "link_bytes_per_second": None,
        "ports": ["eno1", "eno2"],
        "is_beyond": False,
        "first": [],
        "first_reason": None,
    }
    assert uplink_line(uplink).startswith("uplink br0 (eno1, eno2): 1.00 MB/s of unknown, 5 B wait")
    assert uplink_line({**uplink, "ports": ["br0"]}).startswith("uplink br0: ")
    assert uplink_line(uplink).endswith("0 drops/s")
    first = {**uplink, "first": ["film"], "first_reason": "news: media has no card now"}
    assert uplink_line(first).endswith("; first: film; not first: news: media has no card now")
