# SPDX-License-Identifier: GPL-2.0-or-later
"""Before anything is installed: what is wrong is named, and nothing changes."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from deploy import manifest, plan
from deploy.control import ControlNode
from deploy.excepted import ALWAYS
from deploy.fleet import Fleet
from deploy.machine import Machine, MachineSpec

UNFIT = MachineSpec("host3", "10.78.0.13", "52:54:00:78:00:13", memory_mib=1024, cpu="max,svm=off")
# A package whose scripts fail both ways stays half-installed.
BROKEN_PACKAGE = """\
mkdir -p /tmp/broken/DEBIAN
printf '%s\\n' 'Package: broken' 'Version: 1' 'Architecture: all' \\
    'Maintainer: x <x@example.org>' 'Description: fails' >/tmp/broken/DEBIAN/control
for script in preinst postrm; do
    printf '#!/bin/sh\\nexit 1\\n' >/tmp/broken/DEBIAN/$script
    chmod 755 /tmp/broken/DEBIAN/$script
done
dpkg-deb --build /tmp/broken /tmp/broken.deb
dpkg --install /tmp/broken.deb
dpkg-query -W -f '${db:Status-Status}' broken | grep -x half-installed
"""
BAD_VARIABLES = {
    "an unknown name": ("sluice_web_bnd", "0.0.0.0:8480", "sluice_web_bnd not known"),
    "a wrong kind": ("sluice_web_enabled", "perhaps", "sluice_web_enabled"),
    "packages that are not there": ("sluice_packages_dir", "/nowhere/deb", "/nowhere/deb"),
    "passwords in clear": ("sluice_web_tls", "none", "sluice_web_tls"),
    "a release that is not supported": ("sluice_host_releases", ["debian 12"], "debian 13"),
    "more space than there is": ("sluice_free_mib", {"/usr": 10_000_000}, "/usr"),
}


@pytest.mark.parametrize("case", BAD_VARIABLES, ids=lambda case: case.replace(" ", "-"))
def test_bad_variables_are_named(
    case: str, pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    name, value, named = BAD_VARIABLES[case]
    path = control.write_inventory("bad", plan.with_variable(inventory, name, value))
    run = control.play("site", path, check=False)
    assert run.exit_code > 0, run.tail()
    assert run.says(named), run.tail()
    assert not any(run.changed().values()), run.changes()


def test_an_unreachable_host_stops_all(
    pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    bad = copy.deepcopy(inventory)
    bad["sluice_hosts"]["hosts"]["host9"] = {"ansible_host": "10.78.0.99"}
    run = control.play("site", control.write_inventory("bad", bad), "-T", "5", check=False)
    assert run.exit_code > 0, run.tail()
    assert run.says("[host9]: UNREACHABLE"), run.tail()
    assert not any(run.changed().values()), run.changes()


def test_check_mode_succeeds_on_bare_hosts(
    pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    run = control.play("site", control.write_inventory("site", inventory), "--check")
    assert run.recap.keys() == {"host1", "host2"}
    assert run.says("host1 has no package source of Sluice yet: a run sets it up"), run.tail()


def test_nothing_of_this_changed_a_host(fleet: Fleet, pristine: dict[str, Any]) -> None:
    for name, today in manifest.take_all(fleet.machines.values()).items():
        found = manifest.differences(pristine[name], today)
        assert not manifest.unexpected(found, ALWAYS), name


@pytest.fixture
def unfit(fleet: Fleet) -> Iterator[Machine]:
    """A machine without virtualisation, and with a half-installed package."""
    machine = fleet.add(UNFIT)
    try:
        machine.write("/root/make-broken", BROKEN_PACKAGE)
        machine.ssh("sh /root/make-broken")
        yield machine
    finally:
        machine.stop()


def test_a_host_that_is_not_fit_is_named(
    unfit: Machine, control: ControlNode, inventory: dict[str, Any]
) -> None:
    """All of it at once; what the inventory allows is no problem then."""
    bad = copy.deepcopy(inventory)
    del bad["sluice_nightly"]
    bad["sluice_hosts"]["hosts"] = {unfit.name: {"ansible_host": unfit.address}}
    run = control.play("site", control.write_inventory("bad", bad), check=False)
    assert run.exit_code > 0, run.tail()
    assert run.says("virtualisation 'none'"), run.tail()
    assert run.says("'broken' is half-installed"), run.tail()
    assert not any(run.changed().values()), run.changes()
    allowed = plan.with_variable(bad, "sluice_allow_tcg", True)
    run = control.play("site", control.write_inventory("bad", allowed), check=False)
    assert run.exit_code > 0, run.tail()
    assert not run.says("virtualisation"), run.tail()
    assert run.says("'broken' is half-installed"), run.tail()
