# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose policy is whose, when domains come, go and change their names: the real database."""

from dataclasses import dataclass, field

import libvirt
import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.libvirt_host import LibvirtHost
from sluice_controller.domain.group_page import GroupLimit
from sluice_controller.domain.groups import Group, Membership
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import Grant, Rule, ShapingClass, Stream
from sluice_controller.services.names import settle

FAST, SLOW = Limit(9e6), Limit(1e6)


@dataclass
class Host:
    """libvirt: {name: uuid}"""

    store: SqlStore
    names: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)

    def has(self, uuid):
        self.asked.append(uuid)
        return uuid in self.names.values()

    def settle(self, *names, carried=None):
        live = Description(carried=carried) if carried else None
        for name in names:
            guest = Guest(name, self.names[name], "shut off", -1, live=live)
            settle(self.store, self, lambda: 5.0, guest)


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.put_class(ShapingClass("film", "Film", is_stream=True))
        unit.put_group(Group("disks", "blk", GroupLimit("bytes", 10**8, 10**6)))
    yield store
    store.close()


@pytest.fixture
def host(store):
    return Host(store)


def declare(store, name, limit=FAST):
    with store.transaction() as unit:
        unit.put_grant(Grant(name, "film", 1, (), {"blk-read": limit}))


def declare_all(store, name):
    declare(store, name)
    with store.transaction() as unit:
        unit.put_ceiling(name, {"net-tx": SLOW})
        unit.put_membership(Membership("disks", name, 300))
        unit.add_rule(Rule(0, name, "film", {"user": "www"}, 0.0))
        unit.put_stream(Stream("m", name, "film", 1e6))


def owners(store):
    """{name: limit}"""
    with store.transaction() as unit:
        return {g.domain: g.limits["blk-read"] for g in unit.grants()}


def said(store):
    with store.transaction() as unit:
        return [(e.actor, e.action, e.thing, e.before, e.after) for e in unit.audit(10)]


def test_a_domain_that_is_defined_anew_has_all_that_its_name_had(store, host, caplog):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare_all(store, "web1")
    with store.transaction() as unit:
        unit.put_stored_xml("web1", {"original": "", "attached": "", "changes": {}})
    host.names = {"web1": "u-2"}
    host.settle("web1")
    with store.transaction() as unit:
        assert unit.uuid_of("web1") == "u-2"
        assert unit.ceiling("web1") == {"net-tx": SLOW}
        assert [m.domain for m in unit.memberships()] == ["web1"]
        assert [r.domain for r in unit.rules()] == ["web1"]
        assert [s.domain for s in unit.streams()] == ["web1"]
        # Its definition is another: detach must not give it the old one.
        assert unit.stored_xml("web1") is None
    assert owners(store) == {"web1": FAST}
    assert said(store) == [("sluiced", "policy kept by name", "web1", "u-1", "u-2")]
    assert "domain web1: policy kept by name: u-2, before u-1" in caplog.text
    # And back, as from a backup that has the uuid.
    host.names = {"web1": "u-1"}
    host.settle("web1")
    assert owners(store) == {"web1": FAST}


def test_what_has_not_changed_asks_libvirt_nothing(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1", "web1")
    changes = store.changes
    host.settle("web1")
    assert (host.asked, store.changes, said(store)) == ([], changes, [])


def test_a_policy_goes_along_with_a_rename(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare(store, "web1")
    host.names = {"web9": "u-1"}
    host.settle("web9")
    assert owners(store) == {"web9": FAST}
    assert said(store) == [("sluiced", "policy renamed", "web9", "web1", "web9")]


@pytest.mark.parametrize("order", [("web1", "web2"), ("web2", "web1")])
def test_names_that_are_swapped_keep_each_its_own(store, host, order):
    host.names = {"web1": "u-1", "web2": "u-2"}
    host.settle("web1", "web2")
    declare(store, "web1", FAST)
    declare(store, "web2", SLOW)
    host.names = {"web1": "u-2", "web2": "u-1"}
    host.settle(*order)
    assert owners(store) == {"web1": SLOW, "web2": FAST}


def test_a_new_domain_has_nothing_of_one_that_was_renamed(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare(store, "web1")
    host.names = {"web1": "u-2", "old": "u-1"}
    host.settle("web1", "old")
    assert owners(store) == {"old": FAST}


def test_a_clone_has_nothing_of_its_original(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare(store, "web1")
    host.names = {"web1": "u-1", "web1-clone": "u-2"}
    host.settle("web1", "web1-clone")
    assert owners(store) == {"web1": FAST}
    # Under the name of an original that is gone it takes its place.
    host.names = {"web1": "u-2"}
    host.settle("web1")
    assert owners(store) == {"web1": FAST}
    with store.transaction() as unit:
        assert unit.uuid_of("web1") == "u-2"


def test_one_that_has_its_own_policy_keeps_that_and_the_other_is_put_aside(store, host, caplog):
    host.names = {"web1": "u-1", "web2": "u-2"}
    host.settle("web1", "web2")
    declare(store, "web1", FAST)
    declare(store, "web2", SLOW)
    host.names = {"web1": "u-2"}
    host.settle("web1")
    assert owners(store) == {"web1": SLOW, "web1#u-1": FAST}
    actions = [(action, before, after) for _, action, _, before, after in said(store)]
    assert sorted(actions) == [
        ("policy put aside", "web1", "web1#u-1"),
        ("policy renamed", "web2", "web1"),
    ]
    assert "policy put aside: web1#u-1" in caplog.text


def test_one_that_comes_with_its_policy_from_another_host_keeps_that(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare(store, "web1")
    host.names = {"web1": "u-2"}
    host.settle("web1", carried='{"uuid": "u-2"}')
    assert owners(store) == {"web1#u-1": FAST}


def test_a_copy_of_what_the_old_one_carried_is_no_policy_of_its_own(store, host):
    host.names = {"web1": "u-1"}
    host.settle("web1")
    declare(store, "web1")
    host.names = {"web1": "u-2"}
    host.settle("web1", carried='{"uuid": "u-1"}')
    assert owners(store) == {"web1": FAST}


AGAIN = """
<domain type='test'>
  <name>again</name><memory>65536</memory><os><type>hvm</type></os>
</domain>"""


def test_libvirt_tells_which_domain_is_gone():
    """Its test driver, which is one for all connections of a process."""
    host, connection = LibvirtHost("test:///default", lambda: 0.0), libvirt.open("test:///default")
    domain = connection.defineXML(AGAIN)
    first = domain.UUIDString()
    try:
        host.refresh()
        assert host.has(first)
        domain.undefine()
        domain = connection.defineXML(AGAIN)
        assert not host.has(first) and host.has(domain.UUIDString())
        # Before the next poll: of a name the last that was read is the one.
        host.monotonic = lambda: 1.0
        host.guest("again")
        assert [g.uuid for g in host.guests() if g.name == "again"] == [domain.UUIDString()]
    finally:
        domain.undefine()
        host.close()
