# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups of domains under one limit of the host.

The catalogue has the groups; their pages carry the limits to the QEMU processes, and live on
when the daemon ends. The reconciler makes domains members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..domain.errors import Conflict, NotFound, SluiceError, sluice
from ..domain.events import Subject
from ..domain.group_page import GroupMember
from ..domain.groups import (
    Group,
    MemberBody,
    Membership,
    group_json,
    parse_group,
    parse_group_name,
)
from ..domain.models import as_json, parse
from .catalogue import audited
from .ports import Clock, GroupPages, Store, Transaction

log = logging.getLogger(__name__)


def find_group(unit: Transaction, name: Any) -> Group:
    parse_group_name(name)
    for group in unit.groups():
        if group.name == name:
            return group
    raise NotFound("group", name, "does not exist", "see 'sluice group list'")


def refuse_another_kind(before: Group | None, after: Group) -> None:
    """Refuses another unit, in which the members' counts would be wrong."""
    if before and (before.resource, before.limit.unit) != (after.resource, after.limit.unit):
        raise Conflict(
            "group",
            before.name,
            f"limits {before.limit.unit} of {before.resource}",
            "keep that, or make another group",
        )


def refuse_second(unit: Transaction, group: Group, domain: str) -> None:
    """A shaper has one group for a resource."""
    others = {g.name: g for g in unit.groups() if g.name != group.name}
    for other in unit.memberships():
        if other.domain != domain or other.group not in others:
            continue
        shared = [part for part in group.parts if part in others[other.group].parts]
        if shared:
            raise Conflict(
                "domain",
                domain,
                f"has its {' and '.join(shared)} in the group {other.group}",
                f"take it out first: {sluice('group', 'leave', other.group, domain)}",
            )


@dataclass(eq=False)
class Groups:
    store: Store
    pages: GroupPages
    about: Callable[[str], AbstractContextManager[Transaction]]
    clock: Clock
    changed: Callable[[str | None], None]

    def __post_init__(self) -> None:
        # The last log line of each group with an unusable page.
        self._said: dict[str, str] = {}

    def restore(self) -> None:
        """At start: every group has its page, with its limit; others have none."""
        with self.store.transaction() as unit:
            groups = unit.groups()
        for group in groups:
            self._ensure(group)
        for name in set(self.pages.names()) - {group.name for group in groups}:
            self.remove_page(name)

    def remove_page(self, name: str) -> None:
        """Of what is no group any more: a page that stays does no harm."""
        try:
            self.pages.remove(name)
        except OSError as error:
            log.error("the page of %s, which is no group, stays: %s", name, error)

    @contextmanager
    def as_stored(self) -> Iterator[None]:
        """A change that fails after pages have its limits gives them the stored ones again."""
        try:
            yield
        except BaseException:
            with suppress(SluiceError):
                self.restore()
            raise

    def _ensure(self, group: Group) -> bool:
        """Whether the group has its page; if not, the log says why."""
        try:
            self.pages.ensure(group.name, group.limit)
        except (SluiceError, OSError) as error:
            self._say_unusable(group, error)
            return False
        if self._said.pop(group.name, None):
            log.info("group %s has its page again", group.name)
        return True

    def _say_unusable(self, group: Group, error: Exception) -> None:
        """Once for each reason: it is found out anew every second."""
        if self._said.get(group.name) != str(error):
            self._said[group.name] = str(error)
            log.error("group %s has no page: %s", group.name, error)

    def unusable(self) -> dict[str, str]:
        """The groups without a page, which limit nobody now, and why."""
        return dict(self._said)

    def all(self) -> list[dict[str, Any]]:
        with self.store.transaction() as unit:
            memberships = unit.memberships()
            groups = unit.groups()
        return [self._json(group, memberships) for group in groups]

    def group(self, name: str) -> Group:
        with self.store.transaction() as unit:
            return find_group(unit, name)

    def _json(self, group: Group, memberships: list[Membership]) -> dict[str, Any]:
        return {
            **group_json(group),
            "domains": [
                {"domain": m.domain, "weight": m.weight}
                for m in memberships
                if m.group == group.name
            ],
            "members": as_json(self._members(group)),
        }

    def _members(self, group: Group) -> list[GroupMember]:
        try:
            return self.pages.members(group.name)
        except (SluiceError, OSError) as error:
            if group.name not in self._said:
                self._say_unusable(group, error)
            return []

    def put(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        after = parse_group(name, body)
        with self.as_stored(), self.store.transaction() as unit:
            before = next((g for g in unit.groups() if g.name == name), None)
            refuse_another_kind(before, after)
            unit.put_group(after)
            self.pages.ensure(name, after.limit)
            shown = group_json(after)
            old = group_json(before) if before else None
            audited(unit, self.clock, "set group", name, old, shown)
            answer = self._json(after, unit.memberships())
        self.changed(None)
        return answer

    def delete(self, name: str) -> None:
        with self.store.transaction() as unit:
            before = find_group(unit, name)
            domains = [m.domain for m in unit.memberships() if m.group == name]
            if domains:
                raise Conflict(
                    "group",
                    name,
                    f"has the members {', '.join(domains)}",
                    f"take them out first: {sluice('group', 'leave', name, domains[0])}",
                )
            unit.delete_group(name)
            audited(unit, self.clock, "delete group", name, group_json(before), None)
        self.remove_page(name)

    def put_member(self, name: str, domain: str, body: Mapping[str, Any]) -> dict[str, Any]:
        weight = parse(MemberBody, body).weight
        with self.about(domain) as unit:
            group = find_group(unit, name)
            refuse_second(unit, group, domain)
            before = next(
                (m for m in unit.memberships() if (m.group, m.domain) == (name, domain)), None
            )
            after = Membership(name, domain, weight)
            unit.put_membership(after)
            about = Subject((domain,))
            audited(unit, self.clock, "join group", f"{name}/{domain}", before, after, about)
            answer = self._json(group, unit.memberships())
        self.changed(domain)
        return answer

    def delete_member(self, name: str, domain: str) -> None:
        with self.store.transaction() as unit:
            find_group(unit, name)
            before = next(
                (m for m in unit.memberships() if (m.group, m.domain) == (name, domain)), None
            )
            if before is None:
                raise NotFound("domain", domain, f"is not in the group {name}", "nothing to do")
            unit.delete_membership(name, domain)
            about = Subject((domain,))
            audited(unit, self.clock, "leave group", f"{name}/{domain}", before, None, about)
        self.changed(domain)

    def _object_id(self, name: str) -> str:
        return f"group-{name}-{self.pages.created_ns(name)}"

    def lost(self, domain: str, object_ids: Collection[str]) -> None:
        """A QEMU has lost the pages of these. Their files may look whole again, but it
        would hold the limits by itself for as long as it has these objects."""
        with self.store.transaction() as unit:
            groups = unit.groups()
        for group in groups:
            try:
                if self._object_id(group.name) in object_ids:
                    why = f"domain {domain} has lost it, when another process shortened it"
                    self.pages.renew(group.name, group.limit, why)
            except (SluiceError, OSError) as error:
                self._say_unusable(group, error)

    def wanted(self, unit: Transaction, domain: str) -> dict[str, dict[str, Any]]:
        """{resource: {"group": object id, "path", "weight"}} for a shaper.

        The id changes with the page, so that a group that was made anew is
        joined anew.
        """
        groups = {group.name: group for group in unit.groups()}
        return {
            part: {
                "group": self._object_id(m.group),
                "path": str(self.pages.path(m.group)),
                "weight": m.weight,
            }
            for m in unit.memberships()
            if m.domain == domain and self._ensure(groups[m.group])
            for part in groups[m.group].parts
        }
