# SPDX-License-Identifier: GPL-2.0-or-later
"""How commands are made: their common parameters, and options made from the API's objects."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.errors import BadValue
from ...domain.knobs import NOTHING, Flag, Knob, Number, Size, Whole, Word, hints, knob
from ...domain.limits import RESOURCES
from .client import DEFAULT_SOCKET, DEFAULT_TOKEN_FILE, Client
from .output import print_json, say

# An answer of the API, and its words for people: a line, or a function that prints them.
Answered = tuple[Any, str | Callable[[Any], None]]


def completed(words: Iterable[str]) -> Callable[[str], list[str]]:
    """For the shell: the words that begin with the typed text; the API refuses others."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


# Somebody waits at a half-typed line.
COMPLETION_SECONDS = 1.0
# Plain words of every shell.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def names_of(
    path: str, name: Callable[[Any], str] = itemgetter("name"), **query: Any
) -> Callable[[typer.Context, str], list[str]]:
    """For the shell: the names that the running sluiced lists at `path`.

    Empty if it does not answer soon: the run of the line tells the reason. Names that would
    need quotes are left out, because a shell would insert them without.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given = ctx.find_root().params
        client = Client(
            Path(given.get("socket") or DEFAULT_SOCKET),
            Path(given.get("token_file") or DEFAULT_TOKEN_FILE),
            COMPLETION_SECONDS,
        )
        try:
            found = {name(one) for one in client.call("GET", path, query=query)}
        except Exception:
            return []
        return sorted(n for n in found if n.startswith(incomplete) and _PLAIN.fullmatch(n))

    return complete


# Of the commands that watch.
AnyDomain = Annotated[
    str | None,
    typer.Argument(metavar="[DOMAIN]", help="all unless given", autocompletion=names_of("domains")),
]
Interval = Annotated[float, typer.Option(min=0.1, max=60, help="seconds")]


def named(metavar: str, what: str, path: str = "", words: Iterable[str] = ()) -> Any:
    """An argument that is a name; `path` lists the existing names."""
    complete = names_of(path) if path else completed(words)
    return Annotated[str, typer.Argument(metavar=metavar, help=what, autocompletion=complete)]


AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]
Domain = named("DOMAIN", "name of a libvirt domain", "domains")
ClassName = named("CLASS", "name of a class", "classes")
Resource = named("RESOURCE", f"one of {', '.join(RESOURCES)}", words=RESOURCES)
Rate = Annotated[
    str | None,
    typer.Argument(help="for example 2MB/s, 16Mbit/s, 1.5MiB/s, unlimited", metavar="[RATE]"),
]


# Options of an object's members


def described(shape: type, member: str, *names: str) -> Any:
    """An option for a member of the API's objects: help, range and words are the member's."""
    one = knob(shape, member)
    words = {"autocompletion": completed(one.words)} if isinstance(one, Word) else {}
    names = names or tuple(filter(None, [one.option]))
    return typer.Option(*names, help=one.said, **words)


def option_of(shape: type, member: str) -> str:
    """The option's name, as `described` makes it."""
    return knob(shape, member).option.split("/")[0] or f"--{member.replace('_', '-')}"


def members_with_options(shape: type) -> list[str]:
    """The members that one value describes."""
    return [name for name, hint in hints(shape).items() if hasattr(hint, "__metadata__")]


def _kind(one: Knob) -> type:
    if isinstance(one, Flag):
        return bool
    is_number = isinstance(one, Whole) and not isinstance(one, Size) and not one.optional
    return int if is_number else str


def _option(shape: type, member: str) -> inspect.Parameter:
    hint = Annotated[_kind(knob(shape, member)) | None, described(shape, member)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(member, keyword, default=None, annotation=hint)


def given_of(shape: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The members that options give, as the API takes them; the others stay as they are."""
    return {
        name: _value(knob(shape, name), options[name], option_of(shape, name).lstrip("-"))
        for name in members_with_options(shape)
        if options.get(name) is not None
    }


def nothing(text: Any) -> bool:
    """Whether it is a word for none, as the API reads it."""
    return isinstance(text, str) and text.strip().lower() in NOTHING


def _value(one: Knob, text: Any, thing: str) -> Any:
    """Text that has a unit is read by the API."""
    if isinstance(one, Number | Whole) and isinstance(text, str):
        has_unit = one.measured_in.startswith(("bytes", "nanoseconds"))
        return text if has_unit else count(text, thing)
    return None if one.optional and nothing(text) else text


def count(text: str | None, thing: str) -> Any:
    """A number, or a word for none."""
    if text is None or nothing(text):
        return text
    remedy = "give a number, or 'none'"
    try:
        value = float(text)
    except ValueError:
        raise BadValue(thing, text, "is not a number", remedy) from None
    if not math.isfinite(value):
        raise BadValue(thing, text, "is out of range", remedy)
    return int(text) if text.isdecimal() else value


def change_resource(
    context: typer.Context, path: tuple[str, ...], body: dict[str, Any] | None
) -> dict[str, Any]:
    """Changes the settings of one resource, or shows them without options; None resets them.

    sluiced changes it in one step: of two commands at once neither is lost.
    """
    if body is None:
        return context.obj.call("DELETE", *path)
    if not body:
        return context.obj.call("GET", *path[:-2])
    return context.obj.call("PATCH", *path, body=body)


# Commands


def command(
    group: typer.Typer, name: str, options: type | None = None
) -> Callable[[Callable[..., Answered]], Callable[..., Answered]]:
    """Makes a command of a function of (context, its parameters): it answers with JSON and
    its words, of which --json chooses. `options` has a member for each option more."""

    def register(function: Callable[..., Answered]) -> Callable[..., Answered]:
        def run(context: typer.Context, as_json: bool, **given: Any) -> None:
            answer, words = function(context, **given)
            if as_json:
                print_json(answer)
            elif isinstance(words, str):
                say(words)
            else:
                words(answer)
            for one in answer.get("later", ()) if isinstance(answer, dict) and not as_json else ():
                say(one["sentence"])

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        own = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
        made = [_option(options, one) for one in members_with_options(options)] if options else []
        # The most particular first, as --help has them.
        before = [one for one in own if one.default is inspect.Parameter.empty]
        after = [one for one in own if one not in before]
        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
                ),
                *(one.replace(kind=keyword) for one in (*before, *made, *after)),
                inspect.Parameter("as_json", keyword, default=False, annotation=AsJson),
            ]
        )
        found = run.__signature__.parameters.values()  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in found}
        run.__doc__ = function.__doc__
        group.command(name)(run)
        return function

    return register
