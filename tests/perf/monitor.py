# SPDX-License-Identifier: GPL-2.0-or-later
"""Questions to a running guest's QEMU."""

import json
from typing import Any

import libvirt_qemu

from testbed import Guest


class MonitorError(Exception):
    """QEMU refused a command."""


def ask(guest: Guest, command: str, **arguments: Any) -> Any:
    """Return QEMU's answer. Raises MonitorError with its words if it refuses."""
    request = json.dumps({"execute": command, "arguments": arguments})
    answer = json.loads(libvirt_qemu.qemuMonitorCommand(guest.domain, request, 0))
    if "error" in answer:
        raise MonitorError(f"QEMU of {guest.name}: {command}: {answer['error']['desc']}")
    return answer["return"]
