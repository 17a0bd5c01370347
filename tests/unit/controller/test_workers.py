# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads that may be kept for ever: others go on, and sluiced ends."""

import subprocess
import sys
import threading

import pytest

from sluice_controller.services.workers import MOST_THREADS, SLOW_SECONDS, Workers

ENDS = """
import threading, time
from sluice_controller.services.workers import Workers
begun = threading.Event()
def hangs():
    begun.set()
    threading.Event().wait()
workers = Workers(1, "qmp", time.monotonic)
workers.submit(hangs)
assert begun.wait(60)
workers.close()
print("the end")
"""


class Scene:
    def __init__(self, most):
        self.now = 0.0
        self.workers = Workers(most, "test", lambda: self.now)
        self.let_go = threading.Event()

    def hang(self, count):
        """Tasks that all have begun."""
        begun = threading.Semaphore(0)

        def hangs():
            begun.release()
            assert self.let_go.wait(60)

        answers = [self.workers.submit(hangs) for _ in range(count)]
        assert all(begun.acquire(timeout=60) for _ in range(count))
        return answers


@pytest.fixture
def scene():
    found = Scene(2)
    yield found
    found.let_go.set()
    found.workers.close()


def test_all_is_done_in_its_order_and_answers(scene):
    done = []
    answers = [scene.workers.submit(lambda i=i: done.append(i) or -i) for i in range(50)]
    assert [answer.result(60) for answer in answers] == [-i for i in range(50)]
    assert sorted(done) == list(range(50))


def test_what_fails_says_so_and_the_next_is_done(scene):
    failing = [scene.workers.submit(lambda: 1 // 0) for _ in range(5)]
    assert all(isinstance(answer.exception(60), ZeroDivisionError) for answer in failing)
    assert scene.workers.submit(lambda: "next").result(60) == "next"


def test_a_few_run_at_a_time(scene):
    hanging = scene.hang(2)
    third = scene.workers.submit(lambda: "third")
    scene.now += SLOW_SECONDS / 2
    scene.workers.tend()
    with pytest.raises(TimeoutError):
        third.result(0.2)
    scene.let_go.set()
    assert third.result(60) == "third"
    assert all(answer.result(60) is None for answer in hanging)


def test_those_that_hang_keep_nobody_waiting(scene):
    scene.hang(2)
    third = scene.workers.submit(lambda: "third")
    scene.now += SLOW_SECONDS
    scene.workers.tend()
    assert third.result(60) == "third"


def test_there_is_an_end_to_those_that_hang(scene):
    for _ in range(MOST_THREADS // 2):
        scene.hang(2)
        scene.now += SLOW_SECONDS
    one_more = scene.workers.submit(lambda: "one more")
    with pytest.raises(TimeoutError):
        one_more.result(0.2)
    scene.let_go.set()
    assert one_more.result(60) == "one more"


def test_what_waits_at_the_end_is_given_up(scene):
    scene.hang(2)
    third = scene.workers.submit(lambda: "third")
    scene.workers.close()
    assert third.cancelled() and scene.workers.submit(lambda: "late").cancelled()


def test_a_process_ends_while_one_hangs():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr
