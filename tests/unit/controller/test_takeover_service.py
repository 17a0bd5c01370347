# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that arrive: the real reconciler, catalogue and store, a model of the shaper."""

import json
from dataclasses import replace

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import Assignment, Grant, Rule, ShapingClass, Stream
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.locks import DomainLocks
from sluice_controller.services.reconcile import RETRY_S, Reconciler
from sluice_controller.services.takeover import TakeOver
from unit.controller.pushing import finish
from unit.controller.test_shaper_config import Shaper

NAME = "web1"


class Qemu:
    """The domain's shaper, wherever the domain is."""

    def __init__(self):
        self.shaper = Shaper()
        self.asked = 0
        # As libvirt has it while a migration goes on.
        self.locked = False

    def query(self, domain, shaper_id):
        self.asked += 1
        if self.locked:
            raise Unavailable("QEMU of domain", domain, "does not answer", "try again")
        return self.shaper.query()

    def execute(self, domain, command, arguments):
        self.shaper.run([(command, dict(arguments))])


class Sluiced:
    """One host's sluiced, with the domain on it or not."""

    def __init__(self, folder, label):
        self.label = label
        self.store = SqlStore(f"sqlite:///{folder / label}.db")
        self.guest = None
        self.qemu = Qemu()
        self.locks = DomainLocks()
        self.rules_told = []
        self.boot_id = "boot"
        self.now = 0.0
        self.written = 0
        with self.store.transaction() as unit:
            unit.put_class(ShapingClass("default", "Everything else"))
        self.reconciler = self.started()

    def started(self):
        return Reconciler(
            self.store, self, self.qemu, self, AutoLimits(), lambda name: None,
            lambda: self.now, lambda: self.now, lambda unit, name: {},
            TakeOver(self.store, self.qemu, self, self.locks, lambda: self.now),
        )  # fmt: skip

    # The host

    def guests(self):
        return [self.guest] if self.guest else []

    def has(self, uuid):
        return any(guest.uuid == uuid for guest in self.guests())

    def remove_command(self, name):
        return f"virsh metadata {name}"

    def host_id(self):
        return self.label

    def write(self, name, text, tuned=None):
        live = replace(self.guest.live, carried=text, tuned=tuned)
        self.guest = replace(self.guest, live=live)
        self.written += 1

    # The agents

    def set_targets(self, paths):
        pass

    def status(self, name):
        return {"connected": True, "boot_id": self.boot_id}

    def processes(self, name):
        return None

    def max_tag(self, name):
        return 15

    def set_rules(self, name, payload):
        self.rules_told.append(payload)

    # What tests do

    def start(self, **more):
        live = Description(shaper_id="sluice0")
        self.guest = Guest(NAME, "u-1", "running", 1, live, live, **more)

    def rounds(self, count=4):
        for _ in range(count):
            self.reconciler.round()
            finish(self.reconciler, NAME)
            self.now += 1.0

    def configure(self, rate):
        with self.store.transaction() as unit:
            unit.remember_domain(NAME, "u-1")
            unit.put_stored_xml(NAME, {"original": "", "attached": "", "changes": {}})
            unit.put_class(ShapingClass("batch", "At night", 7, weight=50))
            unit.put_grant(Grant(NAME, "batch", 3, (46,), {"blk-read": Limit(rate)}))
            unit.put_ceiling(NAME, {"net-tx": Limit(9e6)})
            if not unit.rules():
                unit.add_rule(Rule(0, NAME, "batch", {"exe": "/usr/bin/rsync"}, 0.0))
            unit.put_assignment(Assignment(NAME, 100, 5, "batch", 0.0, "boot"))
        self.reconciler.changed(NAME)

    def tune(self, *pairs, rate=500_000.0):
        self.reconciler.auto_limits.replace({(NAME, *pair): rate for pair in pairs})
        self.reconciler.changed(NAME)

    def move_to(self, other, moving=False, stream=False):
        """QEMU's migration: the metadata goes along, the shaper's configuration in a stream
        that has it."""
        other.guest = replace(self.guest, incarnation=self.guest.incarnation + 1, moving=moving)
        other.qemu.shaper = self.qemu.shaper if stream else Shaper()
        self.guest = None
        self.rounds(1)

    def known(self):
        with self.store.transaction() as unit:
            return unit.grants(NAME), unit.ceiling(NAME)

    def let_store_write(self, may):
        connection = self.store.engine.raw_connection()
        connection.execute(f"PRAGMA query_only = {not may}")
        connection.close()

    def actions(self):
        with self.store.transaction() as unit:
            return [entry.action for entry in unit.audit(100)]


@pytest.fixture
def hosts(tmp_path):
    made = [Sluiced(tmp_path, label) for label in ("here", "there")]
    yield made
    for host in made:
        host.reconciler.close()
        host.store.close()


@pytest.fixture
def here(hosts):
    """The first host, with the domain running and configured on it."""
    host = hosts[0]
    host.start()
    host.configure(2e6)
    host.rounds()
    return host


@pytest.fixture
def there(hosts):
    return hosts[1]


def rates(host):
    return {
        name: {row["resource"]: row["bytes-per-second"] for row in config["limits"]}
        for name, config in host.qemu.shaper.classes.items()
    }


LIMITED = {"default": {}, "batch": {"blk-read": 2_000_000}}


def test_a_domain_that_arrives_is_shaped_as_before(here, there):
    before = here.qemu.shaper.query()
    here.move_to(there)
    there.rounds()
    assert there.qemu.shaper.query() == before
    assert there.known() == here.known()
    assert there.actions() == ["take over"]
    with there.store.transaction() as unit:
        (rule,) = unit.rules()
        (assignment,) = unit.assignments(NAME)
    assert (rule.domain, rule.class_name) == (NAME, "batch")
    assert (assignment.pid, assignment.boot_id) == (100, "boot")


@pytest.mark.parametrize("boot_id", ["b" * 65, "\x01"])
def test_what_a_guest_says_of_its_boot_does_not_shake_off_its_limits(here, there, boot_id):
    here.boot_id = boot_id
    with here.store.transaction() as unit:
        unit.put_assignment(Assignment(NAME, 100, 5, "batch", 0.0, boot_id))
    here.reconciler.changed(NAME)
    here.rounds()
    before = here.qemu.shaper.query()
    here.move_to(there)
    there.rounds()
    assert there.qemu.shaper.query() == before


def test_its_agent_gets_no_rules_but_its_own(here, there):
    here.move_to(there)
    there.rounds()
    assert there.rules_told
    for payload in there.rules_told:
        assert [c["name"] for c in payload["classes"]] == ["batch"]
        assert [r["id"].split("-")[0] for r in payload["rules"]] == ["assignment", "rule"]


def test_on_its_way_it_gets_what_it_carries_and_nothing_is_stored(here, there):
    here.move_to(there, moving=True)
    there.rounds()
    assert rates(there) == LIMITED
    assert there.known() == ([], {}) and there.actions() == [] and not there.rules_told
    asked = there.qemu.asked
    there.rounds()
    assert there.qemu.asked == asked
    there.guest = replace(there.guest, moving=False)
    there.rounds()
    assert there.known() == here.known()


def test_one_that_libvirt_lets_nobody_see_is_asked_for_again_at_once(here, there):
    there.qemu.locked = True
    here.move_to(there, moving=True)
    there.rounds(3)
    assert there.qemu.asked == 3 and there.actions() == []
    there.guest = replace(there.guest, moving=False)
    there.qemu.locked = False
    there.rounds(2)
    assert rates(there) == LIMITED and there.actions() == ["take over"]


def test_a_domain_on_its_way_that_carries_nothing_is_not_looked_at(there):
    there.start(moving=True)
    there.rounds()
    assert there.qemu.asked == 0 and there.actions() == []


def test_what_was_changed_there_comes_back(here, there):
    here.move_to(there)
    there.rounds()
    there.configure(1e6)
    there.rounds()
    there.move_to(here)
    here.rounds()
    assert rates(here) == {"default": {}, "batch": {"blk-read": 1_000_000}}
    assert here.known() == there.known()


def test_a_class_that_was_revoked_there_is_gone_here(here, there):
    here.move_to(there)
    there.rounds()
    with there.store.transaction() as unit:
        for rule in unit.rules():
            unit.delete_rule(rule.id)
        unit.delete_assignment(NAME, 100)
        unit.delete_grant(NAME, "batch")
    there.reconciler.changed(NAME)
    there.rounds()
    there.move_to(here)
    here.rounds()
    assert rates(here) == {"default": {}}
    with here.store.transaction() as unit:
        assert unit.rules() == [] and unit.assignments(NAME) == []


def test_what_changes_after_it_was_taken_over_stays_changed(here, there):
    here.move_to(there)
    there.rounds()
    there.configure(5e6)
    there.rounds()
    there.reconciler = there.started()
    there.rounds()
    assert rates(there)["batch"] == {"blk-read": 5_000_000}
    assert there.actions() == ["take over"]


def test_a_lost_store_takes_nothing_from_a_running_domain(here, tmp_path):
    for text in (here.guest.live.carried, None):
        new = Sluiced(tmp_path, f"new-{text is None}")
        new.qemu = here.qemu
        new.reconciler = new.started()
        new.guest = replace(here.guest, live=replace(here.guest.live, carried=text))
        before = here.qemu.shaper.count
        new.rounds()
        assert rates(new) == LIMITED and here.qemu.shaper.count == before
        assert new.known() == here.known()
        assert new.actions() == ["take over"]
        new.reconciler.close()
        new.store.close()


def test_a_conflict_changes_no_catalogue_and_loosens_nothing(here, there):
    with there.store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "Free", unmanaged=True))
    here.move_to(there)
    there.rounds()
    assert rates(there) == LIMITED
    assert not there.qemu.shaper.classes["batch"]["unmanaged"]
    assert there.known() == ([], {}) and not there.rules_told
    there.rounds(20)
    assert there.actions() == ["take over refused"]
    with there.store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "Ours", 2))
    there.rounds(int(RETRY_S) + 4)
    assert there.known() == here.known()
    assert there.qemu.shaper.classes["batch"]["priority"] == 2


def test_a_stream_of_an_earlier_stay_keeps_the_catalogue_as_it_is(here, there):
    with here.store.transaction() as unit:
        unit.put_class(ShapingClass("movie", "Movie", is_stream=True))
    here.move_to(there)
    there.rounds()
    with here.store.transaction() as unit:
        unit.put_grant(Grant(NAME, "movie", 4))
        unit.put_stream(Stream("film", NAME, "movie", 1e6))
    before = here.known()
    there.move_to(here)
    here.rounds()
    assert here.known() == before and here.actions()[0] == "take over refused"
    assert rates(here) == LIMITED


def test_a_stream_without_an_agent_outlives_a_stay_elsewhere(here, there):
    here.move_to(there)
    there.rounds()
    with here.store.transaction() as unit:
        unit.put_stream(Stream("tv", NAME, "default", 1e6))
    there.move_to(here)
    here.rounds()
    assert "take over refused" not in here.actions()
    with here.store.transaction() as unit:
        assert [s.class_name for s in unit.streams()] == ["default"]


def test_a_store_that_takes_nothing_now_loosens_nothing_and_is_tried_again(here, there, caplog):
    here.move_to(there, moving=True)
    there.rounds()
    there.let_store_write(False)
    there.guest = replace(there.guest, moving=False)
    there.rounds()
    assert rates(there) == LIMITED
    assert len([said for said in caplog.messages if "readonly database" in said]) == 1
    there.let_store_write(True)
    there.rounds(int(RETRY_S) + 4)
    assert there.known() == here.known() and there.actions() == ["take over"]


def test_what_cannot_be_read_is_refused_once_and_the_shaper_left_alone(here, there):
    carried = json.loads(here.guest.live.carried)
    carried["classes"][1]["limits"]["blk-read"]["bytes_per_second"] = -1
    here.write(NAME, json.dumps(carried))
    here.move_to(there)
    there.rounds(20)
    assert there.actions() == ["take over refused"]
    assert there.qemu.shaper.count == 0 and not there.rules_told


def test_a_rule_that_is_refused_here_keeps_no_domain_unshaped(here, there):
    carried = json.loads(here.guest.live.carried)
    carried["rules"].insert(0, {"class": "batch", "match": {"exe": "of-an-earlier-one"}})
    here.write(NAME, json.dumps(carried))
    before = here.qemu.shaper.query()
    here.move_to(there)
    there.rounds()
    assert there.qemu.shaper.query() == before and there.known() == here.known()
    with there.store.transaction() as unit:
        (rule,) = unit.rules()
        (entry,) = unit.audit(100)
    assert rule.match == {"exe": "/usr/bin/rsync"} and entry.action == "take over"
    (note,) = entry.after["notes"]
    assert "a rule for batch is left out: match.exe 'of-an-earlier-one' is" in note


def test_ones_own_text_that_was_broken_is_written_anew(here):
    here.write(NAME, "nonsense")
    here.reconciler = here.started()
    here.rounds()
    assert json.loads(here.guest.live.carried)["uuid"] == "u-1"
    assert rates(here) == LIMITED


def test_a_copy_of_a_domain_does_not_get_the_others_classes(here, there):
    here.move_to(there)
    there.guest = replace(there.guest, uuid="u-2")
    there.rounds()
    assert rates(there) == {"default": {}}
    assert json.loads(there.guest.live.carried)["uuid"] == "u-2"


def test_a_domain_that_was_defined_anew_gets_what_its_name_had(here):
    live = Description(shaper_id="sluice0")
    here.qemu.shaper = Shaper()
    here.guest = Guest(NAME, "u-2", "running", 2, live, live)
    here.reconciler = here.started()
    here.rounds()
    assert rates(here)["batch"] == {"blk-read": 2000000}
    grants, ceiling = here.known()
    assert grants and ceiling


def test_a_definition_that_is_being_changed_is_written_later(here):
    here.configure(3e6)
    with here.locks.of(NAME):
        here.rounds()
        assert "3000000" not in here.guest.live.carried
    here.rounds()
    assert "3000000" in here.guest.live.carried


def test_a_change_is_in_the_shaper_before_the_domain_carries_it(here):
    for rate in (3e6, 4e6):
        here.configure(rate)
        here.rounds(1)
        assert rates(here)["batch"] == {"blk-read": rate}
        assert f"{rate:.0f}" not in here.guest.live.carried
        here.rounds(2)
        assert f"{rate:.0f}" in here.guest.live.carried


def test_a_domain_that_is_changed_in_every_round_carries_that_too(here):
    seen = set()
    for rate in range(3_000_000, 3_000_010):
        here.configure(rate)
        here.rounds(1)
        seen.add(here.guest.live.carried)
    assert len(seen) > 3
    here.rounds(2)
    assert rates(here)["batch"] == {"blk-read": 3_000_009}


def test_of_what_auto_shaping_sets_is_carried_that_it_does(here):
    written, classes = here.written, json.loads(here.guest.live.carried)["classes"]
    here.tune(("batch", "blk-read"))
    here.rounds()
    assert rates(here)["batch"] == {"blk-read": 500_000}
    assert json.loads(here.guest.live.carried)["classes"] == classes
    assert json.loads(here.guest.live.tuned) == {
        "host": "here",
        "limits": [{"class": "batch", "resource": "blk-read"}],
    }
    for rate in (6e5, 7e5, 8e5):
        here.tune(("batch", "blk-read"), rate=rate)
        here.rounds(2)
    assert rates(here)["batch"] == {"blk-read": 800_000} and here.written == written + 1
    here.reconciler = here.started()
    here.reconciler.auto_limits.replace({(NAME, "batch", "blk-read"): 8e5})
    here.rounds()
    assert here.written == written + 1
    here.tune()
    here.rounds()
    assert here.guest.live.tuned is None and here.written == written + 2


def test_it_is_carried_while_auto_shaping_changes_limits_in_every_round(here):
    written = here.written
    for rate in range(500_000, 600_000, 10_000):
        here.tune(("batch", "blk-read"), rate=float(rate))
        here.rounds(1)
    assert here.guest.live.tuned is not None and here.written == written + 1
    here.rounds(1)
    assert rates(here)["batch"] == {"blk-read": 590_000}


def test_of_a_class_that_is_revoked_nothing_is_said(here):
    here.tune(("batch", "blk-read"), ("gone", "blk-read"))
    here.rounds()
    (row,) = json.loads(here.guest.live.tuned)["limits"]
    assert row["class"] == "batch"


TUNED = (("batch", "blk-read"), ("batch", "net-tx"), ("default", "blk-read"))


def test_on_another_host_the_operators_limits_hold_again(here, there):
    before = here.qemu.shaper.query()
    here.tune(*TUNED)
    here.rounds()
    slow = {"blk-read": 500_000}
    assert rates(here) == {"default": slow, "batch": {**slow, "net-tx": 500_000}}
    here.move_to(there, stream=True)
    there.rounds()
    assert there.qemu.shaper.query() == before and there.known() == here.known()
    assert there.actions() == ["take over"] and there.guest.live.tuned is None


def test_a_limit_that_is_newer_than_what_it_carries_arrives_beside_them(here, there):
    here.tune(("batch", "net-tx"))
    here.rounds()
    live = here.guest.live
    here.configure(1e6)
    here.rounds()
    here.guest = replace(here.guest, live=live)
    here.move_to(there, stream=True)
    there.rounds()
    assert rates(there) == {"default": {}, "batch": {"blk-read": 1_000_000}}


def test_tuned_there_and_back_it_is_the_operators(here, there):
    before = here.qemu.shaper.query()
    here.tune(*TUNED)
    here.rounds()
    here.move_to(there, stream=True)
    here.tune()
    there.rounds()
    there.tune(("batch", "blk-read"), rate=4e5)
    there.rounds()
    assert rates(there)["batch"] == {"blk-read": 400_000}
    there.move_to(here, stream=True)
    here.rounds()
    assert here.qemu.shaper.query() == before and here.known() == there.known()


@pytest.mark.parametrize("tuned", [None, "nonsense"])
def test_where_nothing_tells_them_apart_the_shapers_word_holds(here, there, tuned):
    here.tune(("batch", "blk-read"))
    here.rounds()
    here.guest = replace(here.guest, live=replace(here.guest.live, tuned=tuned))
    here.move_to(there, stream=True)
    there.rounds()
    (grant,) = there.known()[0]
    assert grant.limits["blk-read"].bytes_per_second == 500_000
    with there.store.transaction() as unit:
        (entry,) = unit.audit(100)
    assert len(entry.after["notes"]) == (tuned is not None)


def test_a_lost_store_leaves_them_to_the_shaper(here, tmp_path):
    here.tune(("batch", "blk-read"))
    here.rounds()
    new = Sluiced(tmp_path, "new")
    new.label, new.qemu, new.guest = "here", here.qemu, here.guest
    new.reconciler = new.started()
    before = here.qemu.shaper.count
    new.rounds()
    assert rates(new)["batch"] == {"blk-read": 500_000} and here.qemu.shaper.count == before
    assert new.guest.live.tuned is None
    new.reconciler.close()
    new.store.close()


def test_ones_own_that_was_broken_beside_is_written_anew(here):
    here.write(NAME, here.guest.live.carried, "nonsense")
    here.reconciler = here.started()
    here.rounds()
    assert here.guest.live.tuned is None and rates(here) == LIMITED
