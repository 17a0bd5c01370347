# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.loads: what is read out of the programs' logs."""

import itertools

import pytest

from perf.loads import longest_wait_seconds, sample_load


def test_the_longest_wait_is_that_of_a_request_that_ended_while_fio_ran():
    log = "10, 250000000, 0, 4096, 1, 0\n9990, 260000000, 0, 4096, 2, 0\n"
    log += "10241, 445000000, 0, 4096, 3, 0\n"
    assert longest_wait_seconds(log, 10.0) == 0.26


def test_a_log_without_a_request_in_time_is_refused():
    with pytest.raises(ValueError):
        longest_wait_seconds("10241, 445000000, 0, 4096, 3, 0\n", 10.0)


def test_sampling_starts_with_the_first_byte():
    counts = itertools.chain([5.0, 5.0, 5.0], itertools.count(9.0))
    samples = sample_load(lambda: next(counts), 0.05)
    assert samples[0][1] == 9.0
    assert [count for _, count in samples] == sorted(count for _, count in samples)
    assert samples[-1][0] - samples[0][0] >= 0.05


def test_a_load_that_does_not_run_is_refused(monkeypatch):
    monkeypatch.setattr("perf.loads.START_SECONDS", 0.03)
    with pytest.raises(TimeoutError, match="moved nothing"):
        sample_load(lambda: 5.0, 1.0)
