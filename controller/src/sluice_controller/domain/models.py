# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects from untrusted JSON, by the annotations of their dataclasses (`knobs.py`).

pydantic reads them. It is imported when the first object comes, not by a reader of a dataclass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field as dataclass_field
from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from .errors import BadValue
from .knobs import Knob, Model, alias, hints, knob

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


def as_json(value: Any) -> Any:
    """Objects by the names of their members, as the API shows them."""
    if is_dataclass(value):
        return {alias(one.name): as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


def of_json(shape: Any, raw: Any) -> Any:
    """The value that `as_json` made this of; nothing is checked."""
    shape = _bare(shape)
    if raw is None:
        return None
    if is_dataclass(shape):
        shapes = {alias(name): (name, hint) for name, hint in hints(shape).items()}
        given = {shapes[key][0]: of_json(shapes[key][1], one) for key, one in raw.items()}
        return shape(**given)
    if isinstance(raw, Mapping):
        return {key: of_json(get_args(shape)[1], one) for key, one in raw.items()}
    return tuple(raw) if get_origin(shape) is tuple else raw


def check(value: Any, thing: str) -> None:
    """Asks each object in `value` whether its members go together (`check` of its class).

    An object in a map is also asked whether it goes with its key (`check_for`).
    """
    if is_dataclass(value):
        for one in fields(value):
            check(getattr(value, one.name), path_of(thing, [alias(one.name)]))
        if hasattr(value, "check"):
            value.check(thing)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            inner = path_of(thing, [key])
            check(one, inner)
            if hasattr(one, "check_for"):
                one.check_for(key, inner)
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            check(one, path_of(thing, [i]))


def told(value: Any) -> str:
    """For people: an object's members that are not as by default."""
    usual = {one.name: one.default for one in fields(value)}
    parts = []
    for name in usual:
        own = getattr(value, name)
        if own != usual[name]:
            parts.append(own.told() if hasattr(own, "told") else knob(type(value), name).told(own))
    return ", ".join(parts) or "by default"


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
    """The sentence about a member that was left out."""
    for name, annotation in hints(shape).items() if is_dataclass(shape) else ():
        metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        for one in metadata:
            if alias(name) == member and isinstance(one, Knob) and one.said:
                return f"it: {one.said}"
    return "it"


def members(shape: type) -> list[str]:
    """The names of an object's members in JSON."""
    return [alias(one.name) for one in fields(shape)]


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
    """The type at a path."""
    shape = _bare(shape)
    for part in parts:
        if is_dataclass(shape):
            by_alias = {alias(name): one for name, one in hints(shape).items()}
            shape = _bare(by_alias[part])
        else:
            shape = _bare(get_args(shape)[-1 if isinstance(part, str) else 0])
    return shape


def given_of(value: Any) -> dict[str, Any]:
    """An object's members that a request may give: all but read-only ones."""
    shown = as_json(value)
    return {name: shown[name] for name in members(body_of(type(value)))}


@cache
def body_of(shape: type) -> type:
    """The dataclass of a request's `shape`: without read-only members."""
    read_only = []
    for name, annotation in hints(shape).items():
        metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        if any(isinstance(m, Knob) and m.read_only for m in metadata):
            read_only.append(name)
    return _without(shape, f"{shape.__name__}Body", read_only, is_answer=False)


def answer_of(shape: type, name: str, *left_out: str) -> type:
    """The dataclass of an answer with the members of `shape`, but for some: none is absent."""
    return _without(shape, name, left_out, is_answer=True)


def _without(shape: type, name: str, left_out: Collection[str], is_answer: bool) -> type:
    kept = []
    for one in fields(shape):
        if one.name not in left_out:
            default = {"default": one.default, "default_factory": one.default_factory}
            own = dataclass_field(**({} if is_answer else default))
            kept.append((one.name, hints(shape)[one.name], own))
    found = make_dataclass(name, kept, bases=(Model,), frozen=True, kw_only=True)
    found.__doc__ = shape.__doc__
    return found
