# SPDX-License-Identifier: GPL-2.0-or-later
"""What Ansible makes of the expressions in roles and playbooks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from testbed import paths

COLLECTION = paths.TOP / "ansible"
FILES = sorted((*COLLECTION.glob("roles/*/*/*.yml"), *COLLECTION.glob("playbooks/*.yml")))


def strings(node: Any) -> Iterator[str]:
    """Yield all strings of a document."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for one in node.values():
            yield from strings(one)
    elif isinstance(node, list):
        for one in node:
            yield from strings(one)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(COLLECTION)))
def test_expressions_have_single_backslashes(path: Path):
    # Ansible doubles those of an expression itself: two in the file would match a backslash.
    for document in yaml.safe_load_all(path.read_text()):
        for text in strings(document):
            for expression in re.findall(r"{{.*?}}", text, re.DOTALL):
                assert "\\\\" not in expression


def given_to(task_file: str, module: str, **variables: Any) -> dict[str, Any]:
    """What the task with this module hands to it, of what an inventory may leave empty."""
    tasks = yaml.safe_load((COLLECTION / task_file).read_text())
    arguments = next(task[module] for task in tasks if module in task)
    environment = NativeEnvironment()
    return {
        name: environment.from_string(text).render(omit=OMITTED, **variables)
        for name, text in arguments.items()
        if name in ("devices", "ceiling", "scheduling", "queues")
    }


OMITTED = "omitted"
DOMAIN_MODULE, GRANT_MODULE = "sluice.appliance.sluice_domain", "sluice.appliance.sluice_grant"


def test_a_member_without_a_value_says_nothing():
    # 'devices:' with its entries commented out; the checks let it through.
    name = "roles/attach/tasks/domain.yml"
    for entry in ({}, {"devices": None, "ceiling": None}):
        assert given_to(name, DOMAIN_MODULE, __attach_domain=entry) == {
            "devices": [],
            "ceiling": OMITTED,
        }
        checked = given_to("roles/attach/tasks/check.yml", DOMAIN_MODULE, item=entry)
        assert checked == {"devices": []}
    for entry in ({}, {"scheduling": None, "queues": None}):
        granted = given_to("roles/attach/tasks/classes.yml", GRANT_MODULE, item=entry)
        assert granted == {"scheduling": OMITTED, "queues": OMITTED}


def test_an_empty_mapping_takes_back_what_there_is():
    entry = {"ceiling": {}, "scheduling": {}, "queues": {}}
    domain = given_to("roles/attach/tasks/domain.yml", DOMAIN_MODULE, __attach_domain=entry)
    granted = given_to("roles/attach/tasks/classes.yml", GRANT_MODULE, item=entry)
    assert {**domain, **granted} == {**entry, "devices": []}


@pytest.mark.parametrize(("result", "changed"), [({"rc": 1}, False), ({"rc": 0}, True), ({}, True)])
def test_a_kernel_module_that_does_not_load_is_no_change(result, changed):
    # With sluice_allow_tcg the run goes on; the second one is to change nothing.
    tasks = yaml.safe_load((COLLECTION / "roles/kvm_host/tasks/kvm.yml").read_text())
    (task,) = (task for task in tasks if "ansible.builtin.command" in task)
    text = f"{{{{ {task['changed_when']} }}}}"
    rendered = NativeEnvironment().from_string(text).render({task["register"]: result})
    assert rendered is changed
