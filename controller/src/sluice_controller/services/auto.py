# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping: the settings, the loop's hands and eyes, the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..domain.errors import BadValue
from ..domain.limits import MAX_PER_SECOND, MIN_BYTES_PER_SECOND, RESOURCES, finite_number
from ..domain.model import parse_bool
from .auto_limits import AutoLimits
from .catalogue import audited
from .ports import Clock, Store

DEFAULT_FLOORS = dict.fromkeys(RESOURCES, 1024.0 * 1024)


@dataclass(frozen=True)
class AutoSettings:
    enabled: bool = False
    dry_run: bool = False
    floors_bytes_per_second: Mapping[str, float] = field(
        default_factory=lambda: dict(DEFAULT_FLOORS)
    )


def parse_auto(body: Mapping[str, Any], present: AutoSettings) -> AutoSettings:
    floors = dict(present.floors_bytes_per_second)
    given = body.get("floors_bytes_per_second", {})
    if not isinstance(given, Mapping):
        raise BadValue(
            "floors_bytes_per_second",
            given,
            "is not an object",
            f"map {', '.join(RESOURCES)} to bytes per second",
        )
    for resource, value in given.items():
        thing = f"floors_bytes_per_second.{resource}"
        if resource not in RESOURCES:
            raise BadValue(thing, value, "is not a resource", f"use {', '.join(RESOURCES)}")
        floors[resource] = finite_number(
            thing, value, MIN_BYTES_PER_SECOND, MAX_PER_SECOND, "bytes per second"
        )
    return AutoSettings(
        enabled=parse_bool(body.get("enabled", present.enabled), "enabled"),
        dry_run=parse_bool(body.get("dry_run", present.dry_run), "dry_run"),
        floors_bytes_per_second=floors,
    )


class Auto:
    def __init__(
        self,
        store: Store,
        auto_limits: AutoLimits,
        clock: Clock,
        changed: Callable[[str | None], None],
    ) -> None:
        self.store = store
        self.auto_limits = auto_limits
        self.clock = clock
        self.changed = changed
        self._lock = threading.RLock()
        with store.transaction() as unit:
            self.settings = AutoSettings(**unit.value("auto", {}))

    def status(self) -> dict[str, Any]:
        with self._lock:
            return {
                **asdict(self.settings),
                "state": "watching" if self.settings.enabled else "off",
                "settled_after_seconds": None,
                "limits": [
                    {"domain": d, "class": c, "resource": r, "bytes_per_second": value}
                    for (d, c, r), value in sorted(self.auto_limits.snapshot().items())
                ],
            }

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            before = self.settings
            after = parse_auto(body, before)
            with self.store.transaction() as unit:
                unit.put_value("auto", asdict(after))
                audited(unit, self.clock, "auto-shaping", "", asdict(before), asdict(after))
            self.settings = after
        return self.status()

    def log(self, since: float, limit: int) -> list[dict[str, Any]]:
        with self.store.transaction() as unit:
            return unit.decisions(since, limit)
