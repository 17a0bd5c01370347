# SPDX-License-Identifier: GPL-2.0-or-later
"""How long threads of a VM wait for a processor, and who is looked at."""

from concurrent.futures import wait as wait_for
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.easing import LADDER, Share, eased
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import AutoSettings, Grant, ShapingClass, Stream
from sluice_controller.domain.processors import Turns, wait_between
from sluice_controller.services.declared import Declared
from sluice_controller.services.processors import (
    REFUSED_S,
    STORED,
    WAIT_LASTS_S,
    Processors,
)
from sluice_controller.services.records import Records

MS = 1_000_000
OWN = Share(1024)
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


class SharesOfLibvirt:
    """Of the guest that has no stream; the other's and the unattached one's stay."""

    def __init__(self):
        self.share, self.refusal, self.set_to = OWN, None, []
        self.is_killed = False

    def read(self, name):
        assert name == "other"
        if self.refusal:
            raise Unavailable("processors of domain", name, self.refusal, "give it some")
        return self.share

    def set(self, name, before, share):
        assert self.read(name) == before
        if self.is_killed:
            raise SystemExit
        self.share = share
        self.set_to.append(share)


class Scene:
    """Two guests on a host, one of them with a stream; the threads' times are set here.

    Of the store and the log nothing is made up.
    """

    def __init__(self, store):
        self.store, self.now, self.uuid, self.here = store, 0.0, "u-1", True
        self.turns, self.asked, self.forgotten, self.fault = {}, [], [], None
        self.settings, self.shares = AutoSettings(enabled=True), SharesOfLibvirt()
        self.start()

    def start(self):
        """A sluiced on what the last one stored."""
        declared = Declared(self.store)
        self.records = Records(self.store, declared, lambda: self.now, lambda: self.now)
        self.processors = Processors(
            self,
            self,
            self.shares,
            self.store,
            declared,
            self.records,
            lambda: self.settings,
            lambda: self.now,
            lambda: self.now,
        )

    def guests(self):
        live = Description(shaper_id="sluice0")
        media = [Guest("media", self.uuid, "running", 1, live, live)] if self.here else []
        plain = Guest("plain", "u-9", "running", 1, Description(), Description())
        return [*media, Guest("other", "u-2", "running", 1, live, live), plain]

    def has(self, uuid):
        return uuid in {guest.uuid for guest in self.guests()}

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
        for one in [*self.processors._watched.values(), *self.processors._eased.values()]:
            if one.running:
                wait_for([one.running], 60)

    def seconds(self, count, waited_ms):
        for _ in range(count):
            self.second(waited_ms)

    def said(self):
        """Oldest first."""
        self.records.round()
        with self.store.transaction() as unit:
            entries = reversed(unit.decisions(0.0, self.now, 100))
        return [("(dry) " if e["dry_run"] else "") + e["sentence"] for e in entries]

    def stored(self):
        with self.store.transaction() as unit:
            return unit.value(STORED, {})

    @property
    def pressure(self):
        wait = self.processors.wait("media")
        return wait and wait.pressure


@pytest.fixture
def scene(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.remember_domain("other", "u-2")
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


# Who leaves processors to it

STARVED_MS, AT_EASE_MS = 600, 10


def test_a_vm_without_a_stream_gives_way_and_gets_its_share_back(scene):
    scene.seconds(8, STARVED_MS)
    assert scene.shares.set_to == [eased(OWN, 1), eased(OWN, 2)]
    (other,) = scene.processors.eased()
    assert (other["domain"], other["weight"], other["own_weight"]) == ("other", 16, 1024)
    scene.seconds(60, AT_EASE_MS)
    assert scene.shares.share == OWN
    assert scene.processors.eased() == [] and scene.stored() == {}
    kinds = [text.split(":")[0] for text in scene.said()]
    assert kinds == ["Stall risk on film"] * 2 + ["Room beside film"] * 2


def test_a_dry_run_says_and_changes_nothing(scene):
    scene.settings = AutoSettings(enabled=True, dry_run=True)
    scene.seconds(30, STARVED_MS)
    assert scene.shares.set_to == []
    said = scene.said()
    assert len(said) == 3
    assert said[0].startswith("(dry) Stall risk on film: media waits 600 ms of each second")


@pytest.mark.parametrize("settings", [AutoSettings(), AutoSettings(enabled=True, dry_run=True)])
def test_switching_it_off_gives_the_shares_back(scene, settings):
    scene.seconds(8, STARVED_MS)
    scene.settings = settings
    scene.second(STARVED_MS)
    assert scene.shares.share == OWN and scene.stored() == {}


def test_the_end_of_sluiced_gives_the_shares_back(scene):
    scene.seconds(8, STARVED_MS)
    scene.processors.close()
    assert scene.shares.share == OWN and scene.stored() == {}
    scene.processors.round()
    assert scene.shares.share == OWN and scene.processors.eased() == []


def test_a_killed_sluiced_leaves_them_to_the_next_one(scene):
    scene.seconds(8, STARVED_MS)
    assert scene.shares.share != OWN
    scene.settings = AutoSettings()
    scene.start()
    scene.look()
    assert scene.shares.share == OWN and scene.stored() == {}


def test_one_that_is_killed_between_storing_and_setting_leaves_the_own_share(scene):
    scene.shares.is_killed = True
    scene.seconds(5, STARVED_MS)
    assert scene.stored() and scene.shares.share == OWN
    scene.shares.is_killed = False
    scene.start()
    scene.look()
    assert scene.shares.share == OWN and scene.stored() == {}


def test_a_share_that_an_operator_sets_meanwhile_is_theirs(scene):
    scene.seconds(4, STARVED_MS)
    theirs = Share(300)
    scene.shares.share = theirs
    scene.seconds(20, STARVED_MS)
    scene.seconds(60, AT_EASE_MS)
    assert scene.shares.share == theirs and scene.stored() == {}


@pytest.mark.parametrize(
    "theirs", [{"weight": 300}, {"quota_us": 70_000}, {"period_us": 50_000}], ids=str
)
def test_of_a_share_that_an_operator_changes_in_part_the_rest_is_given_back(scene, theirs):
    scene.seconds(3 * len(LADDER) - 1, STARVED_MS)
    assert scene.shares.share.quota_us > 0
    scene.shares.share = replace(scene.shares.share, **theirs)
    scene.settings = AutoSettings()
    scene.second(STARVED_MS)
    assert scene.shares.share == replace(OWN, **theirs) and scene.stored() == {}


def test_a_vm_that_gets_a_stream_has_its_share_again(scene):
    scene.seconds(4, STARVED_MS)
    assert scene.shares.share != OWN
    with scene.store.transaction() as unit:
        unit.put_grant(Grant("other", "movie", 1))
        unit.put_stream(Stream("second", "other", "movie", 1e6))
    scene.processors.declared.fresh()
    scene.second(STARVED_MS)
    assert scene.shares.share == OWN


def test_where_libvirt_cannot_it_is_said_once_with_the_reason(scene):
    scene.shares.refusal = "cannot be shared out (cgroup CPU controller is not mounted)"
    scene.seconds(60, STARVED_MS)
    said = scene.said()
    assert [text for text in said if "cgroup CPU controller is not mounted" in text] == [said[1]]
    assert "no attached VM without a stream can leave it any" in said[2]
    assert len(said) == 3
    (other,) = scene.processors.eased()
    assert other["refused"] == scene.shares.refusal


def test_a_vm_that_does_not_run_keeps_its_record_and_one_that_is_gone_has_none(scene):
    scene.seconds(4, STARVED_MS)
    guests = scene.guests
    for off in (True, False):
        still = [Guest("other", "u-2", "shut off", -1)] if off else []
        scene.guests = lambda still=still: [g for g in guests() if g.uuid != "u-2"] + still
        scene.seconds(2, AT_EASE_MS)
        assert bool(scene.stored()) == off


def test_a_record_outlives_a_poll_that_has_not_begun(scene):
    scene.seconds(4, STARVED_MS)
    scene.start()
    scene.guests = lambda: []
    scene.has = lambda uuid: True
    scene.look()
    assert scene.stored()


def test_the_ladder_ends(scene):
    scene.seconds(3 * len(LADDER) + 2, STARVED_MS)
    assert scene.shares.share == eased(OWN, len(LADDER))
    scene.seconds(10, STARVED_MS)
    assert scene.shares.share == OWN
    assert "something else than the others' processors" in scene.said()[-1]
