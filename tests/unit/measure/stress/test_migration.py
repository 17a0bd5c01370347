# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.migration: what makes a run fail."""

from collections import Counter

import pytest

from measure.stress.bare import DiskRequests
from measure.stress.migration import Outcome


def _outcome(held: list[dict[str, int]], **changed) -> Outcome:
    outcome = Outcome(verified_bytes=4096, rewrites=12, network_bytes=10**6)
    for each in held:
        outcome.moved(1.0, Counter(each))
    outcome.done = outcome.answered = DiskRequests(10, 20)
    for name, value in changed.items():
        setattr(outcome, name, value)
    return outcome


def test_a_run_with_requests_held_each_time_is_well():
    outcome = _outcome([{"blk-write": 16, "net-tx": 3}] * 3)
    assert outcome.problems() == []
    assert (outcome.held, outcome.held_writes) == ([19] * 3, [16] * 3)


def test_requests_must_be_held_in_nine_of_ten_migrations():
    assert _outcome([{"blk-write": 1}] * 9 + [{}]).problems() == []
    assert _outcome([{"blk-write": 1}] * 8 + [{}] * 2).problems() == [
        "8 of 10 migrations had a request held; at least 90% must"
    ]


def test_one_migration_with_requests_held_does_not_speak_for_fifty():
    found = _outcome([{"blk-write": 9}] + [{}] * 49).problems()
    assert found[0].startswith("1 of 50 migrations had a request held")


def test_writes_must_be_held_in_two_of_five():
    without = [{"blk-read": 1}] * 3
    assert _outcome([{"blk-write": 1}] * 2 + without).problems() == []
    assert _outcome([{"blk-write": 1}, {"net-tx": 1}, *without]).problems() == [
        "1 of 5 migrations had a write to the disk held; at least 40% must"
    ]


def test_no_migration_at_all_is_no_proof():
    assert len(_outcome([]).problems()) == 2


def test_limits_that_have_not_arrived_are_named():
    outcome = _outcome([{"blk-write": 1}] * 3, unshaped=[1, 3])
    assert outcome.problems() == ["the limits have not arrived in migrations [1, 3]"]


@pytest.mark.parametrize("answered", [DiskRequests(9, 20), DiskRequests(10, 19), None])
def test_a_request_done_twice_or_never_is_told_by_the_counts(answered):
    (problem,) = _outcome([{"blk-write": 1}], answered=answered).problems()
    assert problem.startswith("the QEMUs have done DiskRequests(reads=10, writes=20), and the")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("verify_errors", "bad magic", "fio: bad magic"),
        ("verified_bytes", 0, "fio has verified nothing"),
        ("rewrite_errors", "block 3", "rewrite: block 3"),
        ("rewrites", 0, "rewrite has written nothing"),
        ("network_errors", "gone", "iperf3: gone"),
        ("network_bytes", 0, "iperf3 has moved nothing"),
    ],
)
def test_each_load_must_have_worked_and_found_nothing(name, value, problem):
    assert _outcome([{"blk-write": 1}], **{name: value}).problems() == [problem]
