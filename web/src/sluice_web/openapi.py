# SPDX-License-Identifier: GPL-2.0-or-later
"""The OpenAPI document, made from the table of operations."""

from functools import cache

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

from . import __version__
from .operations import OPERATIONS, Operation
from .schemas import RESOURCES, Limit, ProblemBody
from .tokens import REPORTER, SCOPES

ERRORS = {
    "401": "No session and no valid token; of a token that expired it says when",
    "403": "The user's role or the token's scope does not allow it",
    "404": "No such thing",
    "409": "Conflicts with the present state",
    "422": "Bad value",
    "503": "The controller, libvirt, the agent or a QEMU cannot be reached",
}


_TOKENS = "Made on the page Users or with sluice-web token add. Scopes: " + "; ".join(
    f"{scope}: {says}" for scope, says in SCOPES.items()
)


@cache
def document() -> dict:
    """The whole document. The bodies of answers are described in the controller's spec."""
    spec = APISpec(
        title="Sluice",
        version=__version__,
        openapi_version="3.0.3",
        info={
            "description": "I/O shaping of this host's virtual machines. Rates are bytes per"
            " second; times are seconds since the epoch. Errors are problem+json and name the"
            " thing, the value and the remedy; a refused request changes nothing.",
            "license": {"name": "GPL-2.0-or-later"},
        },
        servers=[{"url": "/api/v1"}],
        plugins=[MarshmallowPlugin()],
    )
    spec.components.security_scheme(
        "token", {"type": "http", "scheme": "bearer", "description": _TOKENS}
    )
    spec.components.security_scheme(
        "session", {"type": "apiKey", "in": "cookie", "name": "sluice_session"}
    )
    spec.components.schema("Problem", schema=ProblemBody)
    spec.components.schema("Limit", schema=Limit)
    for operation in OPERATIONS:
        spec.path(path=operation.path, operations={operation.method.lower(): describe(operation)})
    return {**spec.to_dict(), "security": [{"token": []}, {"session": []}]}


def describe(operation: Operation) -> dict:
    """One operation in OpenAPI's words."""
    problem = {"application/problem+json": {"schema": "Problem"}}
    described = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": _needs(operation),
        "tags": [operation.path.split("/")[1]],
        "parameters": [_path_parameter(name) for name in _arguments(operation)]
        + [_query_parameter(name) for name in operation.query],
        "responses": {
            "200": {
                "description": operation.summary,
                "content": {"application/json": {"schema": {}}},
            },
            **{code: {"description": text, "content": problem} for code, text in ERRORS.items()},
        },
    }
    if operation.body:
        described["requestBody"] = _json_body(operation.body)
    elif operation.takes_ceiling:
        by_resource = {"type": "object", "properties": dict.fromkeys(RESOURCES, {"$ref": _LIMIT})}
        described["requestBody"] = _json_body(by_resource)
    return described


def _needs(operation: Operation) -> str:
    """Who may call it."""
    said = f"Needs the role or token scope {operation.role}"
    if operation.is_report:
        said += f", or a token of scope {REPORTER} for this stream"
    if operation.admin_members:
        said += f"; {', '.join(operation.admin_members)} only by an admin in a session"
    return said + "."


_LIMIT = "#/components/schemas/Limit"


def _json_body(schema) -> dict:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _arguments(operation: Operation) -> list[str]:
    return [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]


def _path_parameter(name: str) -> dict:
    schema: dict = {"type": "string"}
    if name == "resource":
        schema["enum"] = list(RESOURCES)
    elif name in ("pid", "night"):
        schema = {"type": "integer", "minimum": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(name: str) -> dict:
    kinds = {"limit": "integer", "since": "number", "step": "number"}
    return {"name": name, "in": "query", "schema": {"type": kinds.get(name, "string")}}
