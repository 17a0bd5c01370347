#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A unit of systemd that runs with what its files say, whatever interrupted an earlier run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unit
short_description: Have a unit run with what its files say
version_added: 0.1.0
author: The Sluice developers
description:
  - C(noted) comes before the first task that writes a file which the unit reads at its start, and
    C(in_force) after the last one. C(noted) writes down what the files say and which start of the
    unit it is, C(in_force) starts the unit, or restarts it if either is different now, and then
    takes the note away.
  - A note that is there already is kept, because a run was interrupted in between. So no
    interruption loses a restart, and no clock decides about it.
  - Notes are in C(/run); at the next boot all units start with what the files say then.
options:
  name:
    description: The unit with its type.
    type: str
    required: true
  files:
    description: What it reads at its start, drop-ins included. Files may be absent.
    type: list
    elements: path
    required: true
  state:
    description: See above.
    type: str
    choices: [noted, in_force]
    required: true
  touched:
    description:
      - Whether tasks in between would change a file. Only check mode, which has no note, asks.
    type: bool
    default: false
  notes:
    description: Folder of the notes.
    type: path
    default: /run/sluice-ansible
attributes:
  check_mode:
    description: Says what it would do.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: Note what the page runs with
  sluice.appliance.unit:
    name: sluice-web.service
    files: [/etc/default/sluice-web]
    state: noted

- name: Run the page with what was written
  sluice.appliance.unit:
    name: sluice-web.service
    files: [/etc/default/sluice-web]
    state: in_force
"""

RETURN = r"""
done:
  description: C(start), C(restart) or C(nothing).
  returned: with state in_force
  type: str
"""

import contextlib
import hashlib
import json
import os

from ansible.module_utils.basic import AnsibleModule

ENVIRONMENT = {"LC_ALL": "C"}
PROPERTIES = ("LoadState", "ActiveState", "InvocationID")
# A service that failed and waits for its next try is "activating".
RUNNING = ("active", "activating", "reloading", "refreshing")


def sums(paths: list[str]) -> dict[str, str | None]:
    """SHA-256 of each file; none for one that is not there."""
    found: dict[str, str | None] = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            found[path] = None
    return found


def what_to_do(running: bool, noted: dict | None, now: dict) -> str:
    """Pure: ``noted`` and ``now`` are the unit's start and its files' sums.

    Without a note nothing is known of what it runs with.
    """
    if not running:
        return "start"
    return "nothing" if noted == now else "restart"


class Failed(Exception):
    """What cannot be done; the message has a remedy."""


class Unit:
    """The unit, its files and the note about them."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.name = module.params["name"]
        self.note = os.path.join(module.params["notes"], f"{self.name}.json")

    def _systemctl(self, *words: str) -> str:
        command = ["systemctl", *words]
        code, out, error = self.module.run_command(command, environ_update=ENVIRONMENT)
        if code:
            raise Failed(
                f"'{' '.join(command)}' failed ({' '.join((error or out).split())}): see"
                f" 'journalctl -u {self.name}' on this host, correct what it names and run the"
                " playbook again"
            )
        return out

    def properties(self) -> dict[str, str]:
        """What systemd has of the unit."""
        words = [f"--property={name}" for name in PROPERTIES]
        lines = self._systemctl("show", *words, "--", self.name).splitlines()
        found = {name: value for name, _, value in (line.partition("=") for line in lines)}
        if found["LoadState"] == "not-found":
            raise Failed(
                f"unit {self.name!r} does not exist: see that its package is installed on this host"
            )
        return found

    def read(self) -> dict | None:
        """The note; none if there is none, or none that can be read."""
        try:
            with open(self.note, encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, ValueError):
            return None

    def write(self, text: str) -> None:
        """Whole or not at all."""
        os.makedirs(self.params["notes"], mode=0o700, exist_ok=True)
        new = f"{self.note}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, self.note)

    def forget(self) -> None:
        """The note is settled; the folder goes with the last one."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.note)
        with contextlib.suppress(OSError):
            os.rmdir(self.params["notes"])

    def noted(self) -> dict:
        """Nothing that an operator would call a change: the note goes within the run."""
        found = self.properties()
        if self.read() is None and not self.module.check_mode:
            self.write(json.dumps(self.as_it_is(found)))
        return {"changed": False}

    def as_it_is(self, found: dict[str, str]) -> dict:
        """What a note says."""
        return {"invocation": found["InvocationID"], "files": sums(self.params["files"])}

    def in_force(self) -> dict:
        """Start or restart, if either is needed."""
        found, noted = self.properties(), self.read()
        now = self.as_it_is(found)
        if self.module.check_mode and noted is None and not self.params["touched"]:
            noted = now
        step = what_to_do(found["ActiveState"] in RUNNING, noted, now)
        if not self.module.check_mode:
            if step != "nothing":
                # Drop-ins may be among the files.
                self._systemctl("daemon-reload")
                self._systemctl(step, "--", self.name)
            self.forget()
        return {"changed": step != "nothing", "done": step}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "required": True},
            "state": {"type": "str", "choices": ["noted", "in_force"], "required": True},
            "touched": {"type": "bool", "default": False},
            "notes": {"type": "path", "default": "/run/sluice-ansible"},
        },
        supports_check_mode=True,
    )
    unit = Unit(module)
    try:
        module.exit_json(**(unit.noted() if module.params["state"] == "noted" else unit.in_force()))
    except Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}: correct it on this host")


if __name__ == "__main__":
    main()
