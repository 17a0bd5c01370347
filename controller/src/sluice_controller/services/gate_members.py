# SPDX-License-Identifier: GPL-2.0-or-later
"""The running domains as members of the host's devices: where their disks lie, whether each can
have a gate, and whether its gate held anything lately."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from ..domain.errors import SluiceError
from ..domain.guests import Guest
from ..domain.limits import BLK_READ, BLK_WRITE
from ..domain.model import DEFAULT_CLASS
from ..domain.tuner_types import MS, SECOND
from .ports import Host
from .sampler import PageState
from .workers import Pool

log = logging.getLogger(__name__)

# Of disks that lie nowhere known, as those of a network or of a folder that sluiced cannot see.
UNKNOWN_DEVICE = "unknown device"
DISK_RESOURCES = (BLK_READ, BLK_WRITE)
# A gate that held a request so long ago is limiting still: pages are written now and then only.
HELD_NS = 500 * MS
# A path that could not be looked at is tried again after so long.
LOOK_AGAIN_NS = 60 * SECOND


class Devices(Protocol):
    def under(self, path: str) -> str:
        """The host's device under a path; OSError if it cannot be looked at."""
        ...


@dataclass
class Member:
    """A running domain, as far as its gate is concerned."""

    guest: Guest
    # None while its images are looked at.
    devices: frozenset[str] | None = None
    # Why it can have no gate; None if it can.
    because: str | None = "its counters page was not read yet"
    # Whether its page can be read now.
    is_read: bool = False
    # Whether its QEMU has one to set, as far as is known.
    has_gate: bool = False
    # When its page was last read, and when its gate was last seen to have held something.
    seen_ns: int = 0
    held_ns: int | None = None
    _held: int = 0
    _images: tuple[str | None, ...] = ()
    _looking: Future[frozenset[str]] | None = field(default=None, repr=False)
    _look_ns: int = 0

    def is_missed(self, now_ns: int, longest_ns: int) -> bool:
        """Whether its page was read a short while ago, and is not now."""
        return 0 < now_ns - self.seen_ns <= longest_ns

    @property
    def shared_device(self) -> str | None:
        """The device on which its gate shares the window: all of its disks are there."""
        alone = len(self.devices or ()) == 1 and UNKNOWN_DEVICE not in self.devices
        return next(iter(self.devices)) if alone else None

    def holds(self, now_ns: int) -> bool:
        return self.held_ns is not None and now_ns - self.held_ns <= HELD_NS


class Members:
    def __init__(self, host: Host, devices: Devices, pool: Pool) -> None:
        self.host, self.devices, self.pool = host, devices, pool
        self.by_name: dict[str, Member] = {}
        # Each device's group: devices of the same domains, which no figure tells apart.
        self.group_of: Mapping[str, str] = {}

    def follow(self, pages: Mapping[str, PageState], now_ns: int) -> None:
        """One tick: the domains that run now, and their pages."""
        for guest in self._guests():
            member = self.by_name.get(guest.name)
            if member is None or not _is_same(member.guest, guest):
                member = self.by_name[guest.name] = Member(guest, seen_ns=now_ns)
            member.guest = guest
            self._find_devices(member, now_ns)
        for name, member in self.by_name.items():
            _look_at(member, pages.get(name), now_ns)
        self._group()

    def _group(self) -> None:
        users: dict[str, list[str]] = {}
        for name, member in sorted(self.by_name.items()):
            for device in member.devices or ():
                users.setdefault(device, []).append(name)
        alike: dict[tuple[str, ...], list[str]] = {}
        for device, names in sorted(users.items()):
            alike.setdefault(tuple(names), []).append(device)
        self.group_of = {
            device: " and ".join(devices) for devices in alike.values() for device in devices
        }

    def _guests(self) -> list[Guest]:
        try:
            guests = [guest for guest in self.host.guests() if guest.active]
        except SluiceError:
            # libvirt is away, and the domains go on.
            return []
        for name in set(self.by_name) - {guest.name for guest in guests}:
            del self.by_name[name]
        return guests

    def on(self, group: str) -> list[str]:
        """The domains with a disk there, whether they have a gate or not."""
        return sorted(n for n, m in self.by_name.items() if group in self.groups(m))

    def groups(self, member: Member) -> set[str]:
        """Those of its devices."""
        return {self.group_of[device] for device in member.devices or ()}

    def used(self) -> list[str]:
        """All groups."""
        return sorted(set(self.group_of.values()))

    def _find_devices(self, member: Member, now_ns: int) -> None:
        if member._looking is not None:
            if not member._looking.done():
                return
            if not member._looking.cancelled() and member._looking.exception() is None:
                member.devices = member._looking.result()
            member._looking = None
        images, known = member.guest.live.images, member.devices
        is_due = UNKNOWN_DEVICE in (known or ()) and now_ns - member._look_ns >= LOOK_AGAIN_NS
        if known is None or is_due or member._images != images:
            member._images, member._look_ns = images, now_ns
            # A path on a server that is away may keep its thread for ever.
            member._looking = self.pool.submit(self._under, member.guest.name, images)

    def _under(self, domain: str, images: Iterable[str | None]) -> frozenset[str]:
        found = set()
        for path in images:
            try:
                found.add(UNKNOWN_DEVICE if path is None else self.devices.under(path))
            except (OSError, ValueError) as error:
                log.info("domain %s: the device under %s is not known: %s", domain, path, error)
                found.add(UNKNOWN_DEVICE)
        return frozenset(found)


def _is_same(one: Guest, other: Guest) -> bool:
    return (one.uuid, one.incarnation) == (other.uuid, other.incarnation)


def _look_at(member: Member, page: PageState | None, now_ns: int) -> None:
    span = None if page is None else page.span()
    member.is_read = span is not None
    if span is None:
        member.because = "its counters page cannot be read"
        return
    content = span.new.content
    member.has_gate = content.tells_of_gates
    member.because = _because(member)
    member.seen_ns = now_ns
    gates = [content.gate((DEFAULT_CLASS, resource)) for resource in DISK_RESOURCES]
    # Each moves while something is held; a page from a while ago may have one of them alone.
    held = sum(gate.held_times + gate.held_ns for gate in gates if gate is not None)
    if held != member._held:
        member.held_ns, member._held = now_ns, held


def _because(member: Member) -> str | None:
    if not member.has_gate:
        return "its QEMU is from before the gate; until it runs with the present one, rates hold it"
    if member.devices is None:
        return "its disks are being looked at"
    return None if member.devices else "none of its disks is shaped"
