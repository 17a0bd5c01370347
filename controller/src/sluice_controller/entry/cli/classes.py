# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice class, grant, revoke, limit, ceiling."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.limits import Limit
from ...domain.model import ShapingClass
from .common import (
    AsJson,
    ClassName,
    Domain,
    Rate,
    Resource,
    change_resource,
    count,
    described,
    given,
    nothing,
)
from .output import limits_text, print_json, say, show, yes

Burst = Annotated[str | None, described(Limit, "burst_bytes", "--burst")]
Operations = Annotated[str | None, described(Limit, "operations_per_second", "--ops")]
BurstOperations = Annotated[str | None, described(Limit, "burst_operations", "--burst-ops")]

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
    options = {
        "title": title,
        "priority": priority,
        "is_stream": stream,
        "weight": weight,
        "unmanaged": unmanaged,
    }
    answer = context.obj.call("PATCH", "classes", name, body=given(options))
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
    path = ("domains", domain, "classes", name)
    answer = context.obj.call("PATCH", *path, body=given({"dscp": dscp}))
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


def _limit(
    rate: str | None, burst: str | None, ops: str | None, burst_ops: str | None
) -> dict[str, Any] | None:
    """None: no limit at all."""
    if nothing(rate) and burst is ops is burst_ops is None:
        return None
    body = given(
        {
            "bytes_per_second": rate,
            "burst_bytes": burst,
            "operations_per_second": count(ops, "ops"),
            "burst_operations": count(burst_ops, "burst-ops"),
        }
    )
    # A burst goes with its rate.
    if nothing(rate):
        body.setdefault("burst_bytes", None)
    if nothing(ops):
        body.setdefault("burst_operations", None)
    return body


def limit(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    rate: Rate = None,
    burst: Burst = None,
    ops: Operations = None,
    burst_ops: BurstOperations = None,
    as_json: AsJson = False,
) -> None:
    """Limit a class of a domain on one resource.

    What is not given stays; 'none' takes one part away, 'unlimited' alone the whole limit.

    Examples: sluice limit media batch blk-read 20MB/s --burst 256KiB;
    sluice limit media batch blk-read 30MB/s --ops none;
    sluice limit media batch blk-read unlimited
    """
    path = ("domains", domain, "classes", name, "limits", resource)
    answer = change_resource(context, path, _limit(rate, burst, ops, burst_ops))
    if as_json:
        return print_json(answer)
    _say_grant(domain, answer)


def ceiling(
    context: typer.Context,
    domain: Domain,
    resource: Resource,
    rate: Rate = None,
    burst: Burst = None,
    ops: Operations = None,
    burst_ops: BurstOperations = None,
    as_json: AsJson = False,
) -> None:
    """Limit a whole domain on one resource, all its classes together.

    What is not given stays; 'none' takes one part away, 'unlimited' alone all of it.

    Example: sluice ceiling media net-tx 400Mbit/s
    """
    path = ("domains", domain, "ceiling", resource)
    answer = change_resource(context, path, _limit(rate, burst, ops, burst_ops))
    if as_json:
        return print_json(answer)
    say(f"{domain}: ceiling {limits_text(answer['ceiling'])}")
