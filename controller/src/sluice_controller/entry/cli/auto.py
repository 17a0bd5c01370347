# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice stream, sluice auto."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ...domain.model import AutoSettings
from ...domain.rates import format_rate
from .common import Answered, ClassName, Domain, command, described, named, nothing
from .output import say, show, shown, when

streams = typer.Typer(no_args_is_help=True, help="Streams: classes whose quality matters.")
group = typer.Typer(no_args_is_help=True, help="Auto-shaping: limits found while streams play.")

StreamName = named("STREAM", "name of a stream", "streams")


@command(streams, "list")
def list_streams(context: typer.Context) -> Answered:
    """List the streams with the verdict on each."""
    columns = {
        "stream": "name",
        "class": lambda s: f"{s['domain']}/{s['class']}",
        "rate": lambda s: s["nominal"]["sentence"],
        "verdict": "verdict",
        "waits for processors": _processors,
        "seen by": lambda s: s["source"] + _ago(s["source_at"]),
        "reason": "reason",
    }
    return context.obj.call("GET", "streams"), shown(columns, empty="no streams")


def _processors(stream: dict[str, Any]) -> str:
    waits_ms = stream["processor_wait_ms_per_second"]
    return "unknown" if waits_ms is None else f"{waits_ms:.0f} ms/s"


def _ago(at: float | None) -> str:
    return "" if at is None else f", {max(0.0, time.time() - at):.0f} s ago"


@command(streams, "records")
def stream_records(context: typer.Context, domain: Domain) -> Answered:
    """List what a domain's guest says of its streams.

    A record of a class without a declared stream judges nothing.
    """
    columns = {
        "class": "class",
        "record": "name",
        "told by": lambda r: r["source"] + _ago(r["at"]),
        "frames": "frames",
        "late": "late",
        "lost": "lost",
        "verdict": "verdict",
        "reason": "reason",
        "stream": lambda r: r["stream"] or "none declared",
    }
    answer = context.obj.call("GET", "domains", domain, "streams")
    return answer, shown(columns, empty="the guest says nothing of streams")


@command(streams, "set")
def set_stream(
    context: typer.Context,
    stream: StreamName,
    domain: Domain,
    name: ClassName,
    rate: Annotated[
        str | None,
        typer.Argument(help="for example 7Mbit/s; none: it is learnt", metavar="[RATE]"),
    ] = None,
) -> Answered:
    """Watch over a class of a domain that streams.

    Without a rate Sluice learns it from what the stream moves while nothing holds it up.

    Examples: sluice stream set movie media movie 7Mbit/s;
    sluice stream set tv settop default
    """
    body = {"domain": domain, "class": name, "nominal_bytes_per_second": rate}
    answer = context.obj.call("PUT", "streams", stream, body=body)
    words = f"{answer['verdict']}; rate: {answer['nominal']['sentence']}"
    return answer, f"stream {stream}: {domain}/{name}, {words}"


@command(streams, "remove")
def remove_stream(context: typer.Context, stream: StreamName) -> Answered:
    """Stop watching over a stream."""
    context.obj.call("DELETE", "streams", stream)
    return {"removed": stream}, f"stream {stream}: removed"


def _say_auto(answer: dict[str, Any]) -> None:
    state = answer["state"] + (" (dry run)" if answer["dry_run"] else "")
    settled = answer["settled_after_seconds"]
    say(
        f"auto-shaping by {answer['method']}: {state}"
        + (f", settled after {settled:.1f} s" if settled else "")
    )
    columns = {
        "domain": "domain",
        "class": "class",
        "resource": "resource",
        "at": lambda held: format_rate(held["bytes_per_second"]),
        "held by": "by",
    }
    gated = [
        {**one, "by": f"gate of {device['name']}"}
        for device in answer["devices"]
        for one in device["held"]
    ]
    limited = [{**one, "by": "rate"} for one in answer["limits"]]
    show([*limited, *gated], columns, empty="nothing is held back")
    for sentence in answer["sentences"]:
        say(sentence)
    floors = answer["floors_bytes_per_second"].items()
    say("never below: " + ", ".join(f"{r} {format_rate(v)}" for r, v in floors))


@command(group, "status")
def auto_status(context: typer.Context) -> Answered:
    """Show the present state of auto-shaping."""
    return context.obj.call("GET", "auto"), _say_auto


@command(group, "on")
def auto_on(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="log decisions only")] = False,
    method: Annotated[str | None, described(AutoSettings, "method")] = None,
    round_trips: Annotated[bool | None, described(AutoSettings, "round_trips")] = None,
    floor: Annotated[
        list[str] | None,
        typer.Option(help="RESOURCE=RATE below which no class is held; may be repeated"),
    ] = None,
) -> Answered:
    """Switch auto-shaping on.

    Example: sluice auto on --floor blk-read=2MB/s
    """
    body: dict[str, Any] = {"enabled": True, "dry_run": dry_run}
    if method is not None:
        body["method"] = method
    if round_trips is not None:
        body["round_trips"] = round_trips
    for item in floor or []:
        resource, _, rate = item.partition("=")
        body.setdefault("floors_bytes_per_second", {})[resource] = rate
    return context.obj.call("PUT", "auto", body=body), _say_auto


@command(group, "device")
def auto_device(
    context: typer.Context,
    images: Annotated[
        str, typer.Argument(help="the beginning of images' paths, or PROTOCOL:NAME", metavar="PATH")
    ],
    name: Annotated[str, typer.Argument(help="of a device; none: as the host sees it")],
) -> Answered:
    """Name the device that disks lie on, where the host does not see it.

    Disks of one name share a device. The name of a device of this host, as sda, means that device.
    Examples: sluice auto device /srv/san1 san1; sluice auto device rbd:vms ceph;
    sluice auto device /srv/san1 none
    """
    body = {"device_names": {images: None if nothing(name) else name}}
    return context.obj.call("PUT", "auto", body=body), _say_auto


@command(group, "off")
def auto_off(context: typer.Context) -> Answered:
    """Switch it off; every class has its own limits again."""
    return context.obj.call("PUT", "auto", body={"enabled": False}), _say_auto


@command(group, "log")
def auto_log(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many entries")] = 20,
    since: Annotated[float, typer.Option(help="seconds since the epoch")] = 0.0,
) -> Answered:
    """Show the decisions with their reasons, newest first."""

    def tell(answer: list[dict[str, Any]]) -> None:
        for one in answer:
            say(f"{when(one['at'])}  {'(dry run) ' if one['dry_run'] else ''}{one['sentence']}")
        if not answer:
            say("nothing was decided yet")

    query = {"limit": limit, "since": since}
    return context.obj.call("GET", "auto", "log", query=query), tell
