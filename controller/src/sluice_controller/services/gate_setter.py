# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets the gates of domains by QMP, in threads of its own: no tick waits for a QEMU.

Each domain has at most one command on its way, and the latest wish wins. A gate that the page shows
otherwise than it was set, as after another program's command, is set anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from ..domain.errors import SluiceError, shortened
from ..domain.guests import Guest
from ..domain.window import SECOND_NS
from .gate_opener import GateOpener
from .ports import GatePages, Shapers
from .workers import Pool

log = logging.getLogger(__name__)

# A target that differs by less is left: each change is a command.
SMALLEST_CHANGE = 0.02
RETRY_NS = SECOND_NS
# Of a QEMU's words in the host's journal; and between two lines of one domain.
JOURNAL_CHARS, QUIET_NS = 300, 60 * SECOND_NS
# A page written so long after a command shows its effect.
SHOWN_NS = SECOND_NS
# A gate of a device is set again so often: then its page is looked at.
LOOK_AGAIN_NS = 5 * SECOND_NS


@dataclass(frozen=True)
class Gate:
    """Of one domain. `target_ns` 0: there is none."""

    target_ns: int = 0
    streams: tuple[str, ...] = ()
    # The device whose members' window it shares; None: its window is its own.
    device: str | None = None

    def is_like(self, other: Gate) -> bool:
        close = abs(self.target_ns - other.target_ns) <= SMALLEST_CHANGE * other.target_ns
        same = (self.streams, self.device) == (other.streams, other.device)
        return close and (same or not self.target_ns)


class Shown(NamedTuple):
    """When a domain's page was written, and its gate's target then."""

    at_ns: int
    target_ns: int


@dataclass
class _Known:
    """Of one running domain."""

    of: tuple[str, int]
    # The gate that its QEMU has by our last command, since when; None where that is not known.
    sent: Gate | None = None
    sent_ns: int = 0
    # The part of its window that is left, of wishes that were not sent yet.
    shrink: float = 1.0
    running: Future[None] | None = None
    error: str | None = None
    # When an error of it was logged.
    said_ns: int | None = None
    retry_ns: int = 0


class GateSetter:
    """`pages`: those of devices; without them each gate has a window of its own."""

    def __init__(self, shapers: Shapers, pool: Pool, pages: GatePages | None = None) -> None:
        self.shapers, self.pool = shapers, pool
        self.opener = None if pages is None else GateOpener(shapers, pages)
        self._known: dict[str, _Known] = {}

    def tend(self, running: Collection[str]) -> None:
        """To be called now and then, with the names of the domains that run."""
        for name in self._known.keys() - running:
            del self._known[name]
        if self.opener is not None:
            self.opener.tend(running)

    def want(self, guest: Guest, gate: Gate, shrink: float, shown: Shown, now_ns: int) -> None:
        """`shown`: the newest look at the domain's page."""
        known = self._known.get(guest.name)
        if known is None or known.of != (guest.uuid, guest.incarnation):
            known = self._known[guest.name] = _Known((guest.uuid, guest.incarnation))
        known.shrink *= shrink
        if known.running is not None:
            if not known.running.done():
                return
            self._learn(guest.name, known, now_ns)
        self._compare(known, shown)
        if guest.moving or now_ns < known.retry_ns:
            return
        if known.sent is None and not gate.target_ns and not shown.target_ns:
            known.sent, known.sent_ns = Gate(), now_ns
        percent = round(100 * known.shrink)
        as_sent = known.sent is not None and gate.is_like(known.sent)
        if self.opener is not None and gate.device is not None:
            as_sent = as_sent and now_ns - known.sent_ns < LOOK_AGAIN_NS
        if as_sent and (percent >= 100 or not gate.target_ns):
            known.shrink = 1.0
            return
        known.sent, known.sent_ns, known.shrink = gate, now_ns, 1.0
        known.running = self.pool.submit(self._set, guest, gate, max(1, percent))

    def _compare(self, known: _Known, shown: Shown) -> None:
        is_settled = known.sent is not None and shown.at_ns >= known.sent_ns + SHOWN_NS
        if is_settled and shown.target_ns != known.sent.target_ns:
            known.sent = None

    def _learn(self, name: str, known: _Known, now_ns: int) -> None:
        """How the last command ended."""
        running, known.running = known.running, None
        error = None if running is None or running.cancelled() else running.exception()
        if error is None:
            known.error, known.sent_ns = None, now_ns
            return
        known.sent, known.retry_ns = None, now_ns + RETRY_NS
        why = shortened(str(error), JOURNAL_CHARS)
        is_quiet = known.said_ns is not None and now_ns - known.said_ns < QUIET_NS
        # A QEMU that its guest has taken over may word each refusal anew.
        if why != known.error and not is_quiet:
            known.said_ns = now_ns
            unforeseen = None if isinstance(error, SluiceError) else error
            log.warning("domain %s: its gate is not set: %s", name, why, exc_info=unforeseen)
        known.error = why

    def _set(self, guest: Guest, gate: Gate, percent: int) -> None:
        arguments = {"id": guest.live.shaper_id}
        shared = None
        if gate.target_ns:
            arguments |= {
                "target-ns": gate.target_ns,
                "streams": list(gate.streams),
                "window-percent": percent,
            }
            if self.opener is not None and gate.device is not None:
                shared = self.opener.opened(guest.name, gate.device)
            if shared is not None:
                arguments["gate"] = shared.object_id
        self.shapers.execute(guest.name, "shaper-set-gate", arguments)
        if shared is not None:
            self.opener.close_others(guest.name, shared)

    def shares(self, domain: str) -> bool:
        """Whether the domain's gate has its window together with others."""
        return self.opener is not None and self.opener.is_open(domain)

    def error(self, domain: str) -> str | None:
        """Why the domain's gate is not as it should be."""
        known = self._known.get(domain)
        return None if known is None else known.error
