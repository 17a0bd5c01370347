# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice events: what sluiced does and finds, as it comes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import typer

from ...domain.errors import Unavailable
from .client import Client, Refused
from .common import AsJson, names_of
from .output import as_line, print_json, safe, say, when

top = typer.Typer()

RETRY_SECONDS = 1.0
# Shown unless told otherwise.
USUAL = 20
Tell = Callable[[dict[str, Any]], None]


def _first_word(event: dict[str, Any]) -> str:
    return event["kind"].partition(" ")[0]


@top.command("events")
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what comes")] = False,
    domain: Annotated[
        str | None,
        typer.Option(help="only of this domain", autocompletion=names_of("domains")),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="only of this kind, or of kinds with these first words",
            autocompletion=names_of("events", _first_word, follow="false", limit=1000),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"how many of those that are there: {USUAL}, with --since or --after all of them"
        ),
    ] = None,
    since: Annotated[
        float | None, typer.Option(help="only from this time on, in seconds since the epoch")
    ] = None,
    after: Annotated[int | None, typer.Option(help="only behind the event with this id")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what sluiced does and finds, oldest first; with --follow until Ctrl-C.

    Kinds are shown before each sentence: decisions of auto-shaping ("gate on", "disk risk"),
    changes ("limit", "set class"), "domain running", "stream poor", "not in force" with the
    reason. Where events are lost, a "gap" tells how many. With --follow it waits for a sluiced
    that restarts, which it says on the standard error, and --json prints a line for each event.

    Example: sluice events --follow --kind gate

    Example: sluice events --follow --json --domain web1
    """
    if limit is None and since is None and after is None:
        limit = USUAL
    given = {"domain": domain, "kind": kind, "limit": limit, "since": since, "after": after}
    query = {name: value for name, value in given.items() if value is not None}
    if follow:
        _follow(context.obj, query, _print_line if as_json else _say)
        return
    answer = context.obj.call("GET", "events", query={**query, "follow": "false"})
    if as_json:
        print_json(answer)
        return
    for event in answer:
        _say(event)
    if not answer:
        say("no events of these" if domain or kind or since or after else "no events yet")


def _say(event: dict[str, Any]) -> None:
    say(f"{when(event['at'])}  {event['kind']:<14}  {event['sentence']}")


def _print_line(event: dict[str, Any]) -> None:
    print(as_line(event), flush=True)


def _note(text: str) -> None:
    print(f"sluice: {safe(text)}", file=sys.stderr, flush=True)


def _follow(client: Client, query: dict[str, Any], tell: Tell) -> None:
    try:
        place = _Place()
        while True:
            _read(client, query, tell, place)
            time.sleep(RETRY_SECONDS)
    except KeyboardInterrupt:
        return


class _Place:
    """How far it has read: `last` is an id, None before the first answer."""

    last: str | None = None
    is_lost = False


def _read(client: Client, query: dict[str, Any], tell: Tell, place: _Place) -> None:
    """One stream to its end. Raises as a call does, if it is the first; else it is tried again."""
    headers = {}
    if place.last is not None:
        headers["Last-Event-ID"] = place.last
        # These say where to begin.
        query = {name: query[name] for name in ("domain", "kind") if name in query}
    try:
        with client.lines("events", query=query, headers=headers) as lines:
            for last, event in parsed(lines):
                if place.is_lost:
                    _note("sluiced answers again")
                place.last, place.is_lost = last, False
                if event is not None:
                    tell(event)
        why = "sluiced has ended the stream"
    except (Unavailable, Refused) as error:
        status = error.status if isinstance(error, Unavailable) else error.problem.get("status")
        if place.last is None or status != Unavailable.status:
            raise
        why = str(error)
    if not place.is_lost:
        place.is_lost = True
        _note(f"{why}; trying again until it answers")


def parsed(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(id, event) of each block of server-sent events; None: a place alone."""
    last, data = "", None
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            last = value
        elif name == "data":
            data = json.loads(value)
        elif not line and last:
            yield last, data
            data = None
