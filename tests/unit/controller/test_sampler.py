# SPDX-License-Identifier: GPL-2.0-or-later
"""What the sampler keeps while the host, its clock or its disk fail it: real database and pages."""

import struct

import pytest

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database import store as store_module
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Grant, Settings, ShapingClass
from sluice_controller.services.ports import First, UplinkReading
from unit.controller.sampling import parts
from unit.controller.test_counters import MS, header, put

SECOND = 1000 * MS


class Host:
    """libvirt with one guest; while it is away no question is answered."""

    def __init__(self, page):
        live = Description(shaper_id="sluice0", page_path=str(page))
        self.guest = Guest("media", "u-1", "running", 1, live, live)
        self.away = False
        self.back_after_a_question = False

    def guests(self):
        if self.away:
            self.away = not self.back_after_a_question
            raise Unavailable("libvirt", "test", "cannot be reached", "start it")
        return [self.guest]


class Uptime:
    """The clock that nobody sets."""

    ns = 1000 * SECOND

    def __call__(self):
        return self.ns / SECOND


class Scene:
    def __init__(self, store, file):
        self.file, self.host = file, Host(file)
        self.uptime, self.now, self.writes = store.monotonic, 1_000_000.0, True
        found = parts(
            store,
            self.host,
            CountersPages(lambda: self.now_ns),
            lambda: self.now,
            monotonic=self.uptime,
        )
        self.sampler, self.records, self.declared = found.sampler, found.records, found.declared

    @property
    def now_ns(self):
        return self.uptime.ns

    def ticks(self, count, others=()):
        """`others`: names of classes by their tags."""
        for _ in range(count):
            self.uptime.ns += 100 * MS
            self.now += 0.1
            seq = self.now_ns // MS * 2
            page = put(header(), 0, 0, "default", seq % 2**32, bytes=self.now_ns // 1000)
            for tag in others:
                put(page, tag, 0, others[tag], seq % 2**32)
            struct.pack_into("<Q", page, 40, self.now_ns)
            self.file.write_bytes(page)
            self.sampler.tick(self.now_ns)
            if self.writes:
                self.records.round()

    def pass_time(self, seconds):
        """Of which there is one row of history, at its end."""
        self.uptime.ns += seconds * SECOND
        self.now += seconds
        self.ticks(1)

    def rate(self):
        (live,) = self.sampler.live()["domains"].values()
        return live["classes"]["default"]["blk-read"]["bytes_per_second"]


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}", Uptime())
    yield store
    store.close()


@pytest.fixture
def scene(store, tmp_path):
    return Scene(store, tmp_path / "media.page")


def history(store):
    with store.transaction() as unit:
        return unit.history("media", 0.0, 1e12, 10_000)


@pytest.mark.parametrize("back", [False, True])
def test_what_is_known_of_a_guest_outlasts_libvirt(scene, back):
    scene.ticks(11)
    scene.host.away, scene.host.back_after_a_question = True, back
    scene.ticks(1)
    assert scene.rate() == 1_000_000


def test_a_page_that_fails_as_nobody_foresaw_hides_no_other(scene, caplog):
    broken = Description(shaper_id="sluice0", page_path="/run/\0.page")
    other = Guest("broken", "u-0", "running", 1, broken, broken)
    scene.host.guests = lambda: [other, scene.host.guest]
    scene.ticks(11)
    live = scene.sampler.live()["domains"]
    assert live["media"]["classes"]["default"]["blk-read"]["bytes_per_second"] == 1_000_000
    # Python 3.13 says "character" for 3.11's "byte".
    assert not live["broken"]["page_ok"] and "embedded null" in live["broken"]["error"]
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1


def test_an_uplink_that_fails_as_nobody_foresaw_costs_no_guest_its_samples(scene, store, caplog):
    class Broken:
        def read(self, name):
            raise KeyError("ceil")

    scene.sampler.uplinks = Broken()
    with store.transaction() as unit:
        unit.put_settings(Settings(uplink="eno1"))
    scene.declared.fresh()
    scene.ticks(21)
    assert scene.rate() == 1_000_000 and len(history(store)) > 0
    assert scene.sampler.live()["uplink"] is None
    assert scene.sampler.observed()[1:] == (None, True)
    assert len([r for r in caplog.records if "uplink eno1" in r.getMessage()]) == 1


def test_the_streams_that_go_first_are_told_with_the_uplink(scene, store):
    class Card:
        def read(self, name):
            return UplinkReading(0, 0, 1000, 125e6, (name,))

    scene.sampler.uplinks = Card()
    scene.sampler.first = lambda: First(("film",), "news: media has no card now")

    def said(uplink_first):
        with store.transaction() as unit:
            unit.put_settings(Settings(uplink="eno1", uplink_first=uplink_first))
        scene.declared.fresh()
        scene.ticks(2)
        live = scene.sampler.live()["uplink"]
        return live["first"], live["first_reason"], set(scene.sampler.observed()[1].first)

    assert said(True) == (["film"], "news: media has no card now", {"film"})
    assert said(False) == ([], None, set())


@pytest.mark.parametrize(
    ("own", "named", "known"),
    [(125e6, 5e6, (5e6, True)), (125e6, 250e6, (125e6, False)), (None, 5e6, (5e6, True))],
)
def test_the_slower_link_counts(scene, store, own, named, known):
    class Card:
        def read(self, name):
            return UplinkReading(0, 0, 1000, own, (name,))

    scene.sampler.uplinks = Card()
    with store.transaction() as unit:
        unit.put_settings(Settings(uplink="eno1", link_bytes_per_second=named))
    scene.declared.fresh()
    scene.ticks(3)
    view = scene.sampler.observed()[1]
    assert (view.link_bytes_per_second, view.is_beyond) == known


def test_another_port_of_a_bond_is_no_burst(scene, store):
    """Its counters began at another time: their difference is of no second."""

    class Bond:
        reading = UplinkReading(0, 10, 1000, 125e6, ("eno1",))

        def read(self, name):
            return self.reading

    scene.sampler.uplinks = Bond()
    with store.transaction() as unit:
        unit.put_settings(Settings(uplink="bond0"))
    scene.declared.fresh()
    scene.ticks(12)
    Bond.reading = UplinkReading(0, 7_000_010, 9_000_000_000, 125e6, ("eno2",))
    for _ in range(12):
        scene.ticks(1)
        view = scene.sampler.observed()[1]
        assert (view.dropped, view.bytes_per_second) == (0, 0)


def test_much_history_that_is_too_old_is_gone_in_seconds(scene, store, monkeypatch):
    monkeypatch.setattr(store_module, "PRUNED_ROWS", 10)
    with store.transaction() as unit:
        unit.add_history([(scene.now, "other", {})] * 45)
    for _ in range(5):
        scene.pass_time(3700)
    with store.transaction() as unit:
        assert unit.history("other", 0.0, 1e12, 99) == []


# Names that QEMU gives


def test_a_name_that_was_never_granted_is_shown_nowhere_and_said_once(scene, store, caplog):
    """A QEMU that its guest has taken over may name another one each second."""
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.put_class(ShapingClass("batch", "Batch"))
        unit.put_grant(Grant("media", "batch", 2))
    scene.declared.fresh()
    for number in range(150):
        # Nor is a class of the host that the domain was not given, or under another tag.
        scene.ticks(1, {1: f"evil\x1b{number}", 2: "batch", 3: "web"})
    (live,) = scene.sampler.live()["domains"].values()
    assert live["classes"].keys() == {"default", "batch"}
    assert {key for row in history(store) for key in row.samples} == {
        "default/blk-read",
        "batch/blk-read",
    }
    said = [r.getMessage() for r in caplog.records if "not granted" in r.getMessage()]
    assert len(said) == 1 and said[0].isprintable()


def test_a_class_that_is_granted_and_revoked_comes_and_goes(scene, store, caplog):
    def shown():
        scene.ticks(2, {2: "batch"})
        (live,) = scene.sampler.live()["domains"].values()
        return set(live["classes"])

    assert shown() == {"default"}
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.put_class(ShapingClass("batch", "Batch"))
        unit.put_grant(Grant("media", "batch", 2))
    assert shown() == {"default", "batch"}
    with store.transaction() as unit:
        unit.delete_grant("media", "batch")
    assert shown() == {"default"}
    assert not [r for r in caplog.records if "not granted" in r.getMessage()]
