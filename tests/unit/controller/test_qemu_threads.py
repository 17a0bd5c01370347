# SPDX-License-Identifier: GPL-2.0-or-later
"""The times of a QEMU's threads, from the real /proc: a program of this test is the QEMU."""

import subprocess
import time

import pytest

from sluice_controller.adapters.qemu_threads import NAMED_SECONDS, QemuThreads
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Guest
from testbed import patience

UUID = "6dd6f1c4-9f5c-4d0a-8b8a-5a2a8c1f0001"
GUEST = Guest("media", UUID, "running", 1)


class Qemu:
    """A program that waits, with a guest's uuid among its words."""

    def __init__(self, uuid=UUID):
        words = ["sh", "-c", "echo up; read line", uuid]
        self.program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Not before has the kernel put down with which words it was started.
        assert self.program.stdout.readline() == b"up\n"
        self.names, self.asked, self.now = [{"thread-id": self.program.pid}], 0, 0.0
        self.threads = QemuThreads(self.execute, lambda: self.now)

    def execute(self, domain, command, _arguments):
        assert domain == "media"
        self.asked += 1
        return {"query-cpus-fast": self.names, "query-iothreads": []}[command]

    def end(self):
        self.program.kill()
        self.program.wait()

    def close(self):
        self.end()
        self.program.stdin.close()
        self.program.stdout.close()
        self.threads.forget(UUID)


@pytest.fixture
def start():
    started = []

    def begin(*arguments):
        started.append(Qemu(*arguments))
        return started[-1]

    yield begin
    for qemu in started:
        qemu.close()


def test_threads_are_named_once_and_then_read(start):
    qemu = start()
    deadline = time.monotonic() + patience.seconds(10)
    # The kernel counts a thread's time when it leaves its processor.
    while (turns := qemu.threads.read(GUEST)) and not turns[qemu.program.pid].ran_ns:
        assert time.monotonic() < deadline
    assert turns.keys() == {qemu.program.pid}
    assert qemu.asked == 2
    qemu.now += NAMED_SECONDS
    qemu.threads.read(GUEST)
    assert qemu.asked == 4


def test_threads_of_another_program_are_refused(start):
    qemu, other = start(), start("6dd6f1c4-9f5c-4d0a-8b8a-5a2a8c1f0002")
    qemu.names = other.names
    with pytest.raises(Unavailable, match="not of its QEMU"):
        qemu.threads.read(GUEST)
    # One that is its own beside one that is not.
    qemu.names = [{"thread-id": qemu.program.pid}, *other.names]
    with pytest.raises(Unavailable, match="No such file"):
        qemu.threads.read(GUEST)


@pytest.mark.parametrize("names", [[], [{}], [7], [{"thread-id": "x"}], [{"thread-id": 2**40}]])
def test_a_qemu_that_names_none_is_said_with_the_reason(start, names):
    qemu = start()
    qemu.names = names
    with pytest.raises(Unavailable, match="processors of domain 'media' cannot be watched"):
        qemu.threads.read(GUEST)


def test_a_qemu_that_has_ended_is_unknown(start):
    qemu = start()
    qemu.threads.read(GUEST)
    qemu.end()
    with pytest.raises(Unavailable, match="have ended"):
        qemu.threads.read(GUEST)
