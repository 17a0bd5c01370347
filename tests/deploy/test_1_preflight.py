# SPDX-License-Identifier: GPL-2.0-or-later
"""Before anything is installed: what is wrong is named, and nothing changes."""

from typing import Any

import pytest

from deploy import manifest, plan
from deploy.control import ControlNode
from deploy.excepted import ALWAYS
from deploy.fleet import Fleet

BAD_VARIABLES = {
    "an unknown name": ("sluice_web_bnd", "0.0.0.0:8480", "sluice_web_bind"),
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
    assert run.exit_code not in (0, -9), run.output
    assert named in run.output
    assert not any(run.changed().values()), run.changes()


def test_a_bad_rate_is_named(
    pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    bad = plan.with_guest(inventory, "host1")
    bad["sluice_hosts"]["hosts"]["host1"]["sluice_domains"] = [
        {"name": "web1", "classes": [{"name": "bulk", "limits": {"blk-read": "20 parsecs"}}]}
    ]
    run = control.play("site", control.write_inventory("bad", bad), check=False)
    assert run.exit_code
    assert "20 parsecs" in run.output
    assert not any(run.changed().values()), run.changes()


def test_an_unreachable_host_stops_all(
    pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    bad = plan.with_guest(inventory, "host1")
    del bad["sluice_guests"]
    bad["sluice_hosts"]["hosts"]["host9"] = {"ansible_host": "10.78.0.99"}
    run = control.play("site", control.write_inventory("bad", bad), "-T", "5", check=False)
    assert run.exit_code
    assert "host9" in run.output
    assert not any(run.changed().values()), run.changes()


def test_check_mode_succeeds_on_bare_hosts(
    pristine: Any, control: ControlNode, inventory: dict[str, Any]
) -> None:
    run = control.play("site", control.write_inventory("site", inventory), "--check")
    assert run.recap.keys() == {"host1", "host2"}


def test_nothing_of_this_changed_a_host(fleet: Fleet, pristine: dict[str, Any]) -> None:
    for name, machine in fleet.machines.items():
        found = manifest.differences(pristine[name], manifest.take(machine))
        assert not manifest.unexpected(found, ALWAYS), name


def test_a_host_that_is_not_fit_is_named(fleet: Fleet) -> None:
    """No virtualisation, a package that is half installed, a disk that is full."""
