# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations that are killed before each of their statements, in child processes.

Whatever statement is the last that began, the file is as before the start or as
after it, and the next start completes.
"""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database.migrate import migrate, upgrade
from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.model import ShapingClass
from sluice_controller.entry import daemon
from sluice_controller.entry.config import argument_parser, load

DEADLINE_S = 600
# How a child ends that was not interrupted before the daemon listens.
LISTENED = 71


class Copies:
    """Databases of an older version, which have a class if they have tables."""

    def __init__(self, folder: Path, version: str | None) -> None:
        self.folder = folder
        self.number = count()
        self.old = folder / "old.db"
        with closing(sqlite3.connect(self.old)) as connection:
            connection.executescript("PRAGMA journal_mode=WAL; VACUUM")
        if version:
            engine = create_engine(f"sqlite:///{self.old}")
            with engine.begin() as connection:
                migrate(connection, version)
                connection.exec_driver_sql("INSERT INTO classes VALUES ('b', 'B', 7, 0, 2)")
            engine.dispose()
        self.before = state(self.old)
        done = self.new()
        with_a_store(done)
        self.after = state(done)
        assert self.before != self.after

    def new(self) -> Path:
        return shutil.copy(self.old, self.folder / f"{next(self.number)}.db")


def copies_of(*versions):
    """Runs the test with each of these versions."""
    return pytest.mark.parametrize("copies", versions, indirect=True)


@pytest.fixture
def copies(tmp_path, request):
    return Copies(tmp_path, request.param)


def in_child(body: Callable[[], object]) -> int:
    """How a forked child ended that did this; negative is the signal."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.alarm(DEADLINE_S)
            body()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int, body: Callable[[], object]) -> int:
    """Let it end by SIGKILL when SQLite begins its statement of this number."""

    def in_the_child() -> None:
        begun = count(1)

        def on_statement(_text: str) -> None:
            if next(begun) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        @event.listens_for(Engine, "connect")
        def on_connect(connection, _record):
            if connection.execute("PRAGMA database_list").fetchone()[2]:
                connection.set_trace_callback(on_statement)

        body()

    return in_child(in_the_child)


def each_kill(copies, migration):
    """A database for each statement of the migration, which was killed there."""
    for number in count(1):
        path = copies.new()
        ended = killed_at(number, lambda path=path: migration(path))
        assert ended in (0, -signal.SIGKILL)
        yield path
        path.unlink()
        if ended == 0:
            # It has fewer statements than that.
            assert number > 10
            return


def state(path):
    """Version, schema and the classes, as SQLite has them."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        found = [schema]
        for table in ("alembic_version", "classes"):
            known = any(name == table for name, _sql in schema)
            found.append(connection.execute(f"SELECT * FROM {table}").fetchall() if known else [])
    return found


def assert_next_start_completes(path, copies):
    store = SqlStore(f"sqlite:///{path}")
    assert state(path)[:2] == copies.after[:2]
    with store.transaction() as unit:
        unit.put_class(ShapingClass("new", "New"))
    store.close()


def with_a_store(path):
    SqlStore(f"sqlite:///{path}").close()


def as_pysqlite_would(path):
    """Its own transactions do not span statements that change the schema."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrate(connection, "head")
    engine.dispose()


@copies_of(None, "0003")
def test_a_kill_leaves_the_old_version_or_the_new_one(copies):
    found = []
    for path in each_kill(copies, with_a_store):
        found.append(state(path))
        assert found[-1] in (copies.before, copies.after)
        assert_next_start_completes(path, copies)
        assert state(path)[2][:-1] == copies.after[2]
    assert copies.before in found and copies.after in found


@copies_of(None, "0001", "0002", "0003")
def test_what_an_earlier_sluiced_left_half_done_is_completed(copies):
    found = []
    for path in each_kill(copies, as_pysqlite_would):
        left = state(path)
        if left not in found:
            found.append(left)
            assert_next_start_completes(path, copies)
    # Else this test repaired nothing.
    assert any(left not in (copies.before, copies.after) for left in found)


def test_a_half_done_migration_with_rows_is_left_alone(tmp_path):
    path = tmp_path / "sluice.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE audit (id INTEGER)")
        connection.execute("INSERT INTO audit VALUES (1)")
    before = state(path)
    engine = create_engine(f"sqlite:///{path}")
    with pytest.raises(Conflict, match=f"database 'sqlite:///{path}' has rows in audit") as refusal:
        upgrade(engine)
    engine.dispose()
    assert "\n" not in str(refusal.value)
    assert state(path) == before


def test_a_column_of_the_next_version_with_values_is_left_alone(tmp_path):
    path = tmp_path / "sluice.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrate(connection, "0003")
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE classes ADD weight INTEGER NOT NULL DEFAULT '100'")
        connection.execute("INSERT INTO classes VALUES ('batch', 'Batch', 7, 0, 2, 300)")
    with pytest.raises(Conflict, match=r"has rows in classes\.weight"):
        upgrade(engine)
    engine.dispose()


def test_the_database_of_a_newer_sluiced_is_refused(tmp_path):
    path = tmp_path / "sluice.db"
    with_a_store(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Conflict, match="is of version 9999"):
        SqlStore(f"sqlite:///{path}")


def terminated_at(number: int, body: Callable[[], object]) -> int:
    """Let it have SIGTERM before the statement of this number; a commit is one."""

    def in_the_child() -> None:
        begun = count(1)

        def on_statement(*_arguments) -> None:
            if next(begun) == number:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_listening(*_arguments, **_options) -> None:
            raise SystemExit(LISTENED)

        event.listen(Engine, "before_cursor_execute", on_statement)
        event.listen(Engine, "commit", on_statement)
        daemon.create_server = on_listening
        body()

    return in_child(in_the_child)


@copies_of("0003")
def test_sigterm_during_a_migration_ends_the_daemon_cleanly(copies, tmp_path, capfd):
    folders = [f"--{name}-dir={tmp_path / name}" for name in ("state", "run", "etc")]

    def serve(path):
        options = [*folders, f"--database=sqlite:///{path}", "--libvirt-uri=test:///default"]
        daemon.serve(load(argument_parser().parse_args(options)))

    # The difference is in which phase of a start it is heard, and each has many statements.
    for number in count(1, 5):
        path = copies.new()
        ended = terminated_at(number, lambda path=path: serve(path))
        if ended == LISTENED:
            break
        assert ended == 0
        # Once migrated, the daemon may have put its own class.
        assert state(path)[:2] in (copies.before[:2], copies.after[:2])
        assert_next_start_completes(path, copies)
    assert number > 10
    assert "Traceback" not in capfd.readouterr().err
