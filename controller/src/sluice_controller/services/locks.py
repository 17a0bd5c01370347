# SPDX-License-Identifier: GPL-2.0-or-later
"""A lock for each domain: who changes its definition holds it."""

from __future__ import annotations

import threading


class DomainLocks:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def of(self, domain: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(domain, threading.Lock())
