# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that sleeps instead of booting, and those that only look like it."""

import pytest

from testbed.guest import ASLEEP_SECONDS, _Sleep
from testbed.processors import Threads

HALF, LONG = ASLEEP_SECONDS / 2, ASLEEP_SECONDS + 1


def threads(ran_s=0.0, waited_s=0.0):
    return {7: Threads(ran_s, waited_s)}


@pytest.mark.parametrize(
    ("first", "second", "sleeps"),
    [
        (threads(1.0), threads(1.1), True),
        (threads(1.0), threads(9.0), False),
        # It would run if it were let.
        (threads(1.0), threads(1.0, 9.0), False),
        # A thread has ended, and the others run.
        ({**threads(1.0), 8: Threads(50.0, 0.0)}, threads(9.0), False),
        # A kernel that does not count says nothing of a guest.
        ({}, {}, False),
    ],
)
def test_a_guest_sleeps_that_neither_runs_nor_waits_for_a_processor(first, second, sleeps):
    sleep = _Sleep(0.0)
    assert not sleep.lasts(first, HALF)
    assert sleep.lasts(second, HALF + LONG) is sleeps
