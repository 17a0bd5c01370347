# SPDX-License-Identifier: GPL-2.0-or-later
"""Parameters that several commands have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.errors import BadValue
from ...domain.knobs import NOTHING, Word, knob
from ...domain.limits import RESOURCES
from .client import DEFAULT_SOCKET, DEFAULT_TOKEN_FILE, Client


def completed(words: Iterable[str]) -> Callable[[str], list[str]]:
    """For the shell: the words that go on as what was typed; the API refuses others."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


# Somebody waits at a half-typed line.
COMPLETION_SECONDS = 1.0
# What no shell takes for anything but a word.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def names_of(path: str) -> Callable[[typer.Context, str], list[str]]:
    """For the shell: the names that the running sluiced lists at `path`.

    Nothing where it does not answer soon, whatever the reason: that is said when the
    line is run. Names that would need quotes are left out; a shell would take them
    as they are.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given = ctx.find_root().params
        client = Client(
            Path(given.get("socket") or DEFAULT_SOCKET),
            Path(given.get("token_file") or DEFAULT_TOKEN_FILE),
            COMPLETION_SECONDS,
        )
        try:
            found = [one["name"] for one in client.call("GET", path)]
        except Exception:
            return []
        return sorted(n for n in found if n.startswith(incomplete) and _PLAIN.fullmatch(n))

    return complete


def described(shape: type, member: str, *names: str, **more: Any) -> Any:
    """An option for a member of the API's objects: help, range and words are the member's."""
    one = knob(shape, member)
    words = {"autocompletion": completed(one.words)} if isinstance(one, Word) else {}
    return typer.Option(*names, help=one.said, **words, **more)


AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]
Domain = Annotated[
    str,
    typer.Argument(
        help="name of a libvirt domain", metavar="DOMAIN", autocompletion=names_of("domains")
    ),
]
ClassName = Annotated[
    str,
    typer.Argument(help="name of a class", metavar="CLASS", autocompletion=names_of("classes")),
]
Resource = Annotated[
    str,
    typer.Argument(
        help=f"one of {', '.join(RESOURCES)}",
        metavar="RESOURCE",
        autocompletion=completed(RESOURCES),
    ),
]
Rate = Annotated[
    str | None,
    typer.Argument(help="for example 2MB/s, 16Mbit/s, 1.5MiB/s, unlimited", metavar="[RATE]"),
]


def nothing(text: Any) -> bool:
    """Whether it is a word for none, as the API reads it."""
    return isinstance(text, str) and text.strip().lower() in NOTHING


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


def given(options: dict[str, Any]) -> dict[str, Any]:
    """What is not given stays as it is."""
    return {name: one for name, one in options.items() if one is not None}


def change_resource(
    context: typer.Context, path: tuple[str, ...], body: dict[str, Any] | None
) -> dict[str, Any]:
    """Changes what is said of one resource, shows it where nothing is given; None: takes it back.

    sluiced changes it in one step: of two commands at once neither is lost.
    """
    if body is None:
        return context.obj.call("DELETE", *path)
    if not body:
        return context.obj.call("GET", *path[:-2])
    return context.obj.call("PATCH", *path, body=body)
