# SPDX-License-Identifier: GPL-2.0-or-later
"""The store in PostgreSQL: a server of the test's own, in a folder, on a UNIX socket."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database.tables import Base
from sluice_controller.domain.errors import StoreUnavailable
from sluice_controller.domain.model import Assignment, AuditEntry, ShapingClass

SAMPLES = {"batch/net-tx": [1.0, None, 0.0, None]}
NUMBERED = ("audit", "decisions", "history", "stream_reports")


def program(name: str) -> str:
    """Debian keeps a server's programs in a folder of their version."""
    found = [shutil.which(name), *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))]
    there = [str(path) for path in found if path]
    assert there, f"PostgreSQL's {name} is not installed: make test installs it, or apt does"
    return there[-1]


@pytest.fixture(scope="module")
def server_control():
    """The folder of its socket, and the command that starts and stops it."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    with tempfile.TemporaryDirectory(prefix="sluice-postgresql-") as folder:
        # It refuses to run as root.
        run = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if run:
            shutil.chown(folder, "postgres")
        control = [*run, pg_ctl, "-D", f"{folder}/data"]
        options = f"-c listen_addresses= -c fsync=off -k {folder}"
        create = [*run, initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "sluice"]
        subprocess.run(create, check=True)
        control += ["-w", "-l", f"{folder}/log", "-o", options, "-m", "immediate"]
        subprocess.run([*control, "start"], check=True)
        try:
            yield folder, control
        finally:
            subprocess.run([*control, "stop"], check=True)


@pytest.fixture(scope="module")
def server(server_control):
    """The folder of its socket."""
    return server_control[0]


@pytest.fixture
def url(server, request):
    """An empty database."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())[:60]
    place = {"host": server}
    everything = URL.create("postgresql+psycopg2", "sluice", database="postgres", query=place)
    engine = create_engine(everything, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return everything.set(database=name).render_as_string()


def put_all(store: SqlStore) -> None:
    """A row in each table whose numbers go on, and the largest start time."""
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        unit.put_class(ShapingClass("batch", "Batch"))
        unit.put_assignment(Assignment("media", 812, 2**63 - 1, "batch", 1.0, "b-1"))
        unit.add_audit(AuditEntry(1.0, "web:admin", "set class", "batch", None, {}))
        unit.add_history([(1.0, "media", SAMPLES)])
        unit.add_report("movie", 1.0, {"stalls": 0})
        unit.add_decision(1.0, {"sentence": "why"})


def nearly_used_up(store: SqlStore) -> None:
    with store.engine.begin() as connection:
        for table in NUMBERED:
            connection.execute(text(f"SELECT setval('{table}_id_seq', {2**31 - 2})"))


def test_migrations_lead_to_the_tables_of_the_code(url):
    store = SqlStore(url)
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    store.close()


def test_a_server_that_was_away_is_named_and_then_used_again(url, server_control):
    folder, control = server_control
    store = SqlStore(url)
    subprocess.run([*control, "stop"], check=True)
    try:
        with pytest.raises(StoreUnavailable, match=folder), store.transaction() as unit:
            unit.put_class(ShapingClass("batch", "Batch"))
    finally:
        subprocess.run([*control, "start"], check=True)
    put_all(store)
    # Nobody saw it go; what waits in the pool is of before.
    subprocess.run([*control, "restart"], check=True)
    put_all(store)
    with store.transaction() as unit:
        assert [c.name for c in unit.classes()] == ["batch"]
    store.close()


def test_numbers_of_rows_go_on_beyond_31_bits(url):
    store = SqlStore(url)
    nearly_used_up(store)
    for _ in range(3):
        put_all(store)
    with store.transaction() as unit:
        assert [entry.row_id for entry in unit.history("media", 0.0, 1e12, 9)][0] == 2**31 + 1
        assert [entry.actor for entry in unit.audit(9)] == 3 * ["web:admin"]
        assert unit.assignments("media")[0].start_time_ticks == 2**63 - 1
    store.close()
