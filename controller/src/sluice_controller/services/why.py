# SPDX-License-Identifier: GPL-2.0-or-later
"""Gathers what is known of a class, for the answer why it is slow (`domain/why.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..domain.errors import SluiceError
from ..domain.groups import PARTS, Group, Membership
from ..domain.guests import Guest
from ..domain.limits import DISK_RESOURCES, RESOURCES, UNLIMITED, Limit
from ..domain.model import DEFAULT_CLASS, Grant, ShapingClass
from ..domain.models import as_json
from ..domain.processors import Wait
from ..domain.render import control_of, with_default
from ..domain.tuner_types import UplinkView
from ..domain.use import gate_of, use_of
from ..domain.why import Facts, InGroup, Moved, why
from .auto_limits import AutoLimits
from .catalogue import find_grant
from .declared import Declared
from .ports import Clock, GroupPages, Host, Store
from .sampler import Sampler, Seen


@dataclass(frozen=True)
class _Stored:
    """The settings of operators, of one domain but for groups."""

    grants: list[Grant]
    classes: Mapping[str, ShapingClass]
    ceiling: Mapping[str, Limit]
    groups: Mapping[str, Group]
    memberships: list[Membership]


@dataclass(eq=False)
class Whys:
    store: Store
    declared: Declared
    host: Host
    sampler: Sampler
    auto_limits: AutoLimits
    group_pages: GroupPages
    clock: Clock
    waits: Callable[[str], Wait | None]
    check_known: Callable[[str], None]
    # The uplink with what is learnt of a link beyond.
    seen: Callable[[UplinkView | None], UplinkView | None] = lambda uplink: uplink

    def of(self, domain: str, class_name: str) -> dict[str, Any]:
        """{"at", "domain", "class", "resources": a `Why` for each}."""
        self.check_known(domain)
        stored = self._stored(domain)
        grant = self._grant(stored, domain, class_name)
        uplink = self.seen(self.sampler.observed()[1])
        pages = self.sampler.seen()
        guest, page = self._guest(domain), pages.get(domain)
        facts = [
            self._facts(stored, grant, resource, guest, page, pages, uplink)
            for resource in RESOURCES
        ]
        return {
            "at": self.clock(),
            "domain": domain,
            "class": class_name,
            "resources": as_json([why(one) for one in facts]),
        }

    def _stored(self, domain: str) -> _Stored:
        with self.store.transaction() as unit:
            return _Stored(
                with_default(domain, unit.grants(domain)),
                {one.name: one for one in unit.classes()},
                unit.ceiling(domain),
                {one.name: one for one in unit.groups()},
                unit.memberships(),
            )

    def _grant(self, stored: _Stored, domain: str, class_name: str) -> Grant:
        for grant in stored.grants:
            if grant.class_name == class_name:
                return grant
        with self.store.transaction() as unit:
            return find_grant(unit, domain, class_name)

    def _guest(self, domain: str) -> Guest | None:
        """None while libvirt is away; then the answer lacks its parts."""
        with suppress(SluiceError):
            return next((one for one in self.host.guests() if one.name == domain), None)
        return None

    def _facts(
        self,
        stored: _Stored,
        grant: Grant,
        resource: str,
        guest: Guest | None,
        page: Seen | None,
        pages: Mapping[str, Seen],
        uplink: UplinkView | None,
    ) -> Facts:
        domain, name = grant.domain, grant.class_name
        shaping_class = stored.classes.get(name)
        key, window = (name, resource), page.window if _known(page) else None
        use = use_of(window, key) if window is not None and key in page.keys else None
        gate, gate_share = (None, None)
        if window is not None:
            gate, gate_share = gate_of(window, (DEFAULT_CLASS, resource))
        return Facts(
            domain,
            name,
            resource,
            use=use,
            unseen=_unseen(guest, page),
            unmanaged=shaping_class is not None and shaping_class.unmanaged,
            own=grant.limits.get(resource, UNLIMITED),
            cap=self.auto_limits.snapshot().get((domain, name, resource)),
            control=control_of(grant, self.auto_limits.controls()),
            ceiling=stored.ceiling.get(resource, UNLIMITED),
            moved_by_domain=_moved([page], [resource], self.declared.now.unmanaged),
            moved_by_disks=_moved([page], DISK_RESOURCES, frozenset()),
            in_group=self._in_group(stored, domain, resource, page, pages),
            gate=gate,
            gate_share=gate_share,
            is_stream=any(
                (one.domain, one.class_name) == (domain, name) for one in self.declared.now.streams
            ),
            throttles=guest.live.throttles if guest is not None and guest.live else (),
            uplink=uplink,
            processor=self.waits(domain),
        )

    def _in_group(
        self,
        stored: _Stored,
        domain: str,
        resource: str,
        page: Seen | None,
        pages: Mapping[str, Seen],
    ) -> InGroup | None:
        """The group that the domain's resource is in."""
        for one in stored.memberships:
            group = stored.groups.get(one.group)
            if one.domain != domain or group is None or resource not in group.parts:
                continue
            members = [pages.get(m.domain) for m in stored.memberships if m.group == group.name]
            moved = _moved(members, PARTS[group.resource], self.declared.now.unmanaged)
            return InGroup(group, moved, self._waits_for(group, page))
        return None

    def _waits_for(self, group: Group, page: Seen | None) -> bool | None:
        """By the page of the group: a member is a process, which the counters page names."""
        if not _known(page):
            return None
        with suppress(SluiceError, OSError):
            pid = page.window.readings[-1].header.pid
            own = [m.waiting for m in self.group_pages.members(group.name) if m.pid == pid]
            return any(own) if own else None
        return None


def _known(page: Seen | None) -> TypeGuard[Seen]:
    return page is not None and page.is_known


def _unseen(guest: Guest | None, page: Seen | None) -> str:
    """Why nothing is known of a use; empty where something is."""
    if page is not None and page.error is not None:
        return page.error
    if guest is None:
        return "libvirt does not show the domain"
    if guest.live is None:
        return "the domain is off"
    if not guest.active:
        return "the domain runs without a shaper"
    return "" if _known(page) else "its counters page has not been read yet"


def _moved(pages: Iterable[Seen | None], resources: Iterable[str], but: frozenset[str]) -> Moved:
    """The rates of the classes of these domains together; `but`: classes that are not charged."""
    of_bytes = of_operations = 0.0
    for page in pages:
        if not _known(page):
            continue
        span = page.window.span()
        for key in page.keys:
            sample = span.sample(key) if key[1] in resources and key[0] not in but else None
            if sample is not None:
                of_bytes += sample["bytes_per_second"]
                of_operations += sample["requests_per_second"]
    return Moved(of_bytes, of_operations)
