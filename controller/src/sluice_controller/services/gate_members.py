# SPDX-License-Identifier: GPL-2.0-or-later
"""The running domains as members of the host's devices: where their disks lie, whether each can
have a gate, and whether its gate held anything lately."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..domain.errors import SluiceError
from ..domain.gated import Part
from ..domain.guests import Guest
from ..domain.limits import DISK_RESOURCES
from ..domain.model import DEFAULT_CLASS
from ..domain.places import named_by
from ..domain.tuner_types import MS
from .disk_places import Devices, DiskPlaces, Place
from .ports import Host
from .sampler import PageState
from .workers import Pool

# A gate that held a request so long ago is limiting still: pages are written now and then only.
HELD_NS = 500 * MS


@dataclass
class Member:
    """A running domain, as far as its gate is concerned."""

    guest: Guest
    # Of its images; None while some are looked at for the first time. And their devices.
    places: tuple[Place, ...] | None = None
    devices: frozenset[str] = frozenset()
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

    def is_missed(self, now_ns: int, longest_ns: int) -> bool:
        """Whether its page was read a short while ago, and is not now."""
        return 0 < now_ns - self.seen_ns <= longest_ns

    def holds(self, now_ns: int) -> bool:
        return self.held_ns is not None and now_ns - self.held_ns <= HELD_NS


class Members:
    def __init__(self, host: Host, devices: Devices, pool: Pool) -> None:
        self.host = host
        self.disks = DiskPlaces(devices, pool)
        self.by_name: dict[str, Member] = {}
        # Groups by name, of devices of the same domains, which no figure tells apart; and each
        # device's group.
        self.parts: Mapping[str, Part] = {}
        self.group_of: Mapping[str, str] = {}
        # The operator's names of devices, by the beginnings of images' paths.
        self.names: Mapping[str, str] = {}
        # Of each member, as places were worked out last.
        self._images: list[tuple[str | None, ...]] = []

    def follow(self, pages: Mapping[str, PageState], names: Mapping[str, str], now_ns: int) -> None:
        """One tick: the domains that run now, and their pages; `names`: see there."""
        is_renamed, self.names = names != self.names, names
        for guest in self._guests():
            member = self.by_name.get(guest.name)
            if member is None or not _is_same(member.guest, guest):
                member = self.by_name[guest.name] = Member(guest, seen_ns=now_ns)
                self.disks.refresh(guest.live.images, now_ns)
            member.guest = guest
        self._find_devices(is_renamed, now_ns)
        for name, member in self.by_name.items():
            _look_at(member, pages.get(name), now_ns)
        self._group()

    def _group(self) -> None:
        users: dict[str, list[str]] = {}
        for name, member in sorted(self.by_name.items()):
            for device in member.devices:
                users.setdefault(device, []).append(name)
        alike: dict[tuple[str, ...], list[str]] = {}
        for device, names in sorted(users.items()):
            alike.setdefault(tuple(names), []).append(device)
        self.parts = {
            " and ".join(devices): Part(frozenset(devices), frozenset(names))
            for names, devices in alike.items()
        }
        self.group_of = {one: name for name, part in self.parts.items() for one in part.devices}

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
        return sorted(self.parts[group].domains) if group in self.parts else []

    def groups(self, member: Member) -> set[str]:
        """Those of its devices."""
        return {self.group_of[device] for device in member.devices}

    def shared_by(self, member: Member) -> str | None:
        """The group on which its gate shares the window: all of its disks are there."""
        groups = self.groups(member)
        return next(iter(groups)) if len(groups) == 1 else None

    def named_by(self, group: str) -> list[str]:
        """The operator's settings that name one of its devices, and that a disk lies under."""
        places = [place for _, place in self._places() if place.named_by is not None]
        return sorted({p.named_by for p in places if self.group_of.get(p.device) == group})

    def unused(self, names: Mapping[str, str]) -> list[str]:
        """Of these, those under which no disk of a running domain lies."""
        images = {one for m in self.by_name.values() for one in m.guest.live.images}
        return sorted(names.keys() - {named_by(one, names) for one in images})

    def assumed(self) -> list[dict[str, Any]]:
        """The disks whose device nobody knows for sure."""
        return [
            {"domain": name, "image": p.image, "device": p.device, "because": p.because}
            for name, p in self._places()
            if p.because is not None
        ]

    def _places(self) -> Iterator[tuple[str, Place]]:
        for name, member in sorted(self.by_name.items()):
            for place in member.places or ():
                yield name, place

    def _find_devices(self, is_renamed: bool, now_ns: int) -> None:
        images = [member.guest.live.images for member in self.by_name.values()]
        is_other = is_renamed or images != self._images
        if is_other:
            self._images = images
            every = {one for each in images for one in each}
            self.disks.use({one for one in every if named_by(one, self.names) is None}, now_ns)
        is_other |= self.disks.tend(now_ns)
        for member in self.by_name.values():
            if member.places is not None and not is_other:
                continue
            places = [self.disks.of(one, self.names) for one in member.guest.live.images]
            known = [place for place in places if place is not None]
            # Of a disk that was just plugged in nothing is known yet.
            if member.places is not None or len(known) == len(places):
                member.places = tuple(known)
                member.devices = frozenset(place.device for place in known)


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
    if member.places is None:
        return "its disks are being looked at"
    return None if member.devices else "none of its disks is shaped"
