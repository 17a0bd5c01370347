# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.flood: percentiles and what ping prints."""

import pytest

from perf.flood import parse_ping, percentile99


def test_the_99th_percentile_of_one_to_a_hundred():
    assert percentile99([float(n) for n in range(1, 101)]) == pytest.approx(99.01)


def test_too_few_values_are_refused():
    with pytest.raises(ValueError, match="too few"):
        percentile99([1.0] * 99)


def test_replies_are_read_and_the_rest_is_not():
    text = "64 bytes from 10.77.0.11: icmp_seq=1 ttl=64 time=0.532 ms\n"
    text += "From 10.77.0.1 icmp_seq=2 Destination Host Unreachable\n"
    text += "64 bytes from 10.77.0.11: icmp_seq=3 ttl=64 time=12 ms\n"
    text += "rtt min/avg/max/mdev = 0.532/6.2/12.0/5.7 ms\n"
    assert parse_ping(text) == [0.532, 12.0]
