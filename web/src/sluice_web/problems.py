# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors that name the thing, the value and the remedy (RFC 9457)."""

import json
from typing import Any

from flask import Response, request

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An error for people; becomes problem+json in the API and a page elsewhere."""

    def __init__(self, status: int, slug: str, title: str, said: str = "", **members: Any) -> None:
        """``members``: detail, thing, value, remedy, and others.

        ``said`` is a detail that lacks its end: the remedy is added.
        """
        if said:
            members = {"detail": f"{said}; {members['remedy']}.", **members}
        super().__init__(members.get("detail") or title)
        self.status = status
        self.headers: dict[str, str] = members.pop("headers", {})
        self.body = {"type": f"/problems/{slug}", "title": title, "status": status, **members}

    def response(self) -> Response:
        """The problem as a response."""
        answer = Response(json.dumps(self.body), self.status, content_type=MEDIA_TYPE)
        answer.headers.update(self.headers)
        return answer


def for_a_program(usual: bool = True) -> bool:
    """Programs get problem+json, browsers get a page; ``usual`` if the request has no Accept."""
    if request.path.startswith(("/api/", "/events")):
        return True
    said = request.accept_mimetypes
    return not said.accept_html if said else usual


def _shown(value: Any) -> Any:
    """A number as JSON can carry it and people can read it; anything else as text."""
    if isinstance(value, (int, float)):
        # Never true of NaN.
        return value if abs(value) < 1e40 else str(value)
    return repr(value)


def bad_value(thing: str, value: Any, remedy: str) -> Problem:
    """422: a value that cannot be taken."""
    shown = value if value is None or isinstance(value, (str, bool)) else _shown(value)
    return Problem(
        422,
        "bad-value",
        "Bad value",
        f"{thing}: {shown!s:.200} cannot be used",
        thing=thing,
        value=shown if not isinstance(shown, str) else shown[:200],
        remedy=remedy,
    )
