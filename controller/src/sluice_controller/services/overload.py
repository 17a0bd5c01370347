# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the limits of new connections of the classes whose queue has overload control.

A look a second: the agent tells of its servers twice a second, so each look has a new report.
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


@dataclass(eq=False)
class Overload:
    """`servers` returns what a domain's guest says of its servers now, nothing if it does not."""

    declared: Declared
    servers: Callable[[str], Sequence[Server]]
    auto_limits: AutoLimits
    changed: Callable[[str], None]

    def round(self) -> None:
        before = self.auto_limits.controls()
        declaration = self.declared.now
        controls: dict[tuple[str, str], Control] = {}
        for (domain, name), most in declaration.overload.items():
            tags = {tag for tag, granted in declaration.granted_to(domain) if granted == name}
            own = [one for one in self.servers(domain) if one.tag in tags]
            last = before.get((domain, name))
            control = decide(last and last.connections_per_second, most, own)
            controls[domain, name] = control
            _tell(domain, name, last, control, most)
        for domain in self.auto_limits.set_controls(controls):
            self.changed(domain)


def _tell(domain: str, name: str, last: Control | None, now: Control, most: float) -> None:
    """Once when the operator's limit is left, and once when it is back."""
    was_lower = last is not None and last.connections_per_second < most
    is_lower = now.connections_per_second < most
    if was_lower != is_lower:
        log.info(
            "domain %s: class %s: %g new connections/s: %s",
            domain,
            name,
            now.connections_per_second,
            now.reason,
        )
