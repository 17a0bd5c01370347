# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the database to the newest version; the daemon does so at each start."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.engine import Connection, Engine

from ...domain.errors import Conflict
from .tables import Base

MOVE_AWAY = "move it away to start without one"


def upgrade(engine: Engine) -> None:
    """All missing migrations with the version that they lead to, or none of them.

    A new database gets the tables of today, and the version of the newest migration.
    Raises Conflict for a database of a version that is unknown here.
    """
    config = Config()
    folder = resources.files(__package__).joinpath("migrations")
    config.set_main_option("script_location", str(folder))
    scripts = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        version = MigrationContext.configure(connection).get_current_revision()
        if version == scripts.get_current_head():
            return
        _refuse_unknown(connection, version, scripts)
        config.attributes["connection"] = connection
        if version is None:
            Base.metadata.create_all(connection)
            command.stamp(config, "head")
        else:
            command.upgrade(config, "head")


def _refuse_unknown(connection: Connection, version: str | None, scripts: ScriptDirectory) -> None:
    if version is None:
        tables = Base.metadata.tables.keys() & inspect(connection).get_table_names()
        if not tables:
            return
        problem = f"has the tables {', '.join(sorted(tables))}, but no version"
        remedy = f"put a backup of it in its place, or {MOVE_AWAY}"
    elif version not in {script.revision for script in scripts.walk_revisions()}:
        problem = f"is of version {version}, which this sluiced does not know"
        remedy = f"install the sluiced that made it, or {MOVE_AWAY}"
    else:
        return
    url = connection.engine.url.render_as_string(hide_password=True)
    raise Conflict("database", url, problem, remedy)
