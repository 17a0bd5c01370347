# SPDX-License-Identifier: GPL-2.0-or-later
"""Byte rates of auto-shaping, and limits of new connections of overload control: what classes are
held to, shared between threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..domain.overload import Control, Controls

Key = tuple[str, str, str]


class AutoLimits:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caps: dict[Key, float] = {}
        self._controls: dict[tuple[str, str], Control] = {}
        # How often a cap or a limit was changed so far.
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

    def controls(self) -> dict[tuple[str, str], Control]:
        with self._lock:
            return dict(self._controls)

    def set_controls(self, controls: Controls) -> set[str]:
        """Sets all of overload control; returns the domains with another limit than before."""

        def limits(of: Controls) -> set[tuple[str, str, float]]:
            return {(d, c, one.connections_per_second) for (d, c), one in of.items()}

        with self._lock:
            changed = {key[0] for key in limits(self._controls) ^ limits(controls)}
            self._controls = dict(controls)
            self.changes += bool(changed)
        return changed
