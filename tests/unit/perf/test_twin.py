# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.twin: what differs between the definitions of a guest for two emulators."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from perf.twin import QEMU, emulator_of, on_processor, under, under_stock

STOCK = Path("/opt/stock/qemu")
ATTACHED = """\
<domain type="qemu" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
  <name>web</name>
  <metadata><note xmlns="urn:x"/></metadata>
  <vcpu current="1">2</vcpu>
  <devices>
    <emulator>/opt/patched/qemu</emulator>
    <controller type="virtio-serial"/>
  </devices>
  <qemu:commandline>
    <qemu:arg value="-object"/>
    <qemu:arg value="rng-random,id=other"/>
    <qemu:arg value="-object"/>
    <qemu:arg value="shaper,id=sluice0,page=/run/x.page"/>
  </qemu:commandline>
  <qemu:override>
    <qemu:device alias="ua-disk">
      <qemu:frontend><qemu:property name="shaper" type="string" value="sluice0"/></qemu:frontend>
    </qemu:device>
    <qemu:device alias="ua-net">
      <qemu:frontend>
        <qemu:property name="shaper" type="string" value="sluice0"/>
        <qemu:property name="speed" type="unsigned" value="10"/>
      </qemu:frontend>
    </qemu:device>
  </qemu:override>
</domain>
"""


def test_the_shaper_goes_and_all_else_stays():
    root = ET.fromstring(under_stock(ATTACHED, STOCK))
    assert root.findtext("devices/emulator") == str(STOCK)
    words = [word.get("value") for word in root.iterfind(f"{QEMU}commandline/{QEMU}arg")]
    assert words == ["-object", "rng-random,id=other"]
    assert [one.get("alias") for one in root.iterfind(f"{QEMU}override/{QEMU}device")] == ["ua-net"]
    assert [one.get("name") for one in root.iter(f"{QEMU}property")] == ["speed"]
    assert root.find("devices/controller") is not None
    assert root.find("metadata") is None


def test_what_has_no_shaper_is_refused():
    plain = under_stock(ATTACHED, STOCK)
    with pytest.raises(ValueError, match="no shaper"):
        under_stock(plain, STOCK)


def test_an_override_of_nothing_goes_too():
    only = ATTACHED.replace('<qemu:property name="speed" type="unsigned" value="10"/>', "")
    assert ET.fromstring(under_stock(only, STOCK)).find(f"{QEMU}override") is None


def test_all_of_a_guests_threads_have_one_processor():
    root = ET.fromstring(on_processor(on_processor(ATTACHED, 0), 1))
    (tune,) = root.findall("cputune")
    assert [pin.get("vcpu") for pin in tune.findall("vcpupin")] == ["0", "1"]
    assert {pin.get("cpuset") for pin in tune} == {"1"}
    assert root.findtext("vcpu") == "2"


def test_another_emulator_is_all_that_differs():
    changed = under(ATTACHED, STOCK)
    assert emulator_of(changed) == STOCK
    back, before = (
        ET.canonicalize(xml, rewrite_prefixes=True)
        for xml in (under(changed, emulator_of(ATTACHED)), ATTACHED)
    )
    assert back == before
