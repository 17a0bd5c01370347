# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors, in words by which the operator can act.

Every refusal names a thing (which field or object), its value, and a remedy.
The entry points translate: the API to problem+json, the CLI to stderr.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_SHOWN = 200
# Of an object in JSON; a longer one is shown as text.
LONGEST_OBJECT = 1000
# No number that makes sense has more digits.
MOST_DIGITS_SHOWN = 40


def shortened(text: str, most: int = LONGEST_SHOWN) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable(value: Any) -> Any:
    """The value as strict JSON can carry it, at a length that can be read.

    NaN, unknown types and numbers of very many digits become text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(10**MOST_DIGITS_SHOWN) < value < 10**MOST_DIGITS_SHOWN:
        return shortened(_digits(value), MOST_DIGITS_SHOWN)
    if isinstance(value, str):
        return shortened(value)
    text = ""
    try:
        # Written piece by piece: a request's object may have mebibytes, and is said twice.
        for piece in json.JSONEncoder(allow_nan=False).iterencode(value):
            text += piece
            if len(text) > LONGEST_OBJECT:
                return shortened(text)
    except (TypeError, ValueError):
        return shortened(str(value))
    return value


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        # Python writes no number of more than 4300 digits.
        return f"a number of {value.bit_length()} bits"


def command(*words: Any) -> str:
    """A command line for a remedy: names are quoted where a shell would take them apart."""
    return shlex.join(map(str, words))


def sluice(*words: Any) -> str:
    return command("sluice", *words)


class SluiceError(Exception):
    """A refused request. `problem` continues "THING VALUE …"."""

    slug = "error"
    title = "Error"
    status = 500

    def __init__(self, thing: str, value: Any, problem: str, remedy: str) -> None:
        self.thing = thing
        self.value = printable(value)
        self.problem = problem
        self.remedy = remedy
        super().__init__(self.detail)

    def inside(self, path: str) -> SluiceError:
        """This refusal of something that lies at `path` in a larger document."""
        self.thing = ".".join(filter(None, (path, self.thing)))
        self.args = (self.detail,)
        return self

    @property
    def detail(self) -> str:
        shown = self.value if isinstance(self.value, str) else json.dumps(self.value)
        if isinstance(self.value, str):
            shown = f"'{shown}'"
        return f"{self.thing} {shown} {self.problem}: {self.remedy}"

    def as_problem(self) -> dict[str, Any]:
        return {
            "type": f"/problems/{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "thing": self.thing,
            "value": self.value,
            "remedy": self.remedy,
        }


class Unauthorised(SluiceError):
    slug, title, status = "unauthorised", "No or wrong token", 401


class Forbidden(SluiceError):
    slug, title, status = "forbidden", "Not allowed", 403


class NotFound(SluiceError):
    slug, title, status = "not-found", "No such thing", 404


class Conflict(SluiceError):
    slug, title, status = "conflict", "Conflicts with the present state", 409


class Changed(SluiceError):
    slug, title, status = "precondition-failed", "Changed meanwhile", 412


class BadValue(SluiceError):
    slug, title, status = "bad-value", "Bad value", 422


class Unavailable(SluiceError):
    slug, title, status = "unavailable", "Cannot be reached", 503


class StoreUnavailable(SluiceError):
    """Apart from Unavailable, which tells changes of domains that libvirt is away."""

    slug, title, status = "unavailable", "Cannot be reached", 503


@contextmanager
def within(path: str) -> Iterator[None]:
    """A refusal in this block names its place in a larger document."""
    try:
        yield
    except SluiceError as error:
        raise error.inside(path) from error.__cause__
