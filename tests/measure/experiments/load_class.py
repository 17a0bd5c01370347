# SPDX-License-Identifier: GPL-2.0-or-later
"""A class that has the load in it and nothing else.

The guest's own traffic, its root disk and the commands that it is given, stays in
the default class, and no limit of the load touches it. The load carries the class's
tag from its first request: a program that is started with an I/O priority, and a TCP
flow with a DSCP, need no agent that finds them first (docs/specs/tags.md). So the guest's
cards are told to let the DSCP count, of frames in both directions.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure.qmp import ask
from testbed import Controller, Guest, Testbed

NAME = "load"
# Level 0 without a hint is the default class, and hints need a newer ionice.
TAGS = range(1, 8)
# How long the controller may take until QEMU has what it was told.
PUSH_SECONDS = 20.0


# What a disk's requests are charged at least, unless something else is set.
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Setting:
    """What a class has on a resource; a rate of None is no limit."""

    rate_bps: int | None
    policy: str
    minimum_charge_bytes: int


@dataclass(frozen=True)
class LoadClass:
    """The class, granted to a guest. ``tag`` marks what belongs to it."""

    testbed: Testbed
    guest: Guest
    tag: int

    @property
    def dscp(self) -> int:
        """Return the DSCP that carries the tag."""
        return self.tag << 2 | 3

    def disk_command(self, command: str) -> str:
        """Return a command whose disk requests, and no others, belong to the class."""
        return f"ionice --class 1 --classdata {self.tag} {command}"

    def call(self, method: str, what: str, body: dict[str, Any] | None = None) -> None:
        """Change something of the class, such as ``limits/net-tx``."""
        path = f"/v1/domains/{self.guest.name}/classes/{NAME}/{what}"
        self.testbed.controller.call(method, path, body)

    def await_setting(self, resource: str, wanted: Setting) -> None:
        """Wait until QEMU has it: the controller answers before. Raises TimeoutError."""
        deadline = time.monotonic() + PUSH_SECONDS
        while (there := setting_of(ask(self.guest, "query-shapers"), resource)) != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {PUSH_SECONDS:g} s the class {NAME} has {there} on {resource} in"
                    f" QEMU, and not {wanted}"
                )
            time.sleep(0.05)


def grant(testbed: Testbed, guest: Guest) -> LoadClass:
    """Give a guest the class, without a limit. Raises ValueError if its tag is too high."""
    call = testbed.controller.call
    call("PUT", f"/v1/classes/{NAME}", {"title": "Load", "priority": 5, "is_stream": False})
    call("PUT", f"/v1/domains/{guest.name}/classes/{NAME}", {"limits": {}, "dscp": []})
    granted = call("GET", f"/v1/domains/{guest.name}")["classes"]
    tag = next(one["tag"] for one in granted if one["class"] == NAME)
    if tag not in TAGS:
        raise ValueError(f"the class {NAME} has tag {tag}; ionice can set 1 to 7: grant it first")
    count_dscp(testbed.controller, guest, "both")
    return LoadClass(testbed, guest, tag)


def count_dscp(controller: Controller, guest: Guest, frames: str) -> None:
    """Let the DSCP of these frames ("both", "auto") choose their class, on all cards."""
    path = f"/v1/domains/{guest.name}"
    for device in controller.call("GET", path)["devices"]:
        if device["kind"] == "net":
            controller.call("PUT", f"{path}/cards/{device['mac']}", {"dscp": frames})


def setting_of(shapers: Sequence[Mapping[str, Any]], resource: str) -> Setting | None:
    """Read from query-shapers what the class has; None if it is not there."""
    classes = (one for shaper in shapers for one in shaper["classes"])
    found = next((one for one in classes if one["class"] == NAME), None)
    if found is None:
        return None
    limit, scheduling = (
        next((row for row in found[kind] if row["resource"] == resource), {})
        for kind in ("limits", "scheduling")
    )
    return Setting(
        limit.get("bytes-per-second"),
        scheduling.get("policy", "token-bucket"),
        scheduling.get("minimum-charge-bytes", PAGE_BYTES if resource.startswith("blk") else 0),
    )
