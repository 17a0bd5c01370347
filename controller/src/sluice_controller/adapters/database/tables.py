# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables. A change here, or in the members of a class, needs a migration in
`migrations/versions`.

Rows have the names of the members of the domain's objects, so that one function reads each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.ext.associationproxy import association_proxy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from ...domain.knobs import hints
from ...domain.model import ShapingClass

# 64 bits, for values beyond 2^31: numbers from a guest, bytes, and the numbers of rows that
# come each second (history has a row for each domain; a hundred domains would use up 31 bits
# within nine months). SQLite's INTEGER has always 64 bits, and is the only type that numbers
# rows.
Long = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    # SQLAlchemy 2.0 and 2.1 differ in the type of a float.
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, float: Double}


class DomainRow(Base):
    """A libvirt domain, known by uuid; its name follows libvirt's."""

    __tablename__ = "domains"
    id: Mapped[int] = mapped_column(primary_key=True)
    uuid: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str] = mapped_column(unique=True)
    ceiling: Mapped[dict[str, Any]] = mapped_column(default=dict)
    cards: Mapped[dict[str, Any]] = mapped_column(default=dict)
    stored_xml: Mapped[dict[str, Any] | None] = mapped_column(JSON, default=None)


def _columns(shape: type, key: str) -> Iterator[Column[Any]]:
    """A column for each member of a dataclass of plain values."""
    kinds = {str: String, int: Integer, bool: Boolean, float: Double}
    for name, hint in hints(shape).items():
        kind = kinds[get_args(hint)[0]]
        yield Column(name, kind, primary_key=name == key, nullable=False)


class ClassRow(Base):
    __table__ = Table("classes", Base.metadata, *_columns(ShapingClass, "name"))


class GrantRow(Base):
    __tablename__ = "grants"
    __table_args__ = (UniqueConstraint("domain_id", "tag"),)
    domain_id: Mapped[int] = mapped_column(ForeignKey("domains.id"), primary_key=True)
    class_name: Mapped[str] = mapped_column(ForeignKey("classes.name"), primary_key=True)
    tag: Mapped[int]
    dscp: Mapped[list[Any]]
    limits: Mapped[dict[str, Any]]
    scheduling: Mapped[dict[str, Any]]
    queues: Mapped[dict[str, Any]]
    of: Mapped[DomainRow] = relationship(lazy="joined")
    domain = association_proxy("of", "name")


class RuleRow(Base):
    __tablename__ = "rules"
    id: Mapped[int] = mapped_column(primary_key=True)
    domain_id: Mapped[int | None] = mapped_column(ForeignKey("domains.id"))
    class_name: Mapped[str] = mapped_column(ForeignKey("classes.name"))
    match: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    of: Mapped[DomainRow | None] = relationship(lazy="joined")
    domain = association_proxy("of", "name")


class AssignmentRow(Base):
    __tablename__ = "assignments"
    domain_id: Mapped[int] = mapped_column(ForeignKey("domains.id"), primary_key=True)
    pid: Mapped[int] = mapped_column(primary_key=True)
    start_time_ticks: Mapped[int] = mapped_column(Long)
    class_name: Mapped[str] = mapped_column(ForeignKey("classes.name"))
    created_at: Mapped[float]
    boot_id: Mapped[str]
    of: Mapped[DomainRow] = relationship(lazy="joined")
    domain = association_proxy("of", "name")


class StreamRow(Base):
    __tablename__ = "streams"
    name: Mapped[str] = mapped_column(primary_key=True)
    domain_id: Mapped[int] = mapped_column(ForeignKey("domains.id"))
    class_name: Mapped[str] = mapped_column(ForeignKey("classes.name"))
    nominal_bytes_per_second: Mapped[float | None]
    of: Mapped[DomainRow] = relationship(lazy="joined")
    domain = association_proxy("of", "name")


class GroupRow(Base):
    __tablename__ = "groups"
    name: Mapped[str] = mapped_column(primary_key=True)
    resource: Mapped[str]
    unit: Mapped[str]
    rate: Mapped[int] = mapped_column(BigInteger)
    burst: Mapped[int] = mapped_column(BigInteger)


class GroupMemberRow(Base):
    __tablename__ = "group_members"
    group: Mapped[str] = mapped_column("group_name", ForeignKey("groups.name"), primary_key=True)
    domain_id: Mapped[int] = mapped_column(ForeignKey("domains.id"), primary_key=True)
    weight: Mapped[int]
    of: Mapped[DomainRow] = relationship(lazy="joined")
    domain = association_proxy("of", "name")


class ValueRow(Base):
    """Settings and the tuner's state, one JSON object per key."""

    __tablename__ = "values"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[dict[str, Any]]


class AuditRow(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(Long, primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    thing: Mapped[str]
    change: Mapped[dict[str, Any]]


class HistoryRow(Base):
    """One row per domain and second: {"class/resource": [bytes/s, limit, backlog, p99]}.

    `at` is the host's clock, which may be wrong for a while. A row is removed by its age in
    `ran_s`, the seconds that sluiced had run when it was written. The two tables below have
    `ran_s`, too.
    """

    __tablename__ = "history"
    __table_args__ = (Index("history_domain_at", "domain", "at"),)
    id: Mapped[int] = mapped_column(Long, primary_key=True)
    at: Mapped[float]
    domain: Mapped[str]
    samples: Mapped[dict[str, Any]]
    ran_s: Mapped[float] = mapped_column(index=True)


class ReportRow(Base):
    __tablename__ = "stream_reports"
    __table_args__ = (Index("stream_reports_stream_at", "stream", "at"),)
    id: Mapped[int] = mapped_column(Long, primary_key=True)
    at: Mapped[float]
    stream: Mapped[str]
    report: Mapped[dict[str, Any]]
    ran_s: Mapped[float] = mapped_column(index=True)


class DecisionRow(Base):
    __tablename__ = "decisions"
    id: Mapped[int] = mapped_column(Long, primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    entry: Mapped[dict[str, Any]]
    ran_s: Mapped[float] = mapped_column(index=True)


class NightlyRow(Base):
    """A night's result; lists and trends read the summary."""

    __tablename__ = "nightly"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(unique=True)
    started_at: Mapped[float] = mapped_column(index=True)
    summary: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any]]
    page: Mapped[str | None] = mapped_column(Text, default=None)
