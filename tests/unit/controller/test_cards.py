# SPDX-License-Identifier: GPL-2.0-or-later
"""Which DSCP counts on a card: from the operator's word to QEMU, and back to the default."""

from types import SimpleNamespace

import pytest

from sluice_controller.adapters.domain_xml import attach, describe
from sluice_controller.adapters.qmp import QmpShapers
from sluice_controller.domain.cards import Card, by_path, mac_of
from sluice_controller.domain.errors import Conflict, NotFound
from sluice_controller.domain.guests import Device
from sluice_controller.domain.shaper_config import actual, commands, wanted

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
PATH = "/machine/peripheral/ua-sluice-net1"


def want(**cards):
    """The due configuration of a domain without classes: {card's alias: which DSCP counts}."""
    paths = {f"/machine/peripheral/{alias}": dscp for alias, dscp in cards.items()}
    return wanted("web1", [], [], {}, {}, cards=paths)


def steps(have, due):
    return [arguments for command, arguments in commands("sluice0", have, due)]


def setting(path, value):
    return {"path": path, "property": "shaper-dscp", "value": value}


def test_only_what_is_not_as_by_default_is_pushed_so_an_earlier_qemu_refuses_nothing():
    assert steps(want(), want(net0="auto")) == []
    assert steps(want(), want(net0="both")) == [setting("/machine/peripheral/net0", "both")]
    assert steps(want(net0="both"), want(net0="both")) == []


@pytest.mark.parametrize("due", [want(), want(net0="auto")], ids=["taken back", "auto"])
def test_the_default_comes_back(due):
    assert steps(want(net0="both"), due) == [setting("/machine/peripheral/net0", "auto")]


def test_what_someone_else_set_in_qemu_is_a_difference():
    shaper = {"classes": [], "ceiling": [], "cards": {PATH: "both"}}
    have = {**actual(shaper, want()), "classes": want()["classes"]}
    assert steps(have, want()) == [setting(PATH, "auto")]


DISK = "<disk device='disk'><target dev='vda' bus='virtio'/></disk>"
CARDS = "".join(
    f"<interface type='network'><mac address='{mac.upper()}'/><model type='{model}'/></interface>"
    for mac, model in ((MAC, "virtio"), (OTHER, "e1000"))
)


def described():
    xml = f"<domain type='kvm'><name>web1</name><devices>{DISK}{CARDS}</devices></domain>"
    return describe(attach(xml, emulator="/opt/qemu", page_path="/run/web1", name="web1")[0])


def test_a_card_is_found_in_qemu_by_its_mac_address_if_it_is_shaped():
    cards = {MAC: Card("both"), OTHER: Card("off"), "52:54:00:00:00:03": Card("off")}
    assert by_path(cards, described()) == {PATH: "both"}


@pytest.mark.parametrize("named", [MAC, "vnet3", "ua-sluice-net1"])
def test_a_card_is_named_in_three_ways(named):
    card = Device("net", "ua-sluice-net1", "vnet3", True, mac=MAC)
    devices = [vars(Device("disk", "ua-sluice-disk0", "vda", True)), vars(card)]
    assert mac_of(devices, named, "web1") == MAC
    for wrong in ("vda", "52:54:00:00:00:09"):
        with pytest.raises(NotFound, match=f"which has {MAC}"):
            mac_of(devices, wrong, "web1")
    with pytest.raises(NotFound, match="which has no card"):
        mac_of(devices[:1], "vda", "web1")


class Qemu(QmpShapers):
    """One that has the property on its card, or, an earlier one, nowhere."""

    def __init__(self, has_property):
        self.has_property = has_property

    def execute(self, domain, command, arguments):
        if command == "query-shapers":
            devices = [f"/machine/peripheral/{one}" for one in ("ua-disk0", "ua-sluice-net1")]
            return [{"id": "sluice0", "devices": [f"{path}/virtio-backend" for path in devices]}]
        if command == "query-shaper-groups":
            return []
        assert command == "qom-get" and arguments["property"] == "shaper-dscp"
        if self.has_property and arguments["path"] == PATH:
            return "both"
        raise Conflict("shaper of domain", domain, "refused qom-get (Property not found)", "")


@pytest.mark.parametrize(("has_property", "cards"), [(True, {PATH: "both"}), (False, {})])
def test_qemu_is_asked_which_dscp_counts(has_property, cards):
    assert Qemu(has_property).query("web1", "sluice0")["cards"] == cards


def test_an_earlier_qemu_that_refuses_a_setting_is_to_be_replaced(monkeypatch):
    answer = '{"error": {"desc": "Property \'virtio-net-pci.shaper-dscp\' not found"}}'
    monkeypatch.setattr("libvirt_qemu.qemuMonitorCommand", lambda *_request: answer)
    shapers = QmpShapers(SimpleNamespace(domain=lambda name: None))
    with pytest.raises(Conflict, match="newer sluice-qemu: sluice attach web1 --upgrade --restart"):
        shapers.execute("web1", "qom-set", setting(PATH, "both"))
    with pytest.raises(Conflict, match="see the daemon's log"):
        shapers.execute("web1", "shaper-set-class", {"id": "sluice0"})
