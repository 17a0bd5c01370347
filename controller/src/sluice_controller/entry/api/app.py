# SPDX-License-Identifier: GPL-2.0-or-later
"""The Flask application: authentication, errors as problem+json, the calls."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from ...domain.agent_messages import has_more_parts
from ...domain.errors import BadValue, NotFound, SluiceError, Unauthorised
from ...services.catalogue import ADMIN, NOBODY_ASKS, current_actor, current_role
from .calls import OPERATIONS
from .document import document
from .event_stream import MEDIA_TYPE, EventStream
from .operations import Answer, Operation

log = logging.getLogger(__name__)

OPENAPI_PATH = "/v1/openapi.json"
# A state of 200 domains that use each knob of 16 classes has 6 MB.
MAX_BODY_BYTES = 16 << 20
# It has some 300,000 commas and brackets. Their objects cost, and no tick runs while they are
# made: 16 MiB of brackets take 4 s, and 16 MiB of wrong numbers a minute.
MAX_PARTS = 500_000
# No body of the API nests more than five deep; what is beyond breaks what looks at it.
MAX_NESTING = 16


def problem(error: SluiceError) -> Response:
    response = jsonify(error.as_problem())
    response.status_code = error.status
    response.content_type = "application/problem+json"
    return response


def _check_token(token: str) -> Response | None:
    if request.path == OPENAPI_PATH:
        return None
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()):
        actor = request.headers.get("X-Sluice-Actor", "cli")
        current_actor.set(actor[:64] if actor.isprintable() else "cli")
        current_role.set(request.headers.get("X-Sluice-Role", ADMIN))
        return None
    return problem(
        Unauthorised(
            "Authorization header",
            scheme or "absent",
            "does not carry the API token",
            "send 'Authorization: Bearer TOKEN' with the token from the file api-token",
        )
    )


def _forget_actor(_error: BaseException | None) -> None:
    """The thread's next work may belong to no request."""
    current_actor.set(NOBODY_ASKS)
    current_role.set(ADMIN)


def nests_beyond(value: Any, most: int) -> bool:
    """True if lists and objects are inside each other more than ``most`` deep."""
    level = [value]
    for _ in range(most + 1):
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return False
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for children in inner for child in children]
    return True


def _check_body() -> Response | None:
    """A body that is absent, or not a JSON object, must not pass for an empty one."""
    if request.method not in ("PUT", "POST", "PATCH") or request.routing_exception is not None:
        return None
    shown, problem_words = request.mimetype, "is not application/json"
    if request.is_json:
        raw = request.get_data()
        try:
            if has_more_parts(raw, MAX_PARTS):
                raise OverflowError
            body = json.loads(raw)
            shown, problem_words = body, "is not an object"
            if nests_beyond(body, MAX_NESTING):
                raise RecursionError
        except (ValueError, RecursionError, OverflowError) as error:
            body = None
            shown = raw[:60].decode("utf-8", "replace")
            problem_words = f"is not JSON ({str(error)[:100]})"
            if isinstance(error, OverflowError):
                problem_words = f"has more than {MAX_PARTS} commas and brackets"
            if isinstance(error, RecursionError):
                problem_words = f"nests deeper than {MAX_NESTING} lists and objects"
        if isinstance(body, dict):
            return None
    return problem(BadValue("body", shown, problem_words, "send a JSON object as application/json"))


def _shape_error(error: HTTPException) -> SluiceError:
    """A refusal of Flask before a call, in our words."""
    if error.code == 404:
        return NotFound("path", request.path, "does not exist", f"see {OPENAPI_PATH} for the calls")
    shaped = BadValue(
        "request",
        f"{request.method} {request.path}",
        f"is refused ({error.name})",
        f"see {OPENAPI_PATH} for the calls and send JSON bodies as application/json",
    )
    shaped.status, shaped.title = error.code or 500, error.name
    shaped.slug = error.name.lower().replace(" ", "-")
    return shaped


def _internal_error() -> SluiceError:
    error = SluiceError(
        "request",
        f"{request.method} {request.path}",
        "failed inside sluiced",
        "see the daemon's log, and report it with what led to it",
    )
    error.slug, error.title = "internal", "Internal error"
    return error


def _view(services: Any, operation: Operation) -> Callable[..., Response]:
    def answer(**path: str) -> Response:
        body = request.get_json() if operation.body is not None else None
        asked = operation.asked(path, request.args.to_dict(), body, request.headers)
        said = operation.run(services, asked)
        said = said if isinstance(said, Answer) else Answer(said)
        status = said.status or operation.successes[-1]
        if said.stream is not None:
            return _streamed(said.stream)
        if status == 204:
            response = Response(status=204)
        elif said.text is not None:
            response = Response(said.text, status, mimetype="application/json")
        else:
            response = jsonify(said.value)
            response.status_code = status
        response.headers.update(said.headers)
        return response

    return answer


def _streamed(stream: EventStream) -> Response:
    # Told by waitress, which notices at once that a client has left.
    is_gone = request.environ.get("waitress.client_disconnected", lambda: False)
    response = Response(stream.text(is_gone), mimetype=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.call_on_close(stream.close)
    return response


def create_app(services: Any, token: str) -> Flask:
    """`services` is a `wiring.Services`."""
    app = Flask("sluice_controller")
    app.config.update(MAX_CONTENT_LENGTH=MAX_BODY_BYTES)
    app.json.sort_keys = False
    for operation in OPERATIONS:
        rule = "/v1" + operation.path.replace("{", "<").replace("}", ">")
        view = _view(services, operation)
        app.add_url_rule(rule, operation.name, view, methods=[operation.method])
    app.add_url_rule(
        OPENAPI_PATH, "openapi", lambda: Response(written_document(), mimetype="application/json")
    )

    app.before_request(lambda: _check_token(token) or _check_body())
    app.teardown_request(_forget_actor)
    app.register_error_handler(SluiceError, problem)
    app.register_error_handler(HTTPException, lambda error: problem(_shape_error(error)))

    @app.errorhandler(Exception)
    def on_exception(error: Exception) -> Response:
        log.exception("%s %s failed", request.method, request.path)
        return problem(_internal_error())

    return app


@cache
def written_document() -> bytes:
    """The document of all calls as JSON, written once: on a slow host that takes seconds."""
    return json.dumps(openapi(), separators=(",", ":")).encode()


@cache
def openapi() -> dict[str, Any]:
    """The document of all calls."""
    return document(OPERATIONS)
