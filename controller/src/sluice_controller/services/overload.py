# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the limits of new connections of the classes whose queue has overload control.

A look a second: the agent tells of its servers once or twice a second, so most looks have a new
report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..domain.overload import Control, Server, decide, unknown
from .auto_limits import AutoLimits
from .declared import Declared

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
# Between two cuts of a class that are logged: a guest may report as it likes.
QUIET_ROUNDS = 60


@dataclass(eq=False)
class Overload:
    """`servers` returns what a domain's guest says of its servers now, None if nobody tells.

    `keep` takes limits below the operator's for the next start, which gives them as `kept`.
    """

    declared: Declared
    servers: Callable[[str], Sequence[Server] | None]
    auto_limits: AutoLimits
    changed: Callable[[str], None]
    keep: Callable[[Any], None]
    kept: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        self._rounds = 0
        # (domain, class) → the operator's limit at the last look; looks in a row without word.
        self._most: dict[tuple[str, str], float] = {}
        self._unknown: dict[tuple[str, str], int] = {}
        restored = {
            (domain, name): Control(rate, "as before sluiced was restarted")
            for domain, name, rate in self.kept
        }
        self.auto_limits.set_controls(restored)
        # (domain, class) → the round of the last cut in the log; whether its end is not there yet.
        self._told: dict[tuple[str, str], tuple[int, bool]] = {}

    def round(self) -> None:
        self._rounds += 1
        before = self.auto_limits.controls()
        declaration = self.declared.now
        controls: dict[tuple[str, str], Control] = {}
        for (domain, name), most in declaration.overload.items():
            last = before.get((domain, name))
            rate = last and last.connections_per_second
            if rate is not None and rate >= self._most.get((domain, name), most):
                # Nothing is cut: another limit of the operator's holds at once.
                rate = None
            control = self._decided(domain, name, rate, most)
            controls[domain, name] = control
            self._tell((domain, name), control, most)
        self._most = dict(declaration.overload)
        self._unknown = {key: looks for key, looks in self._unknown.items() if key in controls}
        self._keep_lower(controls)
        self._told = {key: told for key, told in self._told.items() if key in controls}
        for domain in self.auto_limits.set_controls(controls):
            self.changed(domain)

    def _decided(self, domain: str, name: str, rate: float | None, most: float) -> Control:
        said = self.servers(domain)
        if said is None:
            looks = self._unknown[domain, name] = self._unknown.get((domain, name), 0) + 1
            return unknown(rate, most, looks)
        self._unknown.pop((domain, name), None)
        tags = {tag for tag, granted in self.declared.now.granted_to(domain) if granted == name}
        return decide(rate, most, [one for one in said if one.tag in tags])

    def _keep_lower(self, controls: Mapping[tuple[str, str], Control]) -> None:
        lower = [
            [*key, control.connections_per_second]
            for key, control in sorted(controls.items())
            if control.connections_per_second < self._most[key]
        ]
        if lower != self.kept:
            self.kept = lower
            self.keep(lower)

    def _tell(self, key: tuple[str, str], now: Control, most: float) -> None:
        """Once when the operator's limit is left, and once when it is back."""
        is_lower = now.connections_per_second < most
        since, is_told = self._told.get(key, (-QUIET_ROUNDS, False))
        if is_lower == is_told or is_lower and self._rounds - since < QUIET_ROUNDS:
            return
        rate = now.connections_per_second
        log.info("domain %s: class %s: %g new connections/s: %s", *key, rate, now.reason)
        self._told[key] = (self._rounds if is_lower else since, is_lower)
