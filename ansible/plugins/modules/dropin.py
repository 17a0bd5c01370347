#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""What a unit may do besides what its package allows."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dropin
short_description: Give a unit further settings, or take them back
version_added: 0.1.0
author: The Sluice developers
description:
  - Writes one file of its own beside those that the operator may have there. The unit is neither
    read anew nor restarted.
options:
  name:
    description: The unit with its type.
    type: str
    required: true
  lines:
    description: Lines of the file. Without any, the file is taken away.
    type: list
    elements: str
    default: []
  file:
    description: Its name.
    type: str
    default: sluice-ansible.conf
  folder:
    description: Where units' own settings are.
    type: path
    default: /etc/systemd/system
attributes:
  check_mode:
    description: Says what it would do.
    support: full
  diff_mode:
    description: Shows the file.
    support: full
"""

EXAMPLES = r"""
- name: Let sluiced write to its folder
  sluice.appliance.dropin:
    name: sluiced.service
    lines: ["[Service]", ReadWritePaths=/srv/sluice]
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule

FILE = "sluice-ansible.conf"
HEAD = "# Written by Ansible (sluice.appliance)."


def run(module: AnsibleModule) -> dict:
    """Bring the file into the wanted state."""
    folder = os.path.join(module.params["folder"], f"{module.params['name']}.d")
    path, lines = os.path.join(folder, module.params["file"]), module.params["lines"]
    after = "".join(f"{line}\n" for line in [HEAD, *lines]) if lines else ""
    before = ""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        before = file.read()
    changed = before != after
    if changed and not module.check_mode:
        if after:
            write(path, after)
        else:
            os.unlink(path)
    if not after and not module.check_mode:
        # An interrupted run may have left it empty; one with other files stays.
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    diff = {"before": before, "after": after, "before_header": path, "after_header": path}
    return {"changed": changed, "path": path, "diff": diff}


def write(path: str, text: str) -> None:
    """Whole or not at all, readable for all."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
    os.replace(new, path)


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "lines": {"type": "list", "elements": "str", "default": []},
            "file": {"type": "str", "default": FILE},
            "folder": {"type": "path", "default": "/etc/systemd/system"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}: correct it on this host")


if __name__ == "__main__":
    main()
