# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates of devices in QEMUs: opened before they are joined, and closed when none is a member."""

import itertools
import logging

import pytest

from at_once import AtOnce
from sluice_controller.adapters.gate_pages import GatePages
from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.services.gate_opener import GateOpener
from sluice_controller.services.gate_setter import LOOK_AGAIN_NS, Gate, GateSetter, Shown

MS = 1_000_000
LIVE = Description(shaper_id="sluice0")
GUEST = Guest("media", "u-1", "running", 1, LIVE, LIVE)


class Qemu:
    """Its gates, {id: lost}, and the one that its shaper's gate is a member of."""

    def __init__(self):
        self.objects, self.member, self.taken, self.knows_gates = {}, None, [], True

    def execute(self, _domain, command, arguments):
        self.taken.append(command)
        if command == "shaper-set-gate":
            assert arguments.get("gate") in (None, *self.objects)
            self.member = arguments.get("gate")
        elif not self.knows_gates:
            raise Conflict("shaper", "media", f"refused {command}", "a newer QEMU")
        elif command == "object-add":
            assert arguments["qom-type"] == "shaper-gate"
            self.objects[arguments["id"]] = False
        elif command == "object-del":
            assert arguments["id"] != self.member
            del self.objects[arguments["id"]]
        else:
            return [{"id": name, "lost": lost} for name, lost in self.objects.items()]


class Setting:
    def __init__(self, folder):
        clock = itertools.count(10**9)
        self.qemu = Qemu()
        self.pages = GatePages(folder, None, lambda: next(clock), lambda _device: False)
        self.setter = GateSetter(self.qemu, AtOnce(), self.pages)
        self.now_ns = 10**10

    def want(self, target_ms, device="sda", after_ns=100 * MS):
        self.now_ns += after_ns
        gate = Gate(target_ms * MS, (), device if target_ms else None)
        self.setter.want(GUEST, gate, 1.0, Shown(0, 0), self.now_ns)


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


def test_a_gate_is_opened_once_and_joined(setting):
    setting.want(50)
    setting.want(40)
    assert setting.qemu.taken.count("object-add") == 1
    assert [setting.qemu.member] == list(setting.qemu.objects)
    assert setting.setter.shares("media")


def test_another_device_and_no_gate_leave_it(setting):
    setting.want(50)
    first = setting.qemu.member
    setting.want(50, "sdb")
    assert setting.qemu.member != first
    assert list(setting.qemu.objects) == [setting.qemu.member]
    setting.want(0)
    assert setting.qemu.member is None


def test_a_page_is_looked_at_now_and_then_and_joined_anew_if_it_was_lost(setting):
    setting.want(50)
    lost = setting.qemu.member
    setting.qemu.objects[lost] = True
    setting.want(50)
    assert setting.qemu.member == lost
    setting.want(50, after_ns=LOOK_AGAIN_NS)
    assert setting.qemu.member != lost
    assert setting.qemu.objects == {setting.qemu.member: False}


def test_a_page_that_is_gone_is_made_anew_and_joined(setting):
    setting.want(50)
    first = setting.qemu.member
    for path in setting.pages.folder.iterdir():
        path.unlink()
    setting.want(50)
    setting.want(50, after_ns=LOOK_AGAIN_NS)
    assert setting.qemu.objects == {setting.qemu.member: False}
    assert setting.qemu.member != first


def test_a_qemu_from_before_has_a_window_of_its_own_and_that_is_said_once(setting, caplog):
    setting.qemu.knows_gates = False
    with caplog.at_level(logging.WARNING):
        setting.want(50)
        setting.want(30)
    assert setting.qemu.taken[-1] == "shaper-set-gate" and setting.qemu.member is None
    assert not setting.setter.shares("media")
    assert [record.message.partition(": refused")[0] for record in caplog.records] != []
    assert len(caplog.records) == 1
    assert setting.setter.error("media") is None


def test_a_folder_that_cannot_be_written_leaves_a_window_of_its_own(tmp_path, caplog):
    (tmp_path / "gates").write_text("a file")
    opener = GateOpener(
        Qemu(), GatePages(tmp_path / "gates", None, lambda: 1, lambda _device: False)
    )
    assert opener.opened("media", "sda") is None
    assert "shares no window on sda" in caplog.text


def test_of_domains_that_run_no_more_nothing_is_kept(setting, caplog):
    setting.want(50)
    setting.setter.tend([])
    assert not setting.setter.shares("media")
    setting.qemu.knows_gates = False
    setting.want(50)
    setting.setter.tend([])
    setting.want(50)
    assert len(caplog.records) == 2
