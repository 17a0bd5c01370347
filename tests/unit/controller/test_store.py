# SPDX-License-Identifier: GPL-2.0-or-later
"""The database in memory: the same code as on disk, without a disk."""

import shutil
import sqlite3
from contextlib import suppress

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from sluice_controller.adapters.database import SqlStore, sqlite
from sluice_controller.adapters.database import store as database
from sluice_controller.adapters.database.tables import Base
from sluice_controller.domain.errors import NotFound, StoreUnavailable
from sluice_controller.domain.group_page import GroupLimit
from sluice_controller.domain.groups import Group, Membership
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import (
    Assignment,
    AuditEntry,
    Grant,
    Rule,
    Settings,
    ShapingClass,
    Stream,
)
from sluice_controller.domain.queues import Queue
from sluice_controller.domain.scheduling import Scheduling, Window
from unit.controller.scheduling_data import knobs

END = 1e12


class Runs:
    """For how long the machine has been up."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def runs():
    return Runs()


@pytest.fixture(scope="module")
def migrated(tmp_path_factory):
    path = tmp_path_factory.mktemp("migrated") / "sluice.db"
    SqlStore(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(migrated, tmp_path, runs):
    path = shutil.copy(migrated, tmp_path / "sluice.db")
    store = SqlStore(f"sqlite:///{path}", runs)
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.put_class(ShapingClass("batch", "Batch"))
    yield store
    store.close()


def test_migrations_lead_to_the_tables_of_the_code(store):
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("history", "id BIGSERIAL"),
        ("stream_reports", "id BIGSERIAL"),
        ("decisions", "id BIGSERIAL"),
        ("audit", "id BIGSERIAL"),
        ("assignments", "start_time_ticks BIGINT"),
        ("groups", "rate BIGINT"),
        ("groups", "burst BIGINT"),
    ],
)
def test_what_outgrows_31_bits_has_64(table, column):
    """`tests/integration/controller/test_postgresql.py` tries it with a server."""
    created = CreateTable(Base.metadata.tables[table]).compile(dialect=postgresql.dialect())
    assert column in str(created)


@given(knobs())
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_grant_survives(store, some):
    grant = Grant("media", "batch", 3, (), *some)
    with store.transaction() as unit:
        unit.put_grant(grant)
    with store.transaction() as unit:
        assert unit.grants("media") == [grant]


def test_groups_come_back_with_their_members(store):
    disks = Group("disks", "blk-read", GroupLimit("bytes", 10**12, 2**40))
    frames = Group("frames", "net-tx", GroupLimit("operations", 5, 1))
    with store.transaction() as unit:
        unit.put_group(disks)
        unit.put_group(frames)
        unit.put_membership(Membership("disks", "media", 300))
        unit.put_membership(Membership("disks", "media", 400))
    with store.transaction() as unit:
        assert unit.groups() == [disks, frames]
        assert unit.memberships() == [Membership("disks", "media", 400)]
        unit.delete_membership("disks", "media")
        unit.delete_group("disks")
    with store.transaction() as unit:
        assert unit.groups() == [frames] and unit.memberships() == []


def test_everything_comes_back_as_it_was_put(store):
    grant = Grant(
        "media",
        "batch",
        3,
        (46,),
        {"blk-read": Limit(5e6, 262144.0)},
        {"blk-read": Scheduling(1e6), "net-tx": Scheduling(window=Window(1000, 5, 1, 9))},
        {"net-rx": Queue(aqm="codel", ecn=True)},
    )
    batch = ShapingClass("batch", "Batch", weight=300, unmanaged=True)
    assignment = Assignment("media", 812, 99, "batch", 1.0, "boot")
    stream = Stream("movie", "media", "batch", 875000.0)
    with store.transaction() as unit:
        unit.put_class(batch)
        unit.put_grant(grant)
        rule = unit.add_rule(Rule(0, "media", "batch", {"exe": "/bin/cat"}, 2.0))
        anywhere = unit.add_rule(Rule(0, None, "batch", {"user": "root"}, 2.0))
        unit.put_assignment(assignment)
        unit.put_stream(stream)
        unit.put_settings(Settings(uplink="eno1"))
        unit.put_ceiling("media", {"net-tx": Limit(1e6)})
    with store.transaction() as unit:
        assert unit.classes() == [batch]
        assert unit.grants("media") == [grant]
        assert unit.rules() == [rule, anywhere]
        assert unit.assignments("media") == [assignment]
        assert unit.streams() == [stream]
        assert unit.settings() == Settings(uplink="eno1")
        assert unit.ceiling("media") == {"net-tx": Limit(1e6)}
        assert unit.grants("other") == []


def test_a_failed_unit_of_work_leaves_nothing(store):
    with pytest.raises(RuntimeError), store.transaction() as unit:
        unit.put_class(ShapingClass("half", "Half"))
        raise RuntimeError
    with store.transaction() as unit:
        assert [c.name for c in unit.classes()] == ["batch"]


def test_a_unit_of_work_that_reads_first_can_still_write(store, tmp_path):
    """Another process may read beside it, and waits to write."""
    other = sqlite3.connect(tmp_path / "sluice.db", timeout=0, isolation_level=None)
    with store.transaction() as unit:
        assert [c.name for c in unit.classes()] == ["batch"]
        assert other.execute("SELECT name FROM classes").fetchall() == [("batch",)]
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("UPDATE classes SET title = 'Theirs'")
        unit.put_class(ShapingClass("new", "New"))
    other.execute("UPDATE classes SET title = 'Theirs'")
    other.close()
    with store.transaction() as unit:
        assert [c.title for c in unit.classes()] == ["Theirs", "Theirs"]


def test_a_database_that_another_program_has_locked_is_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0)
    path = tmp_path / "sluice.db"
    store = SqlStore(f"sqlite:///{path}")
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as refusal, store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "Batch"))
    assert refusal.value.status == 503
    assert f"{path}' cannot be used now (database is locked): try again" in str(refusal.value)
    other.execute("COMMIT")
    other.close()
    with store.transaction() as unit:
        assert unit.classes() == []
    store.close()


def test_a_disk_that_is_full_leaves_the_store_as_it_was(store):
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # what it has now, that is
    with pytest.raises(StoreUnavailable, match="is full"), store.transaction() as unit:
        unit.put_class(ShapingClass("new", "New"))
        unit.add_history([(1.0, "media", {"batch/net-tx": 9999 * [1.0]})])
    with store.transaction() as unit:
        assert [c.name for c in unit.classes()] == ["batch"]


def test_a_unit_of_work_inside_another_is_refused_at_once(store):
    with store.transaction() as unit:
        with pytest.raises(RuntimeError, match="inside another"), store.transaction():
            raise AssertionError
        unit.put_class(ShapingClass("new", "New"))
    with store.transaction() as unit:
        assert [c.name for c in unit.classes()] == ["batch", "new"]


def test_grants_follow_a_domain_that_is_renamed(store):
    with store.transaction() as unit:
        unit.put_grant(Grant("media", "batch", 1))
        unit.remember_domain("films", "u-1")
        assert [g.domain for g in unit.grants()] == ["films"]


def test_a_name_that_is_taken_over_from_a_domain_that_is_there_takes_nothing_along(store):
    with store.transaction() as unit:
        unit.put_grant(Grant("media", "batch", 1))
        unit.remember_domain("media", "u-2")
        assert unit.grants("media") == []
        assert unit.remember_domain("films", "u-1") == [("policy renamed", "media#u-1", "films")]
        assert [g.domain for g in unit.grants()] == ["films"]


def test_an_unknown_domain_is_named(store):
    with store.transaction() as unit, pytest.raises(NotFound, match="nope"):
        unit.put_grant(Grant("nope", "batch", 1))


def write_each_second(store, runs, rows):
    """A row of history a second; the host's clock may say anything."""
    for at in rows:
        runs.now += 1
        with store.transaction() as unit:
            unit.add_history([(at, "media", {"batch/blk-read": [1, None, 0, 0]})])


def test_history_is_kept_for_its_time(store, runs):
    write_each_second(store, runs, [float(t) for t in range(9)])
    with store.transaction() as unit:
        unit.prune(3.0)
        assert [row.at for row in unit.history("media", 0.0, END, 9)] == [8.0, 7.0, 6.0, 5.0]
        (newest,) = unit.history("media", 7.5, END, 9)
        assert newest.samples == {"batch/blk-read": [1, None, 0, 0]}


@pytest.mark.parametrize("wrong", [1e9, -1e9, float(2**31)])
def test_what_is_right_outlasts_a_clock_that_is_wrong(store, runs, wrong):
    """The clock jumps and comes back: an age is how long sluiced has run since."""
    write_each_second(store, runs, [10.0, 11.0, wrong, wrong + 1, 14.0])
    with store.transaction() as unit:
        unit.add_report("film", 10.0, {})
        unit.add_decision(10.0, {})
        unit.prune(10.0)
        assert [row.at for row in unit.history("media", 9.0, 14.0, 9)] == [14.0, 11.0, 10.0]
    runs.now += 8
    with store.transaction() as unit:
        unit.prune(8.5)
        # All that was written earlier than that is gone, the wrong times with it.
        assert [row.at for row in unit.history("media", -END, END, 9)] == [14.0]
        assert len(unit.reports("film", 0.0, END, 9)) == len(unit.decisions(0.0, END, 9)) == 1


def test_the_time_that_sluiced_has_run_goes_on_after_a_restart(store, runs):
    write_each_second(store, runs, [1.0, 2.0, 3.0])
    other = SqlStore(store.url, runs)
    runs.now += 100
    write_each_second(other, runs, [4.0])
    with other.transaction() as unit:
        unit.prune(102.0)
        assert [row.at for row in unit.history("media", 0.0, END, 9)] == [4.0, 3.0, 2.0]
    other.close()


def test_what_is_of_a_time_to_come_is_in_no_answer(store):
    """It was written before the clock was set back, and would hide what came after."""
    with store.transaction() as unit:
        for at in (5.0, 1e9):
            unit.add_history([(at, "media", {})])
            unit.add_report("film", at, {})
            unit.add_decision(at, {})
        assert [row.at for row in unit.history("media", 0.0, 6.0, 9)] == [5.0]
        assert [row["at"] for row in unit.reports("film", 0.0, 6.0, 9)] == [5.0]
        assert [row["at"] for row in unit.decisions(0.0, 6.0, 9)] == [5.0]


def test_of_many_rows_every_so_many_seconds_are_read(store):
    with store.transaction() as unit:
        unit.add_history([(t + 0.3, "media", {}) for t in range(20)])
        found = unit.history("media", 0.0, END, 9, every_s=5)
    assert [row.at for row in found] == [15.3, 10.3, 5.3, 0.3]


def test_much_that_is_old_goes_a_part_at_a_time(store, runs, monkeypatch):
    """Others wait for the store meanwhile."""
    monkeypatch.setattr(database, "PRUNED_ROWS", 3)
    write_each_second(store, runs, [float(t) for t in range(9)])
    more, left = True, []
    while more:
        with store.transaction() as unit:
            more = unit.prune(1.0)
            left.append(len(unit.history("media", 0.0, END, 99)))
    assert left == [6, 3, 2]


def test_history_is_read_in_slices_that_miss_and_repeat_nothing(store):
    """A clock that is set may give many rows one time, and later rows earlier ones."""
    times = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 3.0, 0.0]
    with store.transaction() as unit:
        unit.add_history([(at, "media", {}) for at in times])
        found, before = [], None
        while rows := unit.history("media", 0.5, END, 2, before):
            found += rows
            before = rows[-1]
    assert [row.at for row in found] == [3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    assert len({row.row_id for row in found}) == len(found)


def test_reports_and_decisions_are_kept_up_to_a_number(store, monkeypatch):
    monkeypatch.setattr(database, "REPORT_ROWS_KEPT", 5)
    monkeypatch.setattr(database, "DECISION_ROWS_KEPT", 3)
    with store.transaction() as unit:
        for name in ("film", "radio"):
            unit.put_stream(Stream(name, "media", "batch", 1e6))
        for at in range(9):
            unit.add_report("film", float(at), {"stalls": at})
            unit.add_decision(float(at), {"sentence": str(at)})
        unit.add_report("radio", 0.0, {"stalls": 0})
    with store.transaction() as unit:
        unit.prune(60.0)
    with store.transaction() as unit:
        assert [r["at"] for r in unit.reports("film", 0.0, END, 99)] == [4.0, 5.0, 6.0, 7.0, 8.0]
        # One that floods costs no other its reports.
        assert [r["at"] for r in unit.reports("radio", 0.0, END, 99)] == [0.0]
        assert [d["at"] for d in unit.decisions(0.0, END, 99)] == [8.0, 7.0, 6.0]


def test_of_reports_the_newest_are_read(store):
    with store.transaction() as unit:
        for at in (3.0, 1.0, 2.0, 2.0):
            unit.add_report("film", at, {"stalls": at})
    with store.transaction() as unit:
        assert [r["at"] for r in unit.reports("film", 0.0, END, 3)] == [2.0, 2.0, 3.0]
        assert [r["at"] for r in unit.reports("film", 2.5, END, 3)] == [3.0]


def test_a_damaged_database_cannot_be_used_now(store):
    """Not a fault of sluiced: it answers 503 and goes on, and says what to look at."""
    path = store.engine.url.database
    store.engine.dispose()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 65536)
    with pytest.raises(StoreUnavailable, match="malformed.*whole"), store.transaction() as unit:
        unit.classes()


def test_what_is_wrong_with_a_question_is_no_trouble_of_the_database(store):
    with pytest.raises(IntegrityError), store.transaction() as unit:
        unit.put_class(ShapingClass("new", None))


@pytest.mark.parametrize("ends", [True, False])
def test_what_operators_declare_is_counted_before_it_is_in_force(store, ends):
    """Who has read something else meanwhile must read again."""
    before = store.changes
    with suppress(RuntimeError), store.transaction() as unit:
        unit.put_class(ShapingClass("new", "New"))
        assert store.changes > before
        if not ends:
            raise RuntimeError
    for change in (
        lambda unit: unit.put_settings(Settings(history_seconds=99)),
        lambda unit: unit.put_grant(Grant("media", "batch", 2)),
        lambda unit: unit.put_stream(Stream("film", "media", "batch", 1e6)),
        lambda unit: unit.remember_domain("films", "u-1"),
    ):
        before = store.changes
        with store.transaction() as unit:
            change(unit)
        assert store.changes > before
    before = store.changes
    with store.transaction() as unit:
        unit.add_history([(1.0, "films", {})])
        unit.put_value("auto-state", {})
    assert store.changes == before


def test_the_audit_is_newest_first(store):
    with store.transaction() as unit:
        for i in range(5):
            unit.add_audit(AuditEntry(float(i), "me", "set", "x", None, {"n": i}))
        assert [e.at for e in unit.audit(2)] == [4.0, 3.0]
        assert unit.audit(1)[0].after == {"n": 4}


@given(st.text(min_size=1, max_size=30))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_survives(store, title):
    title = title.encode("utf-8", "ignore").decode()
    with store.transaction() as unit:
        unit.put_class(ShapingClass("x", title))
        assert unit.classes()[-1].title == title
