# SPDX-License-Identifier: GPL-2.0-or-later
"""API tokens: their rights and their end. Pure but for random numbers."""

import re
import secrets
import string
from dataclasses import dataclass

from . import formatting
from .problems import bad_value

TOKEN_PREFIX = "slc_"
REPORTER = "reporter"
SCOPES = {
    "viewer": "sees what its owner sees, changes nothing",
    REPORTER: "reports one stream's quality, and nothing else",
    "operator": "sees and changes shaping",
}
DAY_SECONDS = 86_400
USUAL_DAYS, MOST_DAYS = 90, 3650
NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
STREAM_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


@dataclass(frozen=True)
class TokenTerms:
    """The rights of a token and its end: seconds since the epoch, or None for ever."""

    scope: str
    stream: str | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        """Raises Problem (422) of terms that do not go together."""
        if self.scope not in SCOPES:
            raise bad_value("token scope", self.scope, f"use one of {', '.join(SCOPES)}")
        if self.scope == REPORTER and not re.fullmatch(STREAM_NAME, self.stream or ""):
            raise bad_value("stream", self.stream, "a reporter needs the name of its stream")
        if self.scope != REPORTER and self.stream is not None:
            raise bad_value("stream", self.stream, f"only the scope {REPORTER} takes a stream")

    def described(self) -> str:
        """The terms in words, for the audit."""
        what = f"{self.scope} of {self.stream}" if self.stream else self.scope
        return f"{what}, {until(self.expires_at)}"


def until(expires_at: float | None) -> str:
    """The end of a token, in words."""
    return "no end" if expires_at is None else f"until {formatting.iso(expires_at)}"


def expiry(days: int | None, now: float) -> float | None:
    """When a token of so many days expires; None: never. Raises Problem (422)."""
    if days is None:
        return None
    if not 1 <= days <= MOST_DAYS:
        raise bad_value("days", days, f"give 1 to {MOST_DAYS}, or no end at all")
    return now + days * DAY_SECONDS


def owner_must(scope: str) -> str:
    """The role that the owner of a token needs. Reporting is an operator's."""
    return "viewer" if scope == "viewer" else "operator"


def check_label(label: str) -> None:
    """Raise Problem unless a token may be called so."""
    if not 1 <= len(label) <= 32 or not set(label) <= NAME_CHARACTERS:
        raise bad_value(
            "token label", label, "use 1 to 32 letters, digits, dots, dashes or underscores"
        )


def new_token() -> str:
    """256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)
