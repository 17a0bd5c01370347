# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice class, grant, revoke, limit, ceiling."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.limits import Limit
from ...domain.model import ShapingClass
from ...domain.rates import parse_rate, parse_size
from .common import AsJson, ClassName, Domain, Rate, Resource, described, grant_of
from .output import limits_text, print_json, say, show, yes

Burst = Annotated[str | None, described(Limit, "burst_bytes", "--burst")]
Operations = Annotated[float | None, described(Limit, "operations_per_second", "--ops")]
BurstOperations = Annotated[float | None, described(Limit, "burst_operations", "--burst-ops")]

group = typer.Typer(no_args_is_help=True, help="Classes: kinds of I/O, on any domain.")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="class")
    app.command()(grant)
    app.command()(revoke)
    app.command()(limit)
    app.command()(ceiling)


@group.command("list")
def list_classes(context: typer.Context, as_json: AsJson = False) -> None:
    """List all classes."""
    answer = context.obj.call("GET", "classes")
    if as_json:
        return print_json(answer)
    rows = [
        (
            c["name"],
            c["title"],
            c["priority"],
            c["weight"],
            yes(c["is_stream"]),
            yes(c["unmanaged"]),
        )
        for c in answer
    ]
    columns = ("class", "title", "priority", "weight", "stream", "unmanaged")
    show(columns, rows, right=("priority", "weight"))


@group.command("set")
def set_class(
    context: typer.Context,
    name: ClassName,
    title: Annotated[str | None, described(ShapingClass, "title")] = None,
    priority: Annotated[int | None, described(ShapingClass, "priority")] = None,
    stream: Annotated[
        bool | None, described(ShapingClass, "is_stream", "--stream/--no-stream")
    ] = None,
    weight: Annotated[int | None, described(ShapingClass, "weight")] = None,
    unmanaged: Annotated[
        bool | None, described(ShapingClass, "unmanaged", "--unmanaged/--managed")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a class, or change what is given.

    Examples: sluice class set movie --title "The movie" --priority 1 --stream;
    sluice class set batch --priority 7 --weight 300
    """
    present = next((c for c in context.obj.call("GET", "classes") if c["name"] == name), {})
    given = {
        "title": title,
        "priority": priority,
        "is_stream": stream,
        "weight": weight,
        "unmanaged": unmanaged,
    }
    body = {key: present[key] for key in given if key in present}
    body.update({key: value for key, value in given.items() if value is not None})
    answer = context.obj.call("PUT", "classes", name, body=body)
    if as_json:
        return print_json(answer)
    say(
        f"class {name}: priority {answer['priority']}, weight {answer['weight']}, "
        f"stream {yes(answer['is_stream'])}, unmanaged {yes(answer['unmanaged'])}"
    )


@group.command("remove")
def remove_class(context: typer.Context, name: ClassName, as_json: AsJson = False) -> None:
    """Remove a class that no domain has and no rule names."""
    context.obj.call("DELETE", "classes", name)
    if as_json:
        return print_json({"removed": name})
    say(f"class {name}: removed")


def _say_grant(domain: str, answer: dict[str, Any]) -> None:
    say(f"{domain}/{answer['class']}: tag {answer['tag']}, {limits_text(answer['limits'])}")


def grant(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    dscp: Annotated[
        list[int] | None, typer.Option(help="DSCP value that selects the class; may be repeated")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Allow a domain to use a class. What it has of the class already is kept.

    Example: sluice grant media batch
    """
    present = grant_of(context, domain, name)
    body = {
        "limits": present.get("limits", {}),
        "scheduling": present.get("scheduling", {}),
        "queues": present.get("queues", {}),
        "dscp": present.get("dscp", []) if dscp is None else dscp,
    }
    answer = context.obj.call("PUT", "domains", domain, "classes", name, body=body)
    if as_json:
        return print_json(answer)
    _say_grant(domain, answer)


def revoke(
    context: typer.Context, domain: Domain, name: ClassName, as_json: AsJson = False
) -> None:
    """Take a class from a domain, with its rules and assignments there."""
    answer = context.obj.call("DELETE", "domains", domain, "classes", name)
    if as_json:
        return print_json(answer)
    say(f"{domain}/{name}: revoked")
    for rule in answer["rules"]:
        say(f"  removed rule {rule['id']}")
    for assignment in answer["assignments"]:
        say(f"  removed the assignment of process {assignment['pid']}")


def _limit_body(
    rate: str, burst: str | None, ops: float | None, burst_ops: float | None
) -> dict[str, Any]:
    body = {
        "bytes_per_second": parse_rate(rate),
        "burst_bytes": None if burst is None else parse_size(burst),
        "operations_per_second": ops,
        "burst_operations": burst_ops,
    }
    return {key: value for key, value in body.items() if value is not None}


def limit(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    rate: Rate,
    burst: Burst = None,
    ops: Operations = None,
    burst_ops: BurstOperations = None,
    as_json: AsJson = False,
) -> None:
    """Limit a class of a domain on one resource.

    It replaces the limit that there is: operations that are not given are not limited.

    Examples: sluice limit media batch blk-read 20MB/s --burst 256KiB;
    sluice limit media batch blk-read unlimited
    """
    body = _limit_body(rate, burst, ops, burst_ops)
    path = ("domains", domain, "classes", name, "limits", resource)
    if body:
        answer = context.obj.call("PUT", *path, body=body)
    else:
        answer = context.obj.call("DELETE", *path)
    if as_json:
        return print_json(answer)
    _say_grant(domain, answer)


def ceiling(
    context: typer.Context,
    domain: Domain,
    resource: Resource,
    rate: Rate,
    burst: Burst = None,
    ops: Operations = None,
    burst_ops: BurstOperations = None,
    as_json: AsJson = False,
) -> None:
    """Limit a whole domain on one resource, all its classes together.

    It replaces the limit that there is on this resource.

    Example: sluice ceiling media net-tx 400Mbit/s
    """
    limits = dict(context.obj.call("GET", "domains", domain)["ceiling"])
    limits.pop(resource, None)
    body = _limit_body(rate, burst, ops, burst_ops)
    if body:
        limits[resource] = body
    answer = context.obj.call("PUT", "domains", domain, "ceiling", body=limits)
    if as_json:
        return print_json(answer)
    say(f"{domain}: ceiling {limits_text(answer['ceiling'])}")
