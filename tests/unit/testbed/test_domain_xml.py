# SPDX-License-Identifier: GPL-2.0-or-later
"""The XML that test guests are defined from."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from testbed.domain_xml import GuestSpec, Placement, domain_xml

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
