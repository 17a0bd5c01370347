#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Folders for data that an inventory gives in place of those of the packages."""

from __future__ import annotations

DOCUMENTATION = r"""
module: data_folder
short_description: Make folders for data, and delete what is Sluice's in them
version_added: 0.1.0
author: The Sluice developers
description:
  - C(present) makes a folder and records it. C(seen) says which recorded ones are there. C(absent)
    deletes what the programs made in all recorded ones, each folder if it is empty then, and what
    was recorded.
options:
  record:
    description: File of the record.
    type: path
    required: true
  state:
    description: See above.
    type: str
    choices: [present, seen, absent]
    required: true
  program:
    description: Whose folder it is, with C(present).
    type: str
    choices: [sluiced, sluice-nightly]
  path:
    description: The folder, with C(present).
    type: path
  mode:
    description: Its mode, with C(present).
    type: str
    default: "0700"
attributes:
  check_mode:
    description: Says what it would do.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: Make the folder for the database
  sluice.appliance.data_folder:
    record: /var/lib/sluice-ansible/folders.json
    state: present
    program: sluiced
    path: /srv/sluice
    mode: "0750"
"""

RETURN = r"""
folders:
  description: Recorded folders that are there.
  returned: always
  type: list
  elements: str
"""

import contextlib
import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.sandbox import (
    CONTENTS,
    is_made,
)


class Record:
    """Folders by program, as {program: [folder]}."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folders: dict[str, list[str]] = {}
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            self.folders = json.load(file)

    def add(self, program: str, folder: str) -> None:
        """Before the folder is made, so that no interruption leaves one without a record."""
        self.folders.setdefault(program, []).append(folder)
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        new = f"{self.path}.new"
        with open(new, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(self.folders, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)

    def there(self) -> list[str]:
        """Those that exist."""
        every = {folder for folders in self.folders.values() for folder in folders}
        return sorted(folder for folder in every if os.path.isdir(folder))


def own(program: str, folder: str) -> list[str]:
    """What there is in the folder of what the program makes."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if is_made(name, CONTENTS[program])]


def delete(path: str) -> None:
    """A file, a link, or a folder with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def present(module: AnsibleModule, record: Record) -> bool:
    """Make the folder; returns whether anything was to do."""
    program, folder = module.params["program"], module.params["path"]
    mode = int(module.params["mode"], 8)
    recorded = folder in record.folders.get(program, [])
    made = os.path.isdir(folder)
    right = made and os.stat(folder).st_mode & 0o7777 == mode
    if not module.check_mode:
        if not recorded:
            record.add(program, folder)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        os.chmod(folder, mode)
    return not (recorded and right)


def absent(module: AnsibleModule, record: Record) -> bool:
    """Delete what is Sluice's; returns whether there was anything."""
    for program, folders in record.folders.items():
        for folder in folders if not module.check_mode else ():
            for path in own(program, folder):
                delete(path)
            # One with other things stays, and so does the place of a mount.
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    if not module.check_mode:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(record.path)
    return bool(record.folders)


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "seen", "absent"], "required": True},
            "program": {"type": "str", "choices": list(CONTENTS)},
            "path": {"type": "path"},
            "mode": {"type": "str", "default": "0700"},
        },
        required_if=[("state", "present", ("program", "path"))],
        supports_check_mode=True,
    )
    steps = {"present": present, "absent": absent, "seen": lambda *_: False}
    try:
        record = Record(module.params["record"])
        there = record.there()
        changed = steps[module.params["state"]](module, record)
    except ValueError as error:
        path = module.params["record"]
        module.fail_json(msg=f"record {path!r} is not JSON ({error}): restore or delete it")
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}: correct it on this host")
    module.exit_json(changed=changed, folders=there)


if __name__ == "__main__":
    main()
