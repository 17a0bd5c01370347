# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice stream, sluice auto."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.rates import format_rate
from .common import AsJson, ClassName, Domain, names_of
from .output import print_json, say, show, when

streams = typer.Typer(no_args_is_help=True, help="Streams: classes whose quality matters.")
group = typer.Typer(no_args_is_help=True, help="Auto-shaping: limits found while streams play.")

StreamName = Annotated[
    str,
    typer.Argument(help="name of a stream", metavar="STREAM", autocompletion=names_of("streams")),
]


def register(app: typer.Typer) -> None:
    app.add_typer(streams, name="stream")
    app.add_typer(group, name="auto")


@streams.command("list")
def list_streams(context: typer.Context, as_json: AsJson = False) -> None:
    """List the streams with the verdict on each."""
    answer = context.obj.call("GET", "streams")
    if as_json:
        return print_json(answer)
    rows = [
        (
            s["name"],
            f"{s['domain']}/{s['class']}",
            format_rate(s["nominal_bytes_per_second"]),
            s["verdict"],
            s["source"],
            s["reason"],
        )
        for s in answer
    ]
    show(("stream", "class", "rate", "verdict", "seen by", "reason"), rows, empty="no streams")


@streams.command("set")
def set_stream(
    context: typer.Context,
    stream: StreamName,
    domain: Domain,
    name: ClassName,
    rate: Annotated[str, typer.Argument(help="for example 7Mbit/s", metavar="RATE")],
    as_json: AsJson = False,
) -> None:
    """Watch over a class of a domain that streams at a rate.

    Example: sluice stream set movie media movie 7Mbit/s
    """
    body = {"domain": domain, "class": name, "nominal_bytes_per_second": rate}
    answer = context.obj.call("PUT", "streams", stream, body=body)
    if as_json:
        return print_json(answer)
    at = format_rate(answer["nominal_bytes_per_second"])
    say(f"stream {stream}: {domain}/{name} at {at}, {answer['verdict']}")


@streams.command("remove")
def remove_stream(context: typer.Context, stream: StreamName, as_json: AsJson = False) -> None:
    """Stop watching over a stream."""
    context.obj.call("DELETE", "streams", stream)
    if as_json:
        return print_json({"removed": stream})
    say(f"stream {stream}: removed")


def _say_auto(answer: dict[str, Any]) -> None:
    state = answer["state"] + (" (dry run)" if answer["dry_run"] else "")
    settled = answer["settled_after_seconds"]
    say(f"auto-shaping: {state}" + (f", settled after {settled:.1f} s" if settled else ""))
    rows = [
        (lim["domain"], lim["class"], lim["resource"], format_rate(lim["bytes_per_second"]))
        for lim in answer["limits"]
    ]
    show(("domain", "class", "resource", "held to"), rows, empty="nothing is held back")
    floors = answer["floors_bytes_per_second"].items()
    say("never below: " + ", ".join(f"{r} {format_rate(v)}" for r, v in floors))


def _put(context: typer.Context, body: dict[str, Any], as_json: bool) -> None:
    answer = context.obj.call("PUT", "auto", body=body)
    if as_json:
        return print_json(answer)
    return _say_auto(answer)


@group.command("status")
def auto_status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what auto-shaping does now."""
    answer = context.obj.call("GET", "auto")
    if as_json:
        return print_json(answer)
    return _say_auto(answer)


@group.command("on")
def auto_on(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="log decisions only")] = False,
    floor: Annotated[
        list[str] | None,
        typer.Option(help="RESOURCE=RATE below which no class is held; may be repeated"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Switch auto-shaping on.

    Example: sluice auto on --floor blk-read=2MB/s
    """
    body: dict[str, Any] = {"enabled": True, "dry_run": dry_run}
    for item in floor or []:
        resource, _, rate = item.partition("=")
        body.setdefault("floors_bytes_per_second", {})[resource] = rate
    _put(context, body, as_json)


@group.command("off")
def auto_off(context: typer.Context, as_json: AsJson = False) -> None:
    """Switch it off; every class has its own limits again."""
    _put(context, {"enabled": False}, as_json)


@group.command("log")
def auto_log(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many entries")] = 20,
    since: Annotated[float, typer.Option(help="seconds since the epoch")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Show what was decided and why, newest first."""
    answer = context.obj.call("GET", "auto", "log", query={"limit": limit, "since": since})
    if as_json:
        return print_json(answer)
    for entry in answer:
        say(f"{when(entry['at'])}  {'(dry run) ' if entry['dry_run'] else ''}{entry['sentence']}")
    if not answer:
        say("nothing was decided yet")
    return None
