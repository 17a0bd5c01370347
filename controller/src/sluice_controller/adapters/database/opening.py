# SPDX-License-Identifier: GPL-2.0-or-later
"""Opening the store, or one line about why it cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from ...domain.errors import BadValue, Unavailable
from .store import PASSING, SqlStore


def _shown(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "…"


def _with_driver(url: str) -> str:
    """From 2.1 on, SQLAlchemy takes another driver for postgresql:// than before: ours stays."""
    if make_url(url).drivername != "postgresql":
        return url
    chosen = make_url(url).set(drivername="postgresql+psycopg2")
    return chosen.render_as_string(hide_password=False)


def open_store(url: str) -> SqlStore:
    """The store of this database.

    With the reason, Unavailable if it cannot be used now, BadValue if it never can.
    """
    with _told_in_a_line(url):
        return SqlStore(_with_driver(url))


def check_url(url: str) -> None:
    """Raises BadValue for a URL that is none, or whose driver is missing; connects to nothing."""
    with _told_in_a_line(url):
        create_engine(_with_driver(url))


@contextmanager
def _told_in_a_line(url: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise BadValue(
            "database",
            _shown(url),
            f"needs Python's {error.name}",
            "install it (python3-psycopg2 for postgresql)",
        ) from error
    except SQLAlchemyError as error:
        # SQLAlchemy adds the statement and a link; the first line has the reason.
        reason = str(error).splitlines()[0]
        kind = Unavailable if isinstance(error, PASSING) else BadValue
        raise kind(
            "database",
            _shown(url),
            f"cannot be used ({reason})",
            "see that it is there, lets sluiced in, and that the unit may reach it"
            " (RestrictAddressFamilies= in sluiced.toml(5))",
        ) from error
