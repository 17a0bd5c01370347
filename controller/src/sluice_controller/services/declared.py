# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy of the operators' declarations for each tick, without a question to the store.

The database may be locked by another program, and its disk may take seconds: no tick
waits for either. Each writer to the store renews this first (`records.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from ..domain.model import DEFAULT_CLASS, Grant, Settings, ShapingClass, Stream
from ..domain.queues import AUTO
from ..domain.render import reserved
from .auto_limits import Key
from .ports import Store

# (tag, class) pairs.
Granted = frozenset[tuple[int, str]]

DEFAULT_GRANT: Granted = frozenset({(0, DEFAULT_CLASS)})


@dataclass(frozen=True, eq=False)
class Declaration:
    settings: Settings
    streams: tuple[Stream, ...]
    unmanaged: frozenset[str]
    # Bytes per second; None is a limit of operations alone.
    own_limits: Mapping[Key, float | None]
    reserved: Mapping[Key, float]
    granted: Mapping[str, Granted]
    # (domain, class) → the most new connections per second, where overload control is on.
    overload: Mapping[tuple[str, str], float]
    # Of classes; 0 goes first.
    priorities: Mapping[str, int]

    def granted_to(self, domain: str) -> Granted:
        return self.granted.get(domain, DEFAULT_GRANT)


def _declaration(
    settings: Settings, streams: list[Stream], classes: list[ShapingClass], grants: list[Grant]
) -> Declaration:
    granted: dict[str, set[tuple[int, str]]] = {}
    for grant in grants:
        pairs = granted.setdefault(grant.domain, set(DEFAULT_GRANT))
        pairs.add((grant.tag, grant.class_name))
    return Declaration(
        settings,
        tuple(streams),
        frozenset(c.name for c in classes if c.unmanaged),
        {
            (grant.domain, grant.class_name, resource): limit.bytes_per_second
            for grant in grants
            for resource, limit in grant.limits.items()
        },
        {
            (grant.domain, grant.class_name, resource): reserved(grant, resource)
            for grant in grants
            for resource in grant.scheduling
        },
        {domain: frozenset(pairs) for domain, pairs in granted.items()},
        {
            (grant.domain, grant.class_name): queue.connections_per_second
            for grant in grants
            for queue in grant.queues.values()
            if queue.overload == AUTO and queue.connections_per_second is not None
        },
        {c.name: c.priority for c in classes},
    )


class Declared:
    """`now` is for the tick; everybody else asks for `fresh`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._changes: int | None = None
        self.now = self.fresh()

    def fresh(self) -> Declaration:
        """As the store has it; reads there only after a change. StoreUnavailable if it cannot."""
        with self._lock:
            # Counted before the copy is in force, so a reader that counts first overlooks
            # nothing.
            changes = self.store.changes
            if changes != self._changes:
                with self.store.transaction() as unit:
                    self.now = _declaration(
                        unit.settings(), unit.streams(), unit.classes(), unit.grants()
                    )
                self._changes = changes
            return self.now
