# SPDX-License-Identifier: GPL-2.0-or-later
"""The SQL database behind the services: SQLAlchemy models, Alembic migrations."""

from .opening import open_store
from .store import SqlStore

__all__ = ["SqlStore", "open_store"]
