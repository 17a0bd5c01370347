#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Domains that would notice if Sluice went away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: attached_domains
short_description: Find the domains that are attached to Sluice
version_added: 0.1.0
author: The Sluice developers
description:
  - Asks sluiced; where it is not there, libvirt's definitions. Also lists all domains.
  - A libvirt that does not answer is an error only where its folders hold a domain.
options:
  uri:
    description: libvirt, where sluiced is not there to tell.
    type: str
    default: qemu:///system
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Who is attached?
  sluice.appliance.attached_domains:
"""

RETURN = r"""
attached:
  description: Names of domains whose definition is Sluice's.
  returned: always
  type: list
  elements: str
running:
  description: Names of domains that run with a shaper now.
  returned: always
  type: list
  elements: str
defined:
  description: Names of all domains that libvirt has.
  returned: always
  type: list
  elements: str
source:
  description: Who told, C(sluiced), C(virsh) or C(nobody).
  returned: always
  type: str
"""

import os
from collections.abc import Iterable

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import ARGUMENTS, Api, ApiError

MARKS = ("id=sluice0", "/usr/lib/sluice/")
# Where libvirt has a file of each domain that is defined, or that runs.
FOLDERS = ("/etc/libvirt/qemu", "/run/libvirt/qemu")
NOBODY = {"attached": [], "running": [], "defined": [], "source": "nobody"}


def of_sluiced(api: Api) -> dict:
    """sluiced's answer."""
    domains = api.call("GET", "domains")
    return {
        "attached": sorted(d["name"] for d in domains if d["attached"]),
        "running": sorted(d["name"] for d in domains if d["active"]),
        "defined": sorted(d["name"] for d in domains),
        "source": "sluiced",
    }


class Virsh:
    """libvirt's definitions."""

    def __init__(self, module: AnsibleModule, path: str) -> None:
        self.module, self.command = module, [path, "-r", "-c", module.params["uri"]]

    def _ask(self, *arguments: str) -> str:
        code, out, error = self.module.run_command(
            [*self.command, *arguments], environ_update={"LC_ALL": "C"}
        )
        if code:
            raise ApiError(
                f"libvirt at {self.module.params['uri']!r} does not answer ({error.strip()}):"
                " start it with 'systemctl start libvirtd.socket'"
            )
        return out

    def _marked(self, name: str, *options: str) -> bool:
        text = self._ask("dumpxml", *options, name)
        return any(mark in text for mark in MARKS)

    def answer(self) -> dict:
        """What the definitions say."""
        names = self._ask("list", "--all", "--name").split("\n")
        active = self._ask("list", "--name").split("\n")
        defined = sorted(name for name in names if name)
        return {
            "attached": [name for name in defined if self._marked(name, "--inactive")],
            "running": sorted(name for name in active if name and self._marked(name)),
            "defined": defined,
            "source": "virsh",
        }


def has_domains(folders: Iterable[str]) -> bool:
    """Whether libvirt has written down any domain; networks are in folders of their own."""
    names = [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    return any(name.endswith(".xml") for name in names)


def answer_of(api: Api, module: AnsibleModule, virsh: str | None, folders: Iterable[str]) -> dict:
    """What whoever is there says. Raises ApiError."""
    if api.installed:
        return of_sluiced(api)
    if virsh is None:
        return NOBODY
    try:
        return Virsh(module, virsh).answer()
    except ApiError:
        # A removal that was interrupted has taken libvirt away, and not yet its command.
        if has_domains(folders):
            raise
        return NOBODY


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={"uri": {"type": "str", "default": "qemu:///system"}, **ARGUMENTS},
        supports_check_mode=True,
    )
    api, virsh = Api.of(module), module.get_bin_path("virsh")
    try:
        answer = answer_of(api, module, virsh, FOLDERS)
    except ApiError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
