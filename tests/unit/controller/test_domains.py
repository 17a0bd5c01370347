# SPDX-License-Identifier: GPL-2.0-or-later
"""Attach and detach of a domain whose definition only waits for a restart."""

from dataclasses import replace

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.services.domains import Domains

STOCK = Description()
SHAPED = Description(shaper_id="sluice0")


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


class Libvirt:
    """Host and editor in one: a domain that runs what its definition says."""

    def __init__(self, persistent: Description, live: Description | None, obeys: bool = True):
        self.one = Guest("web1", "uuid-1", "running", 1, persistent, live)
        self.obeys = obeys
        self.calls: list[str] = []

    def guest(self, name: str) -> Guest:
        return self.one

    def shut_down(self, name: str, seconds: float) -> bool:
        self.calls.append("shut down")
        if self.obeys:
            self.one = replace(self.one, live=None)
        return self.obeys

    def start(self, name: str) -> None:
        self.calls.append("start")
        self.one = replace(self.one, live=self.one.persistent)


class Quiet:
    """What the answer asks of the agents and the catalogue."""

    def status(self, name: str) -> dict:
        return {}

    def grants(self, name: str) -> list:
        return []

    def ceiling(self, name: str) -> dict:
        return {}


def domains(libvirt: Libvirt, store) -> Domains:
    quiet = Quiet()
    return Domains(store, libvirt, quiet, libvirt, quiet, lambda: 0.0, lambda name: None)


@pytest.mark.parametrize(
    ("action", "persistent", "live"), [("attach", SHAPED, STOCK), ("detach", STOCK, SHAPED)]
)
def test_restart_of_a_waiting_domain_restarts_it(action, persistent, live, store):
    libvirt = Libvirt(persistent, live)
    answer = getattr(domains(libvirt, store), action)("web1", {"restart": True})
    assert libvirt.calls == ["shut down", "start"]
    assert not answer["needs_restart"] and answer["active"] == (action == "attach")


def test_a_waiting_domain_that_does_not_shut_down_is_left_running(store):
    libvirt = Libvirt(SHAPED, STOCK, obeys=False)
    with pytest.raises(Conflict, match="did not shut down"):
        domains(libvirt, store).attach("web1", {"restart": True})
    assert libvirt.calls == ["shut down"] and libvirt.one.needs_restart


def test_detach_without_restart_of_a_detached_domain_is_refused(store):
    libvirt = Libvirt(STOCK, SHAPED)
    with pytest.raises(Conflict, match="is not attached"):
        domains(libvirt, store).detach("web1", {})
    assert libvirt.calls == []
