# SPDX-License-Identifier: GPL-2.0-or-later
"""Parameters that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from ...domain.limits import RESOURCES


def completed(words: Iterable[str]) -> Callable[[str], list[str]]:
    """For the shell: the words that go on as what was typed; the API refuses others."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]
Domain = Annotated[str, typer.Argument(help="name of a libvirt domain", metavar="DOMAIN")]
ClassName = Annotated[str, typer.Argument(help="name of a class", metavar="CLASS")]
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
