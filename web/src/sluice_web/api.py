# SPDX-License-Identifier: GPL-2.0-or-later
"""REST under /api/v1: the controller's API for users with a session or a token.

The role is checked here. The request then goes on as it came, because the controller alone
knows its members, and the controller's answer comes back as it is.
"""

import json
from contextlib import ExitStack
from typing import Any

from flask import Blueprint, Response, current_app, g, jsonify, request

from .auth import check_csrf, check_role, not_allowed, not_signed_in, still_held
from .controller import EVENTS_TYPE, Answer, Controller, path_of
from .live import LiveHub, passed_on
from .openapi import of_the_page
from .problems import Problem, bad_value
from .views import without_arguments

blueprint = Blueprint("api", __name__, url_prefix="/api/v1")
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")
MAX_NAME_CHARACTERS = 255
# Headers that belong to a request and to an answer of the API.
ASKED = ("Content-Type", "If-Match", "Last-Event-ID")
ANSWERED = ("ETag",)


def controller() -> Controller:
    """The application's client."""
    return current_app.extensions["sluice_controller"]


def all_domains() -> tuple[list[dict], dict | None]:
    """All VMs; or none, and the problem with libvirt."""
    try:
        return controller().get("/v1/domains"), None
    except Problem as problem:
        if problem.status != 503 or problem.body["type"].startswith("/problems/controller"):
            raise
        return [], problem.body


def check_argument(name: str, value: str) -> None:
    """Raise Problem unless a part of a path can be a name."""
    if not value.isprintable() or value in ("", ".", "..") or len(value) > MAX_NAME_CHARACTERS:
        raise bad_value(name, value, f"give at most {MAX_NAME_CHARACTERS} printable characters")


def _asked_headers() -> dict[str, str]:
    """The headers that go on; raises Problem for a value that HTTP cannot carry."""
    asked = {name: request.headers[name] for name in ASKED if name in request.headers}
    for name, value in asked.items():
        if not (value.isascii() and value.isprintable()):
            raise bad_value(name, value, "give printable ASCII characters")
    return asked


def role_of(method: str, parts: list[str]) -> str:
    """Looking needs less than changing; a preview, which costs, is none of looking."""
    if (method, parts[0]) == ("POST", "nightly"):
        return "host"
    return "viewer" if method in ("GET", "HEAD") else "operator"


def _check_right(parts: list[str]) -> None:
    if g.person is None:
        raise not_signed_in()
    is_report = request.method == "POST" and parts[::2] == ["streams", "reports"]
    if is_report and len(parts) == 3 and g.person.may_report(parts[1]):
        return
    role = role_of(request.method, parts)
    if role == "host":
        raise not_allowed(g.person, role, "a nightly result, which the run on the host posts,")
    check_role(role)


@blueprint.route("/<path:path>", methods=METHODS)
def forward(path: str) -> Response:
    """Any call of the controller's API."""
    parts = path.split("/")
    _check_right(parts)
    check_csrf()
    for part in parts:
        check_argument("path", part)
    answer = controller().call(
        request.method,
        path_of(*parts),
        actor=g.person.actor,
        role=g.person.role,
        query=request.args.to_dict(),
        content=request.get_data(),
        headers=_asked_headers(),
    )
    return _answered(parts, answer)


def _answered(parts: list[str], answer: Answer) -> Response:
    body = answer.body
    if _hides_arguments(parts) and answer.status == 200:
        body = json.dumps(without_arguments(answer.json()))
    response = Response(body, answer.status, content_type=answer.content_type)
    response.headers["Cache-Control"] = "no-store"
    response.headers.update({n: answer.headers[n] for n in ANSWERED if n in answer.headers})
    return response


@blueprint.get("/events")
def events() -> Response:
    """The controller's events, which may go on; a place among the pages that get live data."""
    _check_right(["events"])
    if request.method == "HEAD":
        return Response(content_type=EVENTS_TYPE)
    still_allowed = still_held()
    hub: LiveHub = current_app.extensions["sluice_hub"]
    with ExitStack() as held:
        seat = hub.subscribe(frozenset(), g.person.name)
        held.callback(hub.unsubscribe, seat)
        answer = controller().stream(
            path_of("events"),
            actor=g.person.actor,
            role=g.person.role,
            query=request.args.to_dict(),
            headers=_asked_headers(),
        )
        if isinstance(answer, Answer):
            return _answered(["events"], answer)
        held.callback(answer.close)
        is_gone = request.environ.get("waitress.client_disconnected", lambda: False)
        response = Response(
            passed_on(answer.pieces(), still_allowed, is_gone),
            content_type=EVENTS_TYPE,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        response.call_on_close(held.pop_all().close)
        return response


def _hides_arguments(parts: list[str]) -> bool:
    """Command lines are an operator's to read."""
    return parts[::2] == ["domains", "processes"] and not g.person.may("operator")


@blueprint.get("/openapi.json")
def openapi() -> Response:
    """The API's description; needs no sign-in, as it holds nothing of this host."""
    document: dict[str, Any] = controller().get("/v1/openapi.json")
    return jsonify(of_the_page(document, request.script_root + blueprint.url_prefix, role_of))
