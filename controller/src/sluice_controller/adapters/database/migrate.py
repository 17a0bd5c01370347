# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the database to the newest version; the daemon does so at each start."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection, Engine

from ...domain.errors import Conflict
from .half_done import Part, parts, take_back


def alembic_config() -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(resources.files(__package__).joinpath("migrations"))
    )
    return config


def migrate(connection: Connection, target: str) -> None:
    """To a version, "head" or "+1", in the transaction that the connection is in."""
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def upgrade(engine: Engine) -> None:
    """All missing migrations with the version that they lead to, or none of them."""
    with engine.begin() as connection:
        version = MigrationContext.configure(connection).get_current_revision()
        scripts = ScriptDirectory.from_config(alembic_config())
        if version == scripts.get_current_head():
            return
        _refuse_unknown(connection, version, scripts)
        if engine.dialect.name == "sqlite" and parts(connection):
            take_back(connection, _added_after(version))
        migrate(connection, "head")


def _refuse_unknown(connection: Connection, version: str | None, scripts: ScriptDirectory) -> None:
    if version is None or version in {script.revision for script in scripts.walk_revisions()}:
        return
    raise Conflict(
        "database",
        connection.engine.url.render_as_string(hide_password=True),
        f"is of version {version}, which this sluiced does not know",
        "install the sluiced that made it, or one that is newer",
    )


def _added_after(version: str | None) -> set[Part]:
    """What the migration after this version adds, seen in a database in memory."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        if version:
            migrate(connection, version)
        before = parts(connection)
        migrate(connection, "+1")
        added = set(parts(connection)) - set(before)
    engine.dispose()
    return added
