# SPDX-License-Identifier: GPL-2.0-or-later
"""Taken away again: the guest is as its operator defined it, the hosts as they were."""

from pathlib import Path
from typing import Any

import pytest

from deploy import manifest, plan
from deploy.control import ControlNode
from deploy.excepted import ALWAYS, REMOVED
from deploy.fleet import Fleet
from deploy.guest import IMAGES, NestedGuest
from deploy.machine import Machine
from deploy.report import Report

EVERYTHING = ("-e", "sluice_remove_data=true", "-e", "sluice_remove_prerequisites=true")


@pytest.mark.needs("attach_shapes_the_guest")
def test_removal_stops_at_a_running_guest(
    guest: NestedGuest, control: ControlNode, inventory: dict[str, Any]
) -> None:
    pid = guest.pid()
    run = control.play(
        "remove", control.write_inventory("site", inventory), *EVERYTHING, check=False
    )
    assert run.exit_code > 0
    assert run.says(guest.name), run.tail()
    assert not any(run.changed().values()), run.changes()
    assert guest.pid() == pid


@pytest.mark.needs("attach_shapes_the_guest")
def test_detaching_gives_the_guest_its_own_definition_back(
    guest: NestedGuest, control: ControlNode, inventory: dict[str, Any]
) -> None:
    guest.host.ssh(f"virsh destroy {guest.name}")
    detached = plan.with_guest(inventory, "host1")
    domain = {"name": guest.name, "state": "detached"}
    detached["sluice_hosts"]["hosts"]["host1"]["sluice_domains"] = [domain]
    del detached["sluice_guests"]
    control.play("attach", control.write_inventory("detached", detached))
    assert guest.definition() == guest.definition_of_operator()


@pytest.mark.needs("site_completes_what_was_interrupted")
def test_removal_leaves_the_hosts_as_they_were(
    fleet: Fleet,
    pristine: dict[str, Any],
    guest: NestedGuest,
    control: ControlNode,
    inventory: dict[str, Any],
    report: Report,
) -> None:
    _operator_takes_away(guest)
    run = control.play("remove", control.write_inventory("site", inventory), *EVERYTHING)
    report.add("remove.yml", run.seconds, "s")
    found = {
        name: manifest.differences(pristine[name], today)
        for name, today in manifest.take_all(fleet.machines.values()).items()
    }
    left = {name: manifest.unexpected(some, REMOVED) for name, some in found.items()}
    for name, some in found.items():
        _write(fleet.logs / f"differences-{name}.txt", some)
        report.add(f"paths compared on {name}", len(pristine[name]))
        report.add(f"paths that differ on {name}", len(some), wanted="all excepted, with reasons")
    assert not any(left.values()), {name: list(map(str, some)) for name, some in left.items()}
    # An exception that nothing needs any more must go from the list.
    both = [one for some in found.values() for one in some]
    assert not manifest.unused(both, REMOVED[len(ALWAYS) :])


def _operator_takes_away(guest: NestedGuest) -> None:
    """What the operator brought goes with the operator."""
    host: Machine = guest.host
    host.ssh(f"virsh destroy {guest.name}", check=False)
    host.ssh(f"virsh undefine {guest.name}", check=False)
    host.ssh(f"rm -f {IMAGES}/{guest.name}* {IMAGES}/vmlinuz {IMAGES}/initrd.img")


def _write(path: Path, found: list[manifest.Difference]) -> None:
    path.write_text("".join(f"{one}\n" for one in found))


@pytest.mark.needs("removal_leaves_the_hosts_as_they_were")
def test_a_second_removal_changes_nothing(control: ControlNode, inventory: dict[str, Any]) -> None:
    run = control.play("remove", control.write_inventory("site", inventory), *EVERYTHING)
    assert not any(run.changed().values()), run.changes()
