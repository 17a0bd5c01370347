# SPDX-License-Identifier: GPL-2.0-or-later
"""The host proves itself: by its timer, on the page, and ended without a trace.

host2 has no guests, so nobody suffers. The run is the smallest that the
settings allow, and its guests are nested ones under an emulated KVM: whether
the stream is perfect there says nothing, so the result must be a measured one,
``passed`` or ``failed``, and complete.
"""

import json
import time
from typing import Any

import pytest

from deploy import manifest
from deploy.browser import browse
from deploy.control import ControlNode
from deploy.fleet import Fleet
from deploy.machine import PATIENCE_SECONDS, Machine
from deploy.nightly_settings import READY, SETTINGS
from deploy.report import Report

UNIT = "sluice-nightly"
RUN_SECONDS = 5400.0
SOON = """\
[Timer]
OnCalendar=
OnCalendar={when}
RandomizedDelaySec=0
AccuracySec=1s
"""

needs_installed = pytest.mark.needs("site_completes_what_was_interrupted")
needs_configured = pytest.mark.needs("site_configures_the_nightly_run")


@needs_installed
def test_site_configures_the_nightly_run(
    control: ControlNode, inventory: dict[str, Any], fleet: Fleet, host2: Machine
) -> None:
    inventory["sluice_nightly"]["hosts"][host2.name] = {"sluice_nightly_config": SETTINGS}
    # The other host has nothing new, and its guest makes a play there long.
    control.play("site", control.write_inventory("site", inventory), "--limit", host2.name)
    assert host2.out(f"systemctl is-enabled {UNIT}.timer") == "enabled"
    # The host reaches no archive: the operator puts ready-made images there.
    host2.ssh(f"mkdir -p {READY}")
    for index, name in enumerate(host2.spec.data):
        host2.ssh(f"ln -s /dev/vd{chr(ord('c') + index)} {READY}/{name}")
    fleet.copy_guest_files(host2, READY)
    host2.ssh("sluice-nightly prepare")


def _results(host: Machine) -> list[dict[str, Any]]:
    """Return the nights that sluiced knows, newest first."""
    return json.loads(host.out("sluice nightly list --json"))


def _fire(host: Machine) -> None:
    """Set the timer to a moment from now, as its calendar has it."""
    # Not so soon that a busy machine takes it up when it is over.
    when = host.out("date -d '+30 seconds' '+%Y-%m-%d %H:%M:%S'")
    dropin = f"/run/systemd/system/{UNIT}.timer.d/soon.conf"
    host.write(dropin, SOON.format(when=when))
    host.ssh(f"systemctl daemon-reload && systemctl restart {UNIT}.timer")
    _wait_for(lambda: host.out(f"systemctl is-active {UNIT}.service || :") == "activating")
    host.ssh(f"rm {dropin} && systemctl daemon-reload && systemctl restart {UNIT}.timer")


def _wait_for(condition: Any, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(2)


@needs_configured
def test_an_aborted_run_leaves_nothing(host2: Machine) -> None:
    """Killed, as by the power, when its guests are up: no process, mount or interface stays."""
    before = manifest.parse(manifest.collect(host2))
    known = len(_results(host2))
    _fire(host2)
    # Not the QEMU by which it looks whether KVM works: libvirt's, by its name for the guest.
    _wait_for(lambda: "guest=" in host2.out(f"systemctl status --full {UNIT}.service || :"))
    host2.ssh(f"systemctl kill --signal=SIGKILL {UNIT}.service")
    _wait_for(lambda: host2.out(f"systemctl is-active {UNIT}.service || :") == "failed")
    host2.ssh(f"systemctl reset-failed {UNIT}.service")
    assert not host2.out("pgrep -af '[/]var/lib/sluice-nightly' || :")
    host2.ssh("sluice-nightly clean")
    found = manifest.differences(before, manifest.parse(manifest.collect(host2)))
    left = [
        str(one)
        for one in found
        if not one.path.startswith(("/var/log/", "/var/lib/systemd/", "/var/lib/sluice/"))
        # Its own folder: the killed run's logs, and the note that the next one reports.
        and not one.path.startswith("/var/lib/sluice-nightly/")
    ]
    assert not left, left
    assert not host2.out("find /var/lib/sluice-nightly -path '*/runs/*' -name disks")
    assert len(_results(host2)) == known


@needs_configured
def test_the_timer_fires_and_the_result_is_on_the_page(
    fleet: Fleet, control: ControlNode, host2: Machine, report: Report
) -> None:
    started = time.monotonic()
    _fire(host2)
    _wait_for(
        lambda: host2.out(f"systemctl is-active {UNIT}.service || :") != "activating", RUN_SECONDS
    )
    report.add("nightly run", time.monotonic() - started, "s")
    night = _results(host2)[0]
    said = host2.out(f"journalctl -u {UNIT}.service -n 40 --no-pager -o cat")
    assert night["outcome"] in ("passed", "failed"), said
    page = browse(fleet, control, host2, f"/nightly/{night['id']}", "nightly-page.png")
    assert "stream" in page
    trend = browse(fleet, control, host2, "/nightly", "nightly-trend.png")
    assert night["outcome"] in trend.lower()


@pytest.mark.needs("the_timer_fires_and_the_result_is_on_the_page", "an_aborted_run_leaves_nothing")
def test_the_aborted_run_is_told_by_the_next(host2: Machine) -> None:
    outcomes = [night["outcome"] for night in _results(host2)]
    assert "aborted" in outcomes
