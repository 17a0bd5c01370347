# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the web's database to the newest version, at each opening."""

from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

# Left to itself, a transaction of SQLite's driver begins with its first change only.
BEGIN_CHANGE = text("BEGIN IMMEDIATE")


def upgrade(engine: Engine, path: Path) -> None:
    """All missing migrations, or none; raises RuntimeError of an unknown version."""
    config = Config()
    folder = resources.files(__package__).joinpath("migrations")
    config.set_main_option("script_location", str(folder))
    scripts = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        # The service and a command may find an old database at the same time.
        connection.execute(BEGIN_CHANGE)
        found = MigrationContext.configure(connection).get_current_revision()
        if found == scripts.get_current_head():
            return
        known = {script.revision for script in scripts.walk_revisions()}
        is_empty = not inspect(connection).get_table_names()
        if not (is_empty if found is None else found in known):
            raise RuntimeError(
                f"{path} has the schema {found or 'of a version before migrations'}, which this"
                " sluice-web does not know; install the version of sluice-web that wrote it, or"
                " move the file away to start without users"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
