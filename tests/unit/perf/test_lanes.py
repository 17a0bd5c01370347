# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.lanes: a load that begins or does not, and what is done in a second."""

from types import SimpleNamespace

import pytest

from perf import lanes


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping moves."""
    now = SimpleNamespace(seconds=100.0)

    def sleep(seconds):
        now.seconds += seconds

    times = SimpleNamespace(monotonic=lambda: now.seconds, sleep=sleep)
    monkeypatch.setattr(lanes, "time", times)
    return now


def test_a_load_has_begun_when_its_count_has_grown_by_enough(clock):
    lanes.begin(lambda: clock.seconds, begun=0.5)
    # It looks twenty times a second.
    assert 100.5 <= clock.seconds <= 100.56


def test_a_load_that_does_not_begin_is_told(clock):
    with pytest.raises(TimeoutError, match="no load after 60 s"):
        lanes.begin(lambda: 7, begun=1)


def test_all_counts_are_looked_at_for_the_same_time(clock):
    counts = [lambda: 3 * clock.seconds, lambda: 5 * clock.seconds]
    assert lanes.look(counts) == [pytest.approx(3), pytest.approx(5)]


def test_what_a_look_itself_takes_is_in_the_time(clock):
    def slow():
        clock.seconds += 0.1
        return 2 * clock.seconds

    # The first is read before the second, and each reading is as of its middle.
    assert lanes.look([slow, slow]) == [pytest.approx(2), pytest.approx(2)]


def test_a_saved_guest_goes_on_from_a_folder_of_its_name(tmp_path):
    gone_on = []
    guest = SimpleNamespace(name="web", restore=lambda *what: gone_on.append(what))
    lanes.Lane(guest, 0, {"stock": "<domain/>"}).go_on("stock", tmp_path)
    assert gone_on == [(tmp_path / "web", "<domain/>")]
