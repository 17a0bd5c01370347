# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets streams go first on the uplink where the operator wants it, and says where they do not.

Once a second: the ports beneath the uplink, the streams' frames as `domain/uplink_first.py`
describes them, and what went by. An operator's queue discipline is never replaced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..domain.errors import SluiceError
from ..domain.guests import Guest
from ..domain.model import Settings, Stream
from ..domain.uplink_first import (
    Flow,
    Plan,
    Turn,
    commands,
    greedy_words,
    next_turn,
    rate_commands,
    slots,
    tag_dscp,
)
from .declared import Declaration, Declared
from .ports import ClassReading, First, Host, UplinkQueues, Uplinks

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
# A stream of which no frame has come by for so long is not known to go first.
SEEN_S = 5.0
# A plan that failed is not tried again for so long: each try empties the port's queue.
RETRY_S = 60.0
NO_RIGHT = (
    "; sluiced may not change the queues of interfaces: systemctl edit sluiced, with [Service] and"
    " CapabilityBoundingSet=CAP_NET_ADMIN"
)


@dataclass
class _Seen:
    """Of one stream's class: bytes at the last look, and when they last grew."""

    bytes: int
    at_s: float
    moved_s: float | None = None
    bytes_per_second: float = 0.0


@dataclass(eq=False)
class UplinkFirst:
    declared: Declared
    host: Host
    uplinks: Uplinks
    queues: UplinkQueues
    monotonic: Callable[[], float]
    # The rate of a link beyond the host as streams' round trips tell it; None: not known.
    beyond: Callable[[], float | None] = lambda: None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._has_rate = threading.Event()
        self._round_s = 0.0
        self._now = First()
        # Why none or some can go first, and what the log has of that.
        self._missing = self._told = self._missing_now = ""
        # Whether no port but those of `_plans` may have sluiced's discipline.
        self._looked_for_old = False
        # The discipline of each port.
        self._plans: dict[str, Plan] = {}
        # Of a port that could not be given the discipline: until when, and why.
        self._refused: dict[str, tuple[float, str]] = {}
        self._slots: dict[str, int] = {}
        self._turns: dict[str, Turn] = {}
        self._seen: dict[str, _Seen] = {}

    def now(self) -> First:
        with self._lock:
            return self._now

    def missing(self) -> str:
        """Why no stream goes first though it is wanted, or not on all ports; else nothing."""
        with self._lock:
            return self._missing_now

    def turn(self) -> None:
        """Waits for the next round, or for another rate beyond."""
        left_s = self._round_s - self.monotonic()
        if left_s > 0 and self._has_rate.wait(left_s):
            self._has_rate.clear()
            self.follow_rate()
        elif left_s <= 0:
            self._round_s = self.monotonic() + ROUND_SECONDS
            self.round()

    def wake(self) -> None:
        """Another thread has another rate beyond."""
        self._has_rate.set()

    def follow_rate(self) -> None:
        try:
            self._set_rates(self._rate(self.declared.now.settings))
        except OSError as error:
            log.warning("the uplink's queue keeps its rate until the next round: %s", error)

    def _set_rates(self, rate: float | None) -> None:
        for port, plan in list(self._plans.items()):
            if plan.rate_bps == rate:
                continue
            # It is not known which of the commands failed: the next round gives all.
            del self._plans[port]
            after = replace(plan, rate_bps=rate)
            self.queues.change(rate_commands(port, after))
            self._plans[port] = after

    def _rate(self, settings: Settings) -> float | None:
        known = (settings.link_bytes_per_second, self.beyond())
        return min((rate for rate in known if rate is not None), default=None)

    def round(self) -> None:
        declaration = self.declared.now
        settings = declaration.settings
        try:
            if settings.uplink is None or not settings.uplink_first:
                self._refused.clear()
                self._give_back(())
                found, self._missing = First(), ""
            else:
                found = self._look(settings, declaration)
        except OSError as error:
            found, self._missing = First(), _in_words(error)
            # A port may have been left as it was, or have another name.
            self._looked_for_old = False
        self._tell(found)

    def stop(self) -> None:
        """The kernel's own disciplines are back."""
        try:
            # Of the kernel: a port may have another name since the last round.
            left = self.queues.owned()
        except OSError as error:
            log.warning("sluiced's queue disciplines are not listed: %s", error)
            left = sorted(self._plans)
        for port in left:
            try:
                self._remove(port)
            except OSError as error:
                log.warning("%s keeps the queue discipline of sluiced: %s", port, error)

    def _tell(self, found: First) -> None:
        reasons = filter(None, (self._missing, found.reason))
        with self._lock:
            self._now = replace(found, reason="; ".join(reasons))
            self._missing_now = self._missing
        if self._missing and self._missing != self._told:
            log.warning("streams do not all go first on the uplink: %s", self._missing)
        self._told = self._missing

    def _look(self, settings: Settings, declaration: Declaration) -> First:
        assert settings.uplink is not None
        ports = self.uplinks.read(settings.uplink).ports
        self._give_back(ports)
        for port in ports:
            if other := self.queues.other(port):
                self._plans.pop(port, None)
                raise OSError(
                    f"{port} has a queue discipline that is not sluiced's ({other}), which stays:"
                    f" remove it (tc qdisc del dev {port} root), or switch this off"
                )
        readings = [self.queues.classes(port) for port in ports]
        self._count(declaration.streams, readings)
        flows, missing = self._flows(declaration)
        rate = self._rate(settings)
        self._set_rates(rate)
        plan = Plan(tuple(sorted(flows, key=lambda f: f.slot)), rate)
        for port, reading in zip(ports, readings, strict=True):
            if reading is None or self._plans.get(port) != plan:
                self._set(port, plan, reading)
        self._missing = "; ".join(f"{name}: {why}" for name, why in missing.items())
        return self._found([s for s in declaration.streams if s.name not in missing])

    def _set(self, port: str, plan: Plan, reading: Mapping[int, ClassReading] | None) -> None:
        # Another than that is there while it is changed.
        self._plans.pop(port, None)
        until_s, why = self._refused.get(port, (0.0, ""))
        if reading is None and self.monotonic() < until_s:
            raise OSError(why)
        try:
            self.queues.change(commands(port, plan, reading))
        except OSError as error:
            if reading is None:
                self._refused[port] = self.monotonic() + RETRY_S, str(error)
                if self.queues.classes(port) is not None:
                    # Half made, all frames would wait in one queue that nobody looks after.
                    self.queues.remove(port)
            raise
        if reading is None:
            self.queues.make_fair(port)
            log.info("%s: sluiced's own queue discipline lets streams go first", port)
        self._plans[port] = plan

    def _give_back(self, wanted: tuple[str, ...]) -> None:
        """The queues of ports that are none of the uplink any more, and an ended sluiced's."""
        left = set(self._plans) - set(wanted)
        if not self._looked_for_old:
            left |= set(self.queues.owned()) - set(wanted)
            self._looked_for_old = True
        for port in sorted(left):
            self._remove(port)

    def _remove(self, port: str) -> None:
        try:
            if self.queues.classes(port) is not None:
                self.queues.remove(port)
                log.info("%s has the kernel's own queue discipline again", port)
        finally:
            self._plans.pop(port, None)

    # Streams

    def _flows(self, declaration: Declaration) -> tuple[list[Flow], dict[str, str]]:
        """The frames that go first; and of the other streams, why theirs do not."""
        now_s, guests = self.monotonic(), self._guests()
        self._slots = slots(declaration.streams, self._slots)
        flows, missing = [], {}
        for stream in declaration.streams:
            turn = self._turns.get(stream.name, Turn())
            flow = self._flow(stream, declaration, guests.get(stream.domain))
            if isinstance(flow, str):
                missing[stream.name] = flow
            elif not turn.goes_first(now_s):
                missing[stream.name] = "it sends far more than it declares"
            else:
                flows.append(flow)
        return flows, missing

    def _guests(self) -> dict[str, Guest]:
        try:
            return {guest.name: guest for guest in self.host.guests()}
        except SluiceError as error:
            raise OSError(str(error)) from error

    def _flow(self, stream: Stream, declaration: Declaration, guest: Guest | None) -> Flow | str:
        tags = sorted(
            tag
            for tag, name in declaration.granted_to(stream.domain)
            if name == stream.class_name and tag
        )
        if not tags:
            return f"frames of class {stream.class_name} have no tag"
        macs = () if guest is None or guest.live is None else guest.live.devices
        macs = tuple(sorted(device.mac for device in macs if device.mac))
        if not macs:
            return f"{stream.domain} has no card now"
        if stream.name not in self._slots:
            return "there are too many streams"
        return Flow(stream.name, self._slots[stream.name], macs, tuple(map(tag_dscp, tags)))

    def _count(
        self, streams: tuple[Stream, ...], readings: list[dict[int, ClassReading] | None]
    ) -> None:
        """The traffic that went first, and whether it was far more than was declared."""
        now_s = self.monotonic()
        self._seen = {s.name: self._seen[s.name] for s in streams if s.name in self._seen}
        self._turns = {s.name: self._turns[s.name] for s in streams if s.name in self._turns}
        numbers = {f.stream: f.number for plan in self._plans.values() for f in plan.flows}
        for stream in streams:
            if stream.name not in numbers:
                self._seen.pop(stream.name, None)
                continue
            number = numbers[stream.name]
            moved = sum(one[number].bytes for one in readings if one and number in one)
            seen = self._seen.get(stream.name)
            if seen is None or moved < seen.bytes:
                self._seen[stream.name] = _Seen(moved, now_s)
                continue
            span_s = max(now_s - seen.at_s, 1e-3)
            rate = (moved - seen.bytes) / span_s
            moved_s = now_s if moved > seen.bytes else seen.moved_s
            self._seen[stream.name] = _Seen(moved, now_s, moved_s, rate)
            self._judge(stream, rate, now_s)

    def _judge(self, stream: Stream, rate: float, now_s: float) -> None:
        before = self._turns.get(stream.name, Turn())
        turn = self._turns[stream.name] = next_turn(before, stream, rate, now_s)
        if before.goes_first(now_s) and not turn.goes_first(now_s):
            log.warning("%s", greedy_words(stream, rate))

    def _found(self, streams: list[Stream]) -> First:
        now_s, first, reasons = self.monotonic(), [], []
        for stream in streams:
            seen = self._seen.get(stream.name)
            if seen and seen.moved_s is not None and now_s - seen.moved_s <= SEEN_S:
                first.append(stream.name)
            else:
                reasons.append(f"{stream.name}: none of its frames comes by")
        return First(tuple(first), "; ".join(reasons))


def _in_words(error: OSError) -> str:
    words = str(error)
    return words + NO_RIGHT if "ermitted" in words or "ermission" in words else words
