#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A rule: which processes belong to which class."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_rule
short_description: Put guest processes into a class by rule
version_added: 0.1.0
author: The Sluice developers
description:
  - A rule is known by its domain, class and conditions; there is nothing to change in one.
options:
  domain:
    description: The libvirt domain; every domain unless given.
    type: str
  class_name:
    description: The class. The domain must have it, see M(sluice.appliance.sluice_grant).
    type: str
    required: true
    aliases: [class]
  match:
    description: Conditions that all must hold.
    type: dict
    required: true
    suboptions:
      exe:
        description: Absolute path of the executable.
        type: str
      cmdline:
        description: Regular expression searched in the command line.
        type: str
      user:
        description: User name or numeric id.
        type: str
      unit:
        description: Systemd unit, for example C(nginx.service).
        type: str
      cgroup:
        description: Path prefix in the cgroup tree.
        type: str
  state:
    description: Whether the rule exists.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Backups are batch work
  sluice.appliance.sluice_rule:
    domain: web1
    class: batch
    match:
      exe: /usr/bin/rsync
"""

RETURN = r"""
rule:
  description: The rule as sluiced has it.
  returned: when it exists
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import ARGUMENTS, Api, ApiError


def wanted_rule(params: dict) -> dict:
    """The rule as the API takes it."""
    match = {key: value for key, value in params["match"].items() if value is not None}
    return {"domain": params["domain"], "class": params["class_name"], "match": match}


def run(module: AnsibleModule) -> dict:
    """Bring the rule into the wanted state."""
    api, wanted = Api.of(module), wanted_rule(module.params)
    rules = [] if module.check_mode and not api.installed else api.call("GET", "rules")
    same = [rule for rule in rules if all(rule[key] == wanted[key] for key in wanted)]
    before = wanted if same else {}
    if module.params["state"] == "absent":
        for rule in [] if module.check_mode else same:
            api.call("DELETE", "rules", rule["id"])
        return {"changed": bool(same), "diff": {"before": before, "after": {}}}
    rule = same[0] if same else None
    if rule is None and not module.check_mode:
        rule = api.call("POST", "rules", body=wanted)
    return {"changed": not same, "rule": rule, "diff": {"before": before, "after": wanted}}


def main() -> None:
    """Run as a module."""
    conditions = ("exe", "cmdline", "user", "unit", "cgroup")
    module = AnsibleModule(
        argument_spec={
            "domain": {"type": "str"},
            "class_name": {"type": "str", "required": True, "aliases": ["class"]},
            "match": {
                "type": "dict",
                "required": True,
                "options": {key: {"type": "str"} for key in conditions},
            },
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
