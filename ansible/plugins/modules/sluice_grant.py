#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A class as one domain has it, with its limits."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_grant
short_description: Grant a class to a domain and limit it there
version_added: 0.1.0
author: The Sluice developers
description:
  - Grants a class to a domain with these limits, scheduling and queues, or revokes it.
  - The class C(default) is part of every domain; it can be limited and not revoked.
options:
  domain:
    description: The libvirt domain.
    type: str
    required: true
  class_name:
    description: The class. It must exist, see M(sluice.appliance.sluice_class).
    type: str
    required: true
    aliases: [class]
  limits:
    description:
      - Maps some of C(blk-read), C(blk-write), C(net-tx), C(net-rx) to a limit.
      - A limit is a rate (C(20MB/s), C(160Mbit/s), bytes per second, C(unlimited)), or a mapping
        of some of C(rate), C(burst), C(ops) (per second) and C(burst_ops).
      - A resource that is not named is unlimited.
    type: dict
    default: {}
  scheduling:
    description:
      - Maps some of the resources to how the class uses them beside its limit, with some of
        C(reserve) (a rate), C(policy) (C(token-bucket), C(leaky-bucket), C(token-leaky)), C(peak)
        (a rate), C(min_charge) (a size), C(dynamic) (C(none), C(latency), C(throughput)), C(charge)
        (C(all), C(device)), C(window) (SIZE/TIME, C(64KiB/20ms)) and C(may_miss) (C(1/10)).
      - It replaces what there is, also of resources that are not named. Left alone unless given.
    type: dict
  queues:
    description:
      - Maps C(net-tx) or C(net-rx) to what may be queued, with some of C(bytes), C(packets), C(aqm)
        (C(none), C(codel)), C(ecn), C(connections) (new ones per second, C(net-rx)) and
        C(burst_connections).
      - It replaces what there is, also of resources that are not named. Left alone unless given.
    type: dict
  dscp:
    description: DSCP values of packets that select the class without an agent.
    type: list
    elements: int
    default: []
  state:
    description: Whether the domain has the class.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: sluice.appliance.api
"""

EXAMPLES = r"""
- name: Backups of web1 read slowly
  sluice.appliance.sluice_grant:
    domain: web1
    class: batch
    limits:
      blk-read: 20MB/s
      net-tx: {rate: 40Mbit/s, burst: 64KiB}
    scheduling:
      blk-read: {reserve: 2MB/s, policy: leaky-bucket}
    queues:
      net-rx: {aqm: codel, ecn: true}
"""

RETURN = r"""
grant:
  description: The grant as sluiced has it.
  returned: when it exists
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.api import (
    ARGUMENTS,
    Api,
    ApiError,
    expressible,
    lacking,
    plain_limits,
)
from ansible_collections.sluice.appliance.plugins.module_utils.scheduling import (
    read_queues,
    read_schedulings,
)
from ansible_collections.sluice.appliance.plugins.module_utils.shaping import read_limits

# What a daemon of an earlier release does not know, as it is there for every grant.
NEWER = {"scheduling": {}, "queues": {}}


def grants_of(api: Api, module: AnsibleModule) -> list[dict]:
    """The grants of the domain."""
    if module.check_mode and not api.installed:
        return []
    try:
        return api.call("GET", "domains", module.params["domain"])["classes"]
    except ApiError as error:
        if module.check_mode and error.status == 404:
            return []
        raise


def described(grant: dict) -> dict:
    """What a PUT of the grant as it is would say."""
    return {
        "limits": plain_limits(grant["limits"]),
        "dscp": grant["dscp"],
        **{key: grant.get(key, usual) for key, usual in NEWER.items()},
    }


def wanted_grant(params: dict, before: dict) -> dict:
    """All that a PUT needs; ValueError names the argument."""
    limits = _read("limits", read_limits, params["limits"])
    wanted = {"limits": limits, "dscp": params["dscp"]}
    wanted["scheduling"], wanted["queues"] = before.get("scheduling", {}), before.get("queues", {})
    if params["scheduling"] is not None:
        wanted["scheduling"] = _read(
            "scheduling", lambda value: read_schedulings(value, limits), params["scheduling"]
        )
    if params["queues"] is not None:
        wanted["queues"] = _read("queues", read_queues, params["queues"])
    return wanted


def _read(argument: str, reader, value: object) -> dict:
    try:
        return reader(value)
    except ValueError as error:
        raise ValueError(f"{argument} {error}") from error


def run(module: AnsibleModule) -> dict:
    """Bring the grant into the wanted state."""
    api = Api.of(module)
    domain, name = module.params["domain"], module.params["class_name"]
    path = ("domains", domain, "classes", name)
    grants = grants_of(api, module)
    present = next((g for g in grants if g["class"] == name), None)
    before = described(present) if present else {}
    if module.params["state"] == "absent":
        if present and not module.check_mode:
            api.call("DELETE", *path)
        return {"changed": bool(present), "diff": {"before": before, "after": {}}}
    after = wanted_grant(module.params, before)
    changed = before != after
    if changed and not module.check_mode:
        thing = f"class {name!r} of domain {domain!r}"
        body = expressible(thing, after, NEWER, lacking(grants, NEWER))
        present = api.call("PUT", *path, body=body)
    return {"changed": changed, "grant": present, "diff": {"before": before, "after": after}}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "domain": {"type": "str", "required": True},
            "class_name": {"type": "str", "required": True, "aliases": ["class"]},
            "limits": {"type": "dict", "default": {}},
            "scheduling": {"type": "dict"},
            "queues": {"type": "dict"},
            "dscp": {"type": "list", "elements": "int", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except (ApiError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
