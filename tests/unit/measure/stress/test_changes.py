# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.changes: what makes a run fail, and what the control may excuse."""

import pytest

from measure.stress.changes import (
    BULK,
    EXCUSED_MS,
    KINDS,
    NET_LEAST_BPS,
    NET_START_SECONDS,
    OTHER,
    SHAPED_MS,
    STALL_MS,
    Outcome,
    held_requests,
)
from measure.stress.next_change import NET_RATE_MAX_BPS


def _outcome(**changed) -> Outcome:
    well = {
        "kinds": dict.fromkeys(KINDS, 3),
        "held_writes": {BULK: 5, OTHER: 5, "default": 0},
        "held_frames": {BULK: 5, OTHER: 5, "default": 0},
        "passed_bps": {"net-tx": [NET_LEAST_BPS] * 60, "net-rx": [NET_LEAST_BPS] * 60},
        "verified_bytes": 4096,
        "rewrites": 7,
    }
    return Outcome(**{**well, **changed})


def test_a_quiet_run_is_well():
    assert _outcome().problems() == []


@pytest.mark.parametrize("name", ["longest_ms", "rewrite_longest_ms"])
def test_a_wait_is_explained_by_its_rate_the_machine_and_the_bound(name):
    most_ms = SHAPED_MS + STALL_MS + 40.0
    assert _outcome(**{name: most_ms, "control_longest_ms": 40.0}).problems() == []
    (problem,) = _outcome(**{name: most_ms + 1, "control_longest_ms": 40.0}).problems()
    assert f"took {most_ms + 1:.0f} ms; its rate explains {SHAPED_MS:.0f} ms" in problem


def test_an_answer_has_no_rate_to_explain_it():
    assert _outcome(answer_longest_ms=STALL_MS).problems() == []
    (problem,) = _outcome(answer_longest_ms=STALL_MS + 1).problems()
    assert problem.startswith("the answer to a change took 101 ms; its rate explains 0 ms")


def test_a_stall_that_the_control_shares_is_not_excused():
    """As when a change stops all of QEMU: five seconds for everybody."""
    found = _outcome(longest_ms=5000.0, control_longest_ms=5000.0).problems()
    assert len(found) == 2
    assert found[0].startswith("inconclusive: without a shaper a request took 5000 ms")
    assert f"the machine {EXCUSED_MS:.0f} ms" in found[1]


def test_a_control_that_waited_for_too_long_fails_the_run_by_itself():
    assert _outcome(control_longest_ms=EXCUSED_MS).problems() == []
    (problem,) = _outcome(control_longest_ms=EXCUSED_MS + 1).problems()
    assert problem.startswith("inconclusive")


def test_of_a_machine_that_is_too_busy_all_but_the_times_is_judged():
    silent = {"net-tx": [0.0] * 60, "net-rx": [0.0] * 60}
    busy = {"control_longest_ms": EXCUSED_MS + 1, "longest_ms": 5000.0, "passed_bps": silent}
    assert _outcome().too_busy() == ""
    assert _outcome(**busy).too_busy().startswith("inconclusive")
    assert _outcome(**busy).wrong() == []
    assert _outcome(**busy, verified_bytes=0).wrong() == ["fio has verified nothing"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"verify_errors": "bad magic"}, "fio: bad magic"),
        ({"verified_bytes": 0}, "fio has verified nothing"),
        ({"rewrite_errors": "block 3"}, "rewrite: block 3"),
        ({"rewrites": 0}, "rewrite has written nothing"),
        (
            {"held_writes": {BULK: 5, "default": 9}},
            "class other has held no write, so its changes prove nothing",
        ),
        (
            {"held_frames": {OTHER: 5}},
            "class bulk has held no frame, so its changes prove nothing",
        ),
        ({"network_errors": "its client has ended"}, "iperf3: its client has ended"),
        (
            {"kinds": {kind: 1 for kind in KINDS if kind != "tag"}},
            "no change was one of the kind 'tag'; use a larger --count",
        ),
    ],
)
def test_what_was_not_tested_is_a_failure(changed, problem):
    assert _outcome(**changed).problems() == [problem]


def test_a_second_in_which_too_little_passed_is_named_but_not_while_it_begins():
    seconds = [0.0] * NET_START_SECONDS + [NET_LEAST_BPS] * 40
    assert _outcome(passed_bps={"net-tx": seconds, "net-rx": seconds}).problems() == []
    few = [*seconds[:10], 0.0, *seconds[10:], NET_LEAST_BPS - 1]
    (problem,) = _outcome(passed_bps={"net-tx": few, "net-rx": seconds}).problems()
    assert problem.startswith("net-tx: of 42 seconds 2 passed less than the ")
    assert problem.endswith(f"0 in second 10, {NET_LEAST_BPS - 1:.0f} in second 44")


def test_a_direction_without_a_second_is_named():
    (problem,) = _outcome(passed_bps={"net-tx": [NET_LEAST_BPS] * 40}).problems()
    assert problem.startswith("net-rx: of 0 seconds") and problem.endswith("there was none")


def test_acknowledgements_of_the_other_direction_are_not_enough():
    """One for each segment, with the largest list of what came out of order."""
    segment_bytes, acknowledgement_bytes = 1514, 14 + 20 + 60
    assert NET_RATE_MAX_BPS / segment_bytes * acknowledgement_bytes < NET_LEAST_BPS


def test_held_requests_are_read_from_the_shapers_counters():
    def stats(*held: int) -> list[dict]:
        resources = "blk-read", "blk-write", "net-tx", "net-rx"
        return [
            {"resource": resource, "held-requests": number}
            for resource, number in zip(resources, held, strict=True)
        ]

    classes = [
        {"class": "default", "stats": stats(1, 0, 4, 5)},
        {"class": "bulk", "stats": stats(2, 3, 9, 8)},
    ]
    assert held_requests({"classes": classes}, "blk-write") == {"default": 0, "bulk": 3}
    assert held_requests({"classes": classes}, "net-tx", "net-rx") == {"default": 4, "bulk": 8}
