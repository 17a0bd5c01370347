# SPDX-License-Identifier: GPL-2.0-or-later
"""Parameters that several commands have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.knobs import Word, knob
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
    str, typer.Argument(help="for example 2MB/s, 16Mbit/s, 1.5MiB/s, unlimited", metavar="RATE")
]


def grant_of(context: typer.Context, domain: str, name: str) -> dict[str, Any]:
    """What the domain has of the class now; empty if it has not got it."""
    answer = context.obj.call("GET", "domains", domain)
    return next((g for g in answer["classes"] if g["class"] == name), {})
