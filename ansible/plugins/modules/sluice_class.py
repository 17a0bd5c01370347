#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A class of guest processes, as the whole host knows it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_class
short_description: Define a class of a Sluice host
version_added: 0.1.0
author: The Sluice developers
description:
  - Creates, changes or removes a class. What is not given keeps the value it has.
options:
  name:
    description: The class, 1 to 31 of the characters a-z, 0-9 and -.
    type: str
    required: true
  title:
    description: What people call it; the name unless given.
    type: str
  priority:
    description: 0 (first) to 9; 5 for a new class unless given.
    type: int
  stream:
    description: Whether its quality is watched over.
    type: bool
  weight:
    description:
      - Its share of what is scarce among classes of its priority, 1 to 1000; 100 for a new class
        unless given.
    type: int
  unmanaged:
    description:
      - Whether its requests are never held and charged to nothing. Only for guests that are trusted
        with it.
    type: bool
  state:
    description: Whether the class exists.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Batch work comes last
  sluice.appliance.sluice_class:
    name: batch
    title: Batch work
    priority: 7
    weight: 300
"""

RETURN = r"""
class:
  description: The class as sluiced has it.
  returned: when it exists
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import (
    ARGUMENTS,
    Api,
    ApiError,
    differs,
    expressible,
    lacking,
)

MEMBERS = ("title", "priority", "is_stream", "weight", "unmanaged")
GIVEN = ("title", "priority", "weight", "unmanaged")
# What a daemon of an earlier release does not know, as it is there for every class.
NEWER = {"weight": 100, "unmanaged": False}
USUAL = {"priority": 5, "is_stream": False, **NEWER}


def described(present: dict | None) -> dict:
    """The members of a class that is there."""
    return {key: {**NEWER, **present}[key] for key in MEMBERS} if present else {}


def wanted_class(params: dict, before: dict) -> dict:
    """All that a PUT needs: what was given over what there is."""
    wanted = {"title": params["name"], **USUAL, **before}
    given = {"is_stream": params["stream"], **{key: params[key] for key in GIVEN}}
    wanted.update({key: value for key, value in given.items() if value is not None})
    return wanted


def run(module: AnsibleModule) -> dict:
    """Bring the class into the wanted state."""
    api, name = Api.of(module), module.params["name"]
    classes = [] if module.check_mode and not api.installed else api.call("GET", "classes")
    present = next((c for c in classes if c["name"] == name), None)
    before = described(present)
    if module.params["state"] == "absent":
        if present and not module.check_mode:
            api.call("DELETE", "classes", name)
        return {"changed": bool(present), "diff": {"before": before, "after": {}}}
    after = wanted_class(module.params, before)
    changed = bool(differs(before, after))
    if changed and not module.check_mode:
        body = expressible(f"class {name!r}", after, NEWER, lacking(classes, NEWER))
        present = api.call("PUT", "classes", name, body=body)
    return {"changed": changed, "class": present, "diff": {"before": before, "after": after}}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "title": {"type": "str"},
            "priority": {"type": "int"},
            "stream": {"type": "bool"},
            "weight": {"type": "int"},
            "unmanaged": {"type": "bool"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except ApiError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
