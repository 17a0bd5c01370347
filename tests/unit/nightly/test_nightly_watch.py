# SPDX-License-Identifier: GPL-2.0-or-later
"""Orders to end a run: the first one counts, and none disturbs the cleaning up."""

import os
import signal
import threading

import pytest

from nightly.decide import Reason
from nightly.watch import END_SIGNAL, Ended, Ending

BUSY = Reason("guests-busy", "Guest db2 moves 80 MB/s")


@pytest.fixture
def ending():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_SIGNAL)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Ending()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_ends_the_run_and_says_which(ending):
    with pytest.raises(Ended):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ending.reasons == [Reason("interrupted", "The run was ended by SIGTERM")]


def test_the_watcher_ends_the_run_from_its_thread(ending):
    thread = threading.Thread(target=ending.order, args=([BUSY],))
    with pytest.raises(Ended):
        thread.start()
        signal.sigtimedwait([signal.SIGRTMIN], 20)
    thread.join()
    assert ending.reasons == [BUSY]


def test_a_second_order_does_not_disturb_the_first(ending):
    with pytest.raises(Ended):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    ending.order([BUSY])
    assert [reason.code for reason in ending.reasons] == ["interrupted"]


def test_a_run_that_is_over_is_not_ended(ending):
    ending.over()
    os.kill(os.getpid(), signal.SIGTERM)
    ending.order([BUSY])
    assert ending.reasons == []
