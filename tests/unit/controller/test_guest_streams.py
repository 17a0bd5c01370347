# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is asked for streams, how often, and what a stream's verdict is made of: a real store."""

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Grant, ShapingClass, Stream
from sluice_controller.domain.nominal import Learning, nominal
from sluice_controller.services.declared import Declared
from sluice_controller.services.guest_streams import SELDOM_S, GuestStreams
from sluice_controller.services.streams import Streams
from unit.controller.test_overload import ROW as SERVER_ROW
from unit.controller.test_stream_records import SECOND, row

REPORT = {"window_ms": 1000, "received_bytes": 875_000}


class QuietSampler:
    def live(self, _domain):
        return {"domains": {}}


class Host:
    """One guest with a channel, and its QEMU."""

    def __init__(self):
        self.has_channel, self.incarnation = True, 1
        self.rows, self.asked, self.refuses, self.fault = [], 0, False, None
        self.servers = []

    def guests(self):
        live = Description(shaper_id="sluice0", has_channel=self.has_channel)
        return [Guest("media", "u-1", "running", self.incarnation, live, live)]

    def execute(self, domain, command, arguments):
        assert (domain, command, arguments) == (
            "media",
            "query-shaper-channel",
            {"id": "sluice0"},
        )
        self.asked += 1
        if self.fault:
            raise self.fault
        if self.refuses:
            raise Conflict("shaper", "media", "has no channel", "restart it")
        return {"streams": self.rows, "servers": self.servers}


class Scene:
    def __init__(self, store):
        self.store, self.now, self.host = store, 0.0, Host()
        self.declared = Declared(store)
        self.guest = GuestStreams(self.host, self.host, self.declared, self.wall, self.time)
        self.streams = Streams(
            store,
            self.declared,
            QuietSampler(),
            self.wall,
            lambda _domain: store.transaction(),
            lambda stream: nominal(stream, Learning()),
            self.guest.of,
        )

    def time(self):
        return self.now

    def wall(self):
        return 1000.0 + self.now

    def look(self):
        self.guest.round()
        for asked in self.guest._asked.values():
            asked.running.result(60)

    def play(self, seconds, **changes):
        """A look a second; the guest's only record is this."""
        for _ in range(seconds):
            self.now += 1
            frames, last_ns = int(25 * self.now), int(self.now * SECOND)
            self.host.rows = [row(frames=frames, last_ns=last_ns, **changes)]
            self.look()

    def declare(self):
        with self.store.transaction() as unit:
            unit.put_stream(Stream("film", "media", "movie", 875e3))
        self.declared.fresh()

    @property
    def film(self):
        (film,) = self.streams.list_json()
        return film


@pytest.fixture
def scene():
    store = SqlStore("sqlite://")
    with store.transaction() as unit:
        unit.put_class(ShapingClass("movie", "Movie", is_stream=True))
        unit.remember_domain("media", "u-1")
        unit.put_grant(Grant("media", "movie", 3))
    yield Scene(store)
    store.close()


def test_a_guest_judges_its_own_stream_without_a_client(scene):
    scene.declare()
    assert (scene.film["source"], scene.film["source_at"]) == ("host", None)
    assert "neither a client nor the guest reports" in scene.film["reason"]
    scene.play(11)
    film = scene.film
    assert (film["verdict"], film["source"], film["source_at"]) == ("perfect", "vlc", 1011.0)
    assert film["reason"].startswith("film: ")
    scene.play(1, lost=30)
    assert scene.film["verdict"] == "poor"
    assert "30 lost" in scene.film["reason"]


def test_a_client_counts_before_the_guest(scene):
    scene.declare()
    scene.play(5, lost=3)
    scene.streams.report("film", REPORT)
    assert (scene.film["source"], scene.film["verdict"]) == ("client", "perfect")
    assert [one["source"] for one in scene.film["guest"]] == ["vlc"]
    scene.play(10)
    assert scene.film["source"] == "vlc"


def test_a_guests_word_is_no_fault_for_auto_shaping(scene):
    """Else a guest that lies would have others limited."""
    scene.declare()
    scene.play(5, late=1000, lost=1000)
    assert scene.streams.reports_so_far() == 0


def test_a_record_without_a_declared_stream_is_shown(scene):
    scene.look()
    scene.now = SELDOM_S
    scene.play(1)
    (told,) = scene.guest.of("media")
    assert (told.class_name, told.name, told.stream) == ("movie", "film", None)
    scene.declare()
    assert scene.guest.of("media")[0].stream == "film"
    assert scene.guest.of("other") == []


def test_a_record_of_a_class_that_is_not_granted_is_not_shown(scene):
    scene.declare()
    scene.play(1, tag=4)
    assert scene.guest.of("media") == []


def test_guests_are_asked_no_more_than_needed(scene):
    scene.look()
    scene.now += 0.5
    scene.look()
    assert scene.host.asked == 1, "no stream is declared"
    scene.declare()
    scene.look()
    assert scene.host.asked == 2
    scene.host.refuses = True
    scene.look()
    scene.now += 0.5
    scene.look()
    assert scene.host.asked == 3
    scene.now += SELDOM_S
    scene.host.refuses = False
    scene.look()
    assert scene.host.asked == 4
    scene.host.has_channel = False
    scene.look()
    assert scene.host.asked == 4


def test_two_users_records_of_one_name_are_two(scene):
    """Else any user of a guest could hide another one's stream behind a second record."""
    scene.declare()
    for second in range(11):
        scene.now += 1
        right = row(frames=25 * second, last_ns=second * SECOND)
        scene.host.rows = [right, row(number=1, frames=3, last_ns=SECOND)]
        scene.look()
    assert [one["frames"] for one in scene.film["guest"]] == [250, 3]
    assert scene.film["guest"][0]["verdict"] == "perfect"


def test_an_answer_that_cannot_be_read_is_said_once(scene, caplog):
    scene.declare()
    scene.host.fault = ValueError("Exceeds the limit (4300 digits)")
    caplog.set_level("INFO")
    for _ in range(3):
        scene.now += SELDOM_S
        scene.look()
    (said,) = [one.getMessage() for one in caplog.records if "streams" in one.getMessage()]
    assert "guest media" in said and "4300 digits" in said


def test_a_guest_that_starts_anew_has_said_nothing(scene):
    scene.declare()
    scene.play(3)
    scene.host.rows, scene.host.incarnation = [], 2
    scene.look()
    assert scene.guest.of("media") == []


def test_what_was_said_ages_while_qemu_does_not_answer(scene):
    scene.declare()
    scene.play(11)
    scene.host.refuses = True
    scene.now += 11
    scene.look()
    assert scene.film["source"] == "host"
    assert [one["fresh"] for one in scene.film["guest"]] == [False]


def test_a_server_is_as_full_as_it_was_until_qemu_is_silent_for_long(scene):
    scene.declare()
    scene.host.servers = [SERVER_ROW]
    scene.look()
    scene.host.refuses = True
    for _ in range(2):
        scene.now += SELDOM_S
        scene.look()
        assert [server.queued for server in scene.guest.servers("media")] == [7]
    scene.now += SELDOM_S
    scene.look()
    assert scene.guest.servers("media") is None
    scene.host.refuses = False
    scene.now += SELDOM_S
    scene.look()
    assert len(scene.guest.servers("media")) == 1
