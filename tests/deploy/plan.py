# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator of the test wants: inventories as data, and their limits.

The limits are ones that a nested guest under an emulated KVM reaches with
room to spare, so that what is measured is the shaper and not the emulator.
"""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy.fleet import Fleet
from deploy.guest import WEB1
from testbed import paths

LIMITS_BPS = {"blk_read": 400_000, "net_tx": 400_000, "net_rx": 300_000}
TOLERANCE = 0.02
# Long beside the largest request: one of 64 KiB more or less is 0.4 %.
WINDOW_SECONDS = 40.0
WINDOWS_MAX = 4
# The class of what runs in the guest's unit bulk-*.service; the rest is default.
CLASS = "bulk"
UPLOAD_UNIT = "bulk-upload.service"
READ_UNIT = "bulk-read.service"
DOMAIN: dict[str, Any] = {
    "name": WEB1.name,
    "restart": True,
    "disable_vhost": True,
    "devices": ["vda", "vdb"],
}
STATE: dict[str, Any] = {
    "classes": {CLASS: {"title": "Bulk work", "priority": 7}},
    "domains": {
        WEB1.name: {
            "classes": {
                CLASS: {
                    "limits": {
                        "blk-read": {"bytes_per_second": f"{LIMITS_BPS['blk_read']}B/s"},
                        "net-tx": {"bytes_per_second": f"{LIMITS_BPS['net_tx']}B/s"},
                    }
                },
                # Inbound packets are told apart by the peer's DSCP alone: they are default.
                "default": {
                    "limits": {"net-rx": {"bytes_per_second": f"{LIMITS_BPS['net_rx']}B/s"}}
                },
            }
        }
    },
    "rules": [
        {"domain": WEB1.name, "class": CLASS, "match": {"unit": READ_UNIT}},
        {"domain": WEB1.name, "class": CLASS, "match": {"unit": UPLOAD_UNIT}},
    ],
}


def inventory(fleet: Fleet, passwords: Path) -> dict[str, Any]:
    """Return a fleet's inventory: all are hosts, and of several the last proves itself."""
    hosts = {machine.name: {"ansible_host": machine.address} for machine in fleet.machines.values()}
    return {
        "all": {
            "vars": {
                "ansible_user": "ops",
                "ansible_ssh_private_key_file": str(fleet.key),
                "ansible_ssh_extra_args": "-o UserKnownHostsFile=/dev/null -F /dev/null",
                "ansible_python_interpreter": "/usr/bin/python3",
                "sluice_packages_dir": str(paths.BUILD / "deb"),
                "sluice_web_admin_password_dir": str(passwords),
            }
        },
        "sluice_hosts": {"hosts": hosts},
        "sluice_nightly": {"hosts": {name: {} for name in list(hosts)[1:][-1:]}},
    }


def with_guest(base: dict[str, Any], host: str) -> dict[str, Any]:
    """Return the inventory with the operator's guest: its classes, and its agent."""
    changed = copy.deepcopy(base)
    given = copy.deepcopy({"sluice_domains": [DOMAIN], "sluice_state": STATE})
    changed["sluice_hosts"]["hosts"][host] |= given
    changed["sluice_guests"] = {"hosts": {WEB1.name: {"ansible_host": WEB1.address}}}
    return changed


def with_variable(base: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return the inventory with one variable set for all."""
    changed = copy.deepcopy(base)
    changed["all"]["vars"][name] = value
    return changed


def judge_rates(measured: Mapping[str, Any], names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the resources whose limit was not kept, and those of which it cannot be told.

    More than the limit is always wrong. Less is, if something waited all the time; else the
    guest, on a machine that had other things to do, had nothing to send for a while.
    """
    wrong, void = [], []
    for name in names:
        ratio = measured[f"{name}_bps"] / LIMITS_BPS[name]
        if ratio > 1 + TOLERANCE:
            wrong.append(name)
        elif ratio < 1 - TOLERANCE:
            (void if measured["idle_looks"][name] else wrong).append(name)
    return wrong, void
