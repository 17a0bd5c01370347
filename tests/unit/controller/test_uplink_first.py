# SPDX-License-Identifier: GPL-2.0-or-later
"""Streams first on the uplink: sluiced's queue discipline, and when it is not there."""

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.guests import Description, Device, Guest
from sluice_controller.domain.model import Grant, Settings, ShapingClass, Stream
from sluice_controller.domain.uplink_first import (
    ASIDE_S,
    FIRST_STREAM,
    GREEDY_S,
    HANDLE,
    LINK_SHARE,
    MOST_STREAMS,
    OTHERS,
    ROOT_CLASS,
    Flow,
    Plan,
    commands,
    slots,
)
from sluice_controller.services.declared import Declared
from sluice_controller.services.ports import ClassReading, First, UplinkReading
from sluice_controller.services.uplink_first import RETRY_S, UplinkFirst

MAC = "52:54:00:aa:bb:01"
FILM = Stream("film", "media", "movie", 875_000.0)
FLOW = Flow("film", 0, (MAC,), (11,))
NUMBER = HANDLE | FIRST_STREAM


# Commands


def test_on_a_fresh_port_the_discipline_is_made_before_its_classes_and_filters():
    lines = commands("eno1", Plan((FLOW,), 5e6), None)
    assert lines[0] == "qdisc add dev eno1 root handle 51ce: htb default 2"
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["qdisc", "class", "class", "class", "filter", "filter"]
    assert "match ether src 52:54:00:aa:bb:01 match u8 0x2c 0xfc at 1 flowid 51ce:10" in lines[4]
    assert "match ether src 52:54:00:aa:bb:01 match u16 0x02c0 0x0fc0 at 0" in lines[5]


def rates(lines):
    """{class: (rate, ceiling, order)} in bits per second."""
    found = {}
    for line in lines:
        words = line.split()
        if words[0] == "class" and words[1] == "replace":
            value = dict(zip(words, words[1:], strict=False))
            rate, ceiling = (int(value[key].removesuffix("bit")) for key in ("rate", "ceil"))
            found[value["classid"]] = rate, ceiling, int(value["prio"])
    return found


@given(st.none() | st.floats(1e4, 1e11), st.integers(0, MOST_STREAMS))
def test_classes_promise_no_more_than_the_link_has_and_the_streams_come_first(rate_bps, count):
    flows = tuple(replace(FLOW, stream=f"s{n}", slot=n) for n in range(count))
    found = rates(commands("eno1", Plan(flows, rate_bps), None))
    whole, _, _ = found.pop("51ce:1")
    if rate_bps is not None:
        assert whole == pytest.approx(8 * LINK_SHARE * rate_bps, abs=1)
    assert sum(rate for rate, _, _ in found.values()) <= whole + count
    assert all(ceiling == whole for _, ceiling, _ in found.values())
    _, _, last = found.pop("51ce:2")
    assert all(order < last for _, _, order in found.values())
    assert len(found) == count


def test_another_plan_keeps_what_waits_and_removes_what_has_gone():
    there = {HANDLE | ROOT_CLASS, HANDLE | OTHERS, NUMBER, NUMBER + 1}
    lines = commands("eno1", Plan((FLOW,), None), there)
    assert not [line for line in lines if line.startswith("qdisc")]
    assert lines[0] == "filter del dev eno1 parent 51ce:"
    assert lines[-1] == "class del dev eno1 classid 51ce:11"


def test_a_stream_keeps_its_class_while_others_come_and_go():
    def named(*names):
        return [replace(FILM, name=name) for name in names]

    first = slots(named("a", "b"), {})
    assert first == {"a": 0, "b": 1}
    assert slots(named("c", "b"), first) == {"b": 1, "c": 0}
    many = slots(named(*(f"s{n:02}" for n in range(40))), first)
    assert len(many) == len(set(many.values())) == MOST_STREAMS


# The service


class Queues:
    """Ports as a kernel keeps them: the kernel's own discipline, sluiced's, or an operator's."""

    def __init__(self):
        self.has = {"eno1": {}, "eno2": {}}
        self.operators, self.lines, self.fault = {}, [], None

    def other(self, port):
        return self.operators.get(port)

    def owned(self):
        return [port for port, classes in self.has.items() if classes]

    def classes(self, port):
        if port not in self.has:
            raise OSError(f"there is no interface {port}")
        return self.has[port] or None

    def change(self, lines):
        if self.fault is not None:
            raise self.fault
        self.lines += lines
        for line in lines:
            words = dict(zip(line.split(), line.split()[1:], strict=False))
            if "classid" in words:
                number = HANDLE | int(words["classid"].partition(":")[2], 16)
                if "class del" in line:
                    del self.has[words["dev"]][number]
                else:
                    self.has[words["dev"]].setdefault(number, ClassReading(0, 0, 0))

    def make_fair(self, port):
        pass

    def remove(self, port):
        self.has[port] = {}

    def send(self, port, number, sent):
        self.has[port][number] = replace(
            self.has[port][number], bytes=self.has[port][number].bytes + sent
        )


class Uplinks:
    ports = ("eno1",)

    def read(self, name):
        return UplinkReading(0, 0, 0, None, self.ports)


class Scene:
    def __init__(self):
        self.store = SqlStore("sqlite://")
        with self.store.transaction() as unit:
            unit.put_class(ShapingClass("movie", "Movie", is_stream=True))
            unit.remember_domain("media", "u-1")
            unit.put_grant(Grant("media", "movie", 2))
            unit.put_stream(FILM)
        self.declared = Declared(self.store)
        card = Device("net", "net0", "vnet0", True, None, True, MAC)
        self.guest = Guest("media", "u-1", "running", 1, live=Description(devices=(card,)))
        self.queues, self.uplinks, self.now_s = Queues(), Uplinks(), 100.0
        self.start()
        self.settings(uplink="eno1", uplink_first=True)

    def start(self):
        self.service = UplinkFirst(
            self.declared, self, self.uplinks, self.queues, lambda: self.now_s
        )

    def guests(self):
        return [self.guest]

    def settings(self, **changes):
        with self.store.transaction() as unit:
            unit.put_settings(replace(unit.settings(), **changes))
        self.declared.fresh()

    def rounds(self, count=1, sent_bps=0.0):
        for _ in range(count):
            self.now_s += 1.0
            for port in self.uplinks.ports if sent_bps else ():
                if NUMBER in self.queues.has[port]:
                    self.queues.send(port, NUMBER, sent_bps / len(self.uplinks.ports))
            self.service.round()
        return self.service.now()


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.store.close()


def test_a_stream_goes_first_as_soon_as_its_frames_come_by(scene):
    assert scene.rounds() == First(reason="film: none of its frames comes by")
    assert "match u8 0x2c 0xfc" in scene.queues.lines[-2]  # 2 << 2 | 3, as a TOS
    assert scene.rounds(2, sent_bps=800_000) == First(("film",))
    lines = len(scene.queues.lines)
    assert scene.rounds(3, sent_bps=800_000) == First(("film",))
    assert len(scene.queues.lines) == lines
    # Paused, or sent by another way.
    assert scene.rounds(7) == First(reason="film: none of its frames comes by")


def test_nobody_who_has_not_asked_for_it_gets_it(scene):
    scene.settings(uplink_first=False)
    assert scene.rounds(3) == First()
    assert scene.queues.lines == []


@pytest.mark.parametrize("how", ["switched off", "no uplink", "stopped"])
def test_the_kernels_own_discipline_is_back_afterwards(scene, how):
    scene.rounds(2)
    assert scene.queues.has["eno1"]
    if how == "stopped":
        scene.service.stop()
    else:
        scene.settings(**{"uplink_first": False} if how == "switched off" else {"uplink": None})
        scene.rounds()
    assert scene.queues.has["eno1"] == {}


def test_what_an_ended_sluiced_left_is_taken_over_or_removed(scene):
    scene.rounds(2)
    scene.queues.has["eno2"] = dict(scene.queues.has["eno1"])
    scene.start()
    assert scene.rounds(3, sent_bps=800_000).streams == ("film",)
    assert scene.queues.has["eno2"] == {}
    scene.settings(uplink_first=False)
    scene.start()
    scene.rounds()
    assert scene.queues.has["eno1"] == {}


def test_a_bonds_ports_have_it_and_a_port_that_leaves_gives_it_back(scene):
    scene.uplinks.ports = ("eno1", "eno2")
    assert scene.rounds(3, sent_bps=800_000) == First(("film",))
    assert scene.queues.has["eno1"].keys() == scene.queues.has["eno2"].keys()
    scene.uplinks.ports = ("eno2",)
    scene.rounds()
    assert not scene.queues.has["eno1"] and scene.queues.has["eno2"]


def test_an_operators_discipline_stays_and_that_is_said_once(scene, caplog):
    scene.rounds(2)
    # In place of sluiced's.
    scene.queues.operators["eno1"], scene.queues.has["eno1"] = "cake 8001:", {}
    lines = len(scene.queues.lines)
    reason = scene.rounds(5).reason
    assert "cake 8001:" in reason and "tc qdisc del dev eno1 root" in reason
    assert len(scene.queues.lines) == lines
    assert len([r for r in caplog.records if "cake" in r.getMessage()]) == 1
    scene.queues.operators = {}
    assert scene.rounds(3, sent_bps=800_000).streams == ("film",)


def test_without_the_right_the_remedy_is_said_and_nothing_is_half_made(scene):
    scene.queues.fault = OSError("RTNETLINK answers: Operation not permitted")
    assert "CapabilityBoundingSet=CAP_NET_ADMIN" in scene.rounds(2).reason
    assert scene.queues.has["eno1"] == {}


def test_a_discipline_that_was_half_made_is_removed_again(scene):
    change = scene.queues.change

    def half(lines):
        change(lines[:2])
        raise OSError("Error: Specified qdisc kind is unknown.")

    scene.queues.change = half
    assert "unknown" in scene.rounds().reason
    assert scene.queues.has["eno1"] == {}


def fail_once(queues, method):
    """The next call of this method of the queues raises."""
    real = getattr(queues, method)

    def failing(*_arguments):
        setattr(queues, method, real)
        raise OSError("tc has not ended after 10 s")

    setattr(queues, method, failing)


@pytest.mark.parametrize("how", ["switched off", "stopped"])
@pytest.mark.parametrize("fault", ["change", "remove", "renamed"])
def test_after_a_fault_the_kernels_own_discipline_comes_back_all_the_same(scene, how, fault):
    scene.rounds(2)
    if fault == "change":
        fail_once(scene.queues, "change")
        scene.settings(link_bytes_per_second=5e6)
        assert "has not ended" in scene.rounds().reason
    elif fault == "remove":
        fail_once(scene.queues, "remove")
        scene.settings(uplink_first=False)
        scene.rounds()
    else:
        scene.queues.has["eno9"] = scene.queues.has.pop("eno1")
    assert any(scene.queues.has.values())
    if how == "stopped":
        scene.service.stop()
    else:
        scene.settings(uplink_first=False)
        scene.rounds(2)
    assert not any(scene.queues.has.values())


def test_a_plan_that_the_kernel_refuses_is_not_tried_each_second(scene):
    """Each try takes the place of the root discipline for a moment, and its queue is lost."""
    tries = []

    def half(lines):
        tries.append(lines)
        Queues.change(scene.queues, lines[:2])
        raise OSError("Error: TC classifier not found.")

    scene.queues.change = half
    for _ in range(10):
        assert "classifier not found" in scene.rounds().reason
    assert len(tries) == 1
    del scene.queues.change
    assert scene.rounds(int(RETRY_S)).reason == "film: none of its frames comes by"


def test_a_stream_that_sends_far_more_than_it_declares_goes_with_the_others(scene, caplog):
    scene.rounds(3, sent_bps=800_000)
    # Peaks of a film.
    assert scene.rounds(int(GREEDY_S) - 1, sent_bps=150e6).streams == ("film",)
    scene.rounds(3, sent_bps=800_000)
    scene.rounds(int(GREEDY_S) + 2, sent_bps=150e6)
    found = scene.rounds()
    assert found == First(reason="film: it sends far more than it declares")
    assert NUMBER not in scene.queues.has["eno1"]
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("film sends 150 MB/s and declares 875 kB/s" in line for line in said)
    scene.rounds(int(ASIDE_S))
    assert scene.rounds(3, sent_bps=800_000).streams == ("film",)


def test_of_a_stream_that_cannot_be_told_apart_the_reason_is_said(scene):
    scene.guest = replace(scene.guest, live=None)
    assert scene.rounds().reason == "film: media has no card now"
    with scene.store.transaction() as unit:
        unit.put_class(ShapingClass("default", "Default"))
        unit.put_stream(replace(FILM, class_name="default"))
    scene.declared.fresh()
    assert scene.rounds().reason == "film: frames of class default have no tag"


def test_the_link_beyond_sets_the_rate(scene):
    assert Settings().uplink_first is False
    scene.settings(link_bytes_per_second=5e6)
    scene.rounds()
    assert rates(scene.queues.lines)["51ce:1"][0] == round(8 * LINK_SHARE * 5e6)


def test_the_rate_of_a_link_beyond_is_followed_without_a_frame_losing_its_class(scene):
    rate = [None]
    scene.service.beyond = lambda: rate[0]
    scene.rounds(2)
    count = len(scene.queues.lines)
    rate[0] = 4e6
    scene.service.follow_rate()
    lines = scene.queues.lines[count:]
    assert [line.split()[:2] for line in lines] == [["class", "replace"]] * 3
    assert rates(lines)["51ce:1"][1] == round(8 * LINK_SHARE * 4e6)
    # It is the same plan for the next round.
    scene.rounds()
    assert len(scene.queues.lines) == count + 3
    # An operator's word counts where it is lower.
    scene.settings(link_bytes_per_second=3e6)
    scene.rounds()
    assert rates(scene.queues.lines)["51ce:1"][1] == round(8 * LINK_SHARE * 3e6)


def test_a_rate_that_tc_refuses_is_given_by_the_next_round(scene, caplog):
    scene.rounds(2)
    scene.service.beyond = lambda: 4e6
    fail_once(scene.queues, "change")
    scene.service.follow_rate()
    assert "keeps its rate until the next round" in caplog.text
    scene.rounds()
    assert rates(scene.queues.lines)["51ce:1"][1] == round(8 * LINK_SHARE * 4e6)


def test_another_rate_ends_the_wait_for_the_next_round(scene):
    scene.service.turn()
    count = len(scene.queues.lines)
    assert count
    scene.service.beyond = lambda: 4e6
    scene.service.wake()
    scene.service.turn()
    assert len(scene.queues.lines) == count + 3
