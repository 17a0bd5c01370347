# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands to the QEMU guest agent (qemu-ga) of a domain, through libvirt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import libvirt
import libvirt_qemu

from ..domain.errors import Conflict, Unavailable, command
from .libvirt_host import LibvirtHost

# A guest on a slow host answers late; libvirt waits for a dead one no longer.
ANSWER_SECONDS = 30


@dataclass(frozen=True)
class GuestCommands:
    host: LibvirtHost

    def ask(self, domain: str, command_name: str, arguments: Mapping[str, Any]) -> Any:
        """What the guest's agent returns.

        Conflict if the domain has no channel for it, or it refuses the command; Unavailable if
        it does not answer.
        """
        handle = self.host.domain(domain)
        request = json.dumps({"execute": command_name, "arguments": arguments})
        try:
            answer = libvirt_qemu.qemuAgentCommand(handle, request, ANSWER_SECONDS, 0)
            return json.loads(answer)["return"]
        except libvirt.libvirtError as error:
            raise self._refusal(domain, command_name, error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                "QEMU guest agent of domain",
                domain,
                f"answers {command_name} with nonsense",
                "restart qemu-guest-agent in the guest",
            ) from error

    def _refusal(
        self, domain: str, command_name: str, error: libvirt.libvirtError
    ) -> Conflict | Unavailable:
        self.host.lost(error)
        code = error.get_error_code()
        if code in (libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED, libvirt.VIR_ERR_CONFIG_UNSUPPORTED):
            return Conflict(
                "domain",
                domain,
                "has no channel for the QEMU guest agent",
                "add one, of target name org.qemu.guest_agent.0, with "
                f"{command('virsh', 'edit', domain)}; or install Sluice's agent by hand",
            )
        if code == libvirt.VIR_ERR_INTERNAL_ERROR:
            return Conflict(
                "QEMU guest agent of domain",
                domain,
                f"refused {command_name} ({error})",
                "correct that in the guest, or install Sluice's agent there by hand",
            )
        return Unavailable(
            "QEMU guest agent of domain",
            domain,
            f"does not answer ({error})",
            "install and start qemu-guest-agent in the guest; or install Sluice's agent by hand",
        )
