# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects from untrusted JSON, by the annotations of their dataclasses (`knobs.py`).

pydantic reads them: it is imported when the first object comes, not by those who only
look at a dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field as dataclass_field
from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from .errors import BadValue
from .knobs import Knob, Model, hints

Shape = TypeVar("Shape")


@cache
def adapter(shape: Any) -> Any:
    """pydantic's TypeAdapter of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(shape)


def parse(shape: type[Shape], raw: Any, thing: str = "") -> Shape:
    """The object, whole and sound, or BadValue about its first fault; `thing` is its path."""
    from pydantic import ValidationError

    try:
        value = adapter(shape).validate_python(raw)
    except ValidationError as error:
        raise _refusal(shape, error.errors(include_url=False)[0], thing) from None
    check(value, thing)
    return value


def without_nulls(raw: Any) -> Any:
    """For objects whose null members are as absent ones."""
    if isinstance(raw, Mapping):
        return {key: without_nulls(one) for key, one in raw.items() if one is not None}
    return raw


def check(value: Any, thing: str) -> None:
    """Asks each object in `value` whether its members go together (`check` of its class)."""
    if is_dataclass(value):
        for one in fields(value):
            check(getattr(value, one.name), path_of(thing, [_alias(one.name)]))
        if hasattr(value, "check"):
            value.check(thing)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            check(one, path_of(thing, [key]))
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            check(one, path_of(thing, [i]))


def path_of(thing: str, parts: list[str | int]) -> str:
    for part in parts:
        thing += f"[{part}]" if isinstance(part, int) else f".{part}" if thing else part
    return thing


def _refusal(shape: Any, fault: Mapping[str, Any], thing: str) -> BadValue:
    parts = [part for part in fault["loc"] if part != "[key]"]
    path = path_of(thing, parts)
    kind, raw = fault["type"], fault["input"]
    if kind == "refused":
        context = fault["ctx"]
        return BadValue(path, raw, context["problem"], context["remedy"])
    if kind == "missing":
        return BadValue(
            path, None, "is missing", f"give {_said(_at(shape, parts[:-1]), parts[-1])}"
        )
    if kind == "unexpected_keyword_argument":
        known = ", ".join(members(_at(shape, parts[:-1])))
        return BadValue(path, raw, "is not known", f"use {known}")
    inner = _at(shape, parts)
    if is_dataclass(inner):
        return BadValue(
            path, raw, "is not an object", f"give an object of {', '.join(members(inner))}"
        )
    wanted = "a list" if kind in ("tuple_type", "list_type") else "an object"
    if kind in ("mapping_type", "dict_type", "tuple_type", "list_type"):
        return BadValue(path, raw, f"is not {wanted}", f"give {wanted}")
    return BadValue(path, raw, f"is refused ({fault['msg']})", "see the OpenAPI document")


def _said(shape: Any, member: str | int) -> str:
    """What the member is, for one who left it out."""
    for name, annotation in hints(shape).items() if is_dataclass(shape) else ():
        metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        for one in metadata:
            if _alias(name) == member and isinstance(one, Knob) and one.said:
                return f"it: {one.said}"
    return "it"


def _alias(name: str) -> str:
    return Model.__pydantic_config__["alias_generator"](name)


def members(shape: type) -> list[str]:
    """The names of an object's members in JSON."""
    return [_alias(one.name) for one in fields(shape)]


def _bare(annotation: Any) -> Any:
    """Without metadata and null."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            annotation = next(a for a in get_args(annotation) if a is not NoneType)
        else:
            return annotation


def _at(shape: Any, parts: list[str | int]) -> Any:
    """The type of what lies at a path."""
    shape = _bare(shape)
    for part in parts:
        if is_dataclass(shape):
            by_alias = {_alias(name): one for name, one in hints(shape).items()}
            shape = _bare(by_alias[part])
        else:
            shape = _bare(get_args(shape)[-1 if isinstance(part, str) else 0])
    return shape


def given_of(value: Any) -> dict[str, Any]:
    """What a request would give of an object: its members that are not read only."""
    return {name: getattr(value, name) for name in members(body_of(type(value)))}


@cache
def body_of(shape: type) -> type:
    """The dataclass of what a request gives of a `shape`: without members that are read only."""
    given = []
    for one in fields(shape):
        annotation = hints(shape)[one.name]
        metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        if any(isinstance(m, Knob) and m.read_only for m in metadata):
            continue
        has_default = {"default": one.default, "default_factory": one.default_factory}
        given.append((one.name, annotation, dataclass_field(**has_default)))
    name = f"{shape.__name__}Body"
    return make_dataclass(name, given, bases=(Model,), frozen=True, kw_only=True)
