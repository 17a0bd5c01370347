# SPDX-License-Identifier: GPL-2.0-or-later
"""Interfaces of services to the outside; adapters implement them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..domain.agent_protocol import Preview
from ..domain.cards import Card
from ..domain.counters import Reading
from ..domain.events import HOST, Subject
from ..domain.group_page import GroupLimit, GroupMember
from ..domain.groups import Group, Membership
from ..domain.guests import Guest
from ..domain.knobs import Model
from ..domain.model import (
    Assignment,
    AuditEntry,
    Grant,
    Rule,
    Settings,
    ShapingClass,
    Stream,
)

Clock = Callable[[], float]

# Of a list, unless another number is asked for.
USUAL_ROWS = 100


@dataclass(frozen=True)
class HistoryEntry:
    """{"class/resource": values} of a domain at a time, and the row's number in the store."""

    at: float
    row_id: int
    samples: Mapping[str, list[float | None]]


class Transaction(Protocol):
    """One unit of work: commits when its block ends, rolls back on an exception."""

    def classes(self) -> list[ShapingClass]: ...
    def put_class(self, shaping_class: ShapingClass) -> None: ...
    def delete_class(self, name: str) -> None: ...

    def known_domain(self, name: str) -> bool: ...
    def uuid_of(self, name: str) -> str | None: ...
    def remember_domain(
        self, name: str, uuid: str, gone: str | None = None, has_its_own: bool = False
    ) -> list[tuple[str, Any, Any]]:
        """The domain has this name now. `gone`: the uuid of a vanished domain, whose policy is
        the newcomer's unless that has one, or `has_its_own` elsewhere.

        Returns the changes of policies: (action, before, after) of each."""
        ...

    def grants(self, domain: str | None = None) -> list[Grant]: ...
    def put_grant(self, grant: Grant) -> None: ...
    def delete_grant(self, domain: str, class_name: str) -> None: ...

    def ceiling(self, domain: str) -> dict[str, Any]: ...
    def ceilings(self) -> dict[str, dict[str, Any]]: ...
    def put_ceiling(self, domain: str, limits: Mapping[str, Any]) -> None: ...

    def cards(self, domain: str) -> dict[str, Card]:
        """By MAC address."""
        ...

    def all_cards(self) -> dict[str, dict[str, Card]]:
        """Of each domain that has some."""
        ...

    def put_cards(self, domain: str, cards: Mapping[str, Card]) -> None: ...

    def groups(self) -> list[Group]: ...
    def put_group(self, group: Group) -> None: ...
    def delete_group(self, name: str) -> None: ...
    def memberships(self) -> list[Membership]: ...
    def put_membership(self, membership: Membership) -> None: ...
    def delete_membership(self, group: str, domain: str) -> None: ...

    def rules(self) -> list[Rule]: ...
    def add_rule(self, rule: Rule) -> Rule: ...
    def delete_rule(self, rule_id: int) -> None: ...

    def assignments(self, domain: str | None = None) -> list[Assignment]: ...
    def put_assignment(self, assignment: Assignment) -> None: ...
    def delete_assignment(self, domain: str, pid: int) -> None: ...

    def streams(self) -> list[Stream]: ...
    def put_stream(self, stream: Stream) -> None: ...
    def delete_stream(self, name: str) -> None: ...

    def settings(self) -> Settings: ...
    def put_settings(self, settings: Settings) -> None: ...
    def value(self, key: str, default: Any) -> Any: ...
    def put_value(self, key: str, value: Any) -> None: ...

    def stored_xml(self, domain: str) -> dict[str, Any] | None: ...
    def put_stored_xml(self, domain: str, record: Mapping[str, Any] | None) -> None: ...

    def add_audit(self, entry: AuditEntry, about: Subject = HOST) -> None:
        """It is an event, too, once the unit of work is committed."""
        ...

    def audit(self, limit: int) -> list[AuditEntry]: ...

    def add_history(self, rows: Sequence[tuple[float, str, Mapping[str, list[float]]]]) -> None: ...
    def history(
        self,
        domain: str,
        since: float,
        until: float,
        most: int,
        before: HistoryEntry | None = None,
        every_s: int = 1,
    ) -> list[HistoryEntry]:
        """The newest rows first; `before`: only those older than that one; `every_s`: of so
        many seconds one row."""
        ...

    def add_report(self, stream: str, at: float, report: Mapping[str, Any]) -> None: ...
    def reports(self, stream: str, since: float, until: float, most: int) -> list[dict[str, Any]]:
        """The newest, in the order of their times."""
        ...

    def add_decision(self, at: float, entry: Mapping[str, Any]) -> None: ...
    def decisions(self, since: float, until: float, limit: int) -> list[dict[str, Any]]: ...
    def prune(self, keep_s: float) -> bool:
        """Removes older measurements and decisions, and the oldest beyond the greatest number.
        Only the time during which sluiced runs counts, not the host's clock. It removes no more
        at a time than other users of the store can wait for, and returns whether there is more
        to do."""
        ...

    def add_nightly(
        self, summary: Mapping[str, Any], result: Mapping[str, Any], page: str | None
    ) -> int: ...
    def nightlies(self, limit: int) -> list[dict[str, Any]]: ...
    def nightly(self, row_id: int) -> dict[str, Any] | None: ...
    def nightly_of_run(self, run_id: str) -> dict[str, Any] | None: ...
    def prune_nightly(self, keep: int, but: int) -> None: ...


class Store(Protocol):
    @property
    def changes(self) -> int:
        """The number of changes of declarations and of domains' names so far. A change is
        counted before its unit of work ends, so a later reader waits for that."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]: ...


class Host(Protocol):
    """The hypervisor host, through libvirt."""

    def connection(self) -> Mapping[str, Any]: ...
    def guests(self) -> list[Guest]: ...
    def guest(self, name: str) -> Guest: ...
    def has(self, uuid: str) -> bool: ...


class Shapers(Protocol):
    """The shaper of a running domain, through QMP."""

    def query(self, domain: str, shaper_id: str) -> Mapping[str, Any]: ...
    def execute(self, domain: str, command: str, arguments: Mapping[str, Any]) -> Any: ...


class Agents(Protocol):
    """The guests' agents."""

    def status(self, domain: str) -> Mapping[str, Any]: ...
    def processes(self, domain: str) -> Mapping[str, Any] | None:
        """Its last table: at, age_seconds, truncated, processes, and `table` with the same
        rows as a `text` of JSON."""
        ...

    def refresh(self, domains: Iterable[str]) -> None:
        """Has newer tables come, if that does not take long."""
        ...

    def refused(self) -> Mapping[str, Mapping[str, str]]:
        """{domain: {id of a rule that its agent does not follow: why}}"""
        ...

    def preview(self, domains: Iterable[str], match: Mapping[str, str]) -> Mapping[str, Preview]:
        """Asks the connected agents for the effect of a rule; takes some seconds at most."""
        ...

    def max_tag(self, domain: str) -> int: ...


class GroupPages(Protocol):
    """The pages of groups, by the groups' names."""

    def names(self) -> list[str]: ...
    def path(self, name: str) -> Path: ...
    def created_ns(self, name: str) -> int: ...
    def ensure(self, name: str, limit: GroupLimit) -> None: ...
    def renew(self, name: str, limit: GroupLimit, why: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def members(self, name: str) -> list[GroupMember]: ...


class GatePage(Protocol):
    """The object by which a QEMU opens the page of a device's gate, and the file's path."""

    @property
    def object_id(self) -> str: ...
    @property
    def path(self) -> str: ...


class GatePages(Protocol):
    """The pages of gates, by the names of the devices; OSError."""

    def ensure(self, device: str) -> GatePage: ...
    def renew(self, page: GatePage, device: str, why: str) -> GatePage: ...


class Pages(Protocol):
    """Counters pages by path."""

    def read(self, path: str, before: Reading | None = None) -> Reading:
        """`before`: the last reading of that path, if there is one."""
        ...


@dataclass(frozen=True)
class UplinkReading:
    """Counters of an interface's root queue; the link's rate if it is known.

    ``ports``: the interfaces whose queues these are, where it has none of its own.
    """

    backlog_bytes: int
    dropped_packets: int
    bytes: int
    link_bytes_per_second: float | None
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uplink(Model):
    """An interface's root queue over the last second."""

    name: str
    backlog_bytes: int
    dropped_per_second: float
    bytes_per_second: float
    link_bytes_per_second: float | None
    ports: tuple[str, ...]
    is_beyond: bool
    # The streams that go first there; why some or all do not, null if nobody asks for it.
    first: tuple[str, ...] = ()
    first_reason: str | None = None


@dataclass(frozen=True)
class First:
    """The streams whose frames go first on the uplink, and why others do not."""

    streams: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class ClassReading:
    """Counters of a class of an interface's queue discipline."""

    bytes: int
    backlog_bytes: int
    dropped_packets: int


class UplinkQueues(Protocol):
    """sluiced's own queue disciplines on ports of this host. All raise OSError."""

    def other(self, port: str) -> str | None:
        """An operator's discipline on the port, in words; None if there is none."""
        ...

    def owned(self) -> list[str]: ...
    def classes(self, port: str) -> dict[int, ClassReading] | None:
        """By number; None where the discipline is not sluiced's."""
        ...

    def change(self, lines: Sequence[str]) -> None: ...
    def make_fair(self, port: str) -> None: ...
    def remove(self, port: str) -> None: ...


class Uplinks(Protocol):
    def names(self) -> list[str]: ...
    def ports(self, name: str) -> list[str]: ...
    def read(self, name: str) -> UplinkReading: ...
