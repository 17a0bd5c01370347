# SPDX-License-Identifier: GPL-2.0-or-later
"""What reaches a shaper that refuses some, or that others change: the real catalogue."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import event

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Conflict, Unavailable
from sluice_controller.domain.guests import Description, Device, Guest
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import Assignment, Grant, Rule, ShapingClass
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.locks import DomainLocks
from sluice_controller.services.reconcile import SHAPES_AGE_S, WORKERS, Reconciler
from sluice_controller.services.takeover import TakeOver
from sluice_controller.services.workers import SLOW_SECONDS
from unit.controller.pushing import finish


class OneGuest:
    def guests(self):
        live = Description(shaper_id="sluice0")
        return [Guest("web1", "u-1", "running", 1, live, live)]

    def has(self, uuid):
        return any(guest.uuid == uuid for guest in self.guests())


class NoAgents:
    def set_targets(self, paths):
        pass

    def status(self, name):
        return {"connected": False}


class OneAgent:
    """Of a guest in which these processes run; the rules that it was given."""

    def __init__(self, processes):
        self.table = {"processes": processes, "truncated": False}
        self.rules = None

    def set_targets(self, paths):
        pass

    def status(self, name):
        return {"connected": True, "boot_id": "b-1"}

    def max_tag(self, name):
        return 15

    def processes(self, name):
        return self.table

    def set_rules(self, name, payload):
        self.rules = [rule["id"] for rule in payload["rules"]]


class NoMetadata:
    def __init__(self):
        self.written = []

    def write(self, name, text, tuned=None):
        self.written.append(text)


class EarlierQemu:
    """Knows no weights."""

    def __init__(self):
        self.done = []

    def query(self, domain, shaper_id):
        return {"id": shaper_id, "classes": [], "ceiling": {}}

    def execute(self, domain, command, arguments):
        name = arguments.get("class")
        if any("weight" in str(key) for key in _keys(arguments)):
            told = f"refused {command} (Parameter 'weight' is unexpected)"
            raise Conflict("shaper of domain", domain, told, "see the daemon's log")
        self.done.append(name)


def _keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.remember_domain("web1", "u-1")
        unit.put_stored_xml("web1", {"original": "", "attached": "", "changes": {}})
        for tag, (name, weight) in enumerate((("batch", 300), ("movie", None)), start=1):
            given = {} if weight is None else {"weight": weight}
            unit.put_class(ShapingClass(name, name, **given))
            unit.put_grant(Grant("web1", name, tag, (), {"blk-read": Limit(1e6)}))
    yield store
    store.close()


@pytest.fixture
def qemu():
    return EarlierQemu()


@pytest.fixture
def metadata():
    return NoMetadata()


@pytest.fixture
def reconciler(store, qemu, metadata):
    found = Reconciler(
        store, OneGuest(), qemu, NoAgents(), AutoLimits(), lambda name: None,
        lambda: 0.0, lambda: 0.0, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), lambda: 0.0),
    )  # fmt: skip
    yield found
    found.close()


def test_a_refused_command_does_not_keep_the_others_from_the_shaper(reconciler, qemu):
    reconciler.round()
    finish(reconciler, "web1")
    assert "movie" in qemu.done and "batch" not in qemu.done


def test_what_was_refused_is_said(reconciler, qemu, caplog):
    reconciler.round()
    finish(reconciler, "web1")
    assert "shaper of domain 'web1' refused shaper-set-class" in caplog.text


def test_what_a_shaper_refuses_is_carried_all_the_same(reconciler, qemu, metadata):
    reconciler.round()
    finish(reconciler, "web1")
    reconciler.round()
    finish(reconciler, "web1")
    assert '"weight": 300' in metadata.written[0]
    reconciler.round()
    finish(reconciler, "web1")
    assert len(metadata.written) == 1


class Qemu:
    """Holds what it is told, and counts the changes."""

    def __init__(self):
        self.classes, self.generation, self.asked = {}, 1, 0

    def query(self, domain, shaper_id):
        self.asked += 1
        return {"id": shaper_id, "classes": list(self.classes.values()), "ceiling": []}

    def execute(self, domain, command, arguments):
        self.generation += 1
        assert command == "shaper-set-class"
        row = {key: value for key, value in arguments.items() if key != "id"}
        self.classes[row["class"]] = row

    def remove(self, name):
        self.generation += 1
        del self.classes[name]


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def shared(store, metadata):
    """(a function that lets that many seconds pass in rounds, the QEMU)"""
    qemu, clock = Qemu(), Clock()
    found = Reconciler(
        store, OneGuest(), qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), clock),
    )  # fmt: skip

    def passes(seconds):
        for _ in range(seconds):
            found.round()
            finish(found, "web1")
            clock.now += 1.0

    yield passes, qemu
    found.close()


@pytest.mark.parametrize("after_seconds", [1, 2, 3, 9])
def test_what_someone_else_changes_is_put_back_however_soon(shared, after_seconds):
    passes, qemu = shared
    passes(after_seconds)
    assert set(qemu.classes) == {"default", "batch", "movie"}
    qemu.remove("movie")
    passes(4)
    assert "movie" in qemu.classes


def test_a_shaper_that_nobody_changes_is_left_alone(shared):
    passes, qemu = shared
    passes(4)
    generation, asked = qemu.generation, qemu.asked
    passes(20)
    assert (qemu.generation, qemu.asked) == (generation, asked)


def test_what_a_qemu_has_lost_is_told_within_half_a_minute(store, metadata):
    qemu, clock, told = Qemu(), Clock(), []
    found = Reconciler(
        store, OneGuest(), qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), clock),
        lambda domain, object_ids: told.append((domain, object_ids)),
    )  # fmt: skip
    query = qemu.query
    for second in range(40):
        if second == 5:
            qemu.query = lambda *which: {**query(*which), "lost-groups": ["group-disks-1"]}
        found.round()
        finish(found, "web1")
        clock.now += 1.0
    found.close()
    assert told == [("web1", ["group-disks-1"])]


class Devices(OneGuest):
    """A guest with disks, as libvirt lists them and as its QEMU shapes them."""

    def __init__(self):
        self.listed, self.shaped, self.incarnation = ["disk0"], ["disk0"], 1

    def guests(self):
        disks = tuple(Device("disk", name, name, True) for name in self.listed)
        live = Description(shaper_id="sluice0", devices=disks)
        return [Guest("web1", "u-1", "running", self.incarnation, live, live)]


class DevicesQemu(Qemu):
    def __init__(self, guest):
        super().__init__()
        self.guest = guest

    def query(self, domain, shaper_id):
        paths = [f"/machine/peripheral/{name}/virtio-backend" for name in self.guest.shaped]
        return {**super().query(domain, shaper_id), "devices": paths}


@pytest.fixture
def devices(store, metadata):
    """(the guest, a function: what is known after so many seconds)"""
    guest, clock = Devices(), Clock()
    qemu = DevicesQemu(guest)
    found = Reconciler(
        store, guest, qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), clock),
    )  # fmt: skip

    def after(seconds):
        for _ in range(seconds):
            found.round()
            finish(found, "web1")
            clock.now += 1.0
        (now,) = guest.guests()
        return found.shapes(now).ids

    yield guest, after
    found.close()


def test_what_a_qemu_shapes_is_known_from_its_own_words(devices):
    guest, after = devices
    assert after(0) is None
    assert after(1) == {"disk0"}
    guest.listed.append("disk1")
    assert after(0) is None
    assert after(2) == {"disk0"}
    guest.incarnation += 1
    guest.shaped.append("disk1")
    assert after(0) is None
    assert after(1) == {"disk0", "disk1"}


def test_a_disk_that_went_and_came_between_two_looks_is_noticed(devices):
    guest, after = devices
    assert after(3) == {"disk0"}
    guest.shaped.clear()
    assert after(round(SHAPES_AGE_S) + 1) == frozenset()


class HangingQemu(Qemu):
    """Answers nobody until it is `let_go`."""

    def __init__(self):
        super().__init__()
        self.let_go = threading.Event()

    def query(self, domain, shaper_id):
        self.let_go.wait()
        return super().query(domain, shaper_id)


def test_a_qemu_that_hangs_costs_nothing_and_is_gone_on_with_at_once(store, metadata):
    qemu, clock = HangingQemu(), Clock()
    found = Reconciler(
        store, OneGuest(), qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), clock),
    )  # fmt: skip
    try:
        found.round()
        threads = set(threading.enumerate())
        for _ in range(5):
            found.round()
        assert set(threading.enumerate()) == threads
        assert not found._wake.is_set()
        qemu.let_go.set()
        assert found._wake.wait(60)
    finally:
        qemu.let_go.set()
        found.close()


class TwoGuests(OneGuest):
    def guests(self):
        (guest,) = super().guests()
        return [replace(guest, name="db1", uuid="u-0"), guest]


def test_a_domain_that_fails_in_a_way_nobody_foresaw_leaves_no_other_out(store, metadata, caplog):
    qemu, clock = Qemu(), Clock()

    def groups(_unit, name):
        if name == "db1":
            raise ZeroDivisionError(name)
        return {}

    with store.transaction() as unit:
        unit.remember_domain("db1", "u-0")
        unit.put_stored_xml("db1", {"original": "", "attached": "", "changes": {}})
    found = Reconciler(
        store, TwoGuests(), qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, groups, TakeOver(store, qemu, metadata, DomainLocks(), clock),
    )  # fmt: skip
    try:
        for _ in range(3):
            found.round()
            finish(found, "web1")
        assert set(qemu.classes) == {"default", "batch", "movie"}
        assert caplog.text.count("domain db1: it is left as it is") == 1
    finally:
        found.close()


class ManyGuests(OneGuest):
    """Of the first ones QEMU hangs."""

    def guests(self):
        (guest,) = super().guests()
        hanging = [replace(guest, name=f"db{i}", uuid=f"d-{i}") for i in range(WORKERS)]
        return [*hanging, guest]


class SomeHang(HangingQemu):
    def query(self, domain, shaper_id):
        return Qemu.query(self, domain, shaper_id) if domain == "web1" else self._hang()

    def _hang(self):
        assert self.let_go.wait(60)
        raise Unavailable("QEMU of domain", "db", "does not answer", "see that it runs")


def test_guests_that_hang_keep_no_other_from_its_limits(store, metadata):
    qemu, clock = SomeHang(), Clock()
    with store.transaction() as unit:
        for i in range(WORKERS):
            unit.remember_domain(f"db{i}", f"d-{i}")
            unit.put_stored_xml(f"db{i}", {"original": "", "attached": "", "changes": {}})
    found = Reconciler(
        store, ManyGuests(), qemu, NoAgents(), AutoLimits(), lambda name: qemu.generation,
        clock, clock, lambda unit, name: {},
        TakeOver(store, qemu, metadata, DomainLocks(), clock),
    )  # fmt: skip
    try:
        found.round()
        clock.now += SLOW_SECONDS
        found.round()
        found._running["web1"].result(60)
        assert set(qemu.classes) == {"default", "batch", "movie"}
    finally:
        qemu.let_go.set()
        found.close()


def process(pid, rule):
    return {"pid": pid, "start_time_ticks": 99, "rule": rule}


@pytest.fixture
def assigned(store, qemu):
    """(what gives rules to an agent in which no process of an assignment runs, its agent)"""
    agents, now = OneAgent([]), [100.0]
    found = Reconciler(
        store, OneGuest(), qemu, agents, AutoLimits(), lambda name: None,
        lambda: now[0], lambda: 100.0, lambda unit, name: {},
        TakeOver(store, qemu, NoMetadata(), DomainLocks(), lambda: 100.0),
    )  # fmt: skip
    yield found, agents, now
    found.close()


@pytest.mark.parametrize(("made_s_ago", "kept"), [(1.0, True), (11.0, False), (-3600.0, False)])
def test_a_process_that_is_not_seen_yet_has_its_time_and_no_more(store, assigned, made_s_ago, kept):
    """Nor has one that was assigned before the clock was set back, until then."""
    found, _agents, now = assigned
    with store.transaction() as unit:
        made = Assignment("web1", 812, 99, "batch", now[0] - made_s_ago, "b-1")
        unit.put_assignment(made)
    found.round()
    finish(found, "web1")
    with store.transaction() as unit:
        assert bool(unit.assignments("web1")) == kept


def test_what_nobody_changed_is_asked_of_no_database(store, assigned):
    found, agents, _now = assigned
    with store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "A weight that this QEMU takes"))
    for _ in range(4):
        found.round()
        finish(found, "web1")
    units = []
    event.listen(store.engine, "begin", units.append)
    found.round()
    finish(found, "web1")
    assert units == []
    with store.transaction() as unit:
        unit.add_rule(Rule(0, None, "batch", {"exe": "/bin/cat"}, 1.0))
        unit.put_grant(Grant("web1", "batch", 1, (), {"blk-read": Limit(7e6)}))
    found.round()
    finish(found, "web1")
    assert len(agents.rules) == 1
    (limit,) = found._known["web1"].pushed["classes"]["batch"]["limits"]
    assert limit["bytes-per-second"] == 7_000_000


def test_an_agent_whose_channel_was_plugged_in_again_gets_its_rules(store, assigned):
    found, agents, _now = assigned
    with store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "A weight that this QEMU takes"))
        unit.put_grant(Grant("web1", "batch", 1))
        unit.add_rule(Rule(0, None, "batch", {"exe": "/bin/cat"}, 1.0))
    for _ in range(4):
        found.round()
        finish(found, "web1")
    assert len(agents.rules) == 1
    # The hub knows nothing of a channel that it has forgotten.
    agents.rules = None
    found.round()
    assert agents.rules is not None and len(agents.rules) == 1


@pytest.mark.parametrize(
    ("processes", "kept"),
    [
        ([process(900, "assignment-812")], True),
        ([process(900, "rule-812")], False),
        ([process(812, None)], True),
        ([], False),
    ],
)
def test_an_assignment_lasts_as_long_as_what_its_process_started(store, qemu, processes, kept):
    agents = OneAgent(processes)
    with store.transaction() as unit:
        unit.put_assignment(Assignment("web1", 812, 99, "batch", 0.0, "b-1"))
    found = Reconciler(
        store, OneGuest(), qemu, agents, AutoLimits(), lambda name: None,
        lambda: 100.0, lambda: 100.0, lambda unit, name: {},
        TakeOver(store, qemu, NoMetadata(), DomainLocks(), lambda: 100.0),
    )  # fmt: skip
    found.round()
    finish(found, "web1")
    found.close()
    with store.transaction() as unit:
        assert bool(unit.assignments("web1")) == kept
    assert agents.rules == (["assignment-812"] if kept else [])
