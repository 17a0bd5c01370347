# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers, sentences and orders of the page; no server, no clock."""

import pytest

from sluice_web import formatting as f
from sluice_web import views


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 MB/s"),
        (1, "<0.001 MB/s"),
        (12_000, "0.012 MB/s"),
        (999_400, "0.999 MB/s"),
        (999_600, "1.00 MB/s"),
        (1_234_000, "1.23 MB/s"),
        (12_340_000, "12.3 MB/s"),
        (123_400_000, "123 MB/s"),
        (999_600_000, "1.00 GB/s"),
        (12_340_000_000, "12.3 GB/s"),
    ],
)
def test_rate(value, shown):
    assert f.rate(value) == shown


def test_links_are_shown_in_bits():
    assert f.link_rate(50_000_000) == "400 Mbit/s"
    assert f.link_rate(125_000_000) == "1.00 Gbit/s"


def test_no_number_is_wider_than_its_column():
    widths = {len(f.significant(10**exponent * 1.2345)) for exponent in range(-3, 3)}
    assert max(widths) <= 5


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0.0 s"), (0.34, "0.3 s"), (12.4, "12 s"), (119, "119 s"), (300, "5 min"), (9000, "2 h")],
)
def test_age(seconds, shown):
    assert f.age(seconds) == shown


def stream(name, verdict, since=None):
    return {"name": name, "domain": "media", "class": "movie", "verdict": verdict, "since": since}


def test_headline_says_since_when_all_are_perfect():
    sentence, since = views.headline([stream("a", "perfect", 10), stream("b", "perfect", 20)])
    assert sentence == "All 2 streams are perfect"
    assert since == 20


def test_headline_names_the_one_that_suffers():
    sentence, since = views.headline([stream("a", "perfect", 10), stream("b", "poor", 20)])
    assert (sentence, since) == ("b is poor", 20)


def test_headline_counts_several_that_suffer():
    streams = [stream("a", "poor", 1), stream("b", "poor", 2), stream("c", "perfect", 3)]
    assert views.headline(streams)[0] == "2 of 3 streams are poor"


def test_headline_without_streams_or_reports():
    assert views.headline([])[0] == "No stream is declared."
    assert "No report yet from a" in views.headline([stream("a", "unknown")])[0]


def test_streams_that_suffer_come_first():
    order = views.sort_streams([stream("a", "perfect"), stream("b", "poor"), stream("c", "good")])
    assert [s["name"] for s in order] == ["b", "c", "a"]


def test_a_group_says_its_rate_in_the_unit_that_it_counts():
    disks = {"unit": "bytes", "rate_per_second": 200e6, "burst": 10e6}
    assert (views.group_rate(disks), views.group_burst(disks)) == ("200 MB/s", "10.0 MB")
    frames = {"unit": "operations", "rate_per_second": 5000, "burst": 250}
    assert (views.group_rate(frames), views.group_burst(frames)) == ("5000 ops/s", "250 operations")


def test_domains_that_wait_come_first():
    domains = [
        {"name": "a", "state": "running"},
        {"name": "b", "state": "shut off"},
        {"name": "c", "state": "running"},
    ]
    live = {"domains": {"c": {"classes": {"x": {"blk-read": {"backlog_requests": 3}}}}}}
    assert [d["name"] for d in views.sort_domains(domains, live)] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("domain", "word"),
    [
        ({"attached": False}, "Not attached"),
        ({"attached": True, "needs_restart": True}, "restart"),
        ({"attached": True, "state": "shut off"}, "Not running"),
        ({"attached": True, "state": "running", "active": False}, "without a shaper"),
        (
            {
                "attached": True,
                "state": "running",
                "active": True,
                "agent": {"connected": False, "error": "timed out"},
            },
            "timed out",
        ),
    ],
)
def test_state_note_says_what_is_missing(domain, word):
    assert word in views.state_note(domain)


def test_state_note_is_silent_when_all_is_well():
    ready = {"attached": True, "state": "running", "active": True, "agent": {"connected": True}}
    assert views.state_note(ready) == ""


def test_audit_values_are_words_with_units():
    shown = views.describe_change({"bytes_per_second": 2e6, "burst_bytes": None, "dscp": []})
    assert shown == "rate 2.00 MB/s"
    assert views.describe_change(None) == "–"
    assert views.describe_change({"enabled": True}) == "enabled on"


def test_audits_are_merged_newest_first():
    rows = views.merge_audit([{"at": 2}, {"at": 5}], [{"at": 3}, {"at": 1}], 3)
    assert [row["at"] for row in rows] == [5, 3, 2]


def test_a_colour_index_outside_the_palette_stays_inside():
    assert [views.colour(i) for i in (0, 7, 8, None)] == [0, 7, 0, 0]
