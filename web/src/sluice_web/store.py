# SPDX-License-Identifier: GPL-2.0-or-later
"""Users, their sessions, API tokens and the web's own events, in SQLite in the state folder.

Passwords are kept as argon2id hashes. Tokens and the ids of sessions are random
256-bit strings, so a plain SHA-256 of them is enough: there is nothing to guess.
"""

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHash, VerificationError
from sqlalchemy import Select, create_engine, delete, event, select
from sqlalchemy.orm import Session

from .migrate import BEGIN_CHANGE, upgrade
from .problems import Problem, bad_value
from .tables import Event, SignedIn, Token, User
from .tokens import (
    NAME_CHARACTERS,
    REPORTER,
    TokenTerms,
    check_label,
    new_token,
    owner_must,
)

ROLES = {
    "viewer": "sees everything, changes nothing",
    "operator": "sees and changes shaping",
    "admin": "sees and changes everything, users too",
}
PASSWORD_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: it is read off a screen
EVENTS_KEPT = 10_000
PASSWORD_MIN, PASSWORD_MAX = 10, 1024
SESSION_SECONDS = 12 * 3600
# argon2 takes 64 MiB and all processors for each password: the host has guests to run.
HASHES_AT_ONCE, HASH_WAIT_SECONDS = 2, 10.0
# A password that waits holds a thread that could answer others meanwhile.
HASHES_WAITING = 4
LOCK_WAIT_SECONDS = 10.0
REFUSED = "sign-in refused"
REFUSALS_KEPT = 1000


@dataclass(frozen=True)
class Person:
    """A signed-in user, or a token: then ``role`` is its owner's, cut by the token's scope.

    ``stream`` is the stream that a token of scope reporter, which has no role, reports of.
    """

    name: str
    role: str
    epoch: int
    via_token: str | None = None
    stream: str | None = None

    @property
    def actor(self) -> str:
        """The name for the audit log."""
        return f"{self.name}/{self.via_token}" if self.via_token else self.name

    def may(self, role: str) -> bool:
        """True if this person's role includes ``role``."""
        order = list(ROLES)
        return self.role in order and order.index(self.role) >= order.index(role)

    def may_report(self, stream: str) -> bool:
        """True if this person may send reports of a stream's quality."""
        return self.may("operator") or (self.role == REPORTER and self.stream == stream)


def new_password() -> str:
    """Four groups of five characters: 98 bits, and easy to type."""
    groups = ("".join(secrets.choice(PASSWORD_ALPHABET) for _ in range(5)) for _ in range(4))
    return "-".join(groups)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Store:
    """All access to the web's database. Times come in as arguments."""

    def __init__(self, state_dir: Path, hasher: PasswordHasher | None = None) -> None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = state_dir / "web.sqlite"
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._hasher = hasher or PasswordHasher()
        self._hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)
        self._hash_places = threading.BoundedSemaphore(HASHES_AT_ONCE + HASHES_WAITING)
        self._engine = create_engine(
            f"sqlite:///{path}", connect_args={"timeout": LOCK_WAIT_SECONDS}
        )
        event.listen(self._engine, "connect", _set_pragmas)
        upgrade(self._engine, path)

    @contextmanager
    def _changing(self) -> Iterator[Session]:
        """A transaction whose rows stay as it has read them until it has changed them."""
        with Session(self._engine) as session, session.begin():
            session.execute(BEGIN_CHANGE)
            yield session

    def _rows(self, question: Select) -> list[dict]:
        with Session(self._engine) as session:
            return [dict(row) for row in session.execute(question).mappings()]

    @contextmanager
    def _hash_turn(self) -> Iterator[None]:
        if not self._hash_places.acquire(blocking=False):
            raise _too_many_passwords()
        try:
            if not self._hashing.acquire(timeout=HASH_WAIT_SECONDS):
                raise _too_many_passwords()
            try:
                yield
            finally:
                self._hashing.release()
        finally:
            self._hash_places.release()

    @cached_property
    def _nobody_hash(self) -> str:
        """Compared against when the user is unknown, so that both cost the same."""
        return self._hasher.hash(secrets.token_urlsafe(16))

    def _hash(self, password: str) -> str:
        check_new_password(password)
        with self._hash_turn():
            return self._hasher.hash(password)

    def has_users(self) -> bool:
        """False before the first start has made its admin."""
        with Session(self._engine) as session:
            return session.scalar(select(User.name).limit(1)) is not None

    def users(self) -> list[dict]:
        """All users, without anything secret."""
        return self._rows(select(User.name, User.role, User.created_at).order_by(User.name))

    def person(self, name: str) -> Person | None:
        """The user of that name."""
        with Session(self._engine) as session:
            user = session.get(User, name)
            return user and Person(user.name, user.role, user.epoch)

    def check_password(self, name: str, password: str) -> Person | None:
        """The user, if the password is theirs."""
        with Session(self._engine) as session:
            user = session.get(User, name)
            stored = user.password_hash if user else self._nobody_hash
            person = user and Person(user.name, user.role, user.epoch)
        try:
            with self._hash_turn():
                self._hasher.verify(stored, password[:PASSWORD_MAX])
        except (VerificationError, InvalidHash):
            return None
        return person

    def add_user(self, name: str, role: str, password: str, *, now: float, actor: str) -> None:
        """Make a user; raises Problem on a bad or taken name."""
        if not 1 <= len(name) <= 32 or not set(name) <= NAME_CHARACTERS:
            raise bad_value(
                "user name", name, "use 1 to 32 letters, digits, dots, dashes or underscores"
            )
        if role not in ROLES:
            raise bad_value("role", role, f"choose one of {', '.join(ROLES)}")
        password_hash = self._hash(password)
        with self._changing() as session:
            if session.get(User, name):
                raise Problem(
                    409,
                    "user-exists",
                    "The user exists",
                    f"User {name} exists already",
                    thing="user name",
                    value=name,
                    remedy="choose another name",
                )
            session.add(
                User(
                    name=name,
                    role=role,
                    password_hash=password_hash,
                    epoch=secrets.randbits(48),
                    created_at=now,
                )
            )
            session.add(Event(at=now, actor=actor, action="add user", thing=f"{name} ({role})"))

    def set_password(self, name: str, password: str, *, now: float, actor: str) -> None:
        """Replace a password; every session of that user ends."""
        password_hash = self._hash(password)
        with self._changing() as session:
            user = session.get(User, name) or _no_such("user", name)
            user.password_hash = password_hash
            user.epoch += 1
            session.execute(delete(SignedIn).where(SignedIn.user_name == name))
            session.add(Event(at=now, actor=actor, action="set password", thing=name))

    def remove_user(self, name: str, *, now: float, actor: str) -> None:
        """Remove a user with their sessions and tokens; the last admin stays."""
        with self._changing() as session:
            user = session.get(User, name) or _no_such("user", name)
            admins = session.scalars(select(User.name).where(User.role == "admin")).all()
            if admins == [name]:
                raise Problem(
                    409,
                    "last-admin",
                    "The last admin stays",
                    detail=f"User {name} is the only admin; make another one first.",
                    thing="user",
                    value=name,
                    remedy="make another admin first",
                )
            session.delete(user)
            session.add(Event(at=now, actor=actor, action="remove user", thing=name))

    def open_session(self, person: Person, *, now: float) -> str | None:
        """Begin a session and return its id, which only the browser has from then on.

        None if the person's password was replaced meanwhile, or they were removed.
        """
        session_id = secrets.token_urlsafe(32)
        with self._changing() as session:
            session.execute(delete(SignedIn).where(SignedIn.until <= now))
            user = session.get(User, person.name)
            if user is None or user.epoch != person.epoch:
                return None
            until = now + SESSION_SECONDS
            session.add(SignedIn(digest=_digest(session_id), user_name=user.name, until=until))
        return session_id

    def session_owner(self, session_id: str, *, now: float) -> Person | None:
        """Whose session this is, while it lasts."""
        with Session(self._engine) as session:
            found = session.get(SignedIn, _digest(session_id))
            if found is None or found.until <= now:
                return None
            user = session.get(User, found.user_name)
            return user and Person(user.name, user.role, user.epoch)

    def close_session(self, session_id: str) -> None:
        """End a session for every copy of its cookie."""
        with self._changing() as session:
            session.execute(delete(SignedIn).where(SignedIn.digest == _digest(session_id)))

    def add_token(self, name: str, label: str, terms: TokenTerms, *, now: float, actor: str) -> str:
        """Make an API token for a user and return it: it can never be read again."""
        check_label(label)
        token = new_token()
        with self._changing() as session:
            user = session.get(User, name) or _no_such("user", name)
            if not Person(name, user.role, user.epoch).may(owner_must(terms.scope)):
                raise bad_value(
                    "token scope",
                    terms.scope,
                    f"{name} is a {user.role}, and a token may do no more than its owner",
                )
            session.add(
                Token(
                    user_name=name,
                    label=label,
                    digest=_digest(token),
                    created_at=now,
                    scope=terms.scope,
                    stream=terms.stream,
                    expires_at=terms.expires_at,
                )
            )
            thing = f"{name}/{label} ({terms.described()})"
            session.add(Event(at=now, actor=actor, action="add token", thing=thing))
        return token

    def remove_token(self, token_id: int, *, now: float, actor: str) -> None:
        """Revoke a token at once."""
        with self._changing() as session:
            token = session.get(Token, token_id) or _no_such("token", str(token_id))
            thing = f"{token.user_name}/{token.label}"
            session.delete(token)
            session.add(Event(at=now, actor=actor, action="remove token", thing=thing))

    def tokens(self) -> list[dict]:
        """All tokens, without the tokens themselves."""
        owner = Token.user_name.label("user")
        terms = Token.scope, Token.stream, Token.created_at, Token.expires_at
        return self._rows(select(Token.id, owner, Token.label, *terms).order_by(owner, Token.id))

    def token_owner(self, token: str, *, now: float) -> Person | None:
        """The person of a bearer token, with the token's role, while it lasts."""
        with Session(self._engine) as session:
            found = session.scalar(select(Token).where(Token.digest == _digest(token)))
            user = found and session.get(User, found.user_name)
            if user is None or (found.expires_at is not None and found.expires_at <= now):
                return None
            owner = Person(user.name, user.role, user.epoch)
            allowed = owner.may(owner_must(found.scope))
            # A reporter's token gains nothing where its owner has lost the right to report.
            role = found.scope if allowed or found.scope == REPORTER else owner.role
            stream = found.stream if allowed else None
            return Person(user.name, role, user.epoch, via_token=found.label, stream=stream)

    def token_end(self, token: str) -> tuple[str, float] | None:
        """``user/label`` of a token that is known, and when it expires."""
        with Session(self._engine) as session:
            found = session.scalar(select(Token).where(Token.digest == _digest(token)))
            if found is None or found.expires_at is None:
                return None
            return f"{found.user_name}/{found.label}", found.expires_at

    def record(self, at: float, actor: str, action: str, thing: str) -> None:
        """Add to the web's own events, of which the newest stay.

        A refused sign-in is such an event, and any visitor can cause it.
        """
        added = Event(at=at, actor=actor, action=action, thing=thing)
        with self._changing() as session:
            session.add(added)
            session.flush()
            session.execute(delete(Event).where(Event.id <= added.id - EVENTS_KEPT))

    def record_refusal(self, at: float, address: str, name: str) -> None:
        """Add a refused sign-in; the oldest of many go, as anybody can cause them.

        A name that no user has may be a password, typed into the wrong field.
        """
        old = (
            select(Event.id)
            .where(Event.action == REFUSED)
            .order_by(Event.id.desc())
            .offset(REFUSALS_KEPT - 1)
            .limit(1)
        )
        with self._changing() as session:
            thing = name if session.get(User, name) else "an unknown user"
            oldest = session.scalar(old)
            if oldest is not None:
                gone = delete(Event).where(Event.action == REFUSED, Event.id <= oldest)
                session.execute(gone)
            session.add(Event(at=at, actor=address, action=REFUSED, thing=thing))

    def events(self, limit: int) -> list[dict]:
        """The newest events, shaped like the controller's audit rows."""
        newest = select(Event.at, Event.actor, Event.action, Event.thing).order_by(Event.id.desc())
        return [{**row, "before": None, "after": None} for row in self._rows(newest.limit(limit))]


def check_new_password(password: str) -> None:
    """Raise Problem unless the password may be used. Its value is never repeated."""
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise bad_value(
            "password",
            f"{len(password)} characters",
            f"use {PASSWORD_MIN} to {PASSWORD_MAX} characters",
        )


def _too_many_passwords() -> Problem:
    return Problem(
        503,
        "busy",
        "Too many passwords at once",
        f"{HASHES_AT_ONCE} passwords are checked at a time, and at most {HASHES_WAITING} wait",
        thing="passwords at once",
        value=HASHES_AT_ONCE,
        remedy="try again in a minute",
        headers={"Retry-After": "60"},
    )


def _no_such(kind: str, name: str):
    raise Problem(
        404,
        f"no-such-{kind}",
        f"No such {kind}",
        f"There is no {kind} {name:.64}",
        thing=kind,
        value=name[:64],
        remedy="look at the list on the users page",
    )


def _set_pragmas(connection, _record) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
