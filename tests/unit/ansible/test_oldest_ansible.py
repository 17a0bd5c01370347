# SPDX-License-Identifier: GPL-2.0-or-later
"""The roles ask of Ansible's own modules only what the oldest supported release knows."""

import importlib

import pytest
import yaml

from testbed import paths

COLLECTION = paths.TOP / "ansible"
OWN = "ansible.builtin."
TASKS = [*COLLECTION.glob("roles/*/tasks/*.yml"), *COLLECTION.glob("roles/*/handlers/*.yml")]


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".")[:2])


def tasks_in(entries):
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always"):
            yield from tasks_in(entry.get(part, []))


def options_of(module: str) -> dict:
    found = importlib.import_module(f"ansible.modules.{module}")
    return yaml.safe_load(found.DOCUMENTATION).get("options", {})


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_no_argument_is_newer_than_the_oldest_ansible(path):
    runtime = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())
    oldest = number(runtime["requires_ansible"].removeprefix(">="))
    newer = [
        (task.get("name"), argument)
        for task in tasks_in(yaml.safe_load(path.read_text()) or [])
        for action, given in task.items()
        if action.startswith(OWN) and isinstance(given, dict)
        for argument in given
        if number(
            options_of(action.removeprefix(OWN)).get(argument, {}).get("version_added", "0.0")
        )
        > oldest
    ]
    assert newer == []
