# SPDX-License-Identifier: GPL-2.0-or-later
"""Attach and detach: domains that only wait for a restart, and records of several hosts."""

from dataclasses import replace

import pytest

from sluice_controller.adapters import domain_xml
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.services.domains import Domains
from sluice_controller.services.locks import DomainLocks

STOCK = Description()
SHAPED = Description(shaper_id="sluice0")


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


class Libvirt:
    """Host and editor in one: a domain that runs what its definition says."""

    def __init__(self, persistent: Description, live: Description | None, takes: float = 1):
        self.one = Guest("web1", "uuid-1", "running", 1, persistent, live)
        self.shutdown_takes_seconds = takes
        self.calls: list[str] = []

    def guest(self, name: str) -> Guest:
        return self.one

    def shut_down(self, name: str, seconds: float) -> bool:
        self.calls.append("shut down")
        down = self.shutdown_takes_seconds <= seconds
        if down:
            self.one = replace(self.one, live=None)
        return down

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
    return Domains(
        store, libvirt, quiet, libvirt, quiet, lambda: 0.0, lambda name: None, DomainLocks()
    )


@pytest.mark.parametrize(
    ("action", "persistent", "live"), [("attach", SHAPED, STOCK), ("detach", STOCK, SHAPED)]
)
def test_restart_of_a_waiting_domain_restarts_it(action, persistent, live, store):
    libvirt = Libvirt(persistent, live)
    answer = getattr(domains(libvirt, store), action)("web1", {"restart": True})
    assert libvirt.calls == ["shut down", "start"]
    assert not answer["needs_restart"] and answer["active"] == (action == "attach")


def test_a_waiting_domain_that_does_not_shut_down_is_left_running(store):
    libvirt = Libvirt(SHAPED, STOCK, takes=91)
    with pytest.raises(Conflict, match="did not shut down"):
        domains(libvirt, store).attach("web1", {"restart": True})
    assert libvirt.calls == ["shut down"] and libvirt.one.needs_restart


@pytest.mark.parametrize("action", ["attach", "detach"])
def test_a_slow_guest_may_be_given_longer(action, store):
    libvirt = Libvirt(*((SHAPED, STOCK) if action == "attach" else (STOCK, SHAPED)), takes=200)
    change = getattr(domains(libvirt, store), action)
    with pytest.raises(Conflict, match="did not shut down within 90 s: give it longer with"):
        change("web1", {"restart": True})
    change("web1", {"restart": True, "shutdown_seconds": 200})
    assert libvirt.calls == ["shut down", "shut down", "start"]


@pytest.mark.parametrize("seconds", [0, 901, True, 90.5, "90", None])
def test_a_time_to_shut_down_that_cannot_be_is_refused(seconds, store):
    libvirt = Libvirt(SHAPED, STOCK)
    with pytest.raises(BadValue, match="shutdown_seconds"):
        domains(libvirt, store).attach("web1", {"restart": True, "shutdown_seconds": seconds})
    assert libvirt.calls == []


def test_detach_without_restart_of_a_detached_domain_is_refused(store):
    libvirt = Libvirt(STOCK, SHAPED)
    with pytest.raises(Conflict, match="is not attached"):
        domains(libvirt, store).detach("web1", {})
    assert libvirt.calls == []


PLAIN = (
    "<domain type='kvm'><name>web1</name><features><acpi/></features><devices>"
    "<emulator>/usr/bin/qemu-system-x86_64</emulator><disk type='file' device='disk'>"
    "<target dev='vda' bus='virtio'/></disk></devices></domain>"
)


class Definition(Libvirt):
    """A domain that is shut off, with its definition as text."""

    def __init__(self, xml: str):
        super().__init__(domain_xml.describe(xml), None)
        self.xml = xml

    def persistent_xml(self, name: str) -> str:
        return self.xml

    def define(self, xml: str) -> None:
        self.xml = xml
        self.one = replace(self.one, persistent=domain_xml.describe(xml))

    def check_emulator(self, emulator: str) -> None:
        pass

    def attach(self, xml: str, *, emulator: str, name: str, disable_vhost: bool):
        changed, changes = domain_xml.attach(
            xml, emulator=emulator, page_path="/run/p/web1.page", name=name
        )
        return changed, changes.as_json()

    def detach(self, xml: str, record: dict) -> str:
        return domain_xml.detach(xml, record)

    def attach_record(self, xml: str, name: str) -> dict | None:
        return domain_xml.record_in(xml, name)

    def same(self, one: str, other: str) -> bool:
        return domain_xml.same(one, other)


@pytest.fixture
def elsewhere(tmp_path):
    """Another host's store."""
    store = SqlStore(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    yield store
    store.close()


def without_space(xml: str) -> str:
    return "".join(xml.split())


def without_metadata(xml: str) -> str:
    root = domain_xml.parse(xml)
    root.remove(root.find("metadata"))
    return domain_xml._text(root)


def test_detach_on_the_host_of_attach_gives_back_every_byte(store):
    original = PLAIN + "\n<!-- kept -->\n"
    libvirt = Definition(original)
    domains(libvirt, store).attach("web1", {})
    domains(libvirt, store).detach("web1", {})
    assert libvirt.xml == original


def test_detach_elsewhere_goes_by_what_the_domain_carries(store, elsewhere):
    libvirt = Definition(PLAIN)
    domains(libvirt, store).attach("web1", {})
    domains(libvirt, elsewhere).detach("web1", {})
    assert without_space(libvirt.xml) == without_space(domain_xml._text(domain_xml.parse(PLAIN)))


def test_the_record_that_the_domain_carries_outranks_one_of_an_earlier_stay(store, elsewhere):
    libvirt = Definition(PLAIN)
    domains(libvirt, store).attach("web1", {})
    domains(libvirt, elsewhere).detach("web1", {})
    other = PLAIN.replace("/usr/bin/qemu-system-x86_64", "/usr/bin/kvm")
    libvirt.define(other)
    domains(libvirt, elsewhere).attach("web1", {})
    domains(libvirt, store).detach("web1", {})
    assert domain_xml.describe(libvirt.xml).emulator == "/usr/bin/kvm"


def test_a_domain_of_an_earlier_version_detaches_by_the_stored_record(store):
    libvirt = Definition(PLAIN)
    service = domains(libvirt, store)
    service.attach("web1", {})
    libvirt.define(without_metadata(libvirt.xml).replace("<name>", "<title>Films</title><name>"))
    service.detach("web1", {})
    assert domain_xml.describe(libvirt.xml).shaper_id is None and "Films" in libvirt.xml


def test_a_broken_record_changes_nothing(store, elsewhere):
    libvirt = Definition(PLAIN)
    domains(libvirt, store).attach("web1", {})
    libvirt.define(
        libvirt.xml.replace("&quot;aliases", "&quot;alias").replace('"aliases', '"alias')
    )
    before = libvirt.xml
    with pytest.raises(Conflict, match="cannot be used"):
        domains(libvirt, elsewhere).detach("web1", {})
    assert libvirt.xml == before


def test_a_domain_of_which_nothing_is_known_is_left_as_it_is(store, elsewhere):
    libvirt = Definition(PLAIN)
    domains(libvirt, store).attach("web1", {})
    libvirt.define(without_metadata(libvirt.xml))
    before = libvirt.xml
    with pytest.raises(Conflict, match="neither this host"):
        domains(libvirt, elsewhere).detach("web1", {})
    assert libvirt.xml == before
