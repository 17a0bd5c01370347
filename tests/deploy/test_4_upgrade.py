# SPDX-License-Identifier: GPL-2.0-or-later
"""A newer QEMU while a guest runs: it keeps the program that it started with."""

from pathlib import Path
from typing import Any

import pytest

from deploy import plan
from deploy.control import ControlNode
from deploy.fleet import Fleet
from deploy.guest import NestedGuest
from deploy.machine import Machine
from deploy.newer import make_newer
from testbed import paths

needs_attached = pytest.mark.needs("attach_shapes_the_guest")


@pytest.fixture(scope="module")
def newer(fleet: Fleet) -> tuple[Path, str]:
    """A folder with the next release, and its version."""
    folder = fleet.folder / "newer"
    if folder.exists():
        version = (fleet.folder / "newer.version").read_text()
    else:
        version = make_newer(paths.BUILD / "deb", folder)
        (fleet.folder / "newer.version").write_text(version)
    return folder, version


@pytest.fixture
def next_release(control: ControlNode, inventory: dict[str, Any], newer: tuple[Path, str]) -> Path:
    """The inventory that installs it."""
    wanted = plan.with_guest(inventory, "host1")
    return control.write_inventory(
        "newer", plan.with_variable(wanted, "sluice_packages_dir", str(newer[0]))
    )


@needs_attached
def test_an_upgrade_leaves_a_running_guest_alone(
    guest: NestedGuest,
    host1: Machine,
    control: ControlNode,
    inventory: dict[str, Any],
    newer: tuple[Path, str],
    next_release: Path,
) -> None:
    pid, binary = guest.pid(), guest.binary()
    run = control.play("site", next_release)
    # From here on the operator has the next release.
    inventory["all"]["vars"]["sluice_packages_dir"] = str(newer[0])
    assert run.recap["host1"]["changed"] > 0
    assert host1.out("readlink /usr/lib/sluice/qemu") == f"qemu-{newer[1]}"
    assert guest.pid() == pid
    # Still there, not "(deleted)": the guest can load a module from beside it.
    assert guest.binary() == binary
    assert guest.inside.out("true") == ""
    assert run.says(f"{guest.name} run an older QEMU"), run.tail()


@pytest.mark.needs("an_upgrade_leaves_a_running_guest_alone")
def test_the_guest_changes_over_when_it_is_told_to(
    guest: NestedGuest, control: ControlNode, newer: tuple[Path, str], next_release: Path
) -> None:
    control.play("attach", next_release, "-e", "sluice_upgrade_domains=true")
    guest.wait_ready()
    assert guest.binary() == f"/usr/lib/sluice/qemu-{newer[1]}/bin/qemu-system-x86_64"
    assert guest.confinement().endswith("(enforce)")


@pytest.mark.needs("the_guest_changes_over_when_it_is_told_to")
def test_a_second_upgrade_changes_nothing(control: ControlNode, next_release: Path) -> None:
    for playbook, options in (("site", ()), ("attach", ("-e", "sluice_upgrade_domains=true"))):
        run = control.play(playbook, next_release, *options)
        assert not any(run.changed().values()), run.changes()
