#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Which QEMU of Sluice each running guest uses."""

from __future__ import annotations

DOCUMENTATION = r"""
module: running_emulators
short_description: See which QEMU of Sluice each running guest uses
version_added: 0.1.0
author: The Sluice developers
description:
  - Looks at the processes of this host. A guest keeps the binary that it was started with, also
    when a newer package is installed.
  - Guests of the nightly run are left out; they end with it.
options:
  folder:
    description: Where Sluice's versions of QEMU are.
    type: path
    default: /usr/lib/sluice
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: See who runs an older QEMU
  sluice.appliance.running_emulators:
"""

RETURN = r"""
guests:
  description: C(domain), C(emulator) and C(older) of each running guest with a QEMU of Sluice.
  returned: always
  type: list
  elements: dict
newest:
  description: The newest installed version's folder; null without one.
  returned: always
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.control_groups import service_of

# Its guests are its own, come and go with it, and are no operator's.
NIGHTLY = "sluice-nightly.service"


def domain_of(arguments: list[str]) -> str | None:
    """The libvirt name in QEMU's command line, -name guest=NAME,…"""
    for option, value in zip(arguments, arguments[1:], strict=False):
        if option == "-name":
            # QEMU doubles a comma that belongs to a value.
            first = value.replace(",,", "\0").split(",")[0].replace("\0", ",")
            return first.removeprefix("guest=")
    return None


def running(folder: str, proc: str = "/proc") -> list[tuple[str, str]]:
    """(domain, path of the binary) of each QEMU of Sluice, by domain."""
    found = []
    for pid in os.listdir(proc):
        if not pid.isdigit():
            continue
        try:
            binary = os.readlink(f"{proc}/{pid}/exe").removesuffix(" (deleted)")
            if not binary.startswith(f"{folder}/"):
                continue
            with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
                if service_of(file.read()) == NIGHTLY:
                    continue
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                arguments = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        domain = domain_of(arguments)
        if domain:
            found.append((domain, binary))
    return sorted(found)


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={"folder": {"type": "path", "default": "/usr/lib/sluice"}},
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    link = os.path.join(folder, "qemu")
    newest = os.path.realpath(link) if os.path.exists(link) else None
    guests = [
        {
            "domain": domain,
            "emulator": binary,
            "older": newest is not None and not binary.startswith(f"{newest}/"),
        }
        for domain, binary in running(folder)
    ]
    module.exit_json(changed=False, guests=guests, newest=newest)


if __name__ == "__main__":
    main()
