# SPDX-License-Identifier: GPL-2.0-or-later
"""A lock for each domain, held during a change of its definition.

Only a user's request waits for the lock, and not for long: sluiced's own changes take no longer
than a call of libvirt. Two users do not wait for each other, because a restart lasts as long as
a guest takes to shut down.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..domain.errors import Conflict, sluice

LOCK_SECONDS = 10.0


class DomainLocks:
    def __init__(self, seconds: float = LOCK_SECONDS) -> None:
        self.seconds = seconds
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._changing: set[str] = set()

    def of(self, domain: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(domain, threading.Lock())

    @contextmanager
    def changing(self, domain: str) -> Iterator[None]:
        """Holds the domain's lock for a user; Conflict if another user's change is under way."""
        with self._guard:
            taken = domain in self._changing
            self._changing.add(domain)
        if taken:
            raise _busy(domain)
        try:
            lock = self.of(domain)
            if not lock.acquire(timeout=self.seconds):
                raise _busy(domain)
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                self._changing.discard(domain)


def _busy(domain: str) -> Conflict:
    return Conflict(
        "domain",
        domain,
        "is being attached, detached or restarted",
        f"wait until that is over, and try again; the outcome: {sluice('show', domain)}",
    )
