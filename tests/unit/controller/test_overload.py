# SPDX-License-Identifier: GPL-2.0-or-later
"""Overload control: from what a guest says of its servers to a limit of new connections."""

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.carried import Holding
from sluice_controller.domain.model import Grant, ShapingClass
from sluice_controller.domain.overload import (
    FLOOR_PER_SECOND,
    UNKNOWN_ROUNDS,
    Control,
    Server,
    decide,
    servers,
)
from sluice_controller.domain.queues import AUTO, OFF, Queue
from sluice_controller.domain.render import grant_json
from sluice_controller.domain.shaper_config import wanted
from sluice_controller.domain.takeover import merged
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.declared import Declared
from sluice_controller.services.overload import Overload

MOST = 200.0
QUEUE = Queue(connections_per_second=MOST, overload=AUTO)
GRANT = Grant("media", "web", 3, queues={"net-rx": QUEUE})
ROW = {
    "number": 0,
    "tag": 3,
    "port": 80,
    "queued": 7,
    "queue-max": 128,
    "open": 9,
    "open-max": 0,
}

counts = st.integers(0, 2**32 - 1)
some_servers = st.lists(
    st.builds(Server, st.integers(0, 15), st.integers(1, 65535), counts, counts, counts)
)
limits = st.floats(1, 1e12)


def server(queued, queue_max=128, tag=3, port=80):
    return Server(tag, port, queued, queue_max, 0)


def settle(of_class, looks=100, before=None, most=MOST):
    for _ in range(looks):
        before = decide(before, most, of_class).connections_per_second
    return before


@given(st.none() | st.floats(0, 1e13), limits, some_servers)
def test_no_word_of_a_guest_leads_beyond_the_floor_or_the_operators_limit(before, most, of_class):
    control = decide(before, most, of_class)
    if before is None or before >= FLOOR_PER_SECOND:
        assert control.connections_per_second >= FLOOR_PER_SECOND
    assert control.connections_per_second <= most
    assert control.reason


@given(limits, some_servers)
def test_a_full_server_is_cut_to_the_floor_and_an_empty_one_raised_to_the_limit(most, others):
    full = [*others, server(2**32 - 1, 10)]
    assert settle(full, most=most) == FLOOR_PER_SECOND
    empty = [replace(one, queued=0) for one in full]
    assert settle(empty, before=FLOOR_PER_SECOND, most=most) == most


@given(limits, st.floats(1, 1e12), some_servers)
def test_a_fuller_server_never_has_a_higher_limit(most, before, of_class):
    last = None
    for queued in (0, 1, 40, 65, 128, 1000):
        now = decide(before, most, [*of_class, server(queued)]).connections_per_second
        assert last is None or now <= last
        last = now


def test_between_empty_and_half_full_the_limit_stays():
    assert decide(50, MOST, [server(1)]).connections_per_second == 50
    assert decide(50, MOST, [server(64)]).connections_per_second == 50
    assert decide(50, MOST, [server(65)]).connections_per_second == 25
    assert decide(50, MOST, [server(0)]).connections_per_second == 60
    # Room for none: one waits.
    assert decide(50, MOST, [server(0, 0), server(1, 0)]).connections_per_second == 25


def test_the_reason_names_the_fullest_server():
    control = decide(None, MOST, [server(0, port=443), server(70)])
    assert control == Control(100, "port 80: 70 of 128 in the accept queue, more than half: cut")
    assert "no lower limit" in decide(1, MOST, [server(70)]).reason
    assert "the operator's limit holds" in decide(MOST, MOST, [server(0)]).reason
    assert decide(5, MOST, []).connections_per_second == MOST


def test_only_sound_records_are_read():
    bad = [None, {}, {**ROW, "queued": -1}, {**ROW, "port": 2**16}, {**ROW, "tag": True}]
    bad += [{**ROW, "queue-max": 2**32}, {**ROW, "open": "9"}, {**ROW, "tag": 16}]
    assert servers({"servers": [*bad, ROW]}) == [Server(3, 80, 7, 128, 9)]
    for answer in (None, [], {}, {"servers": {}}, {"servers": None}):
        assert servers(answer) == []
    assert len(servers({"servers": [ROW] * 100})) == 64


def test_the_shaper_is_told_the_limit_in_force_and_nothing_of_overload_control():
    classes = [ShapingClass("web", "Web")]

    def told(controls):
        config = wanted("media", [GRANT], classes, {}, {}, controls=controls)
        return config["classes"]["web"]["queues"]

    assert told(None) == [{"resource": "net-rx", "connections-per-second": 200}]
    lowered = {("media", "web"): Control(25.0, "why"), ("other", "web"): Control(1.0, "why")}
    assert told(lowered) == [{"resource": "net-rx", "connections-per-second": 25}]
    # The operator's limit may be a newer one than the last look's.
    assert told({("media", "web"): Control(1000.0, "why")}) == told(None)


def test_what_is_in_force_is_shown_with_its_reason():
    shaping_class = ShapingClass("web", "Web")
    shown = grant_json(GRANT, shaping_class, {}, {("media", "web"): Control(25.0, "why")})
    assert shown["overload"] == {"connections_per_second": 25.0, "reason": "why"}
    assert shown["queues"]["net-rx"]["connections_per_second"] == MOST
    unasked = grant_json(GRANT, shaping_class, {}, {})["overload"]
    assert unasked["connections_per_second"] == MOST and "reports no server" in unasked["reason"]
    off = replace(GRANT, queues={"net-rx": replace(QUEUE, overload=OFF)})
    assert grant_json(off, shaping_class, {}, {})["overload"] is None


@pytest.mark.parametrize(
    ("there", "expected"),
    [(25.0, QUEUE), (MOST, QUEUE), (300.0, Queue(connections_per_second=300.0))],
)
def test_a_domain_that_comes_brings_the_operators_limit_along(there, expected):
    """The limit of the other host's control stands in the shaper; a higher one is newer."""
    classes = {"web": ShapingClass("web", "Web")}
    in_shaper = replace(GRANT, queues={"net-rx": Queue(connections_per_second=there)})
    found = merged(Holding(classes, (in_shaper,)), Holding(classes, (GRANT,)))
    assert found.grants[0].queues == {"net-rx": expected}


class Scene:
    """Overload control with a store of its own, and what the guests say."""

    def __init__(self):
        self.store = SqlStore("sqlite://")
        with self.store.transaction() as unit:
            unit.put_class(ShapingClass("web", "Web"))
            unit.remember_domain("media", "u-1")
            unit.put_grant(GRANT)
        self.said = {"media": []}
        self.changed = []
        self.declared = Declared(self.store)
        self.kept = []
        self.start()

    def start(self):
        """sluiced, anew."""
        self.auto_limits = AutoLimits()
        self.overload = Overload(
            self.declared,
            self.said.__getitem__,
            self.auto_limits,
            self.changed.append,
            self.kept.append,
            json.loads(json.dumps(self.kept[-1] if self.kept else [])),
        )

    def declare(self, most):
        queue = replace(QUEUE, connections_per_second=most)
        with self.store.transaction() as unit:
            unit.put_grant(replace(GRANT, queues={"net-rx": queue}))
        self.declared.fresh()

    def look(self, *said):
        return self.hear(list(said))

    def hear(self, said):
        """The limit after a look; None is said while nobody tells anything."""
        self.said["media"] = said
        self.overload.round()
        return self.limit()

    def limit(self):
        found = self.auto_limits.controls().get(("media", "web"))
        return found and found.connections_per_second


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.store.close()


def test_a_lie_limits_only_the_class_that_it_is_told_of(scene):
    assert scene.look(server(128, tag=4)) == MOST
    assert scene.look(server(128, tag=3)) == MOST / 2
    assert list(scene.auto_limits.controls()) == [("media", "web")]


def test_the_shaper_is_changed_with_the_limit_alone(scene):
    scene.look(server(70))
    changes = scene.auto_limits.changes
    assert scene.changed == ["media"]
    scene.look(server(30))
    scene.look(server(31))
    assert (scene.auto_limits.changes, scene.changed) == (changes, ["media"])
    scene.look(server(0))
    assert scene.changed == ["media", "media"]


def test_a_cut_is_logged_once_and_so_is_its_end(scene, caplog):
    caplog.set_level(logging.INFO)
    for queued in (0, 70, 90, 128, 60):
        scene.look(server(queued))
    for _ in range(30):
        scene.look(server(0))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ")[2] for line in lines] == [
        "100 new connections/s",
        "200 new connections/s",
    ]


def test_a_guest_that_reports_as_it_likes_does_not_fill_the_log(scene, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(300):
        assert scene.look(server(128)) == MOST / 2
        assert scene.look() == MOST
    # A cut and its end in each minute of ten.
    assert len(caplog.records) == 20


def test_a_limit_outlives_a_restart(scene):
    assert [scene.look(server(128)) for _ in range(3)][-1] == MOST / 8
    scene.start()
    # The shaper is told before anybody looks.
    assert scene.limit() == MOST / 8
    assert scene.hear(None) == MOST / 8
    assert scene.look(server(128)) == MOST / 16
    for _ in range(30):
        scene.look(server(0))
    scene.start()
    assert scene.limit() is None


def test_a_limit_is_kept_while_nobody_tells_of_the_server(scene):
    """Its agent is restarted, or a busy guest does not answer: the server may be full still."""
    assert scene.look(server(128)) == MOST / 2
    for _ in range(UNKNOWN_ROUNDS):
        assert scene.hear(None) == MOST / 2
    assert "nobody tells" in scene.auto_limits.controls()["media", "web"].reason
    # An agent that does not come back.
    rates = [scene.hear(None) for _ in range(30)]
    assert rates == sorted(rates) and rates[-1] == MOST
    assert scene.look(server(128)) == MOST / 2
    assert scene.hear(None) == MOST / 2
    # It is there, and there is no such server.
    assert scene.look() == MOST


def test_without_an_agent_the_operators_limit_holds_from_the_start(scene):
    assert scene.hear(None) == MOST


def test_a_higher_limit_of_the_operators_is_in_force_at_once(scene):
    assert scene.look(server(20)) == MOST
    scene.declare(10 * MOST)
    assert scene.look(server(20)) == 10 * MOST
    assert scene.look(server(128)) == 5 * MOST
    # What was cut stays so.
    scene.declare(20 * MOST)
    assert scene.look(server(20)) == 5 * MOST
    scene.declare(MOST)
    assert scene.look(server(20)) == MOST


def test_without_reports_or_switched_off_the_operators_limit_holds(scene):
    assert scene.look(server(70)) == MOST / 2
    assert scene.look() == MOST
    scene.look(server(70))
    with scene.store.transaction() as unit:
        unit.put_grant(replace(GRANT, queues={"net-rx": replace(QUEUE, overload=OFF)}))
    scene.declared.fresh()
    assert scene.look(server(70)) is None
    assert scene.changed[-1] == "media"
