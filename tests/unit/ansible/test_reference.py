# SPDX-License-Identifier: GPL-2.0-or-later
"""Variables are declared, have a default and are documented; files say the same."""

import re

import pytest
import yaml

from testbed import paths

ROLES = paths.TOP / "ansible" / "roles"
PLAYBOOKS = ROLES.parent / "playbooks"
REFERENCE = (paths.TOP / "docs" / "reference" / "ansible.md").read_text()
DEFAULTS = yaml.safe_load((ROLES / "sluice" / "defaults" / "main.yml").read_text())
SPECS = {
    path.parents[1].name: yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    for path in ROLES.glob("*/meta/argument_specs.yml")
}
OPTIONS = {name: option for options in SPECS.values() for name, option in options.items()}


def test_every_role_declares_its_arguments():
    assert sorted(SPECS) == sorted(path.name for path in ROLES.iterdir())


def test_every_variable_is_declared_once_and_has_a_default():
    declared = [name for options in SPECS.values() for name in options]
    assert sorted(declared) == sorted(DEFAULTS)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_declared_default_is_the_real_one(name):
    if "default" in OPTIONS[name]:
        assert DEFAULTS[name] == OPTIONS[name]["default"]
    else:
        # None, or worked out of something else.
        assert DEFAULTS[name] is None or "{{" in DEFAULTS[name]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_every_variable_is_in_the_reference_and_used(name):
    (meaning,) = re.findall(rf"^\| `{name}` \| .*? \| (.*) \|$", REFERENCE, re.MULTILINE)
    assert meaning == " ".join(OPTIONS[name]["description"].split())
    used = [
        path
        for path in (*ROLES.rglob("*.yml"), *ROLES.rglob("*.j2"), *PLAYBOOKS.glob("*.yml"))
        if path.parent.name != "defaults" and path.name != "argument_specs.yml"
        if re.search(rf"\b{name}\b", path.read_text())
    ]
    assert used


def test_the_reference_knows_no_other_variable():
    known = {*DEFAULTS, *(path.name for path in ROLES.parent.glob("inventories/*"))}
    modules = {p.stem for p in (ROLES.parent / "plugins" / "modules").glob("*.py")}
    groups = {"sluice_hosts", "sluice_nightly", "sluice_guests"}
    mentioned = set(re.findall(r"\bsluice_[a-z_]+\b", REFERENCE))
    assert mentioned <= known | modules | groups


def test_a_host_gets_the_parts_that_the_variable_names():
    plays = yaml.safe_load((PLAYBOOKS / "site.yml").read_text())
    roles = {role["role"]: role.get("when") for play in plays for role in play.get("roles", [])}
    assert roles.pop("sluice.appliance.sluice") is None
    parts = OPTIONS["sluice_parts"]["choices"]
    assert sorted(roles) == sorted(f"sluice.appliance.{part}" for part in parts)
    for part in parts:
        condition = roles[f"sluice.appliance.{part}"]
        assert f"'{part}' in sluice_parts" in (
            [condition] if isinstance(condition, str) else condition
        )
