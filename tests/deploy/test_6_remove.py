# SPDX-License-Identifier: GPL-2.0-or-later
"""Taken away again: the guest is as its operator defined it, and nothing is left of Sluice."""

from typing import Any

import pytest

from deploy import plan
from deploy.control import ControlNode
from deploy.fleet import Fleet
from deploy.guest import NestedGuest
from deploy.report import Report

EVERYTHING = ("-e", "sluice_remove_data=true")
# Of Sluice nothing is looked for in logs, caches, what apt knows of the past, and Ansible's
# own notes.
LEFT = (
    "find / -xdev -iname '*sluice*' -not -path '/proc/*' -not -path '/var/log/*'"
    " -not -path '/var/cache/*' -not -path '*/.ansible*' -not -path '/tmp/*'"
)


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
    detached["sluice_hosts"]["hosts"]["host1"] |= {"sluice_domains": [domain], "sluice_state": {}}
    del detached["sluice_guests"]
    control.play("attach", control.write_inventory("detached", detached))
    assert guest.definition() == guest.definition_of_operator()


@pytest.mark.needs("site_completes_what_was_interrupted")
def test_removal_leaves_nothing_of_sluice_and_names_the_rest(
    fleet: Fleet,
    guest: NestedGuest,
    control: ControlNode,
    inventory: dict[str, Any],
    report: Report,
) -> None:
    guest.host.ssh(f"virsh destroy {guest.name}", check=False)
    run = control.play("remove", control.write_inventory("site", inventory), *EVERYTHING)
    report.add("remove.yml", run.seconds, "s")
    for machine in fleet.machines.values():
        assert not machine.out("dpkg-query -W -f '${Package}\\n' 'sluice*' || :")
        assert not machine.out("getent group sluice sluice-web; getent passwd sluice-web || :")
        assert not machine.out(LEFT), machine.name
        assert machine.out("systemctl is-active libvirtd.socket") == "active"
        assert run.says(f"{machine.name}: of the packages of a KVM host libvirt-"), run.tail()
    # The operator's guest is the operator's.
    assert guest.state() == "shut off"


@pytest.mark.needs("removal_leaves_nothing_of_sluice_and_names_the_rest")
def test_a_second_removal_changes_nothing(control: ControlNode, inventory: dict[str, Any]) -> None:
    run = control.play("remove", control.write_inventory("site", inventory), *EVERYTHING)
    assert not any(run.changed().values()), run.changes()
