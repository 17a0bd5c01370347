# SPDX-License-Identifier: GPL-2.0-or-later
"""From nothing to an installed host, by whatever way; then no change."""

import random
import threading
from typing import Any

import pytest

from deploy.control import ControlNode
from deploy.machine import Machine
from deploy.report import Report


def test_site_installs_one_host_while_another_is_interrupted(
    pristine: Any, control: ControlNode, inventory: dict[str, Any], report: Report
) -> None:
    """host1 from nothing in one go; host2's run is killed at a random task."""
    path = control.write_inventory("site", inventory)
    stop_at = random.SystemRandom().randint(30, 60)
    killed = []

    def interrupted() -> None:
        killed.append(
            control.play(
                "site", path, "--limit", "host2", check=False, stop_when=lambda t: len(t) >= stop_at
            )
        )

    other = threading.Thread(target=interrupted)
    other.start()
    try:
        run = control.play("site", path, "--limit", "host1,localhost")
    finally:
        other.join()
    report.add("site.yml on one host, from nothing", run.seconds, "s")
    report.add("interrupted at task", f"{len(killed[0].tasks)}: {killed[0].tasks[-1]}")
    assert run.recap["host1"]["changed"] > 0
    assert killed[0].exit_code == -9


@pytest.mark.needs("site_installs_one_host_while_another_is_interrupted")
def test_site_completes_what_was_interrupted(
    control: ControlNode, inventory: dict[str, Any], report: Report
) -> None:
    run = control.play("site", control.write_inventory("site", inventory))
    report.add("site.yml after the interruption", run.seconds, "s")
    assert run.recap["host1"]["changed"] == 0, run.changes()
    assert run.recap["host2"]["changed"] > 0


@pytest.mark.needs("site_completes_what_was_interrupted")
def test_a_second_run_of_site_changes_nothing(
    control: ControlNode, inventory: dict[str, Any], report: Report
) -> None:
    run = control.play("site", control.write_inventory("site", inventory))
    report.add("site.yml with nothing to do", run.seconds, "s")
    assert run.changed() == {"host1": 0, "host2": 0}, run.changes()


@pytest.mark.needs("site_completes_what_was_interrupted")
@pytest.mark.parametrize("name", ["host1", "host2"])
def test_services_run(fleet, name: str) -> None:
    machine: Machine = fleet[name]
    failed = machine.out("systemctl --failed --no-legend --plain")
    assert not failed, failed
    for unit in ("sluiced.service", "sluice-web.service"):
        assert machine.out(f"systemctl is-active {unit}") == "active"
    assert machine.out("sluice status")
    assert machine.out("readlink /usr/lib/sluice/qemu").startswith("qemu-")
