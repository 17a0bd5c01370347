# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes back what a migration left half done.

Migrations to SQLite were no transactions at first: one that was killed, or found
the disk full, left some of its tables or columns behind under the version of
before, and failed on them at each later start. Nothing had used them yet, so
they go as long as they hold nothing, and the migration runs anew.
"""

from __future__ import annotations

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from ...domain.errors import Conflict

# A table, or a column of it.
Part = tuple[str, str | None]
VERSION_TABLE = "alembic_version"


def parts(connection: Connection) -> dict[Part, str | None]:
    """Every table and column, with the column's default."""
    found = inspect(connection)
    result: dict[Part, str | None] = {}
    for table in set(found.get_table_names()) - {VERSION_TABLE}:
        result[table, None] = None
        for column in found.get_columns(table):
            result[table, column["name"]] = column["default"]
    return result


def _refuse_rows(connection: Connection, table: str, column: str | None, default: str) -> None:
    differs = f'WHERE "{column}" IS NOT {default}' if column else ""
    if connection.scalar(text(f'SELECT 1 FROM "{table}" {differs} LIMIT 1')) is None:
        return
    raise Conflict(
        "database",
        connection.engine.url.render_as_string(hide_password=True),
        f"has rows in {f'{table}.{column}' if column else table}, which its version has not",
        "put a backup of it in its place, or move it away to start without one",
    )


def take_back(connection: Connection, added: set[Part]) -> None:
    """Removes what is there of these parts, which the next migration adds.

    Conflict if one of them was used.
    """
    left = {part: default for part, default in parts(connection).items() if part in added}
    tables = sorted(table for table, column in left if column is None)
    columns = sorted((t, c) for t, c in left if c is not None and t not in tables)
    for table in tables:
        _refuse_rows(connection, table, None, "")
    for table, column in columns:
        _refuse_rows(connection, table, column, left[table, column] or "NULL")
    for table in tables:
        connection.execute(text(f'DROP TABLE "{table}"'))
    for table, column in columns:
        connection.execute(text(f'ALTER TABLE "{table}" DROP COLUMN "{column}"'))
