# SPDX-License-Identifier: GPL-2.0-or-later
"""Attach and detach: what they make of a definition, and records of several hosts."""

import pytest

from sluice_controller.adapters import domain_xml
from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database.tables import Base
from sluice_controller.domain.errors import BadValue, Conflict
from unit.controller.libvirt_model import PLAIN, Libvirt, Sluiced, attached


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """This host's store, and another one's."""
    folder = tmp_path_factory.mktemp("domains")
    stores = [SqlStore(f"sqlite:///{folder / name}.db") for name in ("here", "elsewhere")]
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def store(stores):
    for store in stores:
        with store.engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                connection.execute(table.delete())
    return stores[0]


WAITING = {"attach": (attached(), PLAIN), "detach": (PLAIN, attached())}


@pytest.mark.parametrize("action", WAITING)
def test_restart_of_a_waiting_domain_restarts_it(action, store):
    libvirt = Libvirt(*WAITING[action])
    sluiced = Sluiced(libvirt, store)
    answer = getattr(sluiced, action)(restart=True)
    assert libvirt.calls == ["shut down", "start"]
    assert not answer["needs_restart"] and answer["active"] == (action == "attach")
    assert sluiced.audit() == [("sluiced", action, "restarted")]


def test_a_waiting_domain_that_does_not_shut_down_is_left_running(store):
    libvirt = Libvirt(*WAITING["attach"], takes=91)
    with pytest.raises(Conflict, match="did not shut down"):
        Sluiced(libvirt, store).attach(restart=True)
    assert libvirt.calls == ["shut down"] and libvirt.guest("web1").needs_restart


@pytest.mark.parametrize("action", WAITING)
def test_a_slow_guest_may_be_given_longer(action, store):
    libvirt = Libvirt(*WAITING[action], takes=200)
    change = getattr(Sluiced(libvirt, store), action)
    with pytest.raises(Conflict, match="did not shut down within 90 s: give it longer with"):
        change(restart=True)
    change(restart=True, shutdown_seconds=200)
    assert libvirt.calls == ["shut down", "shut down", "start"]


@pytest.mark.parametrize("seconds", [0, 901, True, 90.5, "90", None])
def test_a_time_to_shut_down_that_cannot_be_is_refused(seconds, store):
    libvirt = Libvirt(*WAITING["attach"])
    with pytest.raises(BadValue, match="shutdown_seconds"):
        Sluiced(libvirt, store).attach(restart=True, shutdown_seconds=seconds)
    assert libvirt.calls == []


def test_detach_without_restart_of_a_detached_domain_is_refused(store):
    libvirt = Libvirt(*WAITING["detach"])
    with pytest.raises(Conflict, match="is not attached"):
        Sluiced(libvirt, store).detach()
    assert libvirt.calls == []


@pytest.mark.parametrize("body", [{}, {"restart": True}], ids=["alone", "with a restart"])
@pytest.mark.parametrize("action", ["attach", "detach"])
def test_a_transient_domain_is_not_made_persistent(action, body, store):
    xml = PLAIN if action == "attach" else attached()
    libvirt = Libvirt(xml, running=xml)
    libvirt.transient = True
    with pytest.raises(Conflict, match="web1.* is transient.*virsh define"):
        getattr(Sluiced(libvirt, store), action)(**body)
    assert libvirt.calls == []


@pytest.fixture
def elsewhere(store, stores):
    """Another host's store."""
    return stores[1]


def without_space(xml: str) -> str:
    return "".join(xml.split())


def without_metadata(xml: str) -> str:
    root = domain_xml.parse(xml)
    root.remove(root.find("metadata"))
    return domain_xml._text(root)


def test_detach_on_the_host_of_attach_gives_back_every_byte(store):
    original = PLAIN + "\n<!-- kept -->\n"
    libvirt = Libvirt(original)
    Sluiced(libvirt, store).attach()
    Sluiced(libvirt, store).detach()
    assert libvirt.xml == original


def test_detach_elsewhere_goes_by_what_the_domain_carries(store, elsewhere):
    libvirt = Libvirt(PLAIN)
    Sluiced(libvirt, store).attach()
    Sluiced(libvirt, elsewhere).detach()
    assert without_space(libvirt.xml) == without_space(domain_xml._text(domain_xml.parse(PLAIN)))


def test_the_record_that_the_domain_carries_outranks_one_of_an_earlier_stay(store, elsewhere):
    libvirt = Libvirt(PLAIN)
    Sluiced(libvirt, store).attach()
    Sluiced(libvirt, elsewhere).detach()
    other = PLAIN.replace("/usr/bin/qemu-system-x86_64", "/usr/bin/kvm")
    libvirt.define(other)
    Sluiced(libvirt, elsewhere).attach()
    Sluiced(libvirt, store).detach()
    assert domain_xml.describe(libvirt.xml).emulator == "/usr/bin/kvm"


def test_a_domain_of_an_earlier_version_detaches_by_the_stored_record(store):
    libvirt = Libvirt(PLAIN)
    service = Sluiced(libvirt, store)
    service.attach()
    libvirt.define(without_metadata(libvirt.xml).replace("<name>", "<title>Films</title><name>"))
    service.detach()
    assert domain_xml.describe(libvirt.xml).shaper_id is None and "Films" in libvirt.xml


def test_a_broken_record_changes_nothing(store, elsewhere):
    libvirt = Libvirt(PLAIN)
    Sluiced(libvirt, store).attach()
    libvirt.define(
        libvirt.xml.replace("&quot;aliases", "&quot;alias").replace('"aliases', '"alias')
    )
    before = libvirt.xml
    with pytest.raises(Conflict, match="cannot be used"):
        Sluiced(libvirt, elsewhere).detach()
    assert libvirt.xml == before


def test_a_domain_of_which_nothing_is_known_is_left_as_it_is(store, elsewhere):
    libvirt = Libvirt(PLAIN)
    Sluiced(libvirt, store).attach()
    libvirt.define(without_metadata(libvirt.xml))
    before = libvirt.xml
    with pytest.raises(Conflict, match="neither this host"):
        Sluiced(libvirt, elsewhere).detach()
    assert libvirt.xml == before


# Attached anew

VHOST = PLAIN.replace(
    "</devices>",
    "<interface type='network'><mac address='52:54:00:00:00:01'/><model type='virtio'/>"
    "<driver name='vhost'/></interface></devices>",
)


@pytest.fixture
def upgraded(store):
    """A domain that runs with the first QEMU, as its definition says, when there is a second."""
    libvirt = Libvirt()
    sluiced = Sluiced(libvirt, store)
    sluiced.attach()
    libvirt.start("web1")
    libvirt.emulator = "/opt/qemu-2"
    libvirt.calls.clear()
    return sluiced


def test_an_upgrade_changes_the_definition_once(upgraded):
    answer = upgraded.attach(upgrade=True)
    assert upgraded.libvirt.calls == ["define"] and answer["attached"]
    assert domain_xml.describe(upgraded.libvirt.xml).emulator == "/opt/qemu-2"
    assert answer["changes"][0] == "emulator /usr/bin/qemu-system-x86_64 → /opt/qemu-2"
    upgraded.detach()
    assert upgraded.libvirt.xml == PLAIN


def test_an_upgrade_that_was_made_is_not_made_again(upgraded):
    upgraded.attach(upgrade=True)
    record = upgraded.record()
    upgraded.libvirt.calls.clear()
    assert upgraded.attach(upgrade=True)["changes"] == []
    assert upgraded.libvirt.calls == [] and upgraded.record() == record
    assert upgraded.attach(upgrade=True, restart=True)["changes"] == ["restarted"]
    assert domain_xml.describe(upgraded.libvirt.running).emulator == "/opt/qemu-2"
    upgraded.libvirt.calls.clear()
    assert upgraded.attach(upgrade=True, restart=True)["changes"] == []
    assert upgraded.libvirt.calls == []


@pytest.mark.parametrize("takes", [1, None])
def test_an_upgrade_with_a_restart_is_made_or_not_and_nothing_between(takes, upgraded):
    libvirt = upgraded.libvirt
    libvirt.takes = takes
    before, record = libvirt.xml, upgraded.record()
    if takes is None:
        with pytest.raises(Conflict, match="did not shut down"):
            upgraded.attach(upgrade=True, restart=True)
        assert (libvirt.xml, libvirt.running) == (before, before)
        assert upgraded.record() == record
    else:
        upgraded.attach(upgrade=True, restart=True)
        assert libvirt.running == libvirt.xml != before
    assert all(domain_xml.describe(xml).shaper_id for xml in (libvirt.xml, libvirt.running))


def test_an_upgrade_keeps_vhost_off_and_takes_in_a_new_disk(store):
    libvirt = Libvirt(VHOST)
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(disable_vhost=True)
    disk = "<disk type='file' device='disk'><target dev='vdb' bus='virtio'/></disk></devices>"
    libvirt.xml = libvirt.xml.replace("</devices>", disk)
    sluiced.attach(upgrade=True)
    assert libvirt.xml.count('value="sluice0"') == 3
    sluiced.detach()
    assert libvirt.xml.count("vhost") == 1 and "vdb" in libvirt.xml


def test_an_upgrade_that_is_refused_changes_nothing(upgraded):
    libvirt = upgraded.libvirt
    # Its disks are now of a kind that is not shaped.
    libvirt.xml = before = libvirt.xml.replace('bus="virtio"', 'bus="sata"')
    with pytest.raises(BadValue, match="has no virtio disk"):
        upgraded.attach(upgrade=True, restart=True)
    assert libvirt.xml == before and libvirt.calls == []


def test_an_upgrade_of_a_domain_that_is_not_attached_attaches_it(store):
    libvirt = Libvirt()
    assert Sluiced(libvirt, store).attach(upgrade=True)["attached"]


def test_attach_of_an_attached_domain_is_refused_without_upgrade(upgraded):
    before = upgraded.libvirt.xml
    with pytest.raises(Conflict, match="is attached already"):
        upgraded.attach(restart=True)
    assert upgraded.libvirt.xml == before


@pytest.mark.parametrize("runs", [False, True])
def test_an_upgrade_adds_the_channel_of_a_newer_emulator(runs, store):
    machine = PLAIN.replace(
        "</devices>", "<controller type='pci' index='0' model='pcie-root'/></devices>"
    )
    libvirt = Libvirt(machine)
    sluiced = Sluiced(libvirt, store)
    answer = sluiced.attach()
    assert not answer["channel"]["present"]
    if runs:
        libvirt.start("web1")
    libvirt.has_channel = True
    answer = sluiced.attach(upgrade=True, restart=runs)
    assert answer["channel"]["present"]
    assert ("shut down" in libvirt.calls) is runs
    sluiced.detach()
    assert libvirt.xml == machine


def test_an_upgrade_without_restart_says_that_the_channel_waits(store):
    machine = PLAIN.replace(
        "</devices>", "<controller type='pci' index='0' model='pcie-root'/></devices>"
    )
    libvirt = Libvirt(machine)
    sluiced = Sluiced(libvirt, store)
    sluiced.attach()
    libvirt.start("web1")
    libvirt.has_channel = True
    answer = sluiced.attach(upgrade=True)
    assert "with a restart" in answer["channel"]["absent_because"]
    assert sluiced.attach(upgrade=True, restart=True)["channel"]["present"]
