# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto-shaping sees: the real database, sampler and pages, on a host of one guest."""

import struct
import threading
from contextlib import contextmanager

import pytest

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.auto_words import UNHEEDED
from sluice_controller.domain.beyond import RoundTrip
from sluice_controller.domain.errors import NotFound, Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import Grant, Settings, ShapingClass, Stream
from sluice_controller.domain.scheduling import Scheduling, Window
from sluice_controller.services import streams as streams_module
from sluice_controller.services.ports import UplinkReading
from unit.controller.sampling import parts
from unit.controller.test_counters import MS, header, put

NET_TX = 2
SECOND = 1000 * MS


class OneGuest:
    """The port to libvirt: one guest, whose page is a file here."""

    def __init__(self, page):
        live = Description(shaper_id="sluice0", page_path=str(page))
        self.guest = Guest("media", "u-1", "running", 1, live, live)

    def connection(self):
        return {"connected": True}

    def guests(self):
        return [self.guest]


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        for name in ("default", "batch", "movie"):
            unit.put_class(ShapingClass(name, name, is_stream=name == "movie"))
        unit.put_class(ShapingClass("backup", "Backup", unmanaged=True))
        limits = {"net-tx": Limit(30e6), "blk-read": Limit(40e6)}
        scheduling = {
            "net-tx": Scheduling(4e6),
            "blk-read": Scheduling(window=Window(20_000_000, 65536)),
        }
        unit.put_grant(Grant("media", "batch", 1, (), limits, scheduling))
        unit.put_grant(Grant("media", "movie", 2))
        unit.put_grant(Grant("media", "backup", 3))
        unit.put_stream(Stream("film", "media", "movie", 1.5e6))
    yield store
    store.close()


@pytest.fixture
def auto(store, tmp_path):
    """After two looks at a page on which every class sent 1 MB in the second between."""
    file = tmp_path / "media.page"
    now_ns = [0]
    found = parts(store, OneGuest(file), CountersPages(lambda: now_ns[0]), lambda: 1.0)
    for at_ms, sent in ((0, 0), (1000, 1_000_000)):
        page = header()
        for tag, name in enumerate(("default", "batch", "movie", "backup")):
            put(page, tag, NET_TX, name, seq=2 + 2 * at_ms, bytes=sent)
            put(page, tag, 0, name)
        file.write_bytes(page)
        now_ns[0] = at_ms * MS
        found.sampler.tick(now_ns[0])
    return found.auto


def test_the_rest_of_a_vm_without_an_agent_may_be_the_stream(auto, store):
    with store.transaction() as unit:
        unit.delete_stream("film")
        unit.put_stream(Stream("tv", "media", "default", 1.5e6))
    auto.declared.fresh()
    seen = auto._observe(2000 * MS)
    (tv,) = seen.streams
    assert (tv.class_name, tv.net_bytes_per_second) == ("default", 1_000_000)
    assert {load.class_name for load in seen.background} == {"batch", "movie"}


def test_an_unmanaged_class_is_no_background_and_counts_on_the_link(auto):
    seen = auto._observe(2000 * MS)
    assert {load.class_name for load in seen.background} == {"default", "batch"}
    assert seen.unmanaged_net_bytes_per_second == 1_000_000
    assert [view.class_name for view in seen.streams] == ["movie"]


def test_what_is_reserved_comes_with_the_load(auto):
    loads = {load.key: load for load in auto._observe(2000 * MS).background}
    network = loads["media", "batch", "net-tx"]
    assert (network.reserved, network.own_limit) == (4e6, 30e6)
    assert loads["media", "batch", "blk-read"].reserved == 65536 * 50
    assert loads["media", "default", "net-tx"].reserved == 0


def test_a_reservation_that_is_given_later_is_seen_once_the_stores_thread_has_looked(auto, store):
    auto._observe(2000 * MS)
    with store.transaction() as unit:
        unit.put_grant(Grant("media", "batch", 1, (), {}, {"net-tx": Scheduling(9e6)}))
    auto.records.round()
    loads = {load.key: load for load in auto._observe(3000 * MS).background}
    assert loads["media", "batch", "net-tx"].reserved == 9e6
    assert loads["media", "batch", "net-tx"].own_limit is None


# A link beyond the host


# Of a page's header.
HEARTBEAT = 40


class FullUplink:
    """8 MB leave in each second by an interface of 1 Gbit/s."""

    sent = 0

    def read(self, name):
        self.sent += 8_000_000
        return UplinkReading(0, 0, self.sent, 125e6, (name,))


def test_round_trips_hold_the_uplink_unless_the_operator_heeds_none(auto, store, tmp_path):
    with store.transaction() as unit:
        unit.put_settings(Settings(uplink="eno1"))
    now_ns = [0]
    found = parts(
        store, OneGuest(tmp_path / "media.page"), CountersPages(lambda: now_ns[0]), lambda: 1.0,
        FullUplink(), trips_of=lambda _domain: ((2, RoundTrip(now_ns[0], 0.18, 0.02)),),
    )  # fmt: skip
    looks = iter(range(1, 100))

    def look():
        now_ns[0] = next(looks) * SECOND
        found.sampler.tick(now_ns[0])
        found.auto.tick(now_ns[0])
        return found.auto.beyond.rate()

    look()
    assert look() is None
    assert found.auto.put({"enabled": True})["round_trips"] is True
    assert look() is not None
    off = found.auto.put({"round_trips": False})
    assert UNHEEDED in off["sentences"]
    assert look() is None
    found.auto.put({"round_trips": True})
    assert look() is not None
    found.auto.put({"enabled": False})
    assert look() is None


@pytest.mark.parametrize(("round_trip_s", "source"), [(0.021, "learnt"), (0.18, "supposed")])
def test_no_rate_is_learnt_while_a_link_beyond_holds_the_stream_up(
    store, tmp_path, round_trip_s, source
):
    tv = Stream("film", "media", "movie")
    with store.transaction() as unit:
        unit.put_settings(Settings(uplink="eno1"))
        unit.put_stream(tv)
    now_ns, file = [0], tmp_path / "media.page"
    found = parts(
        store, OneGuest(file), CountersPages(lambda: now_ns[0]), lambda: 1.0, FullUplink(),
        trips_of=lambda _domain: ((2, RoundTrip(now_ns[0], round_trip_s, 0.02)),),
    )  # fmt: skip
    found.auto.put({"enabled": True})
    for second in range(60):
        page = header()
        struct.pack_into("<Q", page, HEARTBEAT, (1 + second) * SECOND)
        put(page, 2, NET_TX, "movie", seq=2 + 2 * second, bytes=second * 500_000)
        file.write_bytes(page)
        now_ns[0] = (1 + second) * SECOND
        found.sampler.tick(now_ns[0])
        found.auto.tick(now_ns[0])
    assert found.auto.nominals.now(tv).source == source


# What is not seen

SAVED = {"disk": {"level": 40e6, "caps": [["media", "batch", "blk-read", 20e6]]}}


class Host(OneGuest):
    """As libvirt is when sluiced starts, until it `answers`."""

    def __init__(self, page):
        super().__init__(page)
        self.answers = False

    def connection(self):
        return {"connected": self.answers}

    def guests(self):
        if not self.answers:
            raise Unavailable("libvirt", "test", "cannot be reached", "start it")
        return [self.guest]


class Started:
    """A sluiced that starts on a host that is up for long and holds what it held before."""

    def __init__(self, store, file):
        self.now_ns = 10**6 * SECOND
        self.file, self.host = file, Host(file)
        self.moved, self.beats, self.read_ms = 0, True, 10
        found = parts(store, self.host, CountersPages(lambda: self.now_ns), lambda: 1.0)
        self.sampler, self.records = found.sampler, found.records
        self.limits, self.auto = found.limits, found.auto

    def _refresh(self):
        """2 MB/s of everything, and a stream whose reads take so long."""
        self.moved += 200_000
        page = header()
        struct.pack_into("<Q", page, 40, self.now_ns)
        done = self.moved // 131_072
        for tag, name in enumerate(("default", "batch", "movie")):
            put(
                page, tag, 0, name, self.moved % 2**32, bytes=self.moved, requests=done,
                completed_requests=done, service_ns=done * self.read_ms * MS,
            )  # fmt: skip
        self.file.write_bytes(page)

    def run(self, seconds):
        for _ in range(round(10 * seconds)):
            self.now_ns += 100 * MS
            if self.beats:
                self._refresh()
            self.sampler.tick(self.now_ns)
            self.auto.tick(self.now_ns)
            self.records.round()
            yield self.limits.snapshot()


@pytest.fixture
def started(store, tmp_path):
    with store.transaction() as unit:
        unit.put_value("auto", {"enabled": True})
        unit.put_value("auto-state", SAVED)
    return Started(store, tmp_path / "media.page")


KEY = ("media", "batch", "blk-read")


def test_a_start_goes_on_from_what_is_held(started):
    for held in started.run(5):
        assert held == {KEY: 20e6}
    started.host.answers = True
    for held in started.run(10):
        assert held[KEY] >= 20e6


def test_what_was_held_and_never_comes_back_is_let_go_for_good(started, store):
    *_, held = started.run(33)
    assert held == {}
    with store.transaction() as unit:
        assert unit.value("auto-state", None) == {}


def test_a_page_that_is_not_refreshed_loosens_nothing(started):
    started.host.answers = True
    *_, held = started.run(10)
    started.beats = False
    list(started.run(2))
    assert started.sampler.live()["domains"]["media"]["page_ok"]
    *_, held = started.run(0.5)
    assert held and not started.sampler.live()["domains"]["media"]["page_ok"]
    for now in started.run(20):
        assert now == held


@pytest.mark.parametrize(("nominal_bps", "is_greedy"), [(1e6, True), (1.9e6, False)])
def test_a_rehearsal_cuts_for_no_stream_that_moves_more_than_it_declares(
    started, store, nominal_bps, is_greedy
):
    with store.transaction() as unit:
        unit.put_stream(Stream("film", "media", "movie", nominal_bps))
    started.auto.put({"dry_run": True})
    started.host.answers, started.read_ms = True, 400
    list(started.run(5))
    before = len(started.auto.log())
    list(started.run(30))
    assert len(started.auto.log()) == before + (0 if is_greedy else 3)
    assert started.limits.snapshot() == {}


# While the store takes its time


def test_a_change_of_settings_that_waits_for_the_store_holds_up_no_tick(
    started, store, monkeypatch
):
    asked, transaction = threading.Event(), store.transaction

    def asking():
        asked.set()
        return transaction()

    monkeypatch.setattr(store, "transaction", asking)
    put = threading.Thread(target=started.auto.put, args=({"dry_run": True},), daemon=True)
    tick = threading.Thread(target=started.auto.tick, args=(started.now_ns,), daemon=True)
    with transaction():
        put.start()
        assert asked.wait(60)
        tick.start()
        tick.join(60)
        assert not tick.is_alive() and put.is_alive()
    put.join(60)
    assert started.auto.status()["dry_run"]


# What clients report

REPORT = {"window_ms": 1000, "received_bytes": 875_000}
STALLED = {**REPORT, "stalls": 1, "stall_seconds": 0.5}


class Clock:
    """The host's time of day."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def told(store, clock):
    """(the streams, a function: whether the next tick learns of a stall)"""
    found = parts(store, OneGuest("none"), None, clock)
    streams, auto = found.streams, found.auto
    now_ns = [10**6 * SECOND]

    def tick():
        clock.now += 0.1
        now_ns[0] += 100 * MS
        (view,) = auto._observe(now_ns[0]).streams
        return view.stalled

    return streams, tick


@pytest.mark.parametrize("step_s", [0.0, 3600.0, -3600.0])
def test_a_stall_is_seen_once_whatever_the_clock_is_set_to(told, clock, step_s):
    streams, tick = told
    streams.report("film", STALLED)
    clock.now += step_s
    assert [tick() for _ in range(5)] == [True, False, False, False, False]


def test_what_was_reported_in_a_time_to_come_is_forgotten(told, clock):
    streams, _tick = told
    streams.report("film", STALLED)
    clock.now -= 3600
    for _ in range(3):
        clock.now += 1
        assert streams.report("film", REPORT) == {"verdict": "perfect"}
    assert len(streams._memory["film"].reports) == 3


def test_of_a_client_that_floods_the_newest_reports_are_known(told, monkeypatch):
    streams, tick = told
    monkeypatch.setattr(streams_module, "MOST_REPORTS", 5)
    monkeypatch.setattr(streams_module, "MOST_HISTORY", 3)
    for _ in range(8):
        streams.report("film", REPORT)
    assert len(streams._memory["film"].reports) == 5
    assert len(streams.history("film", 0.0)) == 3
    streams.report("film", STALLED)
    assert [tick() for _ in range(2)] == [True, False]


def test_a_report_for_a_stream_that_is_removed_meanwhile_is_no_later_ones(store, clock):
    meanwhile = Meanwhile(store)
    streams = parts(meanwhile, OneGuest("none"), None, clock).streams

    def remove():
        with store.transaction() as unit:
            unit.delete_stream("film")

    change_something(store)
    meanwhile.then = remove
    with pytest.raises(NotFound):
        streams.report("film", REPORT)
    with store.transaction() as unit:
        assert unit.reports("film", 0.0, 1e12, 9) == []


def change_something(store):
    """What is declared must be read anew."""
    with store.transaction() as unit:
        unit.put_class(ShapingClass("other", "Other"))


class Meanwhile:
    """The store; `then` is done by another thread once the next unit of work is over."""

    def __init__(self, store):
        self.store, self.then = store, None

    @property
    def changes(self):
        return self.store.changes

    @contextmanager
    def transaction(self):
        with self.store.transaction() as unit:
            yield unit
        then, self.then = self.then, None
        if then:
            then()


def test_a_stream_that_is_set_while_the_list_is_read_is_not_overlooked(store, clock):
    with store.transaction() as unit:
        unit.put_grant(Grant("media", "movie", 2))
    meanwhile = Meanwhile(store)
    streams = parts(meanwhile, OneGuest("none"), None, clock).streams
    news = {"domain": "media", "class": "movie", "nominal_bytes_per_second": 1e6}
    change_something(store)
    meanwhile.then = lambda: streams.put("news", news)
    streams.all()
    assert {stream.name for stream in streams.all()} == {"film", "news"}


def test_a_stream_follows_a_domain_that_is_renamed(told, store):
    streams, _tick = told
    assert [stream.domain for stream in streams.all()] == ["media"]
    with store.transaction() as unit:
        unit.remember_domain("films", "u-1")
    assert [stream.domain for stream in streams.all()] == ["films"]
