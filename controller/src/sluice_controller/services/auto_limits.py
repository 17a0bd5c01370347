# SPDX-License-Identifier: GPL-2.0-or-later
"""The byte rates that auto-shaping holds classes to, shared between threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

Key = tuple[str, str, str]


class AutoLimits:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caps: dict[Key, float] = {}
        # How often a cap was changed so far.
        self.changes = 0

    def snapshot(self) -> dict[Key, float]:
        with self._lock:
            return dict(self._caps)

    def held(self, domain: str) -> frozenset[tuple[str, str]]:
        """The (class, resource) pairs of a domain that have a cap now."""
        with self._lock:
            return frozenset(key[1:] for key in self._caps if key[0] == domain)

    def replace(self, caps: Mapping[Key, float]) -> set[tuple[str, str]]:
        """Sets all caps; returns the (domain, class) pairs that changed."""
        with self._lock:
            before = self._caps
            changed = {key for key, cap in caps.items() if before.get(key) != cap}
            changed |= before.keys() - caps.keys()
            self._caps = dict(caps)
            self.changes += bool(changed)
        return {(domain, class_name) for domain, class_name, _ in changed}

    def forget(self, domain: str, class_name: str) -> None:
        with self._lock:
            self._caps = {k: v for k, v in self._caps.items() if k[:2] != (domain, class_name)}
            self.changes += 1
