# SPDX-License-Identifier: GPL-2.0-or-later
"""The catalogue when libvirt or an agent does not have what it had: the real database."""

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import NotFound, Unavailable
from sluice_controller.domain.guests import Guest
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.catalogue import Catalogue

PROCESS = {"pid": 812, "start_time_ticks": 99, "comm": "cat", "exe": "/usr/bin/cat"}


class Host:
    def __init__(self):
        self.uuids = {"web1": "u-1"}

    def guest(self, name):
        if name not in self.uuids:
            raise NotFound("domain", name, "does not exist", "see 'virsh list --all'")
        return Guest(name, self.uuids[name], "running", 1)


class Agents:
    """One whose tables arrive, and that may not have answered yet, or not for a while."""

    def __init__(self):
        self.boot_id = "b-1"

    def status(self, domain):
        return {"connected": self.boot_id is not None, "boot_id": self.boot_id, "error": None}

    def processes(self, domain):
        return {"at": 0.0, "truncated": False, "processes": [PROCESS]}

    def max_tag(self, domain):
        return 15


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def agents():
    return Agents()


@pytest.fixture
def catalogue(store, host, agents):
    found = Catalogue(store, host, agents, AutoLimits(), lambda: 5.0, lambda domain: None)
    found.put_class("batch", {})
    found.put_grant("web1", "batch", {})
    return found


def holders(store):
    with store.transaction() as unit:
        return [grant.domain for grant in unit.grants()]


def test_a_class_is_taken_from_a_domain_that_is_gone(catalogue, host, store):
    del host.uuids["web1"]
    (holder,) = holders(store)
    catalogue.revoke(holder, "batch")
    catalogue.delete_class("batch")


def test_a_class_is_taken_from_a_domain_whose_name_another_has(catalogue, host, store):
    host.uuids["web1"] = "u-2"
    catalogue.put_grant("web1", "batch", {})
    for holder in holders(store):
        catalogue.revoke(holder, "batch")
    catalogue.delete_class("batch")


def test_a_domain_that_never_was_has_no_class_to_take(catalogue):
    with pytest.raises(NotFound):
        catalogue.revoke("web2", "batch")


def test_nothing_is_assigned_while_the_guest_s_boot_is_not_known(catalogue, agents):
    """The assignment would be taken for one of another boot, and dropped without a word."""
    agents.boot_id = None
    with pytest.raises(Unavailable):
        catalogue.assign("web1", 812, {"class": "batch"})
    agents.boot_id = "b-1"
    assert catalogue.assign("web1", 812, {"class": "batch"})["pid"] == 812
