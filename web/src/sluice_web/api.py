# SPDX-License-Identifier: GPL-2.0-or-later
"""REST under /api/v1: the controller's API for users with a session or a token.

A thin proxy: who asks is checked, path and body are checked, then the request
goes on to the controller and its answer comes back as it is.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, current_app, g, jsonify, request

from .auth import check_csrf, check_role, not_signed_in
from .controller import Controller, path_of
from .openapi import document
from .operations import OPERATIONS, Operation
from .problems import Problem, bad_value
from .schemas import RESOURCES, check_body, check_ceiling, nests_beyond, not_json
from .views import without_arguments

blueprint = Blueprint("api", __name__, url_prefix="/api/v1")
MAX_NAME_CHARACTERS = 255
LIMIT_MAX = 10_000
# No body of the API nests more than five deep; what is beyond breaks what looks at it.
MAX_NESTING = 16


def controller() -> Controller:
    """The application's client."""
    return current_app.extensions["sluice_controller"]


def all_domains() -> tuple[list[dict], dict | None]:
    """All VMs; or none, and what keeps libvirt from being asked."""
    try:
        return controller().get("/v1/domains"), None
    except Problem as problem:
        if problem.status != 503 or problem.body["type"].startswith("/problems/controller"):
            raise
        return [], problem.body


def check_argument(name: str, value: str) -> None:
    """Raise Problem unless a path argument can be what its name says."""
    if name == "resource" and value not in RESOURCES:
        raise bad_value("resource", value, f"use one of {', '.join(RESOURCES)}")
    if name == "pid" and not re.fullmatch(r"[1-9][0-9]{0,9}", value):
        raise bad_value("pid", value, "give a process id, a positive whole number")
    if name == "night" and not re.fullmatch(r"[1-9][0-9]{0,9}", value):
        raise bad_value("night", value, "give the id of a nightly result, a whole number")
    if not value.isprintable() or value in (".", "..") or len(value) > MAX_NAME_CHARACTERS:
        raise bad_value(name, value, f"give at most {MAX_NAME_CHARACTERS} printable characters")


def check_query(operation: Operation) -> dict[str, str]:
    """The query's known members, checked; an unknown one is an error."""
    query = request.args.to_dict()
    for name, value in query.items():
        if name not in operation.query:
            known = ", ".join(operation.query) or "no parameter"
            raise bad_value(f"parameter {name}", value, f"this call takes {known}")
        if name == "limit" and not (
            re.fullmatch("[0-9]{1,6}", value) and 1 <= int(value) <= LIMIT_MAX
        ):
            raise bad_value("limit", value, f"give a whole number from 1 to {LIMIT_MAX}")
        if name in ("since", "step") and not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", value):
            raise bad_value(name, value, "give seconds as a number")
    return query


def read_body(operation: Operation) -> Any:
    """The request's JSON, checked against the operation's schema."""
    if operation.body is None and not operation.takes_ceiling:
        return None
    if not request.data and operation.method == "POST":
        data: Any = {}
    elif not request.is_json:
        raise not_json(f"Content-Type {request.content_type or 'missing'}")
    else:
        data = _shallow_json()
        if data is None:
            raise not_json("invalid JSON, or null")
    if operation.takes_ceiling:
        check_ceiling(data)
    else:
        check_body(operation.body(), data)
    for member in operation.admin_members:
        if member in data:
            check_role("admin", member)
    return data


def _shallow_json() -> Any:
    """The body, or None if it is no JSON; raises Problem if it nests deep."""
    try:
        data = request.get_json(silent=True)
        deep = nests_beyond(data, MAX_NESTING)
    except RecursionError:
        deep = True
    if deep:
        shown = request.data[:60].decode("utf-8", "replace")
        raise bad_value("body", shown, f"nest at most {MAX_NESTING} lists and objects")
    return data


def _view(operation: Operation) -> Callable:
    parts = [part for part in operation.path.split("/") if part]

    def forward(**arguments: str) -> Response:
        if g.person is None:
            raise not_signed_in()
        if not (operation.is_report and g.person.may_report(arguments["stream"])):
            check_role(operation.role)
        check_csrf()
        for name, value in arguments.items():
            check_argument(name, value)
        filled = [arguments[p[1:-1]] if p.startswith("{") else p for p in parts]
        answer = controller().call(
            operation.method,
            path_of(*filled),
            actor=g.person.actor,
            query=check_query(operation),
            body=read_body(operation),
        )
        body = answer.body
        if operation.lists_processes and answer.status == 200 and not g.person.may("operator"):
            body = json.dumps(without_arguments(answer.json()))
        response = Response(body, answer.status, content_type=answer.content_type)
        response.headers["Cache-Control"] = "no-store"
        return response

    return forward


for _operation in OPERATIONS:
    blueprint.add_url_rule(
        _operation.path.replace("{", "<").replace("}", ">"),
        _operation.name,
        _view(_operation),
        methods=[_operation.method],
    )


@blueprint.get("/openapi.json")
def openapi() -> Response:
    """The API's description; needs no sign-in, as it holds nothing of this host."""
    return jsonify(document())
