#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""The settings that a running sluiced keeps."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_settings
short_description: Change the settings that sluiced keeps
version_added: 0.1.0
author: The Sluice developers
description:
  - Changes what is given. Without any setting it only sees that sluiced answers.
options:
  uplink:
    description: Interface whose queue auto-shaping watches; an empty string for none.
    type: str
  history_seconds:
    description: How long history is kept, 60 to 2592000.
    type: int
  emulator:
    description: Path of the patched QEMU that attach puts into a domain.
    type: path
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Watch the link of this host
  sluice.appliance.sluice_settings:
    uplink: eno1
"""

RETURN = r"""
settings:
  description: The settings in force.
  returned: when sluiced answers
  type: dict
status:
  description: How sluiced is, its version among other things.
  returned: when sluiced answers
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import (
    ARGUMENTS,
    Api,
    ApiError,
    differs,
)

MEMBERS = ("uplink", "history_seconds", "emulator")


def run(module: AnsibleModule) -> dict:
    """Bring the settings into the wanted state."""
    api = Api.of(module)
    given = {key: module.params[key] for key in MEMBERS if module.params[key] is not None}
    if given.get("uplink") == "":
        given["uplink"] = None
    if module.check_mode and not api.installed:
        return {"changed": bool(given), "diff": {"before": {}, "after": given}}
    status, before = api.call("GET", "status"), api.call("GET", "settings")
    changes = differs(before, given)
    after = {**before, **changes}
    if changes and not module.check_mode:
        after = api.call("PUT", "settings", body=changes)
    diff = {"before": before, "after": after}
    return {"changed": bool(changes), "settings": after, "status": status, "diff": diff}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "uplink": {"type": "str"},
            "history_seconds": {"type": "int"},
            "emulator": {"type": "path"},
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
