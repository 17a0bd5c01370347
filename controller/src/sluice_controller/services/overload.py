# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the limits of new connections of the classes whose queue has overload control.

A look a second: the agent tells of its servers once or twice a second, so most looks have a new
report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..domain.overload import Control, Server, decide
from .auto_limits import AutoLimits
from .declared import Declared

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
# Between two cuts of a class that are logged: a guest may report as it likes.
QUIET_ROUNDS = 60


@dataclass(eq=False)
class Overload:
    """`servers` returns what a domain's guest says of its servers now, nothing if it does not."""

    declared: Declared
    servers: Callable[[str], Sequence[Server]]
    auto_limits: AutoLimits
    changed: Callable[[str], None]

    def __post_init__(self) -> None:
        self._rounds = 0
        # (domain, class) → the round of the last cut in the log; whether its end is not there yet.
        self._told: dict[tuple[str, str], tuple[int, bool]] = {}

    def round(self) -> None:
        self._rounds += 1
        before = self.auto_limits.controls()
        declaration = self.declared.now
        controls: dict[tuple[str, str], Control] = {}
        for (domain, name), most in declaration.overload.items():
            tags = {tag for tag, granted in declaration.granted_to(domain) if granted == name}
            own = [one for one in self.servers(domain) if one.tag in tags]
            last = before.get((domain, name))
            control = decide(last and last.connections_per_second, most, own)
            controls[domain, name] = control
            self._tell((domain, name), control, most)
        self._told = {key: told for key, told in self._told.items() if key in controls}
        for domain in self.auto_limits.set_controls(controls):
            self.changed(domain)

    def _tell(self, key: tuple[str, str], now: Control, most: float) -> None:
        """Once when the operator's limit is left, and once when it is back."""
        is_lower = now.connections_per_second < most
        since, is_told = self._told.get(key, (-QUIET_ROUNDS, False))
        if is_lower == is_told or is_lower and self._rounds - since < QUIET_ROUNDS:
            return
        rate = now.connections_per_second
        log.info("domain %s: class %s: %g new connections/s: %s", *key, rate, now.reason)
        self._told[key] = (self._rounds if is_lower else since, is_lower)
