# SPDX-License-Identifier: GPL-2.0-or-later
"""The shapers of running domains, by QMP through libvirt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import libvirt
import libvirt_qemu

from ..domain.cards import card_path
from ..domain.errors import Conflict, Unavailable, sluice
from ..domain.shaped import shaped_ids
from ..domain.shaper_config import DSCP_PROPERTY
from .libvirt_host import LibvirtHost


class QmpShapers:
    def __init__(self, host: LibvirtHost) -> None:
        self.host = host

    def execute(self, domain: str, command: str, arguments: Mapping[str, Any]) -> Any:
        handle = self.host.domain(domain)
        request = json.dumps({"execute": command, "arguments": arguments})
        try:
            raw = libvirt_qemu.qemuMonitorCommand(handle, request, 0)
        except libvirt.libvirtError as error:
            self.host.lost(error)
            raise Unavailable(
                "QEMU of domain",
                domain,
                f"does not answer {command} ({error})",
                "see that the domain runs; sluiced tries again by itself",
            ) from error
        answer = json.loads(raw)
        if "error" in answer:
            raise Conflict(
                "shaper of domain",
                domain,
                f"refused {command} ({answer['error'].get('desc')})",
                _remedy(domain, arguments),
            )
        return answer.get("return")

    def query(self, domain: str, shaper_id: str) -> Mapping[str, Any]:
        for shaper in self.execute(domain, "query-shapers", {}):
            if shaper.get("id") == shaper_id:
                groups = self.execute(domain, "query-shaper-groups", {})
                return {
                    **shaper,
                    "cards": self._cards(domain, shaped_ids(shaper)),
                    "group-objects": {g["id"]: g["path"] for g in groups},
                    "lost-groups": [g["id"] for g in groups if g["lost"]],
                }
        raise Unavailable(
            "shaper of domain",
            domain,
            f"is missing ({shaper_id})",
            "restart the domain",
        )

    def _cards(self, domain: str, ids: Iterable[str]) -> dict[str, str]:
        """{QOM path: which DSCP counts}. A disk, and a card of an earlier QEMU, has no such
        property and refuses the question."""
        found = {}
        for path in map(card_path, sorted(ids)):
            question = {"path": path, "property": DSCP_PROPERTY}
            with suppress(Conflict):
                found[path] = self.execute(domain, "qom-get", question)
        return found


def _remedy(domain: str, arguments: Mapping[str, Any]) -> str:
    """Only an earlier QEMU refuses a card's setting: sluiced checks the value."""
    if arguments.get("property") == DSCP_PROPERTY:
        return f"with a newer sluice-qemu: {sluice('attach', domain, '--upgrade', '--restart')}"
    return "see the daemon's log"
