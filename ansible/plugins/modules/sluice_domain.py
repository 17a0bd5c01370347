#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A libvirt domain: attached to its shaper or not, and its ceiling."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_domain
short_description: Attach a libvirt domain to Sluice, or detach it
version_added: 0.1.0
author: The Sluice developers
description:
  - Attaching rewrites the domain's persistent XML; detaching puts back what was there before.
  - A running domain gets its shaper, or loses it, when it next starts. This module starts it anew
    only with I(restart=true).
options:
  name:
    description: The domain. It must be defined in libvirt already.
    type: str
    required: true
  state:
    description:
      - C(attached) or C(detached); C(seen) changes nothing and reports.
    type: str
    choices: [attached, detached, seen]
    default: attached
  restart:
    description: Shut the domain down and start it, if it runs and needs that.
    type: bool
    default: false
  shutdown_seconds:
    description: How long I(restart) waits for the guest to shut down, 1 to 900.
    type: int
    default: 90
  upgrade:
    description:
      - Attach anew a domain whose definition names an older QEMU of Sluice. If that fails, its
        definition is as before.
    type: bool
    default: false
  disable_vhost:
    description: Switch interfaces that ask for vhost to QEMU; otherwise they are refused.
    type: bool
    default: false
  devices:
    description:
      - Devices that must end up shaped, by target (C(vda)) or MAC address. One that is missing or
        cannot be shaped is refused before anything changes. All other virtio devices are shaped
        too.
    type: list
    elements: str
    default: []
  ceiling:
    description:
      - Limits of the whole domain, written as in M(sluice.appliance.sluice_grant). It replaces the
        present ceiling; what is not given is left alone.
    type: dict
  missing:
    description: What to do when libvirt has no such domain.
    type: str
    choices: [fail, skip]
    default: fail
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Shape web1 from its next start
  sluice.appliance.sluice_domain:
    name: web1
    ceiling:
      net-tx: 400Mbit/s

- name: Give media its own XML back, at once
  sluice.appliance.sluice_domain:
    name: media
    state: detached
    restart: true
"""

RETURN = r"""
domain:
  description: The domain as sluiced has it; null if libvirt has none of that name, or
    nobody can tell.
  returned: always
  type: dict
missing:
  description:
    - Whether libvirt has no such domain. False in check mode before sluiced is installed, where
      nobody can tell.
  returned: always
  type: bool
needs_restart:
  description: Whether it runs otherwise than it is defined.
  returned: always
  type: bool
emulator:
  description: The QEMU in the definition (defined), the newest (newest), and whether it is older.
  returned: when the domain is attached
  type: dict
changes:
  description: What attach changed in the XML.
  returned: when it was attached
  type: list
  elements: str
"""

import os
import xml.etree.ElementTree as ElementTree

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import (
    ARGUMENTS,
    Api,
    ApiError,
    plain_limits,
)
from ansible_collections.sluice.appliance.plugins.module_utils.shaping import (
    SHUTDOWN_SECONDS,
    read_limits,
)

# What sluiced waits untold.
USUAL_SHUTDOWN_SECONDS = 90


def device_problem(domain: dict, wanted: list[str]) -> str | None:
    """The first wanted device that cannot be shaped, with the remedy."""
    known = {device["target"]: device for device in domain["devices"]}
    for target in wanted:
        device = known.get(target)
        if device is None:
            has = ", ".join(sorted(str(name) for name in known)) or "none"
            return (
                f"device {target!r} of domain {domain['name']!r} does not exist: it has {has};"
                " correct devices in sluice_domains"
            )
        if not device["shapeable"]:
            return (
                f"device {target!r} of domain {domain['name']!r} cannot be shaped"
                f" ({device['reason']}): change it with 'virsh edit {domain['name']}', or take it"
                " out of devices in sluice_domains"
            )
    return None


def defined_emulator(module: AnsibleModule, uri: str, name: str) -> str | None:
    """The emulator in the persistent definition, or None if virsh cannot tell."""
    virsh = module.get_bin_path("virsh")
    if virsh is None:
        return None
    command = [virsh, "-r", "-c", uri, "dumpxml", "--inactive", name]
    code, out, _error = module.run_command(command, environ_update={"LC_ALL": "C"})
    return ElementTree.fromstring(out).findtext("devices/emulator") if code == 0 else None


def emulator_report(module: AnsibleModule, api: Api, domain: dict) -> dict:
    """Which QEMU the definition names, beside the newest."""
    newest = os.path.realpath(api.call("GET", "settings")["emulator"])
    uri = api.call("GET", "status")["libvirt"]["uri"]
    defined = defined_emulator(module, uri, domain["name"])
    older = bool(domain["attached"] and defined and os.path.realpath(defined) != newest)
    return {"defined": defined, "newest": newest, "older": older}


def plan(params: dict, domain: dict, older: bool) -> tuple[str, dict] | None:
    """The call to make, attach or detach, and what it is to do; None without one. Pure."""
    restart, state = params["restart"], params["state"]
    # A domain that is detached may still run its shaper, and one that is attached none yet.
    waits = restart and domain["needs_restart"]
    if state == "detached":
        return ("detach", {"restart": restart}) if domain["attached"] or waits else None
    if state != "attached":
        return None
    if domain["attached"] and params["upgrade"] and older:
        return "attach", {"restart": restart, "upgrade": True}
    if not domain["attached"] or waits:
        return "attach", {"restart": restart}
    return None


class Changer:
    """Carries the plan out, or foresees it in check mode."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.api = Api.of(module)

    def find(self) -> dict | None:
        """The domain, or None; refuses one that is missing where that matters."""
        name = self.params["name"]
        if self.module.check_mode and not self.api.installed:
            return None
        try:
            return self.api.call("GET", "domains", name)
        except ApiError as error:
            if error.status != 404 or self.params["missing"] == "fail":
                if error.status == 404:
                    raise ApiError(
                        f"domain {name!r} is not defined in libvirt on this host: define it with"
                        f" 'virsh define {name}.xml', or take it out of sluice_domains",
                        404,
                    ) from error
                raise
            return None

    def call(self, verb: str, options: dict) -> dict:
        body = dict(options)
        if verb == "attach":
            body["disable_vhost"] = self.params["disable_vhost"]
        seconds = self.params["shutdown_seconds"] if body["restart"] else 0
        if body["restart"] and seconds != USUAL_SHUTDOWN_SECONDS:
            # Said only where it matters: a sluiced of an earlier release does not know it.
            body["shutdown_seconds"] = seconds
        name = self.params["name"]
        try:
            return self.api.call("POST", "domains", name, verb, body=body, may_take_seconds=seconds)
        except ApiError as error:
            if error.status == 422 and "upgrade" in body and str(error).startswith("upgrade "):
                raise ApiError(
                    f"domain {name!r} cannot be attached anew: the sluiced of this host is of an"
                    " earlier release; upgrade the controller first (role controller, package"
                    " sluice-controller)",
                    422,
                ) from error
            raise

    def ceiling(self, domain: dict) -> tuple[dict, dict]:
        """The ceiling before and as wanted."""
        before = plain_limits(domain["ceiling"])
        if self.params["ceiling"] is None or self.params["state"] != "attached":
            return before, before
        return before, read_limits(self.params["ceiling"])

    def run(self) -> dict:
        domain = self.find()
        if domain is None:
            foreseen = self.module.check_mode and not self.api.installed
            return {
                "changed": foreseen,
                "domain": None,
                "missing": not foreseen,
                "needs_restart": False,
            }
        problem = device_problem(domain, self.params["devices"])
        if problem and self.params["state"] != "detached":
            raise ApiError(problem)
        ceiling, wanted_ceiling = self.ceiling(domain)
        emulator = emulator_report(self.module, self.api, domain)
        due = plan(self.params, domain, emulator["older"])
        before = {"attached": domain["attached"], "ceiling": ceiling}
        result = {"changed": due is not None or ceiling != wanted_ceiling}
        if not self.module.check_mode:
            domain, result["changes"] = self.carry_out(domain, due, ceiling, wanted_ceiling)
            if due:
                emulator = emulator_report(self.module, self.api, domain)
        attached = domain["attached"]
        if self.module.check_mode and due:
            attached = due[0] == "attach"
        after = {"attached": attached, "ceiling": wanted_ceiling}
        return {
            **result,
            "domain": domain,
            "missing": False,
            "needs_restart": domain["needs_restart"],
            "emulator": emulator,
            "diff": {"before": before, "after": after},
        }

    def carry_out(
        self, domain: dict, due: tuple[str, dict] | None, ceiling: dict, wanted: dict
    ) -> tuple[dict, list[str]]:
        """Make the calls; returns the domain after them and what attach said."""
        said: list[str] = []
        if due:
            domain = self.call(*due)
            said = domain.get("changes") or []
        if ceiling != wanted:
            domain = self.api.call("PUT", "domains", self.params["name"], "ceiling", body=wanted)
        return domain, said


def main() -> None:
    """Run as a module."""
    states = ["attached", "detached", "seen"]
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": states, "default": "attached"},
            "restart": {"type": "bool", "default": False},
            "shutdown_seconds": {"type": "int", "default": USUAL_SHUTDOWN_SECONDS},
            "upgrade": {"type": "bool", "default": False},
            "disable_vhost": {"type": "bool", "default": False},
            "devices": {"type": "list", "elements": "str", "default": []},
            "ceiling": {"type": "dict"},
            "missing": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    least, most = SHUTDOWN_SECONDS
    if not least <= module.params["shutdown_seconds"] <= most:
        asked = module.params["shutdown_seconds"]
        module.fail_json(msg=f"shutdown_seconds {asked} is out of range: give {least} to {most}")
    try:
        module.exit_json(**Changer(module).run())
    except ApiError as error:
        module.fail_json(msg=str(error))
    except ValueError as error:
        module.fail_json(msg=f"ceiling {error}")


if __name__ == "__main__":
    main()
