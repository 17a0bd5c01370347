# SPDX-License-Identifier: GPL-2.0-or-later
"""The OpenAPI document, written from the operations and their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ... import __version__
from ...domain.models import adapter
from .answers import Problem
from .operations import PARAMETERS, Operation

_REASONS = {
    200: "Done",
    201: "Made",
    204: "Done; there is nothing to say",
    401: "No token, or a wrong one",
    403: "The role or the token's scope does not allow it",
    404: "No such thing",
    409: "Conflicts with the present state",
    412: "The state is another than that of If-Match",
    413: "The body has more than 16 MiB",
    422: "Bad value: the thing, the value and the remedy are named",
    500: "Failed inside sluiced",
    503: "libvirt, the agent, a QEMU or the database cannot be reached",
}
_TAGS = "#/components/schemas/"
# Deeper examples would repeat their types.
_DEEPEST_EXAMPLE = 8


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document."""
    operations = list(operations)
    schemas, components = _schemas(operations)
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": __version__,
            "description": "I/O shaping of this host's virtual machines. Rates are bytes per"
            " second, as numbers, or as text with a unit; times are seconds since 1970. Errors"
            " are problem+json; a refused request changes nothing.",
            "license": {"name": "GPL-2.0-or-later", "identifier": "GPL-2.0-or-later"},
        },
        "servers": [{"url": "/v1"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                str(status): {
                    "description": reason,
                    "content": {"application/problem+json": {"schema": schemas["problem"]}},
                }
                for status, reason in _REASONS.items()
                if status >= 400
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(operations: list[Operation]) -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """{(operation's name, "body" or "answer"): schema} and the components they refer to."""
    from pydantic import TypeAdapter

    inputs: list[tuple[Any, Any, Any]] = [("problem", "serialization", adapter(Problem))]
    for one in operations:
        for key, mode, shape in (
            ("body", "validation", one.body),
            ("answer", "serialization", one.answer),
        ):
            if shape is not None:
                inputs.append(((one.name, key), mode, adapter(shape)))
    found, defined = TypeAdapter.json_schemas(inputs, ref_template=_TAGS + "{model}")
    schemas = {key: _plain(schema) for (key, _mode), schema in found.items()}
    components = {_name(name): _plain(one) for name, one in defined.get("$defs", {}).items()}
    return schemas, components


def _name(name: str) -> str:
    """Of a type that is given in another form than it is answered: TypeInput and Type."""
    return name.replace("-Input", "Input").replace("-Output", "")


def _plain(schema: Any) -> Any:
    """As generators of clients read it: without titles, by which they would name types, and
    with the values of a map where they look for them."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return _name(schema) if isinstance(schema, str) and schema.startswith(_TAGS) else schema
    # A member may be called title: then it is a schema, not a text.
    plain = {k: _plain(v) for k, v in schema.items() if k != "title" or isinstance(v, dict)}
    for pattern, values in plain.pop("patternProperties", {}).items():
        plain["additionalProperties"] = values
        plain["propertyNames"] = {**plain.get("propertyNames", {}), "pattern": pattern}
    return plain


def _described(one: Operation, schemas: Mapping[Any, Any], components: dict) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.path.split("/")[1]],
        "parameters": [_parameter(name, "path") for name in one.arguments]
        + [_parameter(name, "query") for name in one.query],
        "responses": {},
    }
    if one.body is not None:
        content = _content(schemas[(one.name, "body")], components)
        described["requestBody"] = {"required": True, "content": content}
    for status in one.successes:
        answer = {"description": _REASONS[status]}
        if one.answer is not None:
            answer["content"] = _content(schemas[(one.name, "answer")], components)
        if one.streams is not None:
            answer["content"][one.streams] = {"schema": {"type": "string"}}
        described["responses"][str(status)] = answer
    for status in one.refusals:
        described["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return described


def _content(schema: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": example(schema, components)}}


def _parameter(name: str, place: str) -> dict[str, Any]:
    knob = PARAMETERS[name]
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": knob.said,
        "schema": knob.schema(takes_text=False),
        "example": knob.example,
    }


def example(schema: Mapping[str, Any], components: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that the schema takes, from the examples and bounds of its parts."""
    if "$ref" in schema:
        schema = components[schema["$ref"].removeprefix(_TAGS)]
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema and schema["default"] is not None:
        return schema["default"]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], components, depth)
    kind = schema.get("type")
    if kind == "object":
        return _object_example(schema, components, depth)
    if kind == "array":
        is_deep = depth > _DEEPEST_EXAMPLE
        return [] if is_deep else [example(schema.get("items", {}), components, depth + 1)]
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": schema.get("minimum", 1), "number": schema.get("minimum", 1.5)}.get(
        kind, {"boolean": False, "string": "text", "null": None}.get(kind)
    )


def _object_example(
    schema: Mapping[str, Any], components: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    if "properties" in schema:
        return {
            name: example(one, components, depth + 1)
            for name, one in schema["properties"].items()
            if name in schema.get("required", ())
            or one.get("examples")
            or (depth == 0 and not _is_null(one))
        }
    inner = schema.get("additionalProperties")
    if not isinstance(inner, Mapping) or depth > _DEEPEST_EXAMPLE:
        return {}
    names = schema.get("propertyNames", {})
    name = (names.get("examples") or [names.get("pattern", "^(?:name)$")[4:-2].split("|")[0]])[0]
    return {name: example(inner, components, depth + 1)}


def _is_null(schema: Mapping[str, Any]) -> bool:
    return "default" in schema and schema["default"] is None
