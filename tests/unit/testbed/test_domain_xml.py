# SPDX-License-Identifier: GPL-2.0-or-later
"""The XML that test guests are defined from."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from testbed.domain_xml import FileDisk, GuestSpec, NbdDisk, Placement, domain_xml

PLACEMENT = Placement(
    accelerator="tcg",
    emulator=Path("/q"),
    kernel=Path("/vmlinuz"),
    initrd=Path("/initrd"),
    root_overlay=Path("/root.qcow2"),
    console_log=Path("/console.log"),
    address="10.77.0.11",
    mac="52:54:00:77:00:01",
)


def parsed(spec: GuestSpec, placement: Placement = PLACEMENT) -> ET.Element:
    return ET.fromstring(domain_xml(spec, placement))


def test_disks_come_in_order_and_the_agent_last():
    spec = GuestSpec(
        "g", disks=(FileDisk(Path("/a"), readonly=True), NbdDisk(Path("/run/nbd"), "x"))
    )
    domain = parsed(spec, replace(PLACEMENT, agent_image=Path("/agent.img")))
    disks = domain.findall("devices/disk")
    assert [d.find("target").get("dev") for d in disks] == ["vda", "vdb", "vdc", "vdd"]
    assert disks[1].find("driver").attrib == {
        "name": "qemu",
        "type": "raw",
        "cache": "none",
        "io": "native",
    }
    assert disks[1].find("readonly") is not None
    assert disks[2].find("source").attrib == {"protocol": "nbd", "name": "x"}
    assert disks[2].find("source/host").attrib == {"transport": "unix", "socket": "/run/nbd"}
    assert disks[2].find("readonly") is None
    assert disks[3].find("source").get("file") == "/agent.img"


def test_shaping_needs_the_backend_inside_qemu():
    assert parsed(GuestSpec("g")).find("devices/interface/driver").get("name") == "qemu"
    with_vhost = parsed(GuestSpec("g", vhost=True))
    assert with_vhost.find("devices/interface/driver").get("name") == "vhost"


def test_accelerator_decides_type_and_cpu():
    tcg = parsed(GuestSpec("g"))
    assert tcg.get("type") == "qemu" and tcg.find("cpu") is None
    assert "mitigations=off" in tcg.findtext("os/cmdline")
    kvm = parsed(GuestSpec("g"), replace(PLACEMENT, accelerator="kvm"))
    assert kvm.get("type") == "kvm" and kvm.find("cpu").get("mode") == "host-passthrough"
    assert "mitigations" not in kvm.findtext("os/cmdline")


@pytest.mark.parametrize(
    ("accelerator", "processors", "vcpus"),
    [("kvm", 1, "1"), ("kvm", 2, "2"), ("kvm", 64, "2"), ("tcg", 1, "2")],
)
def test_no_more_vcpus_than_kvm_can_run_at_once(accelerator, processors, vcpus):
    placement = replace(PLACEMENT, accelerator=accelerator, processors=processors)
    assert parsed(GuestSpec("g"), placement).findtext("vcpu") == vcpus


@pytest.mark.parametrize(
    ("accelerator", "current", "most"), [("kvm", None, "1"), ("tcg", "1", "2")]
)
def test_an_emulated_guest_of_one_vcpu_could_have_a_second(accelerator, current, most):
    placement = replace(PLACEMENT, accelerator=accelerator)
    vcpu = parsed(GuestSpec("g", vcpus=1), placement).find("vcpu")
    assert (vcpu.get("current"), vcpu.text) == (current, most)


def test_command_line_carries_name_and_address():
    words = parsed(GuestSpec("g", cmdline="extra=1")).findtext("os/cmdline").split()
    assert "systemd.hostname=g" in words
    assert "sluice.ip=10.77.0.11/24" in words
    assert words[-1] == "extra=1"


def test_names_are_escaped():
    domain = parsed(GuestSpec("g", disks=(FileDisk(Path("/a&<b>")),)))
    assert domain.findall("devices/disk")[1].find("source").get("file") == "/a&<b>"


def test_every_nic_has_a_mac_address_of_its_own():
    interfaces = parsed(GuestSpec("g", nics=2)).findall("devices/interface")
    macs = [interface.find("mac").get("address") for interface in interfaces]
    assert macs[0] == PLACEMENT.mac
    assert len(set(macs)) == 2


def test_all_disks_get_the_ring_that_is_asked_for():
    spec = GuestSpec("g", disks=(FileDisk(Path("/a")), NbdDisk(Path("/run/nbd"))))
    plain = parsed(spec).findall("devices/disk/driver")
    assert [driver.get("queue_size") for driver in plain] == [None] * 3
    large = parsed(replace(spec, disk_queue_size=1024)).findall("devices/disk/driver")
    assert [driver.get("queue_size") for driver in large] == ["1024"] * 3
