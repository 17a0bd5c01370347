#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Stop the services that run as users who are about to be deleted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: user_services
short_description: Stop the services that run as some users
version_added: 0.1.0
author: The Sluice developers
description:
  - D-Bus can start a service once more while its package is being purged. Its unit's file is gone
    then, it runs on, and its user cannot be deleted.
  - Processes of those users that no service started are left alone.
options:
  users:
    description: Names. Users who do not exist have no services.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: Says what it would stop.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: End what still runs as a user to be deleted
  sluice.appliance.user_services:
    users: [polkitd]
"""

RETURN = r"""
stopped:
  description: Units that were stopped, or would be.
  returned: always
  type: list
  elements: str
"""

import os
import pwd
from collections.abc import Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.control_groups import service_of

PROC = "/proc"


def numbers_of(users: list[str]) -> set[int]:
    """User ids of those who exist."""
    return {entry.pw_uid for entry in pwd.getpwall() if entry.pw_name in users}


def processes(proc: str = PROC) -> Iterator[tuple[set[int], str]]:
    """Each process's user ids and what it says of its control groups."""
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/status", encoding="utf-8") as file:
                (line,) = (line for line in file if line.startswith("Uid:"))
            with open(f"{proc}/{name}/cgroup", encoding="utf-8") as file:
                yield {int(word) for word in line.split()[1:]}, file.read()
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile.
            continue


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={"users": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    wanted = numbers_of(module.params["users"])
    found = {service_of(groups) for ids, groups in processes() if wanted & ids}
    units = sorted(unit for unit in found if unit)
    if units and not module.check_mode:
        code, out, error = module.run_command(["systemctl", "stop", "--", *units])
        if code:
            module.fail_json(
                msg=f"'systemctl stop {' '.join(units)}' failed"
                f" ({' '.join((error or out).split())}): end what runs as"
                f" {', '.join(module.params['users'])} on this host and run the playbook again"
            )
    module.exit_json(changed=bool(units), stopped=units)


if __name__ == "__main__":
    main()
