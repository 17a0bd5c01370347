# SPDX-License-Identifier: GPL-2.0-or-later
"""The services' Store over SQLAlchemy: one Session per unit of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from sqlalchemy import BigInteger, cast, create_engine, delete, func, insert, or_, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, InterfaceError, InternalError, OperationalError
from sqlalchemy.orm import Session

from ...domain.cards import Card
from ...domain.errors import NotFound, StoreUnavailable
from ...domain.events import HOST, Event, Subject, of_audit
from ...domain.group_page import GroupLimit
from ...domain.groups import Group, Membership
from ...domain.knobs import hints
from ...domain.limits import Limit
from ...domain.model import (
    Assignment,
    AuditEntry,
    Grant,
    Rule,
    Settings,
    ShapingClass,
    Stream,
)
from ...domain.models import as_json, of_json
from ...services.ports import HistoryEntry
from . import sqlite
from .migrate import upgrade
from .tables import (
    AssignmentRow,
    AuditRow,
    ClassRow,
    DecisionRow,
    DomainRow,
    GrantRow,
    GroupMemberRow,
    GroupRow,
    HistoryRow,
    NightlyRow,
    ReportRow,
    RuleRow,
    StreamRow,
    ValueRow,
)

Shape = TypeVar("Shape")
Limits = Mapping[str, Limit]
Cards = Mapping[str, Card]

AUDIT_ROWS_KEPT = 10_000
# A bound beside their age, which may be a month: a client may send any number of reports, and a
# row has some 300 bytes. A stream that reports each second has a day of them.
REPORT_ROWS_KEPT = 100_000
DECISION_ROWS_KEPT = 100_000
# Rows of a table at a time: the store is locked meanwhile, and a full disk has room for a small
# change only.
PRUNED_ROWS = 5000
# Faults that may pass: the server is away, another program has the lock, a disk is full.
PASSING = (InterfaceError, OperationalError)
# Measurements and decisions, which grow by themselves.
GROWING = (HistoryRow, ReportRow, DecisionRow)


class SqlStore:
    def __init__(self, url: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        self.monotonic = monotonic
        is_sqlite = make_url(url).get_backend_name() == "sqlite"
        arguments = {"timeout": sqlite.BUSY_SECONDS} if is_sqlite else {}
        # A server that was started anew has ended the connections that wait here.
        self.engine = create_engine(url, connect_args=arguments, pool_pre_ping=not is_sqlite)
        if is_sqlite:
            sqlite.tune(self.engine)
        # SQLite lets one writer in at a time; queueing here beats its busy loop.
        self._writer = threading.RLock()
        self._in_unit = False
        # Hears of what an audited change did, once it is committed.
        self.heard: Callable[[Event], None] = lambda _event: None
        # Counts changes of declarations and of names of domains.
        self.changes = 0
        upgrade(self.engine)
        self._began_s = monotonic() - self._ran_before_s()

    def _ran_before_s(self) -> float:
        with Session(self.engine) as session:
            newest = [session.scalar(select(func.max(table.ran_s))) for table in GROWING]
        return max(found or 0.0 for found in newest)

    def ran_s(self) -> float:
        """For how many seconds sluiced has run on this database, as far as rows tell.

        A row's age is counted in these: the host's clock may be wrong for a while, or for
        years, and right rows must not be removed for that.
        """
        return self.monotonic() - self._began_s

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """One unit of work, whole or not at all; StoreUnavailable if the database fails it."""
        with self._writer:
            if self._in_unit:
                raise RuntimeError("a unit of work inside another would wait for itself")
            self._in_unit = True
            events: list[Event] = []
            try:
                with Session(self.engine) as session, session.begin():
                    yield SqlTransaction(session, self._note_change, self.ran_s(), events.append)
                for event in events:
                    self.heard(event)
            except DatabaseError as error:
                if not _is_the_databases(error):
                    raise
                raise self._unavailable(error) from error
            except InterfaceError as error:
                raise self._unavailable(error) from error
            finally:
                self._in_unit = False

    def _unavailable(self, error: DatabaseError | InterfaceError) -> StoreUnavailable:
        reason = (str(error.orig).splitlines() or [type(error.orig).__name__])[0]
        return StoreUnavailable(
            "database",
            self.engine.url.render_as_string(hide_password=True),
            f"cannot be used now ({reason})",
            "try again; if that goes on, see that it is there, whole, has room, and is not locked"
            " by another program",
        )

    def _note_change(self) -> None:
        self.changes += 1

    def close(self) -> None:
        self.engine.dispose()


def _is_the_databases(error: DatabaseError) -> bool:
    """Whether the database failed, and not the statement.

    SQLite says of a damaged file only that it is a DatabaseError, PostgreSQL that it is
    an InternalError.
    """
    return type(error) is DatabaseError or isinstance(error, OperationalError | InternalError)


def _of_row(shape: type[Shape], row: Any) -> Shape:
    """The domain's object with the row's values."""
    values = {name: of_json(hint, getattr(row, name)) for name, hint in hints(shape).items()}
    return shape(**values)


# The greatest integer of a column in every database.
MOST_ROW_ID = 2**31 - 1


def _nightlyas_json(row: NightlyRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"summary": {"id": row.id, **row.summary}, "result": row.result, "page": row.page}


class SqlTransaction:
    def __init__(
        self,
        session: Session,
        changed: Callable[[], None],
        ran_s: float,
        tell: Callable[[Event], None],
    ) -> None:
        self.session = session
        self.tell = tell
        # To be called for each change of a declaration.
        self.changed = changed
        self.ran_s = ran_s

    def _all(self, table: Any, shape: type[Shape], domain: str | None, *order: Any) -> list[Shape]:
        """In that order; of one domain, or all."""
        query = select(table).order_by(*order)
        if domain is not None:
            query = query.join(DomainRow).where(DomainRow.name == domain)
        return [_of_row(shape, row) for row in self.session.scalars(query)]

    def _row(self, table: Any, value: Any, **others: Any) -> Any:
        """A row with the values of the domain's object."""
        values = {one.name: as_json(getattr(value, one.name)) for one in fields(value)} | others
        if "domain" in values:
            name = values.pop("domain")
            values["domain_id"] = None if name is None else self._domain(name).id
        return table(**values)

    def _put(self, row: Any) -> None:
        self.changed()
        self.session.merge(row)
        self.session.flush()

    def _delete(self, table: Any, key: Any) -> None:
        self.changed()
        row = self.session.get(table, key)
        if row is not None:
            self.session.delete(row)
            self.session.flush()

    # Classes

    def classes(self) -> list[ShapingClass]:
        return self._all(ClassRow, ShapingClass, None, ClassRow.name)

    def put_class(self, shaping_class: ShapingClass) -> None:
        self._put(self._row(ClassRow, shaping_class))

    def delete_class(self, name: str) -> None:
        self._delete(ClassRow, name)

    # Domains

    def _domain(self, name: str) -> DomainRow:
        row = self.session.scalar(select(DomainRow).where(DomainRow.name == name))
        if row is None:
            raise NotFound("domain", name, "does not exist", "see 'virsh list --all'")
        return row

    def known_domain(self, name: str) -> bool:
        return self.uuid_of(name) is not None

    def uuid_of(self, name: str) -> str | None:
        return self.session.scalar(select(DomainRow.uuid).where(DomainRow.name == name))

    def remember_domain(
        self, name: str, uuid: str, gone: str | None = None, has_its_own: bool = False
    ) -> list[tuple[str, Any, Any]]:
        own = self.session.scalar(select(DomainRow).where(DomainRow.uuid == uuid))
        if own is not None and own.name == name:
            return []
        holder = self.session.scalar(select(DomainRow).where(DomainRow.name == name))
        said: list[tuple[str, Any, Any]] = []
        if holder is not None:
            self.changed()
            is_gone, is_bare = holder.uuid == gone, self._is_bare(holder)
            if is_gone and not has_its_own and (own is None or self._is_bare(own)):
                said = [] if is_bare else [("policy kept by name", holder.uuid, uuid)]
                self._inherit(holder, own, uuid)
                return said
            # A renamed domain is seen under its new name soon.
            holder.name = f"{name}#{holder.uuid}"
            if is_gone and not is_bare:
                said.append(("policy put aside", name, holder.name))
            self.session.flush()
        if own is None:
            self.session.add(DomainRow(uuid=uuid, name=name, ceiling={}, cards={}))
        else:
            self.changed()
            if not self._is_bare(own):
                said.append(("policy renamed", own.name, name))
            own.name = name
        self.session.flush()
        return said

    def _inherit(self, holder: DomainRow, own: DomainRow | None, uuid: str) -> None:
        # Attach's record is of one definition.
        holder.stored_xml = own.stored_xml if own is not None else None
        if own is not None:
            self.session.delete(own)
            self.session.flush()
        holder.uuid = uuid
        self.session.flush()

    def _is_bare(self, row: DomainRow) -> bool:
        """Whether nothing was declared for the domain."""
        tables = (GrantRow, RuleRow, AssignmentRow, StreamRow, GroupMemberRow)
        return (
            not row.ceiling
            and not row.cards
            and not any(
                self.session.scalar(
                    select(table.domain_id).where(table.domain_id == row.id).limit(1)
                )
                for table in tables
            )
        )

    def ceiling(self, domain: str) -> dict[str, Limit]:
        return of_json(Limits, self._domain(domain).ceiling) if self.known_domain(domain) else {}

    def ceilings(self) -> dict[str, dict[str, Limit]]:
        """Of each domain that has one."""
        rows = self.session.execute(select(DomainRow.name, DomainRow.ceiling))
        return {name: of_json(Limits, raw) for name, raw in rows if raw}

    def put_ceiling(self, domain: str, limits: Mapping[str, Limit]) -> None:
        self.changed()
        self._domain(domain).ceiling = as_json(limits)

    def cards(self, domain: str) -> dict[str, Card]:
        return of_json(Cards, self._domain(domain).cards) if self.known_domain(domain) else {}

    def all_cards(self) -> dict[str, dict[str, Card]]:
        rows = self.session.execute(select(DomainRow.name, DomainRow.cards))
        return {name: of_json(Cards, raw) for name, raw in rows if raw}

    def put_cards(self, domain: str, cards: Mapping[str, Card]) -> None:
        self.changed()
        self._domain(domain).cards = as_json(cards)

    def stored_xml(self, domain: str) -> dict[str, Any] | None:
        return self._domain(domain).stored_xml if self.known_domain(domain) else None

    def put_stored_xml(self, domain: str, record: Mapping[str, Any] | None) -> None:
        self._domain(domain).stored_xml = None if record is None else dict(record)

    # Grants

    def grants(self, domain: str | None = None) -> list[Grant]:
        return self._all(GrantRow, Grant, domain, GrantRow.domain_id, GrantRow.tag)

    def put_grant(self, grant: Grant) -> None:
        self._put(self._row(GrantRow, grant))

    def delete_grant(self, domain: str, class_name: str) -> None:
        self._delete(GrantRow, (self._domain(domain).id, class_name))

    # Groups

    def groups(self) -> list[Group]:
        rows = self.session.scalars(select(GroupRow).order_by(GroupRow.name))
        return [
            Group(row.name, row.resource, GroupLimit(row.unit, row.rate, row.burst)) for row in rows
        ]

    def put_group(self, group: Group) -> None:
        self._put(GroupRow(name=group.name, resource=group.resource, **vars(group.limit)))

    def delete_group(self, name: str) -> None:
        self._delete(GroupRow, name)

    def memberships(self) -> list[Membership]:
        order = GroupMemberRow.group, GroupMemberRow.domain_id
        return self._all(GroupMemberRow, Membership, None, *order)

    def put_membership(self, membership: Membership) -> None:
        self._put(self._row(GroupMemberRow, membership))

    def delete_membership(self, group: str, domain: str) -> None:
        self._delete(GroupMemberRow, (group, self._domain(domain).id))

    # Rules and assignments

    def rules(self) -> list[Rule]:
        return self._all(RuleRow, Rule, None, RuleRow.id)

    def add_rule(self, rule: Rule) -> Rule:
        self.changed()
        row = self._row(RuleRow, rule, id=None)
        self.session.add(row)
        self.session.flush()
        return replace(rule, id=row.id)

    def delete_rule(self, rule_id: int) -> None:
        self._delete(RuleRow, rule_id)

    def assignments(self, domain: str | None = None) -> list[Assignment]:
        order = AssignmentRow.domain_id, AssignmentRow.pid
        return self._all(AssignmentRow, Assignment, domain, *order)

    def put_assignment(self, assignment: Assignment) -> None:
        self._put(self._row(AssignmentRow, assignment))

    def delete_assignment(self, domain: str, pid: int) -> None:
        self._delete(AssignmentRow, (self._domain(domain).id, pid))

    # Streams

    def streams(self) -> list[Stream]:
        return self._all(StreamRow, Stream, None, StreamRow.name)

    def put_stream(self, stream: Stream) -> None:
        self._put(self._row(StreamRow, stream))

    def delete_stream(self, name: str) -> None:
        self._delete(StreamRow, name)
        self.session.execute(delete(ReportRow).where(ReportRow.stream == name))

    # Settings and other single values

    def value(self, key: str, default: Any) -> Any:
        row = self.session.get(ValueRow, key)
        return default if row is None else row.value

    def put_value(self, key: str, value: Any) -> None:
        self.session.merge(ValueRow(key=key, value=value))

    def settings(self) -> Settings:
        return Settings(**self.value("settings", {}))

    def put_settings(self, settings: Settings) -> None:
        self.changed()
        self.put_value("settings", asdict(settings))

    # Audit

    def add_audit(self, entry: AuditEntry, about: Subject = HOST) -> None:
        values = dict(vars(entry))
        change = {"before": values.pop("before"), "after": values.pop("after")}
        row = AuditRow(**values, change=change)
        self.session.add(row)
        self.session.flush()
        self.session.execute(delete(AuditRow).where(AuditRow.id <= row.id - AUDIT_ROWS_KEPT))
        self.tell(of_audit(entry, about))

    def audit(self, limit: int) -> list[AuditEntry]:
        rows = self.session.scalars(select(AuditRow).order_by(AuditRow.id.desc()).limit(limit))
        return [AuditEntry(row.at, row.actor, row.action, row.thing, **row.change) for row in rows]

    # Measurements and decisions

    def add_history(self, rows: Sequence[tuple[float, str, Mapping[str, list[float]]]]) -> None:
        if not rows:
            return
        values = [
            {"at": at, "domain": domain, "samples": dict(samples), "ran_s": self.ran_s}
            for at, domain, samples in rows
        ]
        self.session.execute(insert(HistoryRow), values)

    def history(
        self,
        domain: str,
        since: float,
        until: float,
        most: int,
        before: HistoryEntry | None = None,
        every_s: int = 1,
    ) -> list[HistoryEntry]:
        query = (
            select(HistoryRow.at, HistoryRow.id, HistoryRow.samples)
            .where(HistoryRow.domain == domain, HistoryRow.at.between(since, until))
            .order_by(HistoryRow.at.desc(), HistoryRow.id.desc())
            .limit(most)
        )
        if before is not None:
            older = or_(HistoryRow.at < before.at, HistoryRow.id < before.row_id)
            query = query.where(HistoryRow.at <= before.at, older)
        if every_s > 1:
            query = query.where(cast(HistoryRow.at, BigInteger) % every_s == 0)
        return [HistoryEntry(*row) for row in self.session.execute(query)]

    def add_report(self, stream: str, at: float, report: Mapping[str, Any]) -> None:
        row = ReportRow(at=at, stream=stream, report=dict(report), ran_s=self.ran_s)
        self.session.add(row)

    def reports(self, stream: str, since: float, until: float, most: int) -> list[dict[str, Any]]:
        query = (
            select(ReportRow.at, ReportRow.report)
            .where(ReportRow.stream == stream, ReportRow.at.between(since, until))
            .order_by(ReportRow.at.desc(), ReportRow.id.desc())
            .limit(most)
        )
        return [{"at": at, **report} for at, report in reversed(self.session.execute(query).all())]

    def add_decision(self, at: float, entry: Mapping[str, Any]) -> None:
        self.session.add(DecisionRow(at=at, entry=dict(entry), ran_s=self.ran_s))

    def decisions(self, since: float, until: float, limit: int) -> list[dict[str, Any]]:
        query = (
            select(DecisionRow)
            .where(DecisionRow.at.between(since, until))
            .order_by(DecisionRow.id.desc())
            .limit(limit)
        )
        return [{"at": row.at, **row.entry} for row in self.session.scalars(query)]

    # Nightly results

    def add_nightly(
        self, summary: Mapping[str, Any], result: Mapping[str, Any], page: str | None
    ) -> int:
        row = NightlyRow(
            run_id=result["run_id"],
            started_at=result["started_at"],
            summary=dict(summary),
            result=dict(result),
            page=page,
        )
        self.session.add(row)
        self.session.flush()
        return row.id

    def nightlies(self, limit: int) -> list[dict[str, Any]]:
        query = (
            select(NightlyRow.id, NightlyRow.summary)
            .order_by(NightlyRow.started_at.desc(), NightlyRow.id.desc())
            .limit(limit)
        )
        return [{"id": row_id, **summary} for row_id, summary in self.session.execute(query)]

    def nightly(self, row_id: int) -> dict[str, Any] | None:
        if row_id > MOST_ROW_ID:
            # The database would not even look for it.
            return None
        return _nightlyas_json(self.session.get(NightlyRow, row_id))

    def nightly_of_run(self, run_id: str) -> dict[str, Any] | None:
        query = select(NightlyRow).where(NightlyRow.run_id == run_id)
        return _nightlyas_json(self.session.scalar(query))

    def prune_nightly(self, keep: int, but: int) -> None:
        """Of `keep` results one is `but`: a clock that was set back makes a new one the oldest."""
        newest = (
            select(NightlyRow.id)
            .where(NightlyRow.id != but)
            .order_by(NightlyRow.started_at.desc(), NightlyRow.id.desc())
            .limit(keep - 1)
        )
        kept = [but, *self.session.scalars(newest)]
        self.session.execute(delete(NightlyRow).where(NightlyRow.id.not_in(kept)))

    def prune(self, keep_s: float) -> bool:
        is_more = False
        for table in GROWING:
            old = select(table.id).where(table.ran_s < self.ran_s - keep_s).limit(PRUNED_ROWS)
            done = self.session.execute(delete(table).where(table.id.in_(old)))
            is_more = is_more or done.rowcount == PRUNED_ROWS
        for stream in self.session.scalars(select(StreamRow.name)).all():
            self._prune_reports(stream)
        newest = self.session.scalar(select(func.max(DecisionRow.id)))
        if newest is not None:
            too_old = DecisionRow.id <= newest - DECISION_ROWS_KEPT
            self.session.execute(delete(DecisionRow).where(too_old))
        return is_more

    def _prune_reports(self, stream: str) -> None:
        """All but the newest, in the order in which they came."""
        of_it = ReportRow.stream == stream
        newest = select(ReportRow.id).where(of_it).order_by(ReportRow.id.desc())
        last = self.session.scalar(newest.offset(REPORT_ROWS_KEPT).limit(1))
        if last is not None:
            self.session.execute(delete(ReportRow).where(of_it, ReportRow.id <= last))
