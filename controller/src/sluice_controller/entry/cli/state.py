# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice export, apply."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .client import Refused
from .common import Answered, command
from .output import say

# Of a value in a line of a difference.
_SHOWN_CHARACTERS = 100


top = typer.Typer()


@command(top, "export")
def export_state(context: typer.Context) -> Answered:
    """Print all that is declared on this host, as a file for 'sluice apply'. It is the backup.

    Example: sluice export > state.yaml
    """

    def tell(answer: Any) -> None:
        import yaml

        # ASCII, so that no name's character reaches the terminal.
        yaml.safe_dump(answer, sys.stdout, sort_keys=False, width=100)

    return context.obj.call("GET", "state"), tell


@command(top, "apply")
def apply_state(
    context: typer.Context,
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML or JSON; '-': standard input")],
    diff: Annotated[bool, typer.Option("--diff", help="show what changes")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="remove items that the file's sections do not name")
    ] = False,
    absent: Annotated[
        bool, typer.Option("--absent", help="take domains that libvirt has not yet, too")
    ] = False,
) -> Answered:
    """Make the host as the file says: all of it, or nothing where something is refused.

    Example: sluice apply -f state.yaml --diff --dry-run
    """
    # YAML is read by few commands.
    from .files import line_of, load, read

    text, shown = read(file)
    document, root = load(text, shown)
    flags = {"prune": prune, "dry_run": dry_run, "absent": absent}
    query = {name: str(flag).lower() for name, flag in flags.items()}
    try:
        answer = context.obj.call("PUT", "state", body=document, query=query)
    except Refused as refused:
        thing = refused.problem.get("thing")
        if isinstance(thing, str) and refused.problem.get("status") != 412:
            refused.args = (f"{shown}:{line_of(root, thing)}: {refused}",)
        raise

    def tell(answer: dict[str, Any]) -> None:
        for change in answer["changes"] if diff else ():
            say(f"{change['thing']}: {_short(change['before'])} → {_short(change['after'])}")
        count = len(answer["changes"])
        words = f"{count} change{'' if count == 1 else 's'}" if count else "no change"
        say(f"{shown}: {words}{', not made (--dry-run)' if count and dry_run else ''}")

    return answer, tell


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
