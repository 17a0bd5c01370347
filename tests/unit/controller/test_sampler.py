# SPDX-License-Identifier: GPL-2.0-or-later
"""What the sampler keeps while the host, its clock or its disk fail it: real database and pages."""

import json
import struct
import threading

import pytest
from sqlalchemy import event

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database import store as store_module
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Settings
from sluice_controller.services.sampler import Sampler
from unit.controller.test_auto import Meanwhile
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


class Scene:
    def __init__(self, store, file):
        self.file, self.host = file, Host(file)
        self.now_ns, self.now = 1000 * SECOND, 1_000_000.0
        self.sampler = Sampler(
            store, self.host, CountersPages(lambda: self.now_ns), None, lambda: self.now
        )

    def ticks(self, count):
        for _ in range(count):
            self.now_ns += 100 * MS
            self.now += 0.1
            page = put(header(), 0, 0, "default", bytes=self.now_ns // 1000)
            struct.pack_into("<Q", page, 40, self.now_ns)
            self.file.write_bytes(page)
            self.sampler.tick(self.now_ns)

    def rate(self):
        (live,) = self.sampler.live()["domains"].values()
        return live["classes"]["default"]["blk-read"]["bytes_per_second"]


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def scene(store, tmp_path):
    return Scene(store, tmp_path / "media.page")


def history(store):
    with store.transaction() as unit:
        return unit.history("media", 0.0, 10_000)


@pytest.mark.parametrize("back", [False, True])
def test_what_is_known_of_a_guest_outlasts_libvirt(scene, back):
    scene.ticks(11)
    scene.host.away, scene.host.back_after_a_question = True, back
    scene.ticks(1)
    assert scene.rate() == 1_000_000


def test_a_full_disk_costs_the_history_and_not_the_sampling(scene, store):
    scene.ticks(1)

    @event.listens_for(store.engine, "before_cursor_execute")
    def full(connection, cursor, statement, *_):
        if statement.startswith("BEGIN"):
            cursor.execute("PRAGMA max_page_count = 1")

    before = len(history(store))
    for _ in range(30):
        scene.ticks(100)
    assert scene.rate() == 1_000_000
    event.remove(store.engine, "before_cursor_execute", full)
    assert before < len(history(store)) < 300


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
    scene.sampler.settings_changed()
    scene.ticks(21)
    assert scene.rate() == 1_000_000 and len(history(store)) > 0
    assert scene.sampler.live()["uplink"] is None
    assert scene.sampler.observed()[1:] == (None, True)
    assert len([r for r in caplog.records if "uplink eno1" in r.getMessage()]) == 1


def test_history_is_cleared_of_what_is_old_after_the_clock_was_set_back(scene, store):
    scene.ticks(1)
    scene.now -= 7 * 86400
    first = scene.now
    with store.transaction() as unit:
        unit.add_history([(first - 3700, "media", {})])
    scene.ticks(1200)
    assert history(store)[-1].at >= first


def test_much_history_that_is_too_old_is_gone_in_seconds(scene, store, monkeypatch):
    monkeypatch.setattr(store_module, "PRUNED_ROWS", 10)
    with store.transaction() as unit:
        unit.add_history([(scene.now - 7 * 86400, "media", {})] * 45)
    scene.ticks(70)
    assert all(row.at > scene.now - 86400 for row in history(store))


def test_settings_that_are_changed_while_they_are_read_are_not_overlooked(store):
    meanwhile = Meanwhile(store)
    sampler = Sampler(meanwhile, Host("none"), None, None, lambda: 1.0)

    def change():
        with store.transaction() as unit:
            unit.put_settings(Settings(uplink="eno1"))
        sampler.settings_changed()

    other = threading.Thread(target=change)

    def goes_as_far_as_it_can():
        other.start()
        other.join(1.0)

    meanwhile.then = goes_as_far_as_it_can
    sampler.settings_changed()
    other.join()
    assert sampler._uplink_name == "eno1"


# Long histories

ROWS_AT_ONCE, POINTS = 1000, 2000


@pytest.fixture
def rows_read(store):
    """The rows of history that each unit of work has read."""
    found = []

    def deserialize(text):
        found[-1] += 1
        return json.loads(text)

    store.engine.dialect._json_deserializer = deserialize
    event.listen(store.engine, "begin", lambda connection: found.append(0))
    return found


@pytest.mark.parametrize(("step", "most"), [(1.0, POINTS + ROWS_AT_ONCE), (60.0, 5000)])
def test_a_question_reads_no_more_than_it_answers_and_a_slice_at_a_time(
    scene, store, rows_read, step, most
):
    with store.transaction() as unit:
        unit.add_history([(at, "media", {"batch/blk-read": [at, 5, 0, 1]}) for at in range(5000)])
    rows_read.clear()
    answer = scene.sampler.history("media", 0.0, step)
    assert sum(rows_read) <= most and max(rows_read) <= ROWS_AT_ONCE
    assert answer["at"][-1] == 4999 // step * step
    assert answer["at"][0] == (3000.0 if step == 1.0 else 0.0)
