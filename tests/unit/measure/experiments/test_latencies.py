# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.latencies: percentiles, lost pings, starved readers."""

import math

from hypothesis import given
from hypothesis import strategies as st

from measure.experiments.latencies import Latencies, at_a_pace, p99_ratio, parse_ping

HUNDRED = [float(n) for n in range(1, 101)]


def test_the_99th_percentile_of_one_to_a_hundred():
    assert Latencies(HUNDRED).percentile99_ms() == 99.0


def test_of_a_hundred_pings_one_may_be_lost_and_not_two():
    assert Latencies(HUNDRED[:99], 1).percentile99_ms() == 99.0
    assert Latencies(HUNDRED[:98], 2).percentile99_ms() == math.inf


def test_without_any_answer_the_percentile_is_infinite():
    assert Latencies([], 2000).percentile99_ms() == math.inf
    assert Latencies([]).percentile99_ms() == math.inf


def test_a_flood_that_starves_most_pings_has_no_good_ratio():
    control = Latencies([1.0] * 2000)
    assert p99_ratio(Latencies([1.0] * 400, 1600), control) == math.inf
    assert p99_ratio(Latencies([1.5] * 2000), control) == 1.5
    assert p99_ratio(control, Latencies([], 2000)) == math.inf


def test_replies_are_read_and_the_rest_is_lost():
    text = "64 bytes from 10.77.0.11: icmp_seq=1 ttl=64 time=0.532 ms\n"
    text += "From 10.77.0.1 icmp_seq=2 Destination Host Unreachable\n"
    text += "64 bytes from 10.77.0.11: icmp_seq=3 ttl=64 time=12 ms\n"
    text += "64 bytes from 10.77.0.11: icmp_seq=3 ttl=64 time=12 ms (DUP!)\n"
    text += "rtt min/avg/max/mdev = 0.532/6.2/12.0/5.7 ms\n"
    found = parse_ping(text, 5)
    assert found == Latencies([0.532, 12.0], 3)
    assert found.asked == 5


def test_a_ping_that_failed_altogether_has_lost_all():
    assert parse_ping("ping: connect: Network is unreachable\n", 2000).lost == 2000


def test_a_starved_reader_counts_as_often_as_it_would_have_asked():
    assert at_a_pace([1.0, 7.0, 2.0], 2.0) == [1.0, 7.0, 5.0, 3.0, 1.0, 2.0]
    # 4,500 quick reads and one of a second: at 500/s a tenth of all.
    starved = Latencies(at_a_pace([0.5] * 4500 + [1000.0], 2.0))
    assert starved.percentile99_ms() > 800


@given(st.lists(st.floats(0.01, 100), max_size=50), st.floats(0.5, 10))
def test_no_wait_is_left_out_or_made_longer(waits, interval):
    found = at_a_pace(waits, interval)
    assert len(found) >= len(waits)
    assert max(found, default=0) == max(waits, default=0)
    assert sum(wait in found for wait in waits) == len(waits)
