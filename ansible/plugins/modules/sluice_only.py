#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Nothing of a domain but what is named."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_only
short_description: Take classes and rules from a domain that are not named
version_added: 0.1.0
author: The Sluice developers
description:
  - Removes the domain's own rules and revokes its classes, with their streams, except the named
    ones. Rules for every domain are left alone.
options:
  domain:
    description: The libvirt domain.
    type: str
    required: true
  classes:
    description: Classes to keep.
    type: list
    elements: str
    default: []
  rules:
    description: Rules to keep, each with C(class) and C(match).
    type: list
    elements: dict
    default: []
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Nothing but batch
  sluice.appliance.sluice_only:
    domain: web1
    classes: [batch]
"""

RETURN = r"""
removed:
  description: What was or would be removed, one line each.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import ARGUMENTS, Api, ApiError


def as_kept(rule: dict) -> tuple:
    """A rule as something to compare."""
    match = {key: str(value) for key, value in rule["match"].items() if value is not None}
    return rule["class"], tuple(sorted(match.items()))


def surplus(params: dict, grants: list, rules: list, streams: list) -> list[tuple[str, tuple]]:
    """(description, path to delete) of what is not named, in an order that works. Pure."""
    domain, keep = params["domain"], {"default", *params["classes"]}
    kept_rules = {as_kept(rule) for rule in params["rules"]}
    gone = [grant["class"] for grant in grants if grant["class"] not in keep]
    found = []
    for rule in rules:
        if rule["domain"] == domain and as_kept(rule) not in kept_rules:
            found.append((f"rule {rule['class']} {rule['match']}", ("rules", rule["id"])))
    for stream in streams:
        if stream["domain"] == domain and stream["class"] in gone:
            found.append((f"stream {stream['name']}", ("streams", stream["name"])))
    for name in gone:
        found.append((f"class {name}", ("domains", domain, "classes", name)))
    return found


def grants_of(api: Api, module: AnsibleModule) -> list[dict] | None:
    """The grants of the domain; None in check mode where it is not defined yet."""
    try:
        return api.call("GET", "domains", module.params["domain"])["classes"]
    except ApiError as error:
        if module.check_mode and error.status == 404:
            return None
        raise


def run(module: AnsibleModule) -> dict:
    """Remove the surplus."""
    api = Api.of(module)
    if module.check_mode and not api.installed:
        return {"changed": False, "removed": []}
    grants = grants_of(api, module)
    if grants is None:
        return {"changed": False, "removed": []}
    found = surplus(module.params, grants, api.call("GET", "rules"), api.call("GET", "streams"))
    for _description, path in [] if module.check_mode else found:
        api.call("DELETE", *path)
    removed = [description for description, _path in found]
    before = "".join(f"{line}\n" for line in removed)
    return {
        "changed": bool(found),
        "removed": removed,
        "diff": {"before": before, "after": ""},
    }


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "domain": {"type": "str", "required": True},
            "classes": {"type": "list", "elements": "str", "default": []},
            "rules": {"type": "list", "elements": "dict", "default": []},
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
