# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.guest_turns: whose turn it is, with processes in place of guests."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perf import guest_turns, turns

# Its work is the CPU time that it takes, which is what there is to see from outside.
BUSY = "while True: pass"


class Host:
    """A testbed whose sandbox is this process's own namespaces."""

    def __init__(self):
        self.sandbox = SimpleNamespace(path=Path, run=self._run)

    @staticmethod
    def _run(command):
        subprocess.run(command, check=True)


class Process:
    """A process in place of a guest, which runs its load once it is told."""

    def __init__(self, name):
        self.name = name
        self.process = None

    def spawn(self, _command, unit):
        self.process = subprocess.Popen([sys.executable, "-c", BUSY])

    def kill_unit(self, unit):
        if self.process:
            self.state_at_end = _state(self.process.pid)
            self.process.kill()
            self.process.wait()

    def qemu_pid(self):
        return self.process.pid if self.process else None


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def both(host):
    def load(guest):
        def count():
            return guest_turns.cpu_seconds(host, guest) if guest.process else 0.0

        return guest_turns.Load(guest, BUSY, count, 0.1)

    return tuple(load(Process(name)) for name in ("one", "other"))


def test_one_works_in_its_turn_and_the_other_stands(host, both):
    taken = guest_turns.take(host, both, 0.1)
    assert [turn.unit for turn in taken] == ["one", "other", "other", "one"]
    assert all(turn.work > 0 for turn in taken)
    for load in both:
        assert guest_turns.cpu_per_work(taken, load.guest.name) == pytest.approx(1.0)


def test_both_go_on_at_the_end(host, both):
    guest_turns.take(host, both, 0.1)
    assert {load.guest.state_at_end for load in both} <= {"R", "S"}


def test_both_go_on_though_a_turn_failed(host, both):
    failing = both[1]._replace(count=iter([0.0, 0.2]).__next__)
    with pytest.raises(StopIteration):
        guest_turns.take(host, (both[0], failing), 0.1)
    assert {load.guest.state_at_end for load in both} <= {"R", "S"}


def test_a_load_that_does_not_begin_is_told(host, both, monkeypatch):
    monkeypatch.setattr(turns, "BEGIN_SECONDS", 0.3)
    never = both[1]._replace(begun=1e9)
    with pytest.raises(TimeoutError, match="other has no load 0.3 s after"):
        guest_turns.take(host, (both[0], never), 0.1)


def test_a_guest_that_did_nothing_has_no_cost():
    with pytest.raises(ValueError, match="stock did nothing"):
        guest_turns.cpu_per_work([turns.Turn("stock", 0.2, 0.0, 0.1)], "stock")
