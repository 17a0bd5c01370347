#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The configuration of a fuzzed device's shaper, and the pages of its groups.

Each class has one thing that others have not, so that a guest gets at all of them by
the tags of its requests, with any device: the limits of all are lower than the
requests that the seeds bring at once, and the ceilings and groups lower than the limits. A
reservation is more than there is, so that windows are missed.

A group's page is made anew whenever QEMU begins: its clock does, too.

usage: fuzz_shaper.py commands FILE                    writes the commands for QMP
       fuzz_shaper.py groups PREFIX COMMAND…           makes PREFIX-NAME.group, then runs it
"""

import json
import os
import sys
from pathlib import Path

from sluice_controller.domain.group_page import GroupLimit, new_page

SHAPER = "sluice0"
RESOURCES = DISK, CARD = (("blk-read", "blk-write"), ("net-tx", "net-rx"))
EVERY = DISK + CARD
TAGS = {
    name: tag
    for tag, name in enumerate(
        ("default", "aqm", "bulk", "window", "leaky", "peak", "short", "long")
        + ("reserved", "connections", "free", "device", "own", "burst")
    )
}
# Beside the DSCP of its tag: expedited forwarding.
DSCPS = {"reserved": [46]}
GROUPS = {"disks": GroupLimit("bytes", 300_000, 4096), "cards": GroupLimit("bytes", 30_000, 2000)}
DISK_BPS, CARD_BPS = 200_000, 20_000
CEILING_BPS = {"blk-read": 400_000, "blk-write": 1_000_000, "net-tx": 40_000, "net-rx": 40_000}


def _rate(resource: str) -> int:
    return DISK_BPS if resource in DISK else CARD_BPS


def _limits(resources: tuple[str, ...] = EVERY, **more: int) -> list[dict]:
    limits = {"burst-bytes": 1, **more}
    return [{"resource": each, "bytes-per-second": _rate(each), **limits} for each in resources]


def _scheduling(resources: tuple[str, ...] = EVERY, **settings: object) -> list[dict]:
    return [
        {"resource": each, **{name.replace("_", "-"): value for name, value in settings.items()}}
        for each in resources
    ]


def _window(resource: str) -> dict:
    """Half of the limit, of which every other request may be late."""
    window = {"period-ns": 20_000_000, "bytes": _rate(resource) // 100, "may-miss": 1, "of": 2}
    return {"resource": resource, "window": window}


def _queues(*resources: str, **settings: object) -> list[dict]:
    return _scheduling(resources, **settings)


def classes() -> dict[str, dict]:
    """Return {class: the members of shaper-set-class beside id, class and tag}."""
    default = [
        {"resource": "blk-read", "bytes-per-second": 100_000, "burst-bytes": 1},
        {"resource": "blk-write", "operations-per-second": 100, "burst-operations": 1},
        {"resource": "net-tx", "bytes-per-second": 10_000, "burst-bytes": 1},
        {"resource": "net-rx", "bytes-per-second": 10_000, "burst-bytes": 1},
    ]
    peaks = [
        {**each, "peak-bytes-per-second": 2 * _rate(each["resource"])}
        for each in _scheduling(policy="token-leaky")
    ]
    reserved = [
        {"resource": each, "reservation-bytes-per-second": rate}
        for each, rate in CEILING_BPS.items()
    ]
    return {
        "default": {"limits": default},
        # CoDel's interval grows where the rate is low.
        "aqm": {
            "limits": _limits(**{"bytes-per-second": 100_000}),
            "queues": _queues(*CARD, aqm="codel", ecn=True),
        },
        "bulk": {"limits": [{"resource": "blk-read", "bytes-per-second": 1}], "weight": 1},
        "window": {"limits": _limits(), "scheduling": [_window(each) for each in EVERY]},
        "leaky": {"limits": _limits(), "scheduling": _scheduling(policy="leaky-bucket")},
        "peak": {"limits": _limits(**{"burst-bytes": 9000}), "scheduling": peaks},
        "short": {
            "limits": _limits(),
            "scheduling": _scheduling(dynamic="latency"),
            "priority": 3,
        },
        "long": {
            "limits": _limits(),
            "scheduling": _scheduling(dynamic="throughput", minimum_charge_bytes=600),
            "weight": 1000,
        },
        "reserved": {
            "priority": 9,
            "scheduling": reserved,
            "queues": _queues(*CARD, aqm="codel"),
        },
        "connections": {
            "limits": _limits(),
            "queues": [
                *_queues("net-tx", limit_packets=3),
                *_queues("net-rx", limit_bytes=3000, connections_per_second=1, burst_connections=2),
            ],
        },
        "free": {"unmanaged": True},
        "device": {"limits": _limits(), "scheduling": _scheduling(DISK, charge="device")},
        "own": {"limits": _limits(), "priority": 0},
        "burst": {"limits": _limits(**{"burst-bytes": 65536, "operations-per-second": 100})},
    }


def commands() -> list[dict]:
    """Return the commands for QMP; the last ask for their effects."""
    found = [{"execute": "qmp_capabilities"}]
    for name, settings in classes().items():
        arguments = {"id": SHAPER, "class": name, "tag": TAGS[name], **settings}
        if name in DSCPS:
            arguments["dscp"] = DSCPS[name]
        found.append({"execute": "shaper-set-class", "arguments": arguments})
    limits = [
        {"resource": each, "bytes-per-second": rate, "burst-bytes": 4096}
        for each, rate in CEILING_BPS.items()
    ]
    ceiling = {"id": SHAPER, "limits": limits}
    found.append({"execute": "shaper-set-ceiling", "arguments": ceiling})
    for group, resources in zip(GROUPS, RESOURCES, strict=True):
        for index, resource in enumerate(resources):
            arguments = {"id": SHAPER, "resource": resource, "group": group}
            arguments["weight"] = 100 + 200 * index
            found.append({"execute": "shaper-set-group", "arguments": arguments})
    # The least window: requests of the seeds reach it.
    gate = {"id": SHAPER, "target-ns": 1000, "streams": ["short"], "window-percent": 1}
    found.append({"execute": "shaper-set-gate", "arguments": gate})
    return [*found, {"execute": "query-shapers"}]


def make_groups(prefix: str) -> None:
    """Make the pages of the groups as the controller does, for a clock that begins at 0."""
    for name, limit in GROUPS.items():
        page = Path(f"{prefix}-{name}.group")
        page.unlink(missing_ok=True)
        page.touch(0o660)
        page.write_bytes(new_page(name, limit, 0))


if __name__ == "__main__":
    if sys.argv[1] == "commands":
        text = "".join(json.dumps(command) + "\n" for command in commands())
        Path(sys.argv[2]).write_text(text)
    else:
        make_groups(sys.argv[2])
        os.execvp(sys.argv[3], sys.argv[3:])
