# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands to gates while QEMU takes its time."""

from concurrent.futures import Future

import pytest

from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.services.gate_setter import Gate, GateSetter, Shown

MS = 1_000_000
SECOND = 1000 * MS
LIVE = Description(shaper_id="sluice0")
NOTHING_SHOWN = Shown(0, 0)
GUEST = Guest("media", "u-1", "running", 1, LIVE, LIVE)


class Slow:
    """Workers, and a QEMU, that are done when the test says so."""

    def __init__(self):
        self.begun, self.taken = [], []

    def execute(self, _domain, _command, arguments):
        self.taken.append((arguments.get("target-ns"), arguments.get("window-percent")))

    def submit(self, what, *arguments):
        answer = Future()
        self.begun.append((answer, what, arguments))
        return answer

    def done(self):
        answer, what, arguments = self.begun.pop()
        answer.set_result(what(*arguments))

    def tend(self):
        pass

    def close(self):
        pass


class Asking:
    def __init__(self):
        self.slow = Slow()
        self.setter = GateSetter(self.slow, self.slow)
        self.now_ns = 10 * SECOND

    def want(self, target_ms, shrink=1.0, shown=NOTHING_SHOWN, guest=GUEST):
        self.now_ns += 100 * MS
        self.setter.want(guest, Gate(target_ms * MS), shrink, shown, self.now_ns)


@pytest.fixture
def asking():
    return Asking()


def test_one_command_is_on_its_way_and_the_latest_wish_follows(asking):
    for target_ms in (50, 40, 30, 20):
        asking.want(target_ms)
    assert len(asking.slow.begun) == 1
    asking.slow.done()
    asking.want(10)
    asking.slow.done()
    assert asking.slow.taken == [(50 * MS, 100), (10 * MS, 100)]


def test_what_a_window_should_lose_meanwhile_adds_up(asking):
    asking.want(50)
    for _ in range(2):
        asking.want(50, shrink=0.7)
    asking.slow.done()
    asking.want(50)
    asking.slow.done()
    asking.want(50)
    assert asking.slow.taken == [(50 * MS, 100), (50 * MS, 49)]
    assert asking.slow.begun == []


def test_a_target_that_hardly_moves_is_no_command(asking):
    asking.want(50)
    asking.slow.done()
    asking.want(51)
    assert asking.slow.begun == []
    asking.want(52)
    assert len(asking.slow.begun) == 1


def test_no_gate_where_there_is_none_is_no_command(asking):
    asking.want(0)
    assert asking.slow.begun == []


def test_a_page_from_before_the_command_is_no_reason_for_another(asking):
    asking.want(50)
    asking.slow.done()
    asking.want(50, shown=Shown(asking.now_ns, 0))
    assert asking.slow.begun == []
    asking.want(50, shown=Shown(asking.now_ns + 2 * SECOND, 0))
    assert len(asking.slow.begun) == 1


def test_a_guest_on_its_way_is_not_asked(asking):
    moving = Guest("media", "u-1", "paused", 1, LIVE, LIVE, moving=True)
    asking.want(50, guest=moving)
    assert asking.slow.begun == []


def test_a_qemu_that_words_each_refusal_anew_fills_no_log(asking, caplog):
    for number in range(30):
        asking.want(50)
        answer, _what, _arguments = asking.slow.begun.pop()
        why = f"refused {number} " + "x" * 5000
        answer.set_exception(Conflict("shaper", "media", why, "wait"))
        asking.now_ns += 2 * SECOND
        asking.want(50)
        asking.now_ns += 2 * SECOND
    assert 1 <= len(caplog.records) <= 4
    assert all(len(record.getMessage()) < 1000 for record in caplog.records)
    assert len(asking.setter.error("media")) < 1000
