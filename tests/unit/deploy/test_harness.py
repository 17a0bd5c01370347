# SPDX-License-Identifier: GPL-2.0-or-later
"""The pure parts of `make test-deploy`: command lines, inventories, recaps."""

import base64
import re
from pathlib import Path
from xml.etree import ElementTree as ET

from deploy import plan, report
from deploy.control import Run, parse_recap
from deploy.guest import WEB1, domain_xml
from deploy.machine import Image, MachineSpec, kernel_command_line, qemu_command

RECAP = """\
TASK [sluice.appliance.web : Set up TLS] ***
changed: [host1]
ok: [host2]

PLAY RECAP *********************************************************************
host1                      : ok=41   changed=3    unreachable=0    failed=0    skipped=9
host2 : ok=40 changed=0 unreachable=1 failed=2 skipped=9 rescued=0 ignored=0
localhost                  : ok=2    changed=1    unreachable=0    failed=0
"""


def test_a_recap_is_read_without_the_control_node() -> None:
    assert parse_recap(RECAP) == {
        "host1": {"ok": 41, "changed": 3, "unreachable": 0, "failed": 0},
        "host2": {"ok": 40, "changed": 0, "unreachable": 1, "failed": 2},
    }


def test_a_run_names_what_it_changed() -> None:
    run = Run("site", 0, RECAP, 1.0, parse_recap(RECAP))
    assert run.changed() == {"host1": 3, "host2": 0}
    assert run.changes() == ["host1: sluice.appliance.web : Set up TLS"]


def test_the_command_line_tells_an_instance_who_it_is() -> None:
    words = kernel_command_line("host1", "10.0.0.2", "10.0.0.1", "ssh-ed25519 AAAA x", bridge=True)
    assert "ip=10.0.0.2::10.0.0.1:255.255.255.0::br0:none" in words.split()
    assert "bridge=br0:eth0" in words.split()
    encoded = re.search(r"ssh.authorized_keys.root:(\S+)", words)[1]
    assert base64.b64decode(encoded) == b"ssh-ed25519 AAAA x"
    # The kernel cuts a longer one off.
    assert len(words) < 2048


def test_a_machine_is_emulated_with_svm_and_off_the_network() -> None:
    command = qemu_command(
        MachineSpec("host1", "10.0.0.2", "52:54:00:00:00:01"),
        emulator=Path("/qemu"),
        image=Image(Path("/image")),
        overlay=Path("/overlay"),
        data=[Path("/data")],
        tap="tap0",
        append="root=/dev/vda",
        console=Path("/console"),
        qmp=Path("/qmp"),
    )
    assert command[command.index("-cpu") + 1] == "max,la57=off"
    assert command[command.index("-accel") + 1].startswith("tcg")
    networks = [word for word in command if word.startswith(("tap,", "user,"))]
    assert networks == ["tap,id=lan,ifname=tap0,script=no,downscript=no,vhost=off"]


def test_the_operators_guest_knows_nothing_of_sluice() -> None:
    domain = ET.fromstring(domain_xml(WEB1, "/usr/bin/qemu", "ssh-ed25519 AAAA x"))
    assert domain.get("type") == "kvm"
    assert domain.findtext("devices/emulator") == "/usr/bin/qemu"
    assert [disk.get("dev") for disk in domain.iterfind("devices/disk/target")] == ["vda", "vdb"]
    assert "shaper" not in ET.tostring(domain, encoding="unicode")


def test_changed_inventories_leave_the_first_one_alone() -> None:
    base = {"all": {"vars": {}}, "sluice_hosts": {"hosts": {"host1": {}}}}
    assert plan.with_variable(base, "sluice_x", 1)["all"]["vars"] == {"sluice_x": 1}
    assert plan.with_guest(base, "host1")["sluice_guests"]["hosts"].keys() == {"web1"}
    assert base == {"all": {"vars": {}}, "sluice_hosts": {"hosts": {"host1": {}}}}


def test_a_report_has_a_line_for_each_figure(tmp_path: Path) -> None:
    book = report.Report(tmp_path)
    book.add("boot of host1", 20.25, "s")
    book.add("blk_read, limit 1500000", 1_501_234.6, "B/s", "100.08 % of the limit")
    lines = (tmp_path / "report.txt").read_text().splitlines()
    assert lines[0].split() == ["boot", "of", "host1", "20.2", "s"]
    assert "1,501,235 B/s   (100.08 % of the limit)" in lines[1]


def test_a_report_on_held_machines_goes_on(tmp_path: Path) -> None:
    report.Report(tmp_path).add("first", 1.0, "s")
    report.Report(tmp_path, go_on=True).add("second", 2.0, "s")
    assert len((tmp_path / "report.txt").read_text().splitlines()) == 2
    report.Report(tmp_path).add("third", 3.0, "s")
    assert len((tmp_path / "report.txt").read_text().splitlines()) == 1


def test_a_limit_is_judged_while_something_waits_for_it() -> None:
    def measured(ratio: float, idle: int) -> dict:
        rate = plan.LIMITS_BPS["net_tx"] * ratio
        return {"net_tx_bps": rate, "idle_looks": {"net_tx": idle}}

    judged = {
        (ratio, idle): plan.judge_rates(measured(ratio, idle), ["net_tx"])
        for ratio in (0.93, 0.985, 1.015, 1.03)
        for idle in (0, 3)
    }
    assert {key for key, (wrong, _void) in judged.items() if wrong} == {
        (0.93, 0),
        (1.03, 0),
        (1.03, 3),
    }
    assert {key for key, (_wrong, void) in judged.items() if void} == {(0.93, 3)}
