# SPDX-License-Identifier: GPL-2.0-or-later
"""testbed.guest: how long ssh waits for a guest of a machine where everything takes longer."""

from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from testbed import patience
from testbed.guest import Guest


class Sandbox:
    """Keeps what it is to run."""

    def run(self, argv, **_options):
        self.argv = argv
        return CompletedProcess(argv, 0, "", "")


@pytest.fixture
def ssh_option():
    """What ssh is told of an option when a guest is asked for anything."""
    sandbox = Sandbox()
    spec, placement = SimpleNamespace(name="mover"), SimpleNamespace(address="10.78.0.31")
    guest = Guest(spec, placement, sandbox, None, Path("/key"))

    def option(name):
        guest.ssh("true")
        return next(word.split("=")[1] for word in sandbox.argv if word.startswith(f"{name}="))

    yield option
    patience.use(patience.LEAST)


@pytest.mark.parametrize(("factor", "connect", "silent"), [(1, 10, 60), (8, 80, 480)])
def test_a_slow_guest_has_longer_to_answer_ssh(ssh_option, factor, connect, silent):
    patience.use(factor)
    assert int(ssh_option("ConnectTimeout")) == connect
    unanswered = int(ssh_option("ServerAliveCountMax"))
    assert unanswered * int(ssh_option("ServerAliveInterval")) == silent


def test_a_connection_to_a_slow_guest_outlasts_a_slow_move(ssh_option):
    patience.use(8)
    assert int(ssh_option("ControlPersist")) == 2400
