# SPDX-License-Identifier: GPL-2.0-or-later
"""The description of an object's member, said once: as metadata of its annotation.

    weight: Annotated[int, Whole(1, 1000, help="its share")] = 100

It has three readers: `models.parse`, which refuses other values; `models.schema`, which writes
the OpenAPI document; and the command line, for its help (`knob`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from .errors import BadValue
from .rates import format_rate, format_size, parse_time_ns
from .values import finite_number, parse_bool, parse_integer, parse_text, parse_word

# A large bound as people see it: 10^11 and 2^20 are read faster than their digits.
_ROUND_FROM = 10**7
# Null, as people write it.
NOTHING = ("unlimited", "none", "nothing", "max", "default")


@dataclass(frozen=True, kw_only=True)
class Knob(ABC):
    help: str = ""
    # Null is a value, too: nothing of the kind.
    optional: bool = False
    # Of the API's answers alone: a request does not give it.
    read_only: bool = False
    example: Any = None
    # The resources that it goes with; none named: all.
    only: tuple[str, ...] = ()
    # Another member, and its value with which this one says something.
    beside: tuple[str, str] | None = None
    # How the command line names it, if not by the field's name, and how it tells a value.
    option: str = ""
    shown: str = "{}"
    # Text may say nothing, too: "unlimited".
    is_counted: ClassVar[bool] = False

    @abstractmethod
    def read(self, raw: Any, thing: str) -> Any:
        """The value; BadValue for any other."""

    @abstractmethod
    def schema(self, takes_text: bool) -> dict[str, Any]:
        """In the words of JSON Schema, without help and null."""

    @property
    def said(self) -> str:
        """Help with the range, for people."""
        return self.help

    @property
    def measured_in(self) -> str:
        """The unit of its numbers; nothing where they are counts."""
        return ""

    def told(self, value: Any) -> str:
        """A value for people."""
        return self.shown.format(self._formatted(value))

    def _formatted(self, value: Any) -> str:
        return str(value)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def check(raw: Any) -> Any:
            if self.optional and (raw is None or (self.is_counted and _says_nothing(raw))):
                return None
            try:
                return self.read(raw, "")
            except BadValue as error:
                # Not the value: a lone surrogate would break pydantic's own message.
                context = {"problem": error.problem, "remedy": error.remedy}
                raise PydanticCustomError("refused", "{problem}", context) from None

        return core_schema.no_info_plain_validator_function(check)

    def __get_pydantic_json_schema__(self, _schema: Any, handler: Any) -> dict[str, Any]:
        schema = self.schema(takes_text=handler.mode == "validation")
        if self.optional:
            schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
        if self.help:
            schema["description"] = self.help
        if self.example is not None:
            schema["examples"] = [self.example]
        # For forms, which offer a member where it goes.
        if self.measured_in:
            schema["x-unit"] = self.measured_in
        if self.only:
            schema["x-resources"] = list(self.only)
        if self.beside:
            schema["x-beside"] = dict([self.beside])
        return schema


def _says_nothing(raw: Any) -> bool:
    return isinstance(raw, str) and raw.strip().lower() in NOTHING


def _shown(bound: float) -> str:
    for base, sign in ((10, "10^"), (2, "2^")):
        power = round(bound).bit_length() - 1 if base == 2 else len(str(round(bound))) - 1
        if bound >= _ROUND_FROM and bound == base**power:
            return f"{sign}{power}"
    return f"{bound:.0f}"


@dataclass(frozen=True)
class Number(Knob):
    """A number of `unit`; of bytes (per second) also text with a unit, `rates.py`."""

    low: float
    high: float
    unit: str = ""
    is_counted: ClassVar[bool] = True

    @property
    def measured_in(self) -> str:
        return self.unit

    def read(self, raw: Any, thing: str) -> float | None:
        return finite_number(thing, raw, self.low, self.high, self.unit)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        number = {"type": "number", "minimum": self.low, "maximum": self.high}
        if not takes_text or not self.unit.startswith("bytes"):
            return number
        text = "20MB/s" if self.unit.endswith("second") else "256KiB"
        return {"anyOf": [number, {"type": "string", "examples": [text]}]}

    def _formatted(self, value: Any) -> str:
        formats = {"bytes per second": format_rate, "bytes": format_size}
        return formats.get(self.unit, "{:g}".format)(value)

    @property
    def said(self) -> str:
        words = f"{_shown(self.low)} to {_shown(self.high)} {self.unit}".strip()
        return ", ".join(filter(None, (self.help, words)))


@dataclass(frozen=True)
class Whole(Knob):
    low: int
    high: int
    is_counted: ClassVar[bool] = True

    def read(self, raw: Any, thing: str) -> int:
        return parse_integer(raw, thing, self.low, self.high)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    @property
    def said(self) -> str:
        return ", ".join(filter(None, (self.help, f"{_shown(self.low)} to {_shown(self.high)}")))


@dataclass(frozen=True)
class Size(Whole):
    """A whole number of bytes, or text with a unit."""

    @property
    def measured_in(self) -> str:
        return "bytes"

    def read(self, raw: Any, thing: str) -> int:
        value = finite_number(thing, raw, self.low, self.high, "bytes")
        return parse_integer(value, thing, self.low, self.high)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        number = super().schema(takes_text)
        text = {"type": "string", "examples": ["256KiB"]}
        return {"anyOf": [number, text]} if takes_text else number

    def _formatted(self, value: Any) -> str:
        return format_size(value)


@dataclass(frozen=True)
class Time(Whole):
    """A whole number of nanoseconds, or text with a unit."""

    @property
    def measured_in(self) -> str:
        return "nanoseconds"

    def read(self, raw: Any, thing: str) -> int:
        value = parse_time_ns(raw, thing) if isinstance(raw, str) else raw
        return parse_integer(value, thing, self.low, self.high)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        number = super().schema(takes_text)
        text = {"type": "string", "examples": ["20ms"]}
        return {"anyOf": [number, text]} if takes_text else number


@dataclass(frozen=True)
class Flag(Knob):
    def read(self, raw: Any, thing: str) -> bool:
        return parse_bool(raw, thing)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Word(Knob):
    words: tuple[str, ...]

    def read(self, raw: Any, thing: str) -> str:
        return parse_word(raw, thing, self.words)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}

    @property
    def said(self) -> str:
        return ": ".join(filter(None, (self.help, ", ".join(self.words))))


@dataclass(frozen=True)
class Text(Knob):
    longest: int
    may_be_empty: bool = field(default=False, kw_only=True)

    def read(self, raw: Any, thing: str) -> str:
        return "" if self.may_be_empty and raw == "" else parse_text(raw, thing, self.longest)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        least = 0 if self.may_be_empty else 1
        return {"type": "string", "minLength": least, "maxLength": self.longest}


@dataclass(frozen=True)
class Name(Knob):
    """Text that `parse` takes; `pattern` says the same to programs."""

    pattern: str
    parse: Callable[[Any, str], str] = field(compare=False)

    def read(self, raw: Any, thing: str) -> str:
        return self.parse(raw, thing)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


def matching(pattern: str, called: str, remedy: str) -> Callable[[Any, str], str]:
    """A parser of text that a pattern describes."""
    compiled = re.compile(pattern)

    def parse(raw: Any, thing: str) -> str:
        if not isinstance(raw, str) or not compiled.fullmatch(raw) or not raw.isprintable():
            raise BadValue(thing, raw, f"is not {called}", remedy)
        return raw

    return parse


def alias(name: str) -> str:
    """A field's name in JSON."""
    return "class" if name == "class_name" else name


class Model:
    """Base of the dataclasses that are the API's objects: a member without a field is refused."""

    # Whether null is as good as absent where a member has a default.
    null_is_default: ClassVar[bool] = False

    # For pydantic, which is not imported here: the command line would wait for it.
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "alias_generator": alias,
        "arbitrary_types_allowed": False,
    }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        if not cls.null_is_default:
            return handler(source)
        may_be_absent = {
            alias(one.name)
            for one in fields(source)
            if one.default is not MISSING or one.default_factory is not MISSING
        }

        def without_nulls(raw: Any) -> Any:
            if not isinstance(raw, Mapping):
                return raw
            return {k: v for k, v in raw.items() if v is not None or k not in may_be_absent}

        return core_schema.no_info_before_validator_function(without_nulls, handler(source))


@cache
def hints(shape: type) -> dict[str, Any]:
    """{field: annotation, with its knob}"""
    found = get_type_hints(shape, include_extras=True)
    return {one.name: found[one.name] for one in fields(shape)}


def knob(shape: type, member: str) -> Knob:
    """The knob of a field of a dataclass."""
    annotation = hints(shape)[member]
    if get_origin(annotation) is Annotated:
        return next(one for one in get_args(annotation)[1:] if isinstance(one, Knob))
    raise TypeError(f"{shape.__name__}.{member} has no knob")
