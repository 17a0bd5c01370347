# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice why: the reason for which a class moves no more than it does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import Answered, Domain, command, names_of
from .output import say

top = typer.Typer()

OneClass = Annotated[
    str | None,
    typer.Argument(metavar="[CLASS]", help="all unless given", autocompletion=names_of("classes")),
]


def _is_idle(one: dict[str, Any]) -> bool:
    return one["reason"] == "nothing" and not one["requests_per_second"]


def _tell(answers: list[dict[str, Any]]) -> None:
    """A sentence for each resource; of those on which nothing is asked for only the names."""
    for answer in answers:
        idle = [one["resource"] for one in answer["resources"] if _is_idle(one)]
        for one in answer["resources"]:
            if one["resource"] not in idle:
                say(f"{one['sentence']}.")
        if idle:
            name = f"{answer['domain']}/{answer['class']}"
            say(f"{name} asks for nothing on {', '.join(idle)}.")


@command(top, "why")
def why(context: typer.Context, domain: Domain, name: OneClass = None) -> Answered:
    """Say why a class is as slow as it is: for each resource the one thing that holds it.

    That is its own limit, auto-shaping, the domain's ceiling, a group, the gate, a limit of new
    connections, libvirt's own throttle, the device, the link, the host's processors, or nothing.
    "probably": the counters do not tell it, and it follows from rates near a limit.

    Examples: sluice why media batch; sluice why media
    """
    call = context.obj.call
    if name is None:
        names = [one["class"] for one in call("GET", "domains", domain)["classes"]]
    else:
        names = [name]
    return [call("GET", "domains", domain, "classes", one, "why") for one in names], _tell
