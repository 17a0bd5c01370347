# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.loads: what is read out of the programs' logs."""

import itertools
import json

import pytest

from measure.loads import (
    device_bytes,
    fio_job,
    longest_wait_seconds,
    sample_load,
)

# Milliseconds of the end, nanoseconds of the wait, direction, bytes, offset, priority.
IN_TIME = "10, 10000000, 0, 4096, 1, 0\n9990, 260000000, 0, 4096, 2, 0\n"


def test_the_longest_wait_is_that_of_a_request_that_was_begun_in_time():
    begun_late = "11241, 445000000, 0, 4096, 3, 0\n"
    assert longest_wait_seconds(IN_TIME + begun_late, 10.0) == 0.26


def test_a_request_that_was_starved_until_the_end_counts():
    starved = "15000, 12000000000, 0, 4096, 3, 0\n"
    assert longest_wait_seconds(IN_TIME + starved, 10.0) == 12.0


def test_waits_of_writes_are_read_too():
    assert longest_wait_seconds("500, 3000000, 1, 512, 0, 0\n", 10.0) == 0.003


def test_a_log_without_a_request_in_time_is_refused():
    with pytest.raises(ValueError):
        longest_wait_seconds("10800, 445000000, 0, 4096, 3, 0\n", 10.0)


def test_sampling_starts_when_more_has_moved_than_commands_move():
    counts = itertools.chain([5.0, 3000.0, 16388.0, 16389.0], itertools.count(16390.0))
    samples = sample_load(lambda: next(counts), 0.05)
    assert samples[0].bytes == 16389.0
    assert [sample.bytes for sample in samples] == sorted(sample.bytes for sample in samples)
    assert samples[-1].at_seconds - samples[0].at_seconds >= 0.05
    assert all(sample.unsure_seconds >= 0 for sample in samples)


def test_a_load_that_does_not_run_is_refused(monkeypatch):
    monkeypatch.setattr("measure.loads.START_SECONDS", 0.03)
    counts = itertools.chain([5.0], itertools.repeat(3000.0))
    with pytest.raises(TimeoutError, match="moved 2995 bytes"):
        sample_load(lambda: next(counts), 1.0)


NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:     700       7    0    0    0     0          0         0      701       7    0    0
 tap0:   11 1 0 0 0 0 0 0 12 1 0 0 0 0 0 0
uplink0:9000000 60 0 0 0 0 0 0 4000 50 0 0 0 0 0 0
"""


def test_both_ways_of_an_uplink_are_told_apart():
    lines = NET_DEV.splitlines()
    assert device_bytes(lines, "uplink0", received=True) == 9000000
    assert device_bytes(lines, "uplink0", received=False) == 4000
    with pytest.raises(LookupError, match="uplink1"):
        device_bytes(lines, "uplink1", received=False)
    with open("/proc/net/dev") as here:
        assert device_bytes(here, "lo", received=True) >= 0


def test_the_job_follows_what_fio_complained_of():
    text = "verify: bad header\nfio: pid=3\n" + json.dumps({"jobs": [{"error": 84}]})
    assert fio_job(text) == {"error": 84}


@pytest.mark.parametrize("text", ["", "fio: terminating", '{"jobs": []}', '{"jo'])
def test_a_fio_without_a_result_is_an_error(text):
    with pytest.raises(ValueError, match="fio has given no result"):
        fio_job(text)
