#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A stream whose quality is watched over."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_stream
short_description: Watch over a class of a domain that streams
version_added: 0.1.0
author: The Sluice developers
description:
  - Declares that a class of a domain streams at a rate, or that it no longer does.
options:
  name:
    description: The stream.
    type: str
    required: true
  domain:
    description: The libvirt domain that streams. Needed unless I(state=absent).
    type: str
  class_name:
    description: Its class, which must be a stream class that the domain has.
    type: str
    aliases: [class]
  rate:
    description: The stream's nominal rate, for example C(7Mbit/s).
    type: str
  state:
    description: Whether the stream is watched over.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Watch over the film
  sluice.appliance.sluice_stream:
    name: film
    domain: media
    class: film
    rate: 7Mbit/s
"""

RETURN = r"""
stream:
  description: The stream as sluiced has it.
  returned: when it exists
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import ARGUMENTS, Api, ApiError
from ansible_collections.sluice.appliance.plugins.module_utils.rates import (
    parse_rate,
    shown,
)

MEMBERS = ("domain", "class", "nominal_bytes_per_second")


def run(module: AnsibleModule) -> dict:
    """Bring the stream into the wanted state."""
    api, name = Api.of(module), module.params["name"]
    streams = [] if module.check_mode and not api.installed else api.call("GET", "streams")
    present = next((s for s in streams if s["name"] == name), None)
    before = {key: present[key] for key in MEMBERS} if present else {}
    if module.params["state"] == "absent":
        if present and not module.check_mode:
            api.call("DELETE", "streams", name)
        return {"changed": bool(present), "diff": {"before": before, "after": {}}}
    after = {
        "domain": module.params["domain"],
        "class": module.params["class_name"],
        "nominal_bytes_per_second": parse_rate(module.params["rate"]),
    }
    changed = before != after
    if changed and not module.check_mode:
        present = api.call("PUT", "streams", name, body=after)
    return {"changed": changed, "stream": present, "diff": {"before": before, "after": after}}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "domain": {"type": "str"},
            "class_name": {"type": "str", "aliases": ["class"]},
            "rate": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            **ARGUMENTS,
        },
        required_if=[("state", "present", ("domain", "class_name", "rate"))],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except ApiError as error:
        module.fail_json(msg=str(error))
    except ValueError as error:
        module.fail_json(msg=f"rate {shown(module.params['rate'])} {error}")


if __name__ == "__main__":
    main()
