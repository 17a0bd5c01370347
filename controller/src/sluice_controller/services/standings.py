# SPDX-License-Identifier: GPL-2.0-or-later
"""Events of what holds: domains that come and go, verdicts on streams, what is not in force.

Once a second it looks at what the other services publish, and tells what differs from its last
look. The first look tells all of it: a reader that begins then knows the present state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..domain.errors import SluiceError
from ..domain.events import Board, Standing, Standings, Subject, not_in_force
from ..domain.guests import Guest
from ..domain.shaped import devices_json, sentence
from .auto import Auto
from .events import Tell
from .groups import Groups
from .ports import Clock, Host
from .reconcile import Reconciler
from .streams import Streams, of_stream
from .uplink_first import UplinkFirst

ROUND_SECONDS = 1.0


@dataclass(eq=False)
class Watch:
    tell: Tell
    clock: Clock
    monotonic: Callable[[], float]
    host: Host
    reconciler: Reconciler
    streams: Streams
    auto: Auto
    uplink_first: UplinkFirst
    groups: Groups

    def __post_init__(self) -> None:
        self._board = Board()
        self._of_domains: Standings = {}

    def round(self) -> None:
        others = {**self._of_libvirt(), **self._of_streams(), **self._of_host()}
        found = {**self._of_domains, **others}
        for event in self._board.news(found, self.clock(), self.monotonic()):
            self.tell(event)

    def _of_libvirt(self) -> Standings:
        """While libvirt is away, its domains are as they were."""
        try:
            guests = self.host.guests()
        except SluiceError as error:
            return {("libvirt",): not_in_force(str(error))}
        errors, found = self.reconciler.errors(), {}
        for guest in guests:
            about, name = Subject((guest.name,)), guest.name
            found["domain", name] = Standing(
                f"domain {guest.state}",
                f"{name} is {guest.state}",
                about,
                ("domain gone", f"{name} is no domain of libvirt any more"),
            )
            if name in errors:
                found["shaper", name] = not_in_force(errors[name], about)
            unshaped = self._unshaped(guest)
            if unshaped is not None:
                found["shaped", name] = not_in_force(f"{name}: {unshaped}", about)
        self._of_domains = found
        return {}

    def _unshaped(self, guest: Guest) -> str | None:
        """Of a running domain with a shaper, in its definition or its QEMU."""
        if guest.live is None or not (guest.attached or guest.active):
            return None
        shapes = self.reconciler.shapes(guest)
        if guest.active and shapes.ids is None and not shapes.problem:
            # It will say so soon.
            return None
        devices = devices_json(guest, shapes, None)
        return None if all(one["shaped"] for one in devices) else sentence(devices)

    def _of_streams(self) -> Standings:
        return {
            ("stream", stream.name): Standing(
                f"stream {verdict}", f"{stream.name}: {verdict}, {reason}", of_stream(stream)
            )
            for stream, verdict, reason in self.streams.verdicts()
        }

    def _of_host(self) -> Standings:
        found = {
            ("group", name): not_in_force(f"group {name} has no page: {why}")
            for name, why in self.groups.unusable().items()
        }
        missing = self.uplink_first.missing()
        if missing:
            found["uplink",] = not_in_force(f"streams do not all go first on the uplink: {missing}")
        for one in self.auto.without_gate():
            name, why = one["domain"], one["because"]
            found["gate", name] = not_in_force(f"{name} has no gate: {why}", Subject((name,)))
        return found
