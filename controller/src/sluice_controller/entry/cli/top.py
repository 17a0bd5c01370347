# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice top: VMs, classes and processes on a screen; textual is imported for the screen only."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from ...domain.errors import SluiceError
from .client import Client, Refused
from .common import Answered, AnyDomain, Interval, command
from .output import Columns, console, safe, say, table
from .top_rows import COLUMNS, MORE, View, arranged, labelled, notes, rows_of, taken

top = typer.Typer()


def read(client: Client, domain: str | None) -> dict[str, Any]:
    """One reading; a domain whose processes cannot be asked says why in their place."""
    live = client.call("GET", "live", query={} if domain is None else {"domain": domain})
    if domain is None:
        domains = client.call("GET", "domains")
    else:
        domains = [client.call("GET", "domains", domain)]
    processes = {}
    for name in (d["name"] for d in domains if d["active"] and d["agent"]["connected"]):
        try:
            processes[name] = client.call("GET", "domains", name, "processes")
        except (SluiceError, Refused) as error:
            processes[name] = {"error": str(error)}
    return taken(live, domains, processes)


def say_reading(reading: dict[str, Any]) -> None:
    """As plain text, a line for each row."""
    from rich.text import Text

    view = View()
    rows = rows_of(reading)
    columns: Columns = {
        "NAME": lambda row: Text(safe(labelled(row, view)), no_wrap=True, overflow="ellipsis"),
        **{name: cell for name, (_, cell) in {**COLUMNS, **MORE}.items()},
    }
    say(time.strftime("%H:%M:%S", time.localtime(reading["live"]["at"])))
    for note in notes(reading, rows):
        say(note)
    if rows:
        console().print(table(arranged(rows, view), columns, list(columns)[1:]))
    else:
        say("no domains")


@command(top, "top")
def show_top(
    context: typer.Context,
    domain: AnyDomain = None,
    interval: Interval = 1.0,
    batch: Annotated[bool, typer.Option("--batch", help="plain text instead of a screen")] = False,
    iterations: Annotated[int, typer.Option(min=1, help="how often, with --batch")] = 1,
) -> Answered:
    """Watch VMs, classes and processes on a screen like htop's; change classes and limits.

    Rates are bytes per second, beside their limit: 1.2M/20M. HELD is the 99th percentile of the
    waiting time, TOKENS the bytes that a limit lets pass at once. F1 shows the keys. Without a
    terminal it is plain text, as with --batch.

    Example: sluice top --batch --iterations 3
    """

    def ask() -> dict[str, Any]:
        return read(context.obj, domain)

    def watch(reading: dict[str, Any]) -> None:
        # textual draws on standard error.
        ours = sys.stdin, sys.stdout, sys.stderr
        if not batch and all(one.isatty() for one in ours):
            from .top_app import Top

            return Top(context.obj, ask, reading, interval).run()
        say_reading(reading)
        for _ in range(iterations - 1):
            time.sleep(interval)
            say_reading(ask())

    return ask(), watch
