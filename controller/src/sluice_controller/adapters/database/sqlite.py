# SPDX-License-Identifier: GPL-2.0-or-later
"""How SQLite is used: settings of a connection, and where transactions begin.

Python's driver begins transactions by itself, but only before statements that change rows: a
migration's change of the schema would be in force at once, without the version row of it. Here
SQLAlchemy decides when to begin, and all statements until its commit are one transaction.

Each begins as a writer (IMMEDIATE), even if it only reads. A transaction that begins as a
reader and then writes is refused at once, without a wait, when another process has written in
between; and if two processes start on one database, the second must not read the version before
the first has migrated. In this process units of work queue anyway, and with WAL a writer stops
no reader.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

# For another process that has the database.
BUSY_SECONDS = 30
# Readers beside one writer, and no wait for the disk on each sample.
PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")


def _on_connect(connection: Any, _record: Any) -> None:
    if hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"):
        # Since Python 3.12 the next line has no effect with another value, and
        # which one is the default may change.
        connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def tune(engine: Engine) -> None:
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
