# SPDX-License-Identifier: GPL-2.0-or-later
"""An operator's guest under type='kvm': attached, shaped, visible."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import plan
from deploy.browser import browse
from deploy.control import ControlNode
from deploy.fleet import CONTROL_ADDRESS, Fleet, image
from deploy.guest import WEB1, NestedGuest
from deploy.machine import PATIENCE_SECONDS, Machine
from deploy.report import Report

EMULATOR = "/usr/lib/sluice/qemu/bin/qemu-system-x86_64"
TRAFFIC = Path(__file__).with_name("traffic.py")
MEASURE = Path(__file__).with_name("measure.py")
UPLOAD_PORT = 9001
DOWNLOAD_PORT = 9002
SINK_UNIT = "download-sink.service"
PYTHON = ("python3", "-I")

# The other host has nothing new: a play there only takes time.
HERE = ("--limit", f"localhost,host1,{WEB1.name}")

needs_installed = pytest.mark.needs("site_completes_what_was_interrupted")
needs_attached = pytest.mark.needs("attach_shapes_the_guest")


@needs_installed
def test_operator_defines_a_guest(guest: NestedGuest) -> None:
    guest.make_disks(image())
    guest.define(EMULATOR)
    assert guest.state() == "shut off"


@pytest.mark.needs("operator_defines_a_guest")
def test_a_bad_rate_is_named_and_changes_nothing(
    control: ControlNode, inventory: dict[str, Any], host1: Machine
) -> None:
    """The controller judges the state of all hosts before anything is attached."""
    bad = plan.with_guest(inventory, "host1")
    grant = bad["sluice_hosts"]["hosts"]["host1"]["sluice_state"]["domains"]["web1"]["classes"]
    grant[plan.CLASS]["limits"]["blk-read"]["bytes_per_second"] = "20 parsecs"
    run = control.play("attach", control.write_inventory("bad", bad), *HERE, check=False)
    assert run.exit_code > 0, run.tail()
    assert run.says("20 parsecs"), run.tail()
    assert not any(run.changed().values()), run.changes()


@pytest.mark.needs("operator_defines_a_guest")
def test_attach_shapes_the_guest(
    guest: NestedGuest, control: ControlNode, inventory: dict[str, Any], report: Report
) -> None:
    path = control.write_inventory("attach", plan.with_guest(inventory, "host1"))
    run = control.play("attach", path, *HERE)
    assert run.recap["host1"]["changed"] > 0
    guest.start()
    report.add("boot of the nested guest", guest.wait_ready(), "s")


@needs_attached
def test_the_guest_runs_the_patched_qemu_under_kvm_and_apparmor(
    guest: NestedGuest, host1: Machine
) -> None:
    assert re.fullmatch(r"/usr/lib/sluice/qemu-[^/]+/bin/qemu-system-x86_64", guest.binary())
    assert guest.confinement().endswith("(enforce)")
    assert guest.inside.out("systemd-detect-virt") == "kvm"
    command = host1.out(f"tr '\\0' ' ' </proc/{guest.pid()}/cmdline")
    assert "-accel kvm " in command
    assert "shaper=sluice0" in command or '"shaper":"sluice0"' in command


@needs_attached
def test_site_installs_the_agent_in_the_guest(
    guest: NestedGuest, control: ControlNode, inventory: dict[str, Any], host1: Machine
) -> None:
    """The agent speaks for the guest's processes a moment later."""
    path = control.write_inventory("attach", plan.with_guest(inventory, "host1"))
    control.play("site", path, *HERE)
    shown = _wait_for_agent(host1, guest.name)
    assert shown["agent"]["hostname"] == guest.name


def _wait_for_agent(host: Machine, domain: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        shown = json.loads(host.out(f"sluice show {domain} --json"))
        if shown["agent"]["connected"] or time.monotonic() > deadline:
            return shown
        time.sleep(1)


@pytest.mark.needs("site_installs_the_agent_in_the_guest")
def test_second_runs_change_nothing(
    control: ControlNode, inventory: dict[str, Any], report: Report
) -> None:
    path = control.write_inventory("attach", plan.with_guest(inventory, "host1"))
    for playbook in ("attach", "site"):
        run = control.play(playbook, path, *HERE)
        assert not any(run.changed().values()), run.changes()
        report.add(f"changed by a second {playbook}.yml", sum(run.changed().values()))


@pytest.fixture
def outward(guest: NestedGuest, fleet: Fleet) -> Iterator[None]:
    """In the guest a reader of its disk and an upload, each a unit of its own."""
    inside = guest.inside
    inside.write("/opt/traffic.py", TRAFFIC.read_text())
    sink = fleet.sandbox.popen([*PYTHON, str(TRAFFIC), "sink", str(UPLOAD_PORT)], name="sink")
    upload = f"python3 -I /opt/traffic.py source {CONTROL_ADDRESS} {UPLOAD_PORT}"
    _spawn(inside, plan.UPLOAD_UNIT, upload)
    # Several at once, so that a late reader never leaves the class without a request.
    read = (
        "for part in 0 1 2 3; do while :; do dd if=/dev/vdb of=/dev/null bs=16k iflag=direct "
        "skip=$((part * 1000)) count=1000 status=none; done & done; wait"
    )
    _spawn(inside, plan.READ_UNIT, read)
    yield
    inside.ssh(f"systemctl stop {plan.READ_UNIT} {plan.UPLOAD_UNIT}", check=False)
    sink.stop()


@pytest.fixture
def inward(guest: NestedGuest, fleet: Fleet) -> Iterator[None]:
    """From outside a download into the guest."""
    inside = guest.inside
    inside.write("/opt/traffic.py", TRAFFIC.read_text())
    _spawn(inside, SINK_UNIT, f"python3 -I /opt/traffic.py sink {DOWNLOAD_PORT}")
    command = [*PYTHON, str(TRAFFIC), "source", guest.plan.address, str(DOWNLOAD_PORT)]
    source = fleet.sandbox.popen(command, name="source")
    yield
    source.stop()
    inside.ssh(f"systemctl stop {SINK_UNIT}", check=False)


def _spawn(machine: Machine, unit: str, command: str) -> None:
    machine.ssh(
        f"systemd-run --quiet --collect --unit={unit} --property=KillSignal=SIGKILL "
        f"/bin/sh -c {shlex.quote(command)}"
    )


@pytest.mark.needs("site_installs_the_agent_in_the_guest")
def test_disk_and_upload_keep_their_limits(
    guest: NestedGuest, outward: None, report: Report
) -> None:
    """Both are limited as the class that the agent finds by the units' names.

    A wrong assignment would show as a rate without limit.
    """
    _wait_until_held(guest, {(plan.CLASS, "blk-read"), (plan.CLASS, "net-tx")})
    _hold_to_limits(guest, ("blk_read", "net_tx"), report)


@pytest.mark.needs("site_installs_the_agent_in_the_guest")
def test_a_download_keeps_its_limit(guest: NestedGuest, inward: None, report: Report) -> None:
    """A window of its own: the upload's acknowledgements would be counted with it."""
    _wait_until_held(guest, {("default", "net-rx")})
    _hold_to_limits(guest, ("net_rx",), report)


def _hold_to_limits(guest: NestedGuest, names: tuple[str, ...], report: Report) -> None:
    """Measure, and judge. A window in which a guest had nothing to send is measured again."""
    for window in range(1, plan.WINDOWS_MAX + 1):
        answer = guest.host.python(MEASURE, guest.name, str(plan.WINDOW_SECONDS))
        measured = json.loads(answer)
        for name in names:
            rate, limit = measured[f"{name}_bps"], plan.LIMITS_BPS[name]
            told = f"{100 * rate / limit:.2f} % of the limit"
            if idle := measured["idle_looks"][name]:
                told += f", nothing to send at {idle} of {measured['looks']} looks"
            again = f", window {window}" if window > 1 else ""
            report.add(f"{name}, limit {limit}{again}", rate, "B/s", told)
        wrong, void = plan.judge_rates(measured, names)
        if wrong or not void:
            break
    assert not wrong, measured
    assert not void, f"in {window} windows the guest had too little to send: {measured}"


def _wait_until_held(guest: NestedGuest, wanted: set[tuple[str, str]]) -> None:
    """Wait until each load has reached its limit: the shaper holds requests of it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        live = json.loads(guest.host.out(f"sluice live {guest.name} --once --json"))
        classes = live["domains"][guest.name]["classes"]
        held = {
            (name, resource) for name, resource in wanted if classes[name][resource]["held_p99_ms"]
        }
        if held == wanted:
            return
        assert time.monotonic() < deadline, f"never held: {wanted - held} of {classes}"
        time.sleep(2)


@needs_attached
def test_the_guest_is_on_the_web_page_over_tls(
    fleet: Fleet, control: ControlNode, guest: NestedGuest, outward: None
) -> None:
    """Signed in as the admin whose password the first run left on the control node."""
    text = browse(fleet, control, guest.host, f"/vm/{guest.name}", "vm-page.png")
    assert guest.name in text
    assert plan.CLASS in text
