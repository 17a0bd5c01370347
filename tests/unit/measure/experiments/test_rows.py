# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.rows: a measurement that fails is missing, and the others are there."""

from pathlib import Path

import libvirt
import pytest

from measure.experiments.bars import problems
from measure.experiments.choice import Choice
from measure.experiments.rows import Rows
from measure.qmp import QmpError
from testbed import CommandFailed, GuestError, ServiceError


def _failing():
    raise CommandFailed("fio ended with 1:\n  no such device")


def test_a_failure_is_noted_in_one_line_and_the_next_row_is_measured():
    said = []
    rows = Rows(said.append)
    rows.add("disk", "fio", _failing)
    rows.add("network", "TCP", lambda: {"part": "network"})
    assert rows.rows == [{"part": "network"}]
    reason = "fio ended with 1: no such device"
    assert rows.missing == [{"part": "disk", "subject": "fio", "reason": reason}]
    assert said == [f"disk: fio is left out: {reason}"]


@pytest.mark.parametrize(
    "refusal",
    [
        GuestError("guest e2 does not answer"),
        QmpError("QEMU of e2: query-shapers: no such command"),
        ServiceError("409"),
        libvirt.libvirtError("no such disk"),
    ],
)
def test_what_is_refused_does_not_take_the_others_with_it(refusal):
    def refused():
        raise refusal

    rows = Rows(lambda _text: None)
    rows.add("disk", "fio", refused)
    assert [one["reason"] for one in rows.missing] == [str(refusal)]


def test_a_row_that_is_not_wanted_is_neither_measured_nor_missing():
    rows = Rows(lambda _text: None, Choice("network"))
    rows.add("disk", "fio", _failing)
    rows.add("network", "TCP", lambda: {"part": "network"})
    assert rows.as_dict() == {"rows": [{"part": "network"}], "missing": []}


def test_the_same_failure_in_every_turn_is_told_once():
    said = []
    rows = Rows(said.append)
    for _ in range(3):
        rows.leave_out("net out", "tc-htb", "no sch_htb")
    assert len(said) == len(rows.missing) == 1


def test_what_is_missing_is_a_problem():
    rows = Rows(lambda _text: None)
    rows.add("disk", "fio 4 KiB, requests/s", _failing)
    found = problems({"experiment": "E1", **rows.as_dict()})
    assert sum("no such device" in line for line in found) == 1


def test_a_mistake_in_an_experiment_is_told_with_its_place_and_costs_no_other_row():
    said = []
    rows = Rows(said.append)
    rows.add("disk", "fio", lambda: {}["nothing"])
    rows.add("network", "TCP", lambda: {"part": "network"})
    assert rows.rows == [{"part": "network"}]
    assert "KeyError('nothing')" in said[0]
    assert Path(__file__).name in said[0]


def test_an_end_that_was_asked_for_ends_the_experiment():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Rows(lambda _text: None).add("disk", "fio", interrupted)
