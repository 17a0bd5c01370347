# SPDX-License-Identifier: GPL-2.0-or-later
"""The migration: killed at a statement, and databases that are refused."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.cards import Card
from sluice_controller.domain.errors import Conflict
from sluice_controller.domain.model import ShapingClass, Stream
from sluice_controller.entry import daemon
from sluice_controller.entry.config import argument_parser, load

# Far beyond what a busy machine needs; a child that hangs ends then.
DEADLINE_S = 600
FIRST_VERSION = Path(__file__).with_name("database_initial.sql")


def migrated(path: Path) -> None:
    SqlStore(f"sqlite:///{path}").close()


def state(path: Path) -> tuple[list, list]:
    """Schema and version, as SQLite has them."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        known = any(name == "alembic_version" for name, _sql in schema)
        version = connection.execute("SELECT * FROM alembic_version").fetchall() if known else []
    return schema, version


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


def signalled_at(statement: str, number: signal.Signals, body: Callable[[], object]) -> int:
    """How a child ended that got the signal as this statement was about to begin."""

    def send(text: str) -> None:
        if text.strip().startswith(statement):
            os.kill(os.getpid(), number)

    def in_the_child() -> None:
        # A handler's exception is heeded here; in a callback of SQLite it is not.
        event.listen(Engine, "before_cursor_execute", lambda _c, _cursor, text, *_: send(text))
        event.listen(Engine, "commit", lambda _connection: send("COMMIT"))
        body()

    return in_child(in_the_child)


# The first of the transaction, one in its middle, the version, the end.
STATEMENTS = (
    "CREATE TABLE alembic_version",
    "CREATE TABLE grants",
    "INSERT INTO alembic_version",
    "COMMIT",
)


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "sluice.db"
    migrated(path)
    return state(path)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_kill_leaves_nothing_behind_and_the_next_start_completes(tmp_path, after, statement):
    path = tmp_path / "sluice.db"
    ended = signalled_at(statement, signal.SIGKILL, lambda: migrated(path))
    assert ended == -signal.SIGKILL
    assert state(path) == ([], [])
    store = SqlStore(f"sqlite:///{path}")
    assert state(path) == after
    with store.transaction() as unit:
        unit.put_class(ShapingClass("new", "New"))
    store.close()


def test_sigterm_during_the_migration_ends_the_daemon_cleanly(tmp_path, after, capfd):
    path = tmp_path / "sluice.db"
    folders = [f"--{name}-dir={tmp_path / name}" for name in ("state", "run", "etc")]
    options = [*folders, f"--database=sqlite:///{path}", "--libvirt-uri=test:///default"]
    config = load(argument_parser().parse_args(options))
    assert signalled_at(STATEMENTS[1], signal.SIGTERM, lambda: daemon.serve(config)) == 0
    assert state(path) in (([], []), after)
    assert "Traceback" not in capfd.readouterr().err
    migrated(path)
    assert state(path) == after


def columns(path: Path) -> dict[str, set]:
    """Of each table: name, type and whether it may be NULL; in any order."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            'SELECT m.name, c.name, c.type, c."notnull" FROM sqlite_master m'
            " JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
        ).fetchall()
    tables: dict[str, set] = {}
    for table, *column in found:
        tables.setdefault(table, set()).add(tuple(column))
    return tables


@pytest.fixture
def of_first_version(tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_VERSION.read_text())
    return path


def test_a_database_of_the_first_version_gets_the_columns_of_a_new_one(of_first_version, tmp_path):
    migrated(tmp_path / "new.db")
    migrated(of_first_version)
    assert columns(of_first_version) == columns(tmp_path / "new.db")
    assert state(of_first_version)[1] == state(tmp_path / "new.db")[1]


def test_a_domain_of_the_first_version_has_no_cards_and_takes_some(of_first_version):
    store = SqlStore(f"sqlite:///{of_first_version}")
    with store.transaction() as unit:
        assert unit.all_cards() == {}
        assert unit.cards("media") == {}
        unit.put_cards("media", {"52:54:00:12:34:56": Card("both")})
    with store.transaction() as unit:
        assert unit.all_cards() == {"media": {"52:54:00:12:34:56": Card("both")}}
    store.close()


def test_a_stream_of_the_first_version_keeps_its_rate_and_may_have_none(of_first_version):
    with closing(sqlite3.connect(of_first_version)) as connection, connection:
        connection.execute("INSERT INTO classes VALUES ('default', 'Default', 3, 0, 0, 100, 0)")
        connection.execute(
            "INSERT INTO streams (name, domain_id, class_name, nominal_bytes_per_second)"
            " SELECT 'film', id, 'default', 1.5e6 FROM domains WHERE name = 'media'"
        )
    store = SqlStore(f"sqlite:///{of_first_version}")
    film = Stream("film", "media", "default", 1.5e6)
    with store.transaction() as unit:
        assert unit.streams() == [film]
        unit.put_stream(replace(film, nominal_bytes_per_second=None))
    with store.transaction() as unit:
        assert unit.streams() == [Stream("film", "media", "default")]
    store.close()


def test_a_kill_leaves_a_database_of_the_first_version_as_it_was(of_first_version):
    before = state(of_first_version)
    for statement in (
        "ALTER TABLE domains",
        "DROP TABLE streams",
        "UPDATE alembic_version",
        "COMMIT",
    ):
        ended = signalled_at(statement, signal.SIGKILL, lambda: migrated(of_first_version))
        assert ended == -signal.SIGKILL
        assert state(of_first_version) == before


@pytest.mark.parametrize("version", ["0006", "9999"])
def test_the_database_of_another_sluiced_is_refused_and_left_alone(tmp_path, version):
    path = tmp_path / "sluice.db"
    migrated(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    before = state(path)
    with pytest.raises(Conflict) as refusal:
        migrated(path)
    assert str(refusal.value) == (
        f"database 'sqlite:///{path}' is of version {version}, which this sluiced does not know:"
        " install the sluiced that made it, or move it away to start without one"
    )
    assert state(path) == before


def test_tables_without_a_version_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "sluice.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE audit (id INTEGER)")
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    before = state(path)
    with pytest.raises(Conflict) as refusal:
        migrated(path)
    assert str(refusal.value) == (
        f"database 'sqlite:///{path}' has the tables audit, but no version:"
        " put a backup of it in its place, or move it away to start without one"
    )
    assert state(path) == before
