# SPDX-License-Identifier: GPL-2.0-or-later
"""How long threads of a VM wait for a processor, and who is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Grant, ShapingClass, Stream
from sluice_controller.domain.processors import Turns, wait_between
from sluice_controller.services.declared import Declared
from sluice_controller.services.processors import REFUSED_S, WAIT_LASTS_S, Processors

MS = 1_000_000
SECOND = 1000 * MS

counts = st.dictionaries(
    st.integers(1, 6), st.builds(Turns, st.integers(0, 10**18), st.integers(0, 10**18))
)


def test_the_thread_that_waits_most_counts():
    before = {1: Turns(SECOND, 0), 2: Turns(SECOND, 50 * MS), 3: Turns(0, 0)}
    after = {1: Turns(2 * SECOND, 10 * MS), 2: Turns(SECOND, 850 * MS), 4: Turns(0, SECOND)}
    wait = wait_between(before, after, 2 * SECOND)
    assert wait.ms_per_second == 400
    assert wait.pressure == 2.0


@given(counts, counts, st.integers(-SECOND, 10 * SECOND))
def test_whatever_the_kernel_counts_a_wait_is_a_share_of_the_time_or_unknown(before, after, span):
    wait = wait_between(before, after, span)
    assert wait is None or 0 <= wait.ms_per_second <= 1000


def test_a_kernel_that_does_not_count_tells_nothing():
    assert wait_between({1: Turns(0, 0)}, {1: Turns(0, 0)}, SECOND) is None


# Who is looked at


class Scene:
    """Two guests on a host, one of them with a stream; the threads' times are set here."""

    def __init__(self, store):
        self.now, self.uuid, self.here = 0.0, "u-1", True
        self.turns, self.asked, self.forgotten, self.fault = {}, [], [], None
        self.processors = Processors(self, self, Declared(store), lambda: self.now)

    def guests(self):
        live = Description(shaper_id="sluice0")
        media = [Guest("media", self.uuid, "running", 1, live, live)] if self.here else []
        return [*media, Guest("other", "u-2", "running", 1, live, live)]

    def read(self, guest):
        self.asked.append(guest.uuid)
        if self.fault:
            raise self.fault
        return self.turns

    def forget(self, uuid):
        self.forgotten.append(uuid)

    def second(self, waited_ms):
        """A second in which the only thread waits so long."""
        self.now += 1
        waited_ns = self.turns.get(7, Turns(0, 0)).waited_ns + waited_ms * MS
        self.turns = {7: Turns(round(self.now * SECOND), waited_ns)}
        self.look()

    def look(self):
        self.processors.round()
        for seen in self.processors._watched.values():
            if seen.running:
                seen.running.result(60)

    @property
    def pressure(self):
        wait = self.processors.wait("media")
        return wait and wait.pressure


@pytest.fixture
def scene(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.put_class(ShapingClass("movie", is_stream=True))
        unit.put_grant(Grant("media", "movie", 1))
        unit.put_stream(Stream("film", "media", "movie", 1.5e6))
    yield Scene(store)
    store.close()


def test_only_a_vm_with_a_stream_is_looked_at_and_two_looks_make_a_wait(scene):
    scene.second(0)
    assert scene.pressure is None
    scene.second(100)
    assert scene.pressure == 0.5
    assert set(scene.asked) == {"u-1"}
    assert scene.processors.wait("other") is None


def test_a_wait_of_long_ago_is_not_shown(scene):
    scene.second(0)
    scene.second(100)
    scene.now += WAIT_LASTS_S + 1
    assert scene.pressure is None


def test_a_qemu_that_refuses_is_asked_more_seldom_and_then_seen_again(scene):
    scene.second(0)
    scene.fault = Unavailable("QEMU", "media", "does not answer", "wait")
    scene.second(100)
    assert scene.pressure is None
    asked = len(scene.asked)
    scene.second(100)
    assert len(scene.asked) == asked
    scene.fault = None
    scene.now += REFUSED_S
    scene.second(100)
    scene.second(100)
    assert scene.pressure == 0.5


def test_a_vm_that_is_gone_or_is_another_one_starts_anew(scene):
    scene.second(0)
    scene.second(100)
    scene.uuid = "u-3"
    scene.second(0)
    assert scene.pressure is None
    assert scene.forgotten == ["u-1"]
    scene.here = False
    scene.look()
    assert scene.forgotten == ["u-1", "u-3"]
