# SPDX-License-Identifier: GPL-2.0-or-later
"""Events of what holds, of sluiced's own services on libvirt's test driver."""

import pytest

from sluice_controller.domain.events import QUIET_S, Begin, Event, Wanted
from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services
from sluice_controller.services.reconcile import _Shaper


class Scene:
    def __init__(self, folder):
        given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), folder)
        self.services = Services(Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"}))
        self.services.watch.monotonic = lambda: self.now_s
        self.now_s = 0.0
        self.seen = self.services.events.reader(Begin(), Wanted())

    def round(self):
        """The events of the next look, after the quiet time of the last ones."""
        self.now_s += QUIET_S
        self.services.watch.round()
        return [(one.kind, one.sentence, one.subject.domains) for one in self.seen.next(0.0)]

    def refresh(self):
        self.services.host.refresh()
        return self.round()


@pytest.fixture
def scene(tmp_path):
    found = Scene(tmp_path)
    yield found
    found.services.stop()


def asked(services, query):
    client = create_app(services, "secret").test_client()
    answer = client.get(
        f"/v1/events?follow=false{query}", headers={"Authorization": "Bearer secret"}
    )
    return answer.status_code, answer.json


RUNNING = ("domain running", "test is running", ("test",))


def test_libvirt_that_is_away_is_told_and_its_domains_are_not_gone(scene):
    (first,) = scene.round()
    assert first[0] == "not in force" and "libvirt" in first[1]
    assert [kind for kind, *_ in scene.refresh()] == ["in force", "domain running"]
    assert scene.round() == []
    scene.services.host.close()
    (away,) = scene.round()
    assert away[0] == "not in force"
    # The driver makes its domain anew with the connection.
    assert [kind for kind, *_ in scene.refresh()] == ["in force"]


def test_a_domain_that_is_shut_off_and_one_that_is_gone_are_told(scene):
    assert scene.refresh() == [RUNNING]
    domain = scene.services.host.domain("test")
    domain.suspend()
    assert scene.refresh() == [("domain paused", "test is paused", ("test",))]
    domain.destroy()
    assert scene.refresh() == [("domain shut off", "test is shut off", ("test",))]
    domain.undefine()
    gone = "test is no domain of libvirt any more"
    assert scene.refresh() == [("domain gone", gone, ("test",))]


def test_what_is_not_in_force_is_told_with_its_reason_and_its_end(scene):
    scene.refresh()
    services = scene.services
    services.reconciler._known["test"] = _Shaper(1, error="QEMU refuses it")
    services.groups._said["disks"] = "no room"
    services.uplink_first._missing_now = "no port"
    told = scene.round()
    assert {kind for kind, *_ in told} == {"not in force"}
    assert {(sentence, domains) for _, sentence, domains in told} == {
        ("QEMU refuses it", ("test",)),
        ("group disks has no page: no room", ()),
        ("streams do not all go first on the uplink: no port", ()),
    }
    assert scene.round() == []
    services.reconciler._known.clear()
    assert scene.round() == [("in force", "no longer so: QEMU refuses it", ("test",))]


def test_a_verdict_on_a_stream_is_told_when_it_changes(scene):
    scene.refresh()
    services = scene.services
    services.catalogue.put_class("movie", {"is_stream": True})
    services.catalogue.put_grant("test", "movie", {})
    services.streams.put(
        "film", {"domain": "test", "class": "movie", "nominal_bytes_per_second": 1e6}
    )
    services.declared.fresh()
    kinds = [kind for kind, *_ in scene.round()]
    assert kinds == ["set class", "grant", "set stream", "stream unknown"]
    services.streams.report("film", {"window_ms": 1000, "stalls": 1, "stall_seconds": 0.5})
    ((kind, sentence, domains),) = scene.round()
    assert (kind, domains) == ("stream poor", ("test",)) and sentence.startswith("film: poor, ")
    services.streams.report("film", {"window_ms": 1000, "stalls": 1, "stall_seconds": 0.7})
    assert scene.round() == []


def test_the_events_of_a_domain_can_be_asked_for_when_it_is_gone(scene):
    scene.refresh()
    domain = scene.services.host.domain("test")
    domain.destroy()
    domain.undefine()
    scene.refresh()
    status, found = asked(scene.services, "&domain=test")
    assert (status, found[-1]["kind"]) == (200, "domain gone")
    assert asked(scene.services, "&domain=nothere")[0] == 404


def test_a_list_behind_an_event_has_all_that_are_there(scene):
    events = scene.services.events
    begin = scene.seen.cursor
    for i in range(250):
        events.add(Event(float(i), "gate on", "Gate on sda"))
    assert len(asked(scene.services, "")[1]) == 100
    assert len(asked(scene.services, f"&after={begin}")[1]) == 250
    assert len(asked(scene.services, f"&after={begin}&limit=7")[1]) == 7
