# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong, said so that the operator can act on it.

Every refusal names a thing (which field or object), its value, and a remedy.
The entry points translate: the API to problem+json, the CLI to stderr.
"""

from __future__ import annotations

import json
import math
from typing import Any


def printable(value: Any) -> Any:
    """The value as strict JSON can carry it: NaN and unknown types as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)[:200]
    return value[:200] if isinstance(value, str) else value


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


class NotFound(SluiceError):
    slug, title, status = "not-found", "No such thing", 404


class Conflict(SluiceError):
    slug, title, status = "conflict", "Conflicts with the present state", 409


class BadValue(SluiceError):
    slug, title, status = "bad-value", "Bad value", 422


class Unavailable(SluiceError):
    slug, title, status = "unavailable", "Cannot be reached", 503
