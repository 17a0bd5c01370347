# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.quality import host_verdict, parse_report, stream_verdict

NOMINAL = 875_000.0


def report(**changes):
    fields = {
        "continuity_errors": 0,
        "stalls": 0,
        "stall_seconds": 0,
        "lost_pictures": 0,
        "received_bytes": 875_000,
        "max_gap_ms": 20,
        "window_ms": 1000,
    }
    return parse_report({**fields, **changes})


def test_a_clean_report_is_perfect():
    assert stream_verdict([report()] * 10, NOMINAL)[0] == "perfect"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"continuity_errors": 1}, "poor"),
        ({"stalls": 1, "stall_seconds": 0.5}, "poor"),
        ({"stalls": 1, "stall_seconds": 0.005}, "good"),
        ({"lost_pictures": 3}, "poor"),
    ],
)
def test_faults(changes, verdict):
    seen, reason = stream_verdict([report(), report(**changes)], NOMINAL)
    assert seen == verdict
    assert reason


def test_too_little_delivered_over_several_windows():
    assert stream_verdict([report(received_bytes=700_000)] * 10, NOMINAL)[0] == "poor"
    assert stream_verdict([report(received_bytes=840_000)] * 10, NOMINAL)[0] == "good"


def test_one_lump_is_no_verdict():
    assert stream_verdict([report(received_bytes=0)], NOMINAL)[0] == "perfect"


def test_no_report_is_unknown():
    assert stream_verdict([], NOMINAL)[0] == "unknown"


@pytest.mark.parametrize(
    "changes", [{"window_ms": 0}, {"stalls": -1}, {"max_gap_ms": "x"}, {"lost_pictures": True}]
)
def test_bad_reports(changes):
    with pytest.raises(BadValue) as refused:
        report(**changes)
    assert refused.value.thing in changes


def test_the_hosts_own_view():
    sample = {"bytes_per_second": 1.0, "service_mean_ms": 20.0, "held_mean_ms": 0.0}
    assert host_verdict(sample, 150)[0] == "good"
    assert host_verdict({**sample, "service_mean_ms": 200.0}, 150)[0] == "poor"
    assert host_verdict({**sample, "bytes_per_second": 0.0}, 150)[0] == "unknown"
    assert host_verdict(None, 150)[0] == "unknown"
