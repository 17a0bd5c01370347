# SPDX-License-Identifier: GPL-2.0-or-later
"""Opens the page of a device's gate in a QEMU, by QMP, before a gate is made its member."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress

from ..domain.errors import Conflict, SluiceError
from .ports import GatePage, GatePages, Shapers

log = logging.getLogger(__name__)


class GateOpener:
    def __init__(self, shapers: Shapers, pages: GatePages) -> None:
        self.shapers, self.pages = shapers, pages
        # The last log line of each domain that shares no window, and the domains that do.
        self._said: dict[str, str] = {}
        self._open_in: set[str] = set()

    def tend(self, running: Collection[str]) -> None:
        """To be called now and then, with the names of the domains that run."""
        # Copies: commands of other domains change both meanwhile.
        for domain in {*list(self._said), *list(self._open_in)}.difference(running):
            self._said.pop(domain, None)
            self._open_in.discard(domain)

    def is_open(self, domain: str) -> bool:
        return domain in self._open_in

    def opened(self, domain: str, device: str) -> GatePage | None:
        """The page, as an object of the domain's QEMU; None, and a line in the log, if the gate
        has a window of its own instead."""
        try:
            page = self._open(domain, device)
        except (Conflict, OSError) as error:
            if self._said.get(domain) != str(error):
                self._said[domain] = str(error)
                log.warning("domain %s: its gate shares no window on %s: %s", domain, device, error)
            self._open_in.discard(domain)
            return None
        self._said.pop(domain, None)
        self._open_in.add(domain)
        return page

    def _open(self, domain: str, device: str) -> GatePage:
        page = self.pages.ensure(device)
        found = self._objects(domain)
        if found.get(page.object_id):
            why = f"domain {domain} has lost it, when another process shortened it"
            page = self.pages.renew(page, device, why)
        if page.object_id not in found:
            arguments = {"qom-type": "shaper-gate", "id": page.object_id, "path": page.path}
            self.shapers.execute(domain, "object-add", arguments)
        return page

    def _objects(self, domain: str) -> dict[str, bool]:
        """Whether each gate that the QEMU has open is lost."""
        gates = self.shapers.execute(domain, "query-shaper-gates", {})
        return {gate["id"]: gate["lost"] for gate in gates}

    def close_others(self, domain: str, page: GatePage) -> None:
        """Those of earlier pages and devices, which nothing uses any more."""
        with suppress(SluiceError):
            for other in self._objects(domain).keys() - {page.object_id}:
                self.shapers.execute(domain, "object-del", {"id": other})
