# SPDX-License-Identifier: GPL-2.0-or-later
"""attach and detach as pure functions: detach takes back exactly what attach did."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from sluice_controller.adapters.domain_xml import attach, describe, detach, record_in, same
from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.models import as_json

NS = 'xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"'
QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
EMULATOR = "/usr/lib/sluice/qemu-10.0.13-sluice0.1.0/bin/qemu-system-x86_64"


def disk(i, bus="virtio", driver="<driver name='qemu' type='raw'/>", extra="", kind="file"):
    return (
        f"<disk type='{kind}' device='disk'>{driver}<source file='/d{i}'/>"
        f"<target dev='vd{chr(97 + i)}' bus='{bus}'/>{extra}</disk>"
    )


def interface(i, model="virtio", driver="", kind="network", extra=""):
    return (
        f"<interface type='{kind}'><mac address='52:54:00:00:00:{i:02x}'/>"
        f"<source network='default'/><model type='{model}'/>{driver}{extra}</interface>"
    )


def domain(devices, namespace="", tail="", features="<features><acpi/></features>", kind="kvm"):
    return (
        f"<domain type='{kind}' {namespace}>\n  <name>media</name>\n  {features}\n"
        f"  <devices>\n    <emulator>/usr/bin/qemu-system-x86_64</emulator>\n"
        + "".join(f"    {device}\n" for device in devices)
        + f"  </devices>{tail}\n</domain>\n"
    )


def attached(xml, **options):
    options = {"emulator": EMULATOR, "page_path": "/run/p/media.page", "name": "media", **options}
    return attach(xml, **options)


def canonical(xml):
    parser = etree.XMLParser(remove_blank_text=True)
    return etree.tostring(etree.fromstring(xml, parser), method="c14n2")


def overrides(xml):
    """{alias: properties} of the override section."""
    root = etree.fromstring(xml)
    return {
        device.get("alias"): {p.get("name"): p.get("value") for p in device.iter(f"{QEMU}property")}
        for device in root.iter(f"{QEMU}device")
    }


def test_what_attach_does():
    xml, changes = attached(domain([disk(0), interface(1)]))
    root = etree.fromstring(xml)
    assert root.findtext("devices/emulator") == EMULATOR
    assert [a.get("value") for a in root.iter(f"{QEMU}arg")] == [
        "-object",
        "shaper,id=sluice0,page=/run/p/media.page",
    ]
    aliases = [e.get("name") for e in root.iter("alias")]
    assert all(alias.startswith("ua-sluice-") for alias in aliases)
    assert overrides(xml) == {alias: {"shaper": "sluice0"} for alias in aliases}
    assert root.find("devices/interface/driver").get("name") == "qemu"
    assert root.find("devices/disk/driver").get("queue_size") == "1024"
    assert root.find("devices/channel/target").get("name") == "org.sluice.agent.0"
    assert len(changes.said) == 9


def test_what_describe_sees():
    xml, _ = attached(domain([disk(0), disk(1, bus="sata"), interface(1), interface(2, "e1000")]))
    seen = describe(xml)
    assert (seen.shaper_id, seen.page_path) == ("sluice0", "/run/p/media.page")
    assert [d.shapeable for d in seen.devices] == [True, False, True, False]
    assert "sata" in seen.devices[1].reason
    assert "e1000" in seen.devices[3].reason


def test_the_images_of_disks_that_can_be_shaped():
    network = disk(2, kind="network").replace("file='/d2'", "protocol='rbd' name='pool/a'")
    block = disk(3, kind="block").replace("file=", "dev=")
    found = describe(domain([disk(0), disk(1, bus="sata"), network, block, interface(1)]))
    assert found.images == ("/d0", "rbd:pool/a", "/d3")


def test_a_comma_in_a_path_is_doubled_for_qemu_and_read_back():
    xml, _ = attached(domain([disk(0)]), page_path="/run/a,b.page")
    assert "page=/run/a,,b.page" in xml
    assert describe(xml).page_path == "/run/a,b.page"


def test_aliases_and_overrides_of_the_operator_are_kept():
    alias = "<alias name='ua-mine'/>"
    override = (
        "<qemu:override><qemu:device alias='ua-mine'><qemu:frontend>"
        "<qemu:property name='num-queues' type='unsigned' value='2'/>"
        "</qemu:frontend></qemu:device></qemu:override>"
    )
    before = domain([disk(0, extra=alias)], NS, override)
    xml, changes = attached(before)
    assert overrides(xml) == {"ua-mine": {"num-queues": "2", "shaper": "sluice0"}}
    assert canonical(detach(xml, as_json(changes))) == canonical(before)


def test_vhost_is_refused_unless_it_may_be_disabled():
    before = domain([interface(1, driver="<driver name='vhost' queues='2'/>")])
    with pytest.raises(Conflict, match="disable") as refused:
        attached(before)
    assert refused.value.value == "52:54:00:00:00:01"
    xml, changes = attached(before, disable_vhost=True)
    driver = etree.fromstring(xml).find("devices/interface/driver")
    assert dict(driver.attrib) == {"name": "qemu", "queues": "2"}
    assert canonical(detach(xml, as_json(changes))) == canonical(before)


@pytest.mark.parametrize(
    ("devices", "options", "error", "words"),
    [
        ([], {}, BadValue, "no virtio disk"),
        ([disk(0, bus="ide"), interface(1, "e1000")], {}, BadValue, "no virtio disk"),
        ([disk(0, kind="vhostuser")], {}, BadValue, "no virtio disk"),
        (
            [
                disk(0),
                "<channel type='unix'><target type='virtio' name='org.sluice.agent.0'/></channel>",
            ],
            {},
            Conflict,
            "exists already",
        ),
    ],
)
def test_what_is_refused(devices, options, error, words):
    with pytest.raises(error, match=words):
        attached(domain(devices), **options)


def test_acpi_is_asked_for_where_libvirt_needs_it():
    before = domain([disk(0)], features="")
    with pytest.raises(BadValue, match="acpi"):
        attached(before, acpi_required=True)
    attached(before, acpi_required=False)
    attached(domain([disk(0)]), acpi_required=True)


def test_other_hypervisors_are_refused():
    with pytest.raises(BadValue, match="xen"):
        attached(domain([disk(0)], kind="xen"))


def test_twice_is_refused():
    xml, _ = attached(domain([disk(0)]))
    with pytest.raises(Conflict, match="attached already"):
        attached(xml)


def test_external_entities_are_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    evil = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{secret}">]>' + domain([disk(0)]).replace(
        "<name>media", "<name>&x;media"
    )
    with contextlib.suppress(BadValue):
        assert "hidden" not in attached(evil)[0]


def test_edits_made_while_attached_survive_detach():
    before = domain([disk(0), interface(1)])
    xml, changes = attached(before)
    edited = xml.replace("<name>media</name>", "<name>media</name><title>Films</title>")
    after = detach(edited, as_json(changes))
    expected = before.replace("<name>media</name>", "<name>media</name><title>Films</title>")
    assert canonical(after) == canonical(expected)


def test_a_serial_controller_is_small_and_goes_with_the_channel():
    xml, changes = attached(domain([disk(0)]))
    (controller,) = etree.fromstring(xml).findall("devices/controller[@type='virtio-serial']")
    assert controller.get("ports") == "4"
    assert "virtio-serial" not in detach(xml, as_json(changes))
    other = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
    kept = xml.replace("<channel", other + "<channel", 1)
    assert "virtio-serial" in detach(kept, as_json(changes))


def test_a_serial_controller_of_the_operators_stays_as_it_is():
    own = "<controller type='virtio-serial' index='0'/>"
    xml, changes = attached(domain([disk(0), own]))
    (controller,) = etree.fromstring(xml).findall("devices/controller[@type='virtio-serial']")
    assert dict(controller.attrib) == {"type": "virtio-serial", "index": "0"}
    assert "virtio-serial" in detach(xml, as_json(changes))


def carrying(element, operators=""):
    """An attached domain whose metadata has this instead of attach's own record."""
    xml, _ = attached(domain([disk(0)]))
    root = etree.fromstring(xml)
    metadata = root.find("metadata")
    metadata.remove(metadata[0])
    for text in (element, operators):
        if text:
            metadata.append(etree.fromstring(text))
    return etree.tostring(root, encoding="unicode")


def record_element(text):
    element = etree.Element("{urn:sluice:attached:1}attached")
    element.text = text
    return etree.tostring(element, encoding="unicode")


def test_the_record_is_in_the_metadata_and_leaves_with_detach():
    before = domain([disk(0), interface(1)])
    xml, changes = attached(before)
    carried = record_in(xml, "media")
    assert carried == {k: v for k, v in as_json(changes).items() if k != "said"}
    assert canonical(detach(xml, carried)) == canonical(before)
    assert "sluice" not in detach(xml, carried)


def test_metadata_of_others_is_left_alone():
    theirs = '<app:x xmlns:app="http://example.org/app"><app:y>1</app:y></app:x>'
    before = domain([disk(0)], tail=f"<metadata>{theirs}</metadata>")
    xml, changes = attached(before)
    assert theirs in xml
    assert canonical(detach(xml, as_json(changes))) == canonical(before)


def test_a_domain_that_an_earlier_version_attached_has_no_record():
    xml = carrying("")
    assert record_in(xml, "media") is None
    assert record_in(domain([disk(0)]), "media") is None


SOUND = {
    "emulator": None,
    "aliases": [],
    "drivers_created": [],
    "drivers_named": {},
    "queue_sizes": [],
    "disk_drivers_created": [],
    "serial_controller_absent": False,
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "its members"),
        ("[]", "its members"),
        (json.dumps({**SOUND, "more": 1}), "its members"),
        (json.dumps({**SOUND, "emulator": 7}), "emulator"),
        (json.dumps({**SOUND, "aliases": "disk:vda"}), "aliases"),
        (json.dumps({**SOUND, "aliases": [["disk:vda"]]}), "aliases"),
        (json.dumps({**SOUND, "drivers_named": {"net:0": []}}), "drivers_named"),
        (json.dumps({**SOUND, "serial_controller_absent": 1}), "serial_controller_absent"),
        (" " * (4 * 2**20 + 1), "characters"),
    ],
)
def test_a_broken_record_is_refused_with_a_remedy(text, words):
    with pytest.raises(Conflict, match=words) as refused:
        record_in(carrying(record_element(text)), "media")
    assert "virsh metadata media urn:sluice:attached:1 --remove" in refused.value.remedy


def test_what_it_carries_and_what_stands_beside_it_are_read_apart():
    shaping = '<s:shaping xmlns:s="urn:sluice:shaping:1"{}>[1]</s:shaping>'
    for beside, tuned in (("", None), (" tuned='{&quot;host&quot;: 1}'", '{"host": 1}')):
        found = describe(carrying(shaping.format(beside)))
        assert (found.carried, found.tuned) == ("[1]", tuned)
    assert (describe(carrying("")).carried, describe(carrying("")).tuned) == (None, None)


def test_a_definition_is_the_same_whatever_shaping_it_carries():
    xml, _ = attached(domain([disk(0)]))
    shaping = '<s:shaping xmlns:s="urn:sluice:shaping:1">{}</s:shaping>'
    assert same(xml, xml.replace("</metadata>", f"\n{shaping}\n</metadata>"))
    assert same(carrying(""), carrying(shaping))
    assert not same(xml, carrying(""))
    assert not same(xml, xml.replace("<name>media</name>", "<name>other</name>"))
    assert not same(carrying(""), carrying("", '<x xmlns="http://example.org/x">1</x>'))


def test_an_old_record_does_not_outlive_another_attach():
    xml, changes = attached(domain([disk(0)]))
    plain = detach(xml, as_json(changes))
    stale = plain.replace(
        "</domain>", f"<metadata>{record_element(json.dumps(SOUND))}</metadata></domain>"
    )
    again, changes = attached(stale)
    assert record_in(again, "media")["aliases"] == changes.aliases != []


PCI = "<controller type='pci' index='0' model='{}'/>"
Q35, I440FX = PCI.format("pcie-root"), PCI.format("pci-root")


def channel(xml):
    """The properties of the device sluice-channel in the command line; None without one."""
    arguments = [a.get("value") for a in etree.fromstring(xml).iter(f"{QEMU}arg")]
    found = [a for a in arguments if a.startswith("sluice-channel")]
    assert len(found) <= 1 and (not found or arguments[arguments.index(found[0]) - 1] == "-device")
    return dict(p.split("=") for p in found[0].split(",")[1:]) if found else None


@pytest.mark.parametrize(("root", "bus"), [(Q35, "pcie.0"), (I440FX, "pci.0")])
def test_the_channel_has_a_slot_that_libvirt_reaches_last(root, bus):
    before = domain([disk(0), root])
    xml, changes = attached(before, has_channel=True)
    wanted = {"id": "sluice-channel0", "shaper": "sluice0", "bus": bus, "addr": "0x1c"}
    assert channel(xml) == wanted
    assert describe(xml).has_channel
    assert any("-device sluice-channel" in line for line in changes.said)
    assert canonical(detach(xml, as_json(changes))) == canonical(before)


def test_without_the_device_in_the_emulator_attach_adds_none():
    xml, _ = attached(domain([disk(0), Q35]))
    assert channel(xml) is None and not describe(xml).has_channel


def address(slot, bus="0x00"):
    return f"<address type='pci' domain='0x0000' bus='{bus}' slot='{slot}' function='0x0'/>"


def own_device(value):
    arguments = f"<qemu:arg value='-device'/><qemu:arg value='{value}'/>"
    return f"<qemu:commandline>{arguments}</qemu:commandline>"


@pytest.mark.parametrize(
    ("extra", "tail", "slot"),
    [
        (address("0x1c"), "", "0x19"),
        (address("0x1c", bus="0x01"), "", "0x1c"),
        ("", own_device("pvpanic-pci,bus=pcie.0,addr=1c.0"), "0x19"),
        ("", own_device("pvpanic-pci,addr=0x1c"), "0x19"),
        ("", own_device("pvpanic-pci,bus=pci.1,addr=0x1c"), "0x1c"),
        ("", own_device('{"driver": "pvpanic-pci", "bus": "pcie.0", "addr": "0x1c"}'), "0x19"),
        ("", own_device('{"driver": "pvpanic-pci", "bus": "pci.1", "addr": "0x1c"}'), "0x1c"),
        ("", own_device('{"driver": "pvpanic-pci"'), "0x1c"),
        ("", own_device("pvpanic-pci"), "0x1c"),
        (address("no number"), "", "0x1c"),
    ],
)
def test_the_channel_takes_no_slot_of_another_device(extra, tail, slot):
    before = domain([disk(0, extra=extra), Q35], NS, tail)
    xml, changes = attached(before, has_channel=True)
    assert channel(xml)["addr"] == slot
    assert canonical(detach(xml, as_json(changes))) == canonical(before)


FULL = [disk(i, extra=address(hex(slot))) for i, slot in enumerate([0x1C, *range(0x10, 0x1A)])]


@pytest.mark.parametrize(
    ("devices", "why"), [([disk(0)], "no PCI bus"), ([*FULL, Q35], "no slot")], ids=["bus", "slot"]
)
def test_a_channel_that_does_not_fit_is_left_out_and_that_is_said(devices, why):
    xml, changes = attached(domain(devices), has_channel=True)
    assert channel(xml) is None
    assert any(line.startswith("no sluice-channel") and why in line for line in changes.said)
    assert why in describe(xml).no_channel_because


drivers = st.sampled_from(
    [
        "",
        "<driver name='qemu'/>",
        "<driver name='qemu' queues='4'/>",
        "<driver queues='2'/>",
        "<driver name='vhost'/>",
    ]
)
disk_drivers = st.sampled_from(
    [
        "",
        "<driver name='qemu' type='raw'/>",
        "<driver name='qemu' type='qcow2' cache='none' queue_size='256'/>",
    ]
)
aliases = st.sampled_from(["", "<alias name='ua-own'/>", "<boot order='1'/>"])


@st.composite
def domains(draw):
    devices = []
    for i in range(draw(st.integers(0, 4))):
        bus = draw(st.sampled_from(["virtio", "virtio", "sata", "scsi"]))
        alias = draw(aliases).replace("own", f"disk{i}")
        devices.append(disk(i, bus, draw(disk_drivers), alias))
    for i in range(draw(st.integers(0, 3))):
        model = draw(st.sampled_from(["virtio", "e1000", "virtio-non-transitional"]))
        kind = draw(st.sampled_from(["network", "bridge", "hostdev"]))
        alias = draw(aliases).replace("own", f"net{i}")
        devices.append(interface(i, model, draw(drivers), kind, alias))
    if draw(st.booleans()):
        devices.append("<controller type='virtio-serial' index='0'/>")
    devices += draw(st.sampled_from([[], [Q35], [I440FX]]))
    devices = draw(st.permutations(devices))
    tail, namespace = "", ""
    if draw(st.booleans()):
        namespace = NS
        tail = "<qemu:commandline><qemu:arg value='-s'/><qemu:env name='A' value='b'/>"
        tail += "</qemu:commandline>"
    return domain(devices, namespace, tail)


@given(domains(), st.booleans())
@settings(deadline=None)
def test_detach_is_the_inverse_of_attach(before, has_channel):
    try:
        xml, changes = attached(before, disable_vhost=True, has_channel=has_channel)
    except BadValue as refused:
        assert "no virtio" in str(refused)
        return
    assert canonical(detach(xml, as_json(changes))) == canonical(before)
    assert canonical(detach(xml, record_in(xml, "media"))) == canonical(before)
    described = describe(xml)
    shaped = {d.alias for d in described.devices if d.shapeable}
    assert {alias for alias, p in overrides(xml).items() if p.get("shaper")} == shaped
