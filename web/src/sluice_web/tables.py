# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of the web's own database. `migrations` brings an older one to these."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Tables of the web's own database."""


class User(Base):
    """A person that may sign in.

    ``epoch`` rises with each password, so that no session begins with a password that was just
    replaced. It begins anywhere: a later user of that name has another.
    """

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    password_hash: Mapped[str]
    epoch: Mapped[int]
    created_at: Mapped[float]


class SignedIn(Base):
    """A session: its id stands for this user until then. Signing out takes the row away."""

    __tablename__ = "sessions"
    digest: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    until: Mapped[float]


class Token(Base):
    """An API token; the token itself was shown once.

    ``scope`` is one of `tokens.SCOPES`, ``stream`` is a reporter's stream;
    ``expires_at`` is None of a token that does not expire by itself.
    """

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"))
    label: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[float]
    scope: Mapped[str]
    stream: Mapped[str | None]
    expires_at: Mapped[float | None]


class Event(Base):
    """Something that happened to users and tokens."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    thing: Mapped[str]
