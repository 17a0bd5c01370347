# SPDX-License-Identifier: GPL-2.0-or-later
"""The fields of the page's forms, from the schemas of the controller's OpenAPI document. Pure.

A member that the controller's models get appears in the page's form, with its range, unit,
help and default: nothing here knows a member by its name.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .views import label

Schema = dict[str, Any]
# A class on a VM has a form for each of these and each resource.
_OF_A_CLASS = re.compile(r"/domains/\{domain\}/classes/\{class\}/([a-z]+)/\{resource\}")
# The meaning of an empty field, as the controller's help puts it.
_EMPTY = re.compile(r"(?:^|; )null: ")
_KINDS = {"boolean": "flag", "integer": "number", "number": "number"}


@dataclass(frozen=True)
class Field:
    """A member of an object that a form sends; ``outer.inner`` is a member of an object in it."""

    name: str
    label: str
    tip: str = ""
    # Shown in an empty field: its meaning, or an example.
    hint: str = ""
    example: str = ""
    # The member's value unless it is given, as JSON.
    usual: str = "null"
    # flag, word, number, text, or amount: a number of the unit, or text with a unit.
    kind: str = "text"
    words: tuple[str, ...] = ()
    # Of a whole number that is always given.
    bounds: tuple[int, int] | None = None
    longest: int | None = None
    unit: str = ""
    needed: bool = False
    resources: tuple[str, ...] = ()
    # Another member and its value with which this one is offered.
    beside: dict[str, str] = field(default_factory=dict)


class Document:
    """The controller's OpenAPI document."""

    def __init__(self, document: Schema) -> None:
        self._paths = document["paths"]
        self._schemas = document["components"]["schemas"]

    def schema(self, path: str, method: str = "put") -> Schema:
        """The schema of the object that a call takes."""
        body = self._paths[path][method]["requestBody"]["content"]["application/json"]
        return self._whole(body["schema"])

    def fields(self, schema: Schema, outer: str = "") -> list[Field]:
        """A field for each member of an object, and for each of an object in it."""
        whole, found = self._whole(schema), []
        for name, one in whole["properties"].items():
            member = self._whole(one)
            if "properties" in member:
                found += self.fields(member, f"{name}.")
            else:
                needed = not outer and name in whole.get("required", ())
                found.append(_field(outer + name, member, needed))
        return found

    def body(self, path: str, method: str = "put") -> list[Field]:
        """The fields of the object that a call takes."""
        return self.fields(self.schema(path, method))

    def inner(self, schema: Schema, member: str) -> list[Field]:
        """The fields of a member that is an object."""
        return self.fields(schema["properties"][member])

    def values(self, schema: Schema, member: str) -> Field:
        """A field for each value of a member that is a map."""
        values = self._whole(schema["properties"][member])["additionalProperties"]
        return _field(member, self._whole(values), True)

    def of_a_class(self, resource: str) -> dict[str, list[Field]]:
        """The settings of a class for a resource: their kind (as limits), and their fields."""
        kinds = {kind[1]: path for path in self._paths if (kind := _OF_A_CLASS.fullmatch(path))}
        found = {
            kind: [one for one in self.body(path) if resource in (one.resources or (resource,))]
            for kind, path in kinds.items()
        }
        return {kind: fields for kind, fields in found.items() if fields}

    def _whole(self, schema: Schema) -> Schema:
        """The schema without references, and without the alternatives to its first."""
        if "$ref" in schema:
            return self._schemas[schema["$ref"].rpartition("/")[2]]
        return {**self._whole(schema["anyOf"][0]), **schema} if "anyOf" in schema else schema


def _field(name: str, schema: Schema, needed: bool) -> Field:
    texts = [one for one in schema.get("anyOf", ())[1:] if one.get("type") == "string"]
    kind = "word" if "enum" in schema else _KINDS.get(schema.get("type"), "text")
    tip, *empty = _EMPTY.split(schema.get("description", ""), maxsplit=1)
    low, high = schema.get("minimum"), schema.get("maximum")
    unit = schema.get("x-unit", "")
    ranged = "" if low is None else f"{low:,} to {high:,} {unit}".strip()
    example = [*schema.get("examples", ()), *(one["examples"][0] for one in texts), ""][0]
    usual = schema.get("default")
    may_be_empty = usual is None and not needed
    is_whole = schema.get("type") == "integer" and not may_be_empty
    return Field(
        name=name,
        label=" ".join(map(label, name.split("."))),
        tip="; ".join(filter(None, (tip, ranged))),
        hint=empty[0] if empty else "none" if may_be_empty else example,
        example=example,
        usual=json.dumps(usual),
        kind="amount" if texts else kind,
        words=tuple(schema.get("enum", ())),
        bounds=(low, high) if is_whole else None,
        longest=schema.get("maxLength"),
        unit=unit,
        needed=needed,
        resources=tuple(schema.get("x-resources", ())),
        beside=schema.get("x-beside", {}),
    )
