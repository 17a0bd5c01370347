# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of gate pages, one for each device of the host that gates are set for.

A page that is damaged is made anew. Its members join the new one, because its object has
another id. Files stay while the daemon is away; after a start of the host they are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..domain.errors import BadValue, NotFound
from ..domain.gate_page import MAGIC, has_runs, new_page, page_name
from .shared_pages import SharedPages

log = logging.getLogger(__name__)


class GatePage(NamedTuple):
    """The object by which a QEMU opens the page, and the file's path."""

    object_id: str
    path: str


class GatePages(SharedPages):
    kind, suffix, magic = "gate", ".gate", MAGIC

    def __init__(
        self,
        folder: Path,
        qemu_group: str | None,
        now_ns: Callable[[], int],
        has_arm: Callable[[str], bool],
    ) -> None:
        super().__init__(folder, qemu_group, now_ns)
        self.has_arm = has_arm

    def ensure(self, device: str) -> GatePage:
        """The page of the device, which is made if it is not there, or not whole. OSError."""
        name = page_name(device)
        with self._writing:
            try:
                made_ns = self.created_ns(name)
            except NotFound:
                return self._new(name, device)
            except BadValue as error:
                return self._anew(name, device, str(error))
            if made_ns > self.now_ns():
                # From before the host was started anew, by another clock.
                return self._new(name, device)
            if has_runs(self._read(name)) != self.has_arm(device):
                return self._anew(name, device, "the device's `rotational` says otherwise now")
            return self._page(name, made_ns)

    def renew(self, page: GatePage, device: str, why: str) -> GatePage:
        """Another page instead of this one, unless there is another already."""
        name = page_name(device)
        with self._writing:
            try:
                found = self._page(name, self.created_ns(name))
            except (NotFound, BadValue):
                found = page
            return found if found != page else self._anew(name, device, why)

    def _anew(self, name: str, device: str, why: str) -> GatePage:
        log.error("gate %s: its page is made anew, which its members join: %s", name, why)
        return self._new(name, device)

    def _new(self, name: str, device: str) -> GatePage:
        has_arm = self.has_arm(device)
        self._create(name, new_page(name, self.now_ns(), has_arm))
        turns = (
            "one reader at a time, for the device rotates" if has_arm else "all readers at a time"
        )
        log.info("gate %s: %s", name, turns)
        return self._page(name, self.created_ns(name))

    def _page(self, name: str, made_ns: int) -> GatePage:
        return GatePage(f"gate-{name}-{made_ns}", str(self.path(name)))
